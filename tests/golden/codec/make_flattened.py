"""Writes flattened.txt from the reference: run it to add a case, never to mend a test.

One payload of +flatten per line: name, spec, dtype, count, the index of the first value in its
array, then in hexadecimal the saved state that the factors are of, the values, the payload, and the
values that it decodes to ("-" where there are none). All little-endian.
"""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "reference"))
sys.path.insert(0, str(HERE))

from channel_factors import factors_of, state_bytes  # noqa: E402
from decode_slice import decode  # noqa: E402
from encode_slice import encode  # noqa: E402
from make_payloads import FLOAT32_MAX, Number, normal, pack, unpack  # noqa: E402

#: Name, spec, dtype, first index, state, values.
Case = tuple[str, str, str, int, bytes, list[Number]]


def state(channels: int, rows: int = 40) -> bytes:
    """Of channels whose sizes are decades apart, one of them silent."""
    source = random.Random(channels)
    squares = [math.exp(4 * source.gauss(0, 1)) for _ in range(channels)]
    squares[channels // 2] = 0.0
    return state_bytes(rows, squares)


def cases() -> list[Case]:
    """Every kind of scale and of section; slices that begin at a channel other than 0."""
    lost: list[Number] = [*normal(40), math.nan, *normal(60), -math.inf, *normal(30)]
    huge: list[Number] = [FLOAT32_MAX, -FLOAT32_MAX, 2.0**127, *normal(90, 1e38 / 4)]
    spikes: list[Number] = [x * (100 if i % 17 == 3 else 1) for i, x in enumerate(normal(140))]
    top: list[Number] = [65504.0, -65504.0, *normal(60, 2.0**-12)]
    worked: list[Number] = [0.0, 64.0, *[0.0] * 30]
    return [
        ("worked_example", "int4/32+flatten", "float32", 0, state_bytes(16, [0.0, 2.0]), worked),
        ("too_few_rows", "int4/32+flatten", "float32", 0, state(7, 15), normal(70)),
        ("all_silent", "int8/32+flatten", "float32", 0, state_bytes(99, [0.0] * 3), normal(70)),
        ("ragged", "int8/128+flatten", "float32", 0, state(5), normal(300, 3.0, 2)),
        ("later", "int6/64+flatten", "float32", 640, state(96), normal(200)),
        ("later", "nvfp4+flatten", "float16", 4000, state(48), normal(100)),
        ("lost_blocks", "mxfp4+flatten", "float32", 32, state(48), lost),
        ("lost_blocks", "fp8e4m3/32+flatten", "bfloat16", 0, state(9), lost),
        ("huge", "int8/32+flatten", "float32", 64, state(33), huge),
        ("float16_max", "five/32+flatten", "float16", 0, state(12), top),
        ("denormal", "nf4/32+flatten", "float32", 0, state(6), normal(45, 2.0**-133)),
        ("spikes", "int4/64+sparse:5%+flatten", "float32", 128, state(11), spikes),
        ("rows", "int5/32+rows:48+flatten", "float32", 96, state(48), normal(150)),
        ("rows", "int4/32+rows:48+sparse:2%+flatten", "bfloat16", 0, state(48), normal(150)),
        ("steps", "int4/32+flatten+mixed", "float32", 32, state(13), spikes),
        ("random", "mxfp6:e2m3+flatten+sr", "float32", 0, state(3), normal(70)),
        ("integers", "int7/32+flatten+shiftadd", "float32", 0, state(10), normal(70)),
        ("signs", "int1/32+flatten", "float32", 0, state(2), normal(64)),
        ("empty", "int4/32+flatten", "float32", 0, state(4), []),
    ]


def line_of(case: Case) -> str:
    """One case."""
    name, spec, dtype, first, saved, values = case
    array, factors = pack(dtype, values), factors_of(saved)
    # What the type rounds away is gone before a codec sees it.
    payload = encode(spec, dtype, unpack(dtype, array), first=first, factors=factors)
    decoded = pack(dtype, decode(spec, dtype, len(values), payload, first, factors))
    data = [saved, array, payload, decoded]
    return " ".join(
        [name, spec, dtype, str(len(values)), str(first), *(part.hex() or "-" for part in data)]
    )


def main() -> None:
    """Writes the file."""
    (HERE / "flattened.txt").write_text("\n".join(map(line_of, cases())) + "\n")


if __name__ == "__main__":
    main()
