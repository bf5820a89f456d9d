"""aclnnSoftmax: a row's shares of the sum of its exponentials; what its relatives have in common with it stands here too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Operator, Sample, like, register
from openaclnn.core.dtypes import DOUBLE, FLOAT, FLOATS, DType
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Plan, class_plan, empty_plan
from openaclnn.core.status import Status
from openaclnn.engines.formulas.softmax import softmax

DTYPES = (*FLOATS, DOUBLE)
FAMILIES = frozenset({"950", "a3", "a2", "310p", "910"})
PARAMETERS = (
    Parameter("self", Kind.TENSOR, "what it is applied to", "0 to 8 dimensions", DTYPES),
    Parameter("dim", Kind.INT64, "the axis that a row lies along", default=-1, axis="self"),
    Parameter("out", Kind.OUTPUT, "the result", "that of self", DTYPES),
)

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


def rows_plan(call: Call, kernel: str, compute: DType, inputs: Sequence[str]) -> Plan:
    """The plan of a row formula from tensors of one shape to `out`, along `dim`."""
    values = call.values
    tensors, out = [(name, values[name], "full") for name in inputs], values["out"]
    if any(tensor.empty for _, tensor, _ in tensors):
        return empty_plan(call.operator.name, ("out", out))
    axis = call.axis("dim")
    assert axis is not None
    return class_plan(
        call.operator.name, kernel, compute, tensors, [("out", out, "full")], out.shape or (1,), axis, -1, {}
    )  # fmt: skip


def _plan(call: Call) -> Plan:
    return rows_plan(call, softmax.name, call.tensor("self").dtype, ["self"])


# e^(x - max) / sum: the largest value is subtracted from all, which changes no share, so that no power overflows.
# A row with NaN or +Inf, or of -Inf alone, has no shares: Inf - Inf is NaN, and so is all that is divided by the sum.
def reference(
    self: np.ndarray[Any, Any], dim: int = -1, work: Any = np.float64
) -> np.ndarray[Any, Any]:
    """The document's formula in float64 (or in `work`)."""
    if not self.size:
        return self.astype(work)
    x = self.astype(work).reshape(self.shape or (1,))
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
