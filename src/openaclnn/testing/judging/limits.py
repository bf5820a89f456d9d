"""What the precision standards allow, by the dtype of the output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from openaclnn.core.dtypes import BFLOAT16, COMPLEX64, COMPLEX128, DOUBLE, FLOAT, FLOAT16, DType

__all__ = ["CROSS_CHECK", "LEVELS", "STANDARDS", "Limits", "Tolerance", "limits_of", "real_type"]

STANDARDS = ("mixed", "stat_rel_err", "close", "cosine", "binary", "cross_check")
"""The precision standards by name; the first is the default."""

LEVELS = ("L0", "L1", "L2")
"""The commercial standard's levels, the mildest first."""

CROSS_CHECK = {"L0": (10.0, 2.0, 2.0), "L1": (5.0, 1.5, 1.5), "L2": (2.0, 1.2, 1.2)}
"""By level: how many times the third party's maximum, mean relative and root mean square error are allowed."""


@dataclass(frozen=True)
class Limits:
    """One dtype's row of the standards."""

    rtol: float  # mixed
    atol: float
    limit: float  # the largest absolute error, unless it is 32 ULP or less
    relative: float  # stat_rel_err: the mean; the maximum may be ten times that
    close: float  # close: rtol, and the share of elements beyond
    small: float  # cross_check: below, errors are counted
    small_atol: float


_LIMITS = {
    FLOAT16: Limits(2**-9, 2**-9, 0.1, 2**-10, 1e-3, 2**-11, 2**-16),
    BFLOAT16: Limits(2**-6, 2**-6, 1.0, 2**-7, 1e-3, 2**-8, 2**-16),
    FLOAT: Limits(2**-10, 2**-16, 0.01, 2**-13, 1e-4, 2**-14, 2**-30),
}


def limits_of(dtype: DType) -> Limits:
    """The dtype's row; what the standards have no row for is held to FLOAT's."""
    return _LIMITS.get(real_type(dtype), _LIMITS[FLOAT])


def real_type(dtype: DType) -> DType:
    """The type of a complex number's parts; any other type itself."""
    return {COMPLEX64: FLOAT, COMPLEX128: DOUBLE}.get(dtype, dtype)


@dataclass(frozen=True)
class Tolerance:
    """When an element is as it should be: abs(a - g) <= atol + rtol abs(g), or the same bytes."""

    rtol: float
    atol: float
    exact: bool = False

    def allowed(
        self, size: np.ndarray[Any, Any], out: np.ndarray[Any, Any] | None = None
    ) -> np.ndarray[Any, Any]:
        """The error allowed at these sizes of golden values."""
        return np.asarray(np.add(np.multiply(size, self.rtol, out=out), self.atol, out=out))
