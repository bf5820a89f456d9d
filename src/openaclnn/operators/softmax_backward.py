"""aclnnSoftmaxBackward: the gradient of softmax from its result."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core.call import Call
from openaclnn.core.declare import Operator, Sample, like, register
from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Plan
from openaclnn.engines.formulas.softmax import softmax_backward
from openaclnn.operators.pairwise import FAMILIES
from openaclnn.operators.softmaxes import (
    GRADIENT_PARAMETERS,
    INPUTS,
    gradient_checks,
    row_arrays,
    rows_plan,
)

CHECKS = gradient_checks((*INPUTS, "out"), axis="4", rank=5)


def _plan(call: Call) -> Plan:
    return rows_plan(call, softmax_backward.name, call.tensor("gradOutput").dtype, *INPUTS)


# Forward: y = e^x / sum. The derivative of y_i by x_j is y_i * (i = j) - y_i * y_j, so that row j of the gradient is
# g_j * y_j - y_j * (sum over i of g_i * y_i): the result is all that it needs.
def reference(
    grad_output: np.ndarray[Any, Any],
    output: np.ndarray[Any, Any],
    dim: int = -1,
    work: Any = np.float64,
) -> np.ndarray[Any, Any]:
    """The document's formula in float64 (or in `work`)."""
    g, y = row_arrays(work, grad_output, output)
    if not (g.size and y.size):
        return g
    with np.errstate(all="ignore"):
        out = g * y - y * (g * y).sum(axis=dim, keepdims=True)
    return np.asarray(out.reshape(grad_output.shape))


register(
    Operator(
        name="aclnnSoftmaxBackward",
        summary="Gradient of softmax with respect to its input, from its result.",
        formula="out = gradOutput * output - output * (sum over the row of gradOutput * output); rows lie along dim",
        parameters=GRADIENT_PARAMETERS,
        families=FAMILIES,
        checks=CHECKS,
        result=like("gradOutput"),
        plan=_plan,
        reference=reference,
        aten="_softmax_backward_data",
        samples=(
            Sample(
                "a row",
                {
                    "grad_output": (FLOAT, [1, 0, 2]),
                    "output": (FLOAT, [0.09003057317038046, 0.24472847105479767, 0.6652409557748218]),
                },
                [-0.037858980024644634, -0.3476398484997831, 0.38549882852442785],
            ),
            Sample(
                "columns",
                {"grad_output": (FLOAT, [[1, 4], [3, 4]]), "output": (FLOAT, [[0.25, 0.5], [0.75, 0.5]]), "dim": 0},
                [[-0.375, 0], [0.375, 0]],
                exact=True,
            ),
        ),
    )
)  # fmt: skip
