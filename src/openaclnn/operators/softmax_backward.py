"""aclnnSoftmaxBackward: the gradient of softmax from its result; what that of log-softmax has in common with it stands here too."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Check
from openaclnn.core.declare import Operator, Sample, like, register
from openaclnn.core.dtypes import FLOAT, FLOATS
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Plan
from openaclnn.core.status import Status
from openaclnn.engines.formulas.softmax import softmax_backward
from openaclnn.operators.softmax import DTYPES, FAMILIES, rows_plan

INPUTS = ("gradOutput", "output")
PARAMETERS = (
    Parameter("gradOutput", Kind.TENSOR, "gradient of the result", "0 to 8 dimensions", FLOATS),
    Parameter("output", Kind.TENSOR, "the forward's result", "that of gradOutput", FLOATS),
    Parameter("dim", Kind.INT64, "the axis that a row lies along", default=-1, axis="gradOutput"),
    Parameter("out", Kind.OUTPUT, "gradient of the forward's input", "that of gradOutput", DTYPES),
)


def axis_checks(row: str) -> tuple[Check, ...]:
    return (checks.axis_in_range(row, "dim", "gradOutput"),)


def shape_checks(row: int) -> tuple[Check, ...]:
    """Rank and shapes, in three rows from this one on."""
    return (
        checks.rank_at_most(f"{row}", *INPUTS, "out"),
        checks.same_shape(f"{row + 1}", "output", "gradOutput"),
        checks.same_shape(f"{row + 2}", "out", "gradOutput"),
    )


# The document lists no dtypes of out: whatever the computed type converts to.
DTYPE_CHECKS = (
    checks.dtype_in("2", *INPUTS),
    checks.same_dtype("3", "output", "gradOutput"),
)
CASTABLE = checks.castable(
    "8", "out", lambda call: call.tensor("gradOutput").dtype, "gradOutput's dtype"
)
PRODUCT = checks.product_has_operator("9", Status.ACLNN_ERR_INNER_NULLPTR, INPUTS)

CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", *INPUTS, "out"),
    *checks.unless_empty(
        INPUTS, *DTYPE_CHECKS, *axis_checks("4"), *shape_checks(5), CASTABLE, heeded_on=("950",)
    ),
    PRODUCT,
)


def _plan(call: Call) -> Plan:
    return rows_plan(call, softmax_backward.name, call.tensor("gradOutput").dtype, INPUTS)


# Forward: y = e^x / sum. The derivative of y_i by x_j is y_i * (i = j) - y_i * y_j, so that row j of the gradient is
# g_j * y_j - y_j * (sum over i of g_i * y_i): the result is all that it needs.
def reference(
    grad_output: np.ndarray[Any, Any],
    output: np.ndarray[Any, Any],
    dim: int = -1,
    work: Any = np.float64,
) -> np.ndarray[Any, Any]:
    """The document's formula in float64 (or in `work`)."""
    if not (grad_output.size and output.size):
        return grad_output.astype(work)
    shape = grad_output.shape or (1,)
    g, y = (own.astype(work).reshape(shape) for own in (grad_output, output))
    with np.errstate(all="ignore"):
        out = g * y - y * (g * y).sum(axis=dim, keepdims=True)
    return np.asarray(out.reshape(grad_output.shape))


register(
    Operator(
        name="aclnnSoftmaxBackward",
        summary="Gradient of softmax with respect to its input, from its result.",
        formula="out = gradOutput * output - output * (sum over the row of gradOutput * output); rows lie along dim",
        parameters=PARAMETERS,
        families=FAMILIES,
        checks=CHECKS,
        result=like("gradOutput"),
        plan=_plan,
        reference=reference,
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
