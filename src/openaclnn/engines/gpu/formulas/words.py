# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""The words of formulas in Triton, with the meaning that `formulas/words.py` gives them.

PRECISE asks for FLOAT results within 1 ulp, 2 where the meaning says so; without it they are right to 16 bits, and the hardware's
approximations are enough. Contraction is off where formulas run, so it is written where it counts.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton import knobs

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
LN_2_LEFT = tl.constexpr(-1.904654323148236e-09)  # by its rounding to FLOAT
MINUS_LN2_HIGH = tl.constexpr(
    -0.693145751953125
)  # 16 bits: times an exponent it is exact in float32
MINUS_LN2_LOW = tl.constexpr(-1.428606765330187e-06)
ROUNDER = tl.constexpr(
    12582912.0
)  # 1.5 * 2^23: adding it rounds to an integer, which then lies in the low bits
WIDE_ROUNDER = tl.constexpr(6755399441055744.0)  # the same of float64
LOWER = tl.constexpr(2.0**-26)
DOWN = tl.constexpr(2.0**-32)
LIFT = tl.constexpr(2.0**-24)
INFINITY = tl.constexpr(float("inf"))
TINY = tl.constexpr(1.1754943508222875e-38)  # the smallest normal FLOAT
INTERPRETED = tl.constexpr(knobs.runtime.interpret)
HALF_ROOT_BITS = tl.constexpr(0x3F3504F3)  # of sqrt(1/2)
RAISED_HALF_ROOT_BITS = tl.constexpr(0x3F3504F3 + (23 << 23))  # of 2^23 sqrt(1/2)
BIT = tl.constexpr(2.0**-23)


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
    """What a rounding left of x; nothing where x is so large that functions of it are 0, infinite or a line."""
    return tl.where(tl.abs(x) < 1024.0, rest, 0.0)


@triton.jit
def _signed(size, x):
    """A number with the sign of another."""
    bits = size.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    sign = x.to(tl.int32, bitcast=True) & -0x80000000
    return (bits | sign).to(tl.float32, bitcast=True)


@triton.jit
def _horner(x, a, b, c, d):
    """a x^3 + b x^2 + c x + d"""
    return tl.fma(tl.fma(tl.fma(x, a, b), x, c), x, d)


@triton.jit
def _on(value, x, a, b, c):
    """((value x + a) x + b) x + c"""
    return tl.fma(tl.fma(tl.fma(value, x, a), x, b), x, c)


@triton.jit
def _instruction(x, NAME: tl.constexpr):
    """One of PTX's, of a number."""
    return tl.inline_asm_elementwise(
        NAME + " $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def reciprocal(x):
    """Right to an ulp, of numbers that are neither tiny nor huge."""
    return 1.0 / x if INTERPRETED else _instruction(x, "rcp.approx.ftz.f32")


@triton.jit
def _double(value):
    return tl.full([], value, tl.float64)


@triton.jit
def _widened(x):
    """Float64 of a positive normal number, by its bits; of 0 it is 2^-127."""
    bits = x.to(tl.int32, bitcast=True).to(tl.int64) << 29
    return (bits + (896 << 52)).to(tl.float64, bitcast=True)


@triton.jit
def _times_power(x, bits):
    """Float64 times 2^n, of which both lie in the normal range, by an n in the low bits of an integer: into the upper half alone, since sums of 64 bits are two instructions."""
    if INTERPRETED:
        raised = x.to(tl.int64, bitcast=True) + (bits.to(tl.int64) << 52)
        result = raised.to(tl.float64, bitcast=True)
    else:
        result = tl.inline_asm_elementwise(
            "{ .reg .b32 low, high, n; mov.b64 {low, high}, $1; shl.b32 n, $2, 20; add.s32 high, high, n; mov.b64 $0, {low, high}; }",
            "=d,d,r", [x, bits], dtype=tl.float64, is_pure=True, pack=1,
        )  # fmt: skip
    return result


@triton.jit
def _wide_reciprocal(x):
    """Right to 2^-40, of float64 that is not tiny, and 0 where that would be subnormal: the hardware's high half, and a step of Newton's."""
    if INTERPRETED:
        result = tl.where(x < 2.0**1022, 1.0 / x, 0.0)
    else:
        near = tl.inline_asm_elementwise("rcp.approx.ftz.f64 $0, $1;", "=d,d", [x], dtype=tl.float64, is_pure=True, pack=1)  # fmt: skip
        result = tl.fma(near, tl.fma(near * _double(-1.0), x, _double(1.0)), near)
    return result


@triton.jit
def _wide_on(value, x, a, b):
    """(value x + a) x + b in float64. A number of 21 bits stands in its instruction, others take two more."""
    return tl.fma(tl.fma(value, x, _double(a)), x, _double(b))


@triton.jit
def _wide_sigmoid(v):
    """1 / (1 + exp(-v)) for a v from -709.7, where it is 0, to 690; right to 2^-28."""
    shifted = tl.fma(v, _double(-1.4426956176757812), _double(WIDE_ROUNDER))
    r = tl.fma(shifted - _double(WIDE_ROUNDER), _double(LN_2), v)  # v = r - n ln 2
    q = _wide_on(_double(0.0013872478157281876), r, -0.008367680013179779, 0.04166713356971741)
    q = tl.fma(_wide_on(q, r, -0.16666531562805176, 0.5), r, _double(-1.0)) * r
    power = _times_power(q + _double(1.0), shifted.to(tl.int64, bitcast=True).to(tl.int32))
    return _wide_reciprocal(power + _double(1.0))


@triton.jit
def _reciprocal_root(x):
    """Right to 2 ulp, of numbers that are not tiny."""
    return tl.rsqrt(x) if INTERPRETED else _instruction(x, "rsqrt.approx.ftz.f32")


@triton.jit
def _root(x):
    return tl.sqrt(x) if INTERPRETED else _instruction(x, "sqrt.approx.ftz.f32")


@triton.jit
def _exp2(x):
    """The hardware's, which is 0 where it would be subnormal."""
    return tl.exp2(x) if INTERPRETED else _instruction(x, "ex2.approx.ftz.f32")


@triton.jit
def _log2(x):
    """The hardware's, of numbers that are not subnormal: infinite for 0 and infinity, NaN below 0."""
    return tl.log2(x) if INTERPRETED else _instruction(x, "lg2.approx.ftz.f32")


@triton.jit
def _hardware_log(x):
    """Right to 2^-22, near 1 of 1, else of itself: where nothing cancels, 16 bits cannot tell it from better ones."""
    result = tl.log2(x) if INTERPRETED else _instruction(x, "lg2.approx.f32")
    return result * LN_2


@triton.jit
def _raised_log2(x):
    """log2(x) + 24, right to 2^-19, of numbers up to 1: the hardware's, of which none is subnormal."""
    return _log2(x * 16777216.0)


@triton.jit
def _exp_curve(r):
    """(exp(r) - 1 - r) / r^2 for r of up to ln(2) / 2, to 2^-28."""
    curve = _horner(r, 0.0013820742024108768, 0.008369248360395432, 0.041668280959129333, 0.16666516661643982)  # fmt: skip
    return tl.fma(curve, r, 0.4999999403953552)


@triton.jit
def _powers_of_two(x, BIAS: tl.constexpr):
    """x = n ln 2 + head, but for the low part of ln 2: n + BIAS in the low bits of a FLOAT, n, and head."""
    shifted = tl.fma(x, LOG2_E, ROUNDER + BIAS)
    n = shifted - (ROUNDER + BIAS)
    return shifted, n, tl.fma(n, MINUS_LN2_HIGH, x)


@triton.jit
def _reduced(x, rest, BIAS: tl.constexpr):
    """x + rest = n ln 2 + r: n + BIAS in the low bits of an integer, r, and exp(r) - 1 - r."""
    shifted, n, head = _powers_of_two(x, BIAS)
    if rest is None:
        r = tl.fma(n, MINUS_LN2_LOW, head)
        left = tl.fma(n, MINUS_LN2_LOW, head - r)
    else:
        tail = tl.fma(n, MINUS_LN2_LOW, rest)
        r = head + tail
        left = tail - (r - head)
    return shifted.to(tl.int32, bitcast=True), r, tl.fma(r * r, _exp_curve(r), left)


@triton.jit
def exp(x, rest=None, PRECISE: tl.constexpr = True):
    """The hardware's exp2(x * log2 e) loses |x| ulps, which only FLOAT results can show."""
    if PRECISE:
        if rest is not None:
            rest = _rest(x, rest)
        bits, r, curve = _reduced(_least(_most(x, -174.0), 174.0), rest, 254)
        half = (bits << 22) & 0x7F800000
        other = (bits << 23) - half
        value = (curve + r) + 1.0
        result = value * half.to(tl.float32, bitcast=True) * other.to(tl.float32, bitcast=True)
    else:
        result = tl.exp(x)
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
        # The square of exp(x / 2), which is normal wherever that of x is not 0: of subnormal results the hardware's needs three instructions more.
        root = _exp2(x * (0.5 * LOG2_E))
        result = root * root
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
        half = tl.exp(x * factor * 0.5)
        result = multiplier * half * half
    return result


@triton.jit
def _near_expm1(x):
    """(exp(x) - 1) / x between -0.3 and 0.3, right to 16 bits."""
    series = _horner(x, 0.008336998522281647, 0.04182108864188194, 0.16666758060455322, 0.4999966323375702)  # fmt: skip
    return tl.fma(series, x, 1.0)


@triton.jit
def scaled_expm1(multiplier, factor, x, PRECISE: tl.constexpr):
    """2^n (exp(r) - 1) + (2^n - 1) with factor * x = n ln 2 + r; half of it fits where 2^n does not."""
    exponent = x * factor
    # So small an exponent is its own result, by one product if it is none that overflows.
    product = multiplier * factor
    fits = (tl.abs(product) >= TINY) & (tl.abs(product) < INFINITY)
    linear = x * tl.where(fits, product, factor) * tl.where(fits, 1.0, multiplier)
    if PRECISE:
        result = _precise_expm1(multiplier, factor, x, exponent)
        small = (tl.abs(exponent) < 1.4901161193847656e-08) | (
            exponent != exponent
        )  # NaN is not within
    else:
        result = (_exp2(exponent * LOG2_E) - 1.0) * multiplier
        linear = linear * _near_expm1(exponent)
        small = tl.abs(exponent) < 0.3
    return tl.where(small, linear, result)


@triton.jit
def _precise_expm1(multiplier, factor, x, exponent):
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
    return tl.fma(half, tl.fma(r * r, ratio, r), half - 0.5) * 2.0 * multiplier


@triton.jit
def expm1(x, rest=None, PRECISE: tl.constexpr = True):
    """2^n (exp(r) - 1) + (2^n - 1) with x = n ln 2 + r; half of it fits where 2^n does not."""
    if PRECISE:
        if rest is not None:
            rest = _rest(x, rest)
        bits, r, curve = _reduced(_least(_most(x, -60.0), 89.0), rest, 126)
        half = (bits << 23).to(tl.float32, bitcast=True)
        base = half - 0.5
        lost = (half - base) - 0.5  # beyond n = 24; below n = -24 it is half an ulp at most
        grown = half * r
        value = base + grown
        value = value + tl.fma(half, curve, (grown - (value - base)) + lost)
        # So small a number is its own result.
        result = tl.where(tl.abs(x) < 1.4901161193847656e-08, x, value * 2.0)
    else:
        result = tl.where(tl.abs(x) < 0.3, _near_expm1(x) * x, _exp2(x * LOG2_E) - 1.0)
    return result


@triton.jit
def _below(x, rest):
    """exp(x + rest) = s (1 + q) for x between -110 and 0: q as a sum of two, and 2^32 s, a power of two, as s may be none that FLOAT has."""
    bits, r, curve = _reduced(_most(x, -110.0), rest, 159)
    return r, curve, (bits << 23).to(tl.float32, bitcast=True)


@triton.jit
def _above_one(s, q):
    """1 + s (1 + q), what its rounding left, and its reciprocal."""
    whole = tl.fma(s, q, s + 1.0)
    return whole, tl.fma(s, q, (1.0 - whole) + s), reciprocal(whole)


@triton.jit
def _quotient(s, r, curve):
    """(1 + q) / (1 + s (1 + q)) with q = r + curve, and what rounding left of it."""
    q = r + curve
    whole, left, inverse = _above_one(s, q)
    value = (q + 1.0) * inverse
    error = (tl.fma(value * -1.0, whole, 1.0) + r) + curve
    return value, tl.fma(value * -1.0, left, error) * inverse


@triton.jit
def _opposite(v, rest):
    """exp(-|v + rest|) as `_below` has it."""
    if rest is not None:
        # With the sign of v taken off, by operations that are the same for -v and -rest, so that words of both share what follows.
        # The bound is for an infinite v, of which minus infinity or NaN is left.
        sign = v.to(tl.int32, bitcast=True) & -0x80000000
        rest = (rest.to(tl.int32, bitcast=True) ^ sign).to(tl.float32, bitcast=True)
        rest = tl.maximum(rest, -6.103515625e-05) * -1.0
    return _below(tl.abs(v) * -1.0, rest)


@triton.jit
def _sigmoid(v, rest):
    """sigmoid(-|v + rest|) as a number and a power of two: (1 + q) / (1 + s (1 + q)) and s."""
    r, curve, raised = _opposite(v, rest)
    s = raised * DOWN
    value, left = _quotient(s, r, curve)
    return value + left, s


@triton.jit
def _lowered_sigmoid(x):
    """2^24 sigmoid(x), right to 16 bits, where that is not subnormal."""
    return reciprocal(_exp2(tl.fma(x, LOG2_E * -1.0, -24.0)) + 5.9604644775390625e-08)


@triton.jit
def sigmoid(x, rest=None, PRECISE: tl.constexpr = True):
    if PRECISE:
        value, s = _sigmoid(x, rest)
        result = tl.where(x >= 0, tl.fma(value * -1.0, s, 1.0), value * s)
    else:
        result = _lowered_sigmoid(x) * 5.9604644775390625e-08
    return result


@triton.jit
def _gated(x, v, r, curve, raised):
    """x sigmoid(v) for exp(-|v|) = s (1 + q): q as a sum of two, and 2^32 s."""
    q = r + curve
    whole, left, inverse = _above_one(raised * DOWN, q)
    # How far off the reciprocal is, of itself, also times 1 + q.
    off = tl.fma(inverse * -1.0, left, tl.fma(inverse * -1.0, whole, 1.0))
    below = (tl.fma(q, off, off) + curve) + r
    sigmoid = tl.fma(inverse, tl.where(v < 0, below, off), inverse)
    # The power of two comes to x, so that nothing is subnormal but results: in two factors, since it may be less than the least number.
    raised = tl.where(v < 0, raised, 1.0 / DOWN)
    return x * tl.minimum(raised, 1.0) * sigmoid * tl.maximum(raised * DOWN, DOWN)


@triton.jit
def gate(x, v, rest=None, PRECISE: tl.constexpr = True):
    if PRECISE:
        r, curve, raised = _opposite(v, rest)
        result = _gated(x, v, r, curve, raised)
    else:
        value = _lowered_sigmoid(v)  # far below 0 the sigmoid alone is subnormal
        far = x * value * 5.9604644775390625e-08
        result = tl.where(v < -80.0, far, x * (value * 5.9604644775390625e-08))
    return result


@triton.jit
def scaled_gate(x, factor, PRECISE: tl.constexpr = True):
    inside = tl.where(factor == 0, 0.0, x)
    v = factor * inside
    if PRECISE:
        # In float64 29 instructions; to know what the product's rounding left took 46.
        size = tl.abs(factor)
        if (size > 2.0**-100) & (size < 2.0**100):
            inverse = reciprocal(factor)
            lowest, highest = inverse * -709.7, inverse * 690.0
            bound = _most(_least(x, _most(lowest, highest)), _least(lowest, highest))
            share = _wide_sigmoid(bound.to(tl.float64) * factor.to(tl.float64))
            result = (x.to(tl.float64) * share).to(tl.float32)
        else:
            result = gate(x, v, tl.fma(inside, factor, v * -1.0), PRECISE)
    else:
        result = gate(x, v, None, PRECISE)
    return result


@triton.jit
def mish(x, PRECISE: tl.constexpr = True):
    """With e = exp(-|x|): x - x c, c = 2 e^2 / (2 e^2 + 2 e + 1), or below 0 x e - x e c, c = e (e + 1) / (e (e + 1) + e + 2)."""
    if PRECISE:
        r, curve, raised = _below(tl.abs(x) * -1.0, None)
        q = r + curve
        e = tl.fma(raised * DOWN, q, raised * DOWN)
        twice = e + e
        upper = tl.where(x < 0, e + 1.0, twice) * e
        share = ratio(upper, upper + tl.where(x < 0, e + 2.0, twice + 1.0), PRECISE)
        raised = tl.where(x < 0, raised, 1.0 / DOWN)  # as in `_gated`
        value = x * tl.minimum(raised, 1.0)
        value = tl.where(x < 0, tl.fma(value, q, value), value)
        # Of the negative difference, which has the sign of a 0 below the smallest numbers.
        result = tl.fma(value, share, value * -1.0) * (tl.maximum(raised * DOWN, DOWN) * -1.0)
        result = tl.where((x > 20.0) | (x == 0), x, result)  # infinity and -0 stay what they are
    else:
        e = tl.exp(tl.abs(x) * -1.0)
        upper = tl.where(x > 0, tl.fma(e, 2.0, 1.0), e * (e + 2.0))
        result = x * ratio(upper, upper + tl.where(x > 0, e * e * 2.0, 2.0), PRECISE)
    return result


@triton.jit
def _near_power(x, rest, BIAS: tl.constexpr):
    """exp(x + rest) = 2^n (1 + q), to 0.7 of 2^-24, for x from -110 to 0: n + BIAS in the low bits of an integer, and q."""
    shifted, n, head = _powers_of_two(x, BIAS)
    if rest is None:
        r = tl.fma(n, MINUS_LN2_LOW, head)
    else:
        r = head + tl.fma(n, MINUS_LN2_LOW, rest)
    return shifted.to(tl.int32, bitcast=True), tl.fma(r * r, _exp_curve(r), r)


@triton.jit
def _bent(e):
    """(e - log1p(e)) / e^2 for e from 0 to 1."""
    f = e - 0.5
    series = _horner(f, 0.0034240998793393373, -0.006981655489653349, 0.01014315988868475, -0.01664046384394169)  # fmt: skip
    series = _on(series, f, 0.028908096253871918, -0.05109051614999771, 0.09323178976774216)
    return tl.fma(tl.fma(series, f, -0.17922484874725342), f, 0.37813955545425415)


@triton.jit
def _softened(x, rest):
    """log1p(exp(-|x| + rest)) in float64, which takes three instructions for what FLOAT takes twelve, to know what its roundings left."""
    bits, q = _near_power(_most(tl.abs(x) * -1.0, -110.0), rest, 0)
    e = _times_power(q.to(tl.float64) + _double(1.0), bits)
    return tl.fma(e * e * _double(-1.0), _widened(_bent(e.to(tl.float32))), e)


@triton.jit
def _short_softened(x):
    """log1p(exp(-|x|)), right to 16 bits."""
    value = _exp2(tl.fma(tl.abs(x), LOG2_E * -1.0, 24.0)) * 5.9604644775390625e-08
    series = _horner(
        value, -0.008777273818850517, 0.04498090222477913, -0.10901524871587753, 0.1784670501947403
    )
    series = _on(series, value, -0.24536699056625366, 0.3328403830528259, -0.4999817907810211)
    return tl.fma(value * value, series, value)


@triton.jit
def softplus(x, rest=None, PRECISE: tl.constexpr = True):
    if PRECISE:
        line = _most(x, 0.0).to(tl.float64)
        if rest is not None:
            rest = _rest(x, rest)
            line += tl.where(x > 0, rest, 0.0).to(tl.float64)
            rest = tl.where(x > 0, rest * -1.0, rest)
        result = (line + _softened(x, rest)).to(tl.float32)
    else:
        result = _most(x, 0.0) + _short_softened(x)
    return result


@triton.jit
def softened(x, PRECISE: tl.constexpr = True):
    return _softened(x, None).to(tl.float32) if PRECISE else _short_softened(x)


@triton.jit
def log_sigmoid(x, PRECISE: tl.constexpr = True):
    if PRECISE:
        result = (_least(x, 0.0).to(tl.float64) - _softened(x, None)).to(tl.float32)
        result += 0.0  # not -0
    else:
        result = _least(x, 0.0) - _short_softened(x)
    return result


@triton.jit
def tanh(x, PRECISE: tl.constexpr = True):
    """(1 - e) / (1 + e) with e = exp(-2 |x|) = s (1 + q), of which 1 - e is -q with all its digits where s is 1."""
    if PRECISE:
        bits, r, curve = _reduced(_most(tl.abs(x) * -2.0, -60.0), None, 127)
        s = (bits << 23).to(tl.float32, bitcast=True)
        q = r + curve
        whole, left, inverse = _above_one(s, q)
        base = 2.0 - whole
        above = base - left
        value = above * inverse
        lost = tl.fma(s * -1.0, curve - (q - r), (base - above) - left)
        error = tl.fma(value * -1.0, left, tl.fma(value * -1.0, whole, above) + lost)
        result = _signed(tl.fma(error, inverse, value), x)
    else:
        square = x * x
        near = _horner(square, 0.015497938729822636, -0.052119769155979156, 0.13310669362545013, -0.33332359790802)  # fmt: skip
        size = tl.abs(x)
        near = tl.fma(near * square, size, size)
        far = tl.fma(reciprocal(_exp2(size * (2.0 * LOG2_E)) + 1.0), -2.0, 1.0)
        result = _signed(tl.where(size < 0.6, near, far), x)
    return result


@triton.jit
def _mantissa(x):
    """x = 2^n (1 + f) of a positive normal number, f between sqrt(1/2) - 1 and sqrt(2) - 1."""
    bits = x.to(tl.int32, bitcast=True) - HALF_ROOT_BITS
    f = ((bits & 0x7FFFFF) + HALF_ROOT_BITS).to(tl.float32, bitcast=True) - 1.0
    return bits >> 23, f


@triton.jit
def _log(n, f, left):
    """n ln 2 + log(1 + f) + left."""
    n = n.to(tl.float32)
    series = _horner(f, -0.07637470215559006, 0.1276276409626007, -0.1315944939851761, 0.1420149952173233)  # fmt: skip
    series = _on(series, f, -0.1662341207265854, 0.2000124454498291, -0.250008225440979)
    series = tl.fma(series, f, 0.3333333134651184)
    square = f * f
    small = tl.fma(n, -2.12194440e-4, tl.fma(square * f, series, left))
    small = tl.fma(square, -0.5, small)
    large = tl.fma(n, 0.693359375, f)  # of which the product is exact
    return large + (small + (f - tl.fma(n, -0.693359375, large)))


@triton.jit
def _defined(x, value):
    """A logarithm of x, which is not subnormal, also where x is 0, infinite or negative: what the hardware has is right there."""
    special = _log2(x)
    return tl.where(tl.abs(special) < INFINITY, value, special)


@triton.jit
def _log_near_one(f):
    """log(1 + f), right to 16 bits for f from sqrt(1/2) - 1 to sqrt(2) - 1."""
    series = _horner(f, -0.10112303495407104, 0.16221468150615692, -0.17248187959194183, 0.1990012228488922)  # fmt: skip
    series = _on(series, f, -0.2497018277645111, 0.3333507478237152, -0.5000035762786865)
    return tl.fma(series * f, f, f)


@triton.jit
def log_from_one(x, PRECISE: tl.constexpr):
    """The logarithm of a number from 1 on, or NaN."""
    if PRECISE:
        n, f = _mantissa(x)
        result = _log(n, f, 0.0)
        result = tl.where(x < INFINITY, result, x)
    else:
        result = log(x, PRECISE)
    return result


@triton.jit
def log(x, PRECISE: tl.constexpr = True):
    if PRECISE:
        tiny = x < TINY
        raised = tl.where(tiny, x * 8388608.0, x)
        n, f = _mantissa(raised)
        result = _defined(raised, _log(tl.where(tiny, n - 23, n), f, 0.0))
    else:
        far = _hardware_log(x)
        result = tl.where(tl.abs(far) < 0.34, _log_near_one(x - 1.0), far)
    return result


@triton.jit
def log1p(x, PRECISE: tl.constexpr = True):
    if PRECISE:
        above = x + 1.0
        n, f = _mantissa(above)
        # What the sum lost, in units of 2^n: where n is 0, f becomes x again.
        unit = (127 - tl.minimum(n, 127)) << 23
        lost = (x - (above - 1.0)) * unit.to(tl.float32, bitcast=True)
        whole = f + lost
        value = _defined(above, _log(n, whole, lost - (whole - f)))
        result = tl.where(tl.abs(x) < 1.4901161193847656e-08, x, value)
    else:
        far = _hardware_log(x + 1.0)
        result = tl.where(tl.abs(far) < 0.34, _log_near_one(x), far)
    return result


@triton.jit
def _raised_mantissa(x):
    """x = 2^n (1 + f) of a positive number, f between sqrt(1/2) - 1 and sqrt(2) - 1: 2^23 n, as it lies in the bits of 2^23 x, of which none is subnormal, and f."""
    bits = (x * 8388608.0).to(tl.int32, bitcast=True)
    power = (bits - RAISED_HALF_ROOT_BITS) & -0x800000
    f = tl.fma((bits - power).to(tl.float32, bitcast=True), BIT, -1.0)
    return power.to(tl.float32), f


@triton.jit
def _low_log_series(f):
    """(log(1 + f) - f) / f^2 of such an f."""
    series = _horner(f, 0.0873354971408844, -0.14441843330860138, 0.14979301393032074, -0.16552339494228363)  # fmt: skip
    series = _on(series, f, 0.19953612983226776, -0.2500249147415161, 0.3333422541618347)
    return tl.fma(series, f, -0.4999998211860657)


@triton.jit
def low_log(x, PRECISE: tl.constexpr = True):
    """n ln 2 + f + f^2 P(f), of which the first term is at least twice as large as the others."""
    if PRECISE:
        power, f = _raised_mantissa(x)
        small = tl.fma(power, LN_2_LEFT * BIT, _low_log_series(f) * (f * f))
        result = tl.fma(power, LN_2 * BIT, small + f)
        result = tl.where(x > 0, result, _log2(x))  # infinite for 0, else NaN
    else:
        result = tl.fma(_raised_log2(x), LN_2, -24.0 * LN_2)
    return result


@triton.jit
def low_log1m(x, PRECISE: tl.constexpr = True):
    """-x - x^2 P(x)"""
    if PRECISE:
        series = _horner(x, 1.7459201328023788, -2.4822723040470525, 1.976669770550508, -0.5953464564592046)  # fmt: skip
        series = _on(series, x, 0.34104147197139123, 0.1756910065960311, 0.25188845382540703)
        series = tl.fma(tl.fma(series, x, 0.3332621546139565), x, 0.5000009168406376)
    else:
        series = _horner(x, 1.1606009006500244, -1.0361453294754028, 0.7516016960144043, 0.05082833021879196)  # fmt: skip
        series = _on(series, x, 0.26966217160224915, 0.33212926983833313, 0.5000246167182922)
    return tl.fma(x * x * -1.0, series, x * -1.0)


@triton.jit
def logit(x, PRECISE: tl.constexpr = True):
    if PRECISE:
        below = 1.0 - x
        raised = x * 8388608.0  # so that none is subnormal
        ratio = raised * reciprocal(below)
        left = tl.fma(ratio, x - (1.0 - below), tl.fma(ratio * -1.0, below, raised))
        n, f = _mantissa(ratio)
        result = _defined(ratio, _log(n - 23, f, left * reciprocal(raised)))
    else:
        d = tl.fma(x, 2.0, -1.0)
        near = _horner(d * d, 0.3144108057022095, 0.398934543132782, 0.6666777729988098, 2.0) * d
        far = tl.fma(_raised_log2(x) - _log2(1.0 - x), LN_2, -24.0 * LN_2)
        result = tl.where(tl.abs(d) < 0.25, near, far)
    return result


@triton.jit
def sqrt(x):
    return tl.sqrt_rn(x)


@triton.jit
def _bell(square, rest):
    """exp(-(square + rest) / 2) = s (1 + q / 2) for squares up to 210: q as a sum of two, and s, a power of two."""
    shifted = tl.fma(square, -0.5 * LOG2_E, ROUNDER + 159)
    n = shifted - (ROUNDER + 159)
    head = tl.fma(n, 2.0 * MINUS_LN2_HIGH, square * -1.0)
    tail = tl.fma(n, 2.0 * MINUS_LN2_LOW, rest * -1.0)
    r = head + tail
    curve = _horner(
        r, 0.0013820742024108768 / 32, 0.008369248360395432 / 16, 0.041668280959129333 / 8, 0.16666516661643982 / 4
    )  # fmt: skip
    curve = tl.fma(curve, r, 0.4999999403953552 / 2)
    curve = tl.fma(r * r, curve, tail - (r - head))
    raised = (shifted.to(tl.int32, bitcast=True) << 23).to(tl.float32, bitcast=True)
    return r, curve, raised * 2.3283064365386963e-10


@triton.jit
def _tail(r, curve, t, rest):
    """exp(t^2 / 2) normal_cdf(-t) for t + rest from 0 to 14.5, times 1 + (r + curve) / 2, and what rounding left of it: u P(u), u = 1 / (t + 23/8)."""
    below = t + 2.875
    u = reciprocal(below)
    # How far off u is, of itself, and P for it.
    off = tl.fma(u * -1.0, (t - (below - 2.875)) + rest, tl.fma(u * -1.0, below, 1.0))
    v = u - 0.1375732421875
    series = _horner(v, 2190.0205078125, -1257.78271484375, -181.43162536621094, 253.86520385742188)
    series = _on(series, v, 15.308189392089844, -43.104793548583984, -8.380183219909668)
    series = _on(series, v, 7.733826160430908, 6.07248592376709, 2.361847400665283)
    ratio = tl.fma(v, series, 0.6300777792930603)
    left = tl.fma(v, series, 0.6300777792930603 - ratio)
    left = tl.fma(ratio, off * tl.fma(tl.fma(v, -5.42855121, 4.75730106), v, 1.54160116), left)
    product = u * ratio
    left = tl.fma(u, left, tl.fma(u, ratio, product * -1.0))
    half = product * 0.5
    q = r + curve
    value = tl.fma(half, q, product)
    lost = tl.fma(half, curve, tl.fma(half, r, product - value))
    return value, tl.fma(left, tl.fma(q, 0.5, 1.0), lost)


@triton.jit
def _short_tail(t, power):
    """2^(power - 26) times that, right to 16 bits; a power of 26 less keeps the exponential from being subnormal."""
    u = reciprocal(t + 2.79125)
    series = _horner(
        u, 62.671321868896484 * LOWER, -86.79924011230469 * LOWER, 32.21094512939453 * LOWER, 1.2680206298828125 * LOWER
    )  # fmt: skip
    series = _on(
        series, u, 3.0721304416656494 * LOWER, 1.096596121788025 * LOWER, 0.39926251769065857 * LOWER
    )  # fmt: skip
    return u * series, _exp2(power)


@triton.jit
def _normal_tail(x, factor, PRECISE: tl.constexpr):
    """normal_cdf(-|x|) times a factor."""
    if PRECISE:
        size = _least(tl.abs(x), 14.46)
        square = size * size
        r, curve, s = _bell(square, tl.fma(size, size, square * -1.0))
        value, left = _tail(r, curve, size, 0.0)
        result = tl.fma(value, factor, left * factor) * s
    else:
        tail, power = _short_tail(tl.abs(x), tl.fma(x * x, -0.5 * LOG2_E, 26.0))
        result = tail * power * factor
    return result


@triton.jit
def normal_cdf(x, PRECISE: tl.constexpr = True):
    value = _normal_tail(x, 1.0, PRECISE)
    return tl.where(x > 0, 1.0 - value, value)


@triton.jit
def normal_pdf(x, PRECISE: tl.constexpr = True):
    if PRECISE:
        size = _least(tl.abs(x), 14.46)
        square = size * size
        r, curve, s = _bell(square, tl.fma(size, size, square * -1.0))
        # 1 + q / 2 times 1 / sqrt(2 pi), half of which is added to one part after the other.
        small = tl.fma(curve, 0.1994711458683014, -1.133517e-08)
        value = tl.fma(r, 0.1994711458683014, small) + 0.3989422917366028
        result = value * s
    else:
        result = _exp2(tl.fma(x * x, -0.5 * LOG2_E, 26.0)) * (0.3989422917366028 * LOWER)
    return result


@triton.jit
def _half_bell(t):
    """exp(-t^2 / 2) = s (1 + q) for t from 0 to 14.6, right to 2^-25: q, and 2^32 s, a power of two. An fma keeps the digits of the square."""
    half = t * -0.5
    shifted, n, _ = _powers_of_two(half * t, 159)
    r = tl.fma(n, MINUS_LN2_LOW, tl.fma(half, t, n * MINUS_LN2_HIGH))
    raised = (shifted.to(tl.int32, bitcast=True) << 23).to(tl.float32, bitcast=True)
    return tl.fma(r * r, _exp_curve(r), r), raised


@triton.jit
def gelu(x, PRECISE: tl.constexpr = True):
    """In FLOAT alone: with its quotient and the reduction of its exponential in float64 it was right to 0.8 ulp, but half of its instructions were those of which a GPU does half as many in a time."""
    if PRECISE:
        t = _least(tl.abs(x), 14.46)
        q, raised = _half_bell(t)
        # exp(t^2 / 2) t normal_cdf(-t) = m P(m) with m = t / (t + A), of which rounding left e; both raised by 2^24, so that no digit of small numbers is lost.
        u = reciprocal(t + 2.9233102798461914)
        lifted = t * 16777216.0
        m = lifted * u
        e = u * tl.fma(m * -1.0, t, tl.fma(m, -2.9233102798461914, lifted))  # t less m (t + A)
        v = tl.fma(m, LIFT, -0.375)
        series = _horner(v, -0.07843570411205292, -0.01969292387366295, 0.15371011197566986, 0.09118074178695679)  # fmt: skip
        series = _on(series, v, -0.2971307933330536, -0.17093491554260254, 0.952504575252533)  # fmt: skip
        series = tl.fma(tl.fma(series, v, -1.2262367010116577), v, 0.8649910688400269)
        # P by m, too: (m q + e (1 - m)) P
        below = tl.fma(m, series, tl.fma(m, tl.fma(e, LIFT * -1.0, q), e) * series)
        # x or nothing; of minus infinity NaN
        above = x * (x >= 0).to(tl.float32)
        result = tl.fma(below * raised, DOWN * LIFT * -1.0, above)
    else:
        factor = tl.abs(_least(x, 14.46))  # infinity times nothing is NaN, but only below 0
        below = _normal_tail(x, factor, PRECISE)
        result = tl.where(x >= 0, x - below, below * -1.0)
    return result


@triton.jit
def gelu_slope(x, PRECISE: tl.constexpr = True):
    """exp(-t^2 / 2) (1 / 2 - t P(m)) with t = |x|, m = t / (t + 3.679763078689575), or above 0 1 less that. To know what the last roundings left of P and 1 / 2 - t P would take 4 instructions more."""
    if PRECISE:
        t = _least(tl.abs(x), 14.6)
        q, raised = _half_bell(t)
        apart = t + 3.679763078689575
        u = reciprocal(apart)
        m = t * u
        m = tl.fma(u, tl.fma(m * -1.0, apart, t), m)
        series = _horner(m, 0.012538396753370762 * DOWN, -0.03763596713542938 * DOWN, 0.009803556837141514 * DOWN, 0.07201362401247025 * DOWN)  # fmt: skip
        series = _on(series, m, 0.016373060643672943 * DOWN, -0.4327782094478607 * DOWN, 0.8806934952735901 * DOWN)  # fmt: skip
        series = tl.fma(tl.fma(series, m, -0.9199395179748535 * DOWN), m, 0.7978845238685608 * DOWN)  # fmt: skip
        below = tl.fma(t * -1.0, series, 0.5 * DOWN)
        below = tl.fma(below, q, below) * raised
        result = tl.fma(x, 0.0, tl.where(x < 0, below, 1.0 - below))  # of infinities NaN
        result += 0.0  # not -0
    else:
        result = normal_cdf(x, PRECISE) + x * normal_pdf(x, PRECISE)
    return result


TANH_SCALE = tl.constexpr(1.5957691216057308)  # sqrt(8 / pi)
TANH_CUBE = tl.constexpr(0.07135481627159625)  # 0.044715 sqrt(8 / pi)
TANH_MOST = tl.constexpr(10.905)  # from here on the exponential is 0


@triton.jit
def _tanh_power(size):
    """exp(-v) = s (1 + q), v = sqrt(8 / pi) (t + 0.044715 t^3) for a t from 0 to TANH_MOST: q as a sum of two, and 2^32 s."""
    t = size.to(tl.float64)
    slope = tl.fma(t * t, _double(TANH_CUBE), _double(TANH_SCALE))
    v = t * slope * _double(-1.0)
    shifted = tl.fma(v, _double(LOG2_E), _double(WIDE_ROUNDER + 159))
    r = tl.fma(shifted - _double(WIDE_ROUNDER + 159), _double(LN_2 * -1.0), v).to(tl.float32)
    bits = shifted.to(tl.int64, bitcast=True).to(tl.int32) << 23
    return r, r * r * _exp_curve(r), bits.to(tl.float32, bitcast=True)


@triton.jit
def gelu_tanh(x, PRECISE: tl.constexpr = True):
    if PRECISE:
        # x / (1 + exp(-v)) in float64, which infinity does not reach; of minus infinity NaN
        above = _most(x, TANH_MOST * -1.0)
        t = _least(above, TANH_MOST).to(tl.float64)
        v = t * tl.fma(t * t, _double(TANH_CUBE), _double(TANH_SCALE))
        result = (above.to(tl.float64) * _wide_sigmoid(v)).to(tl.float32)
        result = tl.fma(_least(x, -0.0), 0.0, result)
    else:
        result = gate(x, x * tl.fma(x * x, TANH_CUBE, TANH_SCALE), None, PRECISE)
    return result


@triton.jit
def gelu_tanh_slope(x, PRECISE: tl.constexpr = True):
    """With e = exp(-|v|) and v' = x dv/dx: (1 + v' e / (1 + e)) / (1 + e), and below 0 e (1 + v' / (1 + e)) / (1 + e)."""
    if PRECISE:
        size = _least(tl.abs(x), TANH_MOST)
        bent = _signed(size, x) * tl.fma(size * size, 3.0 * TANH_CUBE, TANH_SCALE)
        r, curve, raised = _tanh_power(size)
        q = r + curve
        s = raised * DOWN
        whole, left, inverse = _above_one(s, q)
        inverse = tl.fma(inverse, tl.fma(inverse * -1.0, left, tl.fma(inverse * -1.0, whole, 1.0)), inverse)  # fmt: skip
        power = q + 1.0
        value = inverse * tl.fma(bent, inverse * tl.where(x < 0, 1.0, s * power), 1.0)
        raised = tl.where(x < 0, raised, 1.0 / DOWN)
        value = tl.where(x < 0, power, 1.0) * tl.minimum(raised, 1.0) * value
        result = tl.fma(value, tl.maximum(raised * DOWN, DOWN), 0.0)  # not -0
    else:
        v = x * tl.fma(x * x, TANH_CUBE, TANH_SCALE)
        bent = x * tl.fma(x * x, 3.0 * TANH_CUBE, TANH_SCALE)
        other = gate(bent * sigmoid(v * -1.0, None, PRECISE), v, None, PRECISE)
        result = sigmoid(v, None, PRECISE) + tl.where(other == other, other, 0.0)
    return result


@triton.jit
def erf(x, PRECISE: tl.constexpr = True):
    square = x * x
    if PRECISE:
        near = _horner(
            square,
            7.806903886375949e-05,
            -0.0007997853099368513,
            0.005187162198126316,
            -0.026853347197175026,
        )
        near = _on(near, square, 0.11283578723669052, -0.3761262595653534, 0.12837916612625122)
        near = tl.fma(near, x, x)
        size = _least(tl.abs(x), 4.0)
        far = _horner(
            size,
            0.00018638120673131198,
            -0.0029476804193109274,
            0.021838152781128883,
            -0.10310692340135574,
        )
        far = tl.fma(tl.fma(far, size, -0.6381446719169617), size, -1.127089262008667)
        power = tl.fma(far, size, -0.00034151188447140157)
        rest = tl.fma(far, size, power * -1.0) - 0.00034151188447140157
        bits, r, curve = _reduced(power, rest, 127)
        far = tl.fma((curve + r) + 1.0, (bits << 23).to(tl.float32, bitcast=True) * -1.0, 1.0)
    else:
        near = _horner(square, -0.0005508065223693848, 0.004888668190687895, -0.02668784186244011, 0.11279409378767014)  # fmt: skip
        near = tl.fma(tl.fma(near, square, -0.376122385263443), square, 1.1283791065216064) * x
        size = _least(tl.abs(x), 4.0)
        far = _horner(size, 0.008713639341294765, -0.09045688807964325, -0.9985308051109314, -1.5735299587249756)  # fmt: skip
        far = 1.0 - _exp2(tl.fma(far, size, -0.01461420115083456))
    return tl.where(tl.abs(x) < 1.0, near, _signed(far, x))


@triton.jit
def erfc(x, PRECISE: tl.constexpr = True):
    if PRECISE:
        size = _least(tl.abs(x), 10.225)
        square = size * size
        t = size * 1.4142135381698608
        r, curve, s = _bell(square * 2.0, tl.fma(size, size, square * -1.0) * 2.0)
        rest = tl.fma(size, 2.420323427e-08, tl.fma(size, 1.4142135381698608, t * -1.0))
        value, left = _tail(r, curve, t, rest)
        result = (value + left) * (s * 2.0)
    else:
        t = tl.abs(x) * 1.4142135381698608
        tail, power = _short_tail(t, tl.fma(x * x, LOG2_E * -1.0, 27.0))
        result = tail * power
    return tl.where(x < 0, 2.0 - result, result)


@triton.jit
def erfinv(x, PRECISE: tl.constexpr = True):
    """x times a function of w = -log(1 - x^2): of two polynomials, or right to 16 bits of one in the root of w."""
    below = tl.fma(x, x * -1.0, 1.0)
    if PRECISE:
        n, f = _mantissa(below)
        w = tl.fma(n.to(tl.float32), LN_2 * -1.0, _log2(f + 1.0) * (LN_2 * -1.0))
        inverse = _reciprocal_root(w)
        root = w * inverse
        is_central = w < 4.0
        central = _horner(w, -9.532754141616806e-09, 2.3710963148459996e-07, -2.119309556292137e-06, 4.65846869701636e-06)  # fmt: skip
        central = _on(central, w, 4.2725787352537736e-05, -0.00012456608237698674, -0.0023368713445961475)  # fmt: skip
        central = tl.fma(tl.fma(central, w, 0.011549785733222961), w, 0.23201362788677216) * w
        v = tl.fma(tl.fma(root * -1.0, root, w), inverse * 0.5, root - 3.0)
        tail = _horner(v, 0.00011916035873582587, -0.0003241291851736605, -5.0708164053503424e-05, 0.0015019073616713285)  # fmt: skip
        tail = _on(tail, v, -0.0036064251326024532, 0.005680835340172052, -0.007634457666426897)
        tail = _on(tail, v, 0.009446023032069206, 1.001674771308899, -3.11040224687531e-08 - 3.2981445e-08)  # fmt: skip
        curve = tl.where(is_central, central, tail)
        base = tl.where(is_central, 0.8862268924713135, 2.832976818084717)
        ratio = base + curve
        left = (curve - (ratio - base)) + 3.2981445e-08  # above 0 for -0, which so stays
        value = tl.fma(x, ratio, x * left)
        result = tl.where(below > 0, value, x * _reciprocal_root(below))  # infinite for 1, else NaN
    else:
        v = _root(tl.abs(_log2(below))) - 1.5
        series = _horner(v, -1.3096706652504508e-07, 1.8600378552946495e-06, -8.144226740114391e-06, -3.609138445881399e-07)  # fmt: skip
        series = _on(
            series, v, 8.485373837174848e-05, -8.768069528741762e-05, -0.0004956206539645791
        )
        series = _on(
            series, v, 0.0004574270860757679, 0.0027590394020080566, -0.0006515621789731085
        )
        series = _on(series, v, -0.014848374761641026, -0.016977310180664062, 0.175823375582695)
        series = tl.fma(tl.fma(series, v, 0.5207884907722473), v, 1.2669825553894043)
        result = x * tl.abs(series)  # an infinite root gives minus infinity
    return result


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
def ratio(x, y, PRECISE: tl.constexpr = True):
    inverse = reciprocal(y)
    result = x * inverse
    if PRECISE:
        result = tl.fma(tl.fma(result * -1.0, y, x), inverse, result)
    return result


@triton.jit
def divide(x, y, PRECISE: tl.constexpr = True):
    """IEEE division; Triton's own is off by 2 ulp, which 16 bits do not show."""
    if len(y.shape) > 0:
        result = tl.div_rn(x, y) if PRECISE else x / y
    else:
        # By one number for all: a product and what it left, in a third of the instructions.
        lift = tl.where(tl.abs(y) > 1e30, 2.0**-64, tl.where(tl.abs(y) < 1e-30, 2.0**64, 1.0))
        divisor = y * lift
        inverse = tl.div_rn(1.0, divisor) if PRECISE else 1.0 / divisor
        product = x * inverse
        result = product
        if PRECISE:
            result = tl.fma(tl.fma(product * -1.0, divisor, x), inverse, product)
            ordinary = (tl.abs(product) > 0) & (tl.abs(product) < INFINITY)  # 0 keeps its sign
            result = tl.where(ordinary, result, product)
        result = result * lift
    return result


WORDS: dict[str, Any] = {
    "where": where, "fma": fma, "exp": exp, "scaled_exp": scaled_exp, "scaled_expm1": scaled_expm1, "expm1": expm1, "log": log, "log1p": log1p, "low_log": low_log, "low_log1m": low_log1m, "logit": logit, "sqrt": sqrt, "tanh": tanh,
    "sigmoid": sigmoid, "gate": gate, "scaled_gate": scaled_gate, "log_sigmoid": log_sigmoid, "softened": softened, "softplus": softplus, "erf": erf, "erfc": erfc,
    "erfinv": erfinv, "normal_cdf": normal_cdf, "normal_pdf": normal_pdf, "gelu": gelu, "gelu_slope": gelu_slope, "gelu_tanh": gelu_tanh, "gelu_tanh_slope": gelu_tanh_slope, "mish": mish, "abs": abs, "sign": sign,
    "minimum": minimum, "maximum": maximum, "ratio": ratio,
}  # fmt: skip

# For what is only added up.


@triton.jit
def _softened_term(x, rest, PRECISE: tl.constexpr):
    """log1p(exp(-|x| + rest)) as a polynomial of the exponential: within 1.6 ulp, or 2^-16.6 of itself, where `_softened` knows what roundings left."""
    if PRECISE:
        bits, q = _near_power(_most(tl.abs(x) * -1.0, -110.0), rest, 159)
        s = (bits << 23).to(tl.float32, bitcast=True) * DOWN
        e = tl.fma(s, q, s)
        result = tl.fma(e * e * -1.0, _bent(e), e)
    else:
        # Of 2^16 times the exponential, so that none which counts is subnormal.
        e = _exp2(tl.fma(tl.abs(x), LOG2_E * -1.0, 16.0))
        series = _horner(e, -0.024734158937364713 * 2.0**-96, 0.10359169381793755 * 2.0**-80, -0.21240339510569894 * 2.0**-64, 0.32622580575392435 * 2.0**-48)  # fmt: skip
        result = e * tl.fma(tl.fma(series, e, -0.49953944330393796 * 2.0**-32), e, 2.0**-16)
    return result


@triton.jit
def softplus_term(x, rest=None, PRECISE: tl.constexpr = True):
    above = _most(x, 0.0)
    if rest is None:
        result = above + _softened_term(x, None, PRECISE)
    else:
        # Of an infinite x it is infinite or NaN; of one above 0 too little to show, of either sign.
        result = above + _softened_term(x, tl.minimum(rest, 1.0), PRECISE)
        if PRECISE:
            result = tl.maximum(result, x)
    return result


@triton.jit
def softened_term(x, PRECISE: tl.constexpr = True):
    return _softened_term(x, None, PRECISE)


@triton.jit
def low_log_term(x, PRECISE: tl.constexpr = True):
    """As `low_log`, less what the rounding of ln 2 left; -104 for 0."""
    if PRECISE:
        power, f = _raised_mantissa(x)
        result = tl.fma(power, LN_2 * BIT, tl.fma(f * f, _low_log_series(f), f))
        result = tl.where(x >= 0, result, float("nan"))
    else:
        result = low_log(x, PRECISE)
    return result


@triton.jit
def low_log1m_term(x, PRECISE: tl.constexpr = True):
    if PRECISE:
        result = low_log1m(x)
    else:
        series = _horner(x, 0.8238885259700613, -0.28043384666059656, 0.3882194294223798, 0.3169216975175719)  # fmt: skip
        result = tl.fma(x * x * -1.0, tl.fma(series, x, 0.5006147611767501), x * -1.0)
    return result


TERMS: dict[str, Any] = {
    "softplus": softplus_term, "softened": softened_term, "low_log": low_log_term, "low_log1m": low_log1m_term,
}  # fmt: skip
"""Words of sums over all elements: within 1.7 ulp of FLOAT, or 2^-16 of 16 bits, by two thirds of the instructions: kernels that only read have less time for them."""
