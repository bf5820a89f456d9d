"""aclnnLogSoftmax: the logarithm of softmax, computed without it."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Gradient, Operator, Sample, like, register
from openaclnn.core.dtypes import DOUBLE, FLOAT
from openaclnn.core.interop import view_memory
from openaclnn.core.plan import Plan
from openaclnn.core.status import Status
from openaclnn.engines.formulas.softmax import log_softmax
from openaclnn.operators.pairwise import FAMILIES
from openaclnn.operators.softmaxes import PARAMETERS, row_arrays, rows_plan

# Whatever dtypes are listed convert to each other: the document's row on that breaks for none.
CHECKS = (
    checks.result_pointers("0"),
    checks.not_null("1", "self", "out"),
    checks.axis_in_range("2", "dim", "self"),
    checks.dtype_in("3", "self", "out", more=(DOUBLE,)),
    checks.rank_at_most("4", "self"),
    checks.same_shape("5", "out", "self"),
    checks.product_has_operator("6", Status.ACLNN_ERR_INNER_NULLPTR, ("self",)),
)


def _plan(call: Call) -> Plan:
    """Computed in the dtype of out: self is converted to it first."""
    return rows_plan(call, log_softmax.name, call.tensor("out").dtype, "self")


def _converted(call: Call) -> dict[str, Any]:
    """What the reference is to see: self as the operator converts it, where out has another dtype."""
    given = call.given("out") and call.tensor("out").dtype is not call.tensor("self").dtype
    if not given:
        return {}
    with np.errstate(over="ignore"):
        return {"self": view_memory(call.tensor("self")).astype(call.tensor("out").dtype.numpy)}


# log(e^(x - max) / sum) = x - max - log(sum): no power overflows, and none that is lost matters.
def reference(
    self: np.ndarray[Any, Any], dim: int = -1, work: Any = np.float64
) -> np.ndarray[Any, Any]:
    """The document's formula in float64 (or in `work`)."""
    (x,) = row_arrays(work, self)
    if not x.size:
        return x
    with np.errstate(all="ignore"):
        shifted = x - x.max(axis=dim, keepdims=True)
        out = shifted - np.log(np.exp(shifted).sum(axis=dim, keepdims=True))
    return np.asarray(out.reshape(self.shape))


register(
    Operator(
        name="aclnnLogSoftmax",
        summary="The logarithms of softmax's shares along an axis.",
        formula="out = x - m - log(sum over the row of exp(x - m)), x = self, m = the largest x of the row, which lies along dim",
        parameters=PARAMETERS,
        families=FAMILIES,
        header_name="logsoftmax",
        checks=CHECKS,
        result=like("self"),
        plan=_plan,
        reference=reference,
        aten="_log_softmax",
        gradient=Gradient("aclnnLogSoftmaxBackward", {"output": "out"}),
        seen_by_reference=_converted,
        samples=(
            Sample(
                "a row",
                {"self": (FLOAT, [[1, 2, 3], [2, 2, 2]])},
                [[-2.4076059644443806, -1.4076059644443806, -0.4076059644443806], [-1.0986122886681098] * 3],
            ),
            Sample(
                "columns",
                {"self": (FLOAT, [[1, 0], [2, 0], [3, 0]]), "dim": 0},
                [[-2.4076059644443806, -1.0986122886681098], [-1.4076059644443806, -1.0986122886681098],
                 [-0.4076059644443806, -1.0986122886681098]],
            ),
            Sample("one number is its own row", {"self": (FLOAT, -7)}, 0.0, exact=True),
        ),
    )
)  # fmt: skip
