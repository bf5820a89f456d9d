"""Cross entropy from logits for training: a loss that keeps two numbers a row for its gradient.

These two are no operators of the aclnn interface, and in no registry: what trains models calls them. A row is the classes
of one position: there is one for each n of (N, C), and of (N, C, d1, ...) one for each pixel of the images. Its
log-probabilities are (x - top) - rest, with its largest logit and the logarithm of the sum of exp(x - top); `rest` is
log1p of what the other classes add, so that a probability near 1 is told from 1. Nothing of the logits' size is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import INVALID, Check, Violation
from openaclnn.core.declare import Operator, Sample
from openaclnn.core.dtypes import FLOAT, FLOATS, INT32, INT64
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Free
from openaclnn.operators import cross_entropy as interface
from openaclnn.operators.rows import LOSSES, Array, Rows, counted_targets

INPUT = Parameter("input", Kind.TENSOR, "logits", "(N, C, ...)", FLOATS)
ROW_TARGET = replace(interface.TARGET, shape="(N, ...)")
OPTIONS = (
    interface.WEIGHT,
    interface.REDUCTION,
    *interface.OF_CLASSES,
    Parameter("zlossScale", Kind.DOUBLE, "factor of the squared log-sum-exp; 0: none", default=0.0),
)
PER_LOSS = "(N, ...) for none, else one element"


def _without_classes(call: Call) -> str:
    shape = call.tensor("input").shape
    return f"shape {shape}" if len(shape) < 2 or shape[1] == 0 else ""


def _stray_smoothing(call: Call) -> str:
    return "" if 0 <= call["labelSmoothing"] <= 1 else str(call["labelSmoothing"])


def _gradient_dtype(call: Call) -> Violation | None:
    dtypes = call.tensor("input").dtype, FLOAT
    actual = call.tensor("gradLoss").dtype
    if actual not in dtypes:
        return Violation("gradLoss", " or ".join(dtype.name for dtype in dtypes), actual.name)
    return None


def _rows_shape(call: Call) -> tuple[int, ...]:
    shape = call.tensor("input").shape
    return shape[:1] + shape[2:]


def per_row(call: Call) -> tuple[tuple[int, ...], ...]:
    return (_rows_shape(call),)


def per_class(call: Call) -> tuple[tuple[int, ...], ...]:
    return ((call.tensor("input").shape[1],),)


def per_loss(call: Call) -> tuple[tuple[int, ...], ...]:
    return per_row(call) if call.reduction == "none" else ((), (1,))


def _checks(
    loss: str, needed: tuple[str, ...], dtype_of_loss: Check, result: Check
) -> tuple[Check, ...]:
    """The rules of both, where `loss` is of the loss's shape and `result` is one more."""
    sides = [name for name in ("top", "rest", "topOut", "restOut") if name in needed]
    return (
        checks.not_null("1", *needed),
        checks.dtype_one_of("2", "input", FLOATS),
        dtype_of_loss,
        *(checks.dtype_one_of("2", name, (FLOAT,)) for name in (*sides, "weightOptional")),
        checks.dtype_one_of("2", "target", (INT64, INT32)),
        checks.reduction_known("3", "reductionOptional"),
        checks.expect("3", "labelSmoothing is in [0, 1]", "labelSmoothing", "a value in [0, 1]", _stray_smoothing),
        checks.expect("4", "input has a class", "input", "(N, C, ...) with a class at least", _without_classes),
        checks.shape_is("4", "target", per_row, "(N, ...) of input"),
        checks.shape_is("4", "weightOptional", per_class, "(C,) of input"),
        checks.shape_is("4", loss, per_loss, "(N, ...) for none, one element otherwise"),
        *(checks.shape_is("4", name, per_row, "(N, ...) of input") for name in sides),
        result,
    )  # fmt: skip


def _plan(
    kernel: str, read: Mapping[str, str], written: Mapping[str, str], free: tuple[Free, ...] = (), **switches: Callable[[Call], bool]
) -> Rows:  # fmt: skip
    """Rows have a kernel, and pixels, whose classes lie apart as a rule, another."""

    def numbers(call: Call) -> dict[str, Any]:
        asked = {name: switch(call) for name, switch in switches.items()}
        return interface.numbers_of(call, call["zlossScale"]) | asked

    def kernel_of(call: Call) -> str:
        return kernel if call.tensor("input").rank == 2 else f"{kernel}_pixels"

    read = {"target": "positions", **read, "weightOptional": "classes"}
    return Rows(kernel_of, "input", read, written, numbers, free)


PLAN = _plan(
    "cross_entropy_logits", {"input": "full"}, {"lossOut": LOSSES, "topOut": "positions", "restOut": "positions"}
)  # fmt: skip


def _rows_of(input: Array) -> Array:
    return np.moveaxis(input, 1, -1).reshape(-1, input.shape[1])


def reference(
    input: Array, target: Array, weight: Array | None = None, reduction: str = "mean", ignore_index: int = -100,
    label_smoothing: float = 0.0, zloss_scale: float = 0.0, work: Any = np.float64,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The loss is aclnnCrossEntropyLoss's, of all rows; an out-of-range target is ignored."""
    rows = _rows_of(input).astype(work)
    top = rows.max(axis=1)
    with np.errstate(invalid="ignore"):
        rows += (top - top)[
            :, None
        ]  # one with NaN or an infinite largest logit has no probabilities
    loss, log_prob, _, _ = interface.reference(
        rows, target.reshape(-1), weight, reduction, ignore_index, label_smoothing, zloss_scale, True, work
    )  # fmt: skip
    assert loss is not None
    assert log_prob is not None
    rest = work(0) - log_prob.max(axis=1)  # of the largest logit
    top, shape = rows.max(axis=1), target.shape
    return loss.reshape(shape if reduction == "none" else ()), top.reshape(shape), rest.reshape(shape)  # fmt: skip


# The gradient is that of aclnnCrossEntropyLossGrad, with exp((x - top) - rest) for its probabilities. A row that does
# not count has none, whatever is in it.
def reference_grad(
    grad_loss: Array, input: Array, top: Array, rest: Array, target: Array, weight: Array | None = None, reduction: str = "mean",
    ignore_index: int = -100, label_smoothing: float = 0.0, zloss_scale: float = 0.0, work: Any = np.float64,
) -> Array:  # fmt: skip
    """The formulas, step by step, in float64 (or in `work`); an out-of-range target is ignored."""
    x, smoothing = _rows_of(input).astype(work), work(label_smoothing)
    every, classes = np.arange(len(x)), x.shape[1]
    counted, safe = counted_targets(target.reshape(-1), classes, ignore_index)
    factors = np.ones(classes, work) if weight is None else weight.astype(work)
    target_weight = factors[safe]
    gradient = np.broadcast_to(grad_loss.astype(work).reshape(-1), every.shape)
    shift, left = (side.astype(work).reshape(-1) for side in (top, rest))
    with np.errstate(all="ignore"):
        mean = reduction == "mean"
        total = np.where(counted, target_weight, work(0)).sum(dtype=work) if mean else work(1)
        number = counted.sum(dtype=work) if mean else work(1)
        log_prob = (x - shift[:, None]) - left[:, None]
        nll = gradient * (work(1) - smoothing) / total * target_weight
        smooth = gradient / total * smoothing / work(classes)
        squares = work(2) * work(zloss_scale) * (shift + left) * gradient / number
        if zloss_scale == 0:
            squares = np.zeros_like(nll)
        probability = np.exp(log_prob)
        out = probability * (nll + squares)[:, None]
        at_target = np.expm1(log_prob[every, safe]) * nll
        out[every, safe] = at_target + probability[every, safe] * squares
        if smoothing != 0:
            subtracted = smooth[:, None] * factors
            out = out + (probability * subtracted.sum(axis=1, dtype=work)[:, None] - subtracted)
        out = np.where(counted[:, None], out, work(0))
        return np.moveaxis(out.reshape(*target.shape, classes), -1, 1)


CROSS_ENTROPY = Operator(
    name="CrossEntropyLogits",
    summary="Cross entropy of logits, and what its gradient needs of each row.",
    formula=(
        "of each row n: top = max over c of input[n, c]; rest = log(sum over c of exp(input[n, c] - top)); logProb = (input - top) - rest\n"
        "l = -weight[t] * logProb[n, t] * m, t = target[n], m = 1 unless ignored; s = -(sum over c of weight[c] * logProb[n, c]) * m\n"
        "loss = (1 - labelSmoothing) * l + labelSmoothing / C * s + zlossScale * (top + rest)^2 * m\n"
        "mean divides the sum of l and s by the sum of weight[t] * m, that of the squares by the sum of m"
    ),
    parameters=(
        INPUT, ROW_TARGET, *OPTIONS,
        Parameter("lossOut", Kind.OUTPUT, "the loss", PER_LOSS, FLOATS),
        Parameter("topOut", Kind.OUTPUT, "the largest logit", "(N, ...)", (FLOAT,)),
        Parameter("restOut", Kind.OUTPUT, "log-sum-exp less the largest logit", "(N, ...)", (FLOAT,)),
    ),
    families=frozenset(),
    checks=_checks(
        "lossOut", ("input", "target", "lossOut", "topOut", "restOut"), checks.same_dtype("2", "lossOut", "input"),
        checks.format_is_nd("5", "input"),
    ),
    result=PLAN.results,
    plan=PLAN,
    reference=reference,
    samples=(
        Sample(
            "mean",
            {"input": (FLOAT, [[5, 0, 3, 3, 7], [9, 3, 5, 2, 4]]), "target": (INT64, [0, 0])},
            (1.093754064737808, [7, 9], [0.15946093512809342, 0.02804719434752256]),
        ),
        Sample(
            "probabilities near 1",
            {"input": (FLOAT, [[0, -64], [0, 32]]), "target": (INT64, [0, 1]), "reduction": "none"},
            (
                [1.603810890548638e-28, 1.2664165549094015e-14], [0, 32],
                [1.603810890548638e-28, 1.2664165549094015e-14],
            ),
        ),
    ),
)  # fmt: skip

# Smoothing is computed by other code than none is, and a z-loss too.
_FREE = (
    Free("ignore_index", whole=True),
    Free("label_smoothing", low=0.0, high=1.0, keeps_zero=True),
    Free("zloss_scale", keeps_zero=True),
)


GRAD_PLAN = _plan(
    "cross_entropy_logits_grad", {"gradLoss": LOSSES, "input": "full", "top": "positions", "rest": "positions"}, {"out": "full"}, _FREE,
    mean=lambda call: call.reduction == "mean",
)  # fmt: skip


CROSS_ENTROPY_GRAD = Operator(
    name="CrossEntropyLogitsGrad",
    summary="Gradient of the cross entropy of logits, which may be written over them.",
    formula=(
        "p = exp((input - top) - rest); nll = gradLoss * (1 - labelSmoothing) / W * weight[t]; s = gradLoss * labelSmoothing / (C * W)\n"
        "out = p * (nll + s * sum(weight) + z) - s * weight - (nll at t); 0 in ignored rows\n"
        "z = 2 * zlossScale * (top + rest) * gradLoss / (rows that count for mean); W = the sum of their weight[t] for mean, 1 otherwise"
    ),
    parameters=(
        Parameter("gradLoss", Kind.TENSOR, "gradient of the loss", PER_LOSS, FLOATS),
        INPUT,
        Parameter("top", Kind.TENSOR, "the forward's", "(N, ...)", (FLOAT,), weak=False),
        Parameter("rest", Kind.TENSOR, "the forward's", "(N, ...)", (FLOAT,), weak=False),
        ROW_TARGET, *OPTIONS,
        Parameter("out", Kind.OUTPUT, "gradient of input; may be input itself", "(N, C, ...)", FLOATS),
    ),
    families=frozenset(),
    checks=(
        *_checks(
            "gradLoss", ("gradLoss", "input", "top", "rest", "target", "out"),
            checks.value_check("2", "gradLoss is of the dtype of input, or FLOAT", _gradient_dtype, INVALID),
            checks.same_dtype("5", "out", "input"),
        ),
        checks.same_shape("5", "out", "input"),
    ),
    result=GRAD_PLAN.results,
    plan=GRAD_PLAN,
    reference=reference_grad,
    samples=(
        Sample(
            "mean",
            {
                "grad_loss": (FLOAT, 2), "input": (FLOAT, [[0, 0], [0, -64]]), "top": (FLOAT, [0, 0]),
                "rest": (FLOAT, [math.log(2), 1.603810890548638e-28]), "target": (INT64, [0, 0]),
            },
            [[-0.5, 0.5], [-1.603810890548638e-28, 1.603810890548638e-28]],
        ),
    ),
)  # fmt: skip
