"""The words of formulas beside Python's operators. NumPy's meaning stands here; values of an engine that writes code
have a `words` attribute with functions of the same names.

Comparisons with NaN are false. `minimum` and `maximum` give NaN where either value is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = [
    "WORDS", "Value", "abs", "exp", "expm1", "fma", "log", "log1p", "maximum", "minimum", "scaled_exp",
    "scaled_expm1", "sign", "sqrt", "tanh", "where",
]  # fmt: skip

Value = Any
"""A FLOAT for each element, or a truth value where two were compared."""

LARGEST_EXPONENT = 88.72283905206835
"""Above it exp overflows FLOAT."""

WORDS: dict[str, Callable[..., Any]] = {}
"""Every word by its name."""


def _word(function: Callable[..., Any]) -> Callable[..., Any]:
    name = function.__name__

    def word(*operands: Value) -> Value:
        for operand in operands:
            words = getattr(operand, "words", None)
            if words is not None:
                return getattr(words, name)(*operands)
        return function(*operands)

    word.__name__ = word.__qualname__ = name
    word.__doc__ = function.__doc__
    WORDS[name] = word
    return word


def _float(value: Any) -> Any:
    """Two Python numbers would make NumPy choose FLOAT64."""
    return np.float32(value) if isinstance(value, (int, float)) else value


def _rounded(function: Callable[..., Any], *operands: Any) -> Any:
    """A function in FLOAT64, whose result is rounded to the operands' type: NumPy's in FLOAT are off by 2 to 3 ulp."""
    kind = np.result_type(*map(_float, operands))
    return function(*(np.asarray(operand, np.float64) for operand in operands)).astype(kind)


@_word
def where(condition: Value, yes: Value, no: Value) -> Value:
    """One of two values by a comparison."""
    return np.where(condition, _float(yes), _float(no))


@_word
def fma(x: Value, y: Value, z: Value) -> Value:
    """x * y + z, rounded once."""
    return (np.asarray(x, np.float64) * y + z).astype(np.float32)


@_word
def exp(x: Value) -> Value:
    return _rounded(np.exp, x)


@_word
def expm1(x: Value) -> Value:
    """exp(x) - 1, exact to the last places where x is small."""
    return _rounded(np.expm1, x)


@_word
def scaled_exp(multiplier: Value, factor: Value, x: Value) -> Value:
    """multiplier * exp(factor * x), with all digits where the exponential alone would have lost some, or all, to its exponent."""
    return _rounded(lambda a, b, c: a * np.exp(b * c), multiplier, factor, x)


@_word
def scaled_expm1(multiplier: Value, factor: Value, x: Value) -> Value:
    """multiplier * (exp(factor * x) - 1), exact to the last places where factor * x is small; infinite where exp overflows."""

    def expm1_in_range(exponent: Any) -> Any:
        return np.where(exponent > LARGEST_EXPONENT, np.inf, np.expm1(exponent))

    return _rounded(lambda a, b, c: a * expm1_in_range(b * c), multiplier, factor, x)


@_word
def log(x: Value) -> Value:
    return _rounded(np.log, x)


@_word
def log1p(x: Value) -> Value:
    """log(1 + x), exact to the last places where x is small."""
    return _rounded(np.log1p, x)


@_word
def sqrt(x: Value) -> Value:
    return np.sqrt(x)


@_word
def tanh(x: Value) -> Value:
    return _rounded(np.tanh, x)


@_word
def abs(x: Value) -> Value:
    return np.abs(x)


@_word
def sign(x: Value) -> Value:
    """-1, 0 or 1; 0 for both zeros, NaN for NaN."""
    return np.sign(x)


@_word
def minimum(x: Value, y: Value) -> Value:
    return np.minimum(x, y)


@_word
def maximum(x: Value, y: Value) -> Value:
    return np.maximum(x, y)
