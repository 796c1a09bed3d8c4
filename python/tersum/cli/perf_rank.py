"""The measurement as one rank runs it. Every rank runs the same code; rank 0 gets the rows.

Contenders take turns within one run, a few calls each, so that what disturbs the machine disturbs
them alike and ratios between rows mean something. Calls of one turn run back to back: a pause would
let a shaper's bucket fill up and fake speed. The first call of a turn is not timed, or the first
batch: links are as the contender before has left them.

Of single calls the slowest rank's time is not the time between them where ranks are early and late
in turn: each call has a slowest one, and nobody is slowest twice. A batch has that out.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tersum import _core
from tersum._learned_state import LinkSpeed, PathChoice
from tersum.cli import perf_data
from tersum.cli.command_error import CommandError
from tersum.cli.perf_case import Case, make_case
from tersum.cli.perf_contender import Contender, allowed_error, optimal_wire_bytes
from tersum.cli.perf_data import Oracle, Values
from tersum.cli.perf_options import (
    SAME_EVERYWHERE,
    SHARED_OUT,
    LinkRow,
    PerfOptions,
    Row,
    Skip,
    wire_share,
)
from tersum.cli.plan_study import study_plans
from tersum.cli.shaped_link import wire_seconds
from tersum.cli.wired_topology import wired_text
from tersum.codecs import codec_info, is_auto
from tersum.communicator import Communicator

_TURNS_MAX = 5  # more where calls in place would overflow


class Samples(NamedTuple):
    """What one contender did in one case, gathered over all ranks."""

    seconds: np.ndarray[tuple[int], np.dtype[np.float64]]  # a call's, per batch, the slowest rank
    wire_bytes: int
    rel_error: float
    wrong: int


def measure(
    group: Communicator, contenders: Sequence[Contender], options: PerfOptions
) -> Iterator[Row | Skip]:
    """Rows in the order of sizes and contenders, as they are measured. Collective: every rank must
    exhaust the iterator; all get the same rows, but for predictions. A contender whose processes
    fail is left out from then on, and rank 0 says why."""
    running = list(contenders)
    if options.explain or options.predict or any(map(is_auto, options.codecs)):
        group.tune()
    try:
        for size in options.sizes:
            case = make_case(group, options, size)
            warm_up(group, running, case, options)
            checks = [_check(group, contender, case, options) for contender in running]
            seconds, sent = _time_all(group, running, case, options)
            failed: list[Contender] = []
            for i, contender in enumerate(running):
                rel_error, wrong = checks[i]
                if np.isinf(seconds[i]).any():
                    failed.append(contender)
                    yield Skip(skipped=f"{contender.library} skipped: {_failure(contender)}")
                    continue
                samples = Samples(seconds[i], sent[i], rel_error, wrong)
                choice = None
                if contender.library == "tersum":
                    choice = _choice(group, contender, case.elements, options)
                row = make_row(group.size, contender, choice, case, options, samples)
                if options.explain and choice is not None:
                    row["explanation"] = _explain(choice, group.link_speed())
                yield row
            running = [contender for contender in running if contender not in failed]
    finally:
        for contender in contenders:
            if contender.turns is not None:
                contender.turns.close()


def _failure(contender: Contender) -> str:
    return contender.turns.failure if contender.turns is not None else ""


def warm_up(
    group: Communicator, contenders: Sequence[Contender], case: Case, options: PerfOptions
) -> None:
    """Calls that nothing is learned from: scratch memory, connections, branch predictors."""
    for contender in contenders:
        if contender.turns is not None:
            contender.turns.time(case.elements, options.warmup, 1)
            group.barrier()
            continue
        call = contender.prepare(case.x, case.out)
        for _ in range(options.warmup):
            call()


def _time_all(
    group: Communicator, contenders: Sequence[Contender], case: Case, options: PerfOptions
) -> tuple[list[np.ndarray[tuple[int], np.dtype[np.float64]]], list[int]]:
    """Per contender: seconds of a call in each batch on the slowest rank, and bytes sent per call
    by the busiest."""
    turns = _turns(group.size, options)
    seconds: list[list[float]] = [[] for _ in contenders]
    sent = [0.0] * len(contenders)
    for turn in range(turns):
        batches = options.iters * (turn + 1) // turns - options.iters * turn // turns
        for i, contender in enumerate(contenders):
            if contender.turns is not None:
                # The other ranks sleep in the second barrier until the processes have had their
                # turn.
                group.barrier()
                seconds[i] += contender.turns.time(case.elements, batches, options.batch)
                group.barrier()
                continue
            call = contender.prepare(case.x, case.out)
            group.barrier()
            before = contender.wire_bytes() if contender.wire_bytes else 0
            call()
            if contender.wire_bytes:
                sent[i] = max(sent[i], contender.wire_bytes() - before)
            for _ in range(options.batch - 1):
                call()
            seconds[i] += _time_batches(call, batches, options.batch)
    slowest = [_largest(group, np.asarray(times)) for times in seconds]
    busiest = _largest(group, np.asarray(sent, np.float64))
    return slowest, [int(count) for count in busiest]


def _turns(ranks: int, options: PerfOptions) -> int:
    """In place every call multiplies the values by the number of ranks; a turn starts afresh, and
    must end before they overflow (2^127, a little of which the data themselves need)."""
    turns = min(_TURNS_MAX, options.iters)
    if options.in_place and options.redop == "sum" and ranks > 1:
        calls = int(100 / np.log2(ranks))
        batches = calls // options.batch - 1
        if batches < 1:
            raise CommandError(
                f"--batch {options.batch} is too much in place: values grow by the number of ranks "
                f"in each call, and would overflow; pass --batch {calls // 2} or less"
            )
        turns = max(turns, -(-options.iters // batches))
    return turns


def _time_batches(call: Callable[[], object], batches: int, calls: int) -> list[float]:
    marks = [time.perf_counter()]
    for _ in range(batches):
        for _ in range(calls):
            call()
        marks.append(time.perf_counter())
    return [(after - before) / calls for before, after in itertools.pairwise(marks)]


def _largest(
    group: Communicator, values: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return group.all_reduce(values, op="max", codec="exact")


def _check(
    group: Communicator, contender: Contender, case: Case, options: PerfOptions
) -> tuple[float, int]:
    """One call's relative error and wrong elements, over all ranks."""
    if contender.turns is not None:
        wrong_of_peer = _largest(group, np.asarray([contender.turns.check(case.elements)]))[0]
        return 0.0, int(wrong_of_peer) if np.isfinite(wrong_of_peer) else 0
    if not contender.sums:
        return 0.0, 0
    case.out.view(np.uint8).fill(0xA5)  # what is not written must not pass for a result
    contender.prepare(case.x, case.out)()
    wrong = _different(group, case.out) if options.op in SAME_EVERYWHERE else 0
    error = 0.0
    of_call = _absmax_of_call(group, contender.codec, case.x)
    for piece in case.pieces:
        result = case.out[piece.begin : piece.end]
        bound = _bounds(group, contender, piece.oracle, case.elements, of_call, options)
        wrong += perf_data.count_wrong(result, piece.oracle, bound)
        error = max(error, perf_data.relative_error(result, piece.oracle))
    worst = _largest(group, np.asarray([error]))[0]
    total = group.all_reduce(np.asarray([wrong], np.int64), codec="exact")[0]
    return float(worst), int(total)


def _absmax_of_call(group: Communicator, spec: str, x: Values) -> float | None:
    """What bounds the error of a sum with one scale for all that is sent together; of other
    formats, None."""
    if not spec.startswith(("sum8:tensor", "sum:exp")):
        return None
    return float(_largest(group, np.asarray([max(float(x.max()), -float(x.min()))]))[0])


def _different(group: Communicator, out: Values) -> int:
    """Elements that are not, bit for bit, what rank 0 has."""
    own = np.frombuffer(perf_data.digest(out), np.uint8)
    every = group.all_gather(own).reshape(group.size, -1)
    if (every == every[0]).all():
        return 0
    root = group.broadcast(out.view(np.uint8), 0)
    itemsize = out.dtype.itemsize
    unequal = root.reshape(-1, itemsize) != out.view(np.uint8).reshape(-1, itemsize)
    return int(np.count_nonzero(unequal.any(axis=1)))


def _choice(
    group: Communicator, contender: Contender, elements: int, options: PerfOptions
) -> PathChoice:
    """What the contender's calls take where they leave something open."""
    return group.choose(
        options.op,
        elements // group.size if options.op in SHARED_OUT else elements,
        options.dtype,
        options.redop,
        contender.codec,
        contender.plan,
        max_rel_error=allowed_error(contender.codec, options),
        site="perf",
    )


def _explain(choice: PathChoice, link: LinkSpeed | None) -> str:
    expected = f", expected {choice.seconds * 1e6:.1f} us" if choice.seconds else ""
    weighed = "; ".join(
        f"{option.codec} {option.plan} {option.seconds * 1e6:.1f} us" for option in choice.options
    )
    text = f"{choice.codec} {choice.plan}{expected}: {choice.reason}"
    if weighed:
        text = f"{text} (weighed: {weighed})"
    if link is None:
        return text
    latency_us, rate = link.latency_seconds * 1e6, link.bytes_per_second / 1e9
    return f"{text}; links: {latency_us:.1f} us a hop, {rate:.3g} GB/s from a rank"


def _block_reach(spec: str) -> int:
    """Values in aligned runs of whole blocks and whole grains of the oracle."""
    reach = codec_info(spec).block
    for modifier in spec.split("+")[1:]:
        if modifier == "adaptive":
            reach = 1024  # the largest block there is
        elif modifier.startswith("rows:"):
            reach = int(modifier.removeprefix("rows:"))
    return math.lcm(reach, perf_data.GRAIN)


def _bounds(
    group: Communicator,
    contender: Contender,
    oracle: Oracle,
    count: int,
    of_call: float | None,
    options: PerfOptions,
) -> perf_data.Floats:
    """Per grain of the oracle, the stated bound of the contender's result. ``of_call``: the largest
    magnitude of all ranks' values, where sums have one scale for it."""
    native = contender.library != "tersum"
    slack = perf_data.rounding_slack(oracle, options.dtype, group.size, native_sums=native)
    reducing = options.op in ("all_reduce", "reduce_scatter")
    if native or (reducing and options.redop in ("max", "min")):
        return slack
    choice = _choice(group, contender, count, options)
    block = _block_reach(choice.codec)
    absmax = perf_data.block_max(oracle.absmax, block // perf_data.GRAIN)
    sum_absmax = perf_data.block_max(oracle.sum_absmax, block // perf_data.GRAIN)
    if reducing:
        if of_call is not None:
            absmax.fill(of_call)
        scale = group.size if options.redop == "avg" else 1
        sums = scale * sum_absmax

        def bound_of(plan: str, length: int) -> perf_data.Floats:
            bounds = np.empty_like(absmax)
            group._core.error_bounds(
                *(options.op, choice.codec, plan, length, options.dtype), *(absmax, sums, bounds)
            )
            return bounds

        length = count // group.size if options.op == "reduce_scatter" else count
        bound = bound_of(choice.plan, length)
        if contender.split:  # pieces may take another plan, of another bound
            piece = -(-count // int(contender.split.split()[0]))
            plan = _choice(group, contender, piece, options).plan
            bound = np.maximum(bound, bound_of(plan, piece))
        bound /= scale
    else:
        bound = np.empty_like(absmax)
        _core.codec_error_bounds(choice.codec, options.dtype, absmax, bound)
    grains = block // perf_data.GRAIN
    return np.asarray(np.repeat(bound, grains)[: len(slack)] + slack)


def make_row(
    ranks: int,
    contender: Contender,
    choice: PathChoice | None,
    case: Case,
    options: PerfOptions,
    samples: Samples,
) -> LinkRow:
    """The row of one contender at one size; ``choice`` is what its calls took, of tersum's."""
    array_bytes = case.elements * case.x.dtype.itemsize
    time_us = float(np.median(samples.seconds)) * 1e6
    wire_bytes = samples.wire_bytes
    if contender.wire_bytes is None:
        wire_bytes = optimal_wire_bytes(options, array_bytes, ranks)
    row = LinkRow(
        library=contender.library,
        op=options.op,
        dtype=options.dtype,
        count=case.elements,
        bytes=array_bytes,
        codec=contender.codec,
        plan=contender.plan,
        transport=contender.transport,
        ranks=ranks,
        time_us=time_us,
        time_us_min=float(samples.seconds.min()) * 1e6,
        time_us_max=float(samples.seconds.max()) * 1e6,
        predicted_us=None,
        busbw_gb_s=array_bytes * wire_share(options.op, ranks) / time_us / 1e3,
        wire_bytes=wire_bytes,
        rel_error=samples.rel_error,
        wrong=samples.wrong,
    )
    bound_us = None
    if choice is not None:
        predicted_us, bound_us = _predict(ranks, row, choice, options)
        row["predicted_us"] = None if contender.split else predicted_us
    if options.topology and bound_us is not None:
        row["wire_bound_us"] = bound_us
        row["wire_ratio"] = time_us / bound_us if bound_us > 0 else 0.0
    elif options.link_bits_per_s > 0:
        # Of a gather it is the root's link that fills, by what all others send.
        busiest = wire_bytes * (ranks - 1) if options.op == "gather" else wire_bytes
        bound_us = wire_seconds(busiest, options.link_bits_per_s) * 1e6
        row["link_bits_per_s"] = options.link_bits_per_s
        row["wire_bound_us"] = bound_us
        row["wire_ratio"] = time_us / bound_us if bound_us > 0 else 0.0
    if contender.split:
        row["split"] = contender.split
    return row


def _predict(
    ranks: int, row: LinkRow, choice: PathChoice, options: PerfOptions
) -> tuple[float | None, float | None]:
    """The time expected of the row's calls, and the least that any plan could take on their wires;
    None where one is not known."""
    wires = options.wires
    if options.link_bits_per_s > 0:
        name = "pair" if ranks == 2 else f"star{ranks}"
        wires = wired_text(name, f"{options.link_bits_per_s}bit")
    if not wires:
        expected = choice.seconds * 1e6 if options.op == "all_reduce" and choice.seconds else None
        return expected, None
    study = study_plans(
        wires,
        op=options.op,
        size=row["bytes"] * (ranks if options.op == "all_to_all" else 1),
        codec="exact" if options.redop in ("max", "min") else choice.codec,
        dtype=options.dtype,
        cores=os.cpu_count() or 1,
        one_machine=True,
        measure=True,
    )
    times = [plan.time_s * 1e6 for plan in study.fitting if plan.plan == choice.plan]
    return (times[0] if times else None), study.bound_s * 1e6
