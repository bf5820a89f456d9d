"""aclnnL1LossBackward: the gradient of the absolute difference."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Operator, Sample, register
from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Plan
from openaclnn.core.status import Status
from openaclnn.engines.formulas.l1_loss import l1_loss_backward
from openaclnn.operators import pairwise

INPUTS = ("gradOutput", "self", "target")

PARAMETERS = pairwise.gradient_parameters("gradOutput")

CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", *INPUTS, "gradInput"),
    checks.reduction_known("2", "reduction"),
    pairwise.promotes("3", "gradOutput", "self"),
    pairwise.promotes("4", *INPUTS),
    checks.castable(
        "5", "gradInput", lambda call: pairwise.promoted_dtype(call, *INPUTS), "the promoted dtype"
    ),
    pairwise.promoted_supported("6", *INPUTS),
    checks.rank_at_most("7", "self", "target", "gradOutput", "gradInput"),
    checks.broadcastable("8", "self", "gradOutput"),
    checks.broadcastable("9", "self", "gradOutput", "target"),
    checks.output_shape("10", "gradInput", INPUTS),
    checks.product_has_operator("11", Status.ACLNN_ERR_INNER_NULLPTR, INPUTS),
)


def _plan(call: Call) -> Plan:
    return pairwise.gradient_plan(call, l1_loss_backward.name, {})


# Forward: |self - target|; its derivative is the sign of the difference. The sign comes from two
# comparisons, not from a subtraction: Inf against Inf and NaN give 0, and 0 * gradient follows IEEE.
def reference(
    grad_output: np.ndarray[Any, Any],
    self: np.ndarray[Any, Any],
    target: np.ndarray[Any, Any],
    reduction: str = "mean",
    work: Any = np.float64,
) -> np.ndarray[Any, Any]:
    """The formula in float64 (or in `work`)."""
    gradient, x, y = pairwise.promoted_arrays(work, grad_output, self, target)
    count = np.broadcast(gradient, x, y).size
    with np.errstate(all="ignore"):
        scaled = gradient * work(1.0 / max(count, 1)) if reduction == "mean" else gradient
        return np.asarray(((x > y).astype(work) - (x < y).astype(work)) * scaled)


_SQUARE = {
    "self": (FLOAT, [[1, 5], [3, 3]]),
    "target": (FLOAT, [3, 3]),
    "grad_output": (FLOAT, [2]),
}
_OUTER = {"self": (FLOAT, [[1], [4]]), "target": (FLOAT, [[2, 4, 0]]), "grad_output": (FLOAT, 6)}

register(
    Operator(
        name="aclnnL1LossBackward",
        summary="Gradient of the mean absolute error with respect to the predictions.",
        formula=(
            "gradInput = sign(self - target) * gradOutput * k\n"
            "k = 1 / (number of output elements) for mean, 1 for none and sum; sign is 0 for ties and NaN"
        ),
        parameters=PARAMETERS,
        families=pairwise.FAMILIES,
        checks=CHECKS,
        result=pairwise.broadcast_result,
        plan=_plan,
        reference=reference,
        samples=(
            Sample(
                "document",
                {
                    "grad_output": (FLOAT, [[0, 1], [2, 3]]),
                    "self": (FLOAT, [[0, 1], [2, 3]]),
                    "target": (FLOAT, [[1, 1], [1, 1]]),
                    "reduction": "mean",
                },
                [[-0.0, 0.0], [0.5, 0.75]],
                exact=True,
            ),
            Sample("row target", {**_SQUARE, "reduction": "none"}, [[-2, 2], [0, 0]]),
            Sample("row target, mean", {**_SQUARE, "reduction": "mean"}, [[-0.5, 0.5], [0, 0]]),
            Sample("outer", {**_OUTER, "reduction": "none"}, [[-6, -6, 6], [6, 0, 6]]),
            Sample("outer, mean", {**_OUTER, "reduction": "mean"}, [[-1, -1, 1], [1, 0, 1]]),
        ),
    )
)
