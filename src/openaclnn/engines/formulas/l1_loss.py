"""The gradient of the absolute difference; `operators/l1_loss.py` has its derivation."""

from __future__ import annotations

from openaclnn.engines.formulas import formula
from openaclnn.engines.formulas.words import Value, where


@formula
def l1_loss_backward(gradient: Value, x: Value, y: Value, *, mean_scale: float) -> Value:
    above = where(x > y, 1.0, 0.0)
    below = where(x < y, 1.0, 0.0)
    return (above - below) * (gradient * mean_scale)
