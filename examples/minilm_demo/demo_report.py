"""What the demo's measurements say: shares, speed-ups, embedding quality, and the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ALL_REDUCES_PER_FORWARD = 12
BASELINE = "jax"
REFERENCE = "bf16"
# The bars of the check, for each codec: mean cosine; and for speed: the share of time that the
# bf16 wire spends in collectives above which int8 must win by this factor, end to end.
COSINE_MIN = {"int8/128": 0.9997, "int8/32": 0.9999}
SHARE_MIN, SPEEDUP_MIN, PREDICTION_TOLERANCE = 0.45, 1.25, 0.10


@dataclass(frozen=True)
class Row:
    """One wire on one link. Times in seconds: medians over batches, of the slower rank.

    `wire_bytes`: of one batch and rank; on a shaped link what its interface sent, headers included,
    else the payload that tersum counted (0: unknown). `counted_share`: the time inside collectives
    by tersum's own count, waiting for the other rank included; `share` knows nothing of it.
    """

    link: str
    wire: str
    batches: int
    batch_seconds: float
    compute_seconds: float
    psum_seconds: float
    bucket_seconds: float
    wire_bytes: float
    counted_share: float | None
    same_bits: bool

    @property
    def share(self) -> float:
        """Part of the time that the collectives add to the compute-only pass."""
        return max(0.0, 1.0 - self.compute_seconds / self.batch_seconds)

    @property
    def predicted_seconds(self) -> float:
        """Compute plus twelve all-reduces measured back to back, each less the shaper's bucket,
        which is full again after the compute between two of them."""
        alone = max(0.0, self.psum_seconds - self.bucket_seconds)
        return self.compute_seconds + ALL_REDUCES_PER_FORWARD * alone


@dataclass(frozen=True)
class Quality:
    """Embeddings of one wire against the single process's."""

    wire: str
    texts: int
    cosine_mean: float
    cosine_min: float
    hits_counted: int
    hits_changed: int


def make_row(ranks: list[dict[str, Any]], bits_per_s: float, burst_bytes: int) -> Row:
    """Joins the ranks' measurements. `bits_per_s` 0 means no shaper."""

    def slowest(field: str) -> float:
        return max(median(rank[field] or [0]) for rank in ranks)

    return Row(
        link=ranks[0]["link"],
        wire=ranks[0]["wire"],
        batches=len(ranks[0]["batch_seconds"]),
        batch_seconds=slowest("batch_seconds"),
        compute_seconds=slowest("compute_seconds"),
        psum_seconds=slowest("psum_seconds"),
        bucket_seconds=burst_bytes * 8 / bits_per_s if bits_per_s else 0.0,
        wire_bytes=slowest("interface_bytes" if bits_per_s else "payload_bytes"),
        counted_share=counted_share(ranks[0]),
        same_bits=len({rank["embedding_digest"] for rank in ranks}) == 1,
    )


def counted_share(rank: Mapping[str, Any]) -> float | None:
    pairs = list(zip(rank["collective_seconds"], rank["batch_seconds"], strict=False))
    return median(inside / whole for inside, whole in pairs) if pairs else None


def judge_quality(single: np.ndarray, by_wire: Mapping[str, np.ndarray]) -> list[Quality]:
    """Cosines and changed search hits of each wire's embeddings [texts, 384].

    Every text searches all others. Its hit counts only where the single process's margin between
    first and second exceeds twice the largest change of any score by the bf16 wire (both may
    move): below that even bf16 swaps near-duplicates. Without a bf16 wire every margin counts.
    """
    scores = similarities(single)
    noise = 0.0
    if REFERENCE in by_wire:
        other = by_wire[REFERENCE]
        known = scores[: len(other), : len(other)]
        noise = float(np.nan_to_num(np.abs(similarities(other) - known), posinf=0).max())
    result = []
    for wire, vectors in by_wire.items():
        count = len(vectors)
        exact = similarities(single[:count])
        ordered = np.sort(exact, axis=1)
        counted = ordered[:, -1] - ordered[:, -2] > 2 * noise
        changed = exact.argmax(axis=1) != similarities(vectors).argmax(axis=1)
        norms = np.linalg.norm(single[:count], axis=1) * np.linalg.norm(vectors, axis=1)
        cosines = (single[:count].astype(np.float64) * vectors).sum(axis=1) / norms
        result.append(
            Quality(
                wire=wire,
                texts=count,
                cosine_mean=float(cosines.mean()),
                cosine_min=float(cosines.min()),
                hits_counted=int(counted.sum()),
                hits_changed=int((changed & counted).sum()),
            )
        )
    return result


def similarities(vectors: np.ndarray) -> np.ndarray:
    """Cosine of every pair, float64 [texts, texts]; -1 on the diagonal: nobody finds himself."""
    wide = vectors.astype(np.float64)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    scores: np.ndarray = wide @ wide.T
    np.fill_diagonal(scores, -1.0)
    return scores


def table(rows: list[Row], qualities: list[Quality]) -> str:
    """The table, one block per link, widths fixed."""
    quality = {item.wire: item for item in qualities}
    head = (
        f"{'wire':<9} {'ms/batch':>9} {'in coll.':>8} {'vs jax':>7} {'vs bf16':>7} "
        f"{'MB/batch':>9} {'cosine mean (min)':>20} {'hits changed':>12}"
    )
    lines = []
    for link in unique(row.link for row in rows):
        here = {row.wire: row for row in rows if row.link == link}
        lines += ["", f"{link} link", head, "-" * len(head)]
        for row in here.values():
            score = quality[row.wire]
            lines.append(
                f"{row.wire:<9} {row.batch_seconds * 1e3:>9.1f} {row.share:>8.0%} "
                f"{speedup(here, row, BASELINE)} {speedup(here, row, REFERENCE)} "
                f"{megabytes(row.wire_bytes):>9} "
                f"{score.cosine_mean:>10.6f} ({score.cosine_min:.4f}) "
                f"{score.hits_changed:>6}/{score.hits_counted}"
            )
    return "\n".join(lines)


def speedup(here: Mapping[str, Row], row: Row, over: str) -> str:
    return f"{here[over].batch_seconds / row.batch_seconds:>6.2f}x" if over in here else f"{'-':>7}"


def megabytes(count: float) -> str:
    return f"{count / 1e6:.2f}" if count else "-"


def unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def quality_checks(rows: list[Row], qualities: list[Quality]) -> list[tuple[bool, str]]:
    """Each claim that no other program can disturb, with whether it held: same bits, cosines."""
    found: list[tuple[bool, str]] = [
        (row.same_bits, f"{row.link}, {row.wire}: both ranks hold the same bits")
        for row in rows
        if not row.same_bits
    ] or [(True, f"both ranks hold the same bits in all {len(rows)} runs")]
    for item in qualities:
        bar = COSINE_MIN.get(item.wire)
        if bar is not None:
            text = f"{item.wire}: mean cosine {item.cosine_mean:.6f}, bar {bar}"
            found.append((item.cosine_mean >= bar, text))
    return found


def exit_status(
    quality: list[tuple[bool, str]], speed: list[tuple[bool, str]], check_speed: bool
) -> int:
    """Of the demo. A busy machine may miss a speed, so that only who asks is told by the status."""
    return 0 if all(held for held, _ in quality + (speed if check_speed else [])) else 1


def all_speed_checks(rows: list[Row]) -> list[tuple[bool, str]]:
    """The same of speeds, and of what predicts them, on every link."""
    found: list[tuple[bool, str]] = []
    for link in unique(row.link for row in rows):
        here = {row.wire: row for row in rows if row.link == link}
        if REFERENCE in here and "int8/128" in here:
            found += speed_checks(here[REFERENCE], here["int8/128"])
    return found


def speed_checks(bf16: Row, int8: Row) -> list[tuple[bool, str]]:
    measured = bf16.batch_seconds / int8.batch_seconds
    predicted = bf16.predicted_seconds / int8.predicted_seconds
    where = f"{bf16.link}: int8/128 over bf16"
    text = f"{where} {measured:.2f}x, predicted {predicted:.2f}x from the collective times"
    found = [(abs(measured / predicted - 1) <= PREDICTION_TOLERANCE, text)]
    share = f"bf16 spends {bf16.share:.0%} of its time in collectives"
    if bf16.share >= SHARE_MIN:
        found.append((measured >= SPEEDUP_MIN, f"{where} {measured:.2f}x, bar 1.25x: {share}"))
    return found


def as_json(
    rows: list[Row], qualities: list[Quality], outcome: list[tuple[bool, str]]
) -> dict[str, Any]:
    derived = [
        asdict(row) | {"share": row.share, "predicted_seconds": row.predicted_seconds}
        for row in rows
    ]
    return {
        "rows": derived,
        "quality": [asdict(item) for item in qualities],
        "checks": [{"held": held, "text": text} for held, text in outcome],
    }


def load_embeddings(out: Path, link: str, wires: Iterable[str]) -> dict[str, np.ndarray]:
    return {wire: np.load(out / f"{wire.replace('/', '_')}-{link}.npy") for wire in wires}
