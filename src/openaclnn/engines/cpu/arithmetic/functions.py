"""The functions that processors do not have: exp on FLOAT vectors; log(1 + x) in FLOAT, exp and exp - 1 in FLOAT64, of a number or a vector of
them, computed once a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from openaclnn.engines.cpu.arithmetic.numerics import Constants
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Shape, Value, fma, maximum, minimum

LOG2_E = float(np.float32(1.4426950408889634))
LN2_HIGH = 0.693145751953125  # 16 significant bits: exact when multiplied by an exponent
LN2_LOW = float(np.float32(0.6931471805599453 - LN2_HIGH))
# Minimax for exp on +-ln(2)/2. Degree 6 is within 0.98 ulp when scaled by a multiplier; degree 5 would
# be within 2.32, over the bound of 2, and saves 5 % of the time.
COEFFICIENTS = (
    1.0, 1.0, 0.4999999403953552, 0.1666652113199234, 0.04166825860738754, 0.008368665352463722,
    0.0013821175089105964,
)  # fmt: skip
# exp(r) - 1 = r + r^2 * P(r) on +-ln(2)/2.
EXPM1_COEFFICIENTS = (
    0.5, 1.6666667163e-1, 4.1666463017e-2, 8.3332983777e-3, 1.3933883747e-3, 1.9899586914e-4,
)  # fmt: skip
EXPM1_LINEAR = 2.0**-26  # up to here exp(x) - 1 is x
ROUNDER = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer, which then lies in the low bits


class _Reduction:
    """factor * x = n ln 2 + rest: what exp and exp - 1 begin with, and their constants.

    Factors lie four to a register, of which NEON multiplies by one lane: log2(e), the parts of ln 2, and the polynomial's first
    coefficient.
    """

    def __init__(
        self, code: Code, bias: int, coefficients: Sequence[float | Value], factor: Value | None = None
    ) -> None:  # fmt: skip
        self.factor, self.rounder = factor, ROUNDER + bias
        *others, first = coefficients
        self.last = len(others)
        self.addends = Constants(code, [self.rounder, *others])
        self.first = first if isinstance(first, Value) and first.lanes else None
        log2_e = LOG2_E if factor is None else code.single(LOG2_E) * factor
        in_order = (log2_e, -LN2_HIGH, -LN2_LOW, 0.0 if self.first is not None else first)
        scalars = [one if isinstance(one, Value) else code.single(one) for one in in_order]
        # In one store: the load would wait for four to reach the cache.
        factors = code.frame("f32", 1, 4, 16)
        factors.store(code.lanes_of(scalars), code.integer(0), 16)
        self.factors = factors.load(code.integer(0), Shape(1, 4), True, 16)

    def _factor(self, x: Value, lane: int) -> Value:
        return self.factors.pick([lane] * x.lanes)

    def reduce(self, x: Value) -> tuple[Value, Value]:
        """The rest, and an integer with n and the bias in its low bits."""
        shifted = self.addends.add_to_product(0, x, self._factor(x, 0))
        n = shifted - self.rounder
        if self.factor is None:
            rest = fma(n, self._factor(x, 1), x)
        else:
            # n * LN2_HIGH is exact, so factor * x is rounded only after most of it has cancelled.
            rest = fma(x, self.factor, n * self._factor(x, 1))
        return fma(n, self._factor(x, 2), rest), shifted.bits_as("i32")

    def reduce_between(
        self, low: float, high: float, factor: Value, x: Value
    ) -> tuple[Value, Value, Value, Value]:
        """The same for any factor and x, with the exponent brought between two: n, the rest, what its last rounding lost, the integer."""
        product = x * factor
        exponent = maximum(minimum(product, high), low)
        remnant = (exponent == product).choose(fma(x, factor, -exponent), 0.0)
        shifted = self.addends.add_to_product(0, exponent, self._factor(x, 0))
        n = shifted - self.rounder
        upper = fma(n, self._factor(x, 1), exponent) + remnant  # of which the first is exact
        rest = fma(n, self._factor(x, 2), upper)
        return n, rest, fma(n, self._factor(x, 2), upper - rest), shifted.bits_as("i32")

    def polynomial(self, rest: Value) -> Value:
        leading = self._factor(rest, 3) if self.first is None else self.first
        value = self.addends.add_to_product(self.last, rest, leading)
        for index in range(self.last - 1, 0, -1):
            value = self.addends.add_to_product(index, value, rest)
        return value


class Exp(_Reduction):
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
        self.span = span
        shift = {"negative": 24, "positive": -24, "full": 127}[span]
        scale = 1.0 if span == "full" else 2.0**-shift
        coefficients: list[float | Value] = [scale * value for value in COEFFICIENTS]
        if multiplier is not None:
            coefficients = [multiplier * (scale * value) for value in COEFFICIENTS]
        super().__init__(code, 127 + shift, coefficients, factor)

    def __call__(self, x: Value) -> Value:
        if self.span != "positive":
            # The bound's power of two is exactly 0 ("full": small enough), so that -inf gives 0.
            x = maximum(x, -104.66 if self.span == "negative" else -174.0)
        if self.span != "negative":
            x = minimum(x, 104.66 if self.span == "positive" else 174.0)
        return self.clamped(x)

    def clamped(self, x: Value) -> Value:
        """The same for x within the span's bounds already."""
        rest, bits = self.reduce(x)
        value = self.polynomial(rest)
        if self.span != "full":
            return value * (bits << 23).bits_as("f32")
        half, other = self._halves(bits)
        return value * half * other

    def times(self, x: Value, factor: Value) -> Value:
        """factor * exp(x), of a "full" span, with all digits where exp(x) alone is subnormal."""
        rest, bits = self.reduce(maximum(minimum(x, 174.0), -174.0))
        half, other = self._halves(bits)
        product = self.polynomial(rest) * half * factor * other
        # What is infinite in FLOAT, or 0 in FLOAT64, too, is that times the factor: times 0 or infinity it is no number.
        ends = maximum(x * 3e38, 0.0)
        beyond = (x > 88.72283) | (x < -745.2)
        return beyond.choose(ends * factor, product)

    def scaled(self, value: Value, factor: Value, x: Value) -> Value:
        """value * exp(factor * x), with the multiplier, of a "full" span: the value stands between the halves of 2^n, so that no
        digit is lost where exp itself is subnormal, or vanishes. The exponential is 0 below -175; all but 0 is infinite times one
        above 176, and 0 is NaN where FLOAT64 has no such exponential."""
        _, rest, _, bits = self.reduce_between(-176.1, 176.0, factor, x)
        half, other = self._halves(bits)
        product = x * factor
        beyond = (product > FLOAT64_ENDS).choose(other.as_value(math.inf), 2.0**127)
        return value * half * self.polynomial(rest) * other * (product > 176.0).choose(beyond, 1.0)

    def _halves(self, bits: Value) -> tuple[Value, Value]:
        """2^n in two factors, since one float32 cannot hold it."""
        half = (bits << 22) & 0x7F800000
        return half.bits_as("f32"), ((bits << 23) - half).bits_as("f32")


class ShiftedExp(Exp):
    """exp(x - top) for x up to the top, less a factor that all x of one top share.

    Where x and top differ much, their difference has lost digits that its exponential would show 2^7 times as large. So x itself is n ln 2 + rest, and the top
    m ln 2 + t: a power is 2^(n - m) exp(rest), the shared factor exp(-t). Beyond `FAR` the top is subtracted first, as the digits of x are not.
    """

    FAR = 2.0**14

    RAISED = 2.0**24  # what powers have more, so that none is subnormal where its top's own is 1

    def __init__(self, code: Code, exact: bool = False) -> None:
        """`exact`: powers are FLOAT64, to 0.2 ulp of FLOAT."""
        _Reduction.__init__(self, code, 127 + 24, EXPM1_COEFFICIENTS if exact else COEFFICIENTS)
        self.code, self.bias, self.exact = code, self.rounder, exact

    def shift(self, top: Value) -> tuple[tuple[Value, Value, Value], Value]:
        """What powers of a top, FLOAT64, are computed with, and their factor."""
        near = abs(top) <= self.FAR
        base, left = near.choose(0.0, top), near.choose(top, 0.0)
        rounder = 6755399441055744.0  # 1.5 * 2^52
        m = fma(left, 1.4426950408889634, rounder) - rounder
        t = fma(m, -1.9082149292705877e-10, fma(m, -0.6931471803691238, left))
        # The lowest one's power of two is exactly 0.
        lowest = (m - 151.0) * math.log(2)
        shift = base.to("f32"), lowest.to("f32"), (-m + self.bias).to("f32")
        # exp(-t) to 1e-11: t is 0.35 at the most.
        factor = self.code.double(-1 / math.factorial(9))
        for number in range(8, -1, -1):
            factor = fma(t, factor, (-1) ** number / math.factorial(number))
        return shift, factor * (1 / self.RAISED)

    def power(self, x: Value, shift: tuple[Value, Value, Value]) -> Value:
        base, lowest, rounder = shift
        inside = x - base
        inside = (inside > lowest).choose(inside, lowest)
        shifted = fma(inside, self._factor(x, 0), rounder)
        n = shifted - rounder
        rest = fma(n, self._factor(x, 2), fma(n, self._factor(x, 1), inside))
        scale = (shifted.bits_as("i32") << 23).bits_as("f32")
        if not self.exact:
            return self.polynomial(rest) * scale
        return (fma(rest * rest, self.polynomial(rest), rest) * scale).to("f64") + scale.to("f64")


class Expm1(_Reduction):
    """multiplier * (exp(factor * x) - 1) for exponents up to 0: 2^n (exp(rest) - 1) + (2^n - 1), whose terms have no digits to lose.

    With the multiplier in both terms they are rounded once, so that it costs no digit.
    """

    BOUND = -20.0  # exp(-20) is nothing beside 1

    def __init__(
        self, code: Code, multiplier: Value | None = None, factor: Value | None = None
    ) -> None:
        self.multiplier = multiplier
        super().__init__(code, 127 if multiplier is not None else 126, EXPM1_COEFFICIENTS, factor)

    def clamped(self, x: Value) -> Value:
        """For BOUND / factor and above."""
        assert self.multiplier is not None
        rest, bits = self.reduce(x)
        power = (bits << 23).bits_as("f32") * self.multiplier
        value = fma(rest * rest, self.polynomial(rest), rest)
        return fma(power, value, power - self.multiplier)

    def scaled(self, multiplier: Value, factor: Value, x: Value) -> Value:
        """The same for any numbers and exponents, if none was folded in; infinite where exp overflows.

        The rest comes with what its rounding lost, and is not rounded with the polynomial: where exp grows, 2^n doubles such errors.
        """
        n, rest, lost, bits = self.reduce_between(-60.0, 89.0, factor, x)
        half = (bits << 23).bits_as("f32")  # of 2^n, which may not fit
        # Where n is 0 or 1, 2^n (1 + rest) - 1 is exact; elsewhere the rest belongs to the smaller term.
        exact = (abs(n - 0.5) < 1.0).choose(rest, 0.0)
        # 2^24 - 1/2 is rounded by half a unit of the result, other differences by less.
        lost = (n == 25.0).choose(lost - 2.0**-25, lost)
        small = fma(rest * rest, self.polynomial(rest), lost) + (rest - exact)
        value = fma(half, small, fma(half, exact, half - 0.5)) * 2.0 * multiplier
        # So small an exponent is its own result: zeros keep their signs, and what is subnormal is rounded once if it can be.
        product = multiplier * factor
        size = abs(product)
        fits = (size >= 2.0**-126) & (size < math.inf)
        linear = x * fits.choose(product, factor) * fits.choose(product.as_value(1.0), multiplier)
        return (abs(x * factor) < EXPM1_LINEAR).choose(linear, value)


HALF_ROOT_BITS_32 = 0x3F3504F3  # of sqrt(1/2)
LOG_LN2_HIGH, LOG_LN2_LOW = (
    0.6931381225585938,
    9.05800061445916e-06,
)  # the first exact times an exponent
# Minimax for log((1 + s) / (1 - s)) / s - 2 in s * s, s up to 3 - 2 sqrt(2).
SERIES = (0.6666666269, 0.4000097215, 0.2849878669, 0.2427907884)


def log1p_32(code: Code, x: Value) -> Value:
    """log(1 + x) for x from 0 on, to an ulp; infinity and NaN give themselves."""
    n, f, small = _log1p_terms(code, x)
    result = fma(n, LOG_LN2_HIGH, small + f)
    return (x < float("inf")).choose(result, x)


def log1p_short(code: Code, x: Value) -> Value:
    """The same of FLOAT64 to a tenth of FLOAT's ulp: what is large among its terms is added in FLOAT64."""
    near = x.to("f32")
    n, f, small = _log1p_terms(code, near)
    rounding = (x - near.to("f64")).to("f32") / (near + 1.0)
    result = fma(n.to("f64"), LOG_LN2_HIGH, (small + rounding).to("f64") + f.to("f64"))
    return (x < float("inf")).choose(result, x)


def _log1p_terms(code: Code, x: Value) -> tuple[Value, Value, Value]:
    """1 + x = 2^n (1 + f), f between sqrt(1/2) - 1 and sqrt(2) - 1; where n is 0, f is x itself with all its digits. The logarithm less f and n times the
    first part of ln 2."""
    above = x + 1.0
    near = above < math.sqrt(2)
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
    return n, f, fma(s, fma(series, square, half), fma(n, LOG_LN2_LOW, lost)) - half


FLOAT64_ENDS = 709.0  # above it exp overflows FLOAT64
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
    return (x > FLOAT64_ENDS).choose(float("inf"), value * power)


def power64(code: Code, x: Value, terms: int = 12) -> Value:
    """exp, with 0 where there is nothing left of it: what is multiplied by infinity is NaN there."""
    return (x < VANISHED).choose(0.0, exp64(code, x, terms))


def expm1_64(code: Code, x: Value, power: Value, terms: int = 14) -> Value:
    """exp(x) - 1, given exp(x); with 9 terms to 1e-9."""
    value = code.double(1 / math.factorial(terms))
    for number in range(terms - 1, 0, -1):
        value = fma(x, value, 1 / math.factorial(number))
    return (abs(x) < SMALL).choose(value * x, power - 1.0)
