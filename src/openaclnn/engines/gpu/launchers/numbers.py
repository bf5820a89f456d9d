"""The words of launch geometry, over numbers that are Python's or those of machine code being written.

A launch follows from sizes and strides by one function. Called with ints it gives the launch itself; called with
`engines.machine.values.Value`s it writes the code that gives it. Both arms of a `where` are evaluated, so that divisors are 1 at least.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from openaclnn.engines.gpu.formulas.tuned import as_float

__all__ = [
    "Number", "Truth", "all_of", "any_of", "ceil_div", "clamp", "differ", "divide_exactly", "equal", "flag", "inverse", "least",
    "magnitude", "most", "power_of_two_above", "power_of_two_divisor", "quotient", "remainder", "single", "where", "where_all",
]  # fmt: skip

Number: TypeAlias = Any
"""An int, or an i64 of machine code; a float or an f32 where a function says so."""
Truth: TypeAlias = Any
"""A bool, or an i1 of machine code."""

DIVISOR = 16  # the largest power of two that is looked for


def where(condition: Truth, yes: Number, no: Number) -> Number:
    """One of two; what Python knows already is not written."""
    if condition is True:
        return yes
    if condition is False:
        return no
    if yes is no:
        return yes
    return condition.choose(yes, no)


def where_all(
    condition: Truth, yes: tuple[Number, ...], no: tuple[Number, ...]
) -> tuple[Number, ...]:
    """The same of several numbers at once."""
    if condition is True or condition is False:
        return yes if condition else no
    return tuple([where(condition, own, other) for own, other in zip(yes, no, strict=True)])


def all_of(*conditions: Truth) -> Truth:
    found: Truth = True
    for own in conditions:
        if own is False:
            return False
        if own is not True:
            found = own if found is True else found & own
    return found


def any_of(*conditions: Truth) -> Truth:
    found: Truth = False
    for own in conditions:
        if own is True:
            return True
        if own is not False:
            found = own if found is False else found | own
    return found


def inverse(condition: Truth) -> Truth:
    return not condition if condition.__class__ is bool else ~condition


def equal(first: Number, second: Number) -> Truth:
    return first == second


def differ(first: Number, second: Number) -> Truth:
    return first != second


def flag(condition: Truth) -> Number:
    """1 or 0."""
    return int(condition) if condition.__class__ is bool else condition.to("i64")


def least(first: Number, second: Number) -> Number:
    return where(first < second, first, second)


def most(first: Number, second: Number) -> Number:
    return where(first > second, first, second)


def clamp(number: Number, low: Number, high: Number) -> Number:
    return most(least(number, high), low)


def magnitude(number: Number) -> Number:
    return abs(number)


def quotient(number: Number, divisor: Number) -> Number:
    """Rounded down."""
    return number // divisor


def remainder(number: Number, divisor: Number) -> Number:
    return number % divisor


def ceil_div(number: Number, divisor: Number) -> Number:
    return quotient(number + divisor - 1, divisor)


def divide_exactly(number: Number, divisor: Number) -> Number:
    """What leaves no remainder; the number may be negative, as strides are."""
    return number // divisor


def power_of_two_divisor(*numbers: Number) -> Number:
    """The largest power of two up to 16 that divides all numbers.

    Kernels get numbers divided by it and multiply again: the compiler then knows the factor, which
    it must for vector access, and there are five variants at most instead of two per argument.
    """
    written = [own for own in numbers if own.__class__ is not int]
    if not written:
        return math.gcd(DIVISOR, *numbers)
    bits = written[0] | math.gcd(DIVISOR, *(own for own in numbers if own.__class__ is int))
    for own in written[1:]:
        bits = bits | own
    return bits & -bits


def power_of_two_above(number: Number, limit: int) -> Number:
    """The least power of two that is not below a number, but no more than the limit, which is one."""
    if number.__class__ is int:
        return min(1 << (number - 1).bit_length(), limit)
    found: Number = 1
    for _ in range(limit.bit_length() - 1):
        found = where(number > found, found * 2, found)
    return found


def single(number: Number) -> Number:
    """A float rounded to FLOAT; machine code has it so."""
    return as_float(number) if number.__class__ is float else number
