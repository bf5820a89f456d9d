# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""The words of formulas in Triton, with the meaning that `formulas/words.py` gives them.

PRECISE asks for FLOAT results within 1 ulp, 2 where the meaning says so; without it they are right to 16 bits, and the hardware's
approximations are enough. Contraction is off where formulas run, so it is written where it counts.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

__all__ = ["WORDS", "divide", "hardware_exp"]

LOG2_E = tl.constexpr(1.4426950408889634)
MINUS_LN2_HIGH = tl.constexpr(
    -0.693145751953125
)  # 16 bits: times an exponent it is exact in float32
MINUS_LN2_LOW = tl.constexpr(-1.428606765330187e-06)
ROUNDER = tl.constexpr(
    12582912.0
)  # 1.5 * 2^23: adding it rounds to an integer, which then lies in the low bits
INFINITY = tl.constexpr(float("inf"))
TINY = tl.constexpr(1.1754943508222875e-38)  # the smallest normal FLOAT
HALF_ROOT_BITS = tl.constexpr(0x3F3504F3)  # of sqrt(1/2)


@triton.jit
def where(condition, yes, no):
    return tl.where(condition, yes, no)


@triton.jit
def _least(x, y):
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _most(x, y):
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _rest(x, rest):
    """What a rounding left of x; nothing where that is infinite."""
    return tl.where(tl.abs(x) < 3e38, rest, 0.0)


@triton.jit
def _reduced(x, rest, BIAS: tl.constexpr):
    """x + rest = n ln 2 + r: n + BIAS in the low bits of an integer, r, and exp(r) - 1 - r."""
    shifted = tl.fma(x, LOG2_E, ROUNDER + BIAS)
    n = shifted - (ROUNDER + BIAS)
    head = tl.fma(n, MINUS_LN2_HIGH, x)
    if rest is None:
        tail = n * MINUS_LN2_LOW
    else:
        tail = tl.fma(n, MINUS_LN2_LOW, rest)
    r = head + tail
    curve = tl.fma(r, 0.0013820742024108768, 0.008369248360395432)
    curve = tl.fma(curve, r, 0.041668280959129333)
    curve = tl.fma(curve, r, 0.16666516661643982)
    curve = tl.fma(curve, r, 0.4999999403953552)
    curve = tl.fma(r * r, curve, tail - (r - head))
    return shifted.to(tl.int32, bitcast=True), r, curve


@triton.jit
def _power(x, rest):
    """exp(x + rest) as (high + low) * first * second, the last two powers of two; x between -174 and 174."""
    bits, r, curve = _reduced(x, rest, 254)
    one = r + 1.0
    curve = curve + (r - (one - 1.0))
    high = one + curve
    first = (bits << 22) & 0x7F800000
    second = (bits << 23) - first
    low = curve - (high - one)
    return high, low, first.to(tl.float32, bitcast=True), second.to(tl.float32, bitcast=True)


@triton.jit
def exp(x, rest=None, PRECISE: tl.constexpr = True):
    """The hardware's exp2(x * log2 e) loses |x| ulps, which only FLOAT results can show."""
    if rest is not None:
        rest = _rest(x, rest)
    if PRECISE:
        high, _, first, second = _power(_least(_most(x, -174.0), 174.0), rest)
        result = high * first * second
    else:
        result = tl.exp(x if rest is None else x + rest)
    return result


@triton.jit
def hardware_exp(x, PRECISE: tl.constexpr):
    """With PRECISE within 3 ulp, by half the instructions of `exp`: for kernels that have many to compute."""
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
def _half_expm1(x, rest):
    """Half of exp(x) - 1, and what rounding left of it; x between -60 and 89."""
    bits, r, curve = _reduced(x, rest, 126)
    half = (bits << 23).to(tl.float32, bitcast=True)
    base = half - 0.5
    back = base - half
    lost = (half - (base - back)) - (back + 0.5)
    grown = half * r
    value = base + grown
    small = tl.fma(half, curve, (grown - (value - base)) + lost)
    result = value + small
    return result, small - (result - value)


@triton.jit
def expm1(x, rest=None):
    """2^n (exp(r) - 1) + (2^n - 1) with x = n ln 2 + r; half of it fits where 2^n does not."""
    if rest is not None:
        rest = _rest(x, rest)
    value, _ = _half_expm1(_least(_most(x, -60.0), 89.0), rest)
    # So small a number is its own result.
    return tl.where(tl.abs(x) < 1.4901161193847656e-08, x, value * 2.0)


@triton.jit
def _sigmoid(v, rest):
    """sigmoid(v + rest) as a number near 1 and two powers of two."""
    if rest is not None:
        rest = _rest(v, rest)
        rest = tl.where(v < 0, rest, rest * -1.0)
    high, low, first, second = _power(_most(tl.abs(v) * -1.0, -174.0), rest)
    e = high * first * second
    below = e + 1.0
    left = e - (below - 1.0)
    inverse = 1.0 / below  # to 2 ulp, which the correction below mends
    positive = v >= 0
    numerator = tl.where(positive, 1.0, high)
    value = numerator * inverse
    error = tl.fma(value * -1.0, left, tl.fma(value * -1.0, below, numerator))
    error = error + tl.where(positive, 0.0, low)
    value = tl.fma(error, inverse, value)
    second = tl.where(v < -150.0, 0.0, tl.where(positive, 1.0, second))
    return value, tl.where(positive, 1.0, first), second


@triton.jit
def sigmoid(x, rest=None, PRECISE: tl.constexpr = True):
    if PRECISE:
        value, first, second = _sigmoid(x, rest)
        result = value * first * second
    else:
        if rest is not None:
            x = x + _rest(x, rest)
        e = tl.exp(tl.abs(x) * -1.0)
        result = tl.where(x >= 0, 1.0, e) / (e + 1.0)
    return result


@triton.jit
def gate(x, v, rest=None, PRECISE: tl.constexpr = True):
    if PRECISE:
        value, first, second = _sigmoid(v, rest)
        result = (value * first * x) * second
    else:
        result = x * sigmoid(v, rest, PRECISE)
    return result


@triton.jit
def _softened(x, rest, PRECISE: tl.constexpr):
    """log1p(exp(-|x|)), and what rounding left of it."""
    if PRECISE:
        high, low, first, second = _power(_most(tl.abs(x) * -1.0, -174.0), rest)
        e = high * first * second
        half = e * -0.5
        value = tl.fma(half, e, e)
        left = tl.fma(half, e, e - value)
        lost = low * first * second
        left = tl.fma(lost, half, lost) + left
        series = tl.fma(e, 0.002276314189657569, -0.014681964181363583)
        series = tl.fma(series, e, 0.04429808259010315)
        series = tl.fma(series, e, -0.08591856062412262)
        series = tl.fma(series, e, 0.12679627537727356)
        series = tl.fma(series, e, -0.1622842699289322)
        series = tl.fma(series, e, 0.19926351308822632)
        series = tl.fma(series, e, -0.2499331384897232)
        series = tl.fma(series, e, 0.3333309292793274)
        left = tl.fma(e * e * e, series, left)
    else:
        e = tl.exp(tl.abs(x) * -1.0)
        value = e
        series = tl.fma(e, 0.01458800956606865, -0.06785031408071518)
        series = tl.fma(series, e, 0.15102675557136536)
        series = tl.fma(series, e, -0.23611299693584442)
        series = tl.fma(series, e, 0.3314041793346405)
        series = tl.fma(series, e, -0.4999074637889862)
        left = e * e * series
    return value, left


@triton.jit
def _sum(x, y, left):
    """x + y + left, where left is less than the others."""
    total = x + y
    grown = total - x
    left = left + ((x - (total - grown)) + (y - grown))
    return tl.where(tl.abs(total) < INFINITY, total + left, total)


@triton.jit
def softplus(x, rest=None, PRECISE: tl.constexpr = True):
    if rest is not None:
        rest = _rest(x, rest)
        value, left = _softened(x, tl.where(x > 0, rest * -1.0, rest), PRECISE)
        left = tl.where(x > 0, left + rest, left)
    else:
        value, left = _softened(x, rest, PRECISE)
    if PRECISE:
        result = _sum(_most(x, 0.0), value, left)
    else:
        result = _most(x, 0.0) + (value + left)
    return result


@triton.jit
def log_sigmoid(x, PRECISE: tl.constexpr = True):
    value, left = _softened(x, None, PRECISE)
    if PRECISE:
        result = _sum(_least(x, 0.0), value * -1.0, left * -1.0)
    else:
        result = _least(x, 0.0) - (value + left)
    return result


@triton.jit
def _signed(size, x):
    """A number with the sign of another."""
    bits = size.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    sign = x.to(tl.int32, bitcast=True) & -0x80000000
    return (bits | sign).to(tl.float32, bitcast=True)


@triton.jit
def tanh(x, PRECISE: tl.constexpr = True):
    """m / (1 + m) with 2 m = exp(-2 |x|) - 1, which has all its digits near 0 as well."""
    m, lost = _half_expm1(_most(tl.abs(x) * -2.0, -60.0), None)
    below = m + 1.0
    inverse = 1.0 / below
    value = m * inverse
    if PRECISE:
        left = (m - (below - 1.0)) + lost
        error = tl.fma(value * -1.0, left, tl.fma(value * -1.0, below, m)) + lost
        value = tl.fma(error, inverse, value)
    return _signed(value, x)


@triton.jit
def _log(x, left):
    """log(x) + left of positive normal numbers."""
    bits = x.to(tl.int32, bitcast=True) - HALF_ROOT_BITS
    n = (bits >> 23).to(tl.float32)
    f = ((bits & 0x7FFFFF) + HALF_ROOT_BITS).to(tl.float32, bitcast=True) - 1.0
    series = tl.fma(f, 0.06750279664993286, -0.11673499643802643)
    series = tl.fma(series, f, 0.11884847283363342)
    series = tl.fma(series, f, -0.12405844032764435)
    series = tl.fma(series, f, 0.1422017514705658)
    series = tl.fma(series, f, -0.1666799932718277)
    series = tl.fma(series, f, 0.20002077519893646)
    series = tl.fma(series, f, -0.25000008940696716)
    series = tl.fma(series, f, 0.3333331346511841)
    square = f * f
    small = tl.fma(n, -2.12194440e-4, square * f * series) + left
    small = tl.fma(square, -0.5, small)
    whole = n * 0.693359375
    large = whole + f
    return large + (small + (f - (large - whole)))


@triton.jit
def _defined(x, value):
    """A logarithm of x also where x is 0, infinite or negative."""
    value = tl.where(x == INFINITY, x, value)
    value = tl.where(x == 0, -INFINITY, value)
    return tl.where(x >= 0, value, float("nan"))


@triton.jit
def log(x):
    tiny = x < TINY
    value = _log(tl.where(tiny, x * 8388608.0, x), 0.0)
    return _defined(x, tl.where(tiny, value - 15.942385152878742, value))


@triton.jit
def log1p(x):
    above = x + 1.0
    left = (x - (above - 1.0)) / above
    value = _defined(above, _log(above, left))
    return tl.where(tl.abs(x) < 1.4901161193847656e-08, x, value)


@triton.jit
def logit(x):
    below = 1.0 - x
    ratio = tl.div_rn(x, below)
    left = tl.fma(ratio * -1.0, below, x) - ratio * ((1.0 - below) - x)
    value = _log(_most(ratio, TINY), left / x)
    value = tl.where(x < TINY, log(x), value)
    value = tl.where(x == 1.0, INFINITY, value)
    return tl.where((x >= 0) & (x <= 1.0), value, float("nan"))


@triton.jit
def sqrt(x):
    return tl.sqrt_rn(x)


@triton.jit
def _mills(t):
    """exp(t^2 / 2) normal_cdf(-t) of t from 0 to 18."""
    u = tl.div_rn(1.0, t + 2.5)
    v = u - 0.21875
    ratio = tl.fma(v, -474.4321594238281, 344.1152038574219)
    ratio = tl.fma(ratio, v, -36.064945220947266)
    ratio = tl.fma(ratio, v, -69.83251953125)
    ratio = tl.fma(ratio, v, 30.537601470947266)
    ratio = tl.fma(ratio, v, 9.040574073791504)
    ratio = tl.fma(ratio, v, -9.568663597106934)
    ratio = tl.fma(ratio, v, -1.9002856016159058)
    ratio = tl.fma(ratio, v, 3.2134969234466553)
    ratio = tl.fma(ratio, v, 2.2907142639160156)
    ratio = tl.fma(ratio, v, 0.7484664916992188)
    return u * ratio


@triton.jit
def _gaussian(x):
    """exp(-x^2 / 2) as `_power` has it."""
    within = _least(tl.abs(x), 18.0)
    square = within * within
    high, low, first, second = _power(square * -0.5, tl.fma(within, within, square * -1.0) * -0.5)
    return high, low, first, tl.where(tl.abs(x) > 17.0, 0.0, second)


@triton.jit
def _tail(x):
    """normal_cdf(-|x|) as a number near 1 and two powers of two."""
    high, low, first, second = _gaussian(x)
    ratio = _mills(_least(tl.abs(x), 18.0))
    return tl.fma(ratio, high, ratio * low), first, second


@triton.jit
def normal_cdf(x):
    value, first, second = _tail(x)
    value = value * first * second
    return tl.where(x > 0, 1.0 - value, value)


@triton.jit
def normal_pdf(x):
    high, low, first, second = _gaussian(x)
    return tl.fma(high, 0.3989422804014327, low * 0.3989422804014327) * first * second


@triton.jit
def gelu(x):
    value, first, second = _tail(x)
    low = (value * first * _least(x, 18.0)) * second
    return tl.where(x > 0, x - low, low)


@triton.jit
def _erfc_tail(t):
    square = t * t
    high, low, first, second = _power(square * -1.0, tl.fma(t, t, square * -1.0) * -1.0)
    ratio = _mills(t * 1.4142135623730951) * 2.0
    return tl.fma(ratio, high, ratio * low) * first * second


@triton.jit
def erf(x):
    square = x * x
    near = tl.fma(square, 7.806903886375949e-05, -0.0007997853099368513)
    near = tl.fma(near, square, 0.005187162198126316)
    near = tl.fma(near, square, -0.026853347197175026)
    near = tl.fma(near, square, 0.11283578723669052)
    near = tl.fma(near, square, -0.3761262595653534)
    near = tl.fma(near, square, 0.12837916612625122)
    near = tl.fma(near, x, x)
    far = _signed(1.0 - _erfc_tail(_least(tl.abs(x), 11.0)), x)
    return tl.where(tl.abs(x) < 1.0, near, far)


@triton.jit
def erfc(x):
    tail = _erfc_tail(_least(tl.abs(x), 11.0))
    return tl.where(x < 0, 2.0 - tail, tail)


@triton.jit
def erfinv(x):
    w = log(tl.fma(x, x * -1.0, 1.0)) * -1.0
    v = w - 2.5
    central = tl.fma(v, 2.81022636e-08, 3.43273939e-07)
    central = tl.fma(central, v, -3.5233877e-06)
    central = tl.fma(central, v, -4.39150654e-06)
    central = tl.fma(central, v, 0.00021858087)
    central = tl.fma(central, v, -0.00125372503)
    central = tl.fma(central, v, -0.00417768164)
    central = tl.fma(central, v, 0.246640727)
    central = tl.fma(central, v, 1.50140941)
    v = tl.sqrt_rn(w) - 3.0
    tail = tl.fma(v, -0.000200214257, 0.000100950558)
    tail = tl.fma(tail, v, 0.00134934322)
    tail = tl.fma(tail, v, -0.00367342844)
    tail = tl.fma(tail, v, 0.00573950773)
    tail = tl.fma(tail, v, -0.0076224613)
    tail = tl.fma(tail, v, 0.00943887047)
    tail = tl.fma(tail, v, 1.00167406)
    tail = tl.fma(tail, v, 2.83297682)
    return tl.where(tl.abs(x) == 1.0, x * INFINITY, x * tl.where(w < 5.0, central, tail))


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
    return _least(x, y)


@triton.jit
def maximum(x, y):
    return _most(x, y)


@triton.jit
def divide(x, y):
    """IEEE division; Triton's own is off by 2 ulps."""
    return tl.div_rn(x, y)


WORDS: dict[str, Any] = {
    "where": where, "fma": fma, "exp": exp, "expm1": expm1, "log": log, "log1p": log1p, "logit": logit, "sqrt": sqrt, "tanh": tanh,
    "sigmoid": sigmoid, "gate": gate, "log_sigmoid": log_sigmoid, "softplus": softplus, "erf": erf, "erfc": erfc,
    "erfinv": erfinv, "normal_cdf": normal_cdf, "normal_pdf": normal_pdf, "gelu": gelu, "abs": abs, "sign": sign,
    "minimum": minimum, "maximum": maximum,
}  # fmt: skip
