"""Scalars under their C names."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core.dtypes import dtype_of_code
from openaclnn.core.status import Status, shown
from openaclnn.core.tensor import Scalar
from openaclnn.runtime.errors import (
    INT32,
    integer,
    is_null,
    null_on_failure,
    refuse,
    returns_status,
)

__all__ = ["aclCreateScalar", "aclDestroyScalar"]

NULL = Status.ACLNN_ERR_PARAM_NULLPTR
INVALID = Status.ACLNN_ERR_PARAM_INVALID


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
    """End a scalar; null is fine."""
    if is_null(scalar):
        return
    if not isinstance(scalar, Scalar) or not scalar.alive:
        got = "a destroyed one" if isinstance(scalar, Scalar) else shown(scalar)
        raise refuse(INVALID, "scalar", "a live scalar", got)
    scalar.alive = False
