"""The clamp's gradient; `operators/band_backward.py` has its derivation."""

from __future__ import annotations

from openaclnn.engines.formulas import formula
from openaclnn.engines.formulas.words import Value, where


@formula
def band_backward(gradient: Value, x: Value, *, min: float, max: float) -> Value:
    return where((x <= min) | (x >= max), 0.0, gradient)
