"""What a group measures, and what its calls have learned: paths, channels, clips and losses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tersum._call_arguments import call_options
from tersum._copy_calls import CopyCalls
from tersum._core import Communicator as CoreCommunicator
from tersum.errors import InvalidArgumentError


class PathOption(NamedTuple):
    """One way in which a call can be made, and how long it is expected to take."""

    codec: str
    plan: str
    seconds: float


class PathChoice(NamedTuple):
    """What a call takes, and why. ``seconds`` is 0 where nothing was measured; ``options`` is what
    was weighed, best first."""

    codec: str
    plan: str
    seconds: float
    reason: str
    options: tuple[PathOption, ...]


class LinkSpeed(NamedTuple):
    """What tuning found of a group's links: seconds that one hop takes, with what ranks do about
    it, and bytes per second that a rank sends over all its links together."""

    latency_seconds: float
    bytes_per_second: float


#: In place of a size: the root could not save.
NOTHING_SAVED = -1


class LearnedState(CopyCalls):
    """These calls of a :class:`tersum.Communicator`, which is the class to use."""

    _core: CoreCommunicator

    def tune(self, *, fresh: bool = False) -> None:
        """Measures links, memory and codecs (up to 200 ms) for calls with ``codec="auto"`` and for
        plans left open.

        Collective; blocks. The first call with ``codec="auto"`` does it if nobody has. What this
        group has found before, or else what an earlier group of the same hosts kept, is taken if a
        few calls show that it still holds, unless ``fresh``.
        """
        self._core.tune(fresh)

    def link_speed(self) -> LinkSpeed | None:
        """Latency and rate, as the times of tuning's exact calls have them.

        None in a group that was not tuned, whose ranks do not all have links to each other, or
        whose links have a latency that hides their rate from all that fits into a tuning. Not
        collective.
        """
        speed = self._core.link_speed()
        return None if speed is None else LinkSpeed(*speed)

    def choose(
        self,
        collective: str,
        count: int,
        dtype: str = "float32",
        op: str = "sum",
        codec: str = "auto",
        plan: str = "auto",
        *,
        max_rel_error: float = 0.0,
        site: str = "",
        channels: int = 0,
    ) -> PathChoice:
        """Codec and plan that such a call would take here, why, and what else was weighed.

        Not collective. ``count`` as the collective counts: of a reduce_scatter the elements of one
        rank's result, of an all_gather those of its input. With ``max_rel_error``: by what samples
        of the site's calls have shown, or, before the first, by what codecs guarantee;
        ``channels``: the last of two or more dimensions of those calls' arrays, 0 for one.
        """
        how = call_options(codec, plan, None, max_rel_error, attended=True, site=site)
        how.channels = channels
        codec, plan, seconds, reason, options = self._core.choose(collective, count, dtype, op, how)
        weighed = tuple(PathOption(*option) for option in options)
        return PathChoice(codec, plan, seconds, reason, weighed)

    def save_flatten(self) -> bytes:
        """What calls with ``+flatten``, ``+clip:learned`` or ``"kmeans:K"`` have learned, for
        :meth:`load_flatten`: equal on all ranks after equal calls. InvalidArgumentError while a
        call is in flight that learns."""
        return self._core.save_flatten()

    def load_flatten(self, saved: bytes) -> None:
        """Puts saved states in place of those of the same sites.

        Every rank must load the same between the same calls; otherwise the next call of such a
        site raises DisagreementError on every rank, and nothing is summed wrongly.
        InvalidArgumentError, and nothing has changed: such a call is in flight, or ``saved`` is not
        what :meth:`save_flatten` returned.
        """
        self._core.load_flatten(saved)

    def share_flatten(self, root: int = 0, timeout_ms: int | None = None) -> None:
        """Every rank then has what rank ``root`` has learned, and nothing else: for ranks that
        joined late, and after a DisagreementError.

        Collective; blocks. InvalidArgumentError, on every rank: a call that learns is in flight on
        ``root``; on one rank: there. Other errors are a broadcast's.
        """
        saved, failure = b"", None
        if self._core.rank == root:
            try:
                saved = self._core.save_flatten()
            except InvalidArgumentError as error:
                failure = error
        size = np.array([len(saved) if failure is None else NOTHING_SAVED], np.int64)
        size = self.broadcast(size, root, timeout_ms=timeout_ms)
        if failure is not None:
            raise failure
        if size[0] == NOTHING_SAVED:
            raise InvalidArgumentError(
                f"rank {root} cannot share what it has learned: a call that learns is in flight "
                "there; wait for it first"
            )
        data = np.zeros(size[0], np.uint8)
        data[: len(saved)] = np.frombuffer(saved, np.uint8)
        data = self.broadcast(data, root, timeout_ms=timeout_ms)
        # The root, too, so that all ranks have been given the same between the same calls.
        self._core.reset_flatten(None)
        self._core.load_flatten(data.tobytes())

    def reset_flatten(self, site: str | None = None) -> None:
        """Forgets what ``site`` has learned, or every site: on every rank, between the same
        calls. InvalidArgumentError while a call that learns is in flight."""
        self._core.reset_flatten(site)

    def save_feedback(self) -> bytes:
        """What this rank's calls with ``+feedback`` have lost and not yet given back, for
        :meth:`load_feedback`: each rank has its own, four bytes for each value of each site."""
        return self._core.save_feedback()

    def load_feedback(self, saved: bytes) -> None:
        """Puts that in place of all that is owed on this rank. InvalidArgumentError while a call
        with ``+feedback`` is in flight, or if ``saved`` is not what :meth:`save_feedback`
        returned."""
        self._core.load_feedback(saved)

    def reset_feedback(self) -> None:
        """Nothing is owed any more, on this rank. InvalidArgumentError while a call with
        ``+feedback`` is in flight."""
        self._core.reset_feedback()
