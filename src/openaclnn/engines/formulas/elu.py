"""ELU's gradient; `operators/elu.py` has its derivation."""

from __future__ import annotations

from openaclnn.engines.formulas import formula
from openaclnn.engines.formulas.words import Value, exp, where


@formula
def elu_backward(
    gradient: Value, x: Value, *, alpha: float, scale: float, input_scale: float, is_result: bool
) -> Value:
    slope = alpha * scale
    if is_result:
        negative = (gradient * input_scale) * (x + slope)
    else:
        negative = ((gradient * input_scale) * slope) * exp(x * input_scale)
    return where(x <= 0, negative, gradient * scale)
