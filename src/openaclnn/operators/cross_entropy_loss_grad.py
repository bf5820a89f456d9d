"""aclnnCrossEntropyLossGrad: the gradient of cross entropy from log-probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import NULL, TILING, Check, Violation
from openaclnn.core.declare import Discrepancy, Operator, Sample, like, register
from openaclnn.core.dtypes import FLOAT, FLOATS, INT64, float_of
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Plan, class_plan, empty_plan
from openaclnn.engines.threads import blocks_of, map_in_order
from openaclnn.operators import cross_entropy_loss as forward

SAME_DTYPE = ("logProb", "gradZlossOptional", "lseForZlossOptional", "out")
TENSORS = ("gradLoss", "logProb", "target", "weightOptional", *SAME_DTYPE[1:])

PARAMETERS = (
    Parameter(
        "gradLoss", Kind.TENSOR, "gradient of the loss", "(N,) for none, else one element", FLOATS
    ),
    Parameter("logProb", Kind.TENSOR, "log-softmax of the forward's input", "(N, C)", FLOATS),
    forward.TARGET,
    forward.WEIGHT,
    Parameter(
        "gradZlossOptional", Kind.TENSOR, "gradient of the z-loss", "(N,) for none, else one element", FLOATS,
        default=None, optional=True,
    ),
    Parameter(
        "lseForZlossOptional", Kind.TENSOR, "log-sum-exp of each row; needed for z-loss", "(N,)", FLOATS,
        default=None, optional=True,
    ),
    forward.REDUCTION,
    *forward.OF_CLASSES,
    forward.ZLOSS,
    Parameter(
        "out", Kind.OUTPUT, "gradient of the forward's input", "(N, C)", FLOATS, c_type=forward.CONST
    ),
)  # fmt: skip


def _zloss_has_lse(call: Call) -> Violation | None:
    if forward.computes_zloss(call) and call["lseForZlossOptional"] is None:
        expected = "a tensor when lseSquareScaleForZloss is not 0"
        return Violation("lseForZlossOptional", expected, "null")
    return None


def _rows(call: Call) -> tuple[tuple[int, ...], ...]:
    return ((call.tensor("logProb").shape[0],),)


def _per_loss(call: Call) -> tuple[tuple[int, ...], ...]:
    return _rows(call) if call.reduction == "none" else ((), (1,))


def _for_zloss(check: Check) -> Check:
    """A rule that holds where a z-loss is computed: elsewhere its tensors have no effect, whatever they are like."""

    def broken_by(call: Call) -> Violation | None:
        return check.broken_by(call) if forward.computes_zloss(call) else None

    return check._replace(rule=f"for z-loss, {check.rule}", broken_by=broken_by)


CHECKS: tuple[Check, ...] = (
    checks.not_null("1", "gradLoss", "logProb", "target", "out"),
    checks.result_pointers("2", "executor", "workspaceSize"),
    checks.value_check("2", "lseForZlossOptional is given for z-loss", _zloss_has_lse, NULL),
    checks.dtype_in("3", "gradLoss"),
    *(checks.same_dtype("3", name, "gradLoss") for name in SAME_DTYPE),
    *forward.shared_checks("logProb", TENSORS),
    checks.shape_is("6", "gradLoss", _per_loss, "(N,) for none, one element otherwise", TILING),
    checks.shape_is("6", "target", _rows, "(N,) of logProb", TILING),
    forward.weight_shape("logProb"),
    _for_zloss(
        checks.shape_is(
            "6", "gradZlossOptional", _per_loss, "(N,) for none, one element otherwise", TILING
        )
    ),
    _for_zloss(checks.shape_is("6", "lseForZlossOptional", _rows, "(N,) of logProb", TILING)),
    checks.same_shape("6", "out", "logProb", TILING),
)


def _plan(call: Call) -> Plan:
    values, reduction = call.values, call.reduction
    log_prob, output = values["logProb"], ("out", values["out"])
    if log_prob.empty:
        return empty_plan(call.operator.name, output)
    per_loss = "positions" if reduction == "none" else "single"
    zloss = forward.computes_zloss(call)
    weighted = values["weightOptional"] is not None
    grad_zloss = zloss and values["gradZlossOptional"] is not None
    inputs = [
        ("target", values["target"], "positions"),
        ("gradLoss", values["gradLoss"], per_loss),
        ("logProb", log_prob, "full"),
    ]
    if weighted:
        inputs.append(("weightOptional", values["weightOptional"], "classes"))
    if zloss:
        inputs.append(("lseForZlossOptional", values["lseForZlossOptional"], "positions"))
    if grad_zloss:
        inputs.append(("gradZlossOptional", values["gradZlossOptional"], per_loss))
    return class_plan(
        call.operator.name,
        "cross_entropy_loss_grad",
        log_prob.dtype,
        inputs,
        [(*output, "full")],
        output[1].shape,
        class_axis=1,
        targets=0,
        numbers={
            "ignore_index": call["ignoreIndex"],
            "mean": reduction == "mean",
            "weighted": weighted,
            "label_smoothing": float_of(call["labelSmoothing"]),
            "zloss_scale": float_of(call["lseSquareScaleForZloss"]) if zloss else 0.0,
            "grad_zloss_given": grad_zloss,
        },
        # Product families have rules of their own for smoothing, and no z-loss.
        free=forward.FREE if call.product.is_default else (),
    )


# Forward, p = exp(logProb), m = 1 where the row is not ignored, W = sum of w[t] * m:
#   loss = (1 - ls) * sum(-w[t] * logProb[t] * m) / W + (ls / C) * sum(-sum_j(w_j * logProb_j) * m) / W
# (W is 1 without mean). With respect to the logits, d logProb_k / d x_j = [j == k] - p_j, so each of the
# two terms gives p_j * (sum of its factors) - its factor at j. The z-loss scale * lse^2 has the gradient
# 2 * scale * lse * p_j, and its mean divides by the number of rows that count, not by their weights.
def reference(
    grad_loss: np.ndarray[Any, Any],
    log_prob: np.ndarray[Any, Any],
    target: np.ndarray[Any, Any],
    weight: np.ndarray[Any, Any] | None = None,
    grad_zloss: np.ndarray[Any, Any] | None = None,
    lse_for_zloss: np.ndarray[Any, Any] | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    lse_square_scale_for_zloss: float = 0.0,
    work: Any = np.float64,
) -> np.ndarray[Any, Any]:
    """The document's formulas, step by step, in float64 (or in `work`); an out-of-range target is ignored."""
    rows, classes = log_prob.shape
    gradient = np.asarray(grad_loss).astype(work)
    if reduction != "none":
        gradient = gradient.reshape(())
    factors = np.ones(classes, work) if weight is None else weight.astype(work)
    indices = target.astype(np.int64)
    counted = (indices != ignore_index) & (indices >= 0) & (indices < classes)
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
_LOG_PROB = _LOGITS - np.log(np.exp(_LOGITS).sum(axis=1, keepdims=True))
_ROWS = {"log_prob": (FLOAT, _LOG_PROB.tolist()), "target": (INT64, [2, 0, 1])}
_WEIGHT = {"weight": (FLOAT, [1, 2, 0.5])}

register(
    Operator(
        name="aclnnCrossEntropyLossGrad",
        summary="Gradient of the cross entropy loss, with class weights, label smoothing and z-loss.",
        formula=(
            "nll_i = gradLoss * (1 - ls) / W * m_i * w[t_i];  s_i = gradLoss * ls / (C * W) * m_i\n"
            "out_ij = exp(logProb_ij) * (nll_i + s_i * sum(w)) - s_i * w_j - (nll_i if j == t_i)\n"
            "W = sum(w[t_i] * m_i) for mean, 1 otherwise;  m_i = 0 where t_i is ignoreIndex\n"
            "z-loss adds exp(logProb_ij) * 2 * scale * lse_i * m_i * (gradLoss + gradZloss) / (sum(m) for mean)"
        ),
        parameters=PARAMETERS,
        families=frozenset({"950", "a3", "a2"}),
        checks=CHECKS,
        result=like("logProb"),
        plan=_plan,
        reference=reference,
        seen_by_reference=lambda call: (
            {} if forward.computes_zloss(call) else {"lse_square_scale_for_zloss": 0.0}
        ),
        generated=True,
        discrepancies=(
            Discrepancy(
                frozenset({"950"}),
                "ignoreIndex",
                "counts targets of a negative ignoreIndex, which its document ignores",
                lambda call: call["ignoreIndex"] < 0,
                ignored_targets=True,
            ),
            Discrepancy(
                frozenset({"a3", "a2"}),
                "ignoreIndex",
                "compares targets with ignoreIndex as FLOAT, which is exact up to 2^24 alone",
                lambda call: (
                    max(abs(call["ignoreIndex"]), call.tensor("logProb").shape[1]) > 1 << 24
                ),
            ),
        ),
        samples=(
            Sample(
                "document, as intended",
                {
                    "grad_loss": (FLOAT, 0.1),
                    "log_prob": (FLOAT, [[-0.2] * 3] * 2),
                    "target": (INT64, [0, 0]),
                    "weight": (FLOAT, [1, 1, 1]),
                },
                [[-0.009063462346100909, 0.04093653765389909, 0.04093653765389909]] * 2,
            ),
            Sample(
                "mean",
                {**_ROWS, "grad_loss": (FLOAT, 2)},
                [
                    [0.060020382114, 0.163152314037, -0.223172696150],
                    [-0.444444444444, 0.222222222222, 0.222222222222],
                    [0.004461699411, -0.004491762105, 0.000030062694],
                ],
            ),
            Sample(
                "mean, weights, class 0 ignored",
                {**_ROWS, **_WEIGHT, "grad_loss": (FLOAT, 2), "ignore_index": 0},
                [
                    [0.036012229268, 0.097891388422, -0.133903617690],
                    [0, 0, 0],
                    [0.010708078587, -0.010780229053, 0.000072150466],
                ],
            ),
            Sample(
                "none, weights",
                {**_ROWS, **_WEIGHT, "grad_loss": (FLOAT, [1, 2, 3]), "reduction": "none"},
                [
                    [0.045015286585, 0.122364235527, -0.167379522113],
                    [-1.333333333333, 0.666666666667, 0.666666666667],
                    [0.040155294700, -0.040425858947, 0.000270564247],
                ],
            ),
            Sample(
                "sum, weights, smoothing",
                {
                    **_ROWS,
                    **_WEIGHT,
                    "grad_loss": (FLOAT, 1),
                    "reduction": "sum",
                    "label_smoothing": 0.1,
                },
                [
                    [0.017683991463, 0.072012800264, -0.089696791728],
                    [-0.594444444444, 0.272222222222, 0.322222222222],
                    [-0.020505947527, 0.037086183948, -0.016580236421],
                ],
            ),
            Sample(
                "mean, weights, smoothing, class 1 ignored",
                {
                    **_ROWS,
                    **_WEIGHT,
                    "grad_loss": (FLOAT, 1),
                    "ignore_index": 1,
                    "label_smoothing": 0.1,
                },
                [
                    [0.011789327642, 0.048008533510, -0.059797861152],
                    [-0.396296296296, 0.181481481481, 0.214814814815],
                    [0, 0, 0],
                ],
            ),
        ),
    )
)
