"""Stores: how ranks find each other. A store is used while a group is made, never for its data.

``Communicator(store=...)`` takes a URL (``tcp://host:port``, served by rank 0; ``file:///directory``,
fresh for every run), or any object with the two methods of :class:`Store`.
"""

from __future__ import annotations

import datetime
import threading
from typing import Any, Protocol


class Store(Protocol):
    """What a caller's own store must do; methods may be called from any thread.

    An optional method ``host() -> str`` names the host that the store is reached at; processes then
    listen on loopback if that is loopback, otherwise on the address that routes to it.
    """

    def set(self, key: str, value: bytes) -> None:
        """Makes ``value`` (below 64 KiB) visible under ``key``, once and for all."""

    def wait(self, key: str, timeout_ms: int) -> bytes:
        """Waits until ``key`` is set; raises ``TimeoutError`` after ``timeout_ms`` milliseconds."""


class MemoryStore:
    """A store for ranks that are threads of one process. Any thread."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        """Makes ``value`` visible; ValueError if ``key`` has another value already."""
        with self._changed:
            if self._values.setdefault(key, value) != value:
                raise ValueError(f"key {key!r} is set already, to another value")
            self._changed.notify_all()

    def wait(self, key: str, timeout_ms: int) -> bytes:
        """Waits until ``key`` is set; TimeoutError after ``timeout_ms``."""
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, timeout_ms / 1000):
                raise TimeoutError(f"key {key!r} was not set within {timeout_ms} ms")
            return self._values[key]

    def host(self) -> str:
        """Loopback: the threads share a machine."""
        return "127.0.0.1"


class TorchStore:
    """A ``torch.distributed`` store (TCPStore, FileStore, PrefixStore) as a tersum store.

    Keys get a prefix, so that the store can be shared with its other users. ``host`` is where the
    store runs, if that is known. Any thread, as far as the torch store allows it.
    """

    def __init__(self, store: Any, *, prefix: str = "tersum/", host: str = "") -> None:
        self._store = store
        self._prefix = prefix
        self._host = host

    def set(self, key: str, value: bytes) -> None:
        """Makes ``value`` visible under ``key``."""
        self._store.set(self._prefix + key, value)

    def wait(self, key: str, timeout_ms: int) -> bytes:
        """Waits until ``key`` is set; TimeoutError after ``timeout_ms``."""
        name = self._prefix + key
        try:
            self._store.wait([name], datetime.timedelta(milliseconds=max(1, timeout_ms)))
        except Exception as error:
            # torch raises DistStoreError or RuntimeError by version, both for lateness only here.
            raise TimeoutError(f"key {key!r} was not set within {timeout_ms} ms") from error
        return bytes(self._store.get(name))

    def host(self) -> str:
        """The host named at construction."""
        return self._host
