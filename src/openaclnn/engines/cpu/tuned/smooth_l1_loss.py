"""Smooth L1: a clamped difference times the inverse of beta, instead of a division, two comparisons and a sign."""

from __future__ import annotations

import math

import numpy as np

from openaclnn.core.dtypes import float_of
from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.formulas.forms import Derive, Form, formula_form, tuned
from openaclnn.engines.formulas import Formula, described
from openaclnn.engines.formulas.smooth_l1_loss import LARGEST
from openaclnn.engines.formulas.words import Value, abs, fma, maximum, minimum, where
from openaclnn.engines.machine.code import Code


def smooth_l1_unit(
    gradient: Value, x: Value, y: Value, *, mean_scale: float, scaled: bool
) -> Value:
    result = maximum(minimum(x - y, 1.0), -1.0) * gradient
    return result * mean_scale if scaled else result


def smooth_l1_exact(
    gradient: Value, x: Value, y: Value, *, beta: float, inverse: float, mean_scale: float, scaled: bool
) -> Value:  # fmt: skip
    clamped = maximum(minimum(x - y, beta), -beta)
    # An infinite gradient wants a slope's sign, which the product may lose by underflow.
    result = where(abs(gradient) <= LARGEST, clamped * inverse, clamped) * gradient
    return result * mean_scale if scaled else result


def smooth_l1_corrected(
    gradient: Value, x: Value, y: Value, *, beta: float, inverse: float, remnant: float,
    mean_scale: float, scaled: bool,
) -> Value:  # fmt: skip
    clamped = maximum(minimum(x - y, beta), -beta)
    # With an inverse of twice the digits this is the quotient that a division gives (but for one in
    # millions, 1 ulp), for one operation more; a division would take longer than the memory does.
    slope = fma(clamped, inverse, clamped * remnant)
    result = where(abs(gradient) <= LARGEST, slope, clamped) * gradient
    return result * mean_scale if scaled else result


_UNIT, _EXACT = described(smooth_l1_unit), described(smooth_l1_exact)
_CORRECTED = described(smooth_l1_corrected)


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
    if not 2.0**-60 < beta < 2.0**60:
        return None
    inverse, remnant = _inverse(beta)
    numbers = {"beta": beta, "inverse": inverse, "remnant": remnant, "mean_scale": scale}
    power_of_two = math.frexp(beta)[0] == 0.5
    chosen = _UNIT if beta == 1 else _EXACT if power_of_two else _CORRECTED
    switches = {"scaled": bool(plan.reciprocal) or scale != 1}
    return formula_form(chosen, numbers, switches, _DERIVE[chosen])


def _derivation(chosen: Formula) -> Derive:
    """`clamped` and `_inverse` as code, for a beta that comes to this form."""

    def write(code: Code, numbers: list[Value]) -> tuple[Value, dict[int, Value]]:
        (beta,) = numbers
        serves = (beta > 2.0**-60) & (beta < 2.0**60)
        one = beta == 1.0
        power_of_two = (beta.bits_as("i64") & ((1 << 52) - 1)) == 0
        serves = serves & (one if chosen is _UNIT else ~one)
        if chosen is not _UNIT:
            serves = serves & (power_of_two if chosen is _EXACT else ~power_of_two)
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


_DERIVE = {chosen: _derivation(chosen) for chosen in (_UNIT, _EXACT, _CORRECTED)}


def _inverse(beta: float) -> tuple[float, float]:
    """1 / beta as a sum of two float32 numbers of the same sign."""
    high = float_of(1 / beta)
    if high > 1 / beta:
        high = float(np.nextafter(np.float32(high), np.float32(0)))
    return high, float_of(1 / beta - high)
