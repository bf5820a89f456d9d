"""Smooth L1: a clamped difference times the inverse of beta, instead of a division, two comparisons and a sign."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from openaclnn.core.dtypes import float_of
from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.formulas.forms import Derive, Form, Rare, formula_form, tuned
from openaclnn.engines.formulas import Formula, described
from openaclnn.engines.formulas.words import Value, abs, fma, maximum, minimum, where
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import intrinsic

# A slope below LOWER may be subnormal, or nothing: it is computed of a difference times RAISE, and what comes of it is lowered.
RAISE, LOWER = 2.0**100, 2.0**-100


def smooth_l1_unit(
    gradient: Value, x: Value, y: Value, *, mean_scale: float, scaled: bool
) -> Value:
    result = maximum(minimum(x - y, 1.0), -1.0) * gradient
    return result * mean_scale if scaled else result


def smooth_l1_exact(
    gradient: Value, x: Value, y: Value, *, beta: float, inverse: float, mean_scale: float, scaled: bool, tiny: bool
) -> Value:  # fmt: skip
    clamped = maximum(minimum(x - y, beta), -beta)
    raised = where(abs(clamped) < beta * LOWER, clamped * RAISE, clamped) if tiny else clamped
    result = raised * inverse * gradient
    result = result * mean_scale if scaled else result
    return where(abs(clamped) < beta * LOWER, result * LOWER, result) if tiny else result


def smooth_l1_corrected(
    gradient: Value, x: Value, y: Value, *, beta: float, inverse: float, remnant: float,
    mean_scale: float, scaled: bool, tiny: bool,
) -> Value:  # fmt: skip
    clamped = maximum(minimum(x - y, beta), -beta)
    raised = where(abs(clamped) < beta * LOWER, clamped * RAISE, clamped) if tiny else clamped
    # With an inverse of twice the digits this is the quotient that a division gives (but for one in
    # millions, 1 ulp), for one operation more; a division would take longer than the memory does.
    result = fma(raised, inverse, raised * remnant) * gradient
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


def smooth_l1_loss_exact(x: Value, y: Value, *, beta: float, inverse: float) -> Value:
    size = abs(x - y)
    return where(size < beta, size * (size * (inverse * 0.5)), size - 0.5 * beta)


def smooth_l1_loss_corrected(
    x: Value, y: Value, *, beta: float, inverse: float, remnant: float
) -> Value:
    size = abs(x - y)
    slope = fma(size, inverse, size * remnant)
    return where(size < beta, size * (slope * 0.5), size - 0.5 * beta)


_UNIT, _EXACT = described(smooth_l1_unit), described(smooth_l1_exact)
_CORRECTED = described(smooth_l1_corrected)
_LOSS_EXACT, _LOSS_CORRECTED = described(smooth_l1_loss_exact), described(smooth_l1_loss_corrected)


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
    chosen = _UNIT if beta == 1 else _EXACT if _is_power_of_two(beta) else _CORRECTED
    switches = {"scaled": bool(plan.reciprocal) or scale != 1}
    rare = None if beta == 1 else _TINY
    return formula_form(
        chosen, {**_inverse(beta), "mean_scale": scale}, switches, _DERIVE[chosen], rare
    )


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
    chosen = _LOSS_EXACT if _is_power_of_two(beta) else _LOSS_CORRECTED
    return formula_form(chosen, _inverse(beta), derive=_DERIVE[chosen])


def _serves(beta: float) -> bool:
    return 2.0**-60 < beta < 2.0**60


def _is_power_of_two(beta: float) -> bool:
    return math.frexp(beta)[0] == 0.5


def _derivation(chosen: Formula) -> Derive:
    """`clamped` and `_inverse` as code, for a beta that comes to this form."""

    def write(code: Code, numbers: list[Value]) -> tuple[Value, dict[int, Value]]:
        (beta,) = numbers
        serves = (beta > 2.0**-60) & (beta < 2.0**60)
        one = beta == 1.0
        power_of_two = (beta.bits_as("i64") & ((1 << 52) - 1)) == 0
        if chosen in (_UNIT, _EXACT, _CORRECTED):
            serves = serves & (one if chosen is _UNIT else ~one)
        if chosen is not _UNIT:
            exact_form = chosen in (_EXACT, _LOSS_EXACT)
            serves = serves & (power_of_two if exact_form else ~power_of_two)
        exact = code.double(1.0) / beta
        rounded = exact.to("f32")
        below = (rounded.bits_as("i32") - 1).bits_as("f32")
        high = (rounded.to("f64") > exact).choose(below, rounded).to("f64")
        numbers_of_form = {"beta": beta, "inverse": high, "remnant": exact - high}
        places = {name: place for place, name in enumerate(chosen.numbers)}
        return serves, {
            places[name]: value for name, value in numbers_of_form.items() if name in places
        }

    return Derive(("beta",), write)


_DERIVE = {
    chosen: _derivation(chosen)
    for chosen in (_UNIT, _EXACT, _CORRECTED, _LOSS_EXACT, _LOSS_CORRECTED)
}


def _inverse(beta: float) -> dict[str, float]:
    """Beta, and 1 / beta as a sum of two float32 numbers of the same sign."""
    high = float_of(1 / beta)
    if high > 1 / beta:
        high = float(np.nextafter(np.float32(high), np.float32(0)))
    return {"beta": beta, "inverse": high, "remnant": float_of(1 / beta - high)}
