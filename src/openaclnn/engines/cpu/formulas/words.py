"""The words of formulas as vector code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from openaclnn.engines.cpu.arithmetic.functions import Exp, Expm1
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value, fma, intrinsic, maximum, minimum

__all__ = ["HEAVY", "Words"]

HEAVY = frozenset({"exp", "expm1", "log", "log1p", "scaled_exp", "scaled_expm1", "tanh"})
"""Words that take longer than the memory does."""

# log(1 + m) = m - m^2 / 2 + m^3 * P(m) for m between sqrt(1/2) - 1 and sqrt(2) - 1.
LOG_COEFFICIENTS = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
HALF_ROOT_BITS = 0x3F3504F3  # of sqrt(1/2)
# tanh(x) = x + x^3 * P(x^2) for small x.
TANH_COEFFICIENTS = (
    -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1,
)  # fmt: skip
TANH_SMALL = 0.625


class Term(Value):
    """A value inside a formula, which knows what words mean there."""

    __slots__ = ()
    words: Words

    def __le__(self, other: Any) -> Any:
        is_zero = isinstance(other, (int, float)) and other == 0
        return super().__le__(self.words.zero(self.lanes) if is_zero else other)


class Words:
    """What formulas may say beside Python's operators."""

    def __init__(self, code: Code, zero: Callable[[int], Value | float]) -> None:
        self.code, self.zero = code, zero
        self._term = type("Term", (Term,), {"__slots__": (), "words": self})
        self._functions: dict[type, Any] = {}

    def term(self, value: Value) -> Any:
        """A value for a formula of this code."""
        return value.become(self._term)

    def _value(self, number: Any) -> Any:
        return number if isinstance(number, Value) else self.term(self.code.single(number))

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        return condition.choose(self._value(yes), self._value(no))

    def exp(self, x: Any) -> Any:
        return self._function(Exp)(x)

    def scaled_exp(self, multiplier: Any, factor: Any, x: Any) -> Any:
        return self._function(Exp).scaled(*map(self._value, (multiplier, factor, x)))

    def expm1(self, x: Any) -> Any:
        return self.scaled_expm1(1.0, 1.0, x)

    def scaled_expm1(self, multiplier: Any, factor: Any, x: Any) -> Any:
        return self._function(Expm1).scaled(*map(self._value, (multiplier, factor, x)))

    def _function(self, kind: Any) -> Any:
        if kind not in self._functions:
            with self.code.once():  # its constants lie ready before the loop
                self._functions[kind] = kind(self.code)
        return self._functions[kind]

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

    def log(self, x: Any) -> Any:
        tiny = x < 2.0**-126
        scaled = tiny.choose(x * 2.0**23, x)
        bits = scaled.bits_as("i32") - HALF_ROOT_BITS
        exponent = (bits.shifted_down(23)).to("f32") - tiny.choose(
            self._value(23.0), self._value(0.0)
        )
        rest = ((bits & 0x7FFFFF) + HALF_ROOT_BITS).bits_as("f32") - 1.0
        value = self._polynomial(LOG_COEFFICIENTS, rest)
        square = rest * rest
        value = fma(exponent, LN2_LOW, value * rest * square)
        value = fma(square, -0.5, value)
        value = fma(exponent, LN2_HIGH, rest + value)
        infinite = x == math.inf
        value = infinite.choose(x, value)
        value = (x == 0.0).choose(self._value(-math.inf), value)
        return (x >= 0.0).choose(value, self._value(math.nan))

    def log1p(self, x: Any) -> Any:
        rounded = x + 1.0
        lost = (x - (rounded - 1.0)) / rounded
        usual = (rounded > 0.0) & (rounded < math.inf)
        return self.log(rounded) + usual.choose(lost, self._value(0.0))

    def tanh(self, x: Any) -> Any:
        size = self.abs(x)
        power = self.exp(size * -2.0)
        large = (1.0 - power) / (power + 1.0)
        square = x * x
        small = fma(self._polynomial(TANH_COEFFICIENTS, square) * square, x, x)
        signed = (x < 0.0).choose(-large, large)
        is_small = size < TANH_SMALL
        return is_small.choose(small, x.is_nan().choose(x, signed))

    def _polynomial(self, coefficients: tuple[float, ...], x: Any) -> Any:
        value = fma(x, coefficients[0], coefficients[1])
        for coefficient in coefficients[2:]:
            value = fma(value, x, coefficient)
        return value
