"""What linear cross entropy does to a chunk of logits and to its sums, beside the loss."""

from __future__ import annotations

from openaclnn.engines.formulas import formula
from openaclnn.engines.formulas.words import Value, abs, exp, tanh


@formula
def scaled(x: Value, factor: Value) -> Value:
    return x * factor


@formula
def soft_cap(x: Value, *, cap: float) -> Value:
    return tanh(x / cap) * cap


@formula
def soft_cap_backward(gradient: Value, x: Value, *, cap: float) -> Value:
    """By 1 / cosh(x / cap)^2, of which no digits are lost near the cap."""
    power = exp(-2.0 * abs(x / cap))
    above = 1.0 + power
    return gradient * (4.0 * power / (above * above))
