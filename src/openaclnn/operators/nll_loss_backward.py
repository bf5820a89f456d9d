"""aclnnNLLLossBackward: the gradient of the negative log-likelihood of a class per row."""

from __future__ import annotations

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Operator, Sample, like, register
from openaclnn.core.dtypes import FLOAT, INT64
from openaclnn.core.plan import Plan
from openaclnn.core.status import Status
from openaclnn.operators import likelihood
from openaclnn.operators.nll_loss import ROWS_CHECKS, per_row_or_one

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
    *ROWS_CHECKS,
    checks.one_element("12", "totalWeight"),
    per_row_or_one("13", "gradOutput"),
    checks.same_shape("14", "out", "self"),
    checks.product_has_operator("15", Status.ACLNN_ERR_INNER_NULLPTR, ("self",)),
)


def _plan(call: Call) -> Plan:
    return likelihood.gradient_plan(call, "nll_loss_backward")


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
        result=like("self"),
        plan=_plan,
        reference=likelihood.gradient_reference,
        module=__name__,
        aten="nll_loss_backward",
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
