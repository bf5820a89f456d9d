"""Activations and their gradients; `operators/` has where each comes from.

Comparisons are written as the documents have them, since NaN takes the way of a comparison that is false. What is a product with a sigmoid is a
`gate`, which keeps the digits of results whose sigmoid alone would be subnormal; `rest` is what rounding an argument left.
"""

from __future__ import annotations

from openaclnn.engines.formulas import formula
from openaclnn.engines.formulas.words import (
    Value,
    abs,
    erfinv as inverse_error_function,
    exp,
    expm1,
    fma,
    gate,
    gelu as gaussian_unit,
    gelu_slope,
    gelu_tanh,
    gelu_tanh_slope,
    log_sigmoid as log_of_sigmoid,
    logit as log_odds,
    maximum,
    minimum,
    mish as self_regularized,
    ratio,
    scaled_gate,
    sigmoid as logistic,
    softplus as soft_maximum,
    where,
)

NAN = float("nan")

# Rectified.


@formula
def relu(x: Value) -> Value:
    return where(x <= 0, 0, x)  # -0 becomes 0, NaN stays


@formula
def leaky_relu(x: Value, *, negative_slope: float) -> Value:
    return where(x > 0, x, x * negative_slope)


@formula
def leaky_relu_backward(gradient: Value, x: Value, *, negative_slope: float) -> Value:
    return where(x > 0, gradient, gradient * negative_slope)


@formula
def squared_relu(x: Value) -> Value:
    positive = maximum(x, 0)
    return positive * positive


@formula
def add_relu(x: Value, y: Value, *, alpha: float) -> Value:
    total = x + alpha * y
    return where(total <= 0, 0, total)


@formula
def threshold(x: Value, *, threshold: float, value: float) -> Value:
    return where(x <= threshold, value, x)


@formula
def threshold_backward(gradient: Value, x: Value, *, threshold: float) -> Value:
    return where(x <= threshold, 0, gradient)


@formula
def hardtanh_backward(gradient: Value, x: Value, *, min: float, max: float) -> Value:
    return where((x <= min) | (x >= max), 0.0, gradient)


@formula
def heaviside(x: Value, values: Value) -> Value:
    return where(x == 0, values, where(x > 0, 1.0, 0.0))


# Shrinking.


@formula
def hardshrink(x: Value, *, lambd: float) -> Value:
    return where(abs(x) <= maximum(lambd, 0.0), 0.0, x)


@formula
def shrink_backward(gradient: Value, x: Value, *, lambd: float) -> Value:
    return where(abs(x) <= maximum(lambd, 0.0), 0.0, gradient)


def _shrink(x: Value, lambd: Value, bias: Value) -> Value:
    return where(x > lambd, x - bias, where(x < -lambd, x + bias, 0.0))


@formula
def shrink(x: Value, *, lambd: float, bias: float) -> Value:
    return _shrink(x, lambd, bias)


@formula
def softshrink(x: Value, *, lambd: float) -> Value:
    return _shrink(x, lambd, lambd)


# Sigmoids.


@formula
def sigmoid(x: Value) -> Value:
    return logistic(x)


@formula
def sigmoid_backward(gradient: Value, y: Value) -> Value:
    return gradient * (1.0 - y) * y


@formula
def log_sigmoid(x: Value) -> Value:
    return log_of_sigmoid(x)


@formula
def log_sigmoid_backward(gradient: Value, x: Value) -> Value:
    return gradient * logistic(-x)


@formula
def silu(x: Value) -> Value:
    return gate(x, x)


@formula
def silu_backward(gradient: Value, x: Value) -> Value:
    return gradient * gate(1.0 + x * logistic(-x), x)


@formula
def swish(x: Value, *, beta: float) -> Value:
    return scaled_gate(x, beta)


@formula
def swish_backward(gradient: Value, x: Value, *, beta: float) -> Value:
    v = beta * x
    rest = fma(x, beta, -v)
    slope = 1.0 + beta * (x * logistic(-v, -rest))
    # beta * x may be infinite where x is not: the gate is 0 there, and NaN for an infinite x alone.
    slope = where(slope < -3e38, -3e38, slope) + (x - x)
    return gradient * gate(slope, v, rest)


@formula
def softplus(x: Value, *, beta: float, threshold: float) -> Value:
    v = beta * x
    return where(v > threshold, x, soft_maximum(v, fma(x, beta, -v)) / beta)


@formula
def softplus_backward(gradient: Value, x: Value, *, beta: float, threshold: float) -> Value:
    v = beta * x
    return where(v > threshold, gradient, gradient * logistic(v, fma(x, beta, -v)))


@formula
def logit(x: Value, *, eps: float, clamped: bool) -> Value:
    if clamped:
        most = 1.0 - eps
        x = where(x < eps, eps, minimum(x, most))
    return log_odds(x)


@formula
def logit_grad(x: Value, gradient: Value, *, eps: float, clamped: bool) -> Value:
    slope = gradient / (x * (1.0 - x))
    if clamped:
        result = where((x >= eps) & (x <= 1.0 - eps), slope, where(x == x, 0.0, x))
    else:
        # Every x from 0 on is above eps, but for an eps of NaN, whose results are all NaN.
        result = where((x >= 0.0) & (x <= 1.0) & (x > eps), slope, NAN)
    return result


@formula
def hardsigmoid(x: Value) -> Value:
    return minimum(maximum(x / 6.0 + 0.5, 0.0), 1.0)


@formula
def hardsigmoid_backward(gradient: Value, x: Value) -> Value:
    v = x / 6.0 + 0.5
    return where((v > 0.0) & (v < 1.0), gradient / 6.0, 0.0)


@formula
def hardswish(x: Value) -> Value:
    return where(x <= -3.0, 0.0, where(x >= 3.0, x, x * (x + 3.0) / 6.0))


@formula
def hardswish_backward(gradient: Value, x: Value) -> Value:
    bent = gradient * (x / 3.0 + 0.5)
    return where((x >= -3.0) & (x <= 3.0), bent, where(x < -3.0, 0.0, gradient))


@formula
def hardswish_backward_v2(gradient: Value, x: Value) -> Value:
    bent = gradient * (x / 3.0 + 0.5)
    return where((x > -3.0) & (x < 3.0), bent, where(x <= -3.0, 0.0, gradient))


@formula
def mish(x: Value) -> Value:
    return self_regularized(x)


# The word is x tanh(log1p(e^x)) = x n / (n + 2) with n = e^x (e^x + 2). All terms are positive; above 0 all are divided by e^2x.


def _upper(x: Value, e: Value) -> Value:
    """n, or that over e^2x, by e^-|x|."""
    return where(x > 0, 1.0 + 2.0 * e, e * (e + 2.0))


def _more(x: Value, e: Value) -> Value:
    """2, or that over e^2x."""
    return where(x > 0, 2.0 * e * e, 2.0)


@formula
def mish_backward(gradient: Value, x: Value) -> Value:
    e = exp(-abs(x))
    upper = _upper(x, e)
    whole = upper + _more(x, e)
    # sigmoid(x) (1 - t^2), of t = tanh(log1p(e^x))
    slope = ratio(ratio(4.0 * e * (1.0 + e) * where(x > 0, e, 1.0), whole), whole)
    return gradient * fma(x, slope, ratio(upper, whole))


# GELU.


def _gelu(x: Value, tanh: bool) -> Value:
    return gelu_tanh(x) if tanh else gaussian_unit(x)


def _gelu_slope(x: Value, tanh: bool) -> Value:
    """The derivative."""
    return gelu_tanh_slope(x) if tanh else gelu_slope(x)


@formula
def gelu(x: Value, *, tanh: bool) -> Value:
    return _gelu(x, tanh)


@formula
def gelu_backward(gradient: Value, x: Value, *, tanh: bool) -> Value:
    return gradient * _gelu_slope(x, tanh)


# Gated: of two halves of a tensor, one is multiplied by a function of the other.


@formula
def glu(x: Value, gates: Value) -> Value:
    return gate(x, gates)


@formula
def glu_backward(gradient: Value, x: Value, gates: Value) -> tuple[Value, Value]:
    by_x = gate(gradient, gates)
    return by_x, by_x * (x * logistic(-gates) + (x - x))  # NaN for an infinite x


@formula
def swi_glu(x: Value, factor: Value) -> Value:
    return gate(x, x) * factor


@formula
def swi_glu_grad(gradient: Value, x: Value, factor: Value) -> tuple[Value, Value]:
    return gradient * gate(1.0 + x * logistic(-x), x) * factor, gradient * gate(x, x)


@formula
def ge_glu(x: Value, factor: Value, *, tanh: bool) -> tuple[Value, Value]:
    activated = _gelu(x, tanh)
    return factor * activated, activated


@formula
def ge_glu_backward(
    gradient: Value, x: Value, factor: Value, activated: Value, *, tanh: bool
) -> tuple[Value, Value]:
    return gradient * factor * _gelu_slope(x, tanh), gradient * activated


# Others.


@formula
def celu(x: Value, *, alpha: float) -> Value:
    return maximum(x, 0.0) + minimum(0.0, alpha * expm1(x / alpha))


@formula
def erfinv(x: Value) -> Value:
    return inverse_error_function(x)
