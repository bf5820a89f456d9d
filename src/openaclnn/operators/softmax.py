"""aclnnSoftmax: a row's exponentials as shares of their sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Gradient, Operator, Sample, like, register
from openaclnn.core.dtypes import DOUBLE, FLOAT
from openaclnn.core.plan import Plan
from openaclnn.core.status import Status
from openaclnn.engines.formulas.softmax import softmax
from openaclnn.operators.pairwise import FAMILIES
from openaclnn.operators.softmaxes import PARAMETERS, row_arrays, rows_plan

CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", "self", "out"),
    *checks.unless_empty(
        ("self",),
        checks.dtype_in("2", "self", "out", more=(DOUBLE,)),
        checks.axis_in_range("3", "dim", "self"),
        checks.rank_at_most("4", "self"),
        checks.same_shape("5", "out", "self"),
    ),
    checks.product_has_operator("6", Status.ACLNN_ERR_INNER_NULLPTR, ("self",)),
)


def _plan(call: Call) -> Plan:
    return rows_plan(call, softmax.name, call.tensor("self").dtype, "self")


# e^(x - max) / sum: the largest value is subtracted from all, which changes no share, so that no power overflows.
# A row with NaN or +Inf, or of -Inf alone, has no shares: Inf - Inf is NaN, and so is all that is divided by the sum.
def reference(
    self: np.ndarray[Any, Any], dim: int = -1, work: Any = np.float64
) -> np.ndarray[Any, Any]:
    """The document's formula in float64 (or in `work`)."""
    (x,) = row_arrays(work, self)
    if not x.size:
        return x
    with np.errstate(all="ignore"):
        powers = np.exp(x - x.max(axis=dim, keepdims=True))
        return np.asarray((powers / powers.sum(axis=dim, keepdims=True)).reshape(self.shape))


register(
    Operator(
        name="aclnnSoftmax",
        summary="The exponentials along an axis, as shares of their sum.",
        formula="out = exp(x - m) / (sum over the row of exp(x - m)), x = self, m = the largest x of the row, which lies along dim",
        parameters=PARAMETERS,
        families=FAMILIES | {"310b"},
        checks=CHECKS,
        result=like("self"),
        plan=_plan,
        reference=reference,
        aten="_softmax",
        gradient=Gradient("aclnnSoftmaxBackward", {"output": "out"}),
        samples=(
            Sample(
                "a row",
                {"self": (FLOAT, [[1, 2, 3], [2, 2, 2]])},
                [[0.09003057317038046, 0.24472847105479767, 0.6652409557748218], [1 / 3, 1 / 3, 1 / 3]],
            ),
            Sample(
                "columns",
                {"self": (FLOAT, [[1, 0], [2, 0], [3, float("-inf")]]), "dim": 0},
                [[0.09003057317038046, 0.5], [0.24472847105479767, 0.5], [0.6652409557748218, 0.0]],
            ),
            Sample("one number is its own row", {"self": (FLOAT, -7)}, 1.0, exact=True),
        ),
    )
)  # fmt: skip
