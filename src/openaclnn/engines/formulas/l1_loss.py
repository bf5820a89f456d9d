"""The absolute difference, plain and smooth, and the gradients of both; `operators/l1_loss.py` has the derivations."""

from __future__ import annotations

from openaclnn.engines.formulas import formula
from openaclnn.engines.formulas.words import LARGEST, Value, abs, minimum, sign, where


@formula
def l1_loss(x: Value, y: Value) -> Value:
    return abs(x - y)


@formula
def l1_loss_backward(gradient: Value, x: Value, y: Value, *, mean_scale: float) -> Value:
    above = where(x > y, 1.0, 0.0)
    below = where(x < y, 1.0, 0.0)
    return (above - below) * (gradient * mean_scale)


# A quotient by beta below LOWER would be subnormal: it is computed of a difference times RAISE, and what comes of it is lowered.
RAISE, LOWER = 2.0**126, 2.0**-126


@formula
def smooth_l1_loss(x: Value, y: Value, *, beta: float) -> Value:
    size = abs(x - y)
    inner = (0.5 * size) * (size / beta)
    return where(size < beta, inner, size - 0.5 * beta)


@formula
def smooth_l1_loss_backward(
    gradient: Value, x: Value, y: Value, *, beta: float, mean_scale: float
) -> Value:
    difference = x - y
    size = abs(difference)
    tiny = size < minimum(beta * LOWER, 2.0)  # an infinite beta raises nothing beyond FLOAT
    # A quotient that underflows nevertheless would make NaN of an infinite gradient: that one is multiplied first.
    raised = where(
        abs(gradient) <= LARGEST,
        where(tiny, difference * RAISE, difference),
        difference * abs(gradient),
    )
    slope = where(size < beta, raised / beta, sign(difference))
    result = slope * gradient * mean_scale
    return where(tiny, result * LOWER, result)
