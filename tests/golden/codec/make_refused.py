"""Writes refused.txt: payloads that must fail, and where. Run it to add a case, not to mend a test.

One case per line: name, spec, dtype, count, the payload in hexadecimal ("-" where it is empty), and
what is wrong: "bytes:N" (so many it should have), "slice" (its scale), "block:K" (its scale),
"value:K" (its code, or that it is beyond the value type), "outlier:K" (of +sparse), "section:K"
(its map or cuts), "report:contributions" or "report:sums" (of +clip:learned).
"""

from __future__ import annotations

import math
import struct
import sys
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "reference"))

from code_packing import pack_codes  # noqa: E402
from encode_slice import encode  # noqa: E402
from format_table import ALL, Format  # noqa: E402

#: Name, dtype, payload, what is wrong.
Case = tuple[str, str, bytes, str]

ONE = {"bf16": b"\x80\x3f", "mean": b"\x80\x3f", "e8m0": b"\x7f", "e4m3": b"\x38"}
#: Specs without blocks, a value type and its bytes.
PLAIN = [("exact", "float32", 4), ("exact", "uint8", 1), ("bf16", "float16", 2)]
#: Scales that no encoder writes.
BF16_SCALES = {
    "negative": 0xBF80,
    "negative_zero": 0x8000,
    "infinite": 0x7F80,
    "negative_infinite": 0xFF80,
    "negative_nan": 0xFFC0,
    "other_nan": 0x7FC1,
    "signalling_nan": 0x7F81,
}
E4M3_SCALES = {"negative": 0xB8, "negative_zero": 0x80, "negative_nan": 0xFF}
SLICE_SCALES = {
    "negative": "bf800000",
    "negative_zero": "80000000",
    "infinite": "7f800000",
    "nan": "7fc00000",
    "negative_nan": "ffc00000",
}
#: Codes that no encoder writes, by the end of the format's name.
NO_CODES = {
    "e4m3": {"nan": 0x7F, "negative_nan": 0xFF},
    "e5m2": {"infinite": 0x7C, "negative_infinite": 0xFC, "nan": 0x7E},
}


class Payload:
    """A payload of a format in parts: two whole blocks and five values."""

    def __init__(self, format: Format) -> None:
        self.format = format
        self.block = min(format.default_block, 32)
        self.count = 2 * self.block + 5
        self.slice_scale = struct.pack("<f", 1.0) if format.scale == "e4m3" else b""
        self.scales = [ONE[format.scale]] * 3
        self.codes = [format.zero_code] * self.count

    def bytes(self) -> bytes:
        """On the wire."""
        return self.slice_scale + b"".join(self.scales) + pack_codes(self.format, self.codes)


def length_cases(format: Format) -> list[Case]:
    """Too short and too long."""
    whole = Payload(format).bytes()
    wrong = {
        "empty": b"",
        "scales_only": whole[:3],
        "cut_by_1": whole[:-1],
        "longer_by_1": whole + b"\0",
        "twice": whole * 2,
    }
    expected = f"bytes:{len(whole)}"
    return [(name, "float32", payload, expected) for name, payload in wrong.items()]


def scale_cases(format: Format) -> list[Case]:
    """In the second block, and for NVFP4 of the slice."""
    cases: list[Case] = []
    if format.scale in ("bf16", "mean"):
        for name, bits in BF16_SCALES.items():
            made = Payload(format)
            made.scales[1] = struct.pack("<H", bits)
            cases.append((f"{name}_scale", "float32", made.bytes(), "block:1"))
    if format.scale == "e4m3":
        for name, bits in E4M3_SCALES.items():
            made = Payload(format)
            made.scales[1] = bytes([bits])
            cases.append((f"{name}_scale", "float32", made.bytes(), "block:1"))
        for name, digits in SLICE_SCALES.items():
            made = Payload(format)
            made.slice_scale = struct.pack("<I", int(digits, 16))
            cases.append((f"{name}_slice_scale", "float32", made.bytes(), "slice"))
        made = Payload(format)
        made.slice_scale = struct.pack("<f", 1e38)
        made.scales[2] = b"\x7e"
        cases.append(("infinite_product", "float32", made.bytes(), "block:2"))
    return cases


def code_cases(format: Format) -> list[Case]:
    """In a whole group and at the end of the slice."""
    none = NO_CODES.get(format.name[-4:], {})
    if format.kind == "integer":
        none = {"most_negative": 1 << (format.bits - 1)}
    cases: list[Case] = []
    for name, code in none.items():
        for index in (20, Payload(format).count - 1):
            made = Payload(format)
            made.codes[index] = code
            cases.append((f"{name}_{index}", "bfloat16", made.bytes(), f"value:{index}"))
    if format.packing == "triples":
        # Codec reference, section 3, ABQ-LLM: three codes in 7 bits, 125 <= 128: three are none.
        # Number 2 of the one group of 69: 23 numbers, 3 bytes to a plane.
        for number in (125, 126, 127):
            payload = bytearray(Payload(format).bytes())
            for bit in range(7):
                at = len(payload) - 21 + 3 * bit
                payload[at] = payload[at] & ~4 | (number >> bit & 1) << 2
            cases.append((f"triple_{number}", "bfloat16", bytes(payload), "value:2"))
    return cases


def beyond_cases(format: Format) -> list[Case]:
    """The largest scale there is: values of the second block go beyond float16."""
    made = Payload(format)
    largest = {"bf16": b"\x7f\x7f", "mean": b"\x7f\x7f", "e8m0": b"\xfe", "e4m3": b"\x7e"}
    made.scales[1] = largest[format.scale]
    if format.scale == "e4m3":
        made.slice_scale = struct.pack("<f", 1e30)
    index = made.block + 3
    made.codes[index] = format.levels.index(max(filter(math.isfinite, format.levels)))
    # What has no level 0 is beyond from the block's first value on.
    first = index if 0.0 in format.levels else made.block
    return [("beyond", "float16", made.bytes(), f"value:{first}")]


def sparse_lines() -> list[str]:
    """Four outliers, 4 bytes each, before the scales of +sparse."""
    spec, count = "int6/32+sparse:4%", 100
    whole = encode(spec, "float32", [1.0 + i % 7 for i in range(count)])
    second = struct.unpack_from("<H", whole, 4)[0]
    changes = [
        ("index_of_nothing", "float32", 12, count, "outlier:3"),
        ("index_beyond", "float32", 0, 0xFFFF, "outlier:0"),
        ("index_twice", "float32", 8, second, "outlier:2"),
        ("index_descends", "float32", 4, 0, "outlier:1"),
        ("infinite_outlier", "float32", 6, 0x7F80, "outlier:1"),
        ("nan_outlier", "bfloat16", 14, 0xFFC0, "outlier:3"),
        ("outlier_beyond", "float16", 2, 0x4780, "outlier:0"),
        ("infinite_scale", "float32", 16, 0x7F80, "block:0"),
    ]
    lines = []
    for name, dtype, at, pattern, where in changes:
        payload = bytearray(whole)
        struct.pack_into("<H", payload, at, pattern)
        lines.append(f"{name} {spec} {dtype} {count} {payload.hex()} {where}")
    for name, cut in (("cut_in_entries", whole[:14]), ("cut_by_1", whole[:-1])):
        lines.append(f"{name} {spec} float32 {count} {cut.hex()} bytes:{len(whole)}")
    return lines


def rows_lines() -> list[str]:
    """Rows of 40 values: 2 scales and 28 bytes of codes each; the last row has 20."""
    spec, count = "int5/32+rows:40", 100
    whole = encode(spec, "float32", [1.0 + i % 7 for i in range(count)])
    row = 4 + 25
    changes = [
        ("infinite_scale", "float32", row, "block:0"),
        ("infinite_scale_of_a_short_block", "float32", 2, "block:1"),
        ("infinite_scale_of_a_short_row", "float32", 2 * row, "block:0"),
    ]
    lines = []
    for name, dtype, at, where in changes:
        payload = bytearray(whole)
        struct.pack_into("<H", payload, at, 0x7F80)
        lines.append(f"{name} {spec} {dtype} {count} {payload.hex()} {where}")
    payload = bytearray(whole)
    for bit in range(5):  # value 2 of the second row is the most negative integer
        at = row + 4 + 4 * bit
        payload[at] = payload[at] & ~4 | (4 if bit == 4 else 0)
    lines.append(f"most_negative {spec} float32 {count} {payload.hex()} value:2")
    lines.append(f"cut_by_1 {spec} float32 {count} {whole[:-1].hex()} bytes:{len(whole)}")
    return lines


def kronecker_lines() -> list[str]:
    """Blocks of 32 times matrices: as with +hadamard, a scale has no sign, in int8 and int4 too."""
    lines = []
    for base in ("int8/32", "int4/32", "fp8e4m3/32"):
        spec, count = f"{base}+kronecker:f2ebc864e835c474", 70
        whole = encode(spec, "float32", [1.0 + i % 7 for i in range(count)])
        for name, at, bits in (("negative", 2, 0xBF80), ("infinite", 4, 0x7F80)):
            payload = bytearray(whole)
            struct.pack_into("<H", payload, at, bits)
            where = f"block:{at // 2}"
            lines.append(f"{name}_scale {spec} float32 {count} {payload.hex()} {where}")
        lines.append(f"cut_by_1 {spec} float32 {count} {whole[:-1].hex()} bytes:{len(whole)}")
    return lines


def layout_lines() -> list[str]:
    """Maps of +mixed and cuts of +adaptive that no encoder writes, and what is wrong in a block."""
    count = 330
    values = [(1.0 + i % 7) * 4.0 ** (i // 64 % 3) for i in range(count)]
    changes = {
        # 11 blocks, the last of 10 values: 3 bytes of map, 2 bits a block, then 18 bytes each.
        "int4/32+mixed": [
            ("wider_alone", 0, b"\x01\x00\x00", "section:0"),
            ("narrower_alone", 0, b"\x00\x80\x00", "section:0"),
            ("no_change", 0, b"\x03\x00\x00", "section:0"),
            ("short_block_changed", 0, b"\x01\x00\x20", "section:0"),
            ("infinite_scale", 3, b"\x80\x7f", "block:0"),
        ],
        # An exponent; cuts into 10 blocks, of which the first is 64 values; their steps.
        "int4/64+adaptive": [
            ("too_few", 1, b"\x00\x00\x00", "section:0"),
            ("too_many", 1, b"\xff\xff\xff", "section:0"),
            ("infinite_scale", 0, b"\xff\xfb\x00\x00\x00", "block:0"),
            ("scale_of_zero", 0, b"\x02\xfb\x00\x00\x20", "block:0"),
            ("scale_below_zero", 0, b"\x02\xfb\x00\x00\x21", "block:0"),
            ("most_negative_integer", 178, b"\x88", "block:9"),
        ],
    }
    lines = []
    for spec, cases in changes.items():
        whole = encode(spec, "float32", values)
        for name, at, pattern, where in cases:
            payload = bytearray(whole)
            payload[at : at + len(pattern)] = pattern
            lines.append(f"{name} {spec} float32 {count} {payload.hex()} {where}")
        for name, cut in (("cut_in_layout", whole[:1]), ("cut_by_1", whole[:-1])):
            lines.append(f"{name} {spec} float32 {count} {cut.hex()} bytes:{len(whole)}")
    return lines


def clip_lines() -> list[str]:
    """Blocks of 32 and a report of 64 bytes."""
    spec, count = "int4/32+clip:learned", 70
    whole = encode(spec, "float32", [1.0 + i % 7 for i in range(count)])
    begin = len(whole) - 64
    most = 2**40
    changes = {
        "negative_scale": (2, struct.pack("<H", 0xBF80), "block:1"),
        "infinite_scale": (0, struct.pack("<H", 0x7F80), "block:0"),
        "other_nan_scale": (4, struct.pack("<H", 0x7FC1), "block:2"),
        "most_negative": (6, b"\x08", "value:0"),
    }
    for at, part in ((begin, "contributions"), (begin + 32, "sums")):
        wrong = f"report:{part}"
        changes |= {
            f"terms_of_{part}": (at, struct.pack("<I", 65536), wrong),
            f"negative_absmax_of_{part}": (at + 4, struct.pack("<f", -1.0), wrong),
            f"infinite_absmax_of_{part}": (at + 4, struct.pack("<f", math.inf), wrong),
            f"other_nan_of_{part}": (at + 4, struct.pack("<I", 0x7FC00001), wrong),
            f"pull_of_{part}": (at + 8, struct.pack("<q", most + 1), wrong),
            f"negative_pull_of_{part}": (at + 8, struct.pack("<q", -most - 1), wrong),
            f"clipped_of_{part}": (at + 16, struct.pack("<q", -1), wrong),
            f"most_clipped_of_{part}": (at + 16, struct.pack("<q", most + 1), wrong),
            f"blocks_of_{part}": (at + 24, struct.pack("<q", -1), wrong),
            f"most_blocks_of_{part}": (at + 24, struct.pack("<q", 2**63 - 1), wrong),
        }
    changes["two_sums"] = (begin + 32, struct.pack("<I", 2), "report:sums")
    lines = []
    for name, (at, pattern, where) in changes.items():
        payload = bytearray(whole)
        payload[at : at + len(pattern)] = pattern
        lines.append(f"{name} {spec} float32 {count} {payload.hex()} {where}")
    for name, cut in {
        "cut_by_1": whole[:-1],
        "without_report": whole[:begin],
        "half_a_report": whole[: begin + 32],
        "longer_by_1": whole + b"\0",
        "empty": b"",
    }.items():
        lines.append(f"{name} {spec} float32 {count} {cut.hex() or '-'} bytes:{len(whole)}")
    lines.append(f"report_of_none {spec} float32 0 {bytes(64).hex()} bytes:0")
    return lines


def main() -> None:
    """Writes the file."""
    lines = []
    for format in ALL:
        made = Payload(format)
        cases = length_cases(format) + scale_cases(format)
        cases += code_cases(format) + beyond_cases(format)
        # Some formats have kernels of their own where there is no modifier.
        rotates = format.name in ("int8", "int4", "five", "nvfp4", "mxfp8:e4m3")
        for modifier in ["", "+hadamard"] if rotates else [""]:
            spec = f"{format.name}/{made.block}{modifier}"
            for name, dtype, payload, where in cases:
                fields = [name, spec, dtype, str(made.count), payload.hex() or "-", where]
                lines.append(" ".join(fields))
    for format in ALL:
        if format.name not in ("int8", "int5", "int4", "mxint8"):
            continue
        powers = replace(format, scale="e8m0")
        made = Payload(powers)
        for name, dtype, payload, where in (
            length_cases(powers) + code_cases(powers) + beyond_cases(powers)
        ):
            spec = f"{format.name}/{made.block}+shiftadd"
            lines.append(f"{name} {spec} {dtype} {made.count} {payload.hex() or '-'} {where}")
    for spec, dtype, size in PLAIN:
        expected = 3 * size
        for length in (0, expected - 1, expected + 1, 2 * expected):
            zeros = "00" * length or "-"
            lines.append(f"length_{length} {spec} {dtype} 3 {zeros} bytes:{expected}")
    lines += sparse_lines()
    lines += rows_lines()
    lines += layout_lines()
    lines += kronecker_lines()
    lines += clip_lines()
    lines.append("one_byte_of_none int6/32 float32 0 00 bytes:0")
    (HERE / "refused.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
