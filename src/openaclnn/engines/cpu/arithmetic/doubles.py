"""exp, exp - 1 and log(1 + x) in FLOAT64, of a number or a vector of them: what is computed once a row."""

from __future__ import annotations

import math

from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value, fma

__all__ = ["exp64", "expm1_64", "log1p_64", "power64"]

SMALL = 0.35  # up to here exp(x) - 1 is a series, beyond a difference that loses a bit or two
VANISHED = -745.1332191019412  # below here exp(x) is nothing in FLOAT64
HALF_ROOT_BITS = 0x3FE6A09E667F3BCD  # of sqrt(1/2)


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
    bits = above.bits_as("i64") - HALF_ROOT_BITS
    n = bits.shifted_down(52).to("f64")
    f = ((bits & ((1 << 52) - 1)) + HALF_ROOT_BITS).bits_as("f64") - 1.0
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
