"""The exponential linear unit, also written over its input, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Gradient, Sample
from openaclnn.core.dtypes import DOUBLE, FLOAT, FLOATS
from openaclnn.core.interface import Kind, Parameter
from openaclnn.engines.formulas import elu as formulas
from openaclnn.operators import rules
from openaclnn.operators.activations import ALL, declare, elementwise_operator, number
from openaclnn.operators.workloads.words import KernelForm

SCALE = number("scale", "factor of both branches", 1.0)
INPUT_SCALE = number("inputScale", "factor inside the exponential", 1.0)
VARIANTS = {
    "SELU": {"alpha": 1.6732632423543772, "scale": 1.0507009873554805},
    "input scale": {"alpha": 1.5, "scale": 2.0, "input_scale": 0.5},
}

# An infinite alpha or inputScale selects other code, so that calls with other numbers must not share the plan.
LARGEST = float(np.finfo(np.float32).max)


def _numbers(call: Call) -> dict[str, Any]:
    alpha, scale, inner = (call[name].float32() for name in ("alpha", "scale", "inputScale"))
    if math.isfinite(alpha) and math.isfinite(inner):
        return {"limit": False}
    return {"alpha": alpha, "scale": scale, "input_scale": inner, "limit": True}


# exp(c) - 1 is written as such: near 0 the difference would lose every digit. NaN is not > 0, and stays NaN.
# Where alpha or inputScale has no finite value, the negative branch is its limit for x far below 0.
def _elu(x: Any, alpha: Any, scale: Any, inner: Any) -> Any:
    if not (math.isfinite(alpha) and math.isfinite(inner)):
        return np.where(x > 0, x, -alpha) * scale
    return np.where(x > 0, x * scale, (alpha * scale) * np.expm1(x * inner))


declare(
    "Elu", "The exponential linear unit.",
    "out = scale * x                                     if x > 0\n"
    "out = alpha * scale * (exp(x * inputScale) - 1)     if x <= 0;   x = self\n"
    "an alpha or inputScale that is infinite or NaN stands for its limit: -alpha * scale for every x <= 0",
    formulas.elu, _elu,
    (
        Sample("document", {"self": (FLOAT, [[-2, -1], [0, 1]])}, [[-0.8646647167633873, -0.6321205588285577], [0.0, 1.0]]),
        Sample(
            "three scalars", {"self": (FLOAT, [-2, -0.5, 0, 1.5]), "alpha": 1.5, "scale": 2.0, "input_scale": 0.5},
            [-1.896361676485673, -0.6635976507857854, 0.0, 3.0],
        ),
        Sample(
            "near 0", {"self": (FLOAT, [-(2.0**-10), -(2.0**-20), -(2.0**-60)])},
            [-0.0009760858180243378, -9.536738616593138e-07, -8.673617379884035e-19],
        ),
        Sample(
            "the limit", {"self": (FLOAT, [-1, 0, 2]), "alpha": 3.0, "scale": 0.5, "input_scale": math.inf}, [-1.5, -1.5, 1.0],
            exact=True,
        ),
    ),
    (
        rules.not_null(), rules.dtypes("self", more=(DOUBLE,)), rules.scalars("scale", "alpha", "inputScale"), rules.converts("self"),
        rules.same_shape(),
        rules.at_row("6", rules.rank("self")),
    ),
    inputs={"self": "what the unit is applied to"}, options=(number("alpha", "slope of the negative branch", 1.0), SCALE, INPUT_SCALE),
    accepts=(*FLOATS, DOUBLE), writes=FLOATS, in_place="selfRef", in_place_aten="elu_", numbers=_numbers,
    bounds={"alpha": (-LARGEST, LARGEST), "inputScale": (-LARGEST, LARGEST)}, variants={"ELU": {}, **VARIANTS}, aten="elu",
    kernels=(KernelForm("elu", {"x": "self"}),), trained="elu",
    gradient=Gradient("aclnnEluBackward", {"selfOrResult": "self"}),
)  # fmt: skip


def _negative_alpha(call: Call) -> str:
    alpha = call["alpha"].float32()
    return str(alpha) if call["isResult"] and alpha < 0 else ""  # NaN and -0 pass


def _bounds(call: Call) -> Mapping[str, tuple[float, float]]:
    return {"alpha": (0.0, math.inf)} if call["isResult"] else {}


# Forward: y = scale * x for x > 0, alpha * scale * (exp(x * inputScale) - 1) for x <= 0.
# Its derivative is scale, or alpha * scale * inputScale * exp(x * inputScale); by the forward's own
# formula the latter is inputScale * (y + alpha * scale), which needs the output alone.
# NaN is not <= 0 and takes the positive branch: it does not propagate.
def _elu_backward(g: Any, alpha: Any, scale: Any, inner: Any, is_result: bool, x: Any) -> Any:
    if is_result:
        negative = g * inner * (x + alpha * scale)
    else:
        negative = g * inner * (alpha * scale) * np.exp(x * inner)
    return np.where(x <= 0, negative, g * scale)


SAME = "same as gradOutput"
SQUARE = {
    "grad_output": (FLOAT, [[-2, -1], [0, 1]]),
    "self_or_result": (FLOAT, [[-2, -1], [0, 1]]),
}
SCALED = {"grad_output": (FLOAT, [1, 2, 3, 4]), "alpha": 1.5, "scale": 2.0, "input_scale": 0.5}
INPUTS = {"grads": "gradOutput", "activations": "selfOrResult"}

elementwise_operator(
    "aclnnEluBackward", "Gradient of the ELU activation with respect to its input.",
    "gradInput = gradOutput * scale                                          if x > 0\n"
    "gradInput = gradOutput * inputScale * (x + alpha * scale)               if x <= 0, isResult\n"
    "gradInput = gradOutput * inputScale * alpha * scale * exp(x * inputScale)   if x <= 0",
    formulas.elu_backward, _elu_backward,
    (
        Parameter("gradOutput", Kind.TENSOR, "gradient of the ELU's output", "0 to 8 dimensions", FLOATS),
        number("alpha", "slope of the negative branch; >= 0 if isResult", 1.0), SCALE, INPUT_SCALE,
        Parameter("isResult", Kind.BOOL, "whether selfOrResult is the ELU's output instead of its input", default=False),
        Parameter("selfOrResult", Kind.TENSOR, "the ELU's input, or its output", SAME, FLOATS),
        Parameter("gradInput", Kind.OUTPUT, "gradient of the ELU's input", SAME, FLOATS),
    ),
    (
        rules.not_null(), rules.same_dtype("gradOutput", "selfOrResult"), rules.dtypes("gradOutput"), rules.scalars("alpha", "scale", "inputScale"),
        rules.converts("gradOutput"), rules.same_shape("gradOutput", "selfOrResult"), rules.same_shape("gradOutput", "gradInput"),
        rules.rank("gradOutput"),
        lambda operator, row: [checks.expect(row, "alpha >= 0 if isResult", "alpha", ">= 0 when isResult is true", _negative_alpha)],
    ),
    ALL, None, None, bounds_of=_bounds, variants={"input": {}, **VARIANTS, "result": {"is_result": True}}, aten="elu_backward",
    kernels=(KernelForm("elu_grad_v2", INPUTS), KernelForm("elu_grad", INPUTS, values={"isResult": True})),
    samples=(
        Sample("document", {**SQUARE, "is_result": True}, [[2.0, -0.0], [0.0, 1.0]], exact=True),
        Sample("document data, from the input", SQUARE, [[-0.2706705664732254, -0.36787944117144233], [0.0, 1.0]]),
        Sample(
            "three scalars", {**SCALED, "self_or_result": (FLOAT, [-2, -0.5, 0, 1.5])},
            [0.5518191617571635, 2.3364023492142145, 4.5, 8.0],
        ),
        Sample(
            "three scalars, from the result",
            {**SCALED, "self_or_result": (FLOAT, [-1.896361676485673, -0.6635976507857854, 0, 3]), "is_result": True},
            [0.5518191617571635, 2.3364023492142145, 4.5, 8.0],
        ),
    ),
)  # fmt: skip
