"""Collectives that sum nothing: all_gather, broadcast, barrier."""

from __future__ import annotations

from typing import Any, TypeVar

from tersum._arrays import read_input, without_overlap
from tersum._call_arguments import call_options, target_for
from tersum._core import CallOptions
from tersum._core import Communicator as CoreCommunicator
from tersum.errors import InvalidArgumentError
from tersum.work import Work

Array = TypeVar("Array")


class CopyCalls:
    """These calls of a :class:`tersum.Communicator`, which is the class to use."""

    _core: CoreCommunicator

    def all_gather(
        self,
        x: Array,
        codec: str = "exact",
        plan: str = "auto",
        timeout_ms: int | None = None,
        out: Any = None,
        *,
        max_rel_error: float = 0.0,
    ) -> Array:
        """Every rank's ``x``, concatenated along the first dimension in rank order.

        ``x`` has shape ``(n, ...)``, the same on every rank; the result ``(size * n, ...)``. A 0-d
        ``x`` gives a result of shape ``(size,)``. With a lossy codec this rank's own part is what
        the others decode, too. ``codec="auto"`` is exact unless ``max_rel_error`` is given.
        """
        how = call_options(codec, plan, timeout_ms, max_rel_error, attended=True)
        return self._all_gather(x, out, how).result()

    def all_gather_async(
        self,
        x: Array,
        codec: str = "exact",
        plan: str = "auto",
        timeout_ms: int | None = None,
        out: Any = None,
        *,
        max_rel_error: float = 0.0,
    ) -> Work[Array]:
        """:meth:`all_gather` in the background."""
        how = call_options(codec, plan, timeout_ms, max_rel_error, attended=False)
        return self._all_gather(x, out, how)

    def broadcast(
        self,
        x: Array,
        root: int,
        codec: str = "exact",
        plan: str = "auto",
        timeout_ms: int | None = None,
        out: Any = None,
        *,
        max_rel_error: float = 0.0,
    ) -> Array:
        """Rank ``root``'s ``x``, on every rank. Other ranks' ``x`` gives shape and type only.

        With a lossy codec the root's result is what the others decode. ``codec="auto"`` is exact
        unless ``max_rel_error`` is given.
        """
        how = call_options(codec, plan, timeout_ms, max_rel_error, attended=True)
        return self._broadcast(x, root, out, how).result()

    def broadcast_async(
        self,
        x: Array,
        root: int,
        codec: str = "exact",
        plan: str = "auto",
        timeout_ms: int | None = None,
        out: Any = None,
        *,
        max_rel_error: float = 0.0,
    ) -> Work[Array]:
        """:meth:`broadcast` in the background."""
        how = call_options(codec, plan, timeout_ms, max_rel_error, attended=False)
        return self._broadcast(x, root, out, how)

    def barrier(self, timeout_ms: int | None = None) -> None:
        """Returns when every rank has entered."""
        self._barrier(timeout_ms, attended=True).wait()

    def barrier_async(self, timeout_ms: int | None = None) -> Work[None]:
        """:meth:`barrier` in the background."""
        return self._barrier(timeout_ms, attended=False)

    def _all_gather(self, x: Array, out: Any, how: CallOptions) -> Work[Array]:
        source = read_input(x)
        rows = source.shape or (1,)
        target = target_for(out, source, (rows[0] * self._core.size, *rows[1:]))
        source = without_overlap(source, target, in_place=False)
        core = self._core.start_all_gather(source.data, target.data, source.dtype, how)
        return Work(core, target)

    def _broadcast(self, x: Array, root: int, out: Any, how: CallOptions) -> Work[Array]:
        if not 0 <= root < self._core.size:
            raise InvalidArgumentError(f"root must be 0 to {self._core.size - 1}, got {root}")
        source = read_input(x)
        target = target_for(out, source, source.shape)
        if self._core.rank == root:
            target.data[...] = source.data  # the core works in place; numpy sees to any overlap
        core = self._core.start_broadcast(target.data, source.dtype, root, how)
        return Work(core, target)

    def _barrier(self, timeout_ms: int | None, *, attended: bool) -> Work[None]:
        how = call_options("exact", "auto", timeout_ms, 0.0, attended=attended)
        return Work(self._core.start_barrier(how), None)
