"""Arrays beside a real GPU: page-locked memory serves, a GPU's is refused with the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tersum

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU here", allow_module_level=True)


@pytest.fixture
def gpu_by_default() -> Iterator[None]:
    torch.set_default_device("cuda")
    yield
    torch.set_default_device(None)


@pytest.mark.parametrize("codec", ["exact", "int8/128", "int4/32+hadamard"])
@pytest.mark.parametrize("count", [1, 1000, 1_000_003])
def test_pinned_tensors_are_summed_where_they_are(run_group: Any, codec: str, count: int) -> None:
    def body(group: tersum.Communicator) -> Any:
        x = torch.linspace(-1, 1, count) * (group.rank + 1)
        pageable = group.all_reduce(x, codec=codec)
        pinned = x.pin_memory()
        address = pinned.data_ptr()
        assert group.all_reduce(pinned, codec=codec, out=pinned) is pinned
        assert pinned.is_pinned() and pinned.data_ptr() == address
        return pageable, pinned

    for pageable, pinned in run_group(3, body):
        assert torch.equal(pageable, pinned)


def test_results_of_pinned_tensors_are_cpu_tensors(run_group: Any) -> None:
    def body(group: tersum.Communicator) -> Any:
        return group.all_reduce(torch.ones(100).pin_memory(), codec="exact")

    for result in run_group(2, body):
        assert result.device.type == "cpu" and torch.equal(result, torch.full((100,), 2.0))


def test_gpu_tensors_go_there_and_back(run_group: Any) -> None:
    def body(group: tersum.Communicator) -> Any:
        x = torch.full((1000,), group.rank + 1.0, device="cuda")
        return group.all_reduce(x.cpu(), codec="exact").cuda()

    for result in run_group(2, body):
        assert result.is_cuda and torch.equal(result.cpu(), torch.full((1000,), 3.0))


@pytest.mark.usefixtures("gpu_by_default")
def test_results_are_in_cpu_memory_where_a_gpu_is_the_default(
    alone: tersum.Communicator,
) -> None:
    x = torch.ones(3, device="cpu")
    result = alone.all_reduce(x, codec="exact")
    assert result.device.type == "cpu" and torch.equal(result, x)


@pytest.mark.parametrize("as_out", [False, True])
def test_gpu_tensors_are_refused_with_the_remedy(alone: tersum.Communicator, as_out: bool) -> None:
    x = torch.ones(3, device="cuda")
    with pytest.raises(tersum.UnsupportedError, match=r"CUDA 0.*\.cpu\(\)"):
        alone.all_reduce(torch.ones(3) if as_out else x, out=x if as_out else None)


def test_cupy_arrays_are_refused_with_the_remedy(alone: tersum.Communicator) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    with pytest.raises(tersum.UnsupportedError, match="CUDA 0"):
        alone.all_reduce(cupy.ones(3))


def test_jax_gpu_arrays_are_refused_with_the_remedy(alone: tersum.Communicator) -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip("jax sees no GPU here")
    x = jax.numpy.ones(3)
    with pytest.raises(tersum.UnsupportedError, match=r"CUDA 0.*jax\.device_get\(x\)"):
        alone.all_reduce(x)
    np.testing.assert_array_equal(alone.all_reduce(jax.device_get(x)), np.ones(3))
