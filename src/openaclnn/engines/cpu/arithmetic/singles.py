"""log(1 + x) in FLOAT, of vectors: what is computed once a pixel."""

from __future__ import annotations

import math

from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value, fma

__all__ = ["log1p_32"]

HALF_ROOT_BITS = 0x3F3504F3  # of sqrt(1/2)
LN2_HIGH, LN2_LOW = 0.6931381225585938, 9.05800061445916e-06  # the first exact times an exponent
# Minimax for log((1 + s) / (1 - s)) / s - 2 in s * s, s up to 3 - 2 sqrt(2).
SERIES = (0.6666666269, 0.4000097215, 0.2849878669, 0.2427907884)


def log1p_32(code: Code, x: Value) -> Value:
    """log(1 + x) for x from 0 on, to an ulp; infinity and NaN give themselves."""
    above = x + 1.0
    near = above < math.sqrt(2)
    # 1 + x = 2^n (1 + f), f between sqrt(1/2) - 1 and sqrt(2) - 1; where n is 0, f is x itself with all its digits.
    bits = above.bits_as("i32") - HALF_ROOT_BITS
    n = near.choose(0.0, bits.shifted_down(23).to("f32"))
    f = ((bits & ((1 << 23) - 1)) + HALF_ROOT_BITS).bits_as("f32") - 1.0
    f = near.choose(x, f)
    lost = near.choose(0.0, (x - (above - 1.0)) / above)
    s = f / (f + 2.0)
    square, half = s * s, f * f * 0.5
    series = code.single(SERIES[-1]).splat(x.lanes)
    for term in reversed(SERIES[:-1]):
        series = fma(series, square, term)
    small = fma(s, fma(series, square, half), fma(n, LN2_LOW, lost))
    result = fma(n, LN2_HIGH, (small - half) + f)
    return (x < float("inf")).choose(result, x)
