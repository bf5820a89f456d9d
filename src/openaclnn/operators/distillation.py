"""Cross entropy against shares of classes, and divergences between two rows of logits, with their gradients: what mixed labels and distillation need.

As those of `log_probs.py`, these are no operators of the aclnn interface, and in no registry; classes lie along the last axis, numbers of rows are FLOAT.

Cross entropy against shares y, of which smoothing keeps a part and spreads the rest: y' = keep * y + spread, with weights w of classes.

    loss = sum of w y' (-log p), p = softmax(x)            its derivative by x: p * (sum of w y') - w y'

Divergences of a student's p = softmax(x / T) from a teacher's q = softmax(t / T); `excess` is 1 / T - 1.

    beta 0: sum of q (log q - log p)                       p - q
    beta 1: sum of p (log p - log q) = D                   p ((log p - log q) - D)
    else, with m = beta q + (1 - beta) p: beta * (sum of q (log q - log m)) + (1 - beta) * K, K = sum of p (log p - log m)
                                                           (1 - beta) p ((log p - log m) - K)

These derivatives are by x / T. A class of probability 0 has no part in a divergence that it weighs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openaclnn.core.call import Call
from openaclnn.core.checks import INVALID, Violation, value_check
from openaclnn.core.declare import Operator, Sample
from openaclnn.core.dtypes import FLOAT, float_of
from openaclnn.core.interface import Kind, Parameter
from openaclnn.engines.formulas import distillation as formulas
from openaclnn.engines.formulas.rows import RowFormula
from openaclnn.operators.log_probs import EXCESS, log_probabilities, row_operator
from openaclnn.operators.log_probs import RULES as RULES_OF_EXCESS

Array = np.ndarray[Any, Any]

TEXTS = {
    "input": "logits; a student's, where there is a teacher", "share": "share of each class", "weight": "weights of classes",
    "loss": "the loss of each row", "whole": "the sum of what is wanted of its classes", "top": "the largest of each row",
    "rest": "log-sum-exp less the largest", "gradLoss": "gradient of the losses", "out": "gradient of input",
    "teacher": "the teacher's logits", "own": "what the student's probabilities weigh", "teacherTop": "the largest of each teacher's row",
    "teacherRest": "log-sum-exp of that less the largest",
}  # fmt: skip


def reference_soft(
    input: Array, share: Array, weight: Array | None = None, keep: float = 1.0, spread: float = 0.0, work: Any = np.float64
) -> tuple[Array, ...]:  # fmt: skip
    with np.errstate(all="ignore"):
        top, rest, log_p = log_probabilities(input, 0.0, work)
        wanted = _wanted(share, weight, keep, spread, work)
        loss = (wanted * -log_p).sum(axis=-1, dtype=work)
        return loss, wanted.sum(axis=-1, dtype=work), top, rest


def _wanted(share: Array, weight: Array | None, keep: float, spread: float, work: Any) -> Array:
    wanted = share.astype(work) * work(keep) + work(spread)
    return np.asarray(wanted if weight is None else wanted * weight.astype(work))


def reference_soft_grad(
    grad_loss: Array, input: Array, share: Array, loss: Array, whole: Array, top: Array, rest: Array, keep: float = 1.0, spread: float = 0.0,
    weight: Array | None = None, work: Any = np.float64,
) -> Array:  # fmt: skip
    with np.errstate(all="ignore"):
        log_p = (input.astype(work) - top.astype(work)[..., None]) - rest.astype(work)[..., None]
        by_x = np.exp(log_p) * whole.astype(work)[..., None]
        by_x = by_x - _wanted(share, weight, keep, spread, work)
        return np.asarray(by_x * grad_loss.astype(work)[..., None])


def reference_weighted(
    input: Array, share: Array, weight: Array, keep: float = 1.0, spread: float = 0.0, work: Any = np.float64
) -> tuple[Array, ...]:  # fmt: skip
    return reference_soft(input, share, weight, keep, spread, work)


def reference_weighted_grad(
    grad_loss: Array, input: Array, share: Array, weight: Array, loss: Array, whole: Array, top: Array, rest: Array, keep: float = 1.0,
    spread: float = 0.0, work: Any = np.float64,
) -> Array:  # fmt: skip
    return reference_soft_grad(grad_loss, input, share, loss, whole, top, rest, keep, spread, weight, work)  # fmt: skip


def _weighed(log_weights: Array, differences: Array) -> Array:
    return np.where(log_weights == -np.inf, 0, np.exp(log_weights) * differences)


def _mean(log_p: Array, log_q: Array, beta: float, work: Any) -> Array:
    return np.asarray(np.log(work(beta) * np.exp(log_q) + (work(1) - work(beta)) * np.exp(log_p)))


def reference_divergence(
    input: Array, teacher: Array, beta: float = 0.0, excess: float = 0.0, work: Any = np.float64
) -> tuple[Array, ...]:  # fmt: skip
    with np.errstate(all="ignore"):
        top, rest, log_p = log_probabilities(input, excess, work)
        teacher_top, teacher_rest, log_q = log_probabilities(teacher, excess, work)
        if beta == 0:
            own = loss = _weighed(log_q, log_q - log_p).sum(axis=-1, dtype=work)
        elif beta == 1:
            own = loss = _weighed(log_p, log_p - log_q).sum(axis=-1, dtype=work)
        else:
            log_m = _mean(log_p, log_q, beta, work)
            own = _weighed(log_p, log_p - log_m).sum(axis=-1, dtype=work)
            of_teacher = _weighed(log_q, log_q - log_m).sum(axis=-1, dtype=work)
            loss = work(beta) * of_teacher + (work(1) - work(beta)) * own
        return loss, own, top, rest, teacher_top, teacher_rest


def reference_divergence_grad(
    grad_loss: Array, input: Array, teacher: Array, loss: Array, own: Array, top: Array, rest: Array, teacher_top: Array, teacher_rest: Array,
    beta: float = 0.0, excess: float = 0.0, work: Any = np.float64,
) -> Array:  # fmt: skip
    scale = work(1) + work(excess)
    sides = (each.astype(work)[..., None] for each in (own, top, rest, teacher_top, teacher_rest))
    with np.errstate(all="ignore"):
        mine, shift, left, teacher_shift, teacher_left = sides
        log_p = (input.astype(work) * scale - shift) - left
        log_q = (teacher.astype(work) * scale - teacher_shift) - teacher_left
        if beta == 0:
            by_z = np.exp(log_p) - np.exp(log_q)
        elif beta == 1:
            by_z = _weighed(log_p, (log_p - log_q) - mine)
        else:
            by_z = (work(1) - work(beta)) * _weighed(log_p, (log_p - _mean(log_p, log_q, beta, work)) - mine)  # fmt: skip
        return np.asarray(by_z * scale * grad_loss.astype(work)[..., None])


_SMOOTHING = (
    Parameter("keep", Kind.DOUBLE, "what smoothing leaves of a share", default=1.0),
    Parameter("spread", Kind.DOUBLE, "what it gives to each class", default=0.0),
)
_BETA = Parameter("beta", Kind.DOUBLE, "the teacher's share of the mean", default=0.0)


def _beta_in_range(call: Call) -> Violation | None:
    beta = call["beta"]
    return None if 0 <= beta <= 1 else Violation("beta", "a value in [0, 1]", str(beta))


def _told_of_smoothing(call: Call) -> dict[str, Any]:
    keep, spread = float_of(call["keep"]), float_of(call["spread"])
    return {"keep": keep, "spread": spread, "smooths": keep != 1 or spread != 0}


def _told_of_teacher(call: Call) -> dict[str, Any]:
    beta, excess = float_of(call["beta"]), float_of(call["excess"])
    return {
        "beta": beta, "excess": excess, "reverse": beta == 1, "mixed": 0 < beta < 1, "scales": excess != 0,
    }  # fmt: skip


def _soft(name: str, text: str, formula: str, kernel: RowFormula, read: list[str], written: list[str], reference: Any, sample: Sample) -> Operator:  # fmt: skip
    return row_operator(name, text, formula, kernel, read, written, reference, sample, TEXTS, _SMOOTHING, _told_of_smoothing)  # fmt: skip


_LOSS = "y = keep * share + spread{}; log p = (input - top) - rest; whole = sum of y; loss = sum of y * -log p"
_GRAD = "y, p as in the forward; out = gradLoss * (p * whole - y)"
_SIDES, _TEACHERS = ["loss", "whole", "top", "rest"], ["loss", "own", "top", "rest", "teacherTop", "teacherRest"]  # fmt: skip
_LN2 = math.log(2)
_PAIR, _ALIKE = {"input": (FLOAT, [[0, 0]]), "share": (FLOAT, [[1, 0]])}, {"top": (FLOAT, [0]), "rest": (FLOAT, [_LN2])}  # fmt: skip
_WEIGHTS = {"weight": (FLOAT, [3, 1])}

DISTILLATION: tuple[Operator, ...] = (
    _soft(
        "SoftCrossEntropy", "Cross entropy against shares of classes.", _LOSS.format(""), formulas.soft_cross_entropy, ["input", "share"], _SIDES,
        reference_soft, Sample("two classes alike", _PAIR, ([_LN2], [1], [0], [_LN2])),
    ),
    _soft(
        "SoftCrossEntropyGrad", "Gradient of cross entropy against shares of classes.", _GRAD, formulas.soft_cross_entropy_grad,
        ["gradLoss", "input", "share", *_SIDES], ["out"], reference_soft_grad,
        Sample("two classes alike", {"grad_loss": (FLOAT, [2]), **_PAIR, "loss": (FLOAT, [_LN2]), "whole": (FLOAT, [1]), **_ALIKE}, [[-1, 1]]),
    ),
    _soft(
        "WeightedSoftCrossEntropy", "The same with weights of classes.", _LOSS.format(", times weight"), formulas.weighted_soft_cross_entropy,
        ["input", "share", "weight"], _SIDES, reference_weighted, Sample("two classes alike", _PAIR | _WEIGHTS, ([3 * _LN2], [3], [0], [_LN2])),
    ),
    _soft(
        "WeightedSoftCrossEntropyGrad", "Its gradient.", _GRAD, formulas.weighted_soft_cross_entropy_grad,
        ["gradLoss", "input", "share", "weight", *_SIDES], ["out"], reference_weighted_grad,
        Sample(
            "two classes alike", {"grad_loss": (FLOAT, [2]), **_PAIR, **_WEIGHTS, "loss": (FLOAT, [3 * _LN2]), "whole": (FLOAT, [3]), **_ALIKE}, [[-3, 3]]
        ),
    ),
    *(
        row_operator(
            name, text, formula, kernel, read, written, reference, sample, TEXTS, (_BETA, EXCESS), _told_of_teacher, (),
            (*RULES_OF_EXCESS, value_check("7", "beta is in [0, 1]", _beta_in_range, INVALID)),
        )
        for name, text, formula, kernel, read, written, reference, sample in (
            (
                "Divergence", "The divergence of a student's rows from a teacher's.",
                "p = softmax((1 + excess) * input), q = softmax((1 + excess) * teacher), m = beta * q + (1 - beta) * p\n"
                "beta 0: loss = sum of q * log(q / p); beta 1: sum of p * log(p / q) = own; else own = sum of p * log(p / m), "
                "loss = beta * (sum of q * log(q / m)) + (1 - beta) * own",
                formulas.divergence, ["input", "teacher"], _TEACHERS, reference_divergence,
                Sample(
                    "two classes alike, and not", {"input": (FLOAT, [[0, 0]]), "teacher": (FLOAT, [[0, math.log(3)]])},
                    ([0.75 * math.log(1.5) - 0.25 * _LN2], [0.75 * math.log(1.5) - 0.25 * _LN2], [0], [_LN2], [math.log(3)], [math.log(4 / 3)]),
                ),
            ),
            (
                "DivergenceGrad", "Its gradient by the student's logits.",
                "out = gradLoss * (1 + excess) * d, p, q, m as in the forward\n"
                "beta 0: d = p - q; beta 1: p * (log(p / q) - own); else (1 - beta) * p * (log(p / m) - own)",
                formulas.divergence_grad, ["gradLoss", "input", "teacher", *_TEACHERS], ["out"], reference_divergence_grad,
                Sample(
                    "two classes alike, and not",
                    {
                        "grad_loss": (FLOAT, [2]), "input": (FLOAT, [[0, 0]]), "teacher": (FLOAT, [[0, math.log(3)]]), "loss": (FLOAT, [0]),
                        "own": (FLOAT, [0]), **_ALIKE, "teacher_top": (FLOAT, [math.log(3)]), "teacher_rest": (FLOAT, [math.log(4 / 3)]),
                    },
                    [[0.5, -0.5]],
                ),
            ),
        )
    ),
)  # fmt: skip
"""Each with its gradient behind it."""
