"""What moves between single ranks: send and recv, gather, scatter, all_to_all."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from tersum._arrays import Source, Target, read_input, read_output, without_overlap
from tersum._call_arguments import call_options, target_for
from tersum._core import Communicator as CoreCommunicator
from tersum._core import Work as CoreCall
from tersum.errors import InvalidArgumentError
from tersum.work import Work

Array = TypeVar("Array")

_UNUSED = np.empty(0, np.uint8)


class MoveCalls:
    """These calls of a :class:`tersum.Communicator`, which is the class to use."""

    _core: CoreCommunicator

    def send(
        self,
        x: Any,
        dst: int,
        tag: int = 0,
        codec: str = "exact",
        timeout_ms: int | None = None,
    ) -> None:
        """Hands ``x`` to rank ``dst``, which calls :meth:`recv` with an array of the same length
        and type, and the same ``tag`` and ``codec``.

        Only these two ranks take part; sends and receives are matched by sender and tag, in the
        order in which they start. Ends when the receiver has come and all is handed over: two ranks
        that both ``send`` first wait for each other until the deadline, so exchange with
        :meth:`send_async`.
        """
        self._send(x, dst, tag, codec, timeout_ms, attended=True).wait()

    def send_async(
        self,
        x: Any,
        dst: int,
        tag: int = 0,
        codec: str = "exact",
        timeout_ms: int | None = None,
    ) -> Work[None]:
        """:meth:`send` in the background."""
        return self._send(x, dst, tag, codec, timeout_ms, attended=False)

    def recv(
        self,
        out: Array,
        src: int,
        tag: int = 0,
        codec: str = "exact",
        timeout_ms: int | None = None,
    ) -> Array:
        """Fills ``out`` with what rank ``src`` sends, and returns it. With a lossy codec it gets
        what it decodes; the sender's array stays as it is."""
        return self._recv(out, src, tag, codec, timeout_ms, attended=True).result()

    def recv_async(
        self,
        out: Array,
        src: int,
        tag: int = 0,
        codec: str = "exact",
        timeout_ms: int | None = None,
    ) -> Work[Array]:
        """:meth:`recv` in the background."""
        return self._recv(out, src, tag, codec, timeout_ms, attended=False)

    def all_to_all(
        self,
        x: Array,
        codec: str = "exact",
        plan: str = "auto",
        timeout_ms: int | None = None,
        out: Any = None,
    ) -> Array:
        """``x`` has shape ``(size * k, ...)``; rows ``j * k`` to ``(j + 1) * k`` go to rank ``j``.
        The result has the same shape: what rank ``i`` had for this one is at ``i * k``."""
        return self._all_to_all(x, codec, plan, timeout_ms, out, attended=True).result()

    def all_to_all_async(
        self,
        x: Array,
        codec: str = "exact",
        plan: str = "auto",
        timeout_ms: int | None = None,
        out: Any = None,
    ) -> Work[Array]:
        """:meth:`all_to_all` in the background."""
        return self._all_to_all(x, codec, plan, timeout_ms, out, attended=False)

    def gather(
        self,
        x: Array,
        root: int,
        codec: str = "exact",
        plan: str = "auto",
        timeout_ms: int | None = None,
        out: Any = None,
    ) -> Array | None:
        """Every rank's ``x``, concatenated along the first dimension in rank order, on rank
        ``root``; None on the others."""
        return self._gather(x, root, codec, plan, timeout_ms, out, attended=True).result()

    def gather_async(
        self,
        x: Array,
        root: int,
        codec: str = "exact",
        plan: str = "auto",
        timeout_ms: int | None = None,
        out: Any = None,
    ) -> Work[Array | None]:
        """:meth:`gather` in the background."""
        return self._gather(x, root, codec, plan, timeout_ms, out, attended=False)

    def scatter(
        self,
        x: Array,
        root: int,
        codec: str = "exact",
        plan: str = "auto",
        timeout_ms: int | None = None,
        out: Any = None,
    ) -> Array:
        """Rows ``rank * k`` to ``(rank + 1) * k`` of rank ``root``'s ``x``, which has shape
        ``(size * k, ...)``. Other ranks' ``x`` gives shape and type only."""
        return self._scatter(x, root, codec, plan, timeout_ms, out, attended=True).result()

    def scatter_async(
        self,
        x: Array,
        root: int,
        codec: str = "exact",
        plan: str = "auto",
        timeout_ms: int | None = None,
        out: Any = None,
    ) -> Work[Array]:
        """:meth:`scatter` in the background."""
        return self._scatter(x, root, codec, plan, timeout_ms, out, attended=False)

    def _send(
        self, x: Any, dst: int, tag: int, codec: str, timeout_ms: int | None, *, attended: bool
    ) -> Work[None]:
        source = read_input(x)
        core = self._move(
            "send",
            source.data,
            _UNUSED,
            source.dtype,
            dst,
            tag,
            codec,
            "auto",
            timeout_ms,
            attended,
        )
        return Work(core, None)

    def _recv(
        self, out: Array, src: int, tag: int, codec: str, timeout_ms: int | None, *, attended: bool
    ) -> Work[Array]:
        target, dtype = read_output(out)
        core = self._move(
            "recv", _UNUSED, target.data, dtype, src, tag, codec, "auto", timeout_ms, attended
        )
        return Work(core, target)

    def _all_to_all(
        self, x: Array, codec: str, plan: str, timeout_ms: int | None, out: Any, *, attended: bool
    ) -> Work[Array]:
        source = read_input(x)
        self._part_shape("all_to_all", source)
        target = target_for(out, source, source.shape)
        source = without_overlap(source, target, in_place=False)
        core = self._move(
            "all_to_all",
            source.data,
            target.data,
            source.dtype,
            0,
            0,
            codec,
            plan,
            timeout_ms,
            attended,
        )
        return Work(core, target)

    def _gather(
        self,
        x: Array,
        root: int,
        codec: str,
        plan: str,
        timeout_ms: int | None,
        out: Any,
        *,
        attended: bool,
    ) -> Work[Array | None]:
        self._check_root(root)
        source = read_input(x)
        target: Target | None = None
        if self._core.rank == root:
            rows = source.shape or (1,)
            target = target_for(out, source, (rows[0] * self._core.size, *rows[1:]))
            source = without_overlap(source, target, in_place=False)
        core = self._move(
            "gather",
            source.data,
            _UNUSED if target is None else target.data,
            source.dtype,
            root,
            0,
            codec,
            plan,
            timeout_ms,
            attended,
        )
        return Work(core, target)

    def _scatter(
        self,
        x: Array,
        root: int,
        codec: str,
        plan: str,
        timeout_ms: int | None,
        out: Any,
        *,
        attended: bool,
    ) -> Work[Array]:
        self._check_root(root)
        source = read_input(x)
        target = target_for(out, source, self._part_shape("scatter", source))
        source = without_overlap(source, target, in_place=False)
        core = self._move(
            "scatter",
            source.data,
            target.data,
            source.dtype,
            root,
            0,
            codec,
            plan,
            timeout_ms,
            attended,
        )
        return Work(core, target)

    def _move(
        self,
        name: str,
        data: Any,
        out: Any,
        dtype: str,
        peer: int,
        tag: int,
        codec: str,
        plan: str,
        timeout_ms: int | None,
        attended: bool,
    ) -> CoreCall:
        how = call_options(codec, plan, timeout_ms, 0.0, attended=attended)
        return self._core.start_move(name, data, out, dtype, peer, tag, how)

    def _part_shape(self, name: str, source: Source) -> tuple[int, ...]:
        size = self._core.size
        if not source.shape or source.shape[0] % size != 0:
            raise InvalidArgumentError(
                f"{name} over {size} ranks needs an x whose first dimension is a multiple of "
                f"{size}, got shape {source.shape}: pad it"
            )
        return (source.shape[0] // size, *source.shape[1:])

    def _check_root(self, root: int) -> None:
        if not 0 <= root < self._core.size:
            raise InvalidArgumentError(f"root must be 0 to {self._core.size - 1}, got {root}")
