"""Arrays in, arrays out: what callers hand in becomes memory that the core can read and write.

Every array ends up as a C-contiguous, aligned NumPy array in native byte order; bfloat16, which
NumPy cannot name, is viewed as uint16 beside its name. Nothing here touches the network. Thread
safety: pure functions; the objects are used by one call each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tersum import _core
from tersum.errors import InvalidArgumentError, UnsupportedError

#: Element types of collectives, by NumPy's names.
DTYPES = ("float32", "bfloat16", "float16", "float64", "int32", "int64", "uint8")

# By DLPack's numbers, for messages.
_DLPACK_DEVICES = {
    2: "CUDA",
    7: "Vulkan",
    8: "Metal",
    10: "ROCm",
    13: "CUDA managed memory",
    14: "oneAPI",
}
Buffer = npt.NDArray[Any]
# The types whose arrays serve as they are; asking NumPy for a type's name takes microseconds.
_NATIVE = {np.dtype(name): name for name in DTYPES if name != "bfloat16"}


class Source(NamedTuple):
    """An array of the caller's that is read."""

    data: Buffer  # contiguous, aligned; a copy where the caller's was not
    dtype: str  # one of DTYPES
    shape: tuple[int, ...]
    original: object  # as handed in; decides the kind of the result


class Target(NamedTuple):
    """An array that a call writes."""

    data: Buffer  # what the core writes
    shape: tuple[int, ...]
    finish: Callable[[], Any]  # after the end of the call: completes and returns the caller's array


def read_input(x: object, name: str = "x") -> Source:
    """The values of ``x``: without a copy if they are contiguous and aligned.

    InvalidArgumentError for what is no array, UnsupportedError for element types and devices that
    tersum cannot serve; the text says what to do.
    """
    view, dtype = _view(x, name, writable=False)
    return Source(_contiguous(view), dtype, view.shape, x)


def new_output(source: Source, shape: tuple[int, ...]) -> Target:
    """A new array of ``source``'s element type, of the kind the caller uses: a torch tensor for a
    torch tensor, a jax array on the same device for a jax array, a NumPy array otherwise."""
    original = source.original
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(original, torch.Tensor):
        # The device is named: a program may have made a GPU the one that torch takes by default.
        tensor = torch.empty(shape, dtype=original.dtype, device="cpu")
        return Target(_view(tensor, "out", writable=True)[0], shape, lambda: tensor)
    array = _numpy_empty(source, shape)
    data = array.view(np.uint16) if source.dtype == "bfloat16" else array
    if _is_jax(original):
        jax = sys.modules["jax"]
        sharding = original.sharding  # type: ignore[attr-defined]
        return Target(data, shape, lambda: jax.device_put(array, sharding))
    return Target(data, shape, lambda: array)


def read_output(out: object, name: str = "out") -> tuple[Target, str]:
    """An array that the caller wants filled, and its element type; checked as ``given_output``."""
    if _is_jax(out):
        raise InvalidArgumentError(
            f"{name} is a jax array, and those cannot change: pass a NumPy array"
        )
    view, dtype = _view(out, name, writable=True)
    source = Source(view, dtype, view.shape, out)
    return given_output(out, source, view.shape), dtype


def given_output(out: object, source: Source, shape: tuple[int, ...]) -> Target:
    """The caller's ``out``, checked. One that is not contiguous or not aligned is written through a
    temporary, at the end of the call."""
    if _is_jax(out):
        raise InvalidArgumentError(
            "out is a jax array, and those cannot change: leave out= away and take the result"
        )
    view, dtype = _view(out, "out", writable=True)
    if dtype != source.dtype:
        raise InvalidArgumentError(
            f"out has dtype {dtype}, the result has {source.dtype}: pass an out of {source.dtype}"
        )
    if view.shape != shape:
        raise InvalidArgumentError(
            f"out has shape {view.shape}, the result has {shape}: pass an out of that shape"
        )
    if view.flags.c_contiguous and view.flags.aligned:
        return Target(view, shape, lambda: out)
    staged = np.empty(shape, view.dtype)

    def finish() -> object:
        view[...] = staged
        return out

    return Target(staged, shape, finish)


def without_overlap(source: Source, target: Target, *, in_place: bool) -> Source:
    """``source``, copied if the call would overwrite it before it is read. The very same memory is
    left alone where the collective works in place."""
    if not np.may_share_memory(source.data, target.data):
        return source
    if in_place and _address(source.data) == _address(target.data):
        return source
    return source._replace(data=source.data.copy())


def _address(array: Buffer) -> int:
    return int(array.__array_interface__["data"][0])


def _contiguous(view: Buffer) -> Buffer:
    flags = view.flags
    if flags.c_contiguous and flags.aligned:
        return view
    return np.array(view, order="C", copy=True)


def _numpy_empty(source: Source, shape: tuple[int, ...]) -> Buffer:
    if source.dtype != "bfloat16":
        return np.empty(shape, source.dtype)
    if isinstance(source.original, np.ndarray):
        return np.empty(shape, source.original.dtype)
    return np.empty(shape, _bfloat16())


def _bfloat16() -> Any:
    try:
        import ml_dtypes
    except ImportError:
        raise UnsupportedError(
            "a bfloat16 result as a NumPy array needs ml_dtypes (pip install ml_dtypes); "
            "or pass out="
        ) from None
    return np.dtype(ml_dtypes.bfloat16)


def _is_jax(x: object) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.Array)


def _view(x: object, name: str, *, writable: bool) -> tuple[Buffer, str]:
    """A NumPy view of ``x``'s own memory, any strides, and the name of its element type."""
    if isinstance(x, np.ndarray):
        return _view_numpy(x, name, writable=writable)
    _require_concrete(x, name)
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        return _view_dlpack(x, name, writable=writable)
    raise InvalidArgumentError(
        f"{name} must be a NumPy array or a CPU array with __dlpack__ (torch, jax), "
        f"got {type(x).__name__}: wrap it in numpy.asarray"
    )


def _view_numpy(x: Buffer, name: str, *, writable: bool) -> tuple[Buffer, str]:
    dtype = _NATIVE.get(x.dtype)
    if dtype is not None and type(x) is np.ndarray and (x.flags.writeable or not writable):
        return x, dtype
    if isinstance(x, np.ma.MaskedArray):
        raise InvalidArgumentError(
            f"{name} is a masked array, whose mask would be lost: pass {name}.filled(0)"
        )
    dtype = x.dtype.name
    _require_dtype(dtype, name)
    if not x.dtype.isnative:
        raise UnsupportedError(
            f"{name} has {dtype} in foreign byte order: pass "
            f"{name}.astype({name}.dtype.newbyteorder('='))"
        )
    if writable and not x.flags.writeable:
        raise InvalidArgumentError(f"{name} is read-only: pass an array that can be written")
    plain = x if type(x) is np.ndarray else x.view(np.ndarray)
    return (plain.view(np.uint16) if dtype == "bfloat16" else plain), dtype


def _view_dlpack(x: Any, name: str, *, writable: bool) -> tuple[Buffer, str]:
    try:
        kind, index = x.__dlpack_device__()
        if not _core.is_host_memory(int(kind)):
            device = _DLPACK_DEVICES.get(int(kind), f"DLPack device type {int(kind)}")
            raise UnsupportedError(
                f"{name} is in the memory of a device ({device} {index}); these collectives work "
                f"on CPU memory: copy it first ({name}.cpu() in torch, jax.device_get({name}) "
                "in jax)"
            )
        try:
            capsule = x.__dlpack__(max_version=(1, 1))
        except TypeError:  # a producer older than DLPack 1.0
            capsule = x.__dlpack__()
    except (BufferError, RuntimeError, ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f"{name} ({type(x).__name__}) cannot be read through DLPack: {error}"
        ) from error
    try:
        view, dtype = _core.view_dlpack(capsule, writable)
    except TypeError as error:
        raise InvalidArgumentError(f"{name} ({type(x).__name__}) {error}") from None
    except RuntimeError as error:
        what = "is read-only: pass one that can be written" if writable else f"is unusable: {error}"
        raise InvalidArgumentError(f"{name} ({type(x).__name__}) {what}") from None
    if dtype.startswith("dlpack"):  # one of DLPack's own; the producer has a better name for it
        dtype = str(getattr(x, "dtype", dtype))
    _require_dtype(dtype, name)
    return view, dtype


def _require_concrete(x: Any, name: str) -> None:
    """Refuses arrays without memory of their own, with the reason rather than DLPack's."""
    if getattr(x, "requires_grad", False):
        raise InvalidArgumentError(
            f"{name} requires grad, and gradients do not flow through collectives: pass "
            f"{name}.detach()"
        )
    if not _is_jax(x):
        return
    jax = sys.modules["jax"]
    if isinstance(x, jax.core.Tracer):
        raise InvalidArgumentError(
            f"{name} is a traced jax array: inside jit and shard_map use tersum.jax.psum"
        )
    if len(x.devices()) != 1:
        raise InvalidArgumentError(
            f"{name} is spread over {len(x.devices())} devices: pass one part, "
            f"{name}.addressable_data(0), or install tersum.jax"
        )
    x.block_until_ready()


def _require_dtype(dtype: str, name: str) -> None:
    if dtype not in DTYPES:
        raise UnsupportedError(
            f"{name} has dtype {dtype}, which collectives cannot add: convert it to one of "
            f"{', '.join(DTYPES)}"
        )
