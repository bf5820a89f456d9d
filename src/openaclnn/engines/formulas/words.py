"""The words of formulas beside Python's operators. NumPy's meaning stands here; values of an engine that writes code
have a `words` attribute with functions of the same names.

Comparisons with NaN are false. `minimum` and `maximum` give NaN where either value is one; so do all functions of NaN.
Functions are those of the exact value, rounded: within 1 ulp of it in FLOAT, signed zeros, subnormal numbers and infinities
included (docs/numerics.md has the bounds). Words that take a `rest` are those of x + rest, the rest being what a rounding left of x, nothing where that is NaN or infinite:

    v = beta * x
    return gate(x, v, fma(beta, x, -v))  # x * sigmoid(beta * x), as if the product were not rounded

Words of one value, and of its negative, share their exponential and their division.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from openaclnn.engines.formulas import special

Value = Any
"""A FLOAT for each element, or a truth value where two were compared."""

LARGEST = 3.4028234663852886e38
"""Of the finite FLOATs."""

_TANH_SCALE = 1.5957691216057308  # sqrt(8 / pi)

LARGEST_EXPONENT = 88.72283905206835
"""Above it exp overflows FLOAT."""

WORDS: dict[str, Callable[..., Any]] = {}
"""Every word by its name."""

BOUNDS: dict[str, float] = {}
"""Those that are not exact, with the largest error that engines may have, in ulp of FLOAT."""


def _word(function: Callable[..., Any]) -> Callable[..., Any]:
    name = function.__name__

    @functools.wraps(function)
    def word(*operands: Value) -> Value:
        for operand in operands:
            words = getattr(operand, "words", None)
            if words is not None:
                return getattr(words, name)(*operands)
        return function(*operands)

    WORDS[name] = word
    return word


def check_count(name: str, operands: Sequence[Any]) -> None:
    """TypeError where a word does not take so many values."""
    function: Any = inspect.unwrap(WORDS[name])
    most = function.__code__.co_argcount
    least = most - len(function.__defaults__ or ())
    if not least <= len(operands) <= most:
        takes = most if least == most else f"{least} or {most}"
        raise TypeError(f"`{name}` takes {takes} values, not {len(operands)}")


def _float(value: Any) -> Any:
    """Two Python numbers would make NumPy choose FLOAT64."""
    return np.float32(value) if isinstance(value, (int, float)) else value


def _wide(bound: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A word that NumPy computes in float64, and rounds where its values are FLOAT; the largest error that the other engines
    may have, in ulp of FLOAT, 0.5 being a correctly rounded result."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def computed(*operands: Any) -> Any:
            values = [np.asarray(_float(operand)) for operand in operands]
            kind = np.result_type(*values)
            wide = [each if each.dtype.kind == "c" else each.astype(np.float64) for each in values]
            result = function(*wide)
            return result.astype(kind) if kind.kind in "fc" else result

        if bound > 0.5:
            BOUNDS[function.__name__] = bound
        return _word(computed)

    return enter


def _sum(x: Any, rest: Any) -> Any:
    """x and what its rounding left, which is nothing where that is infinite or NaN."""
    return x if rest is None else np.where(np.isfinite(rest) & (rest != 0), x + rest, x)


@_word
def where(condition: Value, yes: Value, no: Value) -> Value:
    """One of two values by a comparison; a number takes the dtype of the value beside it."""
    if isinstance(yes, (int, float)) and isinstance(no, (int, float)):
        yes = _float(yes)
    return np.where(condition, yes, no)


@_wide(0.5)
def fma(x: Value, y: Value, z: Value) -> Value:
    """x * y + z, rounded once."""
    return x * y + z


@_wide(1.0)
def exp(x: Value, rest: Value = None) -> Value:
    return np.exp(_sum(x, rest))


@_wide(1.0)
def expm1(x: Value, rest: Value = None) -> Value:
    """exp(x) - 1, exact to the last places where x is small."""
    return np.expm1(_sum(x, rest))


@_wide(0.5)
def scaled_exp(multiplier: Value, factor: Value, x: Value) -> Value:
    """multiplier * exp(factor * x), with all digits where the exponential alone would have lost some, or all, to its exponent."""
    return multiplier * np.exp(factor * x)


@_wide(0.5)
def scaled_expm1(multiplier: Value, factor: Value, x: Value) -> Value:
    """multiplier * (exp(factor * x) - 1), exact to the last places where factor * x is small; infinite where exp overflows."""
    exponent = factor * x
    return multiplier * np.where(exponent > LARGEST_EXPONENT, np.inf, np.expm1(exponent))


@_wide(1.0)
def log(x: Value) -> Value:
    return np.log(x)


@_wide(1.0)
def log1p(x: Value) -> Value:
    """log(1 + x), exact to the last places where x is small."""
    return np.log1p(x)


@_wide(0.5)
def low_log(x: Value) -> Value:
    """log(x) for an x from 0 to 1/2, or NaN below that: where nothing is near 1, a GPU has half as much to do."""
    return np.log(x)


@_wide(0.5)
def low_log1m(x: Value) -> Value:
    """log(1 - x) for an x from 0 to 1/2."""
    return np.log1p(-x)


@_wide(1.0)
def logit(x: Value) -> Value:
    """log(x / (1 - x)), exact to the last places around 1/2; infinite for 0 and 1, NaN outside of them."""
    centre = np.where(np.abs(x - 0.5) < 0.25, x, 0.5)
    middle = np.log1p((2.0 * centre - 1.0) / (1.0 - centre))
    return np.where(centre == x, middle, np.log(x) - np.log1p(-x))


@_word
def sqrt(x: Value) -> Value:
    return np.sqrt(x)


@_word
def ratio(x: Value, y: Value) -> Value:
    """x / y for a y from 2^-60 to 2^60, and an x that is no larger, which takes a GPU a third of the time."""
    return x / y


@_wide(1.0)
def tanh(x: Value) -> Value:
    return np.tanh(x)


@_wide(1.0)
def sigmoid(x: Value, rest: Value = None) -> Value:
    """1 / (1 + exp(-x)); its complement 1 - sigmoid(x) is sigmoid(-x), which loses no digits."""
    return special.sigmoid(_sum(x, rest))


@_wide(1.7)
def gate(x: Value, v: Value, rest: Value = None) -> Value:
    """x * sigmoid(v), also where sigmoid(v) alone would be subnormal; NaN where that is 0 and x is infinite."""
    return x * special.sigmoid(_sum(v, rest))


@_wide(0.5)
def scaled_gate(x: Value, factor: Value) -> Value:
    """x * sigmoid(factor * x) for one factor, as if the product were not rounded; for a factor of 0 half of x, of infinity too."""
    return x * special.sigmoid(factor * np.where(factor == 0, 0.0, x))


@_wide(1.0)
def softplus(x: Value, rest: Value = None) -> Value:
    """log1p(exp(x)) = -log_sigmoid(-x), without overflow."""
    return special.softplus(_sum(x, rest))


# What `special.py` has as it is.
log_sigmoid = _wide(1.0)(special.log_sigmoid)
erf = _wide(1.0)(special.erf)
erfc = _wide(1.0)(special.erfc)
erfinv = _wide(2.0)(special.erfinv)
normal_cdf = _wide(1.0)(special.normal_cdf)
normal_pdf = _wide(1.0)(special.normal_pdf)


@_wide(0.5)
def softened(x: Value) -> Value:
    """log1p(exp(x)) for an x up to 0."""
    return np.log1p(np.exp(x))


@_wide(1.01)
def gelu(x: Value) -> Value:
    """x * normal_cdf(x), also where that alone would be subnormal; NaN for -infinity. Within 2 ulp, on GPUs 3."""
    return x * special.normal_cdf(x)


@_wide(0.5)
def gelu_slope(x: Value) -> Value:
    """The derivative of `gelu`; where it is near 0, digits cancel."""
    return special.normal_cdf(x) + x * special.normal_pdf(x)


@_wide(1.8)
def gelu_tanh(x: Value) -> Value:
    """x * sigmoid(v), v = sqrt(8 / pi) (x + 0.044715 x^3): what `gelu` is by an approximation with tanh."""
    return x * special.sigmoid(_TANH_SCALE * (x + 0.044715 * x * x * x))


@_wide(0.5)
def gelu_tanh_slope(x: Value) -> Value:
    """The derivative of `gelu_tanh`; where it is near 0, digits cancel."""
    x = np.clip(x, -1e3, 1e3)  # 0 and 1 from far before
    power = np.exp(-np.abs(_TANH_SCALE * (x + 0.044715 * x * x * x)))
    share = 1.0 / (1.0 + power)
    bent = _TANH_SCALE * (x + 3.0 * 0.044715 * x * x * x) * power * share * share
    return np.where(x < 0, power, 1.0) * share + bent


@_wide(2.2)
def mish(x: Value) -> Value:
    """x * tanh(softplus(x)), also where that alone would be subnormal; NaN for -infinity."""
    power = np.exp(-np.abs(x))
    upper = np.where(x > 0, 1.0 + 2.0 * power, power * (power + 2.0))
    return x * (upper / (upper + np.where(x > 0, 2.0 * power * power, 2.0)))


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
