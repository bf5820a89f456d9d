"""aclnnElu: the exponential linear unit; what `inplace_elu.py` has in common with it stands here too."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Check
from openaclnn.core.declare import Gradient, Operator, Sample, like, register
from openaclnn.core.dtypes import DOUBLE, FLOAT, FLOATS
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Free, Plan, elementwise_plan, empty_plan
from openaclnn.core.status import Status
from openaclnn.engines.formulas.elu import elu

DTYPES = (*FLOATS, DOUBLE)
FAMILIES = frozenset({"950", "a3", "a2", "310p", "910"})
SUMMARY = "The exponential linear unit"
FORMULA = (
    "{out} = scale * x                                     if x > 0\n"
    "{out} = alpha * scale * (exp(x * inputScale) - 1)     if x <= 0;   x = {self}\n"
    "an alpha or inputScale that is infinite or NaN stands for its limit: -alpha * scale for every x <= 0"
)
SCALARS = (
    Parameter("alpha", Kind.SCALAR, "slope of the negative branch", default=1.0),
    Parameter("scale", Kind.SCALAR, "factor of both branches", default=1.0),
    Parameter("inputScale", Kind.SCALAR, "factor inside the exponential", default=1.0),
)

PARAMETERS = (
    Parameter("self", Kind.TENSOR, "what the unit is applied to", "0 to 8 dimensions", DTYPES),
    *SCALARS,
    Parameter("out", Kind.OUTPUT, "the result", "same as self", FLOATS),
)


def head_of_checks(name: str, *outputs: str) -> tuple[Check, ...]:
    """The rows up to the scalars'."""
    return (
        checks.result_pointers("0"),
        checks.not_null("1", name, "alpha", "scale", "inputScale", *outputs),
        checks.dtype_in("2", name, more=(DOUBLE,)),
        checks.scalar_castable("3", "scale", "alpha", "inputScale"),
    )


CHECKS = (
    *head_of_checks("self", "out"),
    checks.castable("4", "out", lambda call: call.tensor("self").dtype, "self's dtype"),
    checks.same_shape("5", "out", "self"),
    checks.rank_at_most("6", "self"),
    checks.product_has_operator("7", Status.ACLNN_ERR_INNER_NULLPTR, ("self",)),
)


# Where alpha or inputScale is infinite other code serves, so that no call may come to it with other numbers.
LARGEST = float(np.finfo(np.float32).max)
FREE = (
    Free("alpha", low=-LARGEST, high=LARGEST),
    Free("scale"),
    Free("input_scale", low=-LARGEST, high=LARGEST),
)


def plan_of(call: Call, name: str, output: str) -> Plan:
    """The plan from one tensor to another, which may be the same."""
    values = call.values
    tensor, written = values[name], (output, values[output])
    if tensor.empty:
        return empty_plan(call.operator.name, written)
    alpha, input_scale = values["alpha"].float32(), values["inputScale"].float32()
    limit = not (math.isfinite(alpha) and math.isfinite(input_scale))
    return elementwise_plan(
        call.operator.name,
        elu.name,
        tensor.dtype,
        [(name, tensor)],
        written,
        {
            "alpha": alpha,
            "scale": values["scale"].float32(),
            "input_scale": input_scale,
            "limit": limit,
        },
        free=() if limit else FREE,
    )


def _plan(call: Call) -> Plan:
    return plan_of(call, "self", "out")


# exp(c) - 1 is written as such: near 0 the difference would lose every digit. NaN is not > 0, and stays NaN.
# Where alpha or inputScale has no finite value, the negative branch is its limit for x far below 0.
def reference(
    self: np.ndarray[Any, Any],
    alpha: float = 1.0,
    scale: float = 1.0,
    input_scale: float = 1.0,
    work: Any = np.float64,
) -> np.ndarray[Any, Any]:
    """The document's formula in float64 (or in `work`)."""
    values = self.astype(work)
    a, s, c = work(alpha), work(scale), work(input_scale)
    with np.errstate(all="ignore"):
        if not (math.isfinite(alpha) and math.isfinite(input_scale)):
            return np.asarray(np.where(values > 0, values, -a) * s)
        negative = (a * s) * np.expm1(values * c)
        return np.asarray(np.where(values > 0, values * s, negative))


def samples_of(name: str) -> tuple[Sample, ...]:
    """Known answers, with the input under its name."""
    return (
        Sample(
            "document",
            {name: (FLOAT, [[-2, -1], [0, 1]])},
            [[-0.8646647167633873, -0.6321205588285577], [0.0, 1.0]],
        ),
        Sample(
            "three scalars",
            {name: (FLOAT, [-2, -0.5, 0, 1.5]), "alpha": 1.5, "scale": 2.0, "input_scale": 0.5},
            [-1.896361676485673, -0.6635976507857854, 0.0, 3.0],
        ),
        Sample(
            "near 0",
            {name: (FLOAT, [-(2.0**-10), -(2.0**-20), -(2.0**-60)])},
            [-0.0009760858180243378, -9.536738616593138e-07, -8.673617379884035e-19],
        ),
        Sample(
            "the limit",
            {name: (FLOAT, [-1, 0, 2]), "alpha": 3.0, "scale": 0.5, "input_scale": math.inf},
            [-1.5, -1.5, 1.0],
            exact=True,
        ),
    )


register(
    Operator(
        name="aclnnElu",
        summary=f"{SUMMARY}.",
        formula=FORMULA.format(out="out", self="self"),
        parameters=PARAMETERS,
        families=FAMILIES,
        checks=CHECKS,
        result=like("self"),
        plan=_plan,
        reference=reference,
        aten="elu",
        gradient=Gradient("aclnnEluBackward", {"selfOrResult": "self"}),
        samples=samples_of("self"),
    )
)
