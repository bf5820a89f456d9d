"""Arrays of numbers and lists of tensors or scalars, under their C names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np

from openaclnn.core.status import Status, shown
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.runtime.errors import (
    INT64,
    integer,
    is_null,
    null_on_failure,
    refuse,
    returns_status,
    returns_value,
)

__all__ = [
    "BoolArray", "FloatArray", "IntArray", "ScalarList", "TensorList", "aclCreateBoolArray",
    "aclCreateFloatArray", "aclCreateIntArray", "aclCreateScalarList", "aclCreateTensorList",
    "aclDestroyBoolArray", "aclDestroyFloatArray", "aclDestroyIntArray", "aclDestroyScalarList",
    "aclDestroyTensorList", "aclGetBoolArraySize", "aclGetFloatArraySize", "aclGetIntArraySize",
    "aclGetScalarListSize", "aclGetTensorListSize",
]  # fmt: skip

_NULL = Status.ACLNN_ERR_PARAM_NULLPTR
_INVALID = Status.ACLNN_ERR_PARAM_INVALID


class _Sequence:
    """`values`, which never change, until the handle is destroyed."""

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


def _create(kind: type[S], values: Any, convert: Callable[[Any, str], Any]) -> S:
    if values is None:
        raise refuse(_NULL, "value", "a sequence", "null")
    try:
        items = tuple(values)
    except TypeError:
        raise refuse(_INVALID, "value", "a sequence", repr(values)) from None
    return kind(tuple(convert(item, f"value[{i}]") for i, item in enumerate(items)))


def _checked(kind: type[S], array: Any) -> S:
    if is_null(array):
        raise refuse(_NULL, "array", f"an {kind.c_name}", "null")
    if not isinstance(array, kind):
        raise refuse(_INVALID, "array", f"an {kind.c_name}", shown(array))
    if not array.alive:
        raise refuse(_INVALID, "array", f"a live {kind.c_name}", "a destroyed one")
    return array


def _destroy(kind: type[S], array: Any) -> None:
    if is_null(array):
        return
    checked = _checked(kind, array)
    checked.alive = False
    if isinstance(checked, (TensorList, ScalarList)):
        for member in checked.values:
            member.alive = False


def _int(value: Any, argument: str) -> int:
    return integer(value, argument, INT64, _INVALID)


def _float(value: Any, argument: str) -> float:
    try:
        with np.errstate(over="ignore"):
            return float(np.float32(float(value)))
    except (TypeError, ValueError, OverflowError):
        raise refuse(_INVALID, argument, "a number", repr(value)) from None


def _bool(value: Any, argument: str) -> bool:
    if not isinstance(value, (bool, int, np.bool_, np.integer)):
        raise refuse(_INVALID, argument, "a truth value", repr(value))
    return bool(value)


def _member(kind: type[Any]) -> Callable[[Any, str], Any]:
    def convert(value: Any, argument: str) -> Any:
        if value is None:
            raise refuse(_NULL, argument, f"an {kind.c_name}", "null")
        if not isinstance(value, kind):
            raise refuse(_INVALID, argument, f"an {kind.c_name}", shown(value))
        if not value.alive:
            raise refuse(_INVALID, argument, f"a live {kind.c_name}", "a destroyed one")
        return value

    return convert


@null_on_failure
def aclCreateIntArray(value: Any) -> IntArray:
    """An array of 64-bit integers, copied."""
    return _create(IntArray, value, _int)


@null_on_failure
def aclCreateFloatArray(value: Any) -> FloatArray:
    """An array of FLOAT numbers, copied."""
    return _create(FloatArray, value, _float)


@null_on_failure
def aclCreateBoolArray(value: Any) -> BoolArray:
    """An array of truth values, copied."""
    return _create(BoolArray, value, _bool)


@null_on_failure
def aclCreateTensorList(value: Any) -> TensorList:
    """A list that takes over its tensors."""
    return _create(TensorList, value, _member(Tensor))


@null_on_failure
def aclCreateScalarList(value: Any) -> ScalarList:
    """A list that takes over its scalars."""
    return _create(ScalarList, value, _member(Scalar))


@returns_status
def aclDestroyIntArray(array: Any) -> None:
    """End an array; null is fine."""
    _destroy(IntArray, array)


@returns_status
def aclDestroyFloatArray(array: Any) -> None:
    """End an array; null is fine."""
    _destroy(FloatArray, array)


@returns_status
def aclDestroyBoolArray(array: Any) -> None:
    """End an array; null is fine."""
    _destroy(BoolArray, array)


@returns_status
def aclDestroyTensorList(array: Any) -> None:
    """End a list and its tensors; null is fine."""
    _destroy(TensorList, array)


@returns_status
def aclDestroyScalarList(array: Any) -> None:
    """End a list and its scalars; null is fine."""
    _destroy(ScalarList, array)


@returns_value(0)
def aclGetIntArraySize(array: Any) -> int:
    """How many values the array has."""
    return len(_checked(IntArray, array))


@returns_value(0)
def aclGetFloatArraySize(array: Any) -> int:
    """How many values the array has."""
    return len(_checked(FloatArray, array))


@returns_value(0)
def aclGetBoolArraySize(array: Any) -> int:
    """How many values the array has."""
    return len(_checked(BoolArray, array))


@returns_value(0)
def aclGetTensorListSize(array: Any) -> int:
    """How many tensors the list has."""
    return len(_checked(TensorList, array))


@returns_value(0)
def aclGetScalarListSize(array: Any) -> int:
    """How many scalars the list has."""
    return len(_checked(ScalarList, array))
