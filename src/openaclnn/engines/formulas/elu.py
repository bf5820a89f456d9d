"""ELU and its gradient; `operators/elu.py` has the derivation."""

from __future__ import annotations

from openaclnn.engines.formulas import formula
from openaclnn.engines.formulas.words import Value, scaled_exp, scaled_expm1, where


@formula
def elu(x: Value, *, alpha: float, scale: float, input_scale: float, limit: bool) -> Value:
    if limit:
        result = where(x > 0, x, -alpha) * scale
    else:
        result = where(x > 0, x * scale, scaled_expm1(alpha * scale, input_scale, x))
    return result


@formula
def elu_backward(
    gradient: Value, x: Value, *, alpha: float, scale: float, input_scale: float, is_result: bool
) -> Value:
    slope = alpha * scale
    if is_result:
        negative = (gradient * input_scale) * (x + slope)
    else:
        negative = scaled_exp((gradient * input_scale) * slope, input_scale, x)
    return where(x <= 0, negative, gradient * scale)
