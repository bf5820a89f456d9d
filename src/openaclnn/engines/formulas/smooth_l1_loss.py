"""The smooth absolute difference and its gradient; `operators/smooth_l1_loss_backward.py` has the derivation."""

from __future__ import annotations

from openaclnn.engines.formulas import formula
from openaclnn.engines.formulas.words import Value, abs, sign, where

LARGEST = 3.4028234663852886e38  # of the finite FLOATs


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
    size = abs(gradient)
    # A quotient that underflows would make NaN of an infinite gradient: that one is multiplied first.
    inner = where(size <= LARGEST, difference, difference * size) / beta
    slope = where(abs(difference) < beta, inner, sign(difference))
    return slope * gradient * mean_scale
