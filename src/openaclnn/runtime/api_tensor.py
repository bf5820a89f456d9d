"""The functions of C's names for descriptors: tensors, scalars, arrays of numbers, and lists of tensors or scalars."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from openaclnn.core.dtypes import dtype_of_code
from openaclnn.core.status import Status, shown
from openaclnn.core.tensor import Scalar, Tensor, contiguous_strides, pinned
from openaclnn.runtime import context as contexts
from openaclnn.runtime.errors import (
    INT32,
    INT64,
    integer,
    is_null,
    live,
    null_on_failure,
    refuse,
    returns_status,
    returns_value,
)
from openaclnn.runtime.memory import address, look_at, notify

__all__ = [
    "BoolArray", "FloatArray", "IntArray", "ScalarList", "TensorList", "aclCreateBoolArray", "aclCreateFloatArray",
    "aclCreateIntArray", "aclCreateScalar", "aclCreateScalarList", "aclCreateTensor", "aclCreateTensorList", "aclDestroyBoolArray",
    "aclDestroyFloatArray", "aclDestroyIntArray", "aclDestroyScalar", "aclDestroyScalarList", "aclDestroyTensor",
    "aclDestroyTensorList", "aclGetBoolArraySize", "aclGetDataType", "aclGetFloatArraySize", "aclGetFormat", "aclGetIntArraySize",
    "aclGetRawTensorAddr", "aclGetScalarListSize", "aclGetStorageShape", "aclGetTensorListSize", "aclGetViewOffset",
    "aclGetViewShape", "aclGetViewStrides", "aclInitTensor", "aclSetRawTensorAddr",
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
    """The first element of the storage that a view covers, and the one after its last."""
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
    """Describe a view of device memory; strides and offset count elements, null strides are
    contiguous. A NumPy array may stand for the address: the view then keeps it alive."""
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
    _point_at(tensor, tensorData, "tensorData")
    return tensor


def _point_at(tensor: Tensor, data: Any, argument: str) -> None:
    """Make the view describe an address of the device, or a NumPy array, which it keeps alive."""
    if not isinstance(data, np.ndarray):
        context = contexts.current()
        base = data if type(data) is int and 0 <= data <= INT64[1] else _base(data, argument)
        tensor.device = "cpu" if context is None else context.device.name
        look_at(tensor, base)
        return
    if not data.flags.c_contiguous:
        raise refuse(INVALID, argument, "a contiguous array", f"strides {data.strides}")
    # An array's memory is not tracked, so the view's bounds are checked here.
    low, end = _reach(tensor.shape, tensor.strides, tensor.offset)
    if low < 0 or end * tensor.dtype.itemsize > data.nbytes:
        got = f"elements {low} to {end} of {tensor.dtype}"
        raise refuse(INVALID, argument, f"a view within its {data.nbytes} bytes", got)
    tensor.base = data.ctypes.data
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
    return live(tensor, Tensor, "tensor", "tensor", INVALID, NULL)


F = TypeVar("F", bound=Callable[..., Any])


def _named(function: F, name: str, text: str) -> F:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


aclCreateTensor = null_on_failure(_named(_build, "aclCreateTensor", str(_build.__doc__)))


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
    """Make an existing descriptor describe another view; on failure it stays as it was."""
    target = _checked(tensor)
    fresh = _build(viewDims, dataType, stride, offset, format, storageDims, tensorData)
    for name in Tensor.__slots__:
        setattr(target, name, getattr(fresh, name))
    notify()


@returns_status
def aclDestroyTensor(tensor: Any) -> None:
    """Destroy a descriptor, but not the memory that it describes; null is allowed."""
    if not is_null(tensor):
        _checked(tensor).alive = False


@returns_value(_NO_INTEGERS)
def aclGetViewShape(tensor: Any) -> tuple[int, ...]:
    """The shape of the view, which operators compute with."""
    return _checked(tensor).shape


@returns_value(_NO_INTEGERS)
def aclGetStorageShape(tensor: Any) -> tuple[int, ...]:
    """The shape of the storage."""
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
    """Make the descriptor describe the same view of other memory."""
    target = _checked(tensor)
    if _is_null_pointer(addr):
        raise refuse(NULL, "addr", "an address", "null")
    _point_at(target, addr, "addr")
    notify()


@returns_value(0)
def aclGetRawTensorAddr(tensor: Any) -> int:
    """The address that the offset counts from."""
    return _checked(tensor).base


@null_on_failure
def aclCreateScalar(value: Any, dataType: Any) -> Scalar:
    """One number of a type; rounding to the type happens here."""
    if value is None:
        raise refuse(NULL, "value", "a number", "null")
    dtype = dtype_of_code(integer(dataType, "dataType", INT32, INVALID))
    if not dtype.numpy_name:
        raise refuse(INVALID, "dataType", "a type that scalars can have", f"{dtype} ({dataType})")
    number = value.item() if isinstance(value, np.ndarray) and value.size == 1 else value
    if not isinstance(number, (bool, int, float, complex, np.generic)):
        raise refuse(INVALID, "value", "a number", repr(value))
    try:
        if isinstance(number, (complex, np.complexfloating)) and dtype.kind != "complex":
            raise TypeError("a complex number")
        with np.errstate(over="ignore"):
            return Scalar(number, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise refuse(INVALID, "value", f"a number for {dtype}", f"{value!r}: {error}") from None


@returns_status
def aclDestroyScalar(scalar: Any) -> None:
    """Destroy a scalar; null is allowed."""
    if is_null(scalar):
        return
    if not isinstance(scalar, Scalar) or not scalar.alive:
        got = "a destroyed one" if isinstance(scalar, Scalar) else shown(scalar)
        raise refuse(INVALID, "scalar", "a live scalar", got)
    scalar.alive = False


class _Sequence:
    """An array of `values`, which never change until the handle is destroyed."""

    __slots__ = ("alive", "values")
    c_name: ClassVar[str]

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values
        self.alive = True

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.values)})"


class IntArray(_Sequence):
    """`aclIntArray`: 64-bit integers."""

    c_name = "aclIntArray"


class FloatArray(_Sequence):
    """`aclFloatArray`: numbers rounded to FLOAT."""

    c_name = "aclFloatArray"


class BoolArray(_Sequence):
    """`aclBoolArray`."""

    c_name = "aclBoolArray"


class TensorList(_Sequence):
    """`aclTensorList`; destroying it destroys its tensors."""

    c_name = "aclTensorList"


class ScalarList(_Sequence):
    """`aclScalarList`; destroying it destroys its scalars."""

    c_name = "aclScalarList"


S = TypeVar("S", bound=_Sequence)


def _int(value: Any, argument: str) -> int:
    return integer(value, argument, INT64, INVALID)


def _float(value: Any, argument: str) -> float:
    try:
        with np.errstate(over="ignore"):
            return float(np.float32(float(value)))
    except (TypeError, ValueError, OverflowError):
        raise refuse(INVALID, argument, "a number", repr(value)) from None


def _bool(value: Any, argument: str) -> bool:
    if not isinstance(value, (bool, int, np.bool_, np.integer)):
        raise refuse(INVALID, argument, "a truth value", repr(value))
    return bool(value)


def _member(kind: type[Any]) -> Callable[[Any, str], Any]:
    def convert(value: Any, argument: str) -> Any:
        if value is None:
            raise refuse(NULL, argument, f"an {kind.c_name}", "null")
        return live(value, kind, kind.c_name, argument, INVALID)

    return convert


def _create(
    kind: type[S], convert: Callable[[Any, str], Any], text: str
) -> Callable[[Any], S | None]:
    """`aclCreate...`: a copy of a sequence of values."""

    def create(value: Any) -> S:
        if value is None:
            raise refuse(NULL, "value", "a sequence", "null")
        try:
            items = tuple(value)
        except TypeError:
            raise refuse(INVALID, "value", "a sequence", repr(value)) from None
        return kind(tuple(convert(item, f"value[{i}]") for i, item in enumerate(items)))

    create.__annotations__["return"] = kind.__name__
    return null_on_failure(_named(create, f"aclCreate{kind.__name__}", text))


def _destroy(kind: type[_Sequence], text: str) -> Callable[[Any], int]:
    """`aclDestroy...`: null is allowed."""

    def destroy(array: Any) -> None:
        if is_null(array):
            return
        checked = _checked_array(kind, array)
        checked.alive = False
        if kind in (TensorList, ScalarList):
            for member in checked.values:
                member.alive = False

    return returns_status(_named(destroy, f"aclDestroy{kind.__name__}", text))


def _size(kind: type[_Sequence], text: str) -> Callable[[Any], tuple[int, int]]:
    """`aclGet...Size`."""

    def size(array: Any) -> int:
        return len(_checked_array(kind, array))

    return returns_value(0)(_named(size, f"aclGet{kind.__name__}Size", text))


def _checked_array(kind: type[S], array: Any) -> S:
    return live(array, kind, kind.c_name, "array", INVALID, NULL)


aclCreateIntArray = _create(IntArray, _int, "An array of 64-bit integers, copied.")
aclCreateFloatArray = _create(FloatArray, _float, "An array of FLOAT numbers, copied.")
aclCreateBoolArray = _create(BoolArray, _bool, "An array of truth values, copied.")
aclCreateTensorList = _create(TensorList, _member(Tensor), "A list that takes over its tensors.")
aclCreateScalarList = _create(ScalarList, _member(Scalar), "A list that takes over its scalars.")
aclDestroyIntArray = _destroy(IntArray, "End an array; null is fine.")
aclDestroyFloatArray = _destroy(FloatArray, "End an array; null is fine.")
aclDestroyBoolArray = _destroy(BoolArray, "End an array; null is fine.")
aclDestroyTensorList = _destroy(TensorList, "End a list and its tensors; null is fine.")
aclDestroyScalarList = _destroy(ScalarList, "End a list and its scalars; null is fine.")
aclGetIntArraySize = _size(IntArray, "How many values the array has.")
aclGetFloatArraySize = _size(FloatArray, "How many values the array has.")
aclGetBoolArraySize = _size(BoolArray, "How many values the array has.")
aclGetTensorListSize = _size(TensorList, "How many tensors the list has.")
aclGetScalarListSize = _size(ScalarList, "How many scalars the list has.")
