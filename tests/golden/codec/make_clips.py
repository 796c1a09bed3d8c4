"""Writes clips.txt from the reference: run it to add a case, never to mend a test.

One call with a learned clip per line: name, spec, dtype, layout ("blocks" or "held"), ranks, count,
owner, divisor (1, or the ranks of an average), then in hexadecimal the two clips (float32: of
contributions, of sums), the ranks' values, their payloads, what rank 1 passes on when it has added
its values to rank 0's payload, the owner's sum, what that decodes to, and what the contributions of
all ranks come to where nobody codes their sum ("-" where there are none). All little-endian.

And refused_clips.txt, payloads of the held layout that must fail: name, spec, dtype, count, the
payload in hexadecimal, and what is wrong, as in refused.txt.
"""

from __future__ import annotations

import math
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "reference"))
sys.path.insert(0, str(HERE))

import clipped_slices  # noqa: E402
from format_table import parse_spec  # noqa: E402
from learned_clip import Clips  # noqa: E402
from make_payloads import BFLOAT16_MAX, FLOAT32_MAX, Number, normal, pack, unpack  # noqa: E402

Rows = list[list[Number]]
#: Name, spec, dtype, the ranks' values, clips.
Case = tuple[str, str, str, Rows, tuple[float, float]]


def rows(ranks: int, count: int, scale: float = 1.0) -> Rows:
    """Bell-shaped data, other on each rank."""
    return [normal(count, scale, 100 * ranks + rank) for rank in range(ranks)]


def size_cases() -> list[Case]:
    """Every format; short, ragged and long slices."""
    cases: list[Case] = []
    for bits, clips in {8: (4, 9), 7: (4, 9), 6: (3.5, 8), 5: (3, 7), 4: (2.6, 6), 3: (2.1, 5),
                        2: (1.2, 2.7)}.items():  # fmt: skip
        spec = f"int{bits}/32+clip:learned"
        cases += [
            ("ragged", spec, "float32", rows(3, 101), clips),
            ("short", spec, "bfloat16", rows(2, 3), clips),
            ("rotated", f"int{bits}/64+hadamard+clip:learned", "float32", rows(3, 138), clips),
        ]
    for count in (1, 31, 32, 33, 127, 300):
        spec = "int4/128+clip:learned"
        cases.append((f"normal_{count}", spec, "float32", rows(4, count), (2.6, 5.1)))
    far = [[x * 2.0 ** (i // 256 % 3) for i, x in enumerate(row)] for row in rows(3, 700)]
    cases += [
        ("empty", "int4/32+clip:learned", "float32", [[], []], (1, 2)),
        ("outgrown", "int3/32+clip:learned", "float32", far, (1.5, 3)),
        ("half", "int5/64+clip:learned", "float16", rows(5, 90), (3, 6.5)),
        ("rotated", "int4/32+hadamard+clip:learned", "float16", rows(5, 90), (0.5, 1.1)),
        # Of tiles 0, 1, …, 4 the first and the last are measured.
        ("five_tiles", "int2/1024+clip:learned", "bfloat16", rows(2, 4 * 3072 + 35), (1.2, 1.7)),
    ]
    return cases


def edge_cases() -> list[Case]:
    """Clips that are unknown, tiny, huge, and far from the values."""
    lost = rows(3, 70)
    lost[1][40] = math.nan
    infinite = rows(3, 70)
    infinite[2][69] = -math.inf
    huge: Rows = [[FLOAT32_MAX, -1e38, 1.0], [FLOAT32_MAX, 3e38, 2.0]]
    turned: Rows = [[FLOAT32_MAX] * 32, [1.0] * 32]
    half: Rows = [[65504.0, 1.0], [60000.0, -1.0]]
    top: Rows = [[x, 0.0, -x] * 12 for x in [BFLOAT16_MAX / 4] * 3]
    zeros: Rows = [[0.0, -0.0] * 20, [0.0] * 40]
    worked: Rows = [[0.0, 1.0, -2.0, 0.5, 9.0], [1.0, 1.0, 1.0, 1.0, 1.0]]
    spec, rotated = "int4/32+clip:learned", "int8/32+hadamard+clip:learned"
    return [
        ("worked_example", spec, "float32", worked, (7, 10.5)),
        ("lost", spec, "float32", lost, (2.6, 4.5)),
        ("lost", rotated, "float16", infinite, (2.6, 4.5)),
        ("zeros", spec, "float32", zeros, (2.6, 4.5)),
        ("huge", spec, "float32", huge, (1e38, 3e38)),
        ("huge_clip", spec, "float32", huge, (FLOAT32_MAX, FLOAT32_MAX)),
        ("turned_back", rotated, "float32", turned, (FLOAT32_MAX, 1e37)),
        ("float16_edges", spec, "float16", half, (65504, 65504)),
        ("bfloat16_edges", spec, "bfloat16", top, (BFLOAT16_MAX / 4, BFLOAT16_MAX)),
        ("denormal", spec, "float32", rows(4, 37, 2.0**-133), (2.0**-131, 2.0**-130)),
        ("vanishing", spec, "float32", rows(2, 37, 2.0**-149), (2.0**-149, 2.0**-149)),
        ("tiny", spec, "float32", rows(4, 37, 2.0**-125), (2.0**-124, 2.0**-123)),
        ("tiny_clip", spec, "float32", rows(3, 70), (1e-30, 1e-30)),
        ("wide_clip", spec, "float32", rows(3, 70), (1e6, 1e6)),
        ("half_known", spec, "float32", rows(3, 70), (2.6, 0)),
    ]


def line_of(case: Case, layout: str, owner: int, divisor: int) -> str:
    """One call."""
    name, text, dtype, ranks, (contribution, of_sum) = case
    spec, size, count, held = parse_spec(text), len(ranks), len(ranks[0]), layout == "held"
    clip_bytes = struct.pack("<2f", contribution, of_sum)
    clips = Clips(*struct.unpack("<2f", clip_bytes), size, divisor)
    arrays = [pack(dtype, row) for row in ranks]
    # What the type rounds away is gone before a codec sees it.
    values = [unpack(dtype, array) for array in arrays]
    parts = [clipped_slices.encode_contribution(spec, dtype, row, held, clips) for row in values]
    partial = total = b""
    decoded: list[float] = []
    plain: list[float] = []
    if count > 0:
        others = [part for rank, part in enumerate(parts) if rank != owner]
        own = values[owner]
        total = clipped_slices.sum_payload(
            spec, dtype, others, own, owner, held, clips, divisor, is_final=True
        )
        decoded = clipped_slices.decode(spec, dtype, count, total, held)
        plain = clipped_slices.plain_sum(spec, dtype, count, parts, held, divisor)
    if count > 0 and size > 2:
        partial = clipped_slices.sum_payload(spec, dtype, parts[:1], values[1], 1, held, clips)
    data = [clip_bytes, b"".join(arrays), b"".join(parts), partial, total]
    data += [pack(dtype, [*decoded]), pack(dtype, [*plain])]
    fields = [name, text, dtype, layout, str(size), str(count), str(owner), str(divisor)]
    return " ".join(fields + [part.hex() or "-" for part in data])


def refused_cases() -> list[tuple[str, int, bytes]]:
    """What is put where into a payload."""
    cases = [
        (name, 0, struct.pack("<I", bits))
        for name, bits in {
            "negative_scale": 0xBF800000,
            "negative_zero_scale": 0x80000000,
            "infinite_scale": 0x7F800000,
            "negative_infinite_scale": 0xFF800000,
            "negative_nan_scale": 0xFFC00000,
            "other_nan_scale": 0x7FC00001,
            "beyond": 0x7F7FFFFF,
        }.items()
    ]
    return [*cases, ("most_negative", 4 + 20, b"\x88")]


def refused_lines() -> list[str]:
    """Of scales, codes and lengths; those of reports are in refused.txt."""
    text, count = "int4/32+clip:learned", 70
    spec, values = parse_spec(text), [1.0 + i % 7 for i in range(count)]
    whole = clipped_slices.encode_contribution(spec, "float32", values, True, Clips(7.0, 9.0, 2))
    payloads = {"cut_by_1": whole[:-1], "longer_by_1": whole + b"\0", "empty": b""}
    for name, at, pattern in refused_cases():
        payloads[name] = whole[:at] + pattern + whole[at + len(pattern) :]
    payloads["terms"] = whole[:-61] + b"\1" + whole[-60:]
    payloads["two_sums"] = whole[:-32] + b"\2" + whole[-31:]
    lines = []
    for name, payload in payloads.items():
        where = clipped_slices.why_refused(spec, "float32", count, payload)
        lines.append(f"{name} {text} float32 {count} {payload.hex() or '-'} {where}")
    return lines


def main() -> None:
    """Writes the files."""
    (HERE / "refused_clips.txt").write_text("\n".join(refused_lines()) + "\n")
    lines = []
    for number, case in enumerate(size_cases() + edge_cases()):
        ranks = len(case[3])
        divisor = ranks if number % 3 == 2 else 1
        known = min(case[4]) > 0
        layouts = ["blocks", "held"] if known else ["blocks"]
        for layout in layouts[len(layouts) // 2 :] if case[0] == "five_tiles" else layouts:
            lines.append(line_of(case, layout, number % ranks, divisor))
    unknown = ("unknown", "int4/32+clip:learned", "float32", rows(3, 70), (0.0, 0.0))
    lines.append(line_of(unknown, "blocks", 1, 1))
    (HERE / "clips.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
