"""The measurements on shaped wires: every topology at 16 MiB, every plan over sizes, two ranks."""

from __future__ import annotations

import os
from typing import NamedTuple

from link_codecs import LINK_CODECS
from report_parts import BENCH, Measurement, Part, calls, parse_perf, perf, span

from tersum.cli.byte_sizes import size_range
from tersum.cli.perf_options import PLANS
from tersum.cli.plan_study import Study, study_plans
from tersum.topologies import topology_text

CODECS = ("bf16", "int8/128", "int4/128")
TWO_HOSTS = BENCH / "report" / "two-hosts-of-two.json"
SWEEP = "sweep-"
TOPOLOGY = "topology-"

# As the table "Every topology" has them, in the order of its picture.
AT_16_MIB = (
    ("pair", "200mbit"),
    ("ring4", "200mbit"),
    ("torus2x2", "200mbit"),
    ("mesh4", "200mbit"),
    ("ring8", "100mbit"),
    ("torus2x4", "50mbit"),
    ("star8", "100mbit"),
)


class Sweep(NamedTuple):
    """A topology, the rate of its links, and the larger arrays. Rates are low enough that two cores
    are not the limit, calls so few that a sweep ends within 140 s. They are timed in batches, for
    the cost model foretells how often calls come: ranks may be early and late in turn."""

    topology: str
    rate: str
    large: tuple[str, str]
    batches: int = 3  # of two calls
    batches_small: int = 5  # of four


SWEEPS = (
    Sweep("pair", "200mbit", ("4M", "16M")),
    Sweep("ring4", "200mbit", ("4M", "16M")),
    Sweep("ring8", "100mbit", ("2M", "8M")),
    Sweep("torus2x2", "200mbit", ("4M", "16M")),
    Sweep("torus2x4", "100mbit", ("2M", "8M")),
    Sweep("mesh4", "200mbit", ("4M", "16M")),
    Sweep("star8", "250mbit", ("2M", "8M"), batches_small=3),
    Sweep("torus2x2x2", "100mbit", ("2M", "8M")),
    Sweep(str(TWO_HOSTS), "200mbit", ("2M", "8M")),
)


def sweep_name(sweep: Sweep) -> str:
    """Of its measurement: that of the topology, or of its file."""
    return SWEEP + sweep.topology.rpartition("/")[2].removesuffix(".json")


def study(topology: str, rate: str, size: int, codec: str) -> Study:
    """What the cost model says of every plan there, all hosts on this machine."""
    return study_plans(
        topology_text(topology),
        size=size,
        codec=codec,
        rate=rate,
        cores=os.cpu_count() or 1,
        one_machine=True,
    )


def plans_that_fit(topology: str, rate: str) -> list[str]:
    """Those that run on the topology with every codec of the sweeps, in the order of ``--plan``."""
    fitting = [
        {plan.plan for plan in study(topology, rate, 1 << 20, codec).fitting} for codec in CODECS
    ]
    return [plan for plan in PLANS if all(plan in names for names in fitting)]


def sweep_measurement(sweep: Sweep, quick: bool) -> Measurement:
    """Every plan that fits, and auto, over sizes; long and short calls in runs of their own."""
    plans = ",".join(["auto", *plans_that_fit(sweep.topology, sweep.rate)])
    how = ["--topology", _shown(sweep.topology), "--link", sweep.rate]
    # That tersum perf explains is how the rows come to say which plan auto took.
    how += ["--codec", ",".join(CODECS), "--plan", plans, "--explain"]
    parts: tuple[Part, ...] = (
        perf(*how, *span("128K", "1M", 2), *calls(sweep.batches_small, 1), "--batch", "4"),
        perf(*how, *span(*sweep.large), *calls(sweep.batches, 1), "--batch", "2"),
    )
    if quick:
        parts = (perf(*how, *span("64K", "64K"), *calls(2, 0)),)
    return Measurement(sweep_name(sweep), parts)


def _shown(topology: str) -> str:
    """A file by its way from here, so that the command can be read and run again."""
    return os.path.relpath(topology) if topology.endswith(".json") else topology


def predicted_seconds(part: Part) -> float:
    """How long the calls of a part on a topology take by the cost model; starting, checking and
    tuning come on top."""
    asked = parse_perf(part)
    calls_each = asked.warmup + 1 + (asked.iters + min(5, asked.iters)) * asked.batch
    total = 0.0
    for size in size_range(asked.min_bytes, asked.max_bytes, asked.factor):
        for codec in asked.codec:
            fitting = study(asked.topology, asked.link, size, codec).fitting
            times = {plan.plan: plan.time_s for plan in fitting}
            total += sum(times.get(plan, fitting[0].time_s) for plan in asked.plan)
    return float(total * calls_each)


def _at_16_mib(topology: str, rate: str, quick: bool) -> Measurement:
    how = ["--topology", topology, "--link", rate, "--codec", "bf16,int8,int4"]
    more = (*span("64K", "64K"), *calls(2, 0)) if quick else (*span("16M", "16M"), *calls(5, 1))
    return Measurement(TOPOLOGY + topology, (perf(*how, *more),))


def _two_ranks(rate: str, quick: bool) -> Measurement:
    how = ("--ranks", "2", "--link", rate, "--codec", ",".join(CODECS), "--compare", "bare")
    more = (*span("64K", "64K"), *calls(2, 0)) if quick else (*span("1M", "64M", 2), *calls(20))
    return Measurement(f"link-{rate}", (perf(*how, *more),))


def _every_codec(quick: bool) -> Measurement:
    """16 MiB in place and into another array, of 60 formats at a time beside bf16. Warm enough that
    clips are held."""
    run = (*span("64K", "64K"), *calls(1, 1)) if quick else (*span("16M", "16M"), *calls(10, 9))
    codecs = LINK_CODECS[:60] if quick else LINK_CODECS
    parts = []
    for first in range(0, len(codecs), 60):
        some = ",".join(dict.fromkeys(["bf16", *codecs[first : first + 60]]))
        how = ("--ranks", "2", "--link", "1gbit", "--codec", some)
        parts += [perf(*how, *run), perf(*how, *run, "--in-place")]
    return Measurement("codecs-1gbit", tuple(parts))


def wire_measurements(quick: bool) -> list[Measurement]:
    """All that need network namespaces and nothing else."""
    return [
        *(_at_16_mib(topology, rate, quick) for topology, rate in AT_16_MIB),
        *(sweep_measurement(sweep, quick) for sweep in SWEEPS),
        *(_two_ranks(rate, quick) for rate in ("1gbit", "5gbit")),
        _every_codec(quick),
    ]
