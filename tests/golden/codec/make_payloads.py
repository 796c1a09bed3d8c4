"""Writes payloads.txt from the reference encoder: run it to add a format, never to mend a test.

One case per line: name, spec, dtype, count, then in hexadecimal the values' bytes, the payload, and
the bytes that it decodes to ("-" where there are none). All little-endian.
"""

from __future__ import annotations

import math
import random
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "reference"))

from block_products import GOLDEN, read_transform  # noqa: E402
from decode_slice import EXACT_FORMATS, Number, decode  # noqa: E402
from encode_slice import bf16_bits, encode  # noqa: E402
from format_table import ALL, Format  # noqa: E402

CANONICAL_NAN = {
    "float32": "0000c07f",
    "float16": "007e",
    "bfloat16": "c07f",
    "float64": "000000000000f87f",
}
FLOAT32_MAX = struct.unpack("<f", bytes.fromhex("ffff7f7f"))[0]
BFLOAT16_MAX = struct.unpack("<f", bytes.fromhex("00007f7f"))[0]


def pack(dtype: str, values: list[Number]) -> bytes:
    """Array bytes; NaN in its canonical form."""
    out = b""
    for x in values:
        if isinstance(x, float) and math.isnan(x):
            out += bytes.fromhex(CANONICAL_NAN[dtype])
        elif dtype == "bfloat16":
            out += struct.pack("<H", bf16_bits(x, "float32"))
        else:
            out += struct.pack(EXACT_FORMATS[dtype], x)
    return out


def unpack(dtype: str, data: bytes) -> list[float]:
    """The values that an array of `dtype` holds."""
    size = len(data) // (2 if dtype == "bfloat16" else struct.calcsize(EXACT_FORMATS[dtype]))
    return [float(x) for x in decode("exact", dtype, size, data)]


def normal(count: int, scale: float = 1.0, seed: int = 1) -> list[Number]:
    """Bell-shaped data."""
    source = random.Random(seed)
    return [source.gauss(0, 1) * scale for _ in range(count)]


def lossy_cases() -> list[tuple[str, str, str, list[Number]]]:
    """Name, spec, dtype, values."""
    ramp: list[Number] = [float(i - 16) for i in range(33)]
    cases: list[tuple[str, str, str, list[Number]]] = [
        ("worked_example", "int8/32", "float32", [0.0, 1.0, -2.0, 0.5, 127.0]),
        ("worked_example", "int4/32", "float32", [0.0, 1.0, -2.0, 0.5, 7.0]),
        ("negative_zero", "int8/32", "float32", [-0.0, -0.001, 1.0]),
    ]
    for base in ("int8", "int4"):
        for count in (1, 2, 31, 32, 33, 63, 65, 129):
            cases.append((f"normal_{count}", f"{base}/32", "float32", normal(count, seed=count)))
        cases += [
            ("empty", f"{base}/32", "float32", []),
            ("default_block", base, "float32", normal(200)),
            ("block_1024", f"{base}/1024", "float32", normal(1030)),
            ("ties", f"{base}/32", "float32", [x / 2 for x in ramp]),
            ("zeros", f"{base}/64", "float32", [0.0] * 70),
            ("nan_block", f"{base}/32", "float32", [*normal(40), math.nan, *normal(30)]),
            ("inf_block", f"{base}/32", "float32", [-math.inf, *normal(40)]),
            ("huge", f"{base}/32", "float32", [FLOAT32_MAX, -FLOAT32_MAX, *normal(40, 1e38 / 4)]),
            ("tiny", f"{base}/32", "float32", normal(40, 2.0**-125)),
            ("denormal", f"{base}/32", "float32", normal(40, 2.0**-133)),
            ("least", f"{base}/32", "float32", [2.0**-149, -(2.0**-149), 0.0]),
            ("bfloat16", f"{base}/32", "bfloat16", normal(50)),
            ("bfloat16_max", f"{base}/32", "bfloat16", [BFLOAT16_MAX, -BFLOAT16_MAX, 1.0]),
            ("float16", f"{base}/32", "float16", normal(50)),
            ("float16_max", f"{base}/32", "float16", [65504.0, -65504.0, 65472.0, 3.0]),
            ("float16_denormal", f"{base}/32", "float16", normal(35, 2.0**-20)),
        ]
    edges: list[Number] = [FLOAT32_MAX, -FLOAT32_MAX, math.inf, -math.inf, math.nan, 2.0**-149]
    cases += [
        ("worked_example", "bf16", "float32", [1 + 2.0**-8, 1 + 3 * 2.0**-8, -0.1, FLOAT32_MAX]),
        ("normal", "bf16", "float32", normal(11)),
        ("edges", "bf16", "float32", [*edges, 1 + 2.0**-8, 1 + 3 * 2.0**-8, -0.0]),
        ("edges", "bf16", "float16", [65504.0, -65504.0, 65280.0, math.inf, math.nan, 2.0**-24]),
    ]
    return cases


def format_cases(format: Format, hadamard: str) -> list[tuple[str, str, str, list[Number]]]:
    """What every format with blocks must get right, with and without the modifier."""
    least = min(format.default_block, 32)
    spec = f"{format.name}/{least}{hadamard}"
    spread = [x * 4.0 ** (i % 23 - 11) for i, x in enumerate(normal(least + 5, seed=5))]
    mixed: list[Number] = [*normal(least, 2.0**-60, 6), *normal(least, 2.0**60, 7), math.nan, 1.5]
    both: list[tuple[str, str, list[Number]]] = [
        ("ragged", "float32", normal(2 * least + 3, 3.0, 2)),
        ("spread", "float32", spread),
        ("mixed_blocks", "float32", mixed),
        ("inf_block", "float32", [-math.inf, *normal(least + 3)]),
        ("zeros", "float32", [0.0, -0.0, *[0.0] * least]),
        ("huge", "float32", [FLOAT32_MAX, 2.0**127, *normal(least - 2, 1e38 / 4), -FLOAT32_MAX]),
        ("tiny", "float32", normal(least + 1, 2.0**-125)),
        ("denormal", "float32", normal(least + 1, 2.0**-133)),
        ("bfloat16_max", "bfloat16", [BFLOAT16_MAX, -BFLOAT16_MAX] * (least // 2) + [1.0]),
        ("float16_max", "float16", [65504.0, *[65472.0] * (least - 1), -65504.0]),
    ]
    plain: list[tuple[str, str, list[Number]]] = [
        ("short_1", "float32", normal(1, seed=1)),
        ("short_7", "float32", normal(7, seed=7)),
        ("three_groups", "float32", normal(101, seed=3)),
        ("least", "float32", [2.0**-149, -(2.0**-149), 0.0, 2.0**-147]),
        ("ties", "float32", [x / 4 for x in range(-28, 29, 2)]),
        ("bfloat16", "bfloat16", normal(least + 2)),
        ("float16", "float16", normal(least + 2)),
        ("float16_denormal", "float16", normal(least, 2.0**-20)),
    ]
    cases = both if hadamard else both + plain
    return [(name, spec, dtype, values) for name, dtype, values in cases]


def worked_cases() -> list[tuple[str, str, str, list[Number]]]:
    """The rows of docs/codecs.md, "Scale rules" and "The modifier +hadamard"."""
    ramp: list[Number] = [0.0, 1.0, -2.0, 0.5, 3.0]
    specs = "int3/32 int1/32 five/32 fp8e4m3/32 fp8e5m2/32 mxfp8:e4m3 mxfp8:e5m2 mxfp6:e2m3"
    specs += " mxfp6:e3m2 mxfp4 mxint8 nvfp4 nf4/32 lut2/32 table:41f84307133d623f/32"
    defaults: list[tuple[str, str, str, list[Number]]] = [
        ("default_block", format.name, "float32", normal(140, seed=4)) for format in ALL[1:]
    ]
    return [
        *(("worked_example", spec, "float32", ramp) for spec in specs.split()),
        *(
            ("worked_example", f"int{bits}/32", "float32", [*ramp[:4], 2.0 ** (bits - 1) - 1])
            for bits in (7, 6, 5)
        ),
        ("worked_example", "int2/32", "float32", [0.0, 1.0, -1.0, 0.5, 1.0]),
        ("worked_example", "nvfp4+hadamard", "float32", [1.0, *[0.0] * 15]),
        ("normal_300", "int6/128+hadamard", "float32", normal(300)),
        *(
            (name, f"{format.name}{modifier}+floor", dtype, values)
            for format in ALL
            if format.scale == "e8m0"
            for modifier in ("", "+hadamard")
            for name, dtype, values in (
                ("floor_rule", "float32", [*ramp, *normal(95)]),
                ("floor_rule_top", "float16", [65504.0, *normal(40)]),
                ("floor_rule_tiny", "float32", [2.0**-149, 2.0**-148, 0.0, *[0.0] * 40]),
            )
        ),
        ("normal_1030", "five/1024+hadamard", "float16", normal(1030)),
        *defaults,
    ]


def sparse_cases() -> list[tuple[str, str, str, list[Number]]]:
    """The modifier +sparse, whose worked example docs/codecs.md has."""
    ramp: list[Number] = [0.0, 1.0, -2.0, 0.5, 3.0]
    spikes: list[Number] = [x * (100 if i % 17 == 3 else 1) for i, x in enumerate(normal(70))]
    huge: list[Number] = [FLOAT32_MAX, -FLOAT32_MAX, 2.0**127, *normal(40, 1e38 / 4), math.inf]
    lost: list[Number] = [*normal(40), math.nan, *normal(30), math.inf, 5.0]
    half: list[Number] = [65504.0, -65504.0, 65472.0, *normal(33, 2.0**-20), math.nan]
    top: list[Number] = [BFLOAT16_MAX, -BFLOAT16_MAX, *normal(40)]
    cases: list[tuple[str, str, str, list[Number]]] = [
        ("worked_example", "int4/32+sparse:10%", "float32", [*ramp[:4], 101.3]),
        ("empty", "int4/32+sparse:1%", "float32", []),
        ("ties", "int4/32+sparse:10%", "float32", [1.0, -1.0] * 20),
    ]
    for spec in ("int4/32+sparse:5%", "int8/64+sparse:2.5%+hadamard", "nvfp4+sparse:10%"):
        cases += [
            ("spikes", spec, "float32", spikes),
            ("huge", spec, "float32", huge),
            ("lost_blocks", spec, "float32", lost),
            ("zeros", spec, "float32", [0.0, -0.0] * 20),
            ("denormal", spec, "float32", normal(45, 2.0**-133)),
            ("far_apart", spec, "float32", [1e4, *normal(50)]),
            ("float16_edges", spec, "float16", half),
            ("bfloat16_edges", spec, "bfloat16", top),
        ]
    for format in ALL:
        cases.append(("spikes", f"{format.name}+sparse:7%", "float32", spikes))
        cases.append(("spikes", f"{format.name}+sparse:0.5%+hadamard", "float16", spikes * 3))
    return cases


def rows_cases() -> list[tuple[str, str, str, list[Number]]]:
    """The modifier +rows: rows shorter and longer than a block, whole ones and a short last one."""
    ramp: list[Number] = [0.0, 1.0, -2.0, 0.5, 3.0]
    spread: list[Number] = [x * 4.0 ** (i // 50 - 2) for i, x in enumerate(normal(237))]
    lost: list[Number] = [*normal(60), math.nan, *normal(80), math.inf, 5.0]
    cases: list[tuple[str, str, str, list[Number]]] = [
        ("worked_example", "int4/32+rows:4", "float32", [*ramp, 7.0]),
        ("empty", "int4/32+rows:4", "float32", []),
        ("lost_blocks", "int8/32+rows:50", "float32", lost),
        ("lost_blocks", "int6/32+rows:50+sparse:2%+hadamard", "float16", lost),
        ("whole_rows", "int8/64+rows:79", "float32", spread),
        ("one_row", "int5/32+rows:65536+hadamard", "bfloat16", spread),
    ]
    for format in ALL:
        cases.append(("spread", f"{format.name}+rows:50", "float32", spread))
        cases.append(("pairs", f"{format.name}+rows:2", "bfloat16", normal(7)))
    return cases


def layout_cases() -> list[tuple[str, str, str, list[Number]]]:
    """The modifiers +mixed and +adaptive."""
    steps: list[Number] = [x * 4.0 ** (i // 64 % 5 - 2) for i, x in enumerate(normal(1200))]
    lone: list[Number] = [x * (1000 if i % 301 == 7 else 1) for i, x in enumerate(normal(1200))]
    lost: list[Number] = [*normal(140), math.nan, *normal(180), math.inf, *normal(64), 5.0]
    huge: list[Number] = [FLOAT32_MAX, -FLOAT32_MAX, 2.0**127, *normal(200, 1e38 / 4)]
    worked: list[Number] = [1.0, *[0.0] * 31, *[0.5] * 33]
    pair: list[Number] = [15.0, 1.0, *[0.0] * 62, 7.0]
    cases = [
        ("worked_example", "int4/64+adaptive", "float32", worked),
        ("worked_example", "int4/32+mixed", "float32", pair),
    ]
    mixed = ("int3/32+mixed", "int4/64+mixed", "int6/32+hadamard+mixed", "int4/32+sparse:2%+mixed")
    adaptive = ("int4/64+adaptive", "int5/128+adaptive", "nf4/64+sparse:2%+adaptive")
    for spec in mixed + adaptive:
        cases += [
            ("steps", spec, "float32", steps),
            ("lone", spec, "bfloat16", lone),
            ("lost_blocks", spec, "float32", lost),
            ("lost_blocks", spec, "float16", lost),
            ("huge", spec, "float32", huge),
            ("float16_edges", spec, "float16", [65504.0, -65504.0, *normal(300, 2.0**-12)]),
            ("zeros", spec, "float32", [0.0, -0.0] * 100),
            ("denormal", spec, "float32", normal(150, 2.0**-133)),
            ("short_1", spec, "float32", normal(1)),
            ("short_37", spec, "float32", normal(37)),
            ("empty", spec, "float32", []),
        ]
    cases += [("steps", f"int{bits}/32+mixed", "float32", steps[:230]) for bits in (4, 5, 6, 7)]
    blocks = ("int8/64", "int2/64", "nf4/128", "int7/128", "int3/64", "int6/128")
    # Sizes over more octaves than the steps below one exponent reach, and the largest scales.
    octaves: list[Number] = [x * 2.0 ** (-i // 24) for i, x in enumerate(normal(700))]
    for spec in blocks:
        cases += [
            ("steps", f"{spec}+adaptive", "float32", steps[:800]),
            ("octaves", f"{spec}+adaptive", "float32", octaves),
            ("huge", f"{spec}+adaptive", "float32", huge),
            ("denormal", f"{spec}+adaptive", "float32", normal(150, 2.0**-133)),
        ]
    cases += [
        ("rows", f"int4/64+rows:200+{way}", "float32", steps) for way in ("mixed", "adaptive")
    ]
    return cases


def kronecker_cases() -> list[tuple[str, str, str, list[Number]]]:
    """The modifier +kronecker, on the transforms of GOLDEN."""
    cases: list[tuple[str, str, str, list[Number]]] = []
    for file in sorted(GOLDEN.glob("*.txt")):
        block = read_transform(file.stem).block
        bases = ["nvfp4"] if block == 16 else [f"int4/{block}", f"fp8e5m2/{block}"]
        if block == 32:
            blocks = [format.name for format in ALL if format.name != "nvfp4"]
            bases = [name if name.startswith("mx") else f"{name}/32" for name in blocks]
        for base in bases:
            spec = f"{base}+kronecker:{file.stem}"
            many = base.partition("/")[0] in ("int4", "nvfp4", "mxfp4", "fp8e5m2", "int1")
            cases.append(("ragged", spec, "float32", normal(2 * block + 7, 3.0, 2)))
            if not many:
                continue
            huge: list[Number] = [FLOAT32_MAX, 2.0**127, *normal(block - 2, 1e38), -FLOAT32_MAX]
            cases += [
                ("short", spec, "float32", normal(3)),
                ("empty", spec, "float32", []),
                (
                    "spread",
                    spec,
                    "float32",
                    [x * 4.0 ** (i % 23) for i, x in enumerate(normal(block))],
                ),
                (
                    "lost_blocks",
                    spec,
                    "float32",
                    [*normal(block), -math.inf, *normal(block), math.nan],
                ),
                ("zeros", spec, "float32", [0.0, -0.0] * block),
                ("huge", spec, "float32", huge),
                ("denormal", spec, "float32", normal(block + 1, 2.0**-133)),
                ("bfloat16_max", spec, "bfloat16", [BFLOAT16_MAX, -BFLOAT16_MAX] * block + [1.0]),
                ("float16_max", spec, "float16", [65504.0] * (block + 3)),
            ]
    shear = "int8/32+kronecker:f65fba137a5c2670"
    cases.append(("worked_example", shear, "float32", [4.0, *[0.0] * 31]))
    five = "kronecker:f2ebc864e835c474"  # with five channels
    wide = "kronecker:0982c0cfdb4747e8"
    values: list[Number] = [x * (30 if i % 5 == 3 else 1) for i, x in enumerate(normal(200))]
    cases += [
        ("rows", f"int6/32+rows:67+{five}", "float32", values),
        ("spikes", f"int4/32+sparse:5%+{five}", "float32", values),
        ("steps", f"int4/32+{five}+mixed", "float32", values),
        ("rows", f"int5/32+rows:67+sparse:2%+{five}+mixed", "bfloat16", values),
        ("random", f"int8/32+{five}+sr", "float32", values),
        ("integers", f"int8/32+{five}+shiftadd", "float32", values),
        ("floor_rule", f"mxfp4+{five}+floor", "float32", values),
        ("ragged", f"int8/128+feedback+{wide}", "float16", values),
    ]
    return cases


def clip_cases() -> list[tuple[str, str, str, list[Number]]]:
    """The modifier +clip:learned outside of calls: blocks, and a report of nothing."""
    ramp: list[Number] = [0.0, 1.0, -2.0, 0.5, 7.0]
    lost: list[Number] = [*normal(40), math.nan, *normal(30), math.inf, 5.0]
    huge: list[Number] = [FLOAT32_MAX, -FLOAT32_MAX, 2.0**127, *normal(40, 1e38 / 4)]
    cases: list[tuple[str, str, str, list[Number]]] = [
        ("worked_example", "int4/32+clip:learned", "float32", ramp),
        ("default_block", "int8+clip:learned", "float32", normal(200)),
        ("empty", "int4/32+clip:learned", "float32", []),
    ]
    for bits in range(8, 1, -1):
        cases.append(("ragged", f"int{bits}/32+clip:learned", "float32", normal(101, 3.0, 2)))
        cases.append(("ragged", f"int{bits}/64+hadamard+clip:learned", "bfloat16", normal(138)))
    for spec in ("int4/32+clip:learned", "int8/32+hadamard+clip:learned"):
        cases += [
            ("lost_blocks", spec, "float32", lost),
            ("huge", spec, "float32", huge),
            ("zeros", spec, "float32", [0.0, -0.0] * 20),
            ("denormal", spec, "float32", normal(45, 2.0**-133)),
            ("float16_max", spec, "float16", [65504.0, *normal(40), -65504.0]),
        ]
    turned = "int4/32+kronecker:f2ebc864e835c474+clip:learned"
    return [*cases, ("ragged", turned, "float32", normal(70))]


def random_cases() -> list[tuple[str, str, str, list[Number]]]:
    """The modifier +sr, with the key 0."""
    ramp: list[Number] = [x / 8 for x in range(-40, 41, 3)]
    huge: list[Number] = [FLOAT32_MAX, 2.0**127, *normal(30, 1e38 / 4), -FLOAT32_MAX]
    half: list[Number] = [65504.0, -65504.0, 65472.0, *normal(33, 2.0**-20), math.nan]
    worked: list[Number] = [7.0, 1.0, -2.0, 0.25, 0.25]
    cases = [("worked_example", "int4/32+sr", "float32", worked)]
    for format in ALL:
        if format.name.startswith(("int1", "nvfp4", "table")):
            continue
        spec = f"{format.name}/32+sr"
        cases += [
            ("ramp", spec, "float32", ramp),
            ("ragged", spec, "float32", normal(101, 3.0, 2)),
            ("huge", spec, "float32", huge),
            ("denormal", spec, "float32", normal(35, 2.0**-133)),
            ("lost_block", spec, "bfloat16", [*normal(40), math.inf]),
            ("float16_edges", spec, "float16", half),
            ("rotated", f"{format.name}/32+hadamard+sr", "float32", normal(70)),
            ("spikes", f"{format.name}/32+sparse:5%+sr", "float32", [50.0, *normal(60)]),
        ]
    return cases


def shiftadd_cases() -> list[tuple[str, str, str, list[Number]]]:
    """Integers under powers of two, whose worked examples docs/codecs.md has."""
    ramp: list[Number] = [0.0, 1.0, -2.0, 0.5, 3.0]
    edges: list[Number] = [FLOAT32_MAX, *normal(31, 1e38), *normal(40, 2.0**-130), math.nan]
    cases: list[tuple[str, str, str, list[Number]]] = [
        ("worked_example", "shiftadd/32", "float32", ramp),
        ("default_block", "shiftadd", "float32", normal(140, seed=4)),
    ]
    for spec in (*(f"int{bits}/32" for bits in range(8, 1, -1)), "mxint8", "int5/64+hadamard"):
        cases += [
            ("ragged", f"{spec}+shiftadd", "float32", normal(131, 3.0, 2)),
            ("edges", f"{spec}+shiftadd", "float32", edges),
            ("floor_rule", f"{spec}+shiftadd+floor", "bfloat16", normal(67)),
            ("float16_max", f"{spec}+shiftadd", "float16", [65504.0, *normal(40), -65504.0]),
        ]
    return cases


def moved_cases() -> list[tuple[str, str, str, list[Number]]]:
    """Formats of sums with shared scales, where nothing is summed."""
    lost: list[Number] = [*normal(60), math.nan, *normal(80)]
    return [
        ("default_block", "sum8", "float32", normal(300)),
        ("lost_block", "sum8/64", "bfloat16", lost),
        ("one_scale", "sum8:tensor", "float32", normal(1030)),
        ("rounded", "sum8/32+sr", "float32", normal(70)),
        ("empty", "sum8/32", "float16", []),
        ("one_scale", "sum:exp", "float16", normal(70)),
        ("halves", "lut2", "float32", normal(300)),
        ("lost_block", "lut2/64", "bfloat16", lost),
    ]


def exact_cases() -> list[tuple[str, str, str, list[Number]]]:
    """Values that travel as they are."""
    floats: list[Number] = [1.5, -0.0, math.inf, -2.25]
    cases: list[tuple[str, str, str, list[Number]]] = [
        ("exact", "exact", dtype, floats) for dtype in ("float32", "bfloat16", "float16", "float64")
    ]
    cases.append(("exact", "exact", "int32", [0, 1, -1, 2**31 - 1, -(2**31)]))
    cases.append(("exact", "exact", "int64", [0, -1, 2**63 - 1, -(2**63)]))
    cases.append(("exact", "exact", "uint8", [0, 1, 255]))
    return cases


def main() -> None:
    """Writes the file."""
    lines = []
    cases = lossy_cases() + worked_cases()
    for modifier in ("", "+hadamard"):
        for format in ALL:
            if modifier or format.name not in ("int8", "int4"):
                cases += format_cases(format, modifier)
    cases += shiftadd_cases()
    others = (
        kronecker_cases()
        + sparse_cases()
        + rows_cases()
        + layout_cases()
        + clip_cases()
        + random_cases()
        + moved_cases()
        + exact_cases()
    )
    for name, spec, dtype, values in cases + others:
        array = pack(dtype, values)
        # What the type rounds away is gone before a codec sees it.
        payload = array if spec == "exact" else encode(spec, dtype, unpack(dtype, array))
        decoded = pack(dtype, decode(spec, dtype, len(values), payload))
        fields = [name, spec, dtype, str(len(values))]
        fields += [data.hex() or "-" for data in (array, payload, decoded)]
        lines.append(" ".join(fields))
    (HERE / "payloads.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
