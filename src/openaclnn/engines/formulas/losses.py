"""Losses of elements and their gradients; `operators/` has where each comes from."""

from __future__ import annotations

from openaclnn.engines.formulas import formula
from openaclnn.engines.formulas.rows import PerRow, Row, average, rounded, row_formula, total
from openaclnn.engines.formulas.words import (
    LARGEST,
    Value,
    abs,
    exp,
    fma,
    gate,
    log,
    low_log,
    low_log1m,
    maximum,
    minimum,
    sigmoid,
    softened,
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


@row_formula
def mse_loss_rows(x: Row, y: Row, *, mean: bool) -> PerRow:
    difference = x - y
    square = rounded(difference * difference)
    return average(square) if mean else total(square)


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
    # One of x and 1 - x is up to a half, and exact; only its logarithm can be far below 0.
    less = minimum(x, 1.0 - x)
    far = maximum(low_log(less), -100.0)
    near = low_log1m(less)
    is_low = x < 0.5
    unlikely = (1.0 - y) * where(is_low, near, far)
    likely = fma(y, where(is_low, far, near + 0.0), unlikely)  # log(1) is 0, log1p(-0) is -0
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
    below = fma(-(pos_weight * y), x, x - x)  # NaN for minus infinity
    line = where(x >= 0.0, (1.0 - y) * x, below)
    return weight * fma(fma(pos_weight - 1.0, y, 1.0), softened(-abs(x)), line)


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
    slope = straight + (pos_weight - 1.0) * softened(-abs(x))
    return slope * gradient * weight * mean_scale


# Divergence. A target may be given by its logarithm. What belongs to stretched axes is added up.


def _by_prediction(gradient: Value, target: Value, *, mean_scale: float, log_target: bool) -> Value:
    share = exp(target) if log_target else target
    return -share * (gradient * mean_scale)


def _by_target(
    gradient: Value, x: Value, target: Value, *, mean_scale: float, log_target: bool
) -> Value:
    scaled = gradient * mean_scale
    finite = abs(scaled) <= LARGEST  # else each term is infinite by itself
    if log_target:
        factor = where(finite, scaled * ((target - x) + 1.0), scaled * (target - x) + scaled)
        slope = factor * exp(target)
    else:
        likely = log(target)
        unit = target / target
        apart = scaled * likely - scaled * x + scaled * unit
        slope = where(finite, scaled * ((likely - x) + unit), apart)
    return slope


@formula
def kl_div_backward(
    gradient: Value, x: Value, target: Value, *, mean_scale: float, log_target: bool
) -> Value:
    return _by_prediction(gradient, target, mean_scale=mean_scale, log_target=log_target)


@row_formula
def kl_div_backward_total(
    gradient: Row, x: Row, target: Row, *, mean_scale: float, log_target: bool
) -> PerRow:
    return total(_by_prediction(gradient, target, mean_scale=mean_scale, log_target=log_target))


@formula
def kl_div_target_backward(
    gradient: Value, x: Value, target: Value, *, mean_scale: float, log_target: bool
) -> Value:
    return _by_target(gradient, x, target, mean_scale=mean_scale, log_target=log_target)


@row_formula
def kl_div_target_backward_total(
    gradient: Row, x: Row, target: Row, *, mean_scale: float, log_target: bool
) -> PerRow:
    return total(_by_target(gradient, x, target, mean_scale=mean_scale, log_target=log_target))
