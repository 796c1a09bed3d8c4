"""What specs do to captured sums: a simulated two-step AllReduce, and its error.

Each rank owns a chunk; it decodes the other ranks' contributions, adds them to its own exact values
in float32, encodes the sum once and sends it to all, who decode the same bytes. The coding is
tersum's own (``encode_payload``), the sum in float64 is the truth. Specs that learn from call to
call take part in a real group of threads instead. No process is started.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tersum._captured_calls import CapturedSite
from tersum._rank_groups import RankGroups
from tersum.codecs import (
    CodecInfo,
    CodecSpeed,
    codec_info,
    codec_speed,
    codec_sum_bits,
    codec_wire_bytes,
    decode_payload,
    encode_payload,
    known_codecs,
)
from tersum.errors import InvalidArgumentError, UnsupportedError

Floats = npt.NDArray[np.float32]

#: A position is an outlier, and no part of the body, when its exact sum is larger than this many
#: times the median magnitude of the call's sums that are not 0: 6.7 sigma of normal values.
OUTLIER_MEDIANS = 10.0
#: Blocks that are tried of formats that leave a choice, beside each one's own.
BLOCKS = (32, 128)
#: Of the other modifiers those that need no more than the values, where they are of use.
OTHERS = (
    *("int8/128+sparse:0.2%", "int6/128+sparse:0.5%", "int4/1024+sparse:0.2%"),
    *("int6/128+mixed", "int4/128+mixed", "int4/32+mixed", "int3/32+mixed"),
    *("int4/128+adaptive", "int4/64+adaptive"),
    *("int8/32+shiftadd", "int8/128+shiftadd", "int4/32+shiftadd", "mxint8/32+shiftadd"),
)
_SLICE_BYTES = 64 * 1024
_SPEED_VALUES = 64 * 1024


class Outcome(NamedTuple):
    """One simulated AllReduce."""

    total: Floats
    wire_bytes: int  # of all payloads encoded, each counted once
    values: int  # that they hold


class SumSimulator(Protocol):
    """The calls of one site under one spec, in order: a spec may keep state from call to call."""

    def next(self, inputs: Floats) -> Outcome:
        """The sum over the rows of ``inputs``, ``[ranks, count]``, as every rank decodes it."""


class StatelessSum:
    """A spec whose calls do not depend on each other."""

    def __init__(self, spec: str) -> None:
        info = codec_info(spec)
        self._spec = info.spec
        self._unit = _whole_groups(info)
        units = int(_SLICE_BYTES * 8 / (info.wire_bits * self._unit))
        self._slice = max(1, units) * self._unit

    def next(self, inputs: Floats) -> Outcome:
        ranks, count = inputs.shape
        total = np.empty(count, np.float32)
        wire_bytes = values = 0
        units = -(-count // self._unit)
        # As a collective cuts them.
        cuts = [min(units * owner // ranks * self._unit, count) for owner in range(ranks + 1)]
        for owner in range(ranks):
            for begin in range(cuts[owner], cuts[owner + 1], self._slice):
                end = min(begin + self._slice, cuts[owner + 1])
                part = np.zeros(end - begin, np.float32)
                for rank in range(ranks):  # in this order, as the owner adds them
                    if rank == owner:
                        part += inputs[rank, begin:end]
                        continue
                    decoded, size = self._coded(inputs[rank, begin:end])
                    part += decoded
                    wire_bytes += size
                total[begin:end], size = self._coded(part)
                wire_bytes += size
                values += ranks * (end - begin)
        return Outcome(total, wire_bytes, values)

    def _coded(self, values: Floats) -> tuple[Floats, int]:
        payload = encode_payload(values, self._spec)
        return decode_payload(payload, self._spec, len(values)), len(payload)


def _whole_groups(info: CodecInfo) -> int:
    """How many values a slice is a multiple of: blocks that fill whole bytes together."""
    for blocks in range(1, 9):
        values = blocks * info.block
        if 8 * codec_wire_bytes(info.spec, values) == round(values * info.wire_bits, 6):
            return values
    return info.block  # a format with something once a slice, beside its blocks


class LearningSum:
    """A spec that learns from a site's results: tersum's own collective, call after call."""

    def __init__(self, spec: str, site: CapturedSite, groups: RankGroups) -> None:
        self._spec = spec
        self._site = site
        self._groups = groups

    def next(self, inputs: Floats) -> Outcome:
        ranks, count = inputs.shape
        channels = self._site.channels
        # Channels are what it learns about: the last of two dimensions.
        rows = (-1, channels) if channels and count % channels == 0 else (count,)
        name = f"{self._spec} {self._site.name}"
        total = self._groups.all_reduce(inputs.reshape(ranks, *rows), self._spec, name)
        bits = codec_sum_bits(self._spec, ranks)
        return Outcome(total.reshape(-1), round(ranks * count * bits / 8), ranks * count)


BY_ENGINE = (
    "sum8",
    "sum:exp",
    "lut2",
    "kmeans:",
    "+flatten",
    "+sparse",
    "+rows",
    "+mixed",
    "+adaptive",
    "+clip",
    "+shiftadd",
    "+sr",
    "+feedback",
    "+kronecker",
)


def simulator(spec: str, site: CapturedSite, groups: RankGroups) -> SumSimulator:
    """A new one for the calls of ``site``."""
    # With +sparse a finished sum has another format than contributions; chunks begin at rows,
    # layouts look at whole slices, with +kronecker a value's place in its array says its factor,
    # with +sr every rank and call has random numbers of its own, with +shiftadd an owner's part is
    # coded, too, and ranks that share scales agree on them first. The engine knows.
    by_engine = any(modifier in spec for modifier in BY_ENGINE)
    return LearningSum(spec, site, groups) if by_engine else StatelessSum(spec)


class CallError(NamedTuple):
    """Relative errors in the L2 norm."""

    error: float
    body: float  # over the positions that are no outliers
    outliers: float  # their share of the positions


class Truth(NamedTuple):
    """A call's exact sum, and its norms."""

    exact: npt.NDArray[np.float64]
    body: npt.NDArray[np.bool_]
    norm: float
    body_norm: float

    @classmethod
    def of(cls, inputs: Floats) -> Truth | None:
        """None where there is nothing to compare with: a sum of 0, or one that is not finite."""
        exact = inputs.sum(0, dtype=np.float64)
        norm = float(np.linalg.norm(exact))
        if norm == 0 or not np.isfinite(norm):
            return None
        magnitude = np.abs(exact)
        body = magnitude <= OUTLIER_MEDIANS * np.median(magnitude[magnitude > 0])
        return cls(exact, body, norm, float(np.linalg.norm(exact[body])))

    def error_of(self, total: Floats) -> CallError:
        """How far ``total`` is from it."""
        wrong = total - self.exact
        square = wrong * wrong
        return CallError(
            float(np.sqrt(square.sum())) / self.norm,
            float(np.sqrt(square[self.body].sum())) / self.body_norm,
            1.0 - float(self.body.mean()),
        )


@dataclass
class SpecQuality:
    """What one spec came to. Errors are means over calls, all of equal weight."""

    spec: str
    bits: float  # per value on the wire, scales and paddings included
    error: float
    worst: float  # the largest error of a call
    body: float
    encode: float  # times memcpy's speed
    decode_add: float
    on_front: bool = False  # no other spec has a smaller error at no more bits
    sites: dict[str, CallError] = field(default_factory=dict)  # means over each site's calls


def default_specs(sizes: Collection[int]) -> list[str]:
    """Every lossy format that so many ranks can sum in, with its own block and :data:`BLOCKS`,
    plain, ``+hadamard`` and ``+flatten``, and :data:`OTHERS`."""
    specs = []
    for name in known_codecs():
        if codec_info(name).lossless or not all(_sums(name, ranks) for ranks in sizes):
            continue
        for text in (name, *(f"{name}/{block}" for block in BLOCKS)):
            for modifier in ("", "+hadamard", "+flatten"):
                try:
                    specs.append(codec_info(text + modifier).spec)
                except InvalidArgumentError:
                    continue  # a format without blocks, or always of another size
    return list(dict.fromkeys([*specs, *OTHERS]))


def _sums(spec: str, ranks: int) -> bool:
    try:
        codec_sum_bits(spec, ranks)
    except UnsupportedError:
        return False
    return True


def measure(specs: Sequence[str], sites: Sequence[CapturedSite], ranks: int) -> list[SpecQuality]:
    """Each spec on all calls of all sites, fewest bits first; with ``ranks`` 0 each site has as
    many as were captured. InvalidArgumentError for an unknown spec, and when no call is left to
    measure on."""
    # Before anything long.
    tallies = {spec: _Tally() for spec in dict.fromkeys(codec_info(spec).spec for spec in specs)}
    with closing(RankGroups()) as groups:
        for site in sites:
            sums = {spec: simulator(spec, site, groups) for spec in tallies}
            for inputs in site.inputs(ranks or site.ranks):
                truth = Truth.of(inputs)
                for spec, tally in tallies.items():
                    tally.add(site.name, sums[spec].next(inputs), truth)
    if not any(tally.errors for tally in tallies.values()):
        raise InvalidArgumentError(
            f"there is no call to measure on{f' with {ranks} ranks' if ranks else ''}: all sums "
            "are 0 or not finite, or too few were captured; capture more calls, or name fewer ranks"
        )
    sample = _sample(sites)
    found = [tally.quality(spec, codec_speed(spec, sample)) for spec, tally in tallies.items()]
    found.sort(key=lambda quality: (quality.bits, quality.error))
    best = float("inf")
    for quality in found:
        quality.on_front = quality.error < best
        best = min(best, quality.error)
    return found


class _Tally:
    """What one spec has come to so far."""

    def __init__(self) -> None:
        self.errors: list[CallError] = []
        self._of_sites: dict[str, list[CallError]] = {}
        self._wire_bytes = self._values = 0

    def add(self, site: str, outcome: Outcome, truth: Truth | None) -> None:
        self._wire_bytes += outcome.wire_bytes
        self._values += outcome.values
        if truth is not None:
            error = truth.error_of(outcome.total)
            self.errors.append(error)
            self._of_sites.setdefault(site, []).append(error)

    def quality(self, spec: str, speed: CodecSpeed) -> SpecQuality:
        mean = _mean(self.errors)
        return SpecQuality(
            spec,
            8 * self._wire_bytes / self._values,
            mean.error,
            max(error.error for error in self.errors),
            mean.body,
            speed.encode,
            speed.decode_add,
            sites={name: _mean(errors) for name, errors in self._of_sites.items()},
        )


def recommend(
    found: Sequence[SpecQuality], model_bits: float | None, max_rel_error: float | None
) -> SpecQuality:
    """The smallest error in at most ``model_bits``, or the fewest bits of those whose worst call
    stays within ``max_rel_error``; InvalidArgumentError when none does."""
    if max_rel_error is not None:
        good = [quality for quality in found if quality.worst <= max_rel_error]
        if good:
            return min(good, key=lambda quality: (quality.bits, quality.error))
        nearest = min(found, key=lambda quality: quality.worst)
        raise InvalidArgumentError(
            f"no spec stays within {max_rel_error:g} on every call: the nearest, {nearest.spec}, "
            f"has {nearest.worst:.3g}; allow more, or use codec='exact'"
        )
    assert model_bits is not None
    good = [quality for quality in found if quality.bits <= model_bits]
    if good:
        return min(good, key=lambda quality: (quality.error, quality.bits))
    smallest = min(found, key=lambda quality: quality.bits)
    raise InvalidArgumentError(
        f"no spec fits in {model_bits:g} bits a value: the smallest, {smallest.spec}, takes "
        f"{smallest.bits:.3f}; allow more, or name smaller ones to try"
    )


def _mean(errors: Sequence[CallError]) -> CallError:
    return CallError(*(float(value) for value in np.mean(np.array(errors), axis=0)))


def _sample(sites: Sequence[CapturedSite]) -> Floats:
    """Captured values to time kernels on: the largest site's, as often as it takes."""
    site = max(sites, key=lambda site: site.count)
    values = next(site.inputs(site.ranks), np.ones((1, 1), np.float32)).reshape(-1)
    return np.resize(values, _SPEED_VALUES)
