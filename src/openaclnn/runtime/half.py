"""The two FLOAT16 helpers of the host interface. They saturate: no Inf or NaN comes out."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["bits_to_float", "float_to_bits"]

_LARGEST = 65504.0


def float_to_bits(value: float) -> int:
    """The FLOAT16 bits of a FLOAT, to nearest even; NaN and what is too large give 65504."""
    with np.errstate(over="ignore"):
        single = float(np.float32(value))
    if math.isnan(single):
        single = _LARGEST
    # Between 65504 and 65520 rounding would go down anyway, above it would give Inf.
    clipped = min(max(single, -_LARGEST), _LARGEST)
    return int(np.float16(clipped).view(np.uint16))


def bits_to_float(bits: int) -> float:
    """The FLOAT value of FLOAT16 bits; Inf reads as 65536 and NaN as 98304."""
    value = float(np.uint16(bits & 0xFFFF).view(np.float16))
    if math.isnan(value):
        return 98304.0
    if math.isinf(value):
        return math.copysign(65536.0, value)
    return value
