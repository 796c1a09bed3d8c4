"""codec="auto" in JAX: each operation takes the cheapest codec within the error, the same in all
processes, and says which. In any number of processes; prints ``ok digest``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax_launch import join

import tersum.jax
from tersum.codecs import codec_info

SEED = 20265
LAYERS, COUNT = 2, 40_000
digest = hashlib.sha256()


def summed(values: np.ndarray, sum_of: Callable[[jax.Array], Any], calls: int = 3) -> np.ndarray:
    """The last of some calls, the same on all devices of this process."""
    mesh = Mesh(np.array(jax.devices()), ("x",))
    program = jax.jit(
        jax.shard_map(
            lambda x: sum_of(x[0]), mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False
        )
    )
    array = jax.make_array_from_callback(
        values.shape, NamedSharding(mesh, P("x")), lambda index: values[index]
    )
    for _ in range(calls):
        parts = [np.asarray(shard.data) for shard in program(array).addressable_shards]
        assert all(part.tobytes() == parts[0].tobytes() for part in parts)
    digest.update(parts[0].tobytes())
    return parts[0]


def install(codec: str, **options: Any) -> None:
    tersum.jax.uninstall()
    tersum.jax.install(codec=codec, local=True, min_bytes=0, **options)


def plain(x: jax.Array) -> jax.Array:
    return lax.psum(x, "x")


def last_choice() -> tuple[str, ...]:
    row = tersum.jax.report().rewritten[-1]
    assert row.codec.startswith("auto:"), row
    assert all(codec in row.travels_as for codec in row.chosen), row.travels_as
    digest.update(repr((row.chosen, row.rel_error)).encode())
    return row.chosen


def error(result: np.ndarray, values: np.ndarray) -> float:
    exact = values.sum(0, dtype=np.float64)
    return float(np.linalg.norm(result - exact) / np.linalg.norm(exact))


def check_installed(values: np.ndarray) -> None:
    """Coarser codecs for larger errors, and the bytes of the codec that was chosen."""
    bits = []
    for allowed in (0.2, 0.02, 0.002):
        install("auto", max_rel_error=allowed)
        result = summed(values, plain)
        (chosen,) = last_choice()
        assert tersum.jax.report().rewritten[-1].rel_error <= allowed
        # Samples stand for the whole within 8 % (docs/tuning.md).
        assert error(result, values) <= 1.1 * allowed, (chosen, error(result, values))
        bits.append(codec_info(chosen).wire_bits)
        install(chosen)
        assert summed(values, plain).tobytes() == result.tobytes(), chosen
    assert bits == sorted(set(bits)), bits


def check_operations_for_themselves(values: np.ndarray) -> None:
    """tersum.jax.psum and set_xla_metadata, beside operations that ask for nothing."""
    install("off", max_rel_error=0.2)

    def three(x: jax.Array) -> tuple[jax.Array, ...]:
        fine = tersum.jax.psum(x, "x", codec="auto", max_rel_error=0.002)
        with set_xla_metadata(tersum="auto"):
            coarse = lax.psum(fine * x, "x")
        return lax.psum(coarse + x, "x")

    summed(values, three)
    rows = {row.codec: row for row in tersum.jax.report().rewritten[-2:]}
    assert set(rows) == {"auto:0.002", "auto:0.2"}, tersum.jax.report()
    (fine,), (coarse,) = rows["auto:0.002"].chosen, rows["auto:0.2"].chosen
    assert codec_info(fine).wire_bits > codec_info(coarse).wire_bits
    digest.update(f"{fine} {coarse}".encode())


def check_named_codecs(values: np.ndarray) -> None:
    """Only what a list names is taken: install()'s, a psum's and a mark's."""
    install("auto:int8|bf16", max_rel_error=0.2)
    summed(values, plain)
    row = tersum.jax.report().rewritten[-1]
    assert row.codec == "auto:0.2:bf16|int8/128", row
    assert last_choice() == ("int8/128",)
    install("auto:0.2:bf16")
    summed(values, plain)
    assert last_choice() == ("bf16",)
    install("off", max_rel_error=0.2)

    def three(x: jax.Array) -> jax.Array:
        fine = tersum.jax.psum(x, "x", codec="auto:int7|int8/32", max_rel_error=0.5)
        with set_xla_metadata(tersum="auto:int6|int7"):
            coarse = lax.psum(fine * x, "x")
        with set_xla_metadata(tersum="auto:0.3:int5/64"):
            return lax.psum(coarse + x, "x")

    summed(values, three)
    taken = {row.codec: row.chosen for row in tersum.jax.report().rewritten[-3:]}
    assert taken == {
        "auto:0.5:int8/32|int7/128": ("int7/128",),
        "auto:0.2:int7/128|int6/128": ("int6/128",),
        "auto:0.3:int5/64": ("int5/64",),
    }, taken


def check_channels_are_learned(values: np.ndarray) -> None:
    """Operands of two dimensions teach their channels, whatever they take: from the second run on
    a codec that flattens holds where plain int8 does not."""
    install("auto", max_rel_error=0.03)
    rows = values[:, : COUNT // 400 * 400].reshape(len(values), -1, 400).copy()
    rows[:, :, 7::50] *= 30
    result = summed(rows, plain, calls=4)
    (chosen,) = last_choice()
    assert "+flatten" in chosen, chosen
    assert codec_info(chosen).wire_bits <= codec_info("int6/128+flatten").wire_bits
    assert error(result, rows) <= 1.2 * 0.03
    install("int8/128")
    assert error(summed(rows, plain), rows) > 0.02


def check_layers_of_a_loop(values: np.ndarray) -> None:
    """One operation, two iterations: contributions that cancel want the exact wire, others not."""
    install("auto", max_rel_error=0.02)
    cancelling = np.repeat(values[:, None], LAYERS, 1)
    signs = np.where(np.arange(len(values)) % 2 == 0, 1, -1).astype(np.float32)
    cancelling[:, 1] = signs[:, None] * (1000 + values * 1e-6)
    result = summed(cancelling, lambda x: lax.scan(lambda c, y: (c, plain(y)), 0.0, x)[1])
    chosen = last_choice()
    assert "exact" in chosen and len(chosen) == 2, chosen
    exact = cancelling[:, 1].sum(0, dtype=np.float32)
    assert np.allclose(result[1], exact, rtol=1e-3, atol=1e-3)


def check_what_has_no_choice() -> None:
    """Integers are summed exactly, zeros and NaN too, as they say nothing of an error."""
    install("auto", max_rel_error=0.5)
    counts = np.arange(len(jax.devices()) * 5000, dtype=np.int32).reshape(-1, 5000)
    assert (summed(counts, plain) == counts.sum(0)).all()
    lost = np.full((len(jax.devices()), COUNT), np.nan, np.float32)
    assert np.isnan(summed(lost, plain)).all()
    assert last_choice() == ("exact",)


def check_refusals(values: np.ndarray) -> None:
    tersum.jax.uninstall()

    def refused(call: Callable[[], Any]) -> str:
        try:
            call()
        except tersum.InvalidArgumentError as refusal:
            return str(refusal)
        raise AssertionError("not refused")

    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        assert "max_rel_error" in refused(
            lambda wrong=wrong: tersum.jax.install(codec="auto", max_rel_error=wrong)
        )
    assert "auto" in refused(lambda: tersum.jax.install(codec="auto:x"))
    assert "1e-2" in refused(lambda: tersum.jax.psum(values, "x", codec="auto"))
    for wrong, why in (
        ("auto:", "auto:1e-2"),
        ("auto:int8|int8/128", "stands twice"),
        ("auto:int8|itn4", "did you mean"),
        ("auto:int2+feedback", "given back"),
    ):
        text = refused(lambda wrong=wrong: tersum.jax.install(codec=wrong, max_rel_error=0.1))
        assert why in text or "empty place" in text, text
    assert "max_rel_error" in refused(lambda: tersum.jax.install(codec="auto:int8|int4"))
    assert "codec='auto'" in refused(
        lambda: tersum.jax.psum(values, "x", codec="int8", max_rel_error=0.1)
    )
    install("off")

    def asks(x: jax.Array) -> jax.Array:
        with set_xla_metadata(tersum="auto"):
            return lax.psum(x, "x")

    summed(values, asks, calls=1)
    row = tersum.jax.report()[-1]
    assert row.outcome == "error" and "max_rel_error" in row.reason, row


def main() -> None:
    join()
    jnp.zeros(1).block_until_ready()
    random = np.random.default_rng(SEED)
    values = random.standard_normal((len(jax.devices()), COUNT)).astype(np.float32)
    check_installed(values)
    check_operations_for_themselves(values)
    check_named_codecs(values)
    check_channels_are_learned(values)
    check_layers_of_a_loop(values)
    check_what_has_no_choice()
    check_refusals(values)
    print(f"ok {digest.hexdigest()[:16]}", flush=True)


main()
