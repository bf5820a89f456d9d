"""aclnnL1Loss: the absolute difference."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Violation
from openaclnn.core.declare import Operator, Sample, register
from openaclnn.core.dtypes import FLOAT, FLOATS, INT64
from openaclnn.core.plan import Plan
from openaclnn.core.status import Status
from openaclnn.engines.formulas.l1_loss import l1_loss
from openaclnn.operators import pairwise

INPUTS = ("self", "target")
DTYPES = (*FLOATS, INT64)

PARAMETERS = pairwise.loss_parameters(
    DTYPES, "out", "the broadcast shape for none, else 0 dimensions"
)


def _floating_enough(call: Call) -> Violation | None:
    dtype, target = (call.tensor(name).dtype for name in INPUTS)
    if dtype.kind == "floating":
        return None
    if call.reduction == "none" and target.kind == "floating":
        expected = f"a floating dtype like target's, {target}, for reduction none"
        return Violation("self", expected, dtype.name)
    if call.reduction == "mean" and target.kind != "floating":
        return Violation(
            "self, target", "a floating dtype for reduction mean", f"{dtype}, {target}"
        )
    return None


CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", *INPUTS, "out"),
    checks.reduction_known("2", "reduction"),
    checks.value_check("3", "a floating self for none beside a floating target; for mean, one of the two floating", _floating_enough),
    pairwise.promotes("4", *INPUTS),
    pairwise.promoted_supported("5", *INPUTS, more=(INT64,)),
    checks.castable("6", "out", lambda call: pairwise.promoted_dtype(call, *INPUTS), "the promoted dtype"),
    checks.rank_at_most("7", *INPUTS),
    checks.broadcastable("8", *INPUTS),
    checks.shape_is("9", "out", lambda call: (pairwise.loss_result(call)[0],), "the broadcast one for none, else 0 dimensions"),
    checks.product_has_operator("10", Status.ACLNN_ERR_INNER_NULLPTR, INPUTS),
)  # fmt: skip


def _plan(call: Call) -> Plan:
    return pairwise.loss_plan(call, l1_loss.name, {})


def reference(
    self: np.ndarray[Any, Any],
    target: np.ndarray[Any, Any],
    reduction: str = "mean",
    work: Any = np.float64,
) -> np.ndarray[Any, Any]:
    """The document's formula in float64 (or in `work`)."""
    x, y = pairwise.promoted_arrays(work, self, target)
    with np.errstate(all="ignore"):
        return pairwise.reduced(np.abs(x - y), reduction, work)


_PAIRS = {"self": (FLOAT, [[0, 1], [2, 3]]), "target": (FLOAT, [[1, 1], [1, 1]])}
_OUTER = {"self": (FLOAT, [[1], [4]]), "target": (FLOAT, [[2, 4, 0.5]])}

register(
    Operator(
        name="aclnnL1Loss",
        summary="The absolute error: of each element, their mean or their sum.",
        formula=(
            "l = |self - target|\nout = l for none, sum(l) / (number of elements) for mean, sum(l) for sum"
        ),
        parameters=PARAMETERS,
        families=pairwise.FAMILIES,
        checks=CHECKS,
        result=pairwise.loss_result,
        plan=_plan,
        reference=reference,
        gradient=pairwise.gradient_of("aclnnL1LossBackward"),
        samples=(
            Sample("document", _PAIRS, 1.0, exact=True),
            Sample("none", {**_PAIRS, "reduction": "none"}, [[1, 0], [1, 2]], exact=True),
            Sample("outer, sum", {**_OUTER, "reduction": "sum"}, 10.0, exact=True),
            Sample("outer, mean", {**_OUTER, "reduction": "mean"}, 1.6666666666666667),
        ),
    )
)
