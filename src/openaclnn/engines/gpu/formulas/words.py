# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""The words of formulas in Triton, with the meaning that `formulas/words.py` gives them.

PRECISE asks for results that FLOAT cannot tell from the exact ones but for 3 units in the last place;
without it they are right to 16 bits. Contraction is off where formulas run, so it is written where it counts.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

__all__ = ["WORDS", "divide", "exp"]

LOG2_E = tl.constexpr(1.4426950408889634)
MINUS_LN2_HIGH = tl.constexpr(-0.693359375)  # 355/512: times an exponent it is exact in float32
MINUS_LN2_LOW = tl.constexpr(2.12194440054690583e-4)


@triton.jit
def where(condition, yes, no):
    return tl.where(condition, yes, no)


@triton.jit
def exp(x, PRECISE: tl.constexpr):
    """The hardware's exp2(x * log2 e) loses |x| ulps, which only FLOAT results can show."""
    if PRECISE:
        # x = n ln 2 + r with |r| < 0.35, or what is left where 2^n would leave the normal range.
        n = tl.floor(tl.fma(x, LOG2_E, 0.5))
        n = tl.minimum(tl.maximum(n, -126.0), 127.0)
        r = tl.fma(n, MINUS_LN2_LOW, tl.fma(n, MINUS_LN2_HIGH, x))
        power = ((n.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)
        result = tl.exp2(r * LOG2_E) * power
    else:
        result = tl.exp(x)
    return result


@triton.jit
def scaled_exp(multiplier, factor, x, PRECISE: tl.constexpr):
    if PRECISE:
        # As in exp; n * LN2_HIGH is exact, so factor * x is rounded only after most of it has cancelled. The multiplier stands
        # between the halves of 2^n, so that no digit is lost where exp itself is subnormal, or vanishes.
        n = tl.floor(tl.fma(x * factor, LOG2_E, 0.5))
        n = tl.minimum(tl.maximum(n, -252.0), 252.0)
        r = tl.fma(n, MINUS_LN2_LOW, tl.fma(x, factor, n * MINUS_LN2_HIGH))
        whole = n.to(tl.int32)
        half = whole >> 1
        first = ((half + 127) << 23).to(tl.float32, bitcast=True)
        second = ((whole - half + 127) << 23).to(tl.float32, bitcast=True)
        result = multiplier * first * tl.exp2(r * LOG2_E) * second
    else:
        result = multiplier * tl.exp(x * factor)
    return result


@triton.jit
def expm1(x):
    one = tl.full((), 1.0, tl.float32)
    return scaled_expm1(one, one, x)


@triton.jit
def scaled_expm1(multiplier, factor, x):
    """2^n (exp(r) - 1) + (2^n - 1) with factor * x = n ln 2 + r; half of it fits where 2^n does not."""
    exponent = x * factor
    within = tl.minimum(tl.maximum(exponent, -60.0), 89.0)
    n = tl.floor(tl.fma(within, LOG2_E, 0.5))
    # What is beyond the bounds comes to them by its own rounded product.
    r = tl.where(
        within == exponent, tl.fma(x, factor, n * MINUS_LN2_HIGH), tl.fma(n, MINUS_LN2_HIGH, within)
    )
    r = tl.fma(n, MINUS_LN2_LOW, r)
    half = ((n.to(tl.int32) + 126) << 23).to(tl.float32, bitcast=True)
    ratio = tl.fma(r, 1.9899586914e-4, 1.3933883747e-3)
    ratio = tl.fma(ratio, r, 8.3332983777e-3)
    ratio = tl.fma(ratio, r, 4.1666463017e-2)
    ratio = tl.fma(ratio, r, 1.6666667163e-1)
    ratio = tl.fma(ratio, r, 0.5)
    result = tl.fma(half, tl.fma(r * r, ratio, r), half - 0.5) * 2.0 * multiplier
    # So small an exponent is its own result, by one product if it is none that overflows; and NaN is not within.
    product = multiplier * factor
    fits = (tl.abs(product) >= 1.1754943508222875e-38) & (tl.abs(product) < float("inf"))
    linear = x * tl.where(fits, product, factor) * tl.where(fits, 1.0, multiplier)
    small = (tl.abs(exponent) < 1.4901161193847656e-08) | (exponent != exponent)
    return tl.where(small, linear, result)


@triton.jit
def log(x):
    """The hardware's takes subnormal numbers for 0: they are raised by 2^24 before, lowered after."""
    tiny = tl.abs(x) < 1.1754943508222875e-38
    result = tl.log(tl.where(tiny, x * 16777216.0, x))
    return tl.where(tiny, result - 16.635532333438686, result)


@triton.jit
def log1p(x):
    above = 1.0 + x
    kept = above - 1.0
    # What the sum lost, to first order; nothing for -1 and infinity, whose quotient would be NaN.
    lost = tl.where(kept == x, 0.0, tl.div_rn(x - kept, above))
    return tl.where(above == 1.0, x, tl.log(above) + lost)


@triton.jit
def sqrt(x):
    return tl.sqrt_rn(x)


@triton.jit
def tanh(x, PRECISE: tl.constexpr):
    size = tl.abs(x)
    far = 1.0 - tl.div_rn(2.0, exp(size * 2.0, PRECISE) + 1.0)
    # Near 0 the difference loses digits: tanh(x) / x as a polynomial of x^2, fitted up to 0.7.
    square = x * x
    ratio = tl.fma(square, -0.005584375932812691, 0.02060295268893242)
    ratio = tl.fma(ratio, square, -0.0537576749920845)
    ratio = tl.fma(ratio, square, 0.13332080841064453)
    ratio = tl.fma(ratio, square, -0.33333322405815125)
    near = x * tl.fma(ratio, square, 1.0)
    return tl.where(size < 0.7, near, tl.where(x < 0, far * -1.0, far))


@triton.jit
def fma(x, y, z):
    return tl.fma(x, y, z)


@triton.jit
def abs(x):
    return tl.abs(x)


@triton.jit
def sign(x):
    tie = tl.where(x == 0, 0.0, x)  # NaN stays, -0 does not
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, tie))


@triton.jit
def minimum(x, y):
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def maximum(x, y):
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def divide(x, y):
    """IEEE division; Triton's own is off by 2 ulps."""
    return tl.div_rn(x, y)


WORDS: dict[str, Any] = {
    "where": where, "fma": fma, "exp": exp, "expm1": expm1, "scaled_exp": scaled_exp, "scaled_expm1": scaled_expm1, "log": log, "log1p": log1p, "sqrt": sqrt, "tanh": tanh,
    "abs": abs, "sign": sign, "minimum": minimum, "maximum": maximum,
}  # fmt: skip
