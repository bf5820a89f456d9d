"""What the negative log-likelihood losses, plain and per pixel, have in common."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Check, Violation
from openaclnn.core.declare import OutputSpec
from openaclnn.core.dtypes import FLOATS, INT32, INT64, UINT8
from openaclnn.core.interface import REDUCTIONS, Kind, Parameter
from openaclnn.core.plan import Free, Plan, class_plan, empty_plan, filling_plan

TARGET_DTYPES = (INT64, UINT8, INT32)
_FREE = (Free("ignore_index", whole=True),)


_TOTAL = "sum of weight[target] over what is not ignored"


def _of_classes(positions: str, weights: str) -> tuple[Parameter, ...]:
    """What losses and gradients take after log-probabilities."""
    return (
        Parameter(
            "target", Kind.TENSOR, "the right classes, in [0, C), or ignoreIndex", positions, TARGET_DTYPES,
            weak=False,
        ),
        Parameter("weight", Kind.TENSOR, "factor of each class", weights, FLOATS),
        Parameter(
            "reduction", Kind.INT64, "0 none, 1 mean, 2 sum", default="mean", choices=REDUCTIONS
        ),
        Parameter("ignoreIndex", Kind.INT64, "target value that counts for nothing", default=-100),
    )  # fmt: skip


def parameters(shape: str, positions: str, loss: str) -> tuple[Parameter, ...]:
    """A loss's parameters, with the shapes that the operator asks for."""
    return (
        Parameter("self", Kind.TENSOR, "log-probabilities", shape, FLOATS),
        *_of_classes(positions, "(C,)"),
        Parameter("out", Kind.OUTPUT, "the loss", loss, FLOATS),
        Parameter("totalWeightOut", Kind.OUTPUT, _TOTAL, "one element", FLOATS),
    )


def gradient_parameters(
    shape: str, positions: str, loss: str, weights: str, total_in_c: str = ""
) -> tuple[Parameter, ...]:
    """The same of a gradient; and the type of the total weight in C, where it is not that of an input."""
    return (
        Parameter("gradOutput", Kind.TENSOR, "gradient of the loss", loss, FLOATS),
        Parameter("self", Kind.TENSOR, "log-probabilities; only shape and dtype matter", shape, FLOATS),
        *_of_classes(positions, weights),
        Parameter(
            "totalWeight", Kind.TENSOR, f"{_TOTAL}; read for mean alone", "one element", FLOATS, default=None,
            computed=True, c_type=total_in_c,
        ),
        Parameter("out", Kind.OUTPUT, "gradient of self", "same as self", FLOATS),
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
        checks.castable(row, name, lambda call: call.tensor("self").dtype, "self's dtype")
        for name in names
    )


def class_count(call: Call) -> tuple[tuple[int, ...], ...]:
    """The shape of the weights."""
    shape = call.tensor("self").shape
    return ((shape[1] if len(shape) > 1 else shape[0],),)


def unlike_target(call: Call, name: str) -> Violation | None:
    """What is wrong with a tensor that should have the shape of the targets."""
    shape, wanted = call.tensor(name).shape, call.tensor("target").shape
    if shape == wanted:
        return None
    expected = f"shape {wanted}, the shape of target, for reduction none"
    return Violation(name, expected, f"shape {shape}")


def pixels_match(call: Call) -> Violation | None:
    shape, target = call.tensor("self").shape, call.tensor("target").shape
    wanted = (shape[0], shape[2], shape[3])
    if target != wanted:
        return Violation("target", f"shape {wanted}, dims 0, 2, 3 of self", f"shape {target}")
    return None


def results(call: Call) -> tuple[OutputSpec, OutputSpec]:
    """Shapes and dtypes of the loss and of the total weight where they are left to us."""
    target, dtype = call.tensor("target"), call.tensor("self").dtype
    return (target.shape if call.reduction == "none" else (), dtype), ((), dtype)


def loss_plan(call: Call) -> Plan:
    """The plan of a loss and its total weight."""
    log_prob, target, reduction = call.tensor("self"), call.tensor("target"), call.reduction
    out, total = ("out", call.tensor("out")), ("totalWeightOut", call.tensor("totalWeightOut"))
    name = call.operator.name
    if log_prob.empty or target.empty:
        if reduction == "none":
            return filling_plan(name, (*total, 0.0))
        return filling_plan(name, (*out, math.nan if reduction == "mean" else 0.0), (*total, 0.0))
    if reduction == "none" and not target.shape:
        reduction = "sum"  # of one
    whole = reduction == "none"
    return class_plan(
        name,
        "nll_loss",
        log_prob.dtype,
        [
            ("target", target, "positions"),
            ("self", log_prob, "full"),
            ("weight", call.tensor("weight"), "classes"),
        ],
        [(*out, "positions" if whole else "single"), (*total, "single")],
        log_prob.shape,
        class_axis=min(1, log_prob.rank - 1),
        targets=0,
        numbers={"ignore_index": call["ignoreIndex"]},
        free=_FREE,
        reduction="" if whole else str(reduction),
    )


def gradient_plan(call: Call, kernel: str) -> Plan:
    """The plan of a gradient."""
    values, reduction = call.values, call.reduction
    log_prob, target, output = values["self"], values["target"], ("out", values["out"])
    if log_prob.empty:
        return empty_plan(call.operator.name, output)
    mean = reduction == "mean"
    each = reduction == "none" and target.rank > 0
    inputs = [
        ("target", target, "positions"),
        ("gradOutput", values["gradOutput"], "positions" if each else "single"),
        ("weight", values["weight"], "classes"),
    ]
    total_given = mean and call.given("totalWeight")
    if total_given:
        inputs.append(("totalWeight", values["totalWeight"], "single"))
    return class_plan(
        call.operator.name,
        kernel,
        log_prob.dtype,
        inputs,
        [(*output, "full")],
        log_prob.shape,
        class_axis=min(1, log_prob.rank - 1),
        targets=0,
        numbers={
            "ignore_index": call["ignoreIndex"],
            "mean": mean,
            "total_weight_given": total_given,
        },
        free=_FREE,
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
    classes = np.moveaxis(self, min(1, self.ndim - 1), -1)
    indices, factors = target.astype(np.int64), weight.astype(work)
    counted = (indices != ignore_index) & (indices >= 0) & (indices < classes.shape[-1])
    safe = np.where(counted, indices, 0)
    with np.errstate(all="ignore"):
        if classes.shape[-1] == 0:
            losses = target_weight = np.zeros(target.shape, work)
        else:
            target_weight = np.where(counted, factors[safe], work(0))
            picked = np.take_along_axis(classes, safe[..., None], -1)[..., 0].astype(work)
            losses = np.where(counted, -(factors[safe] * picked), work(0))
        total = np.asarray(target_weight.sum(dtype=work))
        if reduction == "none":
            return np.asarray(losses), total
        loss = losses.sum(dtype=work)
        return np.asarray(loss / total if reduction == "mean" else loss), total


# Forward: the loss of a position is -weight[t] times self at its class t, 0 where t is ignored; mean divides their sum by the
# total weight. So only the target's class of each position has a gradient.
def gradient_reference(
    grad_output: np.ndarray[Any, Any],
    self: np.ndarray[Any, Any],
    target: np.ndarray[Any, Any],
    weight: np.ndarray[Any, Any],
    reduction: str = "mean",
    ignore_index: int = -100,
    total_weight: np.ndarray[Any, Any] | None = None,
    work: Any = np.float64,
) -> np.ndarray[Any, Any]:
    """The formula in float64 (or in `work`); an out-of-range target leaves the classes of its position 0."""
    out = np.zeros(self.shape, work)
    classes = np.moveaxis(out, min(1, self.ndim - 1), -1)
    indices, factors = target.astype(np.int64), weight.astype(work).reshape(-1)
    counted = (indices != ignore_index) & (indices >= 0) & (indices < classes.shape[-1])
    picked = indices[counted]
    gradient = np.asarray(grad_output).astype(work)
    gradient = gradient.reshape(target.shape if reduction == "none" else ())
    with np.errstate(all="ignore"):
        if reduction == "mean":
            if total_weight is None:
                total = factors[picked].sum(dtype=work)
            else:
                total = np.asarray(total_weight).astype(work).reshape(())
            gradient = gradient / total
        gradient = np.broadcast_to(gradient, target.shape)
        classes[counted, picked] = -(gradient[counted] * factors[picked])
    return out
