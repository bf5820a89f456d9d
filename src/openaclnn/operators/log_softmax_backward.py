"""aclnnLogSoftmaxBackward: the gradient of log-softmax from its result."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core.call import Call
from openaclnn.core.declare import Operator, Sample, like, register
from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Plan
from openaclnn.engines.formulas.softmax import log_softmax_backward
from openaclnn.operators.pairwise import FAMILIES
from openaclnn.operators.softmaxes import (
    GRADIENT_PARAMETERS,
    INPUTS,
    gradient_checks,
    row_arrays,
    rows_plan,
)

CHECKS = gradient_checks(("output", "gradOutput", "out"), axis="7", rank=4)


def _plan(call: Call) -> Plan:
    return rows_plan(call, log_softmax_backward.name, call.tensor("gradOutput").dtype, *INPUTS)


# Forward: y = x - log(sum of e^x). The derivative of y_i by x_j is (i = j) - e^y_j, so that row j of the gradient is
# g_j - e^y_j * (sum over i of g_i).
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
        out = g - np.exp(y) * g.sum(axis=dim, keepdims=True)
    return np.asarray(out.reshape(grad_output.shape))


register(
    Operator(
        name="aclnnLogSoftmaxBackward",
        summary="Gradient of log-softmax with respect to its input, from its result.",
        formula="out = gradOutput - exp(output) * (sum over the row of gradOutput); rows lie along dim",
        parameters=GRADIENT_PARAMETERS,
        families=FAMILIES,
        header_name="logsoftmax_backward",
        checks=CHECKS,
        result=like("gradOutput"),
        plan=_plan,
        reference=reference,
        aten="_log_softmax_backward_data",
        samples=(
            Sample(
                "a row",
                {
                    "grad_output": (FLOAT, [1, 0, -0.5]),
                    "output": (FLOAT, [-2.4076059644443806, -1.4076059644443806, -0.4076059644443806]),
                },
                [0.9549847134148097, -0.12236423552739879, -0.8326204778874109],
            ),
            Sample(
                "columns",
                {"grad_output": (FLOAT, [[1, -2], [3, 2]]), "output": (FLOAT, [[0, -1], [float("-inf"), 7]]), "dim": 0},
                [[-3, -2], [3, 2]],
                exact=True,
            ),
        ),
    )
)  # fmt: skip
