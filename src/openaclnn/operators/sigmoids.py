"""Activations made of the sigmoid 1 / (1 + exp(-x)), their piecewise linear and quadratic approximations, and gradients of both."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openaclnn.core.call import Call
from openaclnn.core.declare import Gradient
from openaclnn.core.dtypes import (
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOAT,
    FLOATS,
    INT32,
    INTEGERS,
    DType,
    float_of,
)
from openaclnn.core.interface import Kind, Parameter
from openaclnn.engines.formulas import activations as formulas
from openaclnn.operators import rules
from openaclnn.operators.activations import NEWEST, NOT_310P, NOT_950, declare, number
from openaclnn.operators.rectified import GRADIENT
from openaclnn.operators.workloads.words import KernelForm

WIDE = (DOUBLE, COMPLEX64, COMPLEX128)
WHOLE = (*INTEGERS, BOOL)
FEATURES = {"grads": "gradOutput", "features": "self"}


def sigmoid(x: Any) -> Any:
    if np.iscomplexobj(x):
        return 1 / (1 + np.exp(-x))
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def _swish(x: Any, beta: Any = 1.0) -> Any:
    beta = 1.0 if beta is None else beta
    return x * sigmoid(beta * x if beta else np.zeros_like(x))


def _swish_backward(g: Any, x: Any, beta: Any = 1.0) -> Any:
    v = x if beta is None else beta * x
    return g * sigmoid(v) * (1 + v * sigmoid(-v))


def _computed(call: Call) -> DType:
    """Integers and truth values are computed with in the output's dtype."""
    dtype = call.tensor(call.operator.tensors[0].name).dtype
    return dtype if dtype.kind in ("floating", "complex") else call.tensor("out").dtype


declare(
    "Sigmoid", "The logistic function.", "out = 1 / (1 + exp(-self))", formulas.sigmoid, sigmoid,
    [0.01798620996209156, 0.2689414213699951, 0.6224593312018546, 0.9525741268224333],
    (
        rules.not_null(), *rules.not_in_place(rules.dtypes("self", more=(*WIDE, *WHOLE))), rules.dtypes("out", more=WIDE), rules.converts("self"),
        rules.same_shape(), rules.rank("self"),
    ),
    accepts=(*FLOATS, *WIDE), reads={"self": WHOLE}, in_place="selfRef", compute=_computed, kernels=(KernelForm("sigmoid", {"x": "self"}),), aten="sigmoid",
    gradient=Gradient("aclnnSigmoidBackward", {"output": "out"}),
)  # fmt: skip

declare(
    "SigmoidBackward", "Gradient of the logistic function, from its output.", "gradInput = gradOutput * (1 - output) * output",
    formulas.sigmoid_backward, lambda g, y: g * (1 - y) * y, [0.09000000000000001, 0.5, 0.4799999999999999, 0],
    (
        rules.not_null(), rules.dtypes("gradOutput", "output", "gradInput", more=WIDE), rules.rank("gradOutput", "output"),
        rules.converts(), rules.broadcast,
    ),
    inputs={"gradOutput": "gradient of the output", "output": "the forward's output"}, output="gradInput", accepts=(*FLOATS, *WIDE),
    compute=rules.promoted, arguments={"output": (FLOAT, [0.1, 0.5, 0.8, 1.0])}, peer="sigmoid_backward", domain=(0.0, 1.0),
    kernels=(KernelForm("sigmoid_grad", {"y": "output", "dy": "gradOutput"}),), aten="sigmoid_backward",
)  # fmt: skip

declare(
    "Silu", "x times its logistic function.", "out = self / (1 + exp(-self))", formulas.silu, _swish,
    [-0.07194483984836623, -0.2689414213699951, 0.3112296656009273, 2.8577223804672998],
    (rules.not_null(), rules.dtypes("self", "out"), rules.same_dtype(), rules.same_shape()), aten="silu",
    gradient=Gradient("aclnnSiluBackward"),
)  # fmt: skip

declare(
    "SiluBackward", "Gradient of SiLU with respect to its input.",
    "gradInput = gradOutput * s * (1 + self * (1 - s)), s = 1 / (1 + exp(-self))", formulas.silu_backward, _swish_backward,
    [-0.05266461489107291, 0.14465897625702653, 2.2198835619079555, 4.352416424060679],
    (
        rules.not_null(), rules.dtypes("gradOutput", "self", "gradInput"), rules.same_before_950("dtype", rules.same_as_promoted),
        rules.rank("gradOutput", "self"), rules.same_before_950("shape", rules.broadcast),
    ),
    inputs=GRADIENT, compute=rules.promoted, shapes={"self": "same as gradOutput; on 950 they broadcast", "gradInput": "the broadcast shape"},
    output="gradInput", families=NOT_310P, kernels=(KernelForm("silu_grad", {"dy": "gradOutput", "x": "self"}),), aten="silu_backward",
)  # fmt: skip

BETA = number("betaOptional", "factor inside the logistic function; 1 if null", 1.0, optional=True)


def _torch_swish(torch: Any, x: Any, beta: float) -> Any:
    return x * torch.sigmoid(beta * x)


def _torch_swish_backward(torch: Any, g: Any, x: Any, beta: float) -> Any:
    s = torch.sigmoid(beta * x)
    return g * s * (1 + beta * x * (1 - s))


declare(
    "Swish", "x times the logistic function of a multiple of it.", "out = self / (1 + exp(-beta * self))", formulas.swish, _swish,
    [-0.0013414005218659124, -0.11920292202211756, 0.36552928931500245, 2.9925821305300957],
    (
        rules.not_null("self", "out"), rules.dtypes("self", "out"), rules.same_dtype(), rules.scalars("betaOptional"),
        rules.rank("self", "out"), rules.same_shape(),
    ),
    options=(BETA,), arguments={"beta": 2.0}, variants={"beta 1": {}, "beta 2": {"beta": 2.0}},
    kernels=(KernelForm("swish", {"x": "self"}, {"scale": "betaOptional"}),),
    gradient=Gradient("aclnnSwishBackward"),
    peer=_torch_swish,
)  # fmt: skip

declare(
    "SwishBackward", "Gradient of Swish with respect to its input.",
    "gradInput = gradOutput * s * (1 + beta * self * (1 - s)), s = 1 / (1 + exp(-beta * self))", formulas.swish_backward,
    _swish_backward, [-0.0023465512355853157, -0.18156849756979096, 2.78301153561446, 4.049305730366102],
    (
        rules.not_null("gradOutput", "self", "gradInput"), rules.dtypes("gradOutput", "self"), rules.scalars("betaOptional"), rules.same_dtype(),
        rules.rank("gradOutput", "self", "gradInput"), rules.same_shape(),
    ),
    inputs=GRADIENT, options=(BETA,), output="gradInput", arguments={"beta": 2.0},
    kernels=(KernelForm("swish_grad", {"grad": "gradOutput", "x": "self"}, {"scale": "betaOptional"}, ("y",)),),
    peer=_torch_swish_backward,
)  # fmt: skip

FACTOR = 1.702
FAST = float_of(FACTOR)

declare(
    "FastGelu", "x times the logistic function of 1.702 x.", "out = self / (1 + exp(-1.702 * self))", formulas.swish,
    lambda x: _swish(x, x.dtype.type(FACTOR)), [-0.004414724139581062, -0.1542042340671787, 0.35038843660638014, 2.981928690292214],
    (rules.not_null(), rules.same_dtype(), rules.dtypes("self"), rules.same_shape(), rules.rank("self"), rules.same_format()), families=NEWEST,
    numbers=lambda call: {"beta": FAST}, constants=(FACTOR,),
    kernels=(KernelForm("fast_gelu", {"x": "self"}),),
    gradient=Gradient("aclnnFastGeluBackward"),
    peer=lambda torch, x: _torch_swish(torch, x, FACTOR),
)  # fmt: skip

declare(
    "FastGeluBackward", "Gradient of the fast GELU with respect to its input.",
    "gradInput = gradOutput * s * (1 + 1.702 * self * (1 - s)), s = 1 / (1 + exp(-1.702 * self))", formulas.swish_backward,
    lambda g, x: _swish_backward(g, x, x.dtype.type(FACTOR)), [-0.006401886545354933, -0.1355592131126681, 2.6376657358962428, 4.098193295622609],
    (rules.not_null(), rules.same_dtype(), rules.dtypes("gradInput"), rules.same_shape(), rules.rank("self"), rules.same_format()),
    inputs=GRADIENT, output="gradInput",
    families=NEWEST, numbers=lambda call: {"beta": FAST}, constants=(FACTOR,), kernels=(KernelForm("fast_gelu_grad", {"dy": "gradOutput", "x": "self"}),),
    peer=lambda torch, g, x: _torch_swish_backward(torch, g, x, FACTOR),
)  # fmt: skip

# The logarithm of the logistic function, and its relatives.


def _log_sigmoid(x: Any, *unread: Any) -> Any:
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


LOG_SIGMOID = (
    "The logarithm of the logistic function.", "out = min(self, 0) - log1p(exp(-|self|))", formulas.log_sigmoid, _log_sigmoid,
    [-4.0181499279178094, -1.3132616875182228, -0.4740769841801067, -0.04858735157374206],
)  # fmt: skip
declare(
    "LogSigmoid", *LOG_SIGMOID, (rules.not_null(), rules.dtypes("self", "out"), rules.same_dtype(), rules.same_shape()), families=NOT_310P,
    header_name="logsigmoid", kernels=(KernelForm("log_sigmoid", {"x": "self"}),), peer="log_sigmoid",
    gradient=Gradient("aclnnLogSigmoidBackward", {"buffer": "self"}),
)  # fmt: skip

BUFFER = Parameter("buffer", Kind.TENSOR, "not looked at", "any", FLOATS, default=None, optional=True, c_type="aclTensor *")  # fmt: skip
declare(
    "LogSigmoidForward", *LOG_SIGMOID,
    (rules.not_null("self", "out"), rules.dtypes("self", "out"), rules.same_dtype("self", "out"), rules.same_shape("self", "out")),
    after=(BUFFER,), header_name="logsigmoid",
    peer=lambda torch, x, buffer=None: torch.ops.aten.log_sigmoid(x),
)  # fmt: skip

declare(
    "LogSigmoidBackward", "Gradient of the logarithm of the logistic function with respect to its input.",
    "gradInput = gradOutput / (1 + exp(self))", formulas.log_sigmoid_backward, lambda g, x, *unread: g * sigmoid(-x),
    [0.9820137900379085, 1.4621171572600098, 1.1326220063944363, 0.18970349271026712],
    (
        rules.not_null("gradOutput", "self", "buffer", "gradInput"), rules.dtypes("gradOutput", "self"),
        rules.same_dtype("gradOutput", "self", "gradInput"), rules.same_shape("gradOutput", "self", "gradInput"),
    ),
    inputs={**GRADIENT, "buffer": "not looked at, but not null"}, output="gradInput", header_name="logsigmoid_backward",
    kernels=(KernelForm("log_sigmoid_grad", FEATURES, ones={"buffer": "self"}),), arguments={"buffer": (FLOAT, [0.0])},
    peer=lambda torch, g, x, buffer: g * torch.sigmoid(-x),
)  # fmt: skip

STEEP = (
    number("beta", "steepness", 1.0),
    number("threshold", "of beta * self, above which the function is self", 20.0),
)
BENT = {"beta": 2.0, "threshold": 4.0}

declare(
    "Softplus", "A smooth form of ReLU: the logarithm of 1 + exp(beta x), divided by beta.",
    "out = beta * self > threshold ? self : log1p(exp(beta * self)) / beta", formulas.softplus,
    lambda x, beta, threshold: np.where(beta * x > threshold, x, (np.maximum(beta * x, 0) + np.log1p(np.exp(-np.abs(beta * x)))) / beta),
    [0.00016770318644788442, 0.06346400552148625, 0.6566308437591114, 3],
    (rules.not_null(), rules.dtypes("self"), rules.scalars("beta", "threshold"), rules.converts("self"), rules.rank("self"), rules.same_shape()),
    options=STEEP,
    families=NOT_950, arguments=BENT, kernels=(KernelForm("softplus_v2", {"x": "self"}),), aten="softplus",
    variants={"beta 1": {}, "beta 2": BENT},
    gradient=Gradient("aclnnSoftplusBackward"),
)  # fmt: skip


def _wide(call: Call) -> DType:
    """FLOAT, unless both inputs have one of the floating dtypes."""
    first, second = (call.tensor(name).dtype for name in ("gradOutput", "self"))
    if DOUBLE in (first, second):
        return DOUBLE
    return first if first is second and first in FLOATS else FLOAT


declare(
    "SoftplusBackward", "Gradient of softplus with respect to its input.",
    "gradInput = beta * self > threshold ? gradOutput : gradOutput / (1 + exp(-beta * self))", formulas.softplus_backward,
    lambda g, x, beta, threshold: np.where(beta * x > threshold, g, g * sigmoid(beta * x)), [0.0003353501304664781, 0.23840584404423512, 2.193175735890015, 4],
    (
        rules.not_null("gradOutput", "self", "gradInput", "beta", "threshold"), rules.scalars("beta", "threshold"),
        rules.dtypes("gradOutput", more=(DOUBLE,)),
        rules.dtypes("self", more=(DOUBLE, *WHOLE)), rules.dtypes("gradInput", more=(DOUBLE,)),
        rules.rank("gradOutput", "self", "gradInput"), rules.same_shape(),
    ),
    inputs=GRADIENT, options=STEEP, output="gradInput", accepts=(*FLOATS, DOUBLE), reads={"self": WHOLE}, families=NOT_310P, compute=_wide, arguments=BENT,
    kernels=(KernelForm("softplus_v2_grad", {"input_gradients": "gradOutput", "input_features": "self"}),), peer="softplus_backward",
    variants={"beta 1": {}, "beta 2": BENT},
)  # fmt: skip


def _half_square(x: Any) -> Any:
    """tanh(log1p(exp(x)))"""
    return np.tanh(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


declare(
    "Mish", "x times the hyperbolic tangent of its softplus.", "out = self * tanh(log1p(exp(self)))", formulas.mish,
    lambda x: x * _half_square(x), [-0.07259174079202536, -0.3034014613741089, 0.37524521130489513, 2.9865350049679575],
    (rules.not_null(), rules.dtypes("self", "out"), rules.same_dtype(), rules.rank("self", "out"), rules.same_shape()), families=NOT_310P,
    in_place="selfRef",
    kernels=(KernelForm("mish", {"x": "self"}),), aten="mish",
    gradient=Gradient("aclnnMishBackward"),
)  # fmt: skip

declare(
    "MishBackward", "Gradient of Mish with respect to its input.",
    "gradInput = gradOutput * (t + self * s * (1 - t^2)), t = tanh(log1p(exp(self))), s = 1 / (1 + exp(-self))",
    formulas.mish_backward, lambda g, x: g * (_half_square(x) + x * sigmoid(x) * (1 - _half_square(x) ** 2)),
    [-0.053773209793480325, 2.0980724401995845, 2.659273126073182, 4.084427643717775],
    (
        rules.not_null(), rules.converts("self"), rules.dtypes("gradOutput", "self", "gradInput"), rules.rank("gradOutput", "self", "gradInput"),
        rules.broadcast,
    ),
    inputs=GRADIENT, output="gradInput", compute=rules.promoted,
    kernels=(KernelForm("mish_grad", {"grad": "gradOutput", "x": "self"}, unread=("tanhx",)),),
    aten="mish_backward", arguments={"self": (FLOAT, [-4.0, 1.0, 0.5, 3.0])},
)  # fmt: skip

# The inverse of the logistic function.

LEAST = float(np.finfo(np.float32).smallest_subnormal)
EPS = Parameter("eps", Kind.DOUBLE, "distance from 0 and 1 that values are moved to; below 0: none are", default=-1.0)  # fmt: skip
PROBABILITIES = {"input": (FLOAT, [0.1, 0.25, 0.5, 0.95])}


def _clamped(call: Call) -> dict[str, Any]:
    return {"clamped": float_of(call["eps"]) >= 0}


def _eps_bounds(call: Call) -> dict[str, tuple[float, float]]:
    """Within which another eps clamps, too, or neither."""
    return {"eps": (0.0, math.inf) if float_of(call["eps"]) >= 0 else (-math.inf, -LEAST)}


def _logit(x: Any, eps: Any) -> Any:
    if eps >= 0:
        x = np.where(x < eps, eps, np.where(x > 1 - eps, 1 - eps, x))
    return np.log(x) - np.log1p(-x)


declare(
    "Logit", "The logarithm of the odds: the inverse of the logistic function.",
    "out = log(z / (1 - z)), z = eps < 0 ? input : input < eps ? eps : input > 1 - eps ? 1 - eps : input", formulas.logit, _logit,
    [-2.197224577336219, -1.0986122886681098, 0, 2.9444389791664394], rules.generated("input"), inputs={"input": "probabilities"},
    options=(EPS,), families=NEWEST,
    const_output=True, generated=True, numbers=_clamped, bounds_of=_eps_bounds,
    arguments=PROBABILITIES, kernels=(KernelForm("logit", {"input": "input"}),), domain=(0.0, 1.0),
    variants={"not clamped": {}, "clamped": {"eps": 0.2}},
    gradient=Gradient("aclnnLogitGrad", {"x": "input"}, incoming="dy"),
    peer=lambda torch, x, eps: torch.logit(x, None if eps < 0 else eps),
)  # fmt: skip


def _logit_grad(x: Any, g: Any, eps: Any) -> Any:
    low = np.maximum(eps, 0)
    inside = (x >= low) & (x <= 1 - low)
    return np.where(inside, g / (x * (1 - x)), np.where((eps >= 0) & (x == x), 0.0, np.nan))


declare(
    "LogitGrad", "Gradient of the logarithm of the odds with respect to its input.",
    "out = lo <= x <= 1 - lo ? dy / (x * (1 - x)) : eps < 0 ? NaN : 0, lo = max(eps, 0)", formulas.logit_grad, _logit_grad,
    [11.11111111111111, 10.666666666666666, 12, 84.21052631578941], rules.generated("x"),
    inputs={"x": "the forward's input", "dy": "gradient of the output"},
    options=(EPS,), families=NEWEST, const_output=True, generated=True, numbers=_clamped, bounds_of=_eps_bounds,
    arguments={"x": PROBABILITIES["input"], "dy": (FLOAT, [1.0, 2.0, 3.0, 4.0])}, domain=(0.0, 1.0),
    kernels=(KernelForm("logit_grad", {"x": "x", "dy": "dy"}),), variants={"not clamped": {}, "clamped": {"eps": 0.2}},
    peer=lambda torch, x, g, eps: torch.ops.aten.logit_backward(g, x, None if eps < 0 else eps),
)  # fmt: skip

# Piecewise approximations.

LINE = {"alpha": 1 / 6, "beta": 0.5}
"""The slope and offset of the line, which are attributes of the kernel."""

declare(
    "Hardsigmoid", "A line between 0 and 1 in place of the logistic function.", "out = min(max(self / 6 + 0.5, 0), 1)",
    formulas.hardsigmoid, lambda x: np.minimum(np.maximum(x / 6 + 0.5, 0), 1), [0, 0.3333333333333333, 0.5833333333333334, 1],
    (rules.not_null(), rules.dtypes("self", more=(INT32,)), rules.rank("self"), rules.same_shape(), rules.same_dtype(), rules.same_format()),
    accepts=(*FLOATS, INT32), families=NOT_310P,
    in_place="self", const_ref=True, kernels=(KernelForm("hard_sigmoid", {"input_x": "self"}, only=LINE),), peer="hardsigmoid",
    gradient=Gradient("aclnnHardsigmoidBackward"),
)  # fmt: skip

declare(
    "HardsigmoidBackward", "Gradient of the hard sigmoid with respect to its input.",
    "out = 0 < self / 6 + 0.5 < 1 ? gradOutput / 6 : 0", formulas.hardsigmoid_backward,
    lambda g, x: np.where((x / 6 + 0.5 > 0) & (x / 6 + 0.5 < 1), g / 6, 0.0), [0, 0.3333333333333333, 0.5, 0],
    (rules.not_null(), rules.dtypes("gradOutput", "self"), rules.converts(), rules.rank("gradOutput", "self", "out"), rules.same_shape()),
    inputs=GRADIENT,
    compute=rules.promoted, kernels=(KernelForm("hard_sigmoid_grad", {"grads": "gradOutput", "input_x": "self"}, only=LINE),),
    peer=lambda torch, g, x: torch.where((x > -3) & (x < 3), g / 6, 0.0),
)  # fmt: skip

declare(
    "Hardswish", "x times a line between 0 and 1.", "out = self <= -3 ? 0 : self >= 3 ? self : self * (self + 3) / 6",
    formulas.hardswish, lambda x: np.where(x <= -3, 0.0, np.where(x >= 3, x, x * (x + 3) / 6)),
    [0, -0.3333333333333333, 0.2916666666666667, 3], (rules.not_null(), rules.dtypes("self", "out"), rules.same_shape()), families=NOT_310P,
    in_place="self", const_output=True, const_ref=True, kernels=(KernelForm("hard_swish", {"x": "self"}),), peer="hardswish",
    gradient=Gradient("aclnnHardswishBackwardV2"),
)  # fmt: skip


def _bent(g: Any, x: Any) -> Any:
    return g * (x / 3 + 0.5)


HARDSWISH = (
    rules.not_null(),
    rules.dtypes("gradOutput", "self"),
    rules.same_dtype(),
    rules.rank("gradOutput", "self"),
    rules.same_shape(),
)
declare(
    "HardswishBackward", "Gradient of the hard Swish with respect to its input, with bent ends.",
    "out = self < -3 ? 0 : self > 3 ? gradOutput : gradOutput * (self / 3 + 0.5)", formulas.hardswish_backward,
    lambda g, x: np.where((x >= -3) & (x <= 3), _bent(g, x), np.where(x < -3, 0.0, g)), [0, 0.33333333333333337, 2, 6], HARDSWISH,
    inputs=GRADIENT, families=NOT_310P, kernels=(KernelForm("hard_swish_grad", {"grad": "gradOutput", "x": "self"}),),
    peer=lambda torch, g, x: torch.where(x < -3, 0.0, torch.where(x > 3, g, g * (x / 3 + 0.5))),
)  # fmt: skip
declare(
    "HardswishBackwardV2", "Gradient of the hard Swish with respect to its input.",
    "out = self <= -3 ? 0 : self >= 3 ? gradOutput : gradOutput * (self / 3 + 0.5)", formulas.hardswish_backward_v2,
    lambda g, x: np.where((x > -3) & (x < 3), _bent(g, x), np.where(x <= -3, 0.0, g)), [0, 0.33333333333333337, 2, 4], HARDSWISH,
    inputs=GRADIENT, families=NOT_310P, kernels=(KernelForm("hard_swish_grad_v2", {"grad": "gradOutput", "x": "self"}),),
    peer="hardswish_backward",
)  # fmt: skip
