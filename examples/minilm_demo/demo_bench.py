"""What the demo times, on one rank: `embed.py`'s encoder over one wire after the other.

A full batch and a compute-only batch alternate, so that a busy machine slows both.
  batch    token ids in, embeddings on the host: the tensor-parallel model with its 12 all-reduces
  compute  the same function on this rank's slices of the weights: the same matrices, no all-reduce,
           both ranks at once. Its result means nothing; its time is what a batch would take on an
           infinitely fast wire
  psum     one all-reduce of the size that the model makes, back to back, in a program of its own
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from corpus import Batches
from embed import Encoder
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from model import (
    ALL_REDUCES_PER_FORWARD,
    HIDDEN_SIZE,
    Params,
    forward,
    load_params,
    slice_of_rank,
)

PLAIN_WIRE = "jax"
PSUM_CALLS = 9
COMPUTE_CALLS = 6  # about; spread over the batches


@dataclass
class Measurement:
    """One rank's numbers for one wire on one link; times in seconds, one entry per batch or call.

    `interface_bytes`: what the rank's network interfaces sent during a batch, headers included.
    `payload_bytes`, `collective_seconds`: what tersum counted; empty for JAX's own collectives.
    """

    wire: str
    link: str
    batch_seconds: list[float] = field(default_factory=list)
    compute_seconds: list[float] = field(default_factory=list)
    psum_seconds: list[float] = field(default_factory=list)
    interface_bytes: list[int] = field(default_factory=list)
    payload_bytes: list[int] = field(default_factory=list)
    collective_seconds: list[float] = field(default_factory=list)
    embedding_digest: str = ""


def interface_bytes_sent() -> int:
    """Bytes this network namespace has sent so far, headers included, over all its interfaces."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    return sum(int(line.split(":")[1].split()[8]) for line in lines)


def together(call: Callable[[], Any]) -> tuple[float, Any]:
    """Starts `call` at the same moment on every rank; its seconds and its result."""
    multihost_utils.sync_global_devices("start")
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


class Programs:
    """The three timed programs. Made anew for each wire, so that nothing compiled is reused."""

    def __init__(self, params: Params, slices: Params, ids: np.ndarray, masks: np.ndarray) -> None:
        self._encoder = Encoder(params)
        self._slices = slices
        self._ids, self._masks = ids, masks
        self._compute = jax.jit(forward)
        self._make_psum()

    def batch(self, index: int) -> np.ndarray:
        return self._encoder(self._ids[index], self._masks[index])

    def compute(self, index: int) -> None:
        vectors = self._compute(self._slices, self._ids[index], self._masks[index])
        jax.block_until_ready(vectors)

    def psum(self) -> None:
        jax.block_until_ready(self._psum(self._psum_values))

    def all_reduce_count(self) -> int:
        lines = self._encoder.compiled_text(self._ids[0], self._masks[0]).splitlines()
        return sum(" all-reduce(" in line or " all-reduce-start(" in line for line in lines)

    def _make_psum(self) -> None:
        mesh = jax.make_mesh((jax.device_count(),), ("tensor",), (AxisType.Auto,))
        split = PartitionSpec("tensor")
        shape = (jax.device_count(), int(np.prod(self._ids.shape[1:])), HIDDEN_SIZE)

        def values(index: Any) -> np.ndarray:
            # Random: zeros would flatter a quantizer.
            rng = np.random.default_rng(1 + index[0].start)
            return rng.standard_normal((1, *shape[1:]), np.float32)

        self._psum_values = jax.make_array_from_callback(shape, NamedSharding(mesh, split), values)
        self._psum = jax.jit(
            jax.shard_map(
                lambda x: jax.lax.psum(x, "tensor"),
                mesh=mesh,
                in_specs=split,
                out_specs=PartitionSpec(),
            )
        )


class Bench:
    """The rank's weights and texts, and the wire that is installed now."""

    def __init__(self, batches: Batches, out: Path, on_batch: Callable[[float], None]) -> None:
        """`on_batch` is told each batch's seconds; embeddings go to the folder `out` (rank 0)."""
        self._out, self._on_batch = out, on_batch
        self._ids, self._masks = batches.ids, batches.masks
        self._params = load_params()
        mine = slice_of_rank(self._params, jax.process_index(), jax.process_count())
        device = jax.local_devices()[0]
        self._slices = jax.tree.map(lambda value: jax.device_put(value, device), mine)
        self._wire = PLAIN_WIRE
        self._programs: Programs | None = None

    def measure(self, wire: str, link: str, batch_count: int) -> Measurement:
        """Times the first `batch_count` batches of texts. Every rank must get the same orders."""
        programs = self._use(wire)
        programs.batch(0)  # warm-up: TCP's windows, which the last link's rate has shaped
        result = Measurement(wire, link)
        vectors = []
        compute_stride = max(1, batch_count // COMPUTE_CALLS)
        for index in range(batch_count):
            vectors.append(self._time_batch(programs, index, result))
            if index % compute_stride == 0:
                seconds, _ = together(partial(programs.compute, index))
                result.compute_seconds.append(seconds)
        together(programs.psum)
        for _ in range(PSUM_CALLS):
            start = time.perf_counter()
            programs.psum()
            result.psum_seconds.append(time.perf_counter() - start)
        self._keep(result, np.concatenate(vectors))
        return result

    def _time_batch(self, programs: Programs, index: int, result: Measurement) -> np.ndarray:
        sent, counted = interface_bytes_sent(), self._counters()
        seconds, embeddings = together(partial(programs.batch, index))
        result.interface_bytes.append(interface_bytes_sent() - sent)
        result.batch_seconds.append(seconds)
        for before, after, values in zip(
            counted,
            self._counters(),
            (result.payload_bytes, result.collective_seconds),
            strict=False,
        ):
            values.append(after - before)
        self._on_batch(seconds)
        return embeddings

    def _counters(self) -> tuple[float, ...]:
        """Payload bytes sent and seconds in collectives so far; nothing for JAX's own."""
        if self._wire == PLAIN_WIRE:
            return ()
        import tersum.jax

        stats = tersum.jax.stats()
        return stats.wire_bytes_sent, stats.seconds

    def _use(self, wire: str) -> Programs:
        """Switches to `wire` and compiles. RuntimeError unless every all-reduce took it."""
        if wire == self._wire and self._programs is not None:
            return self._programs
        self._programs = None
        if self._wire != PLAIN_WIRE:
            import tersum.jax

            tersum.jax.uninstall()
        if wire != PLAIN_WIRE:
            import tersum.jax

            tersum.jax.install(codec=wire)
        self._wire = wire
        before = self._rewritten_count()
        self._programs = Programs(self._params, self._slices, self._ids, self._masks)
        self._programs.batch(0)  # compiles
        made = self._rewritten_count() - before
        if wire == PLAIN_WIRE:
            made = self._programs.all_reduce_count()
        if made != ALL_REDUCES_PER_FORWARD:
            raise RuntimeError(
                f"{made} all-reduces of the model travel as {wire}, not {ALL_REDUCES_PER_FORWARD}"
            )
        self._programs.compute(0)
        self._programs.psum()
        return self._programs

    def _rewritten_count(self) -> int:
        if self._wire == PLAIN_WIRE:
            return 0
        import tersum.jax

        return len(tersum.jax.report().rewritten)

    def _keep(self, result: Measurement, embeddings: np.ndarray) -> None:
        result.embedding_digest = hashlib.sha256(embeddings.tobytes()).hexdigest()
        if jax.process_index() == 0:
            name = f"{result.wire.replace('/', '_')}-{result.link}.npy"
            np.save(self._out / name, embeddings)
