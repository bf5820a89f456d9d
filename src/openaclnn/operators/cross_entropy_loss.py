"""aclnnCrossEntropyLoss: cross entropy from logits, with the log-probabilities that its gradient takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import INVALID, TILING, Check, Violation
from openaclnn.core.declare import Operator, OutputSpec, Sample, register
from openaclnn.core.dtypes import FLOAT, FLOATS, INT32, INT64, float_of
from openaclnn.core.interface import REDUCTIONS, Kind, Parameter
from openaclnn.core.plan import Free, Plan, class_plan, empty_plan, filling_plan
from openaclnn.core.status import Status
from openaclnn.engines.threads import blocks_of, map_in_order

OUTPUTS = ("lossOut", "logProbOut", "zlossOut", "lseForZlossOut")
TENSORS = ("input", "target", "weightOptional", *OUTPUTS)
CONST = "const aclTensor *"

TARGET = Parameter(
    "target", Kind.TENSOR, "class of each row, in [0, C), or ignoreIndex", "(N,)", (INT64, INT32), weak=False
)  # fmt: skip
WEIGHT = Parameter(
    "weightOptional", Kind.TENSOR, "factor of each class; ones if absent", "(C,)", (FLOAT,), default=None,
    optional=True, weak=False,
)  # fmt: skip
REDUCTION = Parameter(
    "reductionOptional", Kind.CSTRING, '"none", "mean" or "sum"; null means "mean"', default="mean",
    optional=True, choices=REDUCTIONS,
)  # fmt: skip
OF_CLASSES = (
    Parameter("ignoreIndex", Kind.INT64, "target value that counts for nothing", default=-100),
    Parameter("labelSmoothing", Kind.DOUBLE, "in [0, 1]", default=0.0),
)
ZLOSS = Parameter(
    "lseSquareScaleForZloss", Kind.DOUBLE, "factor of the z-loss; 0: none", default=0.0
)

PARAMETERS = (
    Parameter("input", Kind.TENSOR, "logits", "(N, C)", FLOATS),
    TARGET,
    WEIGHT,
    REDUCTION,
    *OF_CLASSES,
    ZLOSS,
    Parameter(
        "returnZloss", Kind.BOOL, "whether zlossOut and lseForZlossOut are written", default=False
    ),
    Parameter(
        "lossOut", Kind.OUTPUT, "the loss, z-loss included", "(N,) for none, else one element", FLOATS,
        c_type=CONST,
    ),
    Parameter("logProbOut", Kind.OUTPUT, "log-softmax of input", "(N, C)", FLOATS, c_type=CONST),
    Parameter(
        "zlossOut", Kind.OUTPUT, "the z-loss alone", "(N,) for none, else one element", FLOATS, c_type=CONST
    ),
    Parameter(
        "lseForZlossOut", Kind.OUTPUT, "log-sum-exp of each row", "(N,)", FLOATS, c_type=CONST
    ),
)  # fmt: skip


def computes_zloss(call: Call) -> bool:
    """The product families accept the z-loss arguments without effect; we compute what is documented."""
    return call.product.is_default and float_of(call["lseSquareScaleForZloss"]) != 0


def _target_dtype(call: Call) -> Violation | None:
    both = call.product.is_default or call.product.tag == "950"
    allowed = (INT64, INT32) if both else (INT64,)
    dtype = call.tensor("target").dtype
    if dtype not in allowed:
        listed = f"dtype {checks.names(allowed)} (product {call.product.tag})"
        return Violation("target", listed, dtype.name)
    return None


def _smoothing_in_range(call: Call) -> Violation | None:
    smoothing = call["labelSmoothing"]
    if not 0 <= smoothing <= 1:
        return Violation("labelSmoothing", "a value in [0, 1]", str(smoothing))
    if smoothing != 0 and call.product.tag in ("a2", "a3"):
        return Violation("labelSmoothing", f"0 (product {call.product.tag})", str(smoothing))
    return None


def shared_checks(logits: str, tensors: tuple[str, ...]) -> tuple[Check, ...]:
    """The rows from the targets' dtype to the rank of what has the classes, which the loss and its gradient have in common."""
    return (
        checks.value_check("3", "target has a dtype of the product", _target_dtype, INVALID),
        checks.dtype_one_of("3", "weightOptional", (FLOAT,)),
        checks.format_is_nd("3", *tensors),
        checks.product_has_operator("4", Status.ACLNN_ERR_INNER_FIND_KERNEL_ERROR),
        checks.reduction_known("6", "reductionOptional", TILING),
        checks.value_check("6", "labelSmoothing is in [0, 1]", _smoothing_in_range, TILING),
        checks.rank_is("6", logits, 2, TILING),
    )


def weight_shape(logits: str) -> Check:
    """As many weights as classes."""
    return checks.shape_is(
        "6", "weightOptional", lambda call: (call.tensor(logits).shape[1:],), f"(C,) of {logits}", TILING
    )  # fmt: skip


def _has_classes(call: Call) -> Violation | None:
    if call.tensor("input").shape[1] == 0:
        return Violation("input", "a class at least", f"shape {call.tensor('input').shape}")
    return None


def _rows(call: Call) -> tuple[tuple[int, ...], ...]:
    return ((call.tensor("input").shape[0],),)


def _per_loss(call: Call) -> tuple[tuple[int, ...], ...]:
    return _rows(call) if call.reduction == "none" else ((1,), ())


CHECKS: tuple[Check, ...] = (
    checks.not_null("1", "input", "target", *OUTPUTS),
    checks.result_pointers("2", "executor", "workspaceSize"),
    checks.dtype_in("3", "input"),
    *(checks.same_dtype("3", name, "input") for name in OUTPUTS),
    *shared_checks("input", TENSORS),
    checks.value_check("6", "input has a class", _has_classes, TILING),
    checks.shape_is("6", "target", _rows, "(N,) of input", TILING),
    weight_shape("input"),
    checks.shape_is("6", "lossOut", _per_loss, "(N,) for none, one element otherwise", TILING),
    checks.same_shape("6", "logProbOut", "input", TILING),
    checks.shape_is("6", "zlossOut", _per_loss, "(N,) for none, one element otherwise", TILING),
    checks.shape_is("6", "lseForZlossOut", _rows, "(N,) of input", TILING),
)


def _returns_zloss(call: Call) -> bool:
    """The product families leave these outputs alone; we compute what is documented."""
    return bool(call.product.is_default and call["returnZloss"])


def _results(call: Call) -> tuple[OutputSpec, ...]:
    shape, dtype = call.tensor("input").shape, call.tensor("input").dtype
    loss = (shape[:1] if call.reduction == "none" else (), dtype)
    return loss, (shape, dtype), loss, (shape[:1], dtype)


# Smoothing is computed by other code than none is, and a z-loss reads more operands.
FREE = (
    Free("ignore_index", whole=True),
    Free("label_smoothing", low=0.0, high=1.0, keeps_zero=True),
    Free("lse_square_scale_for_zloss", keeps_zero=True),
)


def _plan(call: Call) -> Plan:
    values, reduction, returned = call.values, call.reduction, _returns_zloss(call)
    logits, names = values["input"], OUTPUTS if returned else OUTPUTS[:2]
    whole = reduction == "none"
    per_loss = "positions" if whole else "single"
    roles = (per_loss, "full", per_loss, "positions")
    outputs = [(name, values[name], role) for name, role in zip(OUTPUTS, roles, strict=True)]
    spared = outputs[len(names) :]
    if logits.empty:
        if whole:
            return empty_plan(call.operator.name, ("lossOut", values["lossOut"]), spared)
        number = math.nan if reduction == "mean" else 0.0
        losses = [(name, values[name], number) for name in names[::2]]
        return filling_plan(call.operator.name, *losses, spared=spared)
    inputs = [("target", values["target"], "positions"), ("input", logits, "full")]
    weighted = call.has_tensor("weightOptional")
    if weighted:
        inputs.append(("weightOptional", values["weightOptional"], "classes"))
    zloss = computes_zloss(call)
    return class_plan(
        call.operator.name,
        "cross_entropy_loss",
        logits.dtype,
        inputs,
        outputs[: len(names)],
        logits.shape,
        class_axis=1,
        targets=0,
        numbers={
            "ignore_index": values["ignoreIndex"],
            "weighted": weighted,
            "label_smoothing": float_of(values["labelSmoothing"]),
            "zloss_scale": float_of(values["lseSquareScaleForZloss"]) if zloss else 0.0,
            "return_zloss": returned,
        },
        free=FREE if call.product.is_default else (),
        spared=spared,
        reduction="" if whole else str(reduction),
    )


# The log-sum-exp of a row is its largest value plus log(1 + the sum of the other classes' powers): what others
# have left of the probability is all that tells it from 1. The loss has the z-loss in it, as its gradient does.
def reference(
    input: np.ndarray[Any, Any],
    target: np.ndarray[Any, Any],
    weight: np.ndarray[Any, Any] | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
    return_zloss: bool = False,
    work: Any = np.float64,
) -> tuple[np.ndarray[Any, Any] | None, ...]:
    """The document's formulas, step by step, in float64 (or in `work`); an out-of-range target is ignored."""
    rows, classes = input.shape
    factors = np.ones(classes, work) if weight is None else weight.astype(work)
    indices = target.astype(np.int64)
    counted = (indices != ignore_index) & (indices >= 0) & (indices < classes)
    safe = np.where(counted, indices, 0)
    smoothing, scale = work(label_smoothing), work(lse_square_scale_for_zloss)
    log_prob, lse, weighted = (
        np.empty((rows, classes), work),
        np.empty(rows, work),
        np.zeros(rows, work),
    )

    def fill(block: slice) -> None:
        with np.errstate(all="ignore"):
            x = input[block].astype(work)
            at_top = x.argmax(axis=1)[:, None]
            top = x.max(axis=1, keepdims=True)
            shifted = np.subtract(x, top, out=log_prob[block])
            np.exp(shifted, out=x)
            np.put_along_axis(x, at_top, work(0), 1)
            rest = np.log1p(x.sum(axis=1, keepdims=True, dtype=work))
            shifted -= rest
            lse[block] = (top + rest)[:, 0]
            if smoothing != 0:
                weighted[block] = (factors * shifted).sum(axis=1, dtype=work)

    for _ in map_in_order(fill, blocks_of(rows, classes)):
        pass

    def reduced(losses: np.ndarray[Any, Any], divisor: Any) -> np.ndarray[Any, Any]:
        masked = np.where(counted, losses, work(0))
        if reduction == "none":
            return masked
        total = masked.sum(dtype=work)
        return np.asarray(total / divisor if reduction == "mean" else total)

    with np.errstate(all="ignore"):
        target_weight = np.where(counted, factors[safe], work(0))
        total = target_weight.sum(dtype=work)
        loss = reduced(-(factors[safe] * log_prob[np.arange(rows), safe]), total)
        if smoothing != 0:
            every = reduced(-weighted, total)
            loss = (work(1) - smoothing) * loss + smoothing / work(classes) * every
        squares = scale * lse * lse if scale != 0 else np.zeros_like(lse)
        zloss = reduced(squares, counted.sum(dtype=work))
        if scale != 0:
            loss = loss + zloss
    loss = np.asarray(loss)
    return (loss, log_prob, zloss, lse) if return_zloss else (loss, log_prob, None, None)


_ROWS = {
    "input": (FLOAT, [[5, 0, 3, 3, 7], [9, 3, 5, 2, 4]]),
    "target": (INT64, [0, 0]),
}
_LOG_PROB = [
    [-2.1594609351280933, -7.159460935128093, -4.159460935128093, -4.159460935128093, -0.15946093512809342],
    [-0.02804719434752256, -6.028047194347523, -4.028047194347523, -7.028047194347523, -5.028047194347523],
]  # fmt: skip
_WITHOUT_ZLOSS = {"lse_square_scale_for_zloss": 0.0, "return_zloss": False}
_CONFIDENT = {"input": (FLOAT, [[0, -64], [0, 32]]), "target": (INT64, [0, 1])}

register(
    Operator(
        name="aclnnCrossEntropyLoss",
        summary="Cross entropy of logits, with class weights, label smoothing and z-loss; and the log-probabilities.",
        formula=(
            "lse = log(sum over c of exp(input[n, c])); logProbOut = input - lse; m = 1 unless ignored\n"
            "l = -weight[t] * logProbOut[n, t] * m, t = target[n]; s = -(sum over c of weight[c] * logProbOut[n, c]) * m\n"
            "lossOut = (1 - labelSmoothing) * l + labelSmoothing / C * s + zlossOut; zlossOut = lseSquareScaleForZloss * lse^2 * m\n"
            "mean divides the sum of l and s by the sum of weight[t] * m, that of the z-loss by the sum of m"
        ),
        parameters=PARAMETERS,
        families=frozenset({"950", "a3", "a2"}),
        checks=CHECKS,
        result=_results,
        plan=_plan,
        reference=reference,
        seen_by_reference=lambda call: {} if call.product.is_default else _WITHOUT_ZLOSS,
        generated=True,
        samples=(
            Sample("document", _ROWS, (1.093754064737808, _LOG_PROB)),
            Sample(
                "smoothed, with z-loss",
                {**_ROWS, "return_zloss": True, "lse_square_scale_for_zloss": 0.5, "label_smoothing": 0.1},
                (34.5746333209856, _LOG_PROB, 33.19087925624785, [7.159460935128093, 9.028047194347522]),
            ),
            Sample(
                "probabilities near 1",
                {**_CONFIDENT, "reduction": "none"},
                (
                    [1.603810890548638e-28, 1.2664165549094015e-14],
                    [[-1.603810890548638e-28, -64.0], [-32.00000000000001266, -1.2664165549094015e-14]],
                ),
            ),
        ),
    )
)  # fmt: skip
