"""What the negative log-likelihood losses, plain and per pixel, have in common."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import INVALID
from openaclnn.core.declare import Made
from openaclnn.core.dtypes import FLOATS, INT32, INT64, UINT8
from openaclnn.core.interface import REDUCTIONS, Kind, Parameter
from openaclnn.core.outcome import Check
from openaclnn.core.plan import Plan, class_plan, empty_plan, filling_plan

TARGET_DTYPES = (INT64, UINT8, INT32)


def parameters(own: str, positions: str, loss: str) -> tuple[Parameter, ...]:
    """A loss's parameters, with the shapes that the operator asks for."""
    return (
        Parameter("self", Kind.TENSOR, "log-probabilities", own, FLOATS),
        Parameter(
            "target", Kind.TENSOR, "the right classes, in [0, C), or ignoreIndex", positions, TARGET_DTYPES,
            weak=False,
        ),
        Parameter("weight", Kind.TENSOR, "factor of each class", "(C,)", FLOATS),
        Parameter(
            "reduction", Kind.INT64, "0 none, 1 mean, 2 sum", default="mean", choices=REDUCTIONS
        ),
        Parameter("ignoreIndex", Kind.INT64, "target value that counts for nothing", default=-100),
        Parameter("out", Kind.OUTPUT, "the loss", loss, FLOATS),
        Parameter(
            "totalWeightOut", Kind.OUTPUT, "sum of weight[target] over what is not ignored", "one element",
            FLOATS,
        ),
    )  # fmt: skip


FORMULA = (
    "l = -weight[t] * self at class t = target, 0 where target is ignoreIndex\n"
    "out = l for none, sum(l) / totalWeightOut for mean, sum(l) for sum\n"
    "totalWeightOut = sum of weight[t] where target is not ignoreIndex"
)


def castable_outputs(row: str) -> tuple[Check, ...]:
    """The outputs' dtypes."""
    names = ("out", "totalWeightOut")
    return tuple(
        checks.castable(row, name, lambda call: call.tensor("self").dtype, "self's")
        for name in names
    )


def class_count(call: Call) -> tuple[tuple[int, ...], ...]:
    """The shape of the weights."""
    shape = call.tensor("self").shape
    return ((shape[1] if len(shape) > 1 else shape[0],),)


def one_total(row: str, name: str, status: int = INVALID) -> Check:
    return checks.element_count_is(row, name, lambda call: 1, "1", status)


def results(call: Call) -> tuple[Made, Made]:
    """Shapes and dtypes of the loss and of the total weight where they are left to us."""
    target, dtype = call.tensor("target"), call.tensor("self").dtype
    return (target.shape if call.reduction == "none" else (), dtype), ((), dtype)


def loss_plan(call: Call) -> Plan:
    """The plan of a loss and its total weight."""
    own, target, reduction = call.tensor("self"), call.tensor("target"), call.reduction
    out, total = ("out", call.tensor("out")), ("totalWeightOut", call.tensor("totalWeightOut"))
    name = call.operator.name
    if own.empty or target.empty:
        if reduction == "none":
            return filling_plan(name, (*total, 0.0)) if target.empty else empty_plan(name, out)
        return filling_plan(name, (*out, math.nan if reduction == "mean" else 0.0), (*total, 0.0))
    if reduction == "none" and not target.shape:
        reduction = "sum"  # of one
    whole = reduction == "none"
    return class_plan(
        name,
        "nll_loss",
        own.dtype,
        [
            ("target", target, "positions"),
            ("self", own, "full"),
            ("weight", call.tensor("weight"), "classes"),
        ],
        [(*out, "positions" if whole else "single"), (*total, "single")],
        own.shape,
        class_axis=min(1, own.rank - 1),
        targets=0,
        numbers={"ignore_index": call["ignoreIndex"]},
        reduction="" if whole else str(reduction),
    )


# The class axis is the second one, or the only one.
def reference(
    self: np.ndarray[Any, Any],
    target: np.ndarray[Any, Any],
    weight: np.ndarray[Any, Any],
    reduction: str = "mean",
    ignore_index: int = -100,
    work: Any = np.float64,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The document's formula in float64 (or in `work`); an out-of-range target contributes nothing."""
    classes = np.moveaxis(self.astype(work), min(1, self.ndim - 1), -1)
    indices, factors = target.astype(np.int64), weight.astype(work)
    counted = (indices != ignore_index) & (indices >= 0) & (indices < classes.shape[-1])
    safe = np.where(counted, indices, 0)
    with np.errstate(all="ignore"):
        if classes.shape[-1] == 0:
            losses = own = np.zeros(target.shape, work)
        else:
            own = np.where(counted, factors[safe], work(0))
            picked = np.take_along_axis(classes, safe[..., None], -1)[..., 0]
            losses = np.where(counted, -(factors[safe] * picked), work(0))
        total = np.asarray(own.sum(dtype=work))
        if reduction == "none":
            return np.asarray(losses), total
        loss = losses.sum(dtype=work)
        return np.asarray(loss / total if reduction == "mean" else loss), total
