"""aclnnScaledSoftmax: softmax of logits times a number, as attention has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.declare import Sample
from openaclnn.core.dtypes import FLOAT, FLOATS
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Free
from openaclnn.engines.formulas.scaled_softmax import scaled_softmax
from openaclnn.operators.rows import Rows, declare, widened

PARAMETERS = (
    Parameter("self", Kind.TENSOR, "logits", "0 to 8 dimensions", FLOATS),
    Parameter("scale", Kind.SCALAR, "factor of the logits", default=1.0),
    Parameter("dim", Kind.INT64, "the axis that a row lies along", default=-1, axis="self"),
    Parameter("out", Kind.OUTPUT, "the shares", "same as self", FLOATS),
)

CHECKS = (
    checks.not_null("1", "self", "scale", "out"),
    checks.dtype_in("2", "self"),
    checks.same_dtype("3", "out", "self"),
    checks.scalar_castable("4", "scale"),
    checks.axis_in_range("5", "dim", "self"),
    checks.rank_at_most("6", "self"),
    checks.same_shape("7", "out", "self"),
)


PLAN = Rows(
    scaled_softmax.name, "self", {"self": "full"}, {"out": "full"}, lambda call: {"scale": call["scale"].float32()}, (Free("scale"),)
)  # fmt: skip


# e^(s x - m) / sum, m the largest s x: it changes no share, and no power overflows.
@widened
def reference(
    self: np.ndarray[Any, Any], scale: float = 1.0, dim: int = -1
) -> np.ndarray[Any, Any]:
    x = np.atleast_1d(self) * scale
    powers = np.exp(x - x.max(axis=dim, keepdims=True, initial=-np.inf))
    return np.asarray((powers / powers.sum(axis=dim, keepdims=True)).reshape(self.shape))


declare(
    "ScaledSoftmax", "Softmax of logits times a number.",
    "out = exp(x - m) / (sum over the row of exp(x - m)), x = scale * self, m = the largest x of the row, which lies along dim",
    PARAMETERS, CHECKS, PLAN, reference,
    (
        Sample(
            "a row", {"self": (FLOAT, [[2, 4, 6], [4, 4, 4]]), "scale": 0.5},
            [[0.09003057317038046, 0.24472847105479767, 0.6652409557748218], [1 / 3] * 3],
        ),
        Sample("columns", {"self": (FLOAT, [[9, 1], [9, 1]]), "dim": 0}, [[0.5, 0.5]] * 2, exact=True),
    ),
    frozenset({"950", "a3", "a2"}), empty=("self",),
)  # fmt: skip
