"""The formats and modifiers that are measured on a slow link, all in one list.

What needs a file (``table:FILE``, ``+kronecker:FILE``) is not in it, and neither is ``+hops``,
which changes nothing about two ranks.
"""

from __future__ import annotations

#: A base, and the modifiers it is measured with; ``""``: alone.
_BASES: dict[str, tuple[str, ...]] = {
    "bf16": ("",),
    "five/128": ("", "flatten", "hadamard"),
    "five/32": ("", "flatten", "hadamard", "sr"),
    "fp8e4m3/128": ("", "flatten", "hadamard", "sr"),
    "fp8e4m3/32": ("", "flatten", "hadamard"),
    "fp8e5m2/128": ("", "flatten", "hadamard"),
    "fp8e5m2/32": ("", "flatten", "hadamard"),
    "int1/128": ("", "flatten", "hadamard"),
    "int1/32": ("", "flatten", "hadamard"),
    "int1/64": ("", "hadamard"),
    "int2/128": ("", "flatten", "hadamard"),
    "int2/32": ("", "clip:learned", "feedback", "flatten", "hadamard"),
    "int3/128": ("", "flatten", "hadamard", "mixed"),
    "int3/32": ("", "flatten", "flatten+mixed", "hadamard", "hadamard+mixed", "mixed"),
    "int3/64": ("flatten+mixed",),
    "int4/1024": ("rows:384", "sparse:0.2%"),
    "int4/128": (
        *("", "adaptive", "clip:learned", "feedback", "flatten", "flatten+mixed", "hadamard"),
        *("hadamard+clip:learned", "hadamard+mixed", "hadamard+sr", "mixed", "sparse:0.5%"),
    ),
    "int4/32": (
        *("", "flatten", "flatten+mixed", "hadamard", "hadamard+mixed", "hadamard+sr", "mixed"),
        *("shiftadd", "sparse:0.5%+flatten"),
    ),
    "int4/64": ("adaptive", "hadamard"),
    "int5/128": ("", "flatten", "hadamard"),
    "int5/32": ("", "flatten", "hadamard"),
    "int6/128": ("", "flatten", "hadamard", "mixed", "sparse:0.5%"),
    "int6/32": ("", "flatten", "hadamard"),
    "int7/128": ("", "flatten", "hadamard", "mixed"),
    "int7/32": ("", "flatten", "hadamard"),
    "int8/1024": ("", "rows:384"),
    "int8/128": (
        *("", "feedback", "flatten", "hadamard", "hadamard+shiftadd", "rows:384", "rows:4096"),
        *("shiftadd", "sparse:0.2%", "sr"),
    ),
    "int8/256": ("",),
    "int8/32": ("", "flatten", "hadamard", "shiftadd"),
    "int8/64": ("",),
    "kmeans:16/64": ("",),
    "kmeans:2/64": ("",),
    "kmeans:4/64": ("",),
    "kmeans:8/64": ("",),
    "lut2/128": ("",),
    "lut2/32": ("", "rows:4096"),
    "mxfp4/32": ("", "flatten", "floor", "hadamard"),
    "mxfp6:e2m3/32": ("", "flatten", "floor", "hadamard"),
    "mxfp6:e3m2/32": ("", "flatten", "floor", "hadamard"),
    "mxfp8:e4m3/32": ("", "flatten", "floor", "hadamard", "sr"),
    "mxfp8:e5m2/32": ("", "flatten", "floor", "hadamard"),
    "mxint8/32": ("", "flatten", "floor", "hadamard", "shiftadd"),
    "nf4/128": ("", "flatten", "hadamard"),
    "nf4/32": ("", "flatten", "hadamard"),
    "nf4/64": ("", "flatten", "hadamard", "sr"),
    "nvfp4/16": ("", "flatten", "hadamard"),
    "sum8/128": ("", "hadamard"),
    "sum8/256": ("", "hadamard", "hadamard+sr", "rows:4096", "sr"),
    "sum8/32": ("", "hadamard"),
    "sum8:tensor/1024": ("", "hadamard", "sr"),
    "sum:exp/1024": ("",),
}
LINK_CODECS = [
    f"{base}+{modifiers}" if modifiers else base
    for base, ways in _BASES.items()
    for modifiers in ways
]
