"""Faster forms of formulas for numbers or dtypes that allow them, in the language of formulas.

A form says when it serves and which numbers it takes; where none serves, the formula itself does.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from openaclnn.core.dtypes import FLOAT, DType, float_of
from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import FORMULAS, Formula, activations, described
from openaclnn.engines.formulas.words import (
    Value,
    abs,
    expm1,
    maximum,
    minimum,
    sign,
    softplus,
    where,
)


class Form(NamedTuple):
    """What computes a plan: a formula, its numbers as FLOAT, its switches as constexprs of the kernel."""

    formula: Formula
    numbers: tuple[float, ...]
    switches: tuple[bool, ...]


class Choice(NamedTuple):
    """Which of a kernel's forms serves a number, as machine code: what `form_of` finds in Python.

    `write(code, exact, number)` gets whether the computation type is FLOAT, and the call's number as FLOAT, the first where there are several. It gives the
    form's place among `forms`, and numbers that forms take by the names in `derived`.
    """

    number: str
    forms: tuple[tuple[Formula, tuple[bool, ...]], ...]  # with their switches
    derived: tuple[str, ...]
    write: Callable[[Any, Any, Any], tuple[Any, list[Any]]]


CHOICES: dict[str, Choice] = {}
"""By the kernel's name."""


class Tuned(NamedTuple):
    """A faster form, the plans it serves, and what it takes beside the plan's own numbers, which come as FLOAT."""

    formula: Formula
    when: Callable[[DType, Mapping[str, float]], bool]  # of the computation type and the numbers
    numbers: Callable[[Mapping[str, float]], Mapping[str, float]]


TUNED: dict[str, list[Tuned]] = {}
"""By the kernel's name; of those that serve a plan the first is taken."""


def tuned(
    kernel: str,
    when: Callable[[DType, Mapping[str, float]], bool],
    numbers: Callable[[Mapping[str, float]], Mapping[str, float]],
) -> Callable[[Callable[..., Any]], Tuned]:
    """Make a function a faster form of a kernel's formula."""

    def enter(function: Callable[..., Any]) -> Tuned:
        form = Tuned(described(function), when, numbers)
        TUNED.setdefault(kernel, []).append(form)
        return form

    return enter


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
    """The first form that serves the plan, or other numbers than its own; else the formula as it is."""
    formula, numbers = FORMULAS[plan.kernel], plan.numbers if call_numbers is None else call_numbers
    rounded = as_floats([numbers[name] for name in formula.numbers])
    own_forms = TUNED.get(plan.kernel)
    if own_forms:
        floats = dict(zip(formula.numbers, rounded, strict=True))
        for form in own_forms:
            if form.when(plan.compute, floats):
                formula, numbers = form.formula, {**numbers, **floats, **form.numbers(floats)}
                rounded = as_floats([numbers[name] for name in formula.numbers])
                break
    return Form(formula, rounded, tuple([bool(numbers[name]) for name in formula.switches]))


RAISE, LOWER = 2.0**100, 2.0**-100

# An IEEE division is a dozen instructions. 16-bit results cannot show the difference from a product
# with 1 / beta, and for powers of two (beta is 1 unless somebody asks) there is none.


def _inverse(name: str) -> Callable[[Mapping[str, float]], dict[str, float]]:
    """With whether a product with it may be subnormal, or nothing: it is then made of a difference that was raised."""
    return lambda numbers: {f"inverse_{name}": 1 / numbers[name], "shrinks": numbers[name] > 1}


def _has_inverse(number: float) -> bool:
    return 2.0**-100 < number < 2.0**100


def _is_power_of_two(number: float) -> bool:
    return math.frexp(number)[0] == 0.5 and _has_inverse(number)


def _is_product(name: str) -> Callable[[DType, Mapping[str, float]], bool]:
    """Whether a division by the number may be a product."""
    return lambda compute, numbers: (
        _is_power_of_two(numbers[name]) or (compute is not FLOAT and _has_inverse(numbers[name]))
    )


def _kinds(code: Any, number: Any) -> tuple[Any, Any, list[Any]]:
    """Whether it has an inverse, whether it is a power of two, and that inverse."""
    wide = number.to("f64")
    served = (wide > 2.0**-100) & (wide < 2.0**100)
    power = served & ((number.bits_as("i32") & 0x7FFFFF) == 0)
    return served, power, [(code.double(1.0) / wide).to("f32")]


def _write_choice(code: Any, exact: Any, beta: Any) -> tuple[Any, list[Any]]:
    """The number of the form among those of CHOICES, and 1 / beta."""
    served, power, inverse = _kinds(code, beta)
    shrinks = (beta > 1.0).to("i64")
    return power.choose(shrinks, (served & ~exact).choose(shrinks + 2, 4)), inverse


def _write_product(code: Any, exact: Any, number: Any) -> tuple[Any, list[Any]]:
    """0 for the form with a product, 1 for the formula; and the number's inverse."""
    served, power, inverse = _kinds(code, number)
    return (power | (served & ~exact)).choose(code.integer(0), 1), inverse


# The same bits in a third of the instructions, since the product is exact. An outer product of 16-bit
# numbers only writes, and has time for 14 instructions an element.
@tuned(
    "smooth_l1_loss_backward",
    when=lambda compute, numbers: _is_power_of_two(numbers["beta"]),
    numbers=_inverse("beta"),
)
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


@tuned(
    "smooth_l1_loss_backward",
    when=_is_product("beta"),
    numbers=_inverse("beta"),
)
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


CHOICES["smooth_l1_loss_backward"] = Choice(
    "beta",
    (
        (smooth_l1_clamped.formula, (False,)), (smooth_l1_clamped.formula, (True,)),
        (smooth_l1_product.formula, (False,)), (smooth_l1_product.formula, (True,)),
        (FORMULAS["smooth_l1_loss_backward"], ()),
    ),
    ("inverse_beta",),
    _write_choice,
)  # fmt: skip


# Then nothing is left of a rounding, either.
@tuned("softplus", when=_is_product("beta"), numbers=_inverse("beta"))
def softplus_product(x: Value, *, beta: float, threshold: float, inverse_beta: float) -> Value:
    v = beta * x
    return where(v > threshold, x, softplus(v) * inverse_beta)


@tuned("celu", when=_is_product("alpha"), numbers=_inverse("alpha"))
def celu_product(x: Value, *, alpha: float, inverse_alpha: float) -> Value:
    return maximum(x, 0.0) + minimum(0.0, alpha * expm1(x * inverse_alpha))


CHOICES["softplus"] = Choice(
    "beta",
    ((softplus_product.formula, ()), (activations.softplus, ())),
    ("inverse_beta",),
    _write_product,
)
CHOICES["celu"] = Choice(
    "alpha",
    ((celu_product.formula, ()), (activations.celu, ())),
    ("inverse_alpha",),
    _write_product,
)
