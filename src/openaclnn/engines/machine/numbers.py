"""Arithmetic of sizes that works on Python ints and on values of machine code being written.

So what is computed from sizes and strides, as how work is divided into pieces, is written once: called with ints the function returns the result for one problem; called
with `values.Value`s it writes code that computes it at each call. Both arms of a `where` are evaluated, so a divisor must be at least 1 in the arm that is not taken, too.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from openaclnn.core.dtypes import float_of

Number: TypeAlias = Any
"""An int, or an int64 of machine code; a float or an f32 where a function says so."""
Truth: TypeAlias = Any
"""A bool, or a truth value of machine code."""


def where(condition: Truth, yes: Number, no: Number) -> Number:
    """`yes` if the condition holds, else `no`. No code is written where Python knows the condition, or both are the same."""
    if condition.__class__ is bool:
        return yes if condition else no
    return yes if yes is no else condition.choose(yes, no)


def all_of(*conditions: Truth) -> Truth:
    """Whether all conditions hold; no code is written for those that Python knows."""
    every: Truth = True
    for condition in conditions:
        if condition is False:
            return False
        if condition is not True:
            every = condition if every is True else every & condition
    return every


def any_of(*conditions: Truth) -> Truth:
    """Whether a condition holds; no code is written for those that Python knows."""
    either: Truth = False
    for condition in conditions:
        if condition is True:
            return True
        if condition is not False:
            either = condition if either is False else either | condition
    return either


def inverse(condition: Truth) -> Truth:
    return not condition if condition.__class__ is bool else ~condition


def flag(condition: Truth) -> Number:
    """1 if a condition holds, else 0."""
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
