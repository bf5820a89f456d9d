"""The absolute difference and its gradient; `operators/l1_loss.py` has the derivation."""

from __future__ import annotations

from openaclnn.engines.formulas import formula
from openaclnn.engines.formulas.words import Value, abs, where


@formula
def l1_loss(x: Value, y: Value) -> Value:
    return abs(x - y)


@formula
def l1_loss_backward(gradient: Value, x: Value, y: Value, *, mean_scale: float) -> Value:
    above = where(x > y, 1.0, 0.0)
    below = where(x < y, 1.0, 0.0)
    return (above - below) * (gradient * mean_scale)
