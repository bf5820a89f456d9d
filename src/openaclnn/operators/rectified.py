"""Activations that are straight lines on both sides of a point, and their gradients: ReLU, leaky ReLU, thresholds, steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Check
from openaclnn.core.declare import Gradient
from openaclnn.core.dtypes import (
    BOOL,
    DOUBLE,
    FLOAT,
    FLOATS,
    INT8,
    INT32,
    INT64,
    INTEGERS,
    UINT8,
    DType,
)
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Plan
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.engines.formulas import activations as formulas
from openaclnn.operators import rules
from openaclnn.operators.activations import NEWEST, NOT_310P, declare, number, plan_of
from openaclnn.operators.workloads.words import KernelForm

GRADIENT = {"gradOutput": "gradient of the output", "self": "the forward's input"}
SLOPE = number("negativeSlope", "slope below 0", 0.01)
STEEPNESS, FLAT = {"negative_slope": "negativeSlope"}, {"negativeSlope": 0.0}
"""The slope in case lists, and what it is where they do not say it."""

declare(
    "Relu", "x where it is positive, 0 elsewhere.", "out = max(self, 0)", formulas.relu,
    lambda x: np.where(x <= 0, 0.0, x), [0, 0, 0.5, 3],
    (rules.not_null(), rules.dtypes("self", more=(INT8, UINT8, INT32, INT64)), rules.same_dtype(), rules.rank("self", "out"), rules.same_shape()),
    accepts=(*FLOATS, INT8, UINT8, INT32, INT64), families=NOT_310P, in_place="selfRef", const_output=True,
    kernels=(KernelForm("relu", {"x": "self"}),), peer="relu",
    gradient=Gradient("aclnnThresholdBackward", {"self": "out"}),
)  # fmt: skip

declare(
    "LeakyRelu", "x where it is positive, a multiple of it elsewhere.",
    "out = self > 0 ? self : self * negativeSlope", formulas.leaky_relu,
    lambda x, slope: np.where(x > 0, x, x * slope), [-0.4, -0.1, 0.5, 3],
    (
        rules.not_null(), rules.scalars("negativeSlope"), rules.dtypes("self", more=(DOUBLE,)), rules.converts("self"), rules.rank("self"),
        rules.same_shape(),
    ),
    options=(SLOPE,), accepts=(*FLOATS, DOUBLE), families=NOT_310P, in_place="selfRef", arguments={"negative_slope": 0.1},
    kernels=(KernelForm("leaky_relu", {"x": "self"}, STEEPNESS, values=FLAT),), peer="leaky_relu",
    variants={"slope 0.01": {}, "slope -0.5": {"negative_slope": -0.5}},
    gradient=Gradient("aclnnLeakyReluBackward"),
)  # fmt: skip

declare(
    "LeakyReluBackward", "Gradient of leaky ReLU with respect to its input.",
    "out = self > 0 ? gradOutput : gradOutput * negativeSlope", formulas.leaky_relu_backward,
    lambda g, x, slope, is_result: np.where(x > 0, g, g * slope), [0.1, 0.2, 3, 4],
    (
        rules.not_null("gradOutput", "self", "negativeSlope", "out"), rules.dtypes("gradOutput", "self", more=(DOUBLE,)),
        rules.scalar_dtypes("negativeSlope", DOUBLE, *INTEGERS, BOOL), rules.rank("gradOutput", "self"), rules.broadcast,
        rules.value(
            "negativeSlope", ">= 0 when selfIsResult is true",
            lambda call: call["selfIsResult"] and call["negativeSlope"].float32() < 0,
        ),
        rules.converts(),
    ),
    inputs=GRADIENT, accepts=(*FLOATS, DOUBLE), arguments={"negative_slope": 0.1}, compute=rules.promoted,
    options=(SLOPE, Parameter("selfIsResult", Kind.BOOL, "whether self is the forward's output", default=False)),
    kernels=(KernelForm("leaky_relu_grad", {"gradients": "gradOutput", "features": "self"}, STEEPNESS, values=FLAT),),
    peer="leaky_relu_backward", bounds_of=lambda call: {"negativeSlope": (0.0, math.inf)} if call["selfIsResult"] else {},
    variants={"input": {}, "result": {"self_is_result": True}},
)  # fmt: skip


def _ranked_plan(call: Call) -> Plan:
    plan = plan_of(call)
    plan.rank_specific = True
    return plan


declare(
    "SquaredRelu", "The square of x where it is positive, 0 elsewhere.", "out = max(input, 0)^2", formulas.squared_relu,
    lambda x: np.square(np.maximum(x, 0.0)), [0, 0, 0.25, 9], rules.generated("input", rules.has_axes, rules.same_shape(status=checks.TILING)), inputs={"input": "what the function is applied to"},
    shapes={"input": "1 to 8 dimensions"}, families=NEWEST, const_output=True, generated=True, plan=_ranked_plan,
    kernels=(KernelForm("squared_relu", {"input": "input"}),),
    peer=lambda torch, x: torch.square(torch.relu(x)),
)  # fmt: skip


def _alpha(call: Call) -> dict[str, Any]:
    """Integers are multiplied by an integer, INT32 by what FLOAT holds of it."""
    dtype, alpha = rules.promoted(call), call["alpha"]
    if dtype is None or dtype.kind != "integer":
        return {}
    return {"alpha": (Scalar(alpha.float32(), FLOAT) if dtype is INT32 else alpha).held_by(dtype)}


def _wrapped(x: Any, y: Any, alpha: int) -> Any:
    """Of integers, whose sums wrap around."""
    common = np.result_type(x, y)
    total = x.astype(common) + common.type(alpha) * y.astype(common)
    return np.where(total <= 0, common.type(0), total)


def _computed(call: Call) -> DType | None:
    """Floating sums are rounded once, into the output."""
    dtype = rules.promoted(call)
    return FLOAT if dtype in FLOATS else dtype


declare(
    "AddRelu", "A tensor and a multiple of another, where their sum is positive, 0 elsewhere.",
    "out = max(self + alpha * other, 0)", formulas.add_relu,
    lambda x, y, alpha: np.where(x + alpha * y <= 0, 0.0, x + alpha * y), [0, 0, 2, 5],
    (
        *rules.in_place(rules.not_null("self", "other"), rules.broadcast, rules.not_null("alpha")), *rules.not_in_place(rules.not_null()),
        rules.dtypes("self", "other", more=INTEGERS), rules.scalars_promoted("alpha"), rules.converts(), rules.rank("self", "other"),
        *rules.not_in_place(rules.broadcast),
    ),
    inputs={"self": "the first summand", "other": "what is multiplied"}, options=(number("alpha", "factor of other", 1),),
    accepts=(*FLOATS, *INTEGERS), families=NOT_310P, in_place="selfRef", compute=_computed, numbers=_alpha,
    integers=_wrapped, seen_by_reference=_alpha,
    arguments={"self": (FLOAT, [-4.0, -1.0, 0.5, 3.0]), "other": (FLOAT, [1.0, 2.0, 3.0, 4.0]), "alpha": 0.5},
    variants={"alpha 1": {}, "alpha -0.5": {"alpha": -0.5}}, scalar_type="aclScalar *",
    peer=lambda torch, x, y, alpha: torch.relu(torch.add(x, y, alpha=alpha)),
)  # fmt: skip

LIMITS = (
    number("threshold", "up to which values are replaced", 0.0),
    number("value", "what takes their place", 0.0),
)


declare(
    "Threshold", "x where it is above a threshold, a value elsewhere.", "out = self <= threshold ? value : self",
    formulas.threshold, lambda x, threshold, value: np.where(x <= threshold, value, x), [9, 9, 9, 3],
    (
        rules.not_null("self", "out", "threshold", "value"), rules.scalars("threshold", "value"), rules.dtypes("self", more=INTEGERS),
        rules.converts("self", unchecked_on="950"), rules.rank("self"), rules.same_shape(),
    ),
    options=LIMITS, accepts=(*FLOATS, *INTEGERS), families=NOT_310P, in_place="selfRef", rounds_options=True,
    arguments={"threshold": 0.5, "value": 9.0}, peer="threshold",
    kernels=(KernelForm("threshold_v2", {"x": "self", "threshold": "threshold", "value": "value"}),),
    gradient=Gradient("aclnnThresholdBackward"),
)  # fmt: skip


def _dtypes(operator: Any, row: str) -> list[Check]:
    """Integers are of less than 64 bits, but on 950 where the threshold is 0."""

    def fault(call: Call, tensor: Tensor) -> checks.Fault:
        newer = call.product.tag in rules.NEWER
        if tensor.dtype is not INT64 or (newer and call["threshold"].float32() == 0):
            return None
        listed = checks.names((*call.product.floats, INT8, UINT8, INT32))
        return f"dtype {listed}, or on 950 INT64 with a threshold of 0 (product {call.product.tag})", "INT64"  # fmt: skip

    both = ("gradOutput", "self")
    narrow = checks.of_tensors(row, "INT64 only on 950, with a threshold of 0", both, fault)
    return [*rules.dtypes(*both, more=(INT8, UINT8, INT32, INT64))(operator, row), narrow]


declare(
    "ThresholdBackward", "Gradient of the threshold with respect to its input.",
    "out = self <= threshold ? 0 : gradOutput", formulas.threshold_backward,
    lambda g, x, threshold: np.where(x <= threshold, 0.0, g), [0, 0, 0, 4],
    (
        rules.not_null("threshold", "out", "gradOutput", "self"), rules.scalars("threshold"),
        _dtypes, rules.same_dtype(), rules.rank("gradOutput", "self"), rules.broadcast,
    ),
    inputs=GRADIENT, options=LIMITS[:1], accepts=(*FLOATS, INT8, UINT8, INT32, INT64), rounds_options=True,
    arguments={"threshold": 0.5}, peer="threshold_backward",
    kernels=(
        KernelForm("relu_grad", {"gradients": "gradOutput", "features": "self"}, values={"threshold": 0.0}),
        KernelForm("threshold_grad_v2_d", {"gradOutput": "gradOutput", "self": "self"}, values={"threshold": 1.0}),
    ),
)  # fmt: skip

declare(
    "HardtanhBackward", "Gradient of clamping between two bounds with respect to its input.",
    "out = min < self < max ? gradOutput : 0; NaN counts as inside", formulas.hardtanh_backward,
    lambda g, x, low, high: np.where((x <= low) | (x >= high), 0.0, g), [0, 0, 3, 0],
    (
        rules.not_null("self", "gradOutput", "out", "min", "max"), rules.scalars("min", "max"), rules.dtypes("gradOutput", "self", "out"),
        rules.same_dtype(),
        rules.rank("gradOutput", "self"), rules.same_shape(),
    ),
    inputs=GRADIENT, options=(number("min", "the lower bound", -1.0), number("max", "the upper bound", 1.0)),
    families=frozenset({"950", "a3", "a2", "310p", "910", "310b"}), arguments={"min": -1.0, "max": 3.0}, peer="hardtanh_backward",
    kernels=(KernelForm("hardtanh_grad", {"result": "self", "grad": "gradOutput"}, {"min_val": "min", "max_val": "max"}),),
)  # fmt: skip

declare(
    "Heaviside", "The step function, with values of the caller's where x is 0.",
    "out = input == 0 ? values : input > 0 ? 1 : 0", formulas.heaviside,
    lambda x, values: np.where(x == 0, values, np.where(x > 0, 1.0, 0.0)), [0, 2, 1, 4],
    (rules.not_null(), rules.dtypes("input", "values", "out"), rules.same_dtype(), rules.rank("input", "values"), rules.broadcast),
    inputs={"input": "what the function is applied to", "values": "the results where input is 0"}, families=frozenset({"a3", "a2"}),
    arguments={"input": (FLOAT, [-4.0, 0.0, 0.5, 0.0]), "values": (FLOAT, [1.0, 2.0, 3.0, 4.0])}, aten="heaviside",
    kernels=(KernelForm("heaviside", {"input": "input", "values": "values"}),),
)  # fmt: skip
