"""aclnnSigmoidBackward: the gradient of the sigmoid with respect to its input, from its output."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Operator, Sample, register
from openaclnn.core.dtypes import FLOAT, FLOATS, DType
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Plan, elementwise_plan, empty_plan
from openaclnn.core.status import Status
from openaclnn.engines.formulas.sigmoid import sigmoid_backward

PARAMETERS = (
    Parameter(
        "gradOutput", Kind.TENSOR, "gradient of the sigmoid's output", "0 to 8 dimensions", FLOATS
    ),
    Parameter("output", Kind.TENSOR, "the sigmoid's output", "that of gradOutput", FLOATS),
    Parameter(
        "gradInput", Kind.OUTPUT, "gradient of the sigmoid's input", "that of gradOutput", FLOATS
    ),
)

CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", "gradOutput", "output", "gradInput"),
    checks.same_dtype("2", "output", "gradOutput"),
    checks.dtype_in("3", "gradOutput"),
    checks.castable("4", "gradInput", lambda call: call.tensor("gradOutput").dtype, "gradOutput's"),
    checks.same_shape("5", "output", "gradOutput"),
    checks.same_shape("6", "gradInput", "gradOutput"),
    checks.rank_at_most("7", "gradOutput"),
    checks.product_has_operator("8", Status.ACLNN_ERR_INNER_NULLPTR, ("gradOutput",)),
)


def _result(call: Call) -> tuple[tuple[int, ...], DType]:
    gradient = call.tensor("gradOutput")
    return gradient.shape, gradient.dtype


def _plan(call: Call) -> Plan:
    gradient = call.tensor("gradOutput")
    output = ("gradInput", call.tensor("gradInput"))
    if gradient.empty:
        return empty_plan(call.operator.name, output)
    return elementwise_plan(
        call.operator.name,
        sigmoid_backward.name,
        gradient.dtype,
        [("gradOutput", gradient), ("output", call.tensor("output"))],
        output,
        {},
    )


# Forward: y = 1 / (1 + exp(-x)). Its derivative is exp(-x) * y * y; as exp(-x) = (1 - y) / y that is
# (1 - y) * y, which needs the output alone.
def reference(
    grad_output: np.ndarray[Any, Any], output: np.ndarray[Any, Any], work: Any = np.float64
) -> np.ndarray[Any, Any]:
    """The document's formula in float64 (or in `work`)."""
    gradient, y = grad_output.astype(work), output.astype(work)
    with np.errstate(all="ignore"):
        return np.asarray(gradient * ((1 - y) * y))


register(
    Operator(
        name="aclnnSigmoidBackward",
        summary="Gradient of the sigmoid with respect to its input, from its output.",
        formula="gradInput = gradOutput * (1 - output) * output",
        parameters=PARAMETERS,
        families=frozenset({"950", "a3", "a2", "310p", "910"}),
        checks=CHECKS,
        result=_result,
        plan=_plan,
        reference=reference,
        samples=(
            Sample(
                "quarters",
                {
                    "grad_output": (FLOAT, [[2, -1], [4, 8]]),
                    "output": (FLOAT, [[0.5, 0.25], [0, 0.75]]),
                },
                [[0.5, -0.1875], [0, 1.5]],
                exact=True,
            ),
            Sample(
                "tenths",
                {
                    "grad_output": (FLOAT, [1, 2, 3]),
                    "output": (FLOAT, [0.1, 0.2, 0.7]),
                },
                [0.09, 0.32, 0.63],
            ),
        ),
    )
)
