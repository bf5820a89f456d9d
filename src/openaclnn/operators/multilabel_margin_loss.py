"""aclnnMultilabelMarginLoss: by how much the labels of a row fail to exceed all other classes by a margin of 1."""

from __future__ import annotations

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Sample
from openaclnn.core.dtypes import FLOAT, FLOATS, INT32, INT64
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Plan, empty_plan
from openaclnn.core.tensor import Tensor
from openaclnn.operators.activations import NOT_310P
from openaclnn.operators.rows import LOSSES, REDUCTION, Array, Indices, Rows, declare, widened

KERNEL = "multilabel_margin_loss"


def _ill_shaped(call: Call) -> str:
    shape = call.tensor("self").shape
    return "" if len(shape) <= 2 and 0 not in shape[-1:] else f"shape {shape}"


def _is_whole(call: Call) -> bool:
    """Whether out has a loss for each row. An unknown reduction acts as a sum."""
    return call.reduction == "none" and call.tensor("self").rank == 2


def _losses(call: Call) -> tuple[tuple[int, ...], ...]:
    return (call.tensor("self").shape[:1],) if _is_whole(call) else ((), (1,))


def _mask_fault(call: Call, mask: Tensor) -> checks.Fault:
    shape = call.tensor("self").shape
    if mask.shape == shape or (0 in shape and 0 in mask.shape and mask.rank <= 2):
        return None
    return f"shape {shape}, the shape of target", f"shape {mask.shape}"


PLAN = Rows(KERNEL, "self", {"self": "full", "target": "full"}, {"out": LOSSES, "isTarget": "full"})  # fmt: skip


def _plan(call: Call) -> Plan:
    if call.tensor("self").empty:
        return empty_plan(call.operator.name, ("out", call.tensor("out")))
    return PLAN.plan(call)


@widened
def reference(self: Array, target: Indices, reduction: str | None = "mean") -> tuple[Array, Array]:
    """A row's labels are the classes before its first -1; indices out of range are no labels."""
    x, labels = (np.atleast_2d(each) for each in (self, target))
    rows, classes = x.shape
    losses, mask = np.zeros(rows, x.dtype), np.zeros((rows, classes), x.dtype)
    for row in range(rows):
        before = np.cumsum(labels[row] == -1) == 0
        listed = labels[row][before & (labels[row] >= 0) & (labels[row] < classes)]
        mask[row, listed] = 1
        margins = 1 - x[row, listed][:, None] + x[row][mask[row] == 0][None, :]
        losses[row] = np.where(margins > 0, margins, 0).sum() / classes
    if reduction == "none" and self.ndim == 2:
        return losses, mask.reshape(self.shape)
    total = losses.sum()
    if reduction == "mean" and rows:
        total = total / rows
    return np.asarray(total), mask.reshape(self.shape)


WORKED = {
    "self": (FLOAT, [[0.1, 0.2, 0.4, 0.8], [0.5, -0.5, 0, 1]]), "target": (INT64, [[3, 0, -1, 1], [1, 1, -1, -1]]),
}  # fmt: skip
MASK = [[1, 0, 0, 1], [0, 1, 0, 0]]

declare(
    "MultilabelMarginLoss", "Multi-label margin loss: labels against all classes that are none.",
    "out[n] = sum over the labels j of row n, and over the classes i that are none of them, of max(0, 1 - self[n, j] + self[n, i]) / C\n"
    "labels are target[n] up to the first -1, each as often as it is there; isTarget = 1 for labels, 0 for others",
    (
        Parameter("self", Kind.TENSOR, "what classes are given", "(N, C) or (C,)", FLOATS),
        Parameter("target", Kind.TENSOR, "labels, then -1; what is no class is skipped", "same as self", (INT64, INT32), weak=False),
        REDUCTION,
        Parameter("out", Kind.OUTPUT, "the loss", "(N,) for none, else one element", FLOATS),
        Parameter("isTarget", Kind.OUTPUT, "1 for labels, else 0", "same as target", FLOATS),
    ),
    (
        checks.not_null("1", "self", "target", "out", "isTarget"),
        checks.dtype_in("2", "self"),
        checks.dtype_one_of("3", "target", (INT64, INT32)),
        checks.same_dtype("4", "out", "self"),
        checks.same_dtype("5", "isTarget", "self"),
        checks.expect(
            "6", "self has at most 2 dimensions, and classes", "self", "at most 2 dimensions, and a class at least", _ill_shaped
        ),
        checks.same_shape("7", "target", "self"),
        checks.any_reduction("8", "reduction", REDUCTION.choices),
        checks.shape_is("9", "out", _losses, "(N,) for none, one element otherwise"),
        checks.of_tensors("10", "isTarget has the shape of target", ("isTarget",), _mask_fault),
    ),
    _plan, reference,
    (
        Sample("two rows", {**WORKED, "reduction": "none"}, ([0.85, 3], MASK)),
        Sample("their mean", {**WORKED, "reduction": "mean"}, (1.925, MASK)),
        Sample("their sum", {**WORKED, "reduction": "sum"}, (3.85, MASK)),
    ),
    NOT_310P, result=PLAN.results, empty=("self",),
)  # fmt: skip
