"""aclnnBandBackward: the gradient of the clamp between two numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Operator, OutputSpec, Sample, register
from openaclnn.core.dtypes import FLOAT, FLOATS
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Free, Plan, elementwise_plan, empty_plan
from openaclnn.core.status import Status
from openaclnn.engines.formulas.band import band_backward

PARAMETERS = (
    Parameter("gradOutput", Kind.TENSOR, "gradient of the output", "0 to 8 dimensions", FLOATS),
    Parameter("self", Kind.TENSOR, "the input", "same as gradOutput", FLOATS),
    Parameter("min", Kind.SCALAR, "lower end of the linear part", default=-1.0),
    Parameter("max", Kind.SCALAR, "upper end of the linear part", default=1.0),
    Parameter("out", Kind.OUTPUT, "gradient of the input", "same as gradOutput", FLOATS),
)

CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", "gradOutput", "self", "min", "max", "out"),
    checks.same_dtype("2", "self", "gradOutput"),
    checks.dtype_in("3", "gradOutput"),
    checks.scalar_castable("4", "min", "max"),
    checks.castable("5", "out", lambda call: call.tensor("gradOutput").dtype, "gradOutput's dtype"),
    checks.same_shape("6", "self", "gradOutput"),
    checks.same_shape("7", "out", "gradOutput"),
    checks.rank_at_most("8", "gradOutput"),
    checks.product_has_operator("9", Status.ACLNN_ERR_INNER_NULLPTR, ("gradOutput",)),
)


def _result(call: Call) -> OutputSpec:
    gradient = call.tensor("gradOutput")
    return gradient.shape, gradient.dtype


def _plan(call: Call) -> Plan:
    values = call.values
    gradient, output = values["gradOutput"], ("out", values["out"])
    if gradient.empty:
        return empty_plan(call.operator.name, output)
    return elementwise_plan(
        call.operator.name,
        band_backward.name,
        gradient.dtype,
        [("gradOutput", gradient), ("self", values["self"])],
        output,
        {"min": values["min"].float32(), "max": values["max"].float32()},
        free=(Free("min"), Free("max")),
    )


# Forward: y = x between min and max, and the nearer of the two outside. Its derivative is 1 inside and 0
# outside; the ends count as outside. NaN is not outside: the gradient passes.
def reference(
    grad_output: np.ndarray[Any, Any],
    self: np.ndarray[Any, Any],
    min: float = -1.0,
    max: float = 1.0,
    work: Any = np.float64,
) -> np.ndarray[Any, Any]:
    """The document's formula in float64 (or in `work`)."""
    gradient, x = grad_output.astype(work), self.astype(work)
    outside = (x <= work(min)) | (x >= work(max))
    return np.asarray(np.where(outside, work(0), gradient))


register(
    Operator(
        name="aclnnBandBackward",
        summary="Gradient of the clamp between two numbers.",
        formula="out = 0 if self <= min or self >= max, gradOutput otherwise",
        parameters=PARAMETERS,
        families=frozenset({"950", "a3", "a2", "310p", "910"}),
        checks=CHECKS,
        result=_result,
        plan=_plan,
        reference=reference,
        samples=(
            Sample(
                "document",
                {
                    "grad_output": (FLOAT, [[1, 1], [1, 1], [1, 1], [1, 1]]),
                    "self": (FLOAT, [[0, 1], [2, 3], [4, 5], [6, 7]]),
                    "min": 1.0,
                    "max": 5.0,
                },
                [[0, 0], [1, 1], [1, 0], [0, 0]],
                exact=True,
            ),
            Sample(
                "defaults",
                {"grad_output": (FLOAT, [1, 2, 3, 4, 5]), "self": (FLOAT, [-2, -1, 0.5, 1, 2])},
                [0, 0, 3, 0, 0],
                exact=True,
            ),
        ),
    )
)
