"""Writes clip_states.txt from the reference: run it to add a case, never to mend a test.

What a site learns, call by call, one call per line: the name of the site, which begins anew where
it changes, then in hexadecimal the sum of the call's reports and the state after it as it is saved;
then whether the next call is held where sums are coded, and where they are not (0 or 1).
"""

from __future__ import annotations

import math
import random
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "reference"))

from clip_report import NAN_BITS, SUM_MAX, Part, Report  # noqa: E402
from learned_clip import Site  # noqa: E402

NAN = math.nan


def part(absmax: float, pull: int = 0, clipped: int = 0, blocks: int = 0, terms: int = 2) -> Part:
    """Of one call."""
    bits = NAN_BITS if math.isnan(absmax) else struct.unpack("<I", struct.pack("<f", absmax))[0]
    return Part(terms, bits, pull, clipped, blocks)


def steady(pulls: list[int], absmax: float = 100.0) -> list[Part]:
    """A first call, and then these pulls, under a clip that is good enough."""
    return [part(absmax), *(part(absmax, pull, 100, 101) for pull in pulls)]


def sites() -> Iterator[tuple[str, list[Part]]]:
    """What contributions say at each."""
    yield "shrinks", steady([-5] * 14)
    yield "grows_to_the_largest", steady([-1] * 9 + [1] * 14)
    yield "turns", steady([-1, 1] * 12)
    yield "stands", steady([-1, 0, -1, 0, 0, 1, 1])
    good = part(8, -1, 5, 5)
    yield (
        "says_nothing",
        [
            part(0),
            part(NAN),
            Part(),
            part(8),
            part(NAN, 7, 1, 900),
            good,
            Part(),
            good,
            part(0),
            good,
        ],
    )
    yield "trusted_again", [part(8), good, good, part(8, -1, 6, 5), good, part(8, 1, 5, 5)]
    lost = [part(8, -1, 16 * 7 + 15, 7), part(800, -1, 16 * 7 + 16, 7)]
    yield "given_up", [part(8), good, good, *lost, part(800, -1, 5, 5), part(2.0**-149, -1, 1, 1)]
    quiet = [part(4, -1, 5, 5), part(1.5, -1, 0, 0), part(1.5, -1, 5, 5), part(0.7, 1, 5, 5)]
    yield "far_within", [part(8), good, good, *quiet]
    yield "without_blocks", [part(8), good, good, part(9, -1, 15, 0), part(9, -1, 16, 0), part(9)]
    yield "largest", [part(3.4e38, SUM_MAX, SUM_MAX, SUM_MAX, 65535)] * 5
    yield "least", [part(2.0**-149), *[part(2.0**-149, -1, 1, 1)] * 6]
    source = random.Random(7)
    for number in range(4):
        calls = []
        for _ in range(25):
            clipped = source.randrange(10 ** source.randrange(1, 6))
            calls.append(part(source.uniform(1, 9), source.randrange(-2, 3), clipped, 900))
        yield f"random_{number}", calls


def main() -> None:
    """Writes the file."""
    lines = []
    others: list[Part] = []
    for name, calls in sites():
        site = Site()
        for number, call in enumerate(calls):
            # Sums say what contributions said at the site before, one call later.
            of_sum = others[(number + 1) % len(others)] if others else Part()
            report = Report(call, of_sum)
            site.learn(report)
            held = f"{int(site.is_held(False))} {int(site.is_held(True))}"
            lines.append(f"{name} {report.pack().hex()} {site.saved().hex()} {held}")
        others = calls
    (HERE / "clip_states.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
