"""Faster forms of formulas for numbers or dtypes that allow them, in the language of formulas.

A form says when it serves and which numbers it takes; where none serves, the formula itself does.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import FORMULAS, Formula, described
from openaclnn.engines.formulas.smooth_l1_loss import LARGEST
from openaclnn.engines.formulas.words import Value, abs, maximum, minimum, sign, where

__all__ = ["TUNED", "Form", "Tuned", "as_float", "form_of", "tuned"]


class Form(NamedTuple):
    """What computes a plan: a formula, its numbers as FLOAT, its switches as constants of the kernel."""

    formula: Formula
    numbers: tuple[float, ...]
    switches: tuple[bool, ...]


class Tuned(NamedTuple):
    """A faster form, the plans it serves, and what it takes beside the plan's own numbers."""

    formula: Formula
    when: Callable[[Plan], bool]
    numbers: Callable[[Plan], Mapping[str, float]]


TUNED: dict[str, list[Tuned]] = {}
"""By the kernel's name; of those that serve a plan the first is taken."""


def tuned(
    kernel: str, when: Callable[[Plan], bool], numbers: Callable[[Plan], Mapping[str, float]]
) -> Callable[[Callable[..., Any]], Tuned]:
    """Make a function a faster form of a kernel's formula."""

    def enter(function: Callable[..., Any]) -> Tuned:
        made = Tuned(described(function), when, numbers)
        TUNED.setdefault(kernel, []).append(made)
        return made

    return enter


def as_float(number: float) -> float:
    """Rounded to FLOAT; NumPy's way takes a microsecond, and two more not to warn of infinity."""
    return ctypes.c_float(number).value


def form_of(plan: Plan) -> Form:
    """The first form that serves the plan, or the formula as it is."""
    formula, numbers = FORMULAS[plan.kernel], plan.numbers
    for own in TUNED.get(plan.kernel, ()):
        if own.when(plan):
            formula, numbers = own.formula, {**plan.numbers, **own.numbers(plan)}
            break
    rounded = tuple(as_float(own) for own in formula.numbers_of(numbers).values())
    return Form(formula, rounded, tuple(formula.switches_of(numbers).values()))


# An IEEE division is a dozen instructions. 16-bit results cannot show the difference from a product
# with 1 / beta, and for powers of two (beta is 1 unless somebody asks) there is none.


def _beta(plan: Plan) -> float:
    return as_float(plan.numbers["beta"])


def _inverse_beta(plan: Plan) -> dict[str, float]:
    """With whether a product with it may underflow: an infinite gradient then wants the difference itself."""
    beta = _beta(plan)
    return {"inverse_beta": 1 / beta, "shrinks": beta > 1}


def _has_inverse(plan: Plan) -> bool:
    return 2.0**-100 < _beta(plan) < 2.0**100


def _is_power_of_two(plan: Plan) -> bool:
    return _has_inverse(plan) and math.frexp(_beta(plan))[0] == 0.5


# The same bits in a third of the instructions, since the product is exact. An outer product of 16-bit
# numbers only writes, and has time for 14 instructions an element.
@tuned("smooth_l1_loss_backward", when=_is_power_of_two, numbers=_inverse_beta)
def smooth_l1_clamped(
    gradient: Value, x: Value, y: Value, *, mean_scale: float, inverse_beta: float, shrinks: bool
) -> Value:
    difference = x - y
    slope = maximum(minimum(difference * inverse_beta, 1.0), -1.0)
    if shrinks:
        slope = where(abs(gradient) <= LARGEST, slope, difference)
    return slope * gradient * mean_scale


@tuned(
    "smooth_l1_loss_backward",
    when=lambda plan: plan.compute is not FLOAT and _has_inverse(plan),
    numbers=_inverse_beta,
)
def smooth_l1_product(
    gradient: Value, x: Value, y: Value, *, beta: float, mean_scale: float, inverse_beta: float,
    shrinks: bool,
) -> Value:  # fmt: skip
    difference = x - y
    slope = where(abs(difference) < beta, difference * inverse_beta, sign(difference))
    if shrinks:
        slope = where(abs(gradient) <= LARGEST, slope, difference)
    return slope * gradient * mean_scale
