"""The functions that processors do not have: exp on FLOAT vectors; log(1 + x) in FLOAT, computed once a pixel; exp, exp - 1 and log(1 + x) in
FLOAT64, of a number or a vector of them, computed once a row.
"""

from __future__ import annotations

import math

import numpy as np

from openaclnn.engines.cpu.arithmetic.numerics import Constants
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Shape, Value, fma, maximum, minimum

__all__ = ["CONSTANT", "PLAIN", "WEIGHTS", "Exp", "exp64", "expm1_64", "foldable", "log1p_32", "log1p_64", "power64"]  # fmt: skip

LOG2_E = float(np.float32(1.4426950408889634))
LN2_HIGH = 0.693145751953125  # 16 significant bits: exact when multiplied by an exponent
LN2_LOW = float(np.float32(0.6931471805599453 - LN2_HIGH))
# Minimax for exp on +-ln(2)/2. Degree 6 is within 0.98 ulp when scaled by a multiplier; degree 5 would
# be within 2.32, over the bound of 2, and saves 5 % of the time.
COEFFICIENTS = (
    1.0, 1.0, 0.4999999403953552, 0.1666652113199234, 0.04166825860738754, 0.008368665352463722,
    0.0013821175089105964,
)  # fmt: skip
PLAIN, CONSTANT, WEIGHTS = range(3)
"""What rows add to factor * exp(x): nothing, a constant, or slope * weight."""
ROUNDER = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer, which then lies in the low bits


class Exp:
    """multiplier * exp(x): a degree-6 polynomial with the multiplier folded into its coefficients, times 2^n.

    `span` says where x lies; elsewhere (NaN included) the result is unspecified but harmless.
    "negative": up to 71; subnormal results are right, 0 below -104.3. "positive": from -60 on; inf where
    the result overflows. "full": everywhere, for four more operations. The first two cost nothing more
    than flushing would: 2^-24 or 2^24 moves from 2^n into the multiplier.
    The multiplier's size must lie between 2^-80 and 2^80 ("positive": 2^-20 and 2^80).
    It may be a vector: one for each lane.
    `factor` makes it multiplier * exp(factor * x), without rounding the product, for no more operations
    than one multiplication; x is then clamped by the caller (see `clamped`).
    """

    def __init__(
        self,
        code: Code,
        multiplier: Value | None = None,
        span: str = "full",
        factor: Value | None = None,
    ) -> None:
        self.span, self.factor = span, factor
        shift = {"negative": 24, "positive": -24, "full": 127}[span]
        self.rounder = ROUNDER + 127 + shift
        scale = 1.0 if span == "full" else 2.0**-shift
        coefficients: list[float | Value] = [scale * value for value in COEFFICIENTS]
        if multiplier is not None:
            coefficients = [multiplier * (scale * value) for value in COEFFICIENTS]
        self.addends = Constants(code, [self.rounder, *coefficients[:-1]])
        # Factors lie four to a register: NEON multiplies by one lane of it.
        factors = code.frame("f32", 1, 4, 16)
        log2_e = LOG2_E if factor is None else code.single(LOG2_E) * factor
        last = coefficients[-1]
        self.last = last if isinstance(last, Value) and last.lanes else None
        factors_in_order = (log2_e, -LN2_HIGH, -LN2_LOW, 0.0 if self.last is not None else last)
        # In one store: the load would wait for four to reach the cache.
        scalars = [one if isinstance(one, Value) else code.single(one) for one in factors_in_order]
        factors.store(code.lanes_of(scalars), code.integer(0), 16)
        self.factors = factors.load(code.integer(0), Shape(1, 4), True, 16)

    def _factor(self, x: Value, lane: int) -> Value:
        return self.factors.pick([lane] * x.lanes)

    def __call__(self, x: Value) -> Value:
        if self.span != "positive":
            # The bound's power of two is exactly 0 ("full": small enough), so that -inf gives 0.
            x = maximum(x, -104.66 if self.span == "negative" else -174.0)
        if self.span != "negative":
            x = minimum(x, 104.66 if self.span == "positive" else 174.0)
        return self.clamped(x)

    def clamped(self, x: Value) -> Value:
        """The same for x within the span's bounds already."""
        shifted = self.addends.add_to_product(0, x, self._factor(x, 0))
        n = shifted - self.rounder
        if self.factor is None:
            rest = fma(n, self._factor(x, 1), x)
        else:
            # n * LN2_HIGH is exact, so factor * x is rounded only after most of it has cancelled.
            rest = fma(x, self.factor, n * self._factor(x, 1))
        rest = fma(n, self._factor(x, 2), rest)
        powers = self._powers(shifted.bits_as("i32"))
        last = len(COEFFICIENTS) - 1
        leading = self._factor(x, 3) if self.last is None else self.last
        value = self.addends.add_to_product(last, rest, leading)
        for index in range(last - 1, 0, -1):
            value = self.addends.add_to_product(index, value, rest)
        for power in powers:
            value = value * power
        return value

    def _powers(self, bits: Value) -> list[Value]:
        """2^n from the low bits of the shifted sum; in two halves where one float32 cannot hold it."""
        whole = bits << 23
        if self.span != "full":
            return [whole.bits_as("f32")]
        half = (bits << 22) & 0x7F800000
        rest = whole - half
        return [half.bits_as("f32"), rest.bits_as("f32")]


def foldable(factor: Value) -> Value:
    """Whether a factor is moderate (see `Exp`) and goes into FLOAT's exponential."""
    size = abs(factor)
    return (size >= 2.0**-80) & (size <= 2.0**80)


HALF_ROOT_BITS_32 = 0x3F3504F3  # of sqrt(1/2)
LOG_LN2_HIGH, LOG_LN2_LOW = (
    0.6931381225585938,
    9.05800061445916e-06,
)  # the first exact times an exponent
# Minimax for log((1 + s) / (1 - s)) / s - 2 in s * s, s up to 3 - 2 sqrt(2).
SERIES = (0.6666666269, 0.4000097215, 0.2849878669, 0.2427907884)


def log1p_32(code: Code, x: Value) -> Value:
    """log(1 + x) for x from 0 on, to an ulp; infinity and NaN give themselves."""
    above = x + 1.0
    near = above < math.sqrt(2)
    # 1 + x = 2^n (1 + f), f between sqrt(1/2) - 1 and sqrt(2) - 1; where n is 0, f is x itself with all its digits.
    bits = above.bits_as("i32") - HALF_ROOT_BITS_32
    n = near.choose(0.0, bits.shifted_down(23).to("f32"))
    f = ((bits & ((1 << 23) - 1)) + HALF_ROOT_BITS_32).bits_as("f32") - 1.0
    f = near.choose(x, f)
    lost = near.choose(0.0, (x - (above - 1.0)) / above)
    s = f / (f + 2.0)
    square, half = s * s, f * f * 0.5
    series = code.single(SERIES[-1]).splat(x.lanes)
    for term in reversed(SERIES[:-1]):
        series = fma(series, square, term)
    small = fma(s, fma(series, square, half), fma(n, LOG_LN2_LOW, lost))
    result = fma(n, LOG_LN2_HIGH, (small - half) + f)
    return (x < float("inf")).choose(result, x)


SMALL = 0.35  # up to here exp(x) - 1 is a series, beyond a difference that loses a bit or two
VANISHED = -745.1332191019412  # below here exp(x) is nothing in FLOAT64
HALF_ROOT_BITS_64 = 0x3FE6A09E667F3BCD  # of sqrt(1/2)


def exp64(code: Code, x: Value, terms: int = 12) -> Value:
    """exp to 1e-16, with 8 terms to 2e-10; beyond 709 infinite, below -700 as there."""
    low = (x < -700.0).choose(-700.0, x)
    inside = (low > 709.0).choose(709.0, low)
    rounder = 6755399441055744.0 + 1023  # 1.5 * 2^52, and the exponent's bias for the low bits
    shifted = fma(inside, 1.4426950408889634, rounder)
    n = shifted - rounder
    rest = fma(n, -0.6931471803691238, inside)
    rest = fma(n, -1.9082149292705877e-10, rest)
    value = code.double(1 / math.factorial(terms))
    for number in range(terms - 1, -1, -1):
        value = fma(rest, value, 1 / math.factorial(number))
    power = (shifted.bits_as("i64") << 52).bits_as("f64")
    return (x > 709.0).choose(float("inf"), value * power)


def power64(code: Code, x: Value, terms: int = 12) -> Value:
    """exp, with 0 where there is nothing left of it: what is multiplied by infinity is NaN there."""
    return (x < VANISHED).choose(0.0, exp64(code, x, terms))


def expm1_64(code: Code, x: Value, power: Value, terms: int = 14) -> Value:
    """exp(x) - 1, given exp(x); with 9 terms to 1e-9."""
    value = code.double(1 / math.factorial(terms))
    for number in range(terms - 1, 0, -1):
        value = fma(x, value, 1 / math.factorial(number))
    return (abs(x) < SMALL).choose(value * x, power - 1.0)


def log1p_64(code: Code, x: Value) -> Value:
    """log(1 + x) for x from 0 on, to 1e-15 of itself; infinity and NaN give themselves."""
    above = x + 1.0
    near = above < math.sqrt(2)
    # 1 + x = 2^n (1 + f), f between sqrt(1/2) - 1 and sqrt(2) - 1; where n is 0, f is x itself with all its digits.
    bits = above.bits_as("i64") - HALF_ROOT_BITS_64
    n = bits.shifted_down(52).to("f64")
    f = ((bits & ((1 << 52) - 1)) + HALF_ROOT_BITS_64).bits_as("f64") - 1.0
    n, f = near.choose(0.0, n), near.choose(x, f)
    lost = near.choose(0.0, (x - (above - 1.0)) / above)
    # log(1 + f) = 2 atanh(s), s = f / (2 + f): up to 0.172, where the next term is below 1e-17.
    s = f / (f + 2.0)
    square = s * s
    value = code.double(2 / 21)
    for number in range(19, 0, -2):
        value = fma(square, value, 2 / number)
    result = fma(value, s, fma(n, math.log(2), lost))
    return (x < float("inf")).choose(result, x)
