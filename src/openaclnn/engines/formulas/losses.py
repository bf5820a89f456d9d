"""Losses of elements and their gradients; `operators/` has where each comes from."""

from __future__ import annotations

from openaclnn.engines.formulas import formula
from openaclnn.engines.formulas.words import (
    Value,
    abs,
    fma,
    gate,
    log,
    log1p,
    maximum,
    minimum,
    sigmoid,
    softplus,
    where,
)

# Regression.


@formula
def mse_loss(x: Value, y: Value) -> Value:
    difference = x - y
    return difference * difference


@formula
def mse_loss_backward(gradient: Value, x: Value, y: Value, *, mean_scale: float) -> Value:
    return (x - y) * mean_scale * gradient * 2.0


@formula
def soft_margin_loss(x: Value, y: Value) -> Value:
    v = -(x * y)
    return softplus(v, fma(-x, y, -v))


@formula
def soft_margin_loss_backward(gradient: Value, x: Value, y: Value, *, mean_scale: float) -> Value:
    v = -(x * y)
    return gate(-y, v, fma(-x, y, -v)) * (gradient * mean_scale)


# Binary cross entropy: of probabilities, and of logits.


@formula
def binary_cross_entropy(x: Value, y: Value, weight: Value) -> Value:
    likely = y * maximum(log(x), -100.0) + (1.0 - y) * maximum(log1p(-x), -100.0)
    return -weight * likely


@formula
def binary_cross_entropy_backward(
    gradient: Value, x: Value, y: Value, weight: Value, *, mean_scale: float
) -> Value:
    slope = (x - y) / maximum(x * (1.0 - x), 1e-12)
    return gradient * slope * weight * mean_scale


# With L = log1p(exp(-|x|)), log_sigmoid(x) is min(x, 0) - L. Written with it, no two terms cancel each other for x < 0.
@formula
def binary_cross_entropy_with_logits(x: Value, y: Value, weight: Value, pos_weight: Value) -> Value:
    below = (x - x) - (pos_weight * y) * x  # NaN for minus infinity
    rest = (1.0 + (pos_weight - 1.0) * y) * softplus(-abs(x))
    return weight * (where(x >= 0.0, (1.0 - y) * x, below) + rest)


# (p y + 1 - y) s(x) - p y = (1 - y) s(x) - p y s(-x): neither term cancels the other for targets of 0 and 1.
@formula
def binary_cross_entropy_with_logits_backward(
    gradient: Value, x: Value, y: Value, weight: Value, pos_weight: Value, *, mean_scale: float
) -> Value:
    positive = pos_weight * y
    slope = (1.0 - y) * sigmoid(x) - positive * sigmoid(-x) + (positive - positive)
    return slope * gradient * weight * mean_scale


@formula
def binary_cross_entropy_with_logits_target_backward(
    gradient: Value, x: Value, y: Value, weight: Value, pos_weight: Value, *, mean_scale: float
) -> Value:
    straight = -maximum(x, 0.0) - pos_weight * minimum(x, 0.0)
    slope = straight + (pos_weight - 1.0) * softplus(-abs(x))
    return slope * gradient * weight * mean_scale
