"""Writes sums.txt from the reference: run it to add a case, never to mend a test.

One sum per line: name, spec, dtype, ranks, count, key of rank 0 (rank r has that plus r), then in
hexadecimal the ranks' values, the shared scales, the ranks' contributions, the sum's payload, what
it decodes to, and what it does as an average ("-" where there are none). All little-endian.
"""

from __future__ import annotations

import math
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "reference"))
sys.path.insert(0, str(HERE))

import shared_scales  # noqa: E402
from format_table import parse_spec  # noqa: E402
from make_payloads import BFLOAT16_MAX, FLOAT32_MAX, Number, normal, pack, unpack  # noqa: E402

Case = tuple[str, str, str, list[list[Number]]]
WORKED: list[list[Number]] = [[100.0, -3.0, 127.0], [90.0, 1.0, 127.0], [-4.0, 0.5, 127.0]]


def rows(ranks: int, count: int, scale: float = 1.0) -> list[list[Number]]:
    """Bell-shaped data, other on each rank."""
    return [normal(count, scale, 100 * ranks + rank) for rank in range(ranks)]


def block_cases() -> list[Case]:
    """Formats with blocks."""
    lost = rows(3, 70)
    lost[1][40] = math.nan
    lost[2][69] = -math.inf
    far = [[x * 10.0 ** (rank - 2) for x in row] for rank, row in enumerate(rows(5, 45))]
    huge: list[list[Number]] = [[FLOAT32_MAX, -1e38, 1.0], [FLOAT32_MAX, 3e38, 2.0]]
    half: list[list[Number]] = [[65504.0, 1.0], [60000.0, -1.0]]
    zeros: list[list[Number]] = [[0.0, -0.0] * 20, [0.0] * 40]
    top: list[list[Number]] = [[x, 0.0, -x] * 12 for x in [BFLOAT16_MAX / 8] * 8]
    cases: list[Case] = [
        ("worked_example", "sum8/32", "float32", WORKED),
        ("far_apart", "sum8/32", "float32", far),
        ("lost_blocks", "sum8/32", "float32", lost),
        ("lost_blocks", "sum8/32+sr", "float16", lost),
        ("zeros", "sum8/32", "float32", zeros),
        ("huge", "sum8/32", "float32", huge),
        ("float16_edges", "sum8/32", "float16", half),
        ("bfloat16_edges", "sum8/32+sr", "bfloat16", top),
        ("denormal", "sum8/32", "float32", rows(4, 37, 2.0**-133)),
        ("tiny", "sum8/32+sr", "float32", rows(4, 37, 2.0**-125)),
    ]
    for ranks, count in ((2, 1), (3, 7), (4, 33), (5, 257), (9, 300), (17, 64), (127, 5)):
        for spec in ("sum8", "sum8/32+sr"):
            cases.append((f"normal_{ranks}_{count}", spec, "float32", rows(ranks, count)))
    cases += [("normal", "sum8/64", dtype, rows(6, 131)) for dtype in ("float16", "bfloat16")]
    return cases


def tensor_cases() -> list[Case]:
    """One scale."""
    lost = rows(3, 9)
    lost[1][4] = math.inf
    cases: list[Case] = [
        ("all_at_the_top", "sum8:tensor", "float32", [[1.0, -1.0, 0.3]] * ranks)
        for ranks in (2, 4, 8)
    ]
    cases += [
        ("lost_all", "sum8:tensor", "float16", lost),
        ("zeros", "sum8:tensor", "float32", [[0.0, -0.0]] * 2),
        ("normal", "sum8:tensor", "bfloat16", rows(5, 40)),
        ("denormal", "sum8:tensor+sr", "float32", rows(4, 37, 2.0**-133)),
        ("most_ranks", "sum8:tensor+sr", "float32", rows(127, 6)),
    ]
    for ranks, count in ((2, 1100), (8, 97)):
        for spec in ("sum8:tensor", "sum8:tensor+sr"):
            cases.append((f"normal_{ranks}_{count}", spec, "float32", rows(ranks, count)))
    return cases


def paired_cases() -> list[Case]:
    """Codes of two bits."""
    lost = rows(4, 70)
    lost[1][40] = math.nan
    lost[2][69] = -math.inf
    worked: list[list[Number]] = [[3.0, -1.0, 0.0], [2.5, 1.0, -3.0]]
    huge: list[list[Number]] = [[FLOAT32_MAX, -1e38, 1.0], [FLOAT32_MAX, 3e38, 2.0]]
    half: list[list[Number]] = [[65504.0, 1.0], [60000.0, -1.0]]
    cases: list[Case] = [
        ("worked_example", "lut2", "float32", worked),
        ("lost_blocks", "lut2", "float32", lost),
        ("lost_blocks", "lut2", "float16", lost),
        ("zeros", "lut2", "float32", [[0.0, -0.0] * 20, [0.0] * 40]),
        ("huge", "lut2", "float32", huge),
        ("float16_edges", "lut2", "float16", half),
        ("denormal", "lut2", "float32", rows(4, 37, 2.0**-133)),
        ("tiny", "lut2", "float32", rows(4, 37, 2.0**-125)),
    ]
    for ranks, count in ((2, 1), (2, 1100), (4, 33), (8, 257), (16, 67), (64, 7)):
        for spec in ("lut2", "lut2/64"):
            cases.append((f"normal_{ranks}_{count}", spec, "float32", rows(ranks, count)))
    cases += [("normal", "lut2/64", dtype, rows(8, 131)) for dtype in ("float16", "bfloat16")]
    return cases


def power_cases() -> list[Case]:
    """Signs and exponents."""
    lost = rows(3, 9)
    lost[1][4] = math.inf
    far = [[x * 2.0 ** (15 * i) for i, x in enumerate(row)] for row in rows(3, 8)]
    wide: list[list[Number]] = [[1.0, 2.0**-124, -(2.0**-126), 2.0**-149, 2.0**-140]] * 5
    cases: list[Case] = [
        ("worked_example", "sum:exp", "float32", [[3.0, -4.0, 1.0], [-1.0, 0.0, -1.0]]),
        ("all_at_the_top", "sum:exp", "float32", [[1.0, -1.0, 0.3]] * 7),
        ("huge", "sum:exp", "float32", [[FLOAT32_MAX, -1e38, 1.0], [FLOAT32_MAX, 3e38, 2.0]]),
        ("float16_edges", "sum:exp", "float16", [[65504.0, 1.0], [60000.0, -1.0]]),
        ("lost_all", "sum:exp", "float16", lost),
        ("zeros", "sum:exp", "float32", [[0.0, -0.0]] * 2),
        ("far_apart", "sum:exp", "float32", far),
        ("wide", "sum:exp", "float32", wide),
        ("normal", "sum:exp", "bfloat16", rows(5, 40)),
        ("denormal", "sum:exp", "float32", rows(4, 37, 2.0**-133)),
        ("most_ranks", "sum:exp", "float32", rows(129, 6)),
    ]
    for ranks, count in ((2, 1100), (3, 61), (6, 61), (8, 97)):
        cases.append((f"normal_{ranks}_{count}", "sum:exp", "float32", rows(ranks, count)))
    return cases


def turned_cases() -> list[Case]:
    """Integers of transformed values."""
    spike: list[list[Number]] = [[64.0, *[0.0] * 31], [0.0, 32.0, *[0.0] * 30]]
    lost = rows(3, 70)
    lost[1][40] = math.nan
    lost[2][69] = -math.inf
    huge: list[list[Number]] = [[FLOAT32_MAX, -1e38] * 17, [FLOAT32_MAX, 3e38] * 17]
    half: list[list[Number]] = [[65504.0, 1.0] * 16, [60000.0, -1.0] * 16]
    spread = [[x * (100.0 if i % 50 == 7 else 1.0) for i, x in enumerate(r)] for r in rows(4, 1100)]
    cases: list[Case] = [
        ("worked_example", "sum8/32+hadamard", "float32", spike),
        ("lost_blocks", "sum8/32+hadamard", "float32", lost),
        ("lost_blocks", "sum8/32+hadamard+sr", "float16", lost),
        ("zeros", "sum8/32+hadamard", "float32", [[0.0, -0.0] * 20, [0.0] * 40]),
        ("huge", "sum8/32+hadamard", "float32", huge),
        ("float16_edges", "sum8/32+hadamard", "float16", half),
        ("edge", "sum8/32+hadamard", "float16", [[65504.0, *[0.0] * 31]] * 2),
        ("denormal", "sum8/32+hadamard", "float32", rows(4, 37, 2.0**-133)),
        ("tiny", "sum8/32+hadamard+sr", "float32", rows(4, 37, 2.0**-125)),
        ("short", "sum8:tensor+hadamard", "float32", WORKED),
        ("lost_all", "sum8:tensor+hadamard", "float16", lost),
        ("spread", "sum8:tensor+hadamard", "float32", spread),
        ("spread", "sum8:tensor+hadamard+sr", "bfloat16", spread),
    ]
    for ranks, count in ((2, 1), (3, 64), (5, 257), (9, 300), (17, 64)):
        for spec in ("sum8/64+hadamard", "sum8+hadamard+sr"):
            cases.append((f"normal_{ranks}_{count}", spec, "float32", rows(ranks, count)))
    for dtype in ("float16", "bfloat16"):
        cases.append(("normal", "sum8/64+hadamard", dtype, rows(6, 131)))
    return cases


def row_cases() -> list[Case]:
    """Rows shorter than a block, no multiple of one, and of several; the last one short."""
    lost = rows(4, 70)
    lost[1][40] = math.nan
    lost[2][69] = -math.inf
    sizes = [[x * 10.0 ** (i // 40 % 3) for i, x in enumerate(row)] for row in rows(4, 220)]
    worked: list[list[Number]] = [[100.0, -3.0, 0.25, 1.0], [27.0, 1.0, -0.5, 0.5]]
    pairs: list[list[Number]] = [[3.0, -1.0, 0.0, 0.5], [2.5, 1.0, -3.0, -0.25]]
    cases: list[Case] = [
        ("worked_example", "sum8/32+rows:2", "float32", worked),
        ("worked_example", "lut2/32+rows:3", "float32", pairs),
        ("lost_blocks", "sum8/32+rows:20", "float32", lost),
        ("lost_blocks", "lut2+rows:33", "float16", lost),
        ("zeros", "sum8/32+rows:3", "float32", [[0.0, -0.0] * 20, [0.0] * 40]),
        ("denormal", "lut2+rows:7", "float32", rows(4, 37, 2.0**-133)),
    ]
    for spec in (
        "sum8/32+rows:40",
        "sum8/32+rows:40+sr",
        "sum8/32+rows:96+hadamard",
        "lut2+rows:3",
    ):
        cases.append(("sizes", spec, "float32", sizes))
    for spec in ("sum8/64+rows:100+hadamard+sr", "lut2/64+rows:66", "sum8/256+rows:77"):
        for dtype in ("float16", "bfloat16"):
            cases.append(("sizes", spec, dtype, sizes))
    cases.append(("normal_9_300", "sum8/32+rows:64", "float32", rows(9, 300)))
    cases.append(("normal_16_67", "lut2/32+rows:2", "float32", rows(16, 67)))
    return cases


def line_of(name: str, text: str, dtype: str, ranks: list[list[Number]], key: int) -> str:
    """One case."""
    spec, size, count = parse_spec(text), len(ranks), len(ranks[0])
    arrays = [pack(dtype, row) for row in ranks]
    # What the type rounds away is gone before a codec sees it.
    values = [unpack(dtype, array) for array in arrays]
    scales = shared_scales.scale_bits(spec, dtype, values)
    codes = [shared_scales.codes(spec, size, row, scales, key + r) for r, row in enumerate(values)]
    sums = shared_scales.add(spec, codes, key)
    decoded = [
        pack(dtype, [*shared_scales.values_of(spec, dtype, size, sums, scales, divisor)])
        for divisor in (1, size)
    ]
    data = [
        b"".join(arrays),
        struct.pack(f"<{len(scales)}H", *scales),
        b"".join(shared_scales.pack_contribution(spec, row) for row in codes),
        shared_scales.pack_sum(spec, size, sums),
        *decoded,
    ]
    fields = [name, text, dtype, str(size), str(count), str(key)]
    return " ".join(fields + [part.hex() or "-" for part in data])


def main() -> None:
    """Writes the file."""
    cases = block_cases() + tensor_cases() + paired_cases() + power_cases()
    # A case's keys are those of its place: what is new stands behind.
    cases.append(("worked_example", "sum8:tensor", "float32", WORKED))
    cases += turned_cases()
    cases += row_cases()
    lines = [line_of(*case, 977 * i + 2**40) for i, case in enumerate(cases)]
    (HERE / "sums.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
