"""aclnnNLLLossBackward: the gradient of the negative log-likelihood of a class per row."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Operator, Sample, register
from openaclnn.core.dtypes import FLOAT, INT64
from openaclnn.core.plan import Plan
from openaclnn.core.status import Status
from openaclnn.operators import likelihood, nll_loss2d_backward
from openaclnn.operators.likelihood import TARGET_DTYPES
from openaclnn.operators.nll_loss import (
    per_row_or_one,
    rank_at_most_one,
    rank_one_or_two,
    rows_match,
)

PARAMETERS = likelihood.gradient_parameters(
    "(N, C) or (C,)", "(N,), or 0 dimensions", "(N,) for none and rows, else one element", "(C,)"
)

CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", "gradOutput", "self", "target", "weight", "totalWeight", "out"),
    checks.same_dtype("2", "weight", "self"),
    checks.same_dtype("2", "gradOutput", "self"),
    checks.same_dtype("2", "totalWeight", "self"),
    checks.castable("3", "out", lambda call: call.tensor("self").dtype, "self's dtype"),
    checks.dtype_in("4", "self"),
    checks.dtype_one_of("5", "target", TARGET_DTYPES),
    checks.reduction_known("6", "reduction"),
    checks.value_check("7", "self has 1 or 2 dimensions", rank_one_or_two),
    checks.value_check("8", "target has at most 1 dimension", rank_at_most_one),
    checks.value_check("10", "target has the shape of self without classes", rows_match),
    checks.shape_is("11", "weight", likelihood.class_count, "(C,) of self"),
    checks.one_element("12", "totalWeight"),
    checks.value_check(
        "13",
        "gradOutput has target's shape (none, rows) or one element",
        lambda call: per_row_or_one(call, "gradOutput"),
    ),
    checks.same_shape("14", "out", "self"),
    checks.product_has_operator("15", Status.ACLNN_ERR_INNER_NULLPTR, ("self",)),
)


def _plan(call: Call) -> Plan:
    return likelihood.gradient_plan(call, "nll_loss_backward")


# The loss of a row is -weight[t] * self[n, t], 0 where t is ignored; mean divides their sum by the total weight.
def reference(
    grad_output: np.ndarray[Any, Any],
    self: np.ndarray[Any, Any],
    target: np.ndarray[Any, Any],
    weight: np.ndarray[Any, Any],
    reduction: str = "mean",
    ignore_index: int = -100,
    total_weight: np.ndarray[Any, Any] | None = None,
    work: Any = np.float64,
) -> np.ndarray[Any, Any]:
    """The formula in float64 (or in `work`); rows are pixels of an image of one column."""
    pixels = (*target.reshape(-1).shape, 1, 1)
    gradient = np.asarray(grad_output)
    found = nll_loss2d_backward.reference(
        gradient.reshape(pixels if reduction == "none" else gradient.shape),
        self.reshape(pixels[0], self.shape[-1], 1, 1),
        target.reshape(pixels),
        weight,
        reduction,
        ignore_index,
        total_weight,
        work,
    )
    return found.reshape(self.shape)


_ROWS = {
    "self": (FLOAT, [[0, 0, 0], [0, 0, 0]]),
    "target": (INT64, [1, 0]),
    "weight": (FLOAT, [0.5, 1, 2]),
}

register(
    Operator(
        name="aclnnNLLLossBackward",
        summary="Gradient of the negative log-likelihood loss with respect to the log-probabilities.",
        formula=(
            "out[n, t] = -gradOutput * weight[t] / (totalWeight for mean, 1 otherwise), t = target[n]\n"
            "out is 0 for every other class, and where target is ignoreIndex"
        ),
        parameters=PARAMETERS,
        families=frozenset({"950", "a3", "a2", "910"}),
        checks=CHECKS,
        result=likelihood.gradient_of_self,
        plan=_plan,
        reference=reference,
        samples=(
            Sample(
                "document",
                {
                    "grad_output": (FLOAT, [3.1, 6.5]),
                    "self": (FLOAT, [[0, 1, 2], [3, 4, 5]]),
                    "target": (INT64, [0, 2]),
                    "weight": (FLOAT, [1.1, 1.2, 1.3]),
                    "reduction": "none",
                    "total_weight": (FLOAT, [0]),
                },
                [[-3.41, 0, 0], [0, 0, -8.45]],
            ),
            Sample(
                "mean, its total computed",
                {**_ROWS, "grad_output": (FLOAT, 3)},
                [[0, -2, 0], [-1, 0, 0]],
            ),
            Sample(
                "sum, one class ignored",
                {**_ROWS, "grad_output": (FLOAT, [3]), "reduction": "sum", "ignore_index": 1},
                [[0, 0, 0], [-1.5, 0, 0]],
            ),
            Sample(
                "one row",
                {
                    "grad_output": (FLOAT, 3),
                    "self": (FLOAT, [0, 0, 0]),
                    "target": (INT64, 2),
                    "weight": (FLOAT, [0.5, 1, 2]),
                    "total_weight": (FLOAT, 4),
                },
                [0, 0, -1.5],
            ),
        ),
    )
)
