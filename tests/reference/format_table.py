"""The formats with blocks, as docs/codecs.md ("Specs", "Levels") has them. No code of tersum's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from block_products import Transform, read_transform
from channel_factors import Factors
from float_rounding import float32, float_of

ALIASES = {"mxfp8": "mxfp8:e4m3", "mxfp6": "mxfp6:e2m3", "shiftadd": "int8"}
NF4_BITS = """bf800000 bf3239b1 bf066b30 beca32a0 be91a24d be3d353f bdba7871 00000000
3da2faff 3e24cae3 3e7c04dd 3ead033a 3ee1a4b8 3f1007ab 3f3913b3 3f800000"""
NF4 = [float_of(int(bits, 16)) for bits in NF4_BITS.split()]


def integer_levels(bits: int) -> list[float]:
    """Two's complement."""
    half = 1 << (bits - 1)
    return [float(code if code < half else code - 2 * half) for code in range(2 * half)]


def minifloat_levels(exponent_bits: int, mantissa_bits: int) -> list[float]:
    """Every code of a minifloat, specials of the two OFP8 formats included."""
    bias = 2 ** (exponent_bits - 1) - 1
    half = 1 << (exponent_bits + mantissa_bits)
    levels = []
    for code in range(half):
        exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
        fraction = mantissa / 2**mantissa_bits + (1 if exponent > 0 else 0)
        levels.append(fraction * 2.0 ** (max(exponent, 1) - bias))
    if (exponent_bits, mantissa_bits) == (4, 3):
        levels[0x7F] = math.nan
    if (exponent_bits, mantissa_bits) == (5, 2):
        levels[0x7C:] = [math.inf, math.nan, math.nan, math.nan]
    return levels + [-level for level in levels]


@dataclass(frozen=True)
class Format:
    """One base format."""

    name: str
    kind: str  #: how a code is chosen: "integer", "minifloat" or "table"
    bits: int
    levels: list[float]  #: by code
    packing: str  #: "bytes", "nibbles", "planes" or "triples"
    scale: str  #: "bf16", "mean", "e8m0", "e8m0 floor" or "e4m3"
    default_block: int
    top: float = 0.0  #: the largest level that is written, where codes could hold more

    @property
    def largest(self) -> float:
        """The largest level that is written."""
        if self.top:
            return self.top
        if self.kind == "integer":
            return 2.0 ** (self.bits - 1) - 1
        if self.name.startswith("table:"):
            return 1.0
        return max(level for level in self.levels if math.isfinite(level))

    @property
    def zero_code(self) -> int:
        """What is written where there is nothing to code."""
        return next((i for i, level in enumerate(self.levels) if level >= 0), len(self.levels) - 1)

    @property
    def exponent(self) -> int:
        """What an E8M0 byte of 0 stands for, as a power of two."""
        return -133 if self.name == "mxint8" else -127

    @property
    def scale_bytes(self) -> int:
        """On the wire, per block."""
        return 2 if self.scale in ("bf16", "mean") else 1


def packing_of(bits: int) -> str:
    """Bytes and nibbles where they fit, planes elsewhere."""
    return {8: "bytes", 4: "nibbles"}.get(bits, "planes")


def integer(bits: int) -> Format:
    """int8 to int2."""
    block = 128 if bits >= 4 else 32
    levels = integer_levels(bits)
    return Format(f"int{bits}", "integer", bits, levels, packing_of(bits), "bf16", block)


def minifloat(name: str, shape: tuple[int, int], scale: str, block: int) -> Format:
    """shape: bits of exponent and mantissa."""
    bits = 1 + sum(shape)
    levels = minifloat_levels(*shape)
    return Format(name, "minifloat", bits, levels, packing_of(bits), scale, block)


#: Files that are named by the digest of their levels.
TABLES = sorted(Path(__file__).resolve().parents[1].glob("golden/codec/tables/*.txt"))


def table(file: Path) -> Format:
    """A table that a file holds, under the name that its digest gives it."""
    lines = (line.partition("#")[0] for line in file.read_text().splitlines())
    levels = [float32(float(word)) for line in lines for word in line.split()]
    bits = len(levels).bit_length() - 1
    name = f"table:{file.stem}"
    return Format(name, "table", bits, levels, packing_of(bits), "bf16", 64)


ALL = [
    *(integer(bits) for bits in range(8, 1, -1)),
    Format("int1", "table", 1, [-1.0, 1.0], "planes", "mean", 32),
    Format("five", "table", 3, [-2.0, -1.0, 0.0, 1.0, 2.0], "triples", "bf16", 32),
    minifloat("fp8e4m3", (4, 3), "bf16", 128),
    minifloat("fp8e5m2", (5, 2), "bf16", 128),
    minifloat("mxfp8:e4m3", (4, 3), "e8m0", 32),
    minifloat("mxfp8:e5m2", (5, 2), "e8m0", 32),
    minifloat("mxfp6:e2m3", (2, 3), "e8m0", 32),
    minifloat("mxfp6:e3m2", (3, 2), "e8m0", 32),
    minifloat("mxfp4", (2, 1), "e8m0", 32),
    Format("mxint8", "integer", 8, integer_levels(8), "bytes", "e8m0", 32),
    minifloat("nvfp4", (2, 1), "e4m3", 16),
    Format("nf4", "table", 4, NF4, "nibbles", "bf16", 64),
    *(table(file) for file in TABLES),
]
#: Of shared_scales.py: where nothing is summed the first three are coded as int8.
SUMMED = [
    replace(integer(8), name="sum8", default_block=256),
    replace(integer(8), name="sum8:tensor", default_block=1024),
    replace(integer(8), name="sum:exp", default_block=1024),
    Format("lut2", "table", 2, [-1.5, -0.5, 0.5, 1.5], "planes", "bf16", 32),
]
FORMATS = {format.name: format for format in [*ALL, *SUMMED]}
E4M3 = minifloat_levels(4, 3)


@dataclass(frozen=True)
class Spec:
    """A spec that was read: ``format`` is None for "exact" and "bf16"."""

    base: str
    format: Format | None
    block: int
    hadamard: bool
    shiftadd: bool = False  #: sums are those of integers, the owner's part quantized, too
    sparse: int = 0  #: P of +sparse in hundredths of a percent; 0 without
    rows: int = 0  #: N of +rows; 0 without
    mixed: bool = False
    adaptive: bool = False
    clip: bool = False  #: a report of the learned clip behind each slice
    random: bool = False  #: rounded at random
    kronecker: Transform | None = None
    factors: Factors | None = None  #: of +flatten, where its state has some; then ``hadamard``, too

    @property
    def transforms(self) -> bool:
        """Is a block something else before it is coded?"""
        return self.hadamard or self.kronecker is not None


def parse_spec(text: str) -> Spec:
    """``"int8/32+hadamard"`` and its like; of specs that are none it finds only some."""
    head, *modifiers = text.split("+")
    base, _, block = head.partition("/")
    base = ALIASES.get(base, base)
    if base not in FORMATS:
        return Spec(base, None, 0, False)
    if modifiers and modifiers[0] == "feedback":
        modifiers.pop(0)  # which values are sent, not how
    rows = sparse = 0
    if modifiers and modifiers[0].startswith("rows:"):
        rows = int(modifiers.pop(0).removeprefix("rows:"))
    if modifiers and modifiers[0].startswith("sparse:"):
        sparse = round(float(modifiers.pop(0).removeprefix("sparse:").removesuffix("%")) * 100)
    format = FORMATS[base]
    random = bool(modifiers) and modifiers[-1] == "sr"
    if random:
        modifiers.pop()
    if modifiers and modifiers[-1] == "hops":
        modifiers.pop()  # how it may travel, not what
    floor = bool(modifiers) and modifiers[-1] == "floor"
    if floor:
        modifiers.pop()
    kronecker = None
    for name in modifiers:
        if name.startswith("kronecker:"):
            kronecker = read_transform(name.removeprefix("kronecker:"))
    modifiers = [name for name in modifiers if not name.startswith("kronecker:")]
    layouts = {name: name in modifiers for name in ("mixed", "adaptive")}
    clip = "clip:learned" in modifiers
    modifiers = [name for name in modifiers if name != "clip:learned"]
    shiftadd = head.startswith("shiftadd") or "shiftadd" in modifiers
    modifiers = [name for name in modifiers if name != "shiftadd" and name not in layouts]
    if shiftadd or floor:
        format = replace(format, scale="e8m0 floor" if floor else "e8m0")
    if modifiers not in ([], ["hadamard"], ["flatten"]):
        raise ValueError(f"unknown modifiers {modifiers}")
    values = int(block) if block else format.default_block
    layouts |= {"clip": clip, "shiftadd": shiftadd, "random": random}
    hadamard = bool(modifiers)
    return Spec(
        base, format, values, hadamard, sparse=sparse, rows=rows, kronecker=kronecker, **layouts
    )


def rows_of(spec: Spec, count: int) -> Iterator[tuple[Spec, range]]:
    """The values of a slice, row by row, and the spec of each row; one row without +rows."""
    length = spec.rows or max(count, 1)
    for begin in range(0, count, length):
        yield replace(spec, rows=0), range(begin, min(begin + length, count))
