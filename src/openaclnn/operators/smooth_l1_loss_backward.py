"""aclnnSmoothL1LossBackward: the gradient of the smooth absolute difference."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Discrepancy, Operator, Sample, register
from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Plan
from openaclnn.core.status import Status
from openaclnn.engines.formulas.smooth_l1_loss import smooth_l1_loss_backward
from openaclnn.operators import pairwise
from openaclnn.operators.smooth_l1_loss import BETA, FREE, beta_not_negative

INPUTS = ("gradOut", "self", "target")

PARAMETERS = pairwise.gradient_parameters("gradOut", BETA)


# The promotion of three listed types always exists, is listed and converts to the listed output, so
# the document's rows 6 to 8 cannot fail after row 2 and are not repeated here.
CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", *INPUTS, "gradInput"),
    checks.dtype_in("2", *INPUTS, "gradInput"),
    checks.rank_at_most("3", *INPUTS),
    checks.reduction_known("4", "reduction"),
    checks.value_check("5", "beta >= 0", beta_not_negative),
    checks.broadcastable("9", *INPUTS),
    checks.output_shape("10", "gradInput", INPUTS),
    checks.product_has_operator("11", Status.ACLNN_ERR_INNER_NULLPTR, INPUTS),
)


def _plan(call: Call) -> Plan:
    return pairwise.gradient_plan(call, smooth_l1_loss_backward.name, {"beta": call["beta"]}, FREE)


# Forward, d = self - target: d*d / (2 beta) for |d| < beta, |d| - beta/2 beyond. Its derivative is
# d / beta inside and sign(d) from the tie on; beta = 0 leaves the plain sign, with sign(0) = 0.
def reference(
    grad_out: np.ndarray[Any, Any],
    self: np.ndarray[Any, Any],
    target: np.ndarray[Any, Any],
    reduction: str = "mean",
    beta: float = 1.0,
    work: Any = np.float64,
) -> np.ndarray[Any, Any]:
    """The formula in float64 (or in `work`)."""
    gradient, x, y = pairwise.promoted_arrays(work, grad_out, self, target)
    count = np.broadcast(gradient, x, y).size
    with np.errstate(all="ignore"):
        difference = x - y
        inside = np.abs(difference) < work(beta)
        slope = np.where(inside, difference / work(beta), np.sign(difference))
        scaled = slope * gradient
        return np.asarray(scaled * work(1.0 / max(count, 1)) if reduction == "mean" else scaled)


_LINE = {
    "grad_out": (FLOAT, [1, 2, 3, 4, 5]),
    "self": (FLOAT, [-3, -0.5, 0, 0.5, 2]),
    "target": (FLOAT, [0, 0, 0, 0, 0]),
}

register(
    Operator(
        name="aclnnSmoothL1LossBackward",
        summary="Gradient of the smooth L1 (Huber-like) loss with respect to the predictions.",
        formula=(
            "d = self - target; u = d / beta if |d| < beta, sign(d) otherwise\n"
            "gradInput = u * gradOut * k;  k = 1 / (number of output elements) for mean, 1 otherwise"
        ),
        parameters=PARAMETERS,
        families=pairwise.FAMILIES,
        checks=CHECKS,
        result=pairwise.broadcast_result,
        plan=_plan,
        reference=reference,
        aten="smooth_l1_loss_backward",
        discrepancies=(
            Discrepancy(
                frozenset({"950"}),
                "self",
                "divides a mean by self's count of elements, not by that of the broadcast",
                lambda call: (
                    call.reduction == "mean"
                    and call.tensor("self").size != call.tensor("gradInput").size
                ),
            ),
        ),
        samples=(
            Sample(
                "document",
                {
                    "grad_out": (FLOAT, [[1, 1]] * 4),
                    "self": (FLOAT, [[0, 1], [2, 3], [4, 5], [6, 7]]),
                    "target": (FLOAT, [[1, 1]] * 4),
                    "reduction": "none",
                },
                [[-1, 0], [1, 1], [1, 1], [1, 1]],
                exact=True,
            ),
            Sample("beta 0.5", {**_LINE, "reduction": "none", "beta": 0.5}, [-1, -2, 0, 4, 5]),
            Sample("beta 2", {**_LINE, "reduction": "none", "beta": 2.0}, [-1, -0.5, 0, 1, 5]),
            Sample("beta 0", {**_LINE, "reduction": "none", "beta": 0.0}, [-1, -2, 0, 4, 5]),
            Sample("one gradient, mean", {**_LINE, "grad_out": (FLOAT, 10)}, [-2, -1, 0, 1, 2]),
            Sample(
                "broadcast, mean over the broadcast count",
                {
                    "grad_out": (FLOAT, 6),
                    "self": (FLOAT, [0, 1, 4]),
                    "target": (FLOAT, [[0.5], [2]]),
                },
                [[-0.5, 0.5, 1], [-1, -1, 1]],
            ),
        ),
    )
)
