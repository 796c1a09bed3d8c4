"""Communicator: collectives over NumPy arrays and CPU arrays of torch, jax and others."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tersum import _core
from tersum._arrays import Source, Target, read_input, without_overlap
from tersum._call_arguments import call_ms, call_options, read_added, target_for
from tersum._coalesce import start_coalesced
from tersum._eager_capture import CommunicatorCapture
from tersum._learned_state import LearnedState
from tersum._level_tables import learn_codec
from tersum._moves import MoveCalls
from tersum.errors import InvalidArgumentError
from tersum.store import MemoryStore, Store
from tersum.topologies import topology_text
from tersum.work import Work

Array = TypeVar("Array")


class CommunicatorStats(NamedTuple):
    """What a communicator has done since it was made; sums over its calls on this rank."""

    calls: int
    values: int  #: elements handed in
    wire_bytes_sent: int  #: payload that left this rank, headers not counted
    wire_bytes_received: int
    seconds: float  #: from start to end of each call, summed


class Communicator(MoveCalls, LearnedState):
    """A group of ``size`` ranks that run collectives together, and this process's place in it.

    The constructor joins the group that meets in ``store`` under ``name`` (new in that store for
    every group) and blocks until all ranks have, at most ``timeout_ms``.

    :param store: ``"tcp://host:port"`` (rank 0 serves), ``"file:///directory"`` (fresh per run), or
        an object with ``set`` and ``wait`` (:class:`tersum.Store`). A group of one needs none.
    :param timeout_ms: deadline of calls that name none, and of joining.
    :param listen: address or interface to listen on. Empty: loopback if the store is on loopback,
        otherwise the address that routes to the store.
    :param port: port to listen on; 0 takes any free one. One listener serves the whole process.
    :param transport: ``"auto"``, ``"tcp"`` or ``"shm"``.
    :param streams: TCP connections per pair of processes; 0 takes the measured default.
        ``TERSUM_STREAMS`` comes first.
    :param slice_bytes: largest message; 0 takes the measured best (64 KiB in shared memory, 63 KiB
        over TCP, but 252 KiB and 258,048 values between two ranks of one host, and between hosts
        at most 64,512 values; of ranks that share CPUs see docs/tuning.md). All ranks must agree.
        ``TERSUM_SLICE_BYTES`` comes first.
    :param window_bytes: memory one call may have in flight; 0 takes the default. More than two
        ranks of one host take less, unless ``slice_bytes`` is given. Agreed, too.
    :param trace_file: where this process writes a trace for Perfetto when it ends; ``TERSUM_TRACE``
        comes first, and only the process's first communicator decides.
    :param topology: which ranks have wires between them: ``"ring8"``, ``"torus2x4"``, ``"mesh4"``,
        ``"star8"``, … or the path of a topology file (``.json``). Only neighbours connect, and
        plans use only these wires. Empty: every rank reaches every other, and which of them share
        a host is found out (:attr:`hosts`). Agreed, too.
    :param tuning_rules: what is to be taken where calls leave codec or plan open, by size, as in
        ``"all_reduce:64k-inf:int8/128:*"`` (docs/tuning.md). Empty takes ``TERSUM_TUNE``. Agreed.
    :param tune_at_start: measure the group as soon as it has met, which takes 200 ms unless a kept
        tuning serves: calls that leave their plan open go by that from the first one on.
        ``TERSUM_TUNE_AT_START`` (0 or 1) comes first. Otherwise :meth:`tune` does, or the first
        call with ``codec="auto"``. Agreed.
    :param flatten_every: of codecs with ``+flatten``: a site's results are looked at in every so
        many of its calls. Agreed.
    :param rounding_seed: of codecs with ``+sr``: what this rank's random rounding begins from, 0 to
        2^64 - 1. The same seed and the same calls give the same bits; ranks round independently,
        whether their seeds are equal or not.

    **Thread safety.** Every method may be called from any thread. Calls of one rank are matched
    with the other ranks' by the order in which they *start*: threads that share a communicator
    must agree on that order, or use :meth:`split`.

    **Blocking.** The methods without ``_async`` block until the collective has ended here, at most
    ``timeout_ms``; they release the GIL. Ctrl-C aborts the communicator and raises
    KeyboardInterrupt within about 50 ms.

    **Arrays.** NumPy arrays and CPU arrays with ``__dlpack__`` (torch, jax), of float32, bfloat16,
    float16, float64, int32, int64, uint8. Without ``out`` the result is a new array of the caller's
    kind: a torch tensor for a torch tensor, a jax array for a jax array, a NumPy array otherwise.
    ``out`` may be the input. Inputs that are not contiguous or not aligned are copied.

    **Errors.** Subclasses of :class:`tersum.TersumError`. Inputs are intact after an error; an
    in-place array, and ``out``, are undefined. DisagreementError and InvalidArgumentError leave the
    communicator usable; any other error ends it, and later calls raise that first cause.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        store: str | Store | _core.Store | None = None,
        *,
        name: str = "default",
        timeout_ms: int = 30_000,
        listen: str = "",
        port: int = 0,
        transport: str = "auto",
        streams: int = 0,
        slice_bytes: int = 0,
        window_bytes: int = 0,
        trace_file: str = "",
        topology: str = "",
        tuning_rules: str = "",
        tune_at_start: bool = False,
        flatten_every: int = 1,
        rounding_seed: int = 0,
    ) -> None:
        _check_place(rank, size)
        if store is None:
            if size != 1:
                raise InvalidArgumentError(
                    f"a group of {size} ranks needs store=, e.g. store='tcp://127.0.0.1:29500'"
                )
            store = MemoryStore()
        if not 0 <= port <= 65535:
            raise InvalidArgumentError(f"port must be 0 (any free one) to 65535, got {port}")
        if flatten_every < 1:
            raise InvalidArgumentError(f"flatten_every must be 1 or more, got {flatten_every}")
        if not 0 <= rounding_seed < 1 << 64:
            raise InvalidArgumentError(f"rounding_seed must be 0 to 2**64 - 1, got {rounding_seed}")
        for key, value in (
            ("streams", streams),
            ("slice_bytes", slice_bytes),
            ("window_bytes", window_bytes),
        ):
            if value < 0:
                raise InvalidArgumentError(f"{key} must be 0 (the default) or more, got {value}")
        self._core = _core.Communicator.create(
            rank,
            size,
            store,
            name,
            call_ms(timeout_ms),
            listen,
            port,
            transport,
            streams,
            slice_bytes,
            window_bytes,
            trace_file,
            topology_text(topology),
            tuning_rules,
            tune_at_start,
            flatten_every,
            rounding_seed,
        )
        self.name = name  #: equal on all its ranks
        self._splits = 0  # so far, which are as many on all ranks
        _open.add(self)

    @classmethod
    def _of(cls, core: _core.Communicator, name: str) -> Communicator:
        made = cls.__new__(cls)
        made._core = core
        made.name = name
        made._splits = 0
        _open.add(made)
        return made

    @property
    def rank(self) -> int:
        """This process's place in the group, 0 to ``size - 1``."""
        return self._core.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._core.size

    @property
    def hosts(self) -> tuple[int, ...]:
        """The number of each rank's host, by rank; hosts are numbered as their first ranks come.

        Those that ``topology`` names, else what was found when the group met: processes with one
        boot id and one network namespace are on one host. Calls that leave their plan open go by
        it: what several ranks of a host have is added up there, and crosses the wire once.
        """
        return tuple(self._core.hosts)

    def all_reduce(
        self,
        x: Array,
        op: str = "sum",
        codec: str = "int8/128",
        plan: str = "auto",
        timeout_ms: int | None = None,
        out: Any = None,
        *,
        max_rel_error: float = 0.0,
        site: str = "",
        residual: Any = None,
        bias: Any = None,
    ) -> Array:
        """The elementwise ``op`` of every rank's ``x`` (any one shape), on every rank, same bits.

        :param op: ``"sum"``, ``"avg"``, ``"max"`` or ``"min"``.
        :param codec: how values travel: ``"exact"``, ``"bf16"``, ``"int8/32"``, ``"int4/128"``, …,
            or ``"auto"``: the fastest that ``max_rel_error`` allows, if it is clearly faster than
            exact by what :meth:`tune` measured; ``"auto:int8/128|int6/128+flatten"``: of those
            (:func:`tersum.auto_codecs`). What is no sum or average of float32, bfloat16 or
            float16 travels exactly in any case.
        :param plan: ``"auto"``, ``"two_step"``, ``"ring"``, … (``docs/plans.md``).
        :param out: array of the shape and type of ``x`` to write to; may be ``x``.
        :param max_rel_error: the largest error allowed. With ``codec="auto"``: of the result as a
            part of it, both as roots of sums of squares, in samples of recent calls of the same
            site and size; taking one (the first two calls, then now and then) waits for the group
            before the call starts. A named codec raises InvalidArgumentError if it cannot guarantee
            this part of ``size`` times the largest magnitude that any rank holds. 0: ``"auto"``
            takes part with what guarantees no more than ``int8/128`` does.
        :param site: of codecs with ``+flatten``: a name for the place in the program that calls,
            the same on every rank. What a site's results showed of their channels (the last of two
            or more dimensions) serves its next call; places that see other data take other names.
            Codecs with ``+feedback`` need a name, too: what a call loses is added to the site's
            next one. Those with ``+clip:learned`` learn one clip for a site's calls of one length,
            type and operation. Calls of one site run one after the other. ``"kmeans:16"`` learns a
            site's levels from its first sum, which travels as int8; later calls use them.
        :param residual: array like ``x`` that this rank adds to it: what it contributes is
            ``x + residual + bias``, formed while it is encoded, without a pass over memory of its
            own, and in float32 for types of at most 32 bits; ``x`` stays as it is. May be ``out``.
        :param bias: array of the type of ``x``, repeated along it: its length divides that of
            ``x``, as the last dimension does. Ranks need not agree on either.
        """
        if (
            type(x) is np.ndarray
            and type(out) is np.ndarray
            and residual is None
            and bias is None
            and CommunicatorCapture.running is None
            and self._core.all_reduce_plain(
                x, out, op, codec, plan, call_ms(timeout_ms), max_rel_error, site
            )
        ):
            return out  # type: ignore[return-value]  # an array like x
        how = call_options(codec, plan, timeout_ms, max_rel_error, attended=True, site=site)
        return self._all_reduce(x, op, out, how, (codec, plan), residual, bias).result()

    def all_reduce_async(
        self,
        x: Array,
        op: str = "sum",
        codec: str = "int8/128",
        plan: str = "auto",
        timeout_ms: int | None = None,
        out: Any = None,
        *,
        max_rel_error: float = 0.0,
        site: str = "",
        residual: Any = None,
        bias: Any = None,
    ) -> Work[Array]:
        """:meth:`all_reduce` in the background."""
        how = call_options(codec, plan, timeout_ms, max_rel_error, attended=False, site=site)
        return self._all_reduce(x, op, out, how, (codec, plan), residual, bias)

    def all_reduce_coalesced(
        self,
        tensors: Sequence[Array],
        op: str = "sum",
        codec: str = "int8/128",
        plan: str = "auto",
        timeout_ms: int | None = None,
        out: Sequence[Any] | None = None,
        *,
        max_rel_error: float = 0.0,
        site: str = "",
    ) -> list[Array]:
        """:meth:`all_reduce` of many tensors as one call: the small ones travel together, so that a
        call's latency is paid once per MiB instead of once per tensor.

        :param tensors: of the same shapes and types, in the same order, on every rank. Tensors of
            one element type are one call; several types are as many calls in flight together.
        :param out: arrays of those shapes and types to write to; may be ``tensors``.
        :param max_rel_error: as in :meth:`all_reduce`, of all tensors taken together.
        :param site: as in :meth:`all_reduce`: one name for the list.

        Each tensor begins a block of its own, so its neighbours do not affect its error, and one
        shorter than a block costs a whole block on the wire. (``sum8:tensor`` and ``sum:exp`` have
        no blocks: what is sent together has one scale.)
        """
        how = call_options(codec, plan, timeout_ms, max_rel_error, attended=True, site=site)
        return self._all_reduce_coalesced(tensors, op, out, how, (codec, plan)).result()

    def all_reduce_coalesced_async(
        self,
        tensors: Sequence[Array],
        op: str = "sum",
        codec: str = "int8/128",
        plan: str = "auto",
        timeout_ms: int | None = None,
        out: Sequence[Any] | None = None,
        *,
        max_rel_error: float = 0.0,
        site: str = "",
    ) -> Work[list[Array]]:
        """:meth:`all_reduce_coalesced` in the background."""
        how = call_options(codec, plan, timeout_ms, max_rel_error, attended=False, site=site)
        return self._all_reduce_coalesced(tensors, op, out, how, (codec, plan))

    def reduce_scatter(
        self,
        x: Array,
        op: str = "sum",
        codec: str = "int8/128",
        plan: str = "auto",
        timeout_ms: int | None = None,
        out: Any = None,
        *,
        max_rel_error: float = 0.0,
        site: str = "",
    ) -> Array:
        """This rank's part of the elementwise ``op`` of every rank's ``x``.

        ``x`` has shape ``(size * k, ...)``; the result is rows ``rank * k`` to
        ``(rank + 1) * k`` of the reduction, of shape ``(k, ...)``. ``site`` is for codecs with
        ``+feedback``, as in :meth:`all_reduce`.
        """
        how = call_options(codec, plan, timeout_ms, max_rel_error, attended=True, site=site)
        return self._reduce_scatter(x, op, out, how, (codec, plan)).result()

    def reduce_scatter_async(
        self,
        x: Array,
        op: str = "sum",
        codec: str = "int8/128",
        plan: str = "auto",
        timeout_ms: int | None = None,
        out: Any = None,
        *,
        max_rel_error: float = 0.0,
        site: str = "",
    ) -> Work[Array]:
        """:meth:`reduce_scatter` in the background."""
        how = call_options(codec, plan, timeout_ms, max_rel_error, attended=False, site=site)
        return self._reduce_scatter(x, op, out, how, (codec, plan))

    def learn_codec(self, spec: str, x: object, *, weights: Any = None) -> str:
        """Learns from all ranks' ``x`` the levels of ``spec``, ``"kmeans:K"`` or ``"kmeans:K/B"``,
        for calls that should not learn them from their first sum: K (2, 4, 8 or 16) levels that
        code such values with the least squared error in blocks of B (64 if it is left out). Returns
        the spec of what was learned, ``"table:…/64"``, the same on every rank, for any call of any
        group of theirs.

        Collective; blocks. :func:`tersum.learn_table` says what ``x`` and ``weights`` are; arrays
        may differ in shape from rank to rank. InvalidArgumentError if no rank has anything to learn
        from.
        """
        return learn_codec(self, spec, x, weights)

    def split(self, color: int, key: int = 0) -> Communicator | None:
        """A communicator of the ranks that pass the same ``color``, ordered by (``key``, old rank).

        Collective over this communicator; blocks. A negative color takes part and gets None.
        """
        part = self._core.split(color, key)
        self._splits += 1
        name = f"{self.name}/{self._splits}.{color}"
        return None if part is None else Communicator._of(part, name)

    def abort(self, reason: str = "aborted by the caller") -> None:
        """Ends all calls in flight with AbortedError, here and on the other ranks; the communicator
        is of no use afterwards. Never blocks."""
        self._core.abort(reason)

    def close(self) -> None:
        """Ends calls in flight as :meth:`abort` does and leaves the group. Idempotent; also done by
        leaving a ``with`` block, by the garbage collector and at the interpreter's exit."""
        self._core.close()

    def stats(self) -> CommunicatorStats:
        """What this communicator has done so far."""
        return CommunicatorStats(*self._core.stats())

    def error_bound(
        self,
        codec: str = "int8/128",
        *,
        count: int,
        absmax: float,
        sum_absmax: float | None = None,
        dtype: str = "float32",
        plan: str = "auto",
        collective: str = "all_reduce",
    ) -> float:
        """The largest error that one element of a sum may have, in the values' unit.

        :param count: elements of the array; of reduce_scatter, those of one rank's part.
        :param absmax: largest magnitude that any rank holds (of a block, for that block's bound).
        :param sum_absmax: largest magnitude of the exact sum; ``size * absmax`` if left out.
        :param collective: ``"all_reduce"``, or ``"reduce_scatter"``, whose sums stay as they are.
        """
        if sum_absmax is None:
            sum_absmax = self.size * absmax
        bound = np.empty(1)
        largest, sums = np.array([absmax], np.float64), np.array([sum_absmax], np.float64)
        self._core.error_bounds(collective, codec, plan, count, dtype, largest, sums, bound)
        return float(bound[0])

    def _all_reduce(
        self,
        x: Array,
        op: str,
        out: Any,
        how: _core.CallOptions,
        asked: tuple[str, str],
        residual: Any,
        bias: Any,
    ) -> Work[Array]:
        source = read_input(x)
        target = target_for(out, source, source.shape)
        source = without_overlap(source, target, in_place=True)
        added = read_added(residual, bias, source, target)
        if residual is None and bias is None:
            target = self._recorded("all_reduce", op, asked, source, target)
        how.channels = source.shape[-1] if len(source.shape) > 1 else 0
        core = self._core.start_all_reduce(source.data, target.data, source.dtype, op, how, *added)
        return Work(core, target)

    def _all_reduce_coalesced(
        self,
        tensors: Sequence[Array],
        op: str,
        out: Sequence[Any] | None,
        how: _core.CallOptions,
        asked: tuple[str, str],
    ) -> Work[list[Array]]:
        capture = CommunicatorCapture.running
        if capture is None:
            return start_coalesced(self._core, tensors, op, out, how)

        def recorded(index: int, source: Source, target: Target) -> Target:
            place = f"[{index}]"
            return capture.record(self, "all_reduce", op, asked, source, target, place)

        return start_coalesced(self._core, tensors, op, out, how, recorded)

    def _reduce_scatter(
        self, x: Array, op: str, out: Any, how: _core.CallOptions, asked: tuple[str, str]
    ) -> Work[Array]:
        source = read_input(x)
        if not source.shape or source.shape[0] % self.size != 0:
            raise InvalidArgumentError(
                f"reduce_scatter over {self.size} ranks needs an x whose first dimension is a "
                f"multiple of {self.size}, got shape {source.shape}: pad it"
            )
        shape = (source.shape[0] // self.size, *source.shape[1:])
        target = target_for(out, source, shape)
        source = without_overlap(source, target, in_place=False)
        target = self._recorded("reduce_scatter", op, asked, source, target)
        core = self._core.start_reduce_scatter(source.data, target.data, source.dtype, op, how)
        return Work(core, target)

    def _recorded(
        self, collective: str, op: str, asked: tuple[str, str], source: Source, target: Target
    ) -> Target:
        capture = CommunicatorCapture.running
        if capture is None:
            return target
        return capture.record(self, collective, op, asked, source, target)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tersum.Communicator rank {self.rank} of {self.size}>"


# Calls in flight write to NumPy's memory, so they must end before the interpreter frees it.
_open: weakref.WeakSet[Communicator] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for communicator in list(_open):
        communicator.close()


def _check_place(rank: int, size: int) -> None:
    if size < 1:
        raise InvalidArgumentError(f"size must be at least 1, got {size}")
    if not 0 <= rank < size:
        raise InvalidArgumentError(f"rank must be 0 to {size - 1} in a group of {size}, got {rank}")
