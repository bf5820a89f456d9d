"""DLPack's descriptors, read in place: NumPy's own reader has no bfloat16 and no device memory."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

from openaclnn.core.dtypes import (
    BFLOAT16,
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DType,
)
from openaclnn.core.tensor import Tensor

__all__ = ["PRODUCER_ERRORS", "device_name", "from_dlpack"]

PRODUCER_ERRORS = (
    ArithmeticError, AttributeError, BufferError, LookupError, ReferenceError, RuntimeError, ValueError,
)  # fmt: skip
"""What broken arrays raise. Other exceptions may be a signal handler's, and go their way."""


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _VersionedTensor(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_DLPACK_DTYPES: dict[tuple[int, int], DType] = {
    (0, 8): INT8, (0, 16): INT16, (0, 32): INT32, (0, 64): INT64,
    (1, 8): UINT8, (1, 16): UINT16, (1, 32): UINT32, (1, 64): UINT64,
    (2, 16): FLOAT16, (2, 32): FLOAT, (2, 64): DOUBLE, (4, 16): BFLOAT16,
    (5, 64): COMPLEX64, (5, 128): COMPLEX128, (6, 8): BOOL,
}  # fmt: skip
_DLPACK_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 10: "rocm", 13: "cuda"}
_READ_ONLY = 1
# Functions of our own: the interpreter's are shared with all who tell `ctypes` other types.
_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
MOST_AXES = 64  # that any library has


@functools.cache
def device_name(kind: str, index: int) -> str:
    """A device as `Tensor` names it, one string for each."""
    return "cpu" if kind == "cpu" else sys.intern(f"{kind}:{index}")


def from_dlpack(value: Any, stream: int) -> Tensor:
    """View an array through its descriptor; `stream` is where we read it, if it lies on a GPU."""
    try:
        return _read(value, stream)
    except PRODUCER_ERRORS as error:
        kind = type(value).__name__
        raise TypeError(f"an array that DLPack describes, got a {kind}: {error}") from None


def _read(value: Any, stream: int) -> Tensor:
    capsule = _exported(value, stream)
    view, writable = _descriptor(capsule)
    if not 0 <= view.ndim <= MOST_AXES:
        raise ValueError(f"{view.ndim} dimensions")
    dtype = _DLPACK_DTYPES.get((view.code, view.bits))
    if dtype is None or view.lanes != 1:
        raise TypeError(
            f"an array of a dtype the interface has, got DLPack type {view.code}, {view.bits} bits"
        )
    device = _DLPACK_DEVICES.get(view.device_type)
    if device is None:
        raise TypeError(f"an array in CPU or GPU memory, got DLPack device {view.device_type}")
    shape = tuple(view.shape[axis] for axis in range(view.ndim))
    strides = tuple(view.strides[axis] for axis in range(view.ndim)) if view.strides else None
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}")
    if not view.data and 0 not in shape:
        raise TypeError(f"an array with data, got a {type(value).__name__} at a null address")
    return Tensor(
        shape,
        dtype,
        strides,
        base=(view.data or 0) + view.byte_offset,
        owner=(capsule, value),
        device=device_name(device, view.device_id),
        writable=writable,
    )


def _exported(value: Any, stream: int) -> Any:
    """The capsule that an array describes itself in."""
    device_type, _ = value.__dlpack_device__()
    options: dict[str, Any] = {} if device_type in (1, 3) else {"stream": stream}
    try:
        return value.__dlpack__(max_version=(1, 0), **options)
    except TypeError:  # a producer older than DLPack 1.0
        return value.__dlpack__(**options)


def _descriptor(capsule: Any) -> tuple[_DLTensor, bool]:
    """What lies in a capsule, and whether the memory may be written, which a descriptor without a version cannot promise."""
    name = _name_of(capsule)
    if name not in (b"dltensor", b"dltensor_versioned"):
        raise ValueError(f"a capsule called {name!r}")
    pointer = _pointer_in(capsule, name)
    if name == b"dltensor":
        return _DLTensor.from_address(pointer), False
    managed = _VersionedTensor.from_address(pointer)
    if managed.major != 1:
        raise ValueError(f"version {managed.major} of DLPack")
    return managed.tensor, not managed.flags & _READ_ONLY
