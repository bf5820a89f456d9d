"""The gradient of the smooth absolute difference; `operators/smooth_l1_loss.py` has its derivation."""

from __future__ import annotations

from openaclnn.engines.formulas import formula
from openaclnn.engines.formulas.words import Value, abs, sign, where

LARGEST = 3.4028234663852886e38  # of the finite FLOATs


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
