"""aclnnSmoothL1Loss: the absolute difference, with a parabola where it is small."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Violation
from openaclnn.core.declare import Operator, Sample, register
from openaclnn.core.dtypes import FLOAT, FLOATS
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Free, Plan
from openaclnn.core.status import Status
from openaclnn.engines.formulas.smooth_l1_loss import smooth_l1_loss
from openaclnn.operators import pairwise

INPUTS = ("self", "target")
BETA = Parameter("beta", Kind.FLOAT, "where the loss turns linear, >= 0", default=1.0)

PARAMETERS = pairwise.loss_parameters(
    FLOATS, "result", "the broadcast shape for none, else one element", BETA
)


def beta_not_negative(call: Call) -> Violation | None:
    if not call["beta"] >= 0:  # NaN fails too
        return Violation("beta", ">= 0", str(call["beta"]))
    return None


def _result_shapes(call: Call) -> tuple[tuple[int, ...], ...]:
    return (pairwise.loss_result(call)[0],) if call.reduction == "none" else ((1,), ())


# Two of the three listed types always have a listed common type, which converts to every floating output.
CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", *INPUTS, "result"),
    checks.dtype_in("2", *INPUTS),
    checks.castable("4", "result", lambda call: call.tensor("self").dtype, "the promoted dtype"),
    checks.reduction_known("5", "reduction"),
    checks.rank_at_most("6", *INPUTS),
    checks.broadcastable("7", *INPUTS),
    checks.shape_is("8", "result", _result_shapes, "the broadcast one for none, else one element"),
    checks.value_check("10", "beta >= 0", beta_not_negative),
    checks.product_has_operator("11", Status.ACLNN_ERR_INNER_NULLPTR, INPUTS),
)


FREE = (Free("beta", low=0.0),)


def _plan(call: Call) -> Plan:
    return pairwise.loss_plan(call, smooth_l1_loss.name, {"beta": call["beta"]}, FREE)


# No difference is smaller than a beta of 0, which leaves the plain absolute difference.
def reference(
    self: np.ndarray[Any, Any],
    target: np.ndarray[Any, Any],
    reduction: str = "mean",
    beta: float = 1.0,
    work: Any = np.float64,
) -> np.ndarray[Any, Any]:
    """The document's formula in float64 (or in `work`)."""
    x, y = pairwise.promoted_arrays(work, self, target)
    with np.errstate(all="ignore"):
        size, b = np.abs(x - y), work(beta)
        losses = np.where(size < b, work(0.5) * size * size / b, size - work(0.5) * b)
        return pairwise.reduced(losses, reduction, work)


_LINE = {"self": (FLOAT, [-3, -0.5, 0, 0.25, 2]), "target": (FLOAT, [0, 0, 0, 0, 0])}

register(
    Operator(
        name="aclnnSmoothL1Loss",
        summary="The smooth L1 (Huber-like) loss: of each element, their mean or their sum.",
        formula=(
            "d = |self - target|; l = d * d / (2 * beta) if d < beta, d - beta / 2 otherwise\n"
            "result = l for none, sum(l) / (number of elements) for mean, sum(l) for sum"
        ),
        parameters=PARAMETERS,
        families=pairwise.FAMILIES,
        checks=CHECKS,
        result=pairwise.loss_result,
        plan=_plan,
        reference=reference,
        gradient=pairwise.gradient_of("aclnnSmoothL1LossBackward"),
        aten="smooth_l1_loss",
        samples=(
            Sample(
                "document",
                {
                    "self": (FLOAT, np.ones((2, 2, 7, 7)).tolist()),
                    "target": (FLOAT, np.ones((2, 2, 7, 7)).tolist()),
                    "reduction": "none",
                },
                np.zeros((2, 2, 7, 7)).tolist(),
                exact=True,
            ),
            Sample(
                "beta 0.5",
                {**_LINE, "reduction": "none", "beta": 0.5},
                [2.75, 0.25, 0, 0.0625, 1.75],
                exact=True,
            ),
            Sample("beta 0, sum", {**_LINE, "reduction": "sum", "beta": 0.0}, 5.75, exact=True),
            Sample("beta 1, mean", _LINE, 0.83125),
        ),
    )
)
