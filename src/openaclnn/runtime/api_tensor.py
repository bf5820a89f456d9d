"""Tensor descriptors under their C names."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from openaclnn.core.dtypes import dtype_of_code
from openaclnn.core.status import Status, shown
from openaclnn.core.tensor import Tensor, contiguous_strides, pinned
from openaclnn.runtime import context as contexts
from openaclnn.runtime.errors import (
    INT32,
    INT64,
    integer,
    is_null,
    null_on_failure,
    refuse,
    returns_status,
    returns_value,
)
from openaclnn.runtime.memory import look_at, notify
from openaclnn.runtime.pointers import address

__all__ = [
    "aclCreateTensor", "aclDestroyTensor",
    "aclGetDataType", "aclGetFormat", "aclGetRawTensorAddr", "aclGetStorageShape",
    "aclGetViewOffset", "aclGetViewShape", "aclGetViewStrides", "aclInitTensor",
    "aclSetRawTensorAddr",
]  # fmt: skip

NULL = Status.ACLNN_ERR_PARAM_NULLPTR
INVALID = Status.ACLNN_ERR_PARAM_INVALID
_NO_INTEGERS: tuple[int, ...] = ()
_PLAIN = frozenset((int,))


def _integers(values: Any, argument: str, low: int) -> tuple[int, ...]:
    try:
        items = tuple(values)
    except TypeError:
        raise refuse(INVALID, argument, "a sequence of integers", repr(values)) from None
    if _PLAIN.issuperset(map(type, items)) and (
        not items or (low <= min(items) and max(items) <= INT64[1])
    ):
        return items
    return tuple(
        integer(value, f"{argument}[{i}]", (low, INT64[1]), INVALID)
        for i, value in enumerate(items)
    )


def _reach(shape: Sequence[int], strides: Sequence[int], offset: int) -> tuple[int, int]:
    """The first and one past the last element of the storage that a view touches."""
    if 0 in shape:
        return 0, 0
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    low = offset + sum(step for step in steps if step < 0)
    return low, offset + sum(step for step in steps if step > 0) + 1


def _build(
    viewDims: Any,
    dataType: Any,
    stride: Any,
    offset: Any,
    format: Any,
    storageDims: Any,
    tensorData: Any,
) -> Tensor:
    shape = () if viewDims is None else _integers(viewDims, "viewDims", 0)
    dtype = dtype_of_code(integer(dataType, "dataType", INT32, INVALID))
    row_major = strides = contiguous_strides(shape)
    if stride is not None:
        strides = _integers(stride, "stride", INT64[0])
        if len(strides) != len(shape):
            raise refuse(INVALID, "stride", f"{len(shape)} entries, as viewDims", len(strides))
    start = integer(offset, "offset", INT64, INVALID)
    layout = integer(format, "format", INT32, INVALID)
    storage = None if storageDims is None else _integers(storageDims, "storageDims", 0)
    count, in_storage = math.prod(shape), math.prod(storage or ())
    dense = strides == row_major
    low, end = (start, start + count) if dense and count else _reach(shape, strides, start)
    if max(count, in_storage, -low, end, *strides) * max(dtype.itemsize, 1) > INT64[1]:
        raise refuse(INVALID, "viewDims", "a view within 64-bit offsets", f"{shape} by {strides}")
    tensor = Tensor(shape, dtype, None if dense else strides, start, layout, storage)
    _place(tensor, tensorData, "tensorData")
    return tensor


def _place(tensor: Tensor, data: Any, argument: str) -> None:
    """Let the view look at an address of the device, or at a NumPy array, which it keeps alive."""
    if not isinstance(data, np.ndarray):
        context = contexts.current()
        base = data if type(data) is int and 0 <= data <= INT64[1] else _base(data, argument)
        tensor.device = "cpu" if context is None else context.device.name
        look_at(tensor, base)
        return
    if not data.flags.c_contiguous:
        raise refuse(INVALID, argument, "a contiguous array", f"strides {data.strides}")
    # Memory of an array is not tracked, so that this is where the view's bounds are checked.
    low, end = _reach(tensor.shape, tensor.strides, tensor.offset)
    if low < 0 or end * tensor.dtype.itemsize > data.nbytes:
        got = f"elements {low} to {end} of {tensor.dtype}"
        raise refuse(INVALID, argument, f"a view within its {data.nbytes} bytes", got)
    tensor.base = data.__array_interface__["data"][0]
    tensor.owner, tensor.pin = pinned(data)
    tensor.raw, tensor.writable = False, bool(data.flags.writeable)
    tensor.device = "cpu"


def _base(data: Any, argument: str) -> int:
    return 0 if _is_null_pointer(data) else _address(data, argument)


def _is_null_pointer(data: Any) -> bool:
    return is_null(data.value if isinstance(data, ctypes.c_void_p) else data)


def _address(data: Any, argument: str) -> int:
    try:
        return address(data, argument)
    except Exception:
        raise refuse(INVALID, argument, "an address or an array", repr(data)) from None


def _checked(tensor: Any) -> Tensor:
    if is_null(tensor):
        raise refuse(NULL, "tensor", "a tensor", "null")
    if not isinstance(tensor, Tensor):
        raise refuse(INVALID, "tensor", "a tensor", shown(tensor))
    if not tensor.alive:
        raise refuse(INVALID, "tensor", "a live tensor", "a destroyed one")
    return tensor


@null_on_failure
def aclCreateTensor(
    viewDims: Any,
    dataType: Any,
    stride: Any,
    offset: Any,
    format: Any,
    storageDims: Any,
    tensorData: Any,
) -> Tensor:
    """Describe a view of device memory; strides and offset count elements, null strides are
    contiguous. A NumPy array may stand for the address: the view then keeps it alive."""
    return _build(viewDims, dataType, stride, offset, format, storageDims, tensorData)


@returns_status
def aclInitTensor(
    tensor: Any,
    viewDims: Any,
    dataType: Any,
    stride: Any,
    offset: Any,
    format: Any,
    storageDims: Any,
    tensorData: Any,
) -> None:
    """Describe another view with an existing descriptor, which is left as it was on failure."""
    target = _checked(tensor)
    fresh = _build(viewDims, dataType, stride, offset, format, storageDims, tensorData)
    for name in Tensor.__slots__:
        setattr(target, name, getattr(fresh, name))
    notify()


@returns_status
def aclDestroyTensor(tensor: Any) -> None:
    """End a descriptor, never the memory it describes; null is fine."""
    if not is_null(tensor):
        _checked(tensor).alive = False


@returns_value(_NO_INTEGERS)
def aclGetViewShape(tensor: Any) -> tuple[int, ...]:
    """The shape that operators see."""
    return _checked(tensor).shape


@returns_value(_NO_INTEGERS)
def aclGetStorageShape(tensor: Any) -> tuple[int, ...]:
    """The shape in memory."""
    return _checked(tensor).storage_shape


@returns_value(_NO_INTEGERS)
def aclGetViewStrides(tensor: Any) -> tuple[int, ...]:
    """The strides, in elements."""
    return _checked(tensor).strides


@returns_value(0)
def aclGetViewOffset(tensor: Any) -> int:
    """The offset of the first element, in elements."""
    return _checked(tensor).offset


@returns_value(-1)
def aclGetFormat(tensor: Any) -> int:
    """The `aclFormat` value."""
    return int(_checked(tensor).format)


@returns_value(-1)
def aclGetDataType(tensor: Any) -> int:
    """The `aclDataType` value."""
    return _checked(tensor).dtype.code


@returns_status
def aclSetRawTensorAddr(tensor: Any, addr: Any) -> None:
    """Let the descriptor describe the same view of other memory."""
    target = _checked(tensor)
    if _is_null_pointer(addr):
        raise refuse(NULL, "addr", "an address", "null")
    _place(target, addr, "addr")
    notify()


@returns_value(0)
def aclGetRawTensorAddr(tensor: Any) -> int:
    """The address that the offset counts from."""
    return _checked(tensor).base
