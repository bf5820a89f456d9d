"""Cross entropy from logits, with the log-probabilities that its gradient takes; and that gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import NULL, TILING, Check, Violation
from openaclnn.core.declare import Discrepancy, Sample
from openaclnn.core.dtypes import FLOAT, FLOATS, INT32, INT64, float_of
from openaclnn.core.interface import REDUCTIONS, Kind, Parameter
from openaclnn.core.plan import Free
from openaclnn.core.status import Status
from openaclnn.core.tensor import Tensor
from openaclnn.engines.threads import blocks_of, map_in_order
from openaclnn.operators.rows import LOSSES, Array, Rows, counted_targets, declare

OUTPUTS = ("lossOut", "logProbOut", "zlossOut", "lseForZlossOut")
TENSORS = ("input", "target", "weightOptional", *OUTPUTS)
CONST = "const aclTensor *"

TARGET = Parameter("target", Kind.TENSOR, "class of each row, in [0, C), or ignoreIndex", "(N,)", (INT64, INT32), weak=False)  # fmt: skip
WEIGHT = Parameter("weightOptional", Kind.TENSOR, "factor of each class; ones if absent", "(C,)", (FLOAT,), default=None, optional=True, weak=False)  # fmt: skip
REDUCTION = Parameter(
    "reductionOptional", Kind.CSTRING, '"none", "mean" or "sum"; null means "mean"', default="mean", optional=True, choices=REDUCTIONS,
)  # fmt: skip
OF_CLASSES = (
    Parameter("ignoreIndex", Kind.INT64, "target value that counts for nothing", default=-100),
    Parameter("labelSmoothing", Kind.DOUBLE, "in [0, 1]", default=0.0),
)
ZLOSS = Parameter("lseSquareScaleForZloss", Kind.DOUBLE, "factor of the z-loss; 0: none", default=0.0)  # fmt: skip

PARAMETERS = (
    Parameter("input", Kind.TENSOR, "logits", "(N, C)", FLOATS),
    TARGET,
    WEIGHT,
    REDUCTION,
    *OF_CLASSES,
    ZLOSS,
    Parameter("returnZloss", Kind.BOOL, "whether zlossOut and lseForZlossOut are written", default=False),
    Parameter("lossOut", Kind.OUTPUT, "the loss, z-loss included", "(N,) for none, else one element", FLOATS, c_type=CONST),
    Parameter("logProbOut", Kind.OUTPUT, "log-softmax of input", "(N, C)", FLOATS, c_type=CONST),
    Parameter("zlossOut", Kind.OUTPUT, "the z-loss alone", "(N,) for none, else one element", FLOATS, c_type=CONST),
    Parameter("lseForZlossOut", Kind.OUTPUT, "log-sum-exp of each row", "(N,)", FLOATS, c_type=CONST),
)  # fmt: skip


def zloss_scale(call: Call) -> float:
    """The factor of the z-loss: 0 on product families, which accept the argument without effect."""
    return float_of(call["lseSquareScaleForZloss"]) if call.product.is_default else 0.0


def computes_zloss(call: Call) -> bool:
    return zloss_scale(call) != 0


def _target_dtype(call: Call, target: Tensor) -> checks.Fault:
    both = call.product.is_default or call.product.tag == "950"
    allowed = (INT64, INT32) if both else (INT64,)
    expected = f"dtype {checks.names(allowed)} (product {call.product.tag})"
    return None if target.dtype in allowed else (expected, target.dtype.name)


def _smoothing_in_range(call: Call) -> Violation | None:
    smoothing = call["labelSmoothing"]
    if not 0 <= smoothing <= 1:
        return Violation("labelSmoothing", "a value in [0, 1]", str(smoothing))
    if smoothing != 0 and call.product.tag in ("a2", "a3"):
        return Violation("labelSmoothing", f"0 (product {call.product.tag})", str(smoothing))
    return None


def shared_checks(logits: str, tensors: tuple[str, ...]) -> tuple[Check, ...]:
    """The checks that the loss and its gradient share, from the targets' dtype to the rank of the logits."""
    return (
        checks.of_tensors("3", "target has a dtype of the product", ("target",), _target_dtype),
        checks.dtype_one_of("3", "weightOptional", (FLOAT,)),
        checks.format_is_nd("3", *tensors),
        checks.product_has_operator("4", Status.ACLNN_ERR_INNER_FIND_KERNEL_ERROR),
        checks.reduction_known("6", "reductionOptional", TILING),
        checks.value_check("6", "labelSmoothing is in [0, 1]", _smoothing_in_range, TILING),
        checks.rank_is("6", logits, 2, TILING),
    )


def shape_texts(logits: str) -> dict[str, str]:
    """Texts of shapes in messages, by role."""
    return {
        "positions": f"(N,) of {logits}", "classes": f"(C,) of {logits}", LOSSES: "(N,) for none, one element otherwise",
    }  # fmt: skip


def _without_classes(call: Call) -> str:
    shape = call.tensor("input").shape
    return "" if shape[1] else f"shape {shape}"


def _returns_zloss(call: Call) -> bool:
    """Whether the z-loss outputs are written: product families never write them."""
    return bool(call.product.is_default and call["returnZloss"])


# Label smoothing selects other code, and a z-loss reads more operands.
_FREE = (
    Free("ignore_index", integer=True),
    Free("label_smoothing", low=0.0, high=1.0, keeps_zero=True),
    Free("lse_square_scale_for_zloss", keeps_zero=True),
)


def numbers_of(call: Call, zloss_scale: float, **switches: bool) -> dict[str, Any]:
    """The numbers that the kernels of the loss and of its gradient take."""
    return {
        "ignore_index": call["ignoreIndex"], **switches, "weighted": call.has_tensor("weightOptional"),
        "label_smoothing": float_of(call["labelSmoothing"]), "zloss_scale": float_of(zloss_scale),
    }  # fmt: skip


PLAN = Rows(
    "cross_entropy_loss", "input", {"target": "positions", "input": "full", "weightOptional": "classes"},
    {"lossOut": LOSSES, "logProbOut": "full", "zlossOut": LOSSES, "lseForZlossOut": "positions"},
    lambda call: {**numbers_of(call, zloss_scale(call)), "return_zloss": _returns_zloss(call)}, _FREE, False,
    lambda call: () if _returns_zloss(call) else OUTPUTS[2:],
)  # fmt: skip


CHECKS: tuple[Check, ...] = (
    checks.not_null("1", "input", "target", *OUTPUTS),
    checks.result_pointers("2", "executor", "workspaceSize"),
    checks.dtype_in("3", "input"),
    *(checks.same_dtype("3", name, "input") for name in OUTPUTS),
    *shared_checks("input", TENSORS),
    checks.expect("6", "input has a class", "input", "a class at least", _without_classes, TILING),
    *PLAN.shaped("6", ("target", "weightOptional", *OUTPUTS), shape_texts("input"), TILING),
)  # fmt: skip


# The log-sum-exp of a row is its largest value plus log(1 + the sum of the other classes' powers): a probability near 1
# differs from 1 by that sum alone. The loss has the z-loss in it, as its gradient does.
def reference(
    input: Array, target: Array, weight: Array | None = None, reduction: str = "mean", ignore_index: int = -100,
    label_smoothing: float = 0.0, lse_square_scale_for_zloss: float = 0.0, return_zloss: bool = False, work: Any = np.float64,
) -> tuple[Array | None, ...]:  # fmt: skip
    """The document's formulas, step by step, in float64 (or in `work`); an out-of-range target is ignored."""
    rows, classes = input.shape
    factors = np.ones(classes, work) if weight is None else weight.astype(work)
    counted, safe = counted_targets(target, classes, ignore_index)
    smoothing, scale = work(label_smoothing), work(lse_square_scale_for_zloss)
    log_prob, lse, weighted = np.empty((rows, classes), work), *np.zeros((2, rows), work)

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

    def reduced(losses: Array, divisor: Any) -> Array:
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


_ROWS = {"input": (FLOAT, [[5, 0, 3, 3, 7], [9, 3, 5, 2, 4]]), "target": (INT64, [0, 0])}
_LOG_PROB = [
    [-2.1594609351280933, -7.159460935128093, -4.159460935128093, -4.159460935128093, -0.15946093512809342],
    [-0.02804719434752256, -6.028047194347523, -4.028047194347523, -7.028047194347523, -5.028047194347523],
]  # fmt: skip
_WITHOUT_ZLOSS = {"lse_square_scale_for_zloss": 0.0, "return_zloss": False}

declare(
    "CrossEntropyLoss", "Cross entropy of logits, with class weights, label smoothing and z-loss; and the log-probabilities.",
    "lse = log(sum over c of exp(input[n, c])); logProbOut = input - lse; m = 1 unless ignored\n"
    "l = -weight[t] * logProbOut[n, t] * m, t = target[n]; s = -(sum over c of weight[c] * logProbOut[n, c]) * m\n"
    "lossOut = (1 - labelSmoothing) * l + labelSmoothing / C * s + zlossOut; zlossOut = lseSquareScaleForZloss * lse^2 * m\n"
    "mean divides the sum of l and s by the sum of weight[t] * m, that of the z-loss by the sum of m",
    PARAMETERS, CHECKS, PLAN, reference,
    (
        Sample("document", _ROWS, (1.093754064737808, _LOG_PROB)),
        Sample(
            "smoothed, with z-loss", {**_ROWS, "return_zloss": True, "lse_square_scale_for_zloss": 0.5, "label_smoothing": 0.1},
            (34.5746333209856, _LOG_PROB, 33.19087925624785, [7.159460935128093, 9.028047194347522]),
        ),
        Sample(
            "probabilities near 1", {"input": (FLOAT, [[0, -64], [0, 32]]), "target": (INT64, [0, 1]), "reduction": "none"},
            (
                [1.603810890548638e-28, 1.2664165549094015e-14],
                [[-1.603810890548638e-28, -64.0], [-32.00000000000001266, -1.2664165549094015e-14]],
            ),
        ),
    ),
    frozenset({"950", "a3", "a2"}), seen_by_reference=lambda call: {} if call.product.is_default else _WITHOUT_ZLOSS, generated=True,
    module=__name__,
)  # fmt: skip


# The gradient.

SAME_DTYPE = ("logProb", "gradZlossOptional", "lseForZlossOptional", "out")
GRADIENT_TENSORS = ("gradLoss", "logProb", "target", "weightOptional", *SAME_DTYPE[1:])

GRADIENT_PARAMETERS = (
    Parameter("gradLoss", Kind.TENSOR, "gradient of the loss", "(N,) for none, else one element", FLOATS),
    Parameter("logProb", Kind.TENSOR, "log-softmax of the forward's input", "(N, C)", FLOATS),
    TARGET,
    WEIGHT,
    Parameter("gradZlossOptional", Kind.TENSOR, "gradient of the z-loss", "(N,) for none, else one element", FLOATS, default=None, optional=True),
    Parameter("lseForZlossOptional", Kind.TENSOR, "log-sum-exp of each row; needed for z-loss", "(N,)", FLOATS, default=None, optional=True),
    REDUCTION,
    *OF_CLASSES,
    ZLOSS,
    Parameter("out", Kind.OUTPUT, "gradient of the forward's input", "(N, C)", FLOATS, c_type=CONST),
)  # fmt: skip


def _no_lse(call: Call) -> str:
    return "null" if computes_zloss(call) and call["lseForZlossOptional"] is None else ""


def _without_zloss(call: Call) -> tuple[str, ...]:
    return () if computes_zloss(call) else ("lseForZlossOptional", "gradZlossOptional")


def _gradient_numbers(call: Call) -> dict[str, Any]:
    numbers = numbers_of(call, zloss_scale(call), mean=call.reduction == "mean")
    given = computes_zloss(call) and call.has_tensor("gradZlossOptional")
    return {**numbers, "grad_zloss_given": given}


GRADIENT_PLAN = Rows(
    "cross_entropy_loss_grad", "logProb",
    {
        "target": "positions", "gradLoss": LOSSES, "logProb": "full", "weightOptional": "classes", "lseForZlossOptional": "positions",
        "gradZlossOptional": LOSSES,
    },
    {"out": "full"}, _gradient_numbers, _FREE, False, _without_zloss,
)  # fmt: skip


def _for_zloss(*rules: Check) -> tuple[Check, ...]:
    """The checks, for calls that compute a z-loss alone: in others its tensors have no effect."""
    named = (rule._replace(rule=f"for z-loss, {rule.rule}") for rule in rules)
    return checks.only_if(computes_zloss, *named)


GRADIENT_CHECKS: tuple[Check, ...] = (
    checks.not_null("1", "gradLoss", "logProb", "target", "out"),
    checks.result_pointers("2", "executor", "workspaceSize"),
    checks.expect(
        "2", "lseForZlossOptional is given for z-loss", "lseForZlossOptional", "a tensor when lseSquareScaleForZloss is not 0", _no_lse, NULL
    ),
    checks.dtype_in("3", "gradLoss"),
    *(checks.same_dtype("3", name, "gradLoss") for name in SAME_DTYPE),
    *shared_checks("logProb", GRADIENT_TENSORS),
    *GRADIENT_PLAN.shaped("6", ("gradLoss", "target", "weightOptional"), shape_texts("logProb"), TILING),
    *_for_zloss(*GRADIENT_PLAN.shaped("6", ("gradZlossOptional", "lseForZlossOptional"), shape_texts("logProb"), TILING)),
    *GRADIENT_PLAN.shaped("6", ("out",), {}, TILING),
)  # fmt: skip


# Forward, p = exp(logProb), m = 1 where the row is not ignored, W = sum of w[t] * m:
#   loss = (1 - ls) * sum(-w[t] * logProb[t] * m) / W + (ls / C) * sum(-sum_j(w_j * logProb_j) * m) / W
# (W is 1 without mean). With respect to the logits, d logProb_k / d x_j = [j == k] - p_j, so each of the
# two terms gives p_j * (sum of its factors) - its factor at j. The z-loss scale * lse^2 has the gradient
# 2 * scale * lse * p_j, and its mean divides by the number of rows that count, not by their weights.
def reference_gradient(
    grad_loss: Array, log_prob: Array, target: Array, weight: Array | None = None, grad_zloss: Array | None = None,
    lse_for_zloss: Array | None = None, reduction: str = "mean", ignore_index: int = -100, label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0, work: Any = np.float64,
) -> Array:  # fmt: skip
    """The document's formulas, step by step, in float64 (or in `work`); an out-of-range target is ignored."""
    rows, classes = log_prob.shape
    gradient = np.asarray(grad_loss).astype(work)
    if reduction != "none":
        gradient = gradient.reshape(())
    factors = np.ones(classes, work) if weight is None else weight.astype(work)
    counted, indices = counted_targets(target, classes, ignore_index)
    mask = counted.astype(work)
    target_weight = np.zeros(rows, work)
    target_weight[counted] = factors[indices[counted]]
    smoothing = work(label_smoothing)
    zloss_rows = None
    with np.errstate(all="ignore"):
        total = (target_weight * mask).sum(dtype=work) if reduction == "mean" else work(1)
        smooth_loss_grad = gradient / total * smoothing / work(classes)
        loss_out_grad = gradient * (work(1) - smoothing) / total * mask
        nll_grad = loss_out_grad * target_weight
        smooth_rows = np.broadcast_to(smooth_loss_grad * mask, (rows,))
        if lse_square_scale_for_zloss != 0:
            zloss_grad = gradient
            if grad_zloss is not None:
                other = np.asarray(grad_zloss).astype(work)
                zloss_grad = gradient + (other if reduction == "none" else other.reshape(()))
            if reduction == "mean":
                zloss_grad = zloss_grad / mask.sum(dtype=work)
            assert lse_for_zloss is not None
            lse_grad = work(2) * work(lse_square_scale_for_zloss) * lse_for_zloss.astype(work)
            zloss_rows = lse_grad * mask * zloss_grad
    out = np.empty((rows, classes), work)

    def fill(block: slice) -> None:
        with np.errstate(all="ignore"):
            probability = log_prob[block].astype(work)
            np.exp(probability, out=probability)
            first = np.multiply(probability, nll_grad[block, None], out=out[block])
            hit = np.flatnonzero(counted[block])
            # p * nll - nll, of which nothing is left where p is 1 in float64.
            places, nll = (hit, indices[block][hit]), nll_grad[block][hit]
            less_one = np.expm1(log_prob[block][places].astype(work)) * nll
            first[places] = np.where(np.isinf(nll), first[places] - nll, less_one)
            if zloss_rows is not None:
                first += probability * zloss_rows[block, None]
            smooth = smooth_rows[block, None] * factors
            second = np.multiply(
                probability, smooth.sum(axis=1, dtype=work)[:, None], out=probability
            )
            second -= smooth
            first += second

    for _ in map_in_order(fill, blocks_of(rows, classes)):
        pass
    return out


_LOGITS = np.array([[1.0, 2, 3], [1, 1, 1], [0, 5, -5]])
_GRADIENT_LOG_PROB = _LOGITS - np.log(np.exp(_LOGITS).sum(axis=1, keepdims=True))
_GRADIENT_ROWS = {"log_prob": (FLOAT, _GRADIENT_LOG_PROB.tolist()), "target": (INT64, [2, 0, 1])}
_WEIGHT = {"weight": (FLOAT, [1, 2, 0.5])}

declare(
    "CrossEntropyLossGrad", "Gradient of the cross entropy loss, with class weights, label smoothing and z-loss.",
    "nll_i = gradLoss * (1 - ls) / W * m_i * w[t_i];  s_i = gradLoss * ls / (C * W) * m_i\n"
    "out_ij = exp(logProb_ij) * (nll_i + s_i * sum(w)) - s_i * w_j - (nll_i if j == t_i)\n"
    "W = sum(w[t_i] * m_i) for mean, 1 otherwise;  m_i = 0 where t_i is ignoreIndex\n"
    "z-loss adds exp(logProb_ij) * 2 * scale * lse_i * m_i * (gradLoss + gradZloss) / (sum(m) for mean)",
    GRADIENT_PARAMETERS, GRADIENT_CHECKS, GRADIENT_PLAN, reference_gradient,
    (
        Sample(
            "document, as intended",
            {
                "grad_loss": (FLOAT, 0.1), "log_prob": (FLOAT, [[-0.2] * 3] * 2), "target": (INT64, [0, 0]), "weight": (FLOAT, [1, 1, 1]),
            },
            [[-0.009063462346100909, 0.04093653765389909, 0.04093653765389909]] * 2,
        ),
        Sample(
            "mean", {**_GRADIENT_ROWS, "grad_loss": (FLOAT, 2)},
            [
                [0.060020382114, 0.163152314037, -0.223172696150],
                [-0.444444444444, 0.222222222222, 0.222222222222],
                [0.004461699411, -0.004491762105, 0.000030062694],
            ],
        ),
        Sample(
            "mean, weights, class 0 ignored", {**_GRADIENT_ROWS, **_WEIGHT, "grad_loss": (FLOAT, 2), "ignore_index": 0},
            [
                [0.036012229268, 0.097891388422, -0.133903617690],
                [0, 0, 0],
                [0.010708078587, -0.010780229053, 0.000072150466],
            ],
        ),
        Sample(
            "none, weights", {**_GRADIENT_ROWS, **_WEIGHT, "grad_loss": (FLOAT, [1, 2, 3]), "reduction": "none"},
            [
                [0.045015286585, 0.122364235527, -0.167379522113],
                [-1.333333333333, 0.666666666667, 0.666666666667],
                [0.040155294700, -0.040425858947, 0.000270564247],
            ],
        ),
        Sample(
            "sum, weights, smoothing", {**_GRADIENT_ROWS, **_WEIGHT, "grad_loss": (FLOAT, 1), "reduction": "sum", "label_smoothing": 0.1},
            [
                [0.017683991463, 0.072012800264, -0.089696791728],
                [-0.594444444444, 0.272222222222, 0.322222222222],
                [-0.020505947527, 0.037086183948, -0.016580236421],
            ],
        ),
        Sample(
            "mean, weights, smoothing, class 1 ignored", {**_GRADIENT_ROWS, **_WEIGHT, "grad_loss": (FLOAT, 1), "ignore_index": 1, "label_smoothing": 0.1},
            [
                [0.011789327642, 0.048008533510, -0.059797861152],
                [-0.396296296296, 0.181481481481, 0.214814814815],
                [0, 0, 0],
            ],
        ),
    ),
    frozenset({"950", "a3", "a2"}), generated=True, module=__name__,
    seen_by_reference=lambda call: {} if computes_zloss(call) else {"lse_square_scale_for_zloss": 0.0},
    discrepancies=(
        Discrepancy(
            frozenset({"950"}), "ignoreIndex", "counts targets of a negative ignoreIndex, which its document ignores",
            lambda call: call["ignoreIndex"] < 0, ignored_targets=True,
        ),
        Discrepancy(
            frozenset({"a3", "a2"}), "ignoreIndex", "compares targets with ignoreIndex as FLOAT, which is exact up to 2^24 alone",
            lambda call: max(abs(call["ignoreIndex"]), call.tensor("logProb").shape[1]) > 1 << 24,
        ),
    ),
)  # fmt: skip
