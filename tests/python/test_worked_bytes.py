"""The worked bytes of docs/codecs.md are those of the decoder that was written from it, and
tersum's own: every row of its table of payloads, and every paragraph "Worked: …" of one."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tersum

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))

import shared_scales
import shift_sums
from block_products import GOLDEN
from channel_factors import factors_of, state_bytes
from clipped_slices import encode_contribution
from encode_slice import encode
from format_table import ALL, SUMMED, TABLES, parse_spec
from learned_clip import Clips
from test_kmeans_sites import learned_levels, levels_of

Run = Callable[..., list[Any]]
Floats = np.ndarray[Any, Any]

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "codecs.md"
WIRE = DOCUMENT.with_name("wire-format.md").read_text(encoding="utf-8")
#: Calls with learned clips: make_clips.py says what stands in a line.
CLIPS_FILE = Path(__file__).resolve().parents[1] / "golden" / "codec" / "clips.txt"
GOLDEN_CLIPS = [line.split() for line in CLIPS_FILE.read_text().splitlines()]
WORKED_CLIP = ["worked_example", "int4/32+clip:learned", "float32"]
TABLE_HEAD = "| values | spec | scale, and why | payload |"
SHEAR = "kronecker:f65fba137a5c2670"
#: Hexadecimal bytes, and how often they are meant.
BYTES = re.compile(r"(?:(\d+) times )?`((?:[0-9a-f]{2})(?: ?[0-9a-f]{2})*)`")
#: What paragraphs work out, by their specs.
PAYLOADS: dict[str, list[float]] = {
    "bf16": [1 + 2.0**-8, 1 + 3 * 2.0**-8, -0.1, 3.4028234663852886e38],
    "int4/32+rows:4": [0, 1, -2, 0.5, 3, 7],
    "int4/32+sparse:10%": [0, 1, -2, 0.5, 101.3],
    "nvfp4+hadamard": [1, *[0] * 15],
    f"int8/32+{SHEAR}": [4, *[0] * 31],
    "int4/32+mixed": [15, 1, *[0] * 62, 7],
    "int4/64+adaptive": [1, *[0] * 31, *[0.5] * 33],
    "int4/32+sr": [7, 1, -2, 0.25, 0.25],
}
TERNARY: list[list[float]] = [[100, -3, 127], [90, 1, 127], [-4, 0.5, 127]]
#: The same of sums: the ranks' values, and the key of rank 0.
SUMS: dict[str, tuple[list[list[float]], int]] = {
    "sum8/32": (TERNARY, 0),
    "sum8:tensor": (TERNARY, 0),
    "sum8/32+hadamard": ([[64, *[0] * 31], [0, 32, *[0] * 30]], 0),
    "sum8/32+rows:2": ([[100, -3, 0.25, 1], [27, 1, -0.5, 0.5]], 0),
    "lut2/32+rows:3": ([[3, -1, 0, 0.5], [2.5, 1, -3, -0.25]], 0),
    "lut2/32": ([[3, -1, 0], [2.5, 1, -3]], 0),
    "sum:exp": ([[3, -4, 1], [-1, 0, -1]], 2**40 + 58_620),
}
#: How the paragraph of a sum begins.
SUM_HEADS = {
    "sum8/32": "Worked, R = 3, `sum8/32`",
    "sum8:tensor": "Worked, R = 3, `sum8:tensor`",
    "sum8/32+hadamard": "Worked, R = 2, `sum8/32+hadamard`",
    "sum8/32+rows:2": "Worked, R = 2, `sum8/32+rows:2`",
    "lut2/32+rows:3": "Worked, R = 2, `lut2/32+rows:3`",
    "lut2/32": "Worked, R = 2, values (3, −1, 0)",
    "sum:exp": "Worked, R = 2, k = 1",
}


def rows() -> list[tuple[str, list[float], bytes]]:
    """Spec, values and payload of each row of the table."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    found = []
    for line in lines[lines.index(TABLE_HEAD) + 2 :]:
        if not line.startswith("|"):
            break
        values, spec, _, payload = (cell.strip() for cell in line.strip("|").split("|"))
        numbers = [float(value.replace("−", "-")) for value in values.split(",")]
        found.append((spec.split("`")[1], numbers, written(payload)))
    return found


def written(text: str) -> bytes:
    """All hexadecimal bytes of a text, in a row."""
    return b"".join(
        int(times or 1) * bytes.fromhex(digits) for times, digits in BYTES.findall(text)
    )


@cache
def paragraphs() -> list[str]:
    """Of the document."""
    return DOCUMENT.read_text(encoding="utf-8").split("\n\n")


def worked(head: str) -> bytes:
    """The bytes of the one paragraph "Worked" that begins so, or names the spec."""
    (found,) = [text for text in paragraphs() if text.startswith("Worked") and head in text]
    return written(found)


def encoded(spec: str, values: list[float]) -> bytes:
    """By the reference, and by tersum alike."""
    if SHEAR in spec:
        tersum.codec_info(f"int8/32+kronecker:{GOLDEN / SHEAR.partition(':')[2]}.txt")
    array = np.array(values, np.float32)
    payload = encode(spec, "float32", [float(x) for x in array])
    assert tersum.encode_payload(array, spec) == payload
    return payload


def test_rows_of_the_table() -> None:
    for file in TABLES:
        tersum.codec_info(f"table:{file}")
    for spec, values, payload in rows():
        assert encoded(spec, values) == payload, spec


@pytest.mark.parametrize("spec", PAYLOADS)
def test_paragraphs_of_payloads(spec: str) -> None:
    assert encoded(spec, PAYLOADS[spec]) in worked(f"`{spec}`"), spec


@pytest.mark.parametrize("text", SUMS)
def test_paragraphs_of_sums(text: str) -> None:
    """The sum's payload; and where contributions are no plain numbers, theirs."""
    values, key = SUMS[text]
    spec, ranks = parse_spec(text), len(values)
    scales = shared_scales.scale_bits(spec, "float32", values)
    codes = [
        shared_scales.codes(spec, ranks, row, scales, key + rank) for rank, row in enumerate(values)
    ]
    parts = b"".join(shared_scales.pack_contribution(spec, row) for row in codes)
    found = worked(SUM_HEADS[text])
    assert shared_scales.pack_sum(spec, ranks, shared_scales.add(spec, codes, key)) in found
    assert text.startswith("sum8/32") or parts in found


def paragraph(head: str) -> str:
    """The one that begins so."""
    (found,) = [text for text in paragraphs() if text.startswith(head)]
    return found


def numbers_in(text: str) -> list[float]:
    """In decimal, as they stand there."""
    found = re.findall(r"(?<![\w.`])−?\d+(?:\.\d+)?(?![\w`]|\.\d)", text)
    return [float(number.replace("−", "-")) for number in found]


def test_the_paragraph_of_a_sum_of_shifts(run_group: Run) -> None:
    """Values, payloads, the integers on the way and what they come to; by the reference, and by a
    group of two that does not code its sum again."""
    text = paragraph("Worked, R = 2, `shiftadd/32`")
    spec, rows = "shiftadd/32", [[3.125, 0.09375], [0.546875, -0.0078125]]
    first, second = (f"({str(row)[1:-1]})".replace("-", "−") for row in rows)
    assert f"values {first} and {second}" in text
    payloads = [encoded(spec, row) for row in rows]
    assert b"".join(payloads) == written(text)
    sums = shift_sums.plain_sum(spec, 2, payloads)
    for value in sums:
        assert {value, value * 2.0**28} <= {*numbers_in(text)}, value

    def body(group: tersum.Communicator) -> Floats:
        own = np.array(rows[group.rank], np.float32)
        return np.asarray(group.all_reduce(own, codec=spec, plan="one_shot"))

    for got in run_group(2, body):
        assert got.tolist() == sums


def test_the_paragraph_of_learned_levels(run_group: Run) -> None:
    """The sum's values, its scale, and the levels; by the reference and by a group of two."""
    text = paragraph("Worked: 4,096 values 0, 32, −64, 127 over and over with `kmeans:4/32`")
    period = numbers_in(text.partition("values")[2].partition("over")[0])
    values = np.tile(np.array(period, np.float32), 1024)
    expected = levels_of(values, 4, 32)
    parts = numbers_in(text.partition("the parts are")[2])
    assert sorted(parts[:4]) == [round(float(level), 6) for level in expected]
    assert f"s = {max(period):.0f}" in text

    def body(group: tersum.Communicator) -> tuple[Floats, bytes]:
        half = values / 2  # which int8 holds as they are, too
        return group.all_reduce(half, codec="kmeans:4/32", site="w"), group.save_flatten()

    for got, saved in run_group(2, body):
        assert got.tobytes() == values.tobytes()
        assert learned_levels(saved)[0].tobytes() == expected.tobytes()


def test_the_paragraphs_of_a_learned_clip() -> None:
    """Both layouts with the report that wire-format.md works out, by the reference; of tersum the
    layout in blocks here, and by tests/golden, which its C++ tests hold, the one that is held."""
    spec = "int4/32+clip:learned"
    in_blocks, held = paragraph(f"Worked: `{spec}` of").split("Held, ")
    (report,) = [text for text in WIRE.split("\n\n") if f"0.5, 9 in `{spec}`" in text]
    values: list[float] = [0, 1, -2, 0.5, 9]
    clips = Clips(7, 10.5, 2)
    for layout, body in (("blocks", in_blocks), ("held", held)):
        payload = encode_contribution(parse_spec(spec), "float32", values, layout == "held", clips)
        assert payload == written(body) + written(report), layout
        (golden,) = [case for case in GOLDEN_CLIPS if case[:4] == [*WORKED_CLIP, layout]]
        assert bytes.fromhex(golden[8]) == np.array([7, 10.5], "<f4").tobytes()
        assert golden[10].startswith(payload.hex()), layout
    unknown = tersum.encode_payload(np.array(values, np.float32), spec)
    assert unknown == written(in_blocks) + bytes(64)


def test_the_paragraph_of_flatten() -> None:
    """By the reference; of tersum, which gets factors from calls, tests/golden holds the same."""
    factors = factors_of(state_bytes(16, [0, 2]))
    payload = encode("int4/32+flatten", "float32", [0, 64, *[0] * 30], factors=factors)
    assert payload == worked("`int4/32+flatten`")[2:]  # behind the scale as a number


def test_every_format_has_a_row_or_a_paragraph() -> None:
    shown = {parse_spec(spec).base for spec, _, _ in rows()}
    shown |= {parse_spec(spec).base for spec in (*PAYLOADS, *SUMS)}
    tables = {name for name in shown if name.startswith("table:")}
    assert tables
    formats = {format.name for format in [*ALL, *SUMMED] if not format.name.startswith("table:")}
    assert formats | {"bf16"} <= shown
