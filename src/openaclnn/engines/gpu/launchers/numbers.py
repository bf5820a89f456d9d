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


def _known(*numbers: Number) -> bool:
    """Whether all of them are Python's."""
    return all(isinstance(own, (int, float)) for own in numbers)


def where(condition: Truth, yes: Number, no: Number) -> Number:
    """One of two; what Python knows already is not written."""
    if _known(condition):
        return yes if condition else no
    if _known(yes, no):
        if yes is no:
            return yes
        if isinstance(yes, bool):
            return condition if yes else ~condition
        yes = condition.to("i64").as_value(yes)
    return condition.choose(yes, no)


def where_all(
    condition: Truth, yes: tuple[Number, ...], no: tuple[Number, ...]
) -> tuple[Number, ...]:
    """The same of several numbers at once."""
    return tuple([where(condition, own, other) for own, other in zip(yes, no, strict=True)])


def all_of(*conditions: Truth) -> Truth:
    written = [own for own in conditions if not _known(own)]
    if not all(own for own in conditions if _known(own)) or not written:
        return not written and all(conditions)
    found = written[0]
    for own in written[1:]:
        found = found & own
    return found


def any_of(*conditions: Truth) -> Truth:
    return inverse(all_of(*map(inverse, conditions)))


def inverse(condition: Truth) -> Truth:
    return not condition if _known(condition) else ~condition


def equal(first: Number, second: Number) -> Truth:
    if _known(first, second):
        return first == second
    return second.equals(first) if _known(first) else first.equals(second)


def differ(first: Number, second: Number) -> Truth:
    return inverse(equal(first, second))


def flag(condition: Truth) -> Number:
    """1 or 0."""
    return int(condition) if _known(condition) else condition.to("i64")


def least(first: Number, second: Number) -> Number:
    return where(first < second, first, second)


def most(first: Number, second: Number) -> Number:
    return where(first > second, first, second)


def clamp(number: Number, low: Number, high: Number) -> Number:
    return most(least(number, high), low)


def magnitude(number: Number) -> Number:
    return abs(number) if _known(number) else number.size()


def quotient(number: Number, divisor: Number) -> Number:
    """Rounded down; neither is negative."""
    if _known(number) and not _known(divisor):
        number = divisor.as_value(number)
    return number // divisor


def remainder(number: Number, divisor: Number) -> Number:
    """Neither is negative."""
    return number % divisor


def ceil_div(number: Number, divisor: Number) -> Number:
    return quotient(number + divisor - 1, divisor)


def divide_exactly(number: Number, divisor: Number) -> Number:
    """What leaves no remainder; the number may be negative, as strides are."""
    if _known(number, divisor):
        return number // divisor
    size = quotient(magnitude(number), divisor)
    return where(number < 0, -size, size)


def power_of_two_divisor(*numbers: Number) -> Number:
    """The largest power of two up to 16 that divides all numbers.

    Kernels get numbers divided by it and multiply again: the compiler then knows the factor, which
    it must for vector access, and there are five variants at most instead of two per argument.
    """
    written = [own for own in numbers if not _known(own)]
    divisor = math.gcd(DIVISOR, *(own for own in numbers if _known(own)))
    if not written:
        return divisor
    bits = written[0] | divisor
    for own in written[1:]:
        bits = bits | own
    return bits & -bits


def power_of_two_above(number: Number, limit: int) -> Number:
    """The least power of two that is not below a number, but no more than the limit, which is one."""
    if _known(number):
        return min(1 << (number - 1).bit_length(), limit)
    found: Number = 1
    for _ in range(limit.bit_length() - 1):
        found = where(number > found, found * 2, found)
    return found


def single(number: Number) -> Number:
    """A float rounded to FLOAT; machine code has it so."""
    return as_float(number) if _known(number) else number
