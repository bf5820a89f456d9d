"""Cross entropy from logits for training: a loss that keeps two numbers a row for its gradient.

These two are inner operators (`inner.py`), which `openaclnn.torch` trains models with. A row is the classes of one position: of
logits (N, C) there is a row for each n, of (N, C, d1, ...) one for each pixel of each image. Its log-probabilities are (x - top) - rest,
where `top` is the largest logit and `rest` the logarithm of the sum of exp(x - top); `rest` is computed as log1p of what the other
classes add, so that a probability near 1 differs from 1. The loss keeps nothing of the logits' size.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openaclnn.core.call import Call
from openaclnn.core.declare import Sample
from openaclnn.core.dtypes import FLOAT, INT64
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Free
from openaclnn.operators import cross_entropy as interface
from openaclnn.operators.inner import inner_operator
from openaclnn.operators.rows import LOSSES, Array, Indices, counted_targets, widened

OPTIONS = (
    interface.REDUCTION,
    *interface.OF_CLASSES,
    Parameter("zlossScale", Kind.DOUBLE, "factor of the squared log-sum-exp; 0: none", default=0.0),
)


def _kernel(call: Call) -> str:
    """Rows and pixels have two kernels: transposed rows lie in memory as the pixels of one image do, but other calls of rows do not."""
    return "cross_entropy_logits" if call.tensor("input").rank == 2 else "cross_entropy_logits_pixels"  # fmt: skip


def _numbers(call: Call) -> dict[str, Any]:
    return interface.numbers_of(call, call["zlossScale"])


def _rows_of(input: Array) -> Array:
    return np.moveaxis(input, 1, -1).reshape(-1, input.shape[1])


def reference(
    input: Array, target: Array, weight: Array | None = None, reduction: str = "mean", ignore_index: int = -100,
    label_smoothing: float = 0.0, zloss_scale: float = 0.0, work: Any = np.float64,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The loss is that of aclnnCrossEntropyLoss over all rows; an out-of-range target is ignored."""
    rows = _rows_of(input).astype(work)
    top = rows.max(axis=1)
    with np.errstate(invalid="ignore"):
        rows += (top - top)[:, None]  # NaN where a row has NaN or an infinite largest logit
    loss, log_prob, _, _ = interface.reference(
        rows, target.reshape(-1), weight, reduction, ignore_index, label_smoothing, zloss_scale, True, work
    )  # fmt: skip
    assert loss is not None
    assert log_prob is not None
    rest = work(0) - log_prob.max(axis=1)  # the largest logit's log-probability is -rest
    top, shape = rows.max(axis=1), target.shape
    return loss.reshape(shape if reduction == "none" else ()), top.reshape(shape), rest.reshape(shape)  # fmt: skip


# The gradient is that of aclnnCrossEntropyLossGrad, with exp((x - top) - rest) for its probabilities. A row that does
# not count has none, whatever is in it.
@widened
def reference_grad(
    grad_loss: Array, input: Array, top: Array, rest: Array, target: Indices, weight: Array | None = None, reduction: str = "mean",
    ignore_index: int = -100, label_smoothing: float = 0.0, zloss_scale: float = 0.0,
) -> Array:  # fmt: skip
    """The formulas, step by step; an out-of-range target is ignored."""
    x, shift, left = _rows_of(input), top.reshape(-1), rest.reshape(-1)
    every, classes = np.arange(len(x)), x.shape[1]
    counted, safe = counted_targets(target.reshape(-1), classes, ignore_index)
    factors = np.ones(classes, x.dtype) if weight is None else weight
    target_weight, mean = factors[safe], reduction == "mean"
    gradient = np.broadcast_to(grad_loss.reshape(-1), every.shape)
    total = np.where(counted, target_weight, 0).sum() if mean else 1
    number = counted.sum(dtype=x.dtype) if mean else 1
    log_prob = (x - shift[:, None]) - left[:, None]
    nll = gradient * (1 - label_smoothing) / total * target_weight
    smooth = gradient / total * label_smoothing / classes
    squares = 2 * zloss_scale * (shift + left) * gradient / number
    if zloss_scale == 0:
        squares = np.zeros_like(nll)
    probability = np.exp(log_prob)
    out = probability * (nll + squares)[:, None]
    at_target = np.expm1(log_prob[every, safe]) * nll
    out[every, safe] = at_target + probability[every, safe] * squares
    if label_smoothing != 0:
        subtracted = smooth[:, None] * factors
        out = out + (probability * subtracted.sum(axis=1)[:, None] - subtracted)
    out = np.where(counted[:, None], out, 0)
    return np.moveaxis(out.reshape(*target.shape, classes), -1, 1)


CROSS_ENTROPY = inner_operator(
    "CrossEntropyLogits", "Cross entropy of logits, and what its gradient needs of each row.",
    "of each row n: top = max over c of input[n, c]; rest = log(sum over c of exp(input[n, c] - top)); logProb = (input - top) - rest\n"
    "l = -weight[t] * logProb[n, t] * m, t = target[n], m = 1 unless ignored; s = -(sum over c of weight[c] * logProb[n, c]) * m\n"
    "loss = (1 - labelSmoothing) * l + labelSmoothing / C * s + zlossScale * (top + rest)^2 * m\n"
    "mean divides the sum of l and s by the sum of weight[t] * m, that of the squares by the sum of m",
    _kernel, {"input": "full", "target": "positions", "weightOptional": "classes"},
    {"lossOut": LOSSES, "topOut": "positions", "restOut": "positions"}, reference,
    (
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
    OPTIONS, numbers=_numbers, order=("target", "input", "weightOptional"),
)  # fmt: skip


def _alone(*arguments: Any, **options: Any) -> Array:
    return reference(*arguments, **options)[0]


LOSS_ALONE = inner_operator(
    "CrossEntropyAlone", "Cross entropy of logits that need no gradient.", "as that of CrossEntropyLogits", "cross_entropy_alone",
    {"input": "full", "target": "positions", "weightOptional": "classes"}, {"lossOut": LOSSES}, _alone, (), OPTIONS, numbers=_numbers,
    order=("target", "input", "weightOptional"), dtypes={"target": (INT64,)},
)  # fmt: skip

# Label smoothing and a z-loss select other code.
_FREE = (
    Free("ignore_index", integer=True),
    Free("label_smoothing", low=0.0, high=1.0, keeps_zero=True),
    Free("zloss_scale", keeps_zero=True),
)


CROSS_ENTROPY_GRAD = inner_operator(
    "CrossEntropyLogitsGrad", "Gradient of the cross entropy of logits, which may be written over them.",
    "p = exp((input - top) - rest); nll = gradLoss * (1 - labelSmoothing) / W * weight[t]; s = gradLoss * labelSmoothing / (C * W)\n"
    "out = p * (nll + s * sum(weight) + z) - s * weight - (nll at t); 0 in ignored rows\n"
    "z = 2 * zlossScale * (top + rest) * gradLoss / (rows that count for mean); W = the sum of their weight[t] for mean, 1 otherwise",
    "cross_entropy_logits_grad",
    {"gradLoss": LOSSES, "input": "full", "top": "positions", "rest": "positions", "target": "positions", "weightOptional": "classes"},
    {"out": "full"}, reference_grad,
    (
        Sample(
            "mean",
            {
                "grad_loss": (FLOAT, 2), "input": (FLOAT, [[0, 0], [0, -64]]), "top": (FLOAT, [0, 0]),
                "rest": (FLOAT, [math.log(2), 1.603810890548638e-28]), "target": (INT64, [0, 0]),
            },
            [[-0.5, 0.5], [-1.603810890548638e-28, 1.603810890548638e-28]],
        ),
    ),
    OPTIONS, numbers=lambda call: {**_numbers(call), "mean": call.reduction == "mean"}, free=_FREE,
    order=("target", "gradLoss", "input", "top", "rest", "weightOptional"),
)  # fmt: skip
