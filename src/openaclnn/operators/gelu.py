"""The Gaussian error linear unit, by the error function or by the hyperbolic tangent, and its gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openaclnn.core.declare import Gradient
from openaclnn.core.interface import Kind, Parameter
from openaclnn.engines.formulas import activations as formulas
from openaclnn.operators import rules
from openaclnn.operators.activations import declare
from openaclnn.operators.rectified import GRADIENT
from openaclnn.operators.sigmoids import sigmoid
from openaclnn.operators.workloads.words import KernelForm

TANH = "self / 2 * (1 + tanh(sqrt(2 / pi) * (self + 0.044715 * self^3)))"
TANH_VALUES = [-7.024594819237271e-05, -0.1588080093917233, 0.34571400982514394, 2.996362607918227]
ERF_VALUES = [-0.0001266849673324797, -0.15865525393145705, 0.34573123063700656, 2.99595030590511]

_complement = np.vectorize(math.erfc, otypes=[np.float64])


def _cdf(x: Any) -> Any:
    """The normal distribution's cumulative function, with full accuracy below 0, too."""
    return (_complement(x.astype(np.float64) / -math.sqrt(2)) / 2).astype(x.dtype)


def _argument(x: Any) -> Any:
    """2 u, where tanh(u) is the approximation's: (1 + tanh(u)) / 2 is the logistic function of 2 u."""
    return x.dtype.type(math.sqrt(8 / math.pi)) * (x + x.dtype.type(0.044715) * x * x * x)


def tanh(x: Any) -> Any:
    return x * sigmoid(_argument(x))


def erf(x: Any) -> Any:
    return x * _cdf(x)


def tanh_backward(g: Any, x: Any) -> Any:
    """The sum of both terms, where a second term of 0 * Inf counts as 0; NaN inputs give NaN."""
    s, kind = sigmoid(_argument(x)), x.dtype.type
    slope = kind(math.sqrt(8 / math.pi)) * (1 + kind(0.134145) * x * x)
    bent = x * s * sigmoid(-_argument(x)) * slope
    return g * (s + np.where(np.isnan(bent), 0, bent))


def erf_backward(g: Any, x: Any) -> Any:
    density = np.exp(-x * x / 2) / x.dtype.type(math.sqrt(2 * math.pi))
    return g * (_cdf(x) + x * density)


TANH_ALONE = {"tanh": True}
declare(
    "Gelu", "The Gaussian error linear unit, by the hyperbolic tangent.", f"out = {TANH}", formulas.gelu, tanh, TANH_VALUES,
    (rules.not_null(), rules.dtypes("self"), rules.same_dtype(), rules.public("self", "out"), rules.rank("self"), rules.same_shape()),
    numbers=lambda call: dict(TANH_ALONE),
    kernels=(KernelForm("gelu", {"x": "self"}),),
    gradient=Gradient("aclnnGeluBackward"),
    peer=lambda torch, x: torch.ops.aten.gelu(x, approximate="tanh"),
)  # fmt: skip

declare(
    "GeluV2", "The Gaussian error linear unit, by the error function or by the hyperbolic tangent.",
    f"y = x / 2 * (1 + erf(x / sqrt(2)))\ny = {TANH.replace('self', 'x')} for approximate 1",
    formulas.gelu, lambda x, approximate: tanh(x) if approximate == 1 else erf(x), ERF_VALUES,
    (rules.not_null(), rules.same_dtype(), rules.dtypes("x"), rules.same_shape()), inputs={"x": "what the function is applied to"}, output="y",
    options=(Parameter("approximate", Kind.INT64, "1: by the hyperbolic tangent; all others: by the error function", default=0),),
    numbers=lambda call: {"tanh": call["approximate"] == 1}, kernels=(KernelForm("gelu_v2", {"x": "x"}, numbered={"approximate": ("none", "tanh")}),),
    variants={"erf": {}, "tanh": {"approximate": 1}},
    gradient=Gradient("aclnnGeluBackwardV2", {"self": "x"}, converted={"approximate": lambda approximate: "tanh" if approximate == 1 else "none"}),
    peer=lambda torch, x, approximate: torch.ops.aten.gelu(x, approximate="tanh" if approximate == 1 else "none"),
)  # fmt: skip

declare(
    "GeluBackward", "Gradient of the Gaussian error linear unit by the hyperbolic tangent.",
    "gradInput = gradOutput * (s + self * s * (1 - s) * p'), s = 1 / (1 + exp(-p)), p = sqrt(8 / pi) * (self + 0.044715 * self^3)",
    formulas.gelu_backward, tanh_backward, [-0.00033512319712267083, -0.1659281676915651, 2.602109710603927, 4.046336666523879],
    (rules.not_null(), rules.promotes(), rules.converts(), rules.rank("gradOutput", "self"), rules.broadcast), inputs=GRADIENT, output="gradInput",
    const_output=True, compute=rules.promoted, numbers=lambda call: dict(TANH_ALONE),
    kernels=(KernelForm("gelu_grad", {"dy": "gradOutput", "x": "self"}, unread=("y",)),),
    peer=lambda torch, g, x: torch.ops.aten.gelu_backward(g, x, approximate="tanh"),
)  # fmt: skip

declare(
    "GeluBackwardV2", "Gradient of the Gaussian error linear unit, by the error function or by the hyperbolic tangent.",
    "gradInput = gradOutput * (Phi(self) + self * phi(self)), Phi and phi of the normal distribution; for tanh as aclnnGeluBackward",
    formulas.gelu_backward,
    lambda g, x, approximate: tanh_backward(g, x) if approximate == "tanh" else erf_backward(g, x),
    [-0.0005036496612264215, -0.1666309411753726, 2.6024853739684883, 4.047782588816736],
    (
        rules.not_null("gradOutput", "self", "gradInput", "approximate"), rules.promotes(), rules.same_as_promoted, rules.broadcast,
        rules.value("approximate", '"none" or "tanh"', lambda call: call["approximate"] not in ("none", "tanh")),
    ),
    inputs=GRADIENT, output="gradInput", compute=rules.promoted, numbers=lambda call: {"tanh": call["approximate"] == "tanh"},
    options=(Parameter("approximate", Kind.CSTRING, '"none": by the error function; "tanh"', default="none"),),
    kernels=(KernelForm("gelu_grad_v2", {"dy": "gradOutput", "x": "self"}),), variants={"erf": {}, "tanh": {"approximate": "tanh"}},
    peer=lambda torch, g, x, approximate: torch.ops.aten.gelu_backward(g, x, approximate=approximate),
)  # fmt: skip
