"""What may be handed in, and what comes out: NumPy, torch, jax; strides, alignment, out=."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tersum


def test_new_array_unless_out_is_given(alone: tersum.Communicator) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = alone.all_reduce(x, codec="exact")
    assert result is not x and not np.shares_memory(result, x)
    np.testing.assert_array_equal(result, x)
    out = np.zeros_like(x)
    assert alone.all_reduce(x, codec="exact", out=out) is out
    np.testing.assert_array_equal(out, x)


def test_out_may_be_the_input(run_group: Any) -> None:
    def body(group: tersum.Communicator) -> Any:
        x = np.full(1000, group.rank + 1.0, np.float32)
        assert group.all_reduce(x, codec="exact", out=x) is x
        return x

    for result in run_group(3, body):
        np.testing.assert_array_equal(result, 6.0)


def test_out_may_overlap_the_input(run_group: Any) -> None:
    def body(group: tersum.Communicator) -> Any:
        memory = np.zeros(1004, np.float32)
        memory[:1000] = np.arange(1000)
        group.all_reduce(memory[:1000], codec="exact", out=memory[4:])
        gathered = np.zeros(6, np.float32)
        gathered[group.rank * 2 : group.rank * 2 + 2] = group.rank
        group.all_gather(gathered[group.rank * 2 : group.rank * 2 + 2], out=gathered)
        return memory[4:], gathered

    for reduced, gathered in run_group(3, body):
        np.testing.assert_array_equal(reduced, 3 * np.arange(1000))
        np.testing.assert_array_equal(gathered, [0, 0, 1, 1, 2, 2])


def test_non_contiguous_input_is_copied(run_group: Any) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    for view in (base[:, ::2], base.T, base[::-1], np.broadcast_to(base[:1], (4, 6))):
        results = run_group(2, lambda g, view=view: g.all_reduce(view, codec="exact"))
        for result in results:
            np.testing.assert_array_equal(result, 2 * view)
            assert result.flags.c_contiguous


def test_non_contiguous_out_is_filled(run_group: Any) -> None:
    def body(group: tersum.Communicator) -> Any:
        memory = np.full((4, 6), -1.0, np.float32)
        out = memory[:, ::2]
        result = group.all_reduce(np.ones((4, 3), np.float32), codec="exact", out=out)
        assert result is out
        return memory

    for memory in run_group(2, body):
        np.testing.assert_array_equal(memory[:, ::2], 2.0)
        np.testing.assert_array_equal(memory[:, 1::2], -1.0)


def test_unaligned_arrays(run_group: Any) -> None:
    def unaligned(count: int) -> Any:
        return np.zeros(count * 4 + 1, np.uint8)[1:].view(np.float32)

    def body(group: tersum.Communicator) -> Any:
        x, out = unaligned(100), unaligned(100)
        assert not x.flags.aligned
        x[:] = 3.0
        return group.all_reduce(x, codec="exact", out=out)

    for result in run_group(2, body):
        np.testing.assert_array_equal(result, 6.0)


def test_input_is_never_written(run_group: Any) -> None:
    def body(group: tersum.Communicator) -> bool:
        x = np.random.default_rng(group.rank).standard_normal(5000).astype(np.float32)
        x.flags.writeable = False
        before = x.tobytes()
        group.all_reduce(x, codec="int4")
        group.reduce_scatter(x, codec="int4")
        group.all_gather(x, codec="int4")
        group.broadcast(x, 1, codec="int4")
        return x.tobytes() == before

    assert all(run_group(2, body))


def test_subclasses_come_out_as_plain_arrays(alone: tersum.Communicator) -> None:
    class Named(np.ndarray):
        pass

    x = np.ones(3, np.float32).view(Named)
    assert type(alone.all_reduce(x, codec="exact")) is np.ndarray


def test_bfloat16_of_ml_dtypes(run_group: Any) -> None:
    x = np.arange(64).astype(ml_dtypes.bfloat16)
    for result in run_group(2, lambda g: g.all_reduce(x, codec="exact")):
        assert result.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(result.astype(np.float32), 2 * np.arange(64))


def set_device_type(capsule: object, device_type: int) -> None:
    """Of the DLTensor in an unversioned capsule: a pointer, then the device's type."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p)
    ctypes.c_int32.from_address(address).value = device_type


class TestTorch:
    torch = pytest.importorskip("torch", reason="torch is not installed")

    @pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float64", "int64"])
    def test_tensor_in_tensor_out(self, run_group: Any, name: str) -> None:
        torch = self.torch
        x = torch.arange(60).to(getattr(torch, name)).reshape(3, 20)
        for result in run_group(2, lambda g: g.all_reduce(x, codec="exact")):
            assert isinstance(result, torch.Tensor) and result.dtype == x.dtype
            assert torch.equal(result, 2 * x)

    def test_out_is_written_in_place(self, run_group: Any) -> None:
        torch = self.torch

        def body(group: tersum.Communicator) -> Any:
            x = torch.full((1000,), group.rank + 1.0, dtype=torch.bfloat16)
            assert group.all_reduce(x, codec="exact", out=x) is x
            return x

        for result in run_group(3, body):
            assert torch.equal(result, torch.full((1000,), 6.0, dtype=torch.bfloat16))

    def test_non_contiguous(self, run_group: Any) -> None:
        torch = self.torch
        x = torch.arange(12.0).to(torch.bfloat16).reshape(3, 4).T

        def body(group: tersum.Communicator) -> Any:
            out = torch.zeros(4, 6, dtype=torch.bfloat16)[:, ::2]
            return group.all_reduce(x, codec="exact", out=out)

        for result in run_group(2, body):
            assert torch.equal(result, 2 * x)

    def test_requires_grad_says_detach(self, alone: tersum.Communicator) -> None:
        x = self.torch.ones(3, requires_grad=True)
        with pytest.raises(tersum.InvalidArgumentError, match=r"x\.detach\(\)"):
            alone.all_reduce(x)

    def test_gpu_tensor_says_cpu(self, alone: tersum.Communicator) -> None:
        class OnGpu:
            def __dlpack_device__(self) -> tuple[int, int]:
                return 2, 3

            def __dlpack__(self, **_: Any) -> object:
                raise AssertionError("must not be asked for GPU memory")

        with pytest.raises(tersum.UnsupportedError, match=r"CUDA 3.*x\.cpu\(\)"):
            alone.all_reduce(OnGpu())

    def test_result_is_in_cpu_memory_whatever_torch_makes_by_default(
        self, alone: tersum.Communicator
    ) -> None:
        torch = self.torch
        x = torch.ones(3)
        torch.set_default_device("meta")
        try:
            result = alone.all_reduce(x, codec="exact")
        finally:
            torch.set_default_device(None)
        assert torch.equal(result, x)

    @pytest.mark.parametrize("kind", [3, 11])
    @pytest.mark.parametrize("of_capsule", [1, None])
    def test_page_locked_tensors_serve_as_they_are(
        self, run_group: Any, kind: int, of_capsule: int | None
    ) -> None:
        """torch says CPU in the capsule of a pinned tensor, and CUDA's host memory beside it."""
        torch = self.torch

        class PageLocked:
            def __init__(self, tensor: Any) -> None:
                self.tensor = tensor

            def __dlpack_device__(self) -> tuple[int, int]:
                return kind, 0

            def __dlpack__(self, **_: Any) -> object:
                capsule = self.tensor.__dlpack__()
                set_device_type(capsule, of_capsule or kind)
                return capsule

        def body(group: tersum.Communicator) -> Any:
            x = torch.arange(1000.0) + group.rank
            out = torch.zeros(1000)
            group.all_reduce(PageLocked(x), codec="exact", out=PageLocked(out))
            return out

        for result in run_group(2, body):
            assert torch.equal(result, 2 * torch.arange(1000.0) + 1)

    @pytest.mark.parametrize("as_out", [False, True])
    def test_capsules_of_gpu_memory_are_not_read(
        self, alone: tersum.Communicator, as_out: bool
    ) -> None:
        class Liar:
            def __dlpack_device__(self) -> tuple[int, int]:
                return 1, 0

            def __dlpack__(self, **_: Any) -> object:
                capsule = TestTorch.torch.zeros(3).__dlpack__()
                set_device_type(capsule, 2)
                return capsule

        with pytest.raises(tersum.InvalidArgumentError, match="not in CPU memory"):
            if as_out:
                alone.all_reduce(np.zeros(3, np.float32), out=Liar())
            else:
                alone.all_reduce(Liar())


class TestJax:
    jax = pytest.importorskip("jax", reason="jax is not installed")

    @pytest.fixture(autouse=True)
    def on_cpu(self) -> Iterator[None]:
        """Also where jax takes a GPU by default."""
        with self.jax.default_device(self.jax.devices("cpu")[0]):
            yield

    @pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "int32"])
    def test_array_in_array_out(self, run_group: Any, name: str) -> None:
        x = self.jax.numpy.arange(60).astype(name).reshape(3, 20)
        for result in run_group(2, lambda g: g.all_reduce(x, codec="exact")):
            assert isinstance(result, self.jax.Array) and result.dtype == x.dtype
            assert result.devices() == x.devices()
            np.testing.assert_array_equal(
                np.asarray(result, np.float32), 2 * np.asarray(x, np.float32)
            )

    def test_out_is_refused(self, alone: tersum.Communicator) -> None:
        x = self.jax.numpy.ones(3)
        with pytest.raises(tersum.InvalidArgumentError, match="jax array, and those cannot change"):
            alone.all_reduce(x, out=x)

    def test_traced_arrays_are_sent_to_psum(self, alone: tersum.Communicator) -> None:
        with pytest.raises(tersum.InvalidArgumentError, match=r"tersum\.jax\.psum"):
            self.jax.jit(lambda x: alone.all_reduce(x))(self.jax.numpy.ones(3))


PLAIN = ("plain", "in place", "empty", "long long")
REFUSED = ("shape", "dtype", "read-only", "foreign")


def short_way_pair(case: str) -> tuple[np.ndarray, np.ndarray]:
    """An array, and where its sum goes."""
    backing = np.arange(64, dtype=np.float32)
    x, out = backing[:16], np.full(16, -1, np.float32)
    if case == "in place":
        out = x
    elif case == "empty":
        x, out = x[:0], out[:0]
    elif case == "long long":  # beside long, which has as many bits
        x, out = np.arange(16, dtype=np.longlong), np.zeros(16, np.longlong)
    elif case == "overlap":
        out = backing[8:24]
    elif case == "strided":
        x = backing[::4]
    elif case == "unaligned":
        out = np.zeros(65, np.uint8)[1:].view(np.float32)
    elif case == "subclass":
        x = x.view(np.recarray)
    elif case == "shape":
        out = np.zeros((4, 4), np.float32)
    elif case == "dtype":
        out = np.zeros(16, np.float64)
    elif case == "read-only":
        out.flags.writeable = False
    elif case == "foreign":
        x, out = x.astype(">f4"), out.astype(">f4")
    return x, out


@pytest.mark.parametrize("case", [*PLAIN, "overlap", "strided", "unaligned", "subclass", *REFUSED])
def test_the_short_way_of_plain_arrays_changes_nothing(case: str) -> None:
    with tersum.Communicator(0, 1) as group:
        x, out = short_way_pair(case)
        expected = np.array(x)
        if case in REFUSED:
            for call in (
                lambda: group.all_reduce(x, out=out, codec="exact"),
                lambda: group.all_reduce_coalesced([x], out=[out], codec="exact"),
            ):
                with pytest.raises((tersum.InvalidArgumentError, tersum.UnsupportedError)):
                    call()
            return
        assert group.all_reduce(x, out=out, codec="exact") is out
        assert np.array_equal(out, expected)
        short = group._core.all_reduce_plain(x, out, "sum", "exact", "auto", 1000)
        assert short == (case in PLAIN)
        x, out = short_way_pair(case)
        assert group.all_reduce_coalesced([x], out=[out], codec="exact")[0] is out
        assert np.array_equal(out, expected)


@pytest.mark.parametrize(
    ("codec", "within"),
    [
        ("int4/32+flatten", 0.0),
        ("int4/32+feedback", 0.0),
        ("int4/128+clip:learned", 0.0),
        ("kmeans:16", 0.0),
        ("auto:int6/128+flatten|int5/128+flatten", 0.1),
    ],
)
@pytest.mark.parametrize("shape", [(6000,), (40, 256)])
def test_what_a_site_learns_goes_the_short_way_too(
    codec: str,
    within: float,
    shape: tuple[int, ...],
    run_group: Callable[..., list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The short way gives the bits of the long one where a codec is named; within an error, what is
    allowed, by a codec that flattens once the channels are known."""
    monkeypatch.setenv("TERSUM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TERSUM_TUNE", raising=False)

    def body(group: tersum.Communicator) -> list[np.ndarray]:
        random = np.random.default_rng(7 + group.rank)
        scales = np.exp(np.random.default_rng(6).normal(size=shape[-1]))
        results = []
        # Nothing has measured this plan, so no time speaks for exact.
        plan = "bidirectional_ring" if within else "auto"
        for _ in range(6):
            x = (random.normal(size=shape) * scales).astype(np.float32)
            how: dict[str, Any] = {"codec": codec, "plan": plan, "max_rel_error": within}
            long = group.all_reduce(x, site="long", **how)
            short = np.empty_like(x)
            assert group._core.all_reduce_plain(
                x, short, "sum", codec, plan, 20_000, within, "short"
            )
            other = 1000 * np.roll(x, 1, -1)  # what another site learns stays there
            assert group.all_reduce(other, out=other, site="other", **how) is other
            if within == 0:
                assert np.array_equal(long.view(np.uint32), short.view(np.uint32))
            exact = group.all_reduce(x.astype(np.float64), codec="exact")
            error = np.linalg.norm(short - exact) / np.linalg.norm(exact)
            assert error <= (1.2 * within if within else 0.3)
            results.append(short)
        if within:
            chosen = group.choose(
                *("all_reduce", x.size, "float32", "sum", codec, plan),
                **{"max_rel_error": within, "site": "short", "channels": channels},
            )
            assert ("+flatten" in chosen.codec) == (channels > 0)
        return results

    channels = shape[-1] if len(shape) > 1 else 0
    first, second = run_group(2, body)
    for a, b in zip(first, second, strict=True):
        assert np.array_equal(a.view(np.uint32), b.view(np.uint32))


def test_an_error_of_the_short_way_is_that_of_the_long_one(alone: tersum.Communicator) -> None:
    x = np.ones(64, np.float32)
    for how in (
        {"codec": "int8/128", "max_rel_error": -1.0},
        {"codec": "int4/32+feedback"},
        {"codec": "auto:int8/128"},
        {"codec": "auto", "max_rel_error": float("nan")},
        {"codec": "int8/999", "site": "here"},
    ):
        said = []
        for out in (None, np.empty_like(x)):
            with pytest.raises(tersum.TersumError) as error:
                alone.all_reduce(x, out=out, **how)
            said.append((type(error.value), str(error.value)))
        assert said[0] == said[1]
