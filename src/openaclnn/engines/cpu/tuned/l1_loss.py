"""Smooth L1: a clamped difference times the inverse of beta, instead of a division, two comparisons and a sign; and L1 of 16 bits by these."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from openaclnn.core.dtypes import float_of
from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.formulas.forms import Derive, Form, Rare, Site, formula_form, tuned
from openaclnn.engines.formulas import Formula, described
from openaclnn.engines.formulas.words import abs, fma, maximum, minimum, where
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Shape, Value, intrinsic

# A slope below LOWER may be subnormal, or nothing: it is computed of a difference times RAISE, and what comes of it is lowered.
RAISE, LOWER = 2.0**100, 2.0**-100


def smooth_l1_unit(gradient: Value, x: Value, y: Value, *, mean_scale: float, scaled: bool) -> Any:
    result = maximum(minimum(x - y, 1.0), -1.0) * gradient
    return result * mean_scale if scaled else result


# `exact`: the inverse of a power of two. With an inverse of twice the digits a product is the quotient that a division gives (but for one in millions,
# 1 ulp), for one operation more; a division would take longer than the memory does.
def smooth_l1_clamped(
    gradient: Value, x: Value, y: Value, *, beta: float, inverse: float, remnant: float,
    mean_scale: float, exact: bool, scaled: bool, tiny: bool,
) -> Any:  # fmt: skip
    clamped = maximum(minimum(x - y, beta), -beta)
    raised = where(abs(clamped) < beta * LOWER, clamped * RAISE, clamped) if tiny else clamped
    slope = raised * inverse if exact else fma(raised, inverse, raised * remnant)
    result = slope * gradient
    result = result * mean_scale if scaled else result
    return where(abs(clamped) < beta * LOWER, result * LOWER, result) if tiny else result


def _any_tiny(values: Sequence[Any], numbers: Mapping[str, Any]) -> Any:
    """Differences below LOWER times beta, but 0, by their bits without a sign: one less than 0 is the largest number."""
    _, x, y = values
    least = (numbers["beta"] * LOWER).bits_as("i32")
    sizes = ((x - y).bits_as("i32") << 1) - 1
    nearest = functools.reduce(functools.partial(intrinsic, "umin"), sizes.streams())
    return nearest.below(least << 1)


_TINY = Rare("tiny", _any_tiny)


def smooth_l1_loss_inside(
    x: Value, y: Value, *, beta: float, inverse: float, remnant: float, exact: bool
) -> Any:
    size = abs(x - y)
    slope = size * (inverse * 0.5) if exact else fma(size, inverse, size * remnant) * 0.5
    return where(size < beta, size * slope, size - 0.5 * beta)


_UNIT, _CLAMPED = described(smooth_l1_unit), described(smooth_l1_clamped)
_LOSS = described(smooth_l1_loss_inside)


@tuned(
    "smooth_l1_loss_backward",
    gain="2^24 FLOAT elements on two Neoverse-N1 cores: 6.2 ms; a division alone takes longer than the memory",
    examples=[
        {"beta": beta, "mean_scale": scale} for beta in (0.7, 1.0, 2.0) for scale in (1.0, 0.5)
    ],
)
def clamped(plan: Plan) -> Form | None:
    """Any beta but 0, infinity and the extremes."""
    beta, scale = float(plan.numbers["beta"]), float(plan.numbers["mean_scale"])
    if not _serves(beta):
        return None
    numbers, scaled = {**_inverse(beta), "mean_scale": scale}, bool(plan.reciprocal) or scale != 1
    if beta == 1:
        return formula_form(_UNIT, numbers, {"scaled": scaled}, _derivation(_UNIT, True))
    exact = _is_power_of_two(beta)
    switches = {"exact": exact, "scaled": scaled}
    return formula_form(_CLAMPED, numbers, switches, _derivation(_CLAMPED, exact), _TINY)


@tuned(
    "smooth_l1_loss",
    gain="one division less: of 4 lanes on a Neoverse-N1 it alone takes as long as the rest",
    examples=[{"beta": beta} for beta in (0.7, 1.0, 2.0)],
)
def loss(plan: Plan) -> Form | None:
    """The same betas."""
    beta = float(plan.numbers["beta"])
    if not _serves(beta):
        return None
    exact = _is_power_of_two(beta)
    return formula_form(_LOSS, _inverse(beta), {"exact": exact}, _derivation(_LOSS, exact))


def _serves(beta: float) -> bool:
    return 2.0**-60 < beta < 2.0**60


def _is_power_of_two(beta: float) -> bool:
    return math.frexp(beta)[0] == 0.5


@functools.cache
def _derivation(chosen: Formula, exact: bool) -> Derive:
    """`clamped`, `loss` and `_inverse` as code, for a beta that comes to this form."""

    def write(code: Code, numbers: list[Value]) -> tuple[Value, dict[int, Value]]:
        (beta,) = numbers
        serves = (beta > 2.0**-60) & (beta < 2.0**60)
        if chosen is not _LOSS:
            one = beta == 1.0
            serves = serves & (one if chosen is _UNIT else ~one)
        power_of_two = (beta.bits_as("i64") & ((1 << 52) - 1)) == 0
        serves = serves & (power_of_two if exact else ~power_of_two)
        quotient = code.double(1.0) / beta
        rounded = quotient.to("f32")
        below = (rounded.bits_as("i32") - 1).bits_as("f32")
        high = (rounded.to("f64") > quotient).choose(below, rounded).to("f64")
        known = {"beta": beta, "inverse": high, "remnant": quotient - high}
        places = {name: place for place, name in enumerate(chosen.numbers)}
        return serves, {place: known[name] for name, place in places.items() if name in known}

    return Derive(("beta",), write)


def _inverse(beta: float) -> dict[str, float]:
    """Beta, and 1 / beta as a sum of two float32 numbers of the same sign."""
    high = float_of(1 / beta)
    if high > 1 / beta:
        high = float(np.nextafter(np.float32(high), np.float32(0)))
    return {"beta": beta, "inverse": high, "remnant": float_of(1 / beta - high)}


# L1 on 16-bit elements as they are: g, -g, or 0 * g, by the bits of the difference.


@tuned(
    "l1_loss_backward",
    gain="2^24 BFLOAT16 elements on two Neoverse-N1 cores: 4.2 ms (PyTorch 36)",
    examples=[{"mean_scale": 1.0}, {"mean_scale": 0.5}],
)
def by_bits(plan: Plan) -> Form | None:
    """One 16-bit dtype throughout.

    The difference is 0 only for equal values, and NaN where the rule wants 0, so one subtraction replaces
    two comparisons; gradients are neither widened nor rounded.
    """
    kinds = {operand.dtype.short for operand in (*plan.inputs, plan.output)}
    if len(kinds) > 1 or "f32" in kinds:
        return None
    scale = float(plan.numbers["mean_scale"])
    scaled = bool(plan.reciprocal) or scale != 1
    name = f"l1.bits{'.scaled' * scaled}"
    return Form(name, functools.partial(_write, scaled=scaled), (scale,), names=("mean_scale",))


def _write(site: Site, scaled: bool) -> None:
    kind = site.signature.inputs[0]
    endless = 0x7C00 if kind == "f16" else 0x7F80
    out = site.code.array(site.operands[-1].pointer, "i16")

    def body(shape: Shape, index: Value) -> None:
        difference = _difference(site, shape, index)
        gradient = _gradient(site, shape, index, scaled)
        # Neither 0 nor NaN: 1 to infinity, as a number.
        differs = ((difference & 0x7FFF) - 1).below(endless)
        signed = gradient ^ (difference & 0x8000)
        if kind == "f16":
            tie = (gradient.bits_as("f16") * 0.0).bits_as("i16")
        else:
            finite = (gradient & 0x7FFF).below(endless)
            nan = finite.choose(gradient.as_value(0), gradient.as_value(0xFFFF))
            tie = (gradient & 0x8000) | nan
        out.store(differs.choose(signed, tie), index)

    site.code.elements(site.count, 4, body, lanes=2 * site.code.lanes)


def _bits(site: Site, shape: Shape, operand: int, index: Value) -> Value:
    """16-bit elements as integers."""
    array = site.code.array(site.operands[operand].pointer, "i16")
    if operand in site.singles:
        return array.read(0).fill(shape)
    return array.load(index, shape)


def _halves(shape: Shape) -> Shape:
    """The same elements as float32 vectors of the machine's width: two for one."""
    return shape if shape.lanes == 1 else Shape(2 * shape.streams, shape.lanes // 2)


def _joined(shape: Shape, halves: Value) -> Value:
    return halves if shape.lanes == 1 else halves.joined()


def _difference(site: Site, shape: Shape, index: Value) -> Value:
    """x - y: sign, zero and NaN are right; of bfloat16 the low half, which cannot matter, is cut off."""
    if site.signature.inputs[0] == "f16":
        x, y = (_bits(site, shape, operand, index).bits_as("f16") for operand in (1, 2))
        return (x - y).bits_as("i16")
    parts = _halves(shape)
    difference = site.load(parts, 1, index) - site.load(parts, 2, index)
    upper = difference.bits_as_lanes("i16").pick(range(1, 2 * parts.lanes, 2))
    return _joined(shape, upper)


def _gradient(site: Site, shape: Shape, index: Value, scaled: bool) -> Value:
    if not scaled:
        return _bits(site, shape, 0, index)
    values = site.load(_halves(shape), 0, index) * site.numbers[0]
    rounded = numerics.narrow(values, site.signature.inputs[0], site.opaque)
    return _joined(shape, rounded).bits_as("i16")
