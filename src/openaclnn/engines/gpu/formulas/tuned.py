"""Faster forms of formulas for numbers or dtypes that allow them, in the language of formulas, and which of them serves a call."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from openaclnn.core.dtypes import FLOAT, float_of
from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import FORMULAS, Formula, activations, described
from openaclnn.engines.formulas.words import (
    Value,
    abs,
    expm1,
    fma,
    gate,
    low_log,
    low_log1m,
    maximum,
    minimum,
    sign,
    softplus,
    where,
)
from openaclnn.engines.machine import numbers as generic


class Form(NamedTuple):
    """What computes a plan: a formula, its switches as constexprs of the kernel, its numbers as FLOAT."""

    formula: Formula
    switches: tuple[bool, ...] = ()
    numbers: tuple[float, ...] = ()


class Choice(NamedTuple):
    """A kernel's forms, and which of them serves one of its numbers, Python's or that of machine code.

    `choose(exact, number)` gets whether the computation type is FLOAT, and the number as FLOAT. It gives the form's place among `forms`, and what forms take
    as `derived` beside the plan's own numbers.
    """

    number: str
    derived: str
    forms: tuple[Form, ...]  # without numbers
    choose: Callable[[generic.Truth, generic.Number], tuple[generic.Number, generic.Number]]


def as_floats(numbers: Sequence[float]) -> tuple[float, ...]:
    """Rounded to FLOAT, several in a third of the time that `float_of` takes."""
    packed = _packed(len(numbers))
    try:
        return packed.unpack(packed.pack(*numbers))
    except OverflowError:  # what FLOAT holds as infinite
        return tuple(map(float_of, numbers))


@functools.cache
def _packed(count: int) -> struct.Struct:
    return struct.Struct(f"{count}f")


def form_of(plan: Plan, call_numbers: Mapping[str, Any] | None = None) -> Form:
    """The form that serves the plan, or other numbers than its own; the formula as it is, where there is no choice."""
    numbers = plan.numbers if call_numbers is None else call_numbers
    choice = CHOICES.get(plan.kernel)
    if choice is None:
        formula = FORMULAS[plan.kernel]
        form = Form(formula, tuple([bool(numbers[name]) for name in formula.switches]))
    else:
        (number,) = as_floats([numbers[choice.number]])
        place, derived = choice.choose(plan.compute is FLOAT, number)
        form = choice.forms[place]
        numbers = {**numbers, choice.derived: derived}
    return form._replace(numbers=as_floats([numbers[name] for name in form.formula.numbers]))


RAISE, LOWER = 2.0**100, 2.0**-100

# An IEEE division is a dozen instructions. 16-bit results cannot show the difference from a product
# with 1 / beta, and for powers of two (beta is 1 unless somebody asks) there is none.


def _inverse(number: generic.Number) -> generic.Number:
    """1 / number as FLOAT, where it has one."""
    if isinstance(number, float):
        return 1 / number if number else math.inf
    return (1.0 / number.to("f64")).to("f32")


def _kinds(number: generic.Number) -> tuple[generic.Truth, generic.Truth]:
    """Whether it has an inverse, and whether it is a power of two."""
    size = generic.most(number, number * -1.0)
    served = generic.all_of(size > LOWER, size < RAISE)
    if isinstance(size, float):
        return served, served and math.frexp(size)[0] == 0.5
    return served, served & ((number.bits_as("i32") & 0x7FFFFF) == 0)


def _choose_of_five(
    exact: generic.Truth, beta: generic.Number
) -> tuple[generic.Number, generic.Number]:
    """Each product has a form for where it may be subnormal, or nothing: it is then made of a difference that was raised."""
    served, power = _kinds(beta)
    shrinks = generic.flag(beta > 1.0)
    product = generic.where(generic.all_of(served, generic.inverse(exact)), shrinks + 2, 4)
    return generic.where(power, shrinks, product), _inverse(beta)


def _choose_product(
    exact: generic.Truth, number: generic.Number
) -> tuple[generic.Number, generic.Number]:
    """The form with a product, or the formula."""
    served, power = _kinds(number)
    return generic.where(
        generic.any_of(power, generic.all_of(served, generic.inverse(exact))), 0, 1
    ), _inverse(number)


def _choose_quotient(
    exact: generic.Truth, number: generic.Number
) -> tuple[generic.Number, generic.Number]:
    """The form with a product, that with what the product left of a quotient, or the formula."""
    served, power = _kinds(number)
    place = generic.where(power, 0, generic.where(served, generic.flag(exact), 2))
    return place, _inverse(number)


# The same bits in a third of the instructions, since the product is exact. An outer product of 16-bit
# numbers only writes, and has time for 14 instructions an element.
@described
def smooth_l1_clamped(
    gradient: Value, x: Value, y: Value, *, mean_scale: float, inverse_beta: float, shrinks: bool
) -> Value:
    difference = x - y
    slope = maximum(minimum(difference * inverse_beta, 1.0), -1.0)
    if shrinks:
        tiny = abs(slope) < LOWER
        result = where(tiny, difference * RAISE * inverse_beta, slope) * gradient * mean_scale
        result = where(tiny, result * LOWER, result)
    else:
        result = slope * gradient * mean_scale
    return result


@described
def smooth_l1_product(
    gradient: Value, x: Value, y: Value, *, beta: float, mean_scale: float, inverse_beta: float,
    shrinks: bool,
) -> Value:  # fmt: skip
    difference = x - y
    slope = where(abs(difference) < beta, difference * inverse_beta, sign(difference))
    if shrinks:
        tiny = abs(slope) < LOWER
        result = where(tiny, difference * RAISE * inverse_beta, slope) * gradient * mean_scale
        result = where(tiny, result * LOWER, result)
    else:
        result = slope * gradient * mean_scale
    return result


# Then nothing is left of a rounding, either.
@described
def softplus_product(x: Value, *, beta: float, threshold: float, inverse_beta: float) -> Value:
    v = beta * x
    return where(v > threshold, x, softplus(v) * inverse_beta)


@described
def swish_product(x: Value, *, beta: float) -> Value:
    return gate(x, beta * x)


@described
def celu_product(x: Value, *, alpha: float, inverse_alpha: float) -> Value:
    return maximum(x, 0.0) + minimum(0.0, alpha * expm1(x * inverse_alpha))


@described
def celu_quotient(x: Value, *, alpha: float, inverse_alpha: float) -> Value:
    v = x * inverse_alpha
    rest = fma(-v, alpha, x) * inverse_alpha
    return maximum(x, 0.0) + minimum(0.0, alpha * expm1(v, rest))


CHOICES = {
    "smooth_l1_loss_backward": Choice(
        "beta", "inverse_beta",
        (
            *[Form(formula, (shrinks,)) for formula in (smooth_l1_clamped, smooth_l1_product) for shrinks in (False, True)],
            Form(FORMULAS["smooth_l1_loss_backward"]),
        ),
        _choose_of_five,
    ),
    "softplus": Choice("beta", "inverse_beta", (Form(softplus_product), Form(activations.softplus)), _choose_product),
    "swish": Choice("beta", "inverse_beta", (Form(swish_product), Form(activations.swish)), _choose_product),
    "celu": Choice("alpha", "inverse_alpha", (Form(celu_product), Form(celu_quotient), Form(activations.celu)), _choose_quotient),
}  # fmt: skip
"""By the kernel's name."""


# What is only added up, where the sum is finite: two instructions less an element. An infinite target makes it infinite or NaN, where the formula is NaN.


def _unlikelihood(x: Value, y: Value) -> Value:
    less = minimum(x, 1.0 - x)
    far = maximum(low_log(less), -100.0)
    near = low_log1m(less)
    return fma(where(x < 0.5, y, 1.0 - y), near - far, -near)


@described
def unlikelihood(x: Value, y: Value) -> Value:
    return _unlikelihood(x, y)


@described
def weighted_unlikelihood(x: Value, y: Value, weight: Value) -> Value:
    return weight * _unlikelihood(x, y)


FINITE_TERMS = {
    "binary_cross_entropy": weighted_unlikelihood, "binary_cross_entropy_without_weight": unlikelihood,
}  # fmt: skip
"""By the kernel's name, too."""
