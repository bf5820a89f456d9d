"""Arithmetic of sizes, over numbers that are Python's or those of machine code being written.

What follows from sizes and strides, as how work is cut into pieces, is one function of them. Called with ints it gives the cut of one problem;
called with `values.Value`s it writes the code that cuts any. Both arms of a `where` are evaluated, so that divisors are 1 at least.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from openaclnn.core.dtypes import float_of

Number: TypeAlias = Any
"""An int, or an int64 of machine code; a float or an f32 where a function says so."""
Truth: TypeAlias = Any
"""A bool, or a truth value of machine code."""


def where(condition: Truth, yes: Number, no: Number) -> Number:
    """One of two; what Python knows already is not written."""
    if condition.__class__ is bool:
        return yes if condition else no
    return yes if yes is no else condition.choose(yes, no)


def all_of(*conditions: Truth) -> Truth:
    """The same for `and`."""
    every: Truth = True
    for condition in conditions:
        if condition is False:
            return False
        if condition is not True:
            every = condition if every is True else every & condition
    return every


def any_of(*conditions: Truth) -> Truth:
    """The same for `or`."""
    some: Truth = False
    for condition in conditions:
        if condition is True:
            return True
        if condition is not False:
            some = condition if some is False else some | condition
    return some


def inverse(condition: Truth) -> Truth:
    return not condition if condition.__class__ is bool else ~condition


def flag(condition: Truth) -> Number:
    """1 or 0."""
    return int(condition) if condition.__class__ is bool else condition.to("i64")


def least(first: Number, second: Number) -> Number:
    return where(first < second, first, second)


def most(first: Number, second: Number) -> Number:
    return where(first > second, first, second)


def ceil_div(number: Number, divisor: Number) -> Number:
    return (number + divisor - 1) // divisor


def single(number: Number) -> Number:
    """A float, or a float64 of code, rounded to FLOAT."""
    return float_of(number) if isinstance(number, float) else number.to("f32").to("f64")
