"""What linear cross entropy does to a chunk of logits and to its sums, beside the loss."""

from __future__ import annotations

from openaclnn.engines.formulas import formula
from openaclnn.engines.formulas.words import Value, fma, tanh


@formula
def scaled(x: Value, factor: Value) -> Value:
    return x * factor


@formula
def soft_cap(x: Value, *, cap: float) -> Value:
    return tanh(x / cap) * cap


@formula
def soft_cap_backward(gradient: Value, result: Value, *, cap: float) -> Value:
    share = result / cap
    return gradient * fma(-share, share, 1.0)
