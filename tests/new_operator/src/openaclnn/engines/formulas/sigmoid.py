"""The sigmoid's gradient; `operators/sigmoid_backward.py` has its derivation."""

from __future__ import annotations

from openaclnn.engines.formulas import formula
from openaclnn.engines.formulas.words import Value


@formula
def sigmoid_backward(gradient: Value, y: Value) -> Value:
    return gradient * ((1.0 - y) * y)
