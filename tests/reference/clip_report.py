"""What travels behind the codes of +clip:learned: docs/wire-format.md, "Reports of learned clips".

Plain Python, no code of tersum's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

REPORT_BYTES = 64
PART = struct.Struct("<IIqqq")
NAN_BITS = 0x7FC00000
INFINITE_BITS = 0x7F800000
SUM_MAX = 2**40
TERMS_MAX = 65535
PARTS = ("contributions", "sums")


def limited(number: int) -> int:
    """As a sum travels."""
    return max(-SUM_MAX, min(SUM_MAX, number))


@dataclass(frozen=True)
class Part:
    """Of contributions, or of sums."""

    terms: int = 0
    absmax_bits: int = 0  #: float32 bits, so that NaN is above all numbers
    pull: int = 0
    clipped: int = 0
    blocks: int = 0

    def added(self, other: Part) -> Part:
        """Both together, without limits: as a rank adds up what it learns from."""
        return Part(
            self.terms + other.terms,
            max(self.absmax_bits, other.absmax_bits),
            self.pull + other.pull,
            self.clipped + other.clipped,
            self.blocks + other.blocks,
        )

    def sent(self) -> Part:
        """Within what travels."""
        sums = (limited(sum) for sum in (self.pull, self.clipped, self.blocks))
        return Part(min(self.terms, TERMS_MAX), self.absmax_bits, *sums)

    def pack(self) -> bytes:
        """32 bytes."""
        return PART.pack(self.terms, self.absmax_bits, self.pull, self.clipped, self.blocks)

    @property
    def is_written(self) -> bool:
        """Whether an encoder writes it."""
        magnitude = self.absmax_bits < INFINITE_BITS or self.absmax_bits == NAN_BITS
        errors = 0 <= self.clipped <= SUM_MAX and 0 <= self.blocks <= SUM_MAX
        return self.terms <= TERMS_MAX and magnitude and abs(self.pull) <= SUM_MAX and errors


@dataclass(frozen=True)
class Report:
    """Of a slice, or of the slices of a call."""

    contributions: Part = field(default_factory=Part)
    sums: Part = field(default_factory=Part)

    def added(self, other: Report) -> Report:
        """What a rank learns from: integers, in any order."""
        return Report(self.contributions.added(other.contributions), self.sums.added(other.sums))

    def pack(self) -> bytes:
        """As it travels."""
        return self.contributions.pack() + self.sums.pack()


def unpack(payload: bytes) -> Report:
    """The report at the end of a payload."""
    data = payload[-REPORT_BYTES:]
    first, second = (Part(*PART.unpack_from(data, at)) for at in (0, PART.size))
    return Report(first, second)


def added_wires(payloads: list[bytes], own: bool) -> Part:
    """The first part of a sum's report: of the contributions in it, wire after wire; ``own``: one
    more that was not coded."""
    total = Part()
    for payload in payloads:
        total = total.added(unpack(payload).contributions).sent()
    return total.added(Part(terms=1)).sent() if own else total


def why_refused(payload: bytes) -> str | None:
    """ "report:contributions" or "report:sums"; None for what an encoder writes."""
    report = unpack(payload)
    if not report.contributions.is_written:
        return f"report:{PARTS[0]}"
    if not report.sums.is_written or report.sums.terms > 1:
        return f"report:{PARTS[1]}"
    return None
