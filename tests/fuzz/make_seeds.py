"""Writes the seeds of the codec target, two or three for each format: a payload and values that
belong to it.

Run it again when codec_fuzz.cc reads its first bytes otherwise. Inputs that fuzzing found lie
beside the seeds; their names begin with "found" or "reach".
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "reference"))

from clipped_slices import encode_contribution  # noqa: E402
from encode_slice import encode  # noqa: E402
from format_table import ALL, Format, parse_spec  # noqa: E402
from learned_clip import Clips  # noqa: E402

CORPUS = HERE / "corpus" / "codec"
#: Rows of the registry: these two, then the formats with blocks.
PLAIN = ["exact", "bf16"]
FLOAT32, BFLOAT16, FLOAT16, INT32 = 0, 1, 2, 10
#: Of the byte that chooses block and modifiers.
HADAMARD = 8
ROWS = 4 << 5
#: With +hadamard's bit: matrices in its place.
KRONECKER = 16
TABLE = 1 << 5
FEEDBACK = 6 << 5
#: The last rows of the registry, and the bit that gives them +sr, if they take it.
SUMS = ["sum8", "sum8_tensor", "sum_exp", "lut2"]
SR = 8
#: The latter in blocks of 64.
LAYOUTS = [("+mixed", 1 << 5), ("+adaptive", 2 << 5 | 1)]
WITH_OTHERS = ("int8", "five", "nvfp4")
#: Of +sparse:2%+sr.
RANDOM = 3 << 5
SHIFTADD = 1 << 5
SUM = 1
#: The spec's byte for +clip:learned, and what follows the number of wires: clips of 2, unknown,
#: known in blocks, and held.
CLIP = 16
CLIP_WAYS = {"unknown": 0, "in_blocks": 1, "held": 2}
CLIP_OF_2 = [0, 131]
#: Instead: modifiers by bits, in the order of the grammar, and what each of them reads; then, of
#: +flatten, where the slice lies and a state.
BY_BITS = 6
BITS_FLATTEN, BITS_FLOOR_SPARSE, BITS_SR = 1 << 3, 1 << 10 | 1 << 2, 1 << 12
BITS_HADAMARD, BITS_ROWS = 1 << 4, 1 << 1
ROWS_OF_37 = [35, 0]
STATE_OF_5 = [1, 3, 0, 130, 131, 120, 0, 140]
LARGEST = struct.unpack("<f", bytes.fromhex("ffff7f7f"))[0]


def seed(
    row: int,
    choice: list[int],
    dtype: int,
    count: int,
    wire: bytes,
    values: bytes,
    clip: Sequence[int] = (),
) -> bytes:
    """As choose_case() reads it; 3 wires, the own values second, raw bits as values."""
    head = bytes([0, row, *choice, dtype, SUM, count & 255, count >> 8, 2, 1, *clip])
    return head + wire + bytes([0]) + values


def write_any_bytes(rows: Sequence[Format]) -> None:
    """Of what no encoder here writes a payload for: bytes, which the target decodes as they are."""
    near = [(i % 9 - 4) * 0.75 for i in range(300)]
    values = struct.pack("<300f", *near)
    any_bytes = bytes(i * 37 % 251 for i in range(400))
    for row, name in enumerate(SUMS, len(PLAIN) + len(rows)):
        for stem, usual in (("", 0), ("_sr", SR))[: 2 if name.startswith("sum8") else 1]:
            made = seed(row, [usual], FLOAT32, len(near), any_bytes, values)
            (CORPUS / f"{name}{stem}").write_bytes(made)
        if name.startswith("sum8"):
            choice = [BY_BITS, BITS_HADAMARD, 0]
            made = seed(row, choice, FLOAT32, len(near), any_bytes, values)
            (CORPUS / f"{name}_hadamard").write_bytes(made)
        if name in ("sum8", "lut2"):
            choice = [BY_BITS, BITS_ROWS, 0, *ROWS_OF_37]
            made = seed(row, choice, FLOAT32, len(near), any_bytes, values)
            (CORPUS / f"{name}_rows").write_bytes(made)
    int4 = len(PLAIN) + [format.name for format in rows].index("int4")
    nf4 = len(PLAIN) + [format.name for format in rows].index("nf4")
    for name, row, choice in (
        ("table", nf4, [TABLE, 3]),
        ("kronecker", int4, [HADAMARD | KRONECKER, 3]),
        ("kronecker_channels", int4, [HADAMARD | KRONECKER, 28]),
        ("feedback", int4, [FEEDBACK]),
    ):
        (CORPUS / name).write_bytes(seed(row, choice, FLOAT32, len(near), any_bytes, values))


def main() -> None:
    """Writes all seeds."""
    CORPUS.mkdir(parents=True, exist_ok=True)
    # Tables are no rows of the registry, and sums stand behind the rows of these.
    rows = [format for format in ALL if not format.name.startswith(("table:", "lut2"))]
    for row, format in enumerate(rows, len(PLAIN)):
        least = min(format.default_block, 32)
        mixed = [(i % 9 - 4) * 0.75 for i in range(least)]
        mixed += [2.0**-130, -(2.0**-127), 1.5, math.nan, 0.0]
        huge = [LARGEST, -LARGEST, *([2.0**126] * (least - 2)), 1.0]
        stem = format.name.replace(":", "_")
        cases = [("mixed", "", mixed, 0), ("huge", "+hadamard", huge, HADAMARD)]
        cases += [("rows", "+rows:37", mixed * 3, ROWS)] if format.name in WITH_OTHERS else []
        for modifier, others in LAYOUTS if format.name == "int4" else ():
            cases.append((f"with_{modifier[1:]}", modifier, mixed * 9, others))
        if not format.name.startswith(("int1", "nvfp4", "table")):
            cases.append(("random", "+sparse:2%+sr", mixed, RANDOM))
        for name, modifier, data, others in cases:
            block = least << (others & 7)
            wire = encode(f"{format.name}/{block}{modifier}", "float32", data)
            values = struct.pack(f"<{len(data)}f", *data)
            choice = [others]
            made = seed(row, choice, FLOAT32, len(data), wire, values)
            (CORPUS / f"{stem}_{name}").write_bytes(made)
    for name, base in (("int8", "int8"), ("mxint8", "mxint8"), ("int3", "int3")):
        row = len(PLAIN) + [format.name for format in ALL].index(base)
        apart = [(i % 11 - 5) * 2.0 ** (i // 32 * 15 - 20) for i in range(101)]
        wire = encode(f"{base}/32+shiftadd", "float32", apart)
        values = struct.pack(f"<{len(apart)}f", *reversed(apart))
        made = seed(row, [SHIFTADD], FLOAT32, len(apart), wire, values)
        (CORPUS / f"shiftadd_{name}").write_bytes(made)
    for name, way in CLIP_WAYS.items():
        row = len(PLAIN) + [format.name for format in ALL].index("int4")
        near = [(i % 9 - 4) * 0.75 for i in range(70)]
        spec = parse_spec("int4/32+clip:learned")
        clips = Clips(2.0, 2.0, 4)
        wire = encode_contribution(spec, "float32", near, name == "held", clips)
        values = struct.pack(f"<{len(near)}f", *near)
        made = seed(row, [CLIP], FLOAT32, len(near), wire, values, [way, *CLIP_OF_2 * 2])
        (CORPUS / f"clip_{name}").write_bytes(made)
    for name, base, spec, bits, reads, state in (
        ("flatten", "int4", "int4/32+hadamard", BITS_FLATTEN, [], STATE_OF_5),
        ("floor", "mxfp8:e4m3", "mxfp8:e4m3/32+sparse:2%+floor", BITS_FLOOR_SPARSE, [199, 0], []),
        ("sr", "int8", "int8/32+sr", BITS_SR, [], []),
    ):
        row = len(PLAIN) + [format.name for format in ALL].index(base)
        near = [(i % 9 - 4) * 0.75 for i in range(70)]
        wire = encode(spec, "float32", near)
        choice = [BY_BITS, bits & 255, bits >> 8, *reads]
        values = struct.pack(f"<{len(near)}f", *near)
        made = seed(row, choice, FLOAT32, len(near), wire, values, state)
        (CORPUS / f"by_bits_{name}").write_bytes(made)
    write_any_bytes(rows)
    floats = struct.pack("<4f", 1.5, -0.0, math.inf, LARGEST)
    halves = bytes.fromhex("803f 8000 807f c07f 7f7f".replace(" ", ""))
    (CORPUS / "exact_float32").write_bytes(seed(0, [], FLOAT32, 4, floats, floats))
    (CORPUS / "exact_int32").write_bytes(seed(0, [], INT32, 4, floats, floats))
    (CORPUS / "bf16_float32").write_bytes(seed(1, [], FLOAT32, 4, halves[:8], floats))
    (CORPUS / "bf16_float16").write_bytes(seed(1, [], FLOAT16, 5, halves, halves))
    (CORPUS / "bf16_bfloat16").write_bytes(seed(1, [], BFLOAT16, 5, halves, halves))


if __name__ == "__main__":
    main()
