"""How the processes of a JAX program find each other: over the key-value store of jax.distributed.

Runs on a thread of the compiled part when the first program that needs another process is about to
run. Nothing here is called by a program directly.
"""

from __future__ import annotations

import json
from typing import Any

import tersum
from tersum.jax._options import InstallOptions


class DistributedStore:
    """The store of ``jax.distributed`` as a tersum store. Any thread; waits release the GIL."""

    def __init__(self, client: Any, prefix: str, host: str) -> None:
        self._client = client
        self._prefix = prefix
        self._host = host

    def set(self, key: str, value: bytes) -> None:
        """Makes ``value`` visible under ``key``; setting it again to the same is allowed."""
        name = self._prefix + key
        try:
            self._client.key_value_set_bytes(name, value)
        except Exception as error:
            if "ALREADY_EXISTS" not in str(error):
                raise
            if bytes(self._client.blocking_key_value_get_bytes(name, 1_000)) != value:
                raise ValueError(f"key {name!r} is set already, to another value") from error

    def wait(self, key: str, timeout_ms: int) -> bytes:
        """Waits until ``key`` is set; TimeoutError after ``timeout_ms`` milliseconds."""
        name = self._prefix + key
        try:
            return bytes(self._client.blocking_key_value_get_bytes(name, max(1, timeout_ms)))
        except Exception as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
            raise TimeoutError(f"key {name!r} was not set within {timeout_ms} ms") from error

    def host(self) -> str:
        """The coordinator's host: processes listen at the address that routes to it."""
        return self._host


def host_of(address: str) -> str:
    """``"10.0.0.1:1234"`` gives ``"10.0.0.1"``; brackets of IPv6 are dropped."""
    return address.rsplit(":", 1)[0].strip("[]")


def describe_process() -> tuple[int, int, list[int]]:
    """This process's index, the number of processes, and the global ids of its CPU devices."""
    import jax

    devices = jax.local_devices(backend="cpu")
    index = devices[0].process_index
    return index, jax.process_count("cpu"), [device.id for device in devices]


def devices_of_processes() -> list[list[int]]:
    """The global ids of the CPU devices of every process, by process index."""
    import jax

    processes: list[list[int]] = [[] for _ in range(jax.process_count("cpu"))]
    for device in jax.devices("cpu"):
        processes[device.process_index].append(device.id)
    return processes


def open_store(options: InstallOptions, generation: int) -> DistributedStore:
    """The store of this program, after all processes were found to have the same options.

    Blocks up to ``options.timeout_ms``. DisagreementError names both processes and the options that
    differ; TimeoutError names the process that did not come.
    """
    import jax
    from jax._src import distributed

    state = distributed.global_state
    if state.client is None:
        raise tersum.UnavailableError(
            "this program spans several processes but jax.distributed.initialize() was not called, "
            "so tersum has no key-value store to find them through"
        )
    store = DistributedStore(
        state.client, f"tersum/{generation}/", host_of(state.coordinator_address or "")
    )
    agree(store, options, jax.process_index("cpu"), jax.process_count("cpu"))
    return store


def agree(store: DistributedStore, options: InstallOptions, index: int, count: int) -> None:
    """Compares the options of all processes: process 0 reads them all and publishes its verdict."""
    own = json.dumps({"version": tersum.__version__, "options": options.agreed()})
    store.set(f"options/{index}", own.encode())
    if index == 0:
        store.set("verdict", verdict(store, own, count, options.timeout_ms).encode())
    # Process 0 waits up to timeout_ms for each of the others before it speaks.
    try:
        text = store.wait("verdict", 2 * options.timeout_ms).decode()
    except TimeoutError as error:
        raise TimeoutError(
            f"process 0 did not install tersum within {2 * options.timeout_ms} ms: call "
            "tersum.jax.install() in every process, and run the same program in all of them"
        ) from error
    if text:
        kind, _, message = text.partition(":")
        raise (TimeoutError if kind == "timeout" else tersum.DisagreementError)(message)


def verdict(store: DistributedStore, own: str, count: int, timeout_ms: int) -> str:
    """Empty when all agree, else ``timeout:…`` or ``disagreement:…``."""
    for other in range(1, count):
        try:
            theirs = store.wait(f"options/{other}", timeout_ms).decode()
        except TimeoutError:
            return (
                f"timeout:process {other} did not install tersum within {timeout_ms} ms: call "
                "tersum.jax.install() in every process, and run the same program in all of them"
            )
        if theirs != own:
            return (
                f"disagreement:the processes installed tersum differently: process 0 has {own}, "
                f"process {other} has {theirs}; use the same options and version everywhere"
            )
    return ""
