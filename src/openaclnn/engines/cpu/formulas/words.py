"""The words of formulas as vector code: polynomials and selections on every lane, no branches and no calls.

An exponential is (high + low) 2^n until it is used, so that what follows rounds once; 2^n is two factors, since one FLOAT does not
hold it everywhere. What two words of a formula share (the exponential and the quotient of x and of -x) is written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from openaclnn.engines.cpu.arithmetic.functions import LN2_HIGH, LN2_LOW, LOG2_E, ROUNDER
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value, fma, intrinsic, maximum, minimum

__all__ = ["HEAVY", "Words"]

HEAVY = frozenset(
    {
        "erf", "erfc", "erfinv", "exp", "expm1", "gate", "gelu", "log", "log1p", "log_sigmoid", "logit", "normal_cdf",
        "normal_pdf", "sigmoid", "softplus", "tanh",
    }
)  # fmt: skip
"""Words that take longer than the memory does."""

# Minimax polynomials with FLOAT coefficients, the highest power first.
# exp(r) = 1 + r + r^2 P(r) on +-ln(2)/2, to 2^-28.
EXP = (0.0013820742024108768, 0.008369248360395432, 0.041668280959129333, 0.16666516661643982, 0.4999999403953552)  # fmt: skip
# log(1 + f) = f - f^2 / 2 + f^3 P(f) for f between sqrt(1/2) - 1 and sqrt(2) - 1, to 2^-30.
LOG = (
    0.06750279664993286, -0.11673499643802643, 0.11884847283363342, -0.12405844032764435, 0.1422017514705658,
    -0.1666799932718277, 0.20002077519893646, -0.25000008940696716, 0.3333331346511841,
)  # fmt: skip
# log(1 + e) = e - e^2 / 2 + e^3 P(e) for e up to 1, to 2^-29.
LOG1P = (
    0.002276314189657569, -0.014681964181363583, 0.04429808259010315, -0.08591856062412262, 0.12679627537727356,
    -0.1622842699289322, 0.19926351308822632, -0.2499331384897232, 0.3333309292793274,
)  # fmt: skip
# erf(x) = x + x P(x^2) up to 1, to 2^-29.
ERF = (
    7.806903886375949e-05, -0.0007997853099368513, 0.005187162198126316, -0.026853347197175026, 0.11283578723669052,
    -0.3761262595653534, 0.12837916612625122,
)  # fmt: skip
# exp(t^2 / 2) normal_cdf(-t) = u P(u - MILLS_CENTRE), u = 1 / (t + MILLS_SHIFT), for t up to 14.5.
MILLS = (
    -474.4321594238281, 344.1152038574219, -36.064945220947266, -69.83251953125, 30.537601470947266, 9.040574073791504,
    -9.568663597106934, -1.9002856016159058, 3.2134969234466553, 2.2907142639160156, 0.7484664916992188,
)  # fmt: skip
MILLS_SHIFT, MILLS_CENTRE = 2.5, 0.21875
# erfinv(x) / x in w = -log(1 - x^2): of w - 2.5 below 5, else of sqrt(w) - 3 (M. Giles, 2010).
INVERSE_CENTRAL = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
INVERSE_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip
LOG_LN2_HIGH, LOG_LN2_LOW = 0.693359375, -2.12194440e-4
HALF_ROOT_BITS = 0x3F3504F3  # of sqrt(1/2)
ROOT_2_HIGH = float(np.float32(math.sqrt(2)))
BIAS = 254  # of the two powers of two together
LARGE = 3e38  # what is larger leaves no rest


class Term(Value):
    """A value inside a formula, which knows what words mean there."""

    __slots__ = ()
    words: Words

    def __le__(self, other: Any) -> Any:
        is_zero = isinstance(other, (int, float)) and other == 0
        return super().__le__(self.words.zero(self.lanes) if is_zero else other)


class Power(NamedTuple):
    """An exponential: (high + low) * first * second, the last two being powers of two."""

    high: Any
    low: Any
    first: Any
    second: Any

    @property
    def value(self) -> Any:
        return self.high * self.first * self.second


class Words:
    """What formulas may say beside Python's operators."""

    def __init__(self, code: Code, zero: Callable[[int], Value | float]) -> None:
        self.code, self.zero = code, zero
        self._term = type("Term", (Term,), {"__slots__": (), "words": self})
        self._written: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def term(self, value: Value) -> Any:
        """A value for a formula of this code."""
        return value.become(self._term)

    def _value(self, number: Any) -> Any:
        return number if isinstance(number, Value) else self.term(self.code.single(number))

    def _once(self, what: str, x: Any, rest: Any, write: Callable[[], Any]) -> Any:
        """What is written once for a value and its rest; they are kept, so that no others have their identities."""
        key = what, *map(id, x.parts), *(map(id, rest.parts) if isinstance(rest, Value) else ())
        if key not in self._written:
            self._written[key] = (x, rest), write()
        return self._written[key][1]

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        return condition.choose(self._value(yes), self._value(no))

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return fma(self._value(x), y, z)

    def abs(self, x: Any) -> Any:
        return intrinsic("fabs", x)

    def sqrt(self, x: Any) -> Any:
        return intrinsic("sqrt", x)

    def minimum(self, x: Any, y: Any) -> Any:
        return minimum(self._value(x), y)

    def maximum(self, x: Any, y: Any) -> Any:
        return maximum(self._value(x), y)

    def sign(self, x: Any) -> Any:
        size = (x > 0.0).choose(self._value(1.0), x)
        size = (x < 0.0).choose(self._value(-1.0), size)
        return (x == 0.0).choose(self._value(0.0), size)

    # Exponentials.

    def _rest(self, x: Any, rest: Any) -> Any:
        """What a rounding left of x; nothing where that is infinite."""
        return (self.abs(x) < LARGE).choose(rest, self._value(0.0))

    def _reduced(self, x: Any, rest: Any, bias: int) -> tuple[Any, Any, Any]:
        """x + rest = n ln 2 + r: n + bias in the low bits of an integer, r, and exp(r) - 1 - r."""
        shifted = fma(x, LOG2_E, ROUNDER + bias)
        n = shifted - (ROUNDER + bias)
        # x less n times the head of ln 2 is exact; what rounding leaves of the tail is added to the polynomial.
        head = fma(n, -LN2_HIGH, x)
        tail = n * -LN2_LOW if rest is None else fma(n, -LN2_LOW, rest)
        r = head + tail
        return (
            shifted.bits_as("i32"),
            r,
            fma(r * r, self._polynomial(EXP, r), tail - (r - head)),
        )

    def _power(self, x: Any, rest: Any = None) -> Power:
        """exp(x + rest), x between -174 and 174."""
        bits, r, curve = self._reduced(x, rest, BIAS)
        one = r + 1.0
        curve = curve + (r - (one - 1.0))
        high = one + curve
        whole = bits << 23
        first = (bits << 22) & 0x7F800000
        second = whole - first
        return Power(high, curve - (high - one), first.bits_as("f32"), second.bits_as("f32"))

    def exp(self, x: Any, rest: Any = None) -> Any:
        if rest is not None:
            rest = self._rest(x, rest)
        return self._power(minimum(maximum(x, -174.0), 174.0), rest).value

    def _half_expm1(self, x: Any, rest: Any = None) -> tuple[Any, Any]:
        """Half of exp(x) - 1, and what rounding left of it; x between -60 and 89."""
        # With x = n ln 2 + r it is 2^n (exp(r) - 1) + (2^n - 1), whose two terms have no digits to lose; half of it
        # fits where 2^n does not.
        bits, r, curve = self._reduced(x, rest, 126)
        half = (bits << 23).bits_as("f32")
        base, grown = half - 0.5, half * r
        back = base - half
        lost = (half - (base - back)) - (back + 0.5)  # nothing but beyond n = 24 and -24
        value = base + grown
        small = fma(half, curve, (grown - (value - base)) + lost)
        result = value + small
        return result, small - (result - value)

    def expm1(self, x: Any, rest: Any = None) -> Any:
        if rest is not None:
            rest = self._rest(x, rest)
        # Beyond the bounds it is -1 and infinite.
        value, _ = self._half_expm1(minimum(maximum(x, -60.0), 89.0), rest)
        # So small a number is its own result: -0 and the smallest ones stay what they are.
        return (self.abs(x) < 2.0**-26).choose(x, value * 2.0)

    def _quotient(self, v: Any, rest: Any) -> tuple[Power, Any, Any, Any]:
        """Of the size of v: its power e = exp(-|v|), 1 / (1 + e), 1 + e, and what rounding left of that."""

        def write() -> tuple[Power, Any, Any, Any]:
            power = self._power(maximum(-self.abs(v), -174.0), rest)
            e = power.value
            below = e + 1.0
            return power, 1.0 / below, below, e - (below - 1.0)

        return self._once("quotient", v, rest, write)  # type: ignore[no-any-return]

    def _sigmoid(self, v: Any, rest: Any) -> tuple[Any, Any, Any]:
        """sigmoid(v + rest) as a number near 1 and two powers of two, the last of them 0 where FLOAT has nothing of it."""
        base, negated = v, False
        if rest is not None:
            rest = self._rest(v, rest)
            rest = (v < 0.0).choose(rest, -rest)
        elif (positive := v.negative_of()) is not None:
            base, negated = positive, True
        power, inverse, below, left = self._quotient(base, rest)
        one = self._value(1.0)
        positive = (base <= 0.0) if negated else (base >= 0.0)
        numerator = positive.choose(one, power.high)
        value = numerator * inverse
        error = fma(-value, left, fma(-value, below, numerator))
        error = error + positive.choose(self._value(0.0), power.low)
        value = fma(error, inverse, value)
        second = positive.choose(one, power.second)
        vanished = (base > 150.0) if negated else (base < -150.0)
        return value, positive.choose(one, power.first), vanished.choose(self._value(0.0), second)

    def sigmoid(self, x: Any, rest: Any = None) -> Any:
        value, first, second = self._sigmoid(x, rest)
        return value * first * second

    def gate(self, x: Any, v: Any, rest: Any = None) -> Any:
        value, first, second = self._sigmoid(v, rest)
        return (value * first * x) * second

    def _softened(self, x: Any, rest: Any = None) -> tuple[Any, Any]:
        """log1p(exp(-|x|)), and what rounding left of it."""
        power = self._power(maximum(-self.abs(x), -174.0), rest)
        e = power.value
        half = e * -0.5
        # e - e^2 / 2, what rounding left of it, and the rest of the series.
        value = fma(half, e, e)
        left = fma(half, e, e - value)
        lost = power.low * power.first * power.second
        left = fma(lost, half, lost) + left
        return value, fma(e * e * e, self._polynomial(LOG1P, e), left)

    def softplus(self, x: Any, rest: Any = None) -> Any:
        above = x > 0.0
        if rest is not None:
            rest = self._rest(x, rest)
            value, left = self._softened(x, above.choose(-rest, rest))
            left = above.choose(left + rest, left)
        else:
            value, left = self._softened(x)
        return self._sum(maximum(x, 0.0), value, left)

    def log_sigmoid(self, x: Any) -> Any:
        value, left = self._softened(x)
        return self._sum(minimum(x, 0.0), -value, -left)

    def _sum(self, x: Any, y: Any, left: Any) -> Any:
        """x + y + left, where left is less than the others."""
        total = x + y
        grown = total - x
        left = left + ((x - (total - grown)) + (y - grown))
        return (self.abs(total) < math.inf).choose(total + left, total)

    def tanh(self, x: Any) -> Any:
        # -m / (1 + m) with 2 m = exp(-2 |x|) - 1, which has all its digits near 0 as well.
        m, lost = self._half_expm1(maximum(self.abs(x) * -2.0, -60.0))
        below = m + 1.0
        inverse = 1.0 / below
        left = (m - (below - 1.0)) + lost
        value = m * inverse
        error = fma(-value, left, fma(-value, below, m)) + lost
        return self._signed(fma(error, inverse, value), x)

    def _signed(self, size: Any, x: Any) -> Any:
        """A number with the sign of another."""
        sign = x.bits_as("i32") & -(1 << 31)
        return ((size.bits_as("i32") & 0x7FFFFFFF) | sign).bits_as("f32")

    # Logarithms.

    def _log(self, x: Any, left: Any = None) -> Any:
        """log(x + left) of positive normal numbers, where left is less than an ulp of x."""
        bits = x.bits_as("i32") - HALF_ROOT_BITS
        n = bits.shifted_down(23).to("f32")
        f = ((bits & 0x7FFFFF) + HALF_ROOT_BITS).bits_as("f32") - 1.0
        square = f * f
        small = fma(n, LOG_LN2_LOW, square * f * self._polynomial(LOG, f))
        if left is not None:
            small = small + left
        small = fma(square, -0.5, small)
        whole = n * LOG_LN2_HIGH
        large = whole + f
        return large + (small + (f - (large - whole)))

    def _defined(self, x: Any, value: Any) -> Any:
        """A logarithm of x also where x is 0, infinite or negative."""
        value = (x == math.inf).choose(x, value)
        value = (x == 0.0).choose(self._value(-math.inf), value)
        return (x >= 0.0).choose(value, self._value(math.nan))

    def log(self, x: Any) -> Any:
        tiny = x < 2.0**-126
        value = self._log(tiny.choose(x * 2.0**23, x))
        lower = value - 23 * math.log(2)
        return self._defined(x, tiny.choose(lower, value))

    def log1p(self, x: Any) -> Any:
        above = x + 1.0
        left = (x - (above - 1.0)) / above
        value = self._defined(above, self._log(above, left))
        return (self.abs(x) < 2.0**-26).choose(x, value)

    def logit(self, x: Any) -> Any:
        below = 1.0 - x
        ratio = x / below
        left = fma(-ratio, below, x) - ratio * ((1.0 - below) - x)
        value = self._log(maximum(ratio, 2.0**-126), left / x)
        value = (x < 2.0**-126).choose(self.log(x), value)
        value = (x == 1.0).choose(self._value(math.inf), value)
        return ((x >= 0.0) & (x <= 1.0)).choose(value, self._value(math.nan))

    # The normal distribution.

    def _gaussian(self, x: Any) -> Power:
        """exp(-x^2 / 2)."""

        def write() -> Power:
            size = self.abs(x)
            within = minimum(size, 18.0)
            square = within * within
            power = self._power(square * -0.5, fma(within, within, -square) * -0.5)
            second = (size > 17.0).choose(self._value(0.0), power.second)
            return power._replace(second=second)

        return self._once("gaussian", x, None, write)  # type: ignore[no-any-return]

    def _mills(self, size: Any) -> Any:
        """exp(t^2 / 2) normal_cdf(-t) of t from 0 to 18."""
        u = 1.0 / (size + MILLS_SHIFT)
        return u * self._polynomial(MILLS, u - MILLS_CENTRE)

    def _tail(self, x: Any) -> tuple[Any, Any, Any]:
        """normal_cdf(-|x|) as a number near 1 and two powers of two."""

        def write() -> tuple[Any, Any, Any]:
            power = self._gaussian(x)
            ratio = self._mills(minimum(self.abs(x), 18.0))
            return fma(ratio, power.high, ratio * power.low), power.first, power.second

        return self._once("tail", x, None, write)  # type: ignore[no-any-return]

    def normal_cdf(self, x: Any) -> Any:
        value, first, second = self._tail(x)
        value = value * first * second
        return (x > 0.0).choose(1.0 - value, value)

    def normal_pdf(self, x: Any) -> Any:
        power = self._gaussian(x)
        scale = 1 / math.sqrt(2 * math.pi)
        value = fma(power.high, scale, power.low * scale)
        return value * power.first * power.second

    def gelu(self, x: Any) -> Any:
        value, first, second = self._tail(x)
        low = (value * first * minimum(x, 18.0)) * second
        return (x > 0.0).choose(x - low, low)

    def _erfc_tail(self, size: Any) -> tuple[Any, Any, Any]:
        square = size * size
        power = self._power(-square, -fma(size, size, -square))
        ratio = self._mills(size * ROOT_2_HIGH) * 2.0
        return fma(ratio, power.high, ratio * power.low), power.first, power.second

    def erf(self, x: Any) -> Any:
        size = self.abs(x)
        near = fma(self._polynomial(ERF, x * x), x, x)
        value, first, second = self._erfc_tail(minimum(size, 11.0))
        far = 1.0 - value * first * second
        far = (x < 0.0).choose(-far, far)
        return (size < 1.0).choose(near, far)

    def erfc(self, x: Any) -> Any:
        value, first, second = self._erfc_tail(minimum(self.abs(x), 11.0))
        tail = value * first * second
        return (x < 0.0).choose(2.0 - tail, tail)

    def erfinv(self, x: Any) -> Any:
        size = self.abs(x)
        w = -self.log(fma(-x, x, 1.0))
        central = self._polynomial(INVERSE_CENTRAL, w - 2.5)
        tail = self._polynomial(INVERSE_TAIL, self.sqrt(w) - 3.0)
        value = x * (w < 5.0).choose(central, tail)
        return (size == 1.0).choose(x * math.inf, value)

    def _polynomial(self, coefficients: tuple[float, ...], x: Any) -> Any:
        value = fma(x, coefficients[0], coefficients[1])
        for coefficient in coefficients[2:]:
            value = fma(value, x, coefficient)
        return value
