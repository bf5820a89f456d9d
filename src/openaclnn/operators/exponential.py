"""SELU and CELU, which are forms of the exponential linear unit, and the inverse of the error function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openaclnn.core.call import Call
from openaclnn.core.declare import Gradient
from openaclnn.core.dtypes import BOOL, FLOAT, FLOATS, INT8, INT32, INTEGERS, DType, float_of
from openaclnn.engines.formulas import activations as formulas
from openaclnn.engines.formulas.elu import elu, elu_backward
from openaclnn.operators import rules
from openaclnn.operators.activations import NOT_310P, declare, number
from openaclnn.operators.workloads.words import KernelForm

ALPHA, SCALE = 1.6732632423543773, 1.0507009873554805
NUMBERS = {"alpha": float_of(ALPHA), "scale": float_of(SCALE), "input_scale": 1.0}
WHOLE = (*INTEGERS, BOOL)

declare(
    "Selu", "The exponential linear unit that keeps mean and variance.",
    "out = scale * (max(self, 0) + min(0, alpha * (exp(self) - 1))), alpha = 1.6732632423543773, scale = 1.0507009873554805", elu,
    lambda x: np.where(x > 0, x * x.dtype.type(SCALE), x.dtype.type(ALPHA * SCALE) * np.expm1(x)),
    [-1.7258986281898947, -1.1113307378125628, 0.5253504936777402, 3.1521029620664414],
    (rules.not_null(), rules.dtypes("self", "out", more=(INT32, INT8)), rules.same_shape()), accepts=(*FLOATS, INT32, INT8),
    families=frozenset({"a3", "a2", "910"}), in_place="selfRef", numbers=lambda call: {**NUMBERS, "limit": False},
    constants=(ALPHA, SCALE), kernels=(KernelForm("selu", {"x": "self"}),), peer="selu",
    gradient=Gradient("aclnnSeluBackward", {"result": "out"}),
)  # fmt: skip


def _from_result(call: Call) -> dict[str, Any]:
    """The formula's numbers for a gradient from the result; integer results are rounded to the nearest."""
    whole = call.tensor("gradOutput").dtype.kind == "integer"
    return {**NUMBERS, "is_result": True, **({"nearest": True} if whole else {})}


def _by_result(g: Any, y: Any) -> Any:
    return np.where(y <= 0, g * (y + y.dtype.type(ALPHA * SCALE)), g * y.dtype.type(SCALE))


declare(
    "SeluBackward", "Gradient of SELU, from its output.", "gradInput = result <= 0 ? gradOutput * (result + alpha * scale) : gradOutput * scale",
    elu_backward, _by_result,
    [0.2580993408473769, 1.516198681694754, 5.274298022542131, 4.202803949421922],
    (rules.not_null(), rules.same_dtype(), rules.dtypes("gradOutput", more=(INT32, INT8)), rules.same_shape()),
    inputs={"gradOutput": "gradient of the output", "result": "the forward's output"}, output="gradInput", accepts=(*FLOATS, INT32, INT8),
    numbers=_from_result, integers=lambda g, y: np.rint(_by_result(g.astype(float), y.astype(float))), arguments={"result": (FLOAT, [-1.5, -1.0, 0.0, 3.0])},
    constants=(ALPHA, SCALE), kernels=(KernelForm("selu_grad", {"gradients": "gradOutput", "outputs": "result"}),),
    peer=lambda torch, g, y: torch.ops.aten.elu_backward(g, ALPHA, SCALE, 1.0, True, y),
)  # fmt: skip

declare(
    "Celu", "The exponential linear unit whose slope has no step.", "out = max(self, 0) + min(0, alpha * (exp(self / alpha) - 1))",
    formulas.celu, lambda x, alpha: np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha)),
    [-1.7293294335267746, -0.7869386805747332, 0.5, 3],
    (
        rules.not_null(), rules.dtypes("self"), rules.scalars("alpha"), rules.converts("self"), rules.rank("self"), rules.same_shape(),
        rules.value("alpha", "a number other than 0", lambda call: not abs(call["alpha"].float32()) > 0),
    ),
    options=(number("alpha", "what the function tends to below 0, with its sign changed", 1.0),), families=NOT_310P, in_place="selfRef",
    arguments={"alpha": 2.0}, kernels=(KernelForm("celu_v2", {"x": "self"}),), peer="celu", nonzero=("alpha",),
    variants={"alpha 1": {}, "alpha 2": {"alpha": 2.0}, "alpha -1.5": {"alpha": -1.5}},
    gradient=Gradient("aclnnEluBackward", {"selfOrResult": "self", "inputScale": "alpha"}, converted={"inputScale": lambda alpha: 1 / alpha}),
)  # fmt: skip


@np.vectorize
def _erfinv(x: float) -> float:
    """Winitzki's approximation, which is off by 0.4 %, refined by steps of Halley's method, each of which triples the digits. Near 1 the steps
    compute with the complementary error function, since 1 - x has all digits of x."""
    if not abs(x) < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    size = abs(x)
    if size < 1e-9:
        return x * math.sqrt(math.pi) / 2
    log = math.log((1 - size) * (1 + size))
    half = 2 / (math.pi * 0.147) + log / 2
    y = math.sqrt(math.sqrt(half * half - log / 0.147) - half)
    for _ in range(3):
        off = math.erf(y) - size if size < 0.5 else (1 - size) - math.erfc(y)
        step = off / (2 / math.sqrt(math.pi) * math.exp(-y * y))
        y -= step / (1 + y * step)
    return math.copysign(y, x)


def _computed(call: Call) -> DType:
    dtype = call.tensor(call.operator.tensors[0].name).dtype
    return dtype if dtype in FLOATS else FLOAT


def _inverse(x: Any) -> Any:
    return _erfinv(x.astype(np.float64)).astype(x.dtype) if x.size else x


declare(
    "Erfinv", "The inverse of the error function.", "erf(out) = self", formulas.erfinv, _inverse,
    [-0.4769362762044699, 0, 0.2253120550121781, 1.1630871536766743],
    (
        rules.not_null(), *rules.not_in_place(rules.dtypes("self", more=WHOLE)), rules.dtypes("out"), rules.same_shape(),
        rules.rank("self"),
    ),
    families=NOT_310P, in_place="selfRef", reads={"self": WHOLE},
    const_ref=True, compute=_computed, arguments={"self": (FLOAT, [-0.5, 0.0, 0.25, 0.9])}, domain=(-1.0, 1.0),
    kernels=(KernelForm("erfinv", {"input_x": "self"}),), aten="erfinv",
)  # fmt: skip
