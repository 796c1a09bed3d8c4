"""Studies of plans on topologies, as ``tersum plan`` shows them."""

from __future__ import annotations

import dataclasses
from typing import Any

from tersum import _core


@dataclasses.dataclass(frozen=True)
class Prediction:
    """One plan: its time and what it consists of, in seconds; or why it does not fit."""

    plan: str
    misfit: str
    time_s: float
    wire_s: float
    cpu_s: float
    memory_s: float
    chain_s: float
    hops: int
    dominant: str


@dataclasses.dataclass(frozen=True)
class Study:
    """Every plan for one call, the quickest first, then those that do not fit."""

    op: str
    size: int
    topology: str
    ranks: int
    hosts: int
    wire_bytes: float
    bound_s: float
    plans: tuple[Prediction, ...]
    measured: bool = False  #: the codec's rates are this machine's, now
    #: what calls that name neither plan nor error take where a file describes these links and
    #: nothing was tuned; "" if they are refused
    open_plan: str = ""

    @property
    def fitting(self) -> list[Prediction]:
        """Those that can run there, the quickest first."""
        return [plan for plan in self.plans if not plan.misfit]

    @property
    def misfits(self) -> list[Prediction]:
        """Those that cannot."""
        return [plan for plan in self.plans if plan.misfit]

    def verdict(self) -> str:
        """Which plan wins, and why, in a sentence; another that open calls take, in a second."""
        best = self._winner()
        if not self.fitting or self.open_plan in ("", self.fitting[0].plan):
            return best
        return (
            f"{best}. Calls with an open plan take {self.open_plan} on links described so "
            "(docs/plans.md: Which one auto takes)"
        )

    def _winner(self) -> str:
        if not self.fitting:
            codec_too = any(plan.misfit.startswith("codec ") for plan in self.misfits)
            return f"no plan of {self.op} fits {self.topology}" + " and the codec" * codec_too
        best, *others = self.fitting
        if not others:
            return f"{best.plan} is the only plan that fits"
        second = others[0]
        if second.time_s < 1.005 * best.time_s:
            equal = [plan.plan for plan in others if plan.time_s < 1.005 * best.time_s]
            return (
                f"{best.plan} wins: as quick as {', '.join(equal)} to within 0.5 %, with little "
                "core time and few dependent messages"
            )
        share = best.time_s / second.time_s
        return f"{best.plan} wins: {share:.3f} of the time of {second.plan}, {_why(best, second)}"

    def as_json(self) -> dict[str, Any]:
        """Plain values; a plan that does not fit has ``misfit`` and no times."""
        plans: list[dict[str, Any]] = [dataclasses.asdict(plan) for plan in self.fitting]
        for plan in plans:
            del plan["misfit"]
        plans += [{"plan": plan.plan, "misfit": plan.misfit} for plan in self.misfits]
        facts = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "plans"
        }
        return {**facts, "plans": plans, "verdict": self.verdict()}


def _why(best: Prediction, second: Prediction) -> str:
    """What the runner-up spends its time on, and the winner less of it."""
    if second.dominant == "wire" and best.wire_s < second.wire_s:
        return f"because its busiest link carries {best.wire_s / second.wire_s:.3f} of the bytes"
    if second.dominant in ("codec", "transport") and best.cpu_s < second.cpu_s:
        return f"because it needs {best.cpu_s / second.cpu_s:.3f} of the core time"
    if best.hops < second.hops:
        return (
            f"because its longest chain has {best.hops} dependent messages instead of {second.hops}"
        )
    if best.chain_s < second.chain_s:
        return f"because a chunk's own way takes {best.chain_s / second.chain_s:.3f} of the time"
    return "because it overlaps better"


def study_plans(
    topology: str,
    *,
    op: str = "all_reduce",
    size: int,
    codec: str = "int8",
    dtype: str = "float32",
    rate: str = "1gbit",
    latency_us: float = 20,
    cores: int = 1,
    one_machine: bool = False,
    measure: bool = False,
) -> Study:
    """``topology``: a name, or the text of a file. InvalidArgumentError names what is wrong.

    ``measure`` times the codec on this machine first, some milliseconds once per process and codec;
    formats of sums that agree on scales cannot be timed alone, and keep the documented rates.
    """
    name, ranks, hosts, wire_bytes, bound_s, measured, open_plan, plans = _core.study_plans(
        topology, rate, latency_us, op, size, dtype, codec, cores, one_machine, measure
    )
    return Study(
        op=op,
        size=size,
        topology=name,
        ranks=ranks,
        hosts=hosts,
        wire_bytes=wire_bytes,
        bound_s=bound_s,
        plans=tuple(Prediction(*plan) for plan in plans),
        measured=measured,
        open_plan=open_plan,
    )
