"""What +clip:learned learns and what follows from it: docs/codecs.md, "The modifier +clip:learned".

Plain Python, float64 where the document says so; no code of tersum's.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field

from clip_report import NAN_BITS, Part, Report
from float_rounding import LARGEST_BITS, float32, float_of

FLOAT32_MAX = float_of(LARGEST_BITS["float32"])
FIRST_RATE = 0.1
MOST_RATE = 0.25
#: Of a clip that is used.
TRUSTED_RATE = 1 / 8
LEAST_RATE = 1 / 256
TRUSTED_CALLS = 3
#: Times the error of blocks from where on a clip is given up.
LOST = 16


@dataclass
class Clip:
    """Of contributions, or of sums, at one site."""

    clip: float = 0.0  #: 0: not known yet
    rate: float = 0.0
    direction: int = 0
    calls: int = 0
    trusted: bool = False

    def begin(self, absmax: float) -> None:
        """Anew, where all values are within the clip."""
        self.clip, self.rate, self.direction, self.trusted = absmax, FIRST_RATE, 0, False

    def learn(self, part: Part) -> None:
        """From what all slices of a call say together."""
        if part.terms == 0 or part.absmax_bits in (0, NAN_BITS):
            return
        absmax = float_of(part.absmax_bits)
        self.calls += 1
        if self.clip == 0:
            self.begin(absmax)
            return
        if part.clipped // LOST > part.blocks or 2 * absmax < self.clip:
            self.begin(absmax)
            return
        self.trusted = self.calls >= TRUSTED_CALLS and part.clipped <= part.blocks
        way = (part.pull > 0) - (part.pull < 0)
        if way != 0 and way == self.direction:
            self.rate *= 1.5
        if way != 0 and way == -self.direction:
            self.rate = max(self.rate / 2, LEAST_RATE)
        self.rate = min(self.rate, TRUSTED_RATE if self.trusted else MOST_RATE)
        self.direction = way
        if way > 0:
            self.clip *= 1 + self.rate
        elif way < 0:
            self.clip /= 1 + self.rate
        self.clip = min(self.clip, absmax)

    def saved(self) -> bytes:
        """As a saved file holds it."""
        numbers = (self.clip, self.rate, self.direction, self.calls, int(self.trusted))
        return struct.pack("<ddqQQ", *numbers)


@dataclass
class Site:
    """What one site knows of calls of one shape."""

    contributions: Clip = field(default_factory=Clip)
    sums: Clip = field(default_factory=Clip)

    def learn(self, report: Report) -> None:
        """At the end of a call."""
        self.contributions.learn(report.contributions)
        self.sums.learn(report.sums)

    def is_held(self, replicated: bool) -> bool:
        """Does the next call travel without scales of blocks? ``replicated``: no sum is coded."""
        return self.contributions.trusted and (replicated or self.sums.trusted)

    def saved(self) -> bytes:
        """Both parts."""
        return self.contributions.saved() + self.sums.saved()


@dataclass(frozen=True)
class Clips:
    """What a call codes with, float32; 0: not known."""

    contribution: float = 0.0
    sum: float = 0.0
    ranks: int = 1
    divisor: int = 1  #: of an average; sums are divided before they are coded

    def of_partial(self, terms: int) -> float:
        """Of the sum of so many contributions, not divided yet."""
        whole = self.sum * self.divisor
        if terms <= 1 or not self.contribution > 0 or not whole > 0:
            return self.contribution
        power = math.log(terms) / math.log(self.ranks)
        clip = self.contribution * math.pow(whole / self.contribution, power)
        return float32(min(clip, FLOAT32_MAX))
