"""Log-probabilities of chosen classes and entropies of rows of logits, with their gradients, for policy gradients and preference losses.

These are inner operators (`inner.py`). Classes lie along the last axis. Results are FLOAT whatever the logits' dtype, since callers
exponentiate their differences to ratios of probabilities. Of logits x and a temperature T, z = x / T; `excess` is 1 / T - 1.

    top = max z, rest = log(sum of exp(z - top)), log p = (z - top) - rest      log p[target] has the derivative ([c = target] - p[c]) / T
    H = -(sum of p log p) = rest - (sum of exp(z - top) (z - top)) / exp(rest)  H has the derivative -p[c] (log p[c] + H) / T

A class of probability 0 has no part in H. A row whose target is ignored has log-probability, entropy and gradients 0, whatever is in it; one with
NaN or an infinite largest logit has no probabilities.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Operator, Sample
from openaclnn.core.dtypes import FLOAT, INT64, float_of
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Free
from openaclnn.engines.formulas import log_probs as formulas
from openaclnn.engines.formulas.rows import RowFormula
from openaclnn.operators.inner import inner_operator
from openaclnn.operators.rows import Array, Indices, counted_targets, widened


def row_operator(
    name: str, summary: str, formula: str, kernel: RowFormula, read: Sequence[str], written: Sequence[str], reference: Callable[..., Any],
    sample: Sample, numbers: Sequence[Parameter] = (), values: Callable[[Call], dict[str, Any]] = lambda call: {},
    free: Sequence[Free] = (), rules: Sequence[checks.Check] = (),
) -> Operator:  # fmt: skip
    """An inner operator of rows along the last axis, whose inputs have the roles of its row formula's operands."""
    results = {"out": "full"} if written == ["out"] else dict.fromkeys([f"{each}Out" for each in written], "positions")  # fmt: skip
    return inner_operator(
        name, summary, formula, kernel.name, dict(zip(read, kernel.roles, strict=True)), results, reference, (sample,), numbers, numbers=values,
        free=free, class_axis=-1, compute=FLOAT, rules=(checks.rank_at_most("5", "input"), *rules),
    )  # fmt: skip


# Of probabilities, everything is computed as it stands above.


def _log_probabilities(input: Array, excess: float) -> tuple[Array, Array, Array]:
    z = input * (1 + excess)
    top = z.max(axis=-1)
    rest = np.log(np.exp(z - top[..., None]).sum(axis=-1))
    return top, rest, (z - top[..., None]) - rest[..., None]


def _chosen(log_p: Array, target: Array, ignored: int) -> tuple[Array, Array, Array]:
    """Which rows count, their classes, and the log-probabilities of these."""
    counted, safe = counted_targets(target, log_p.shape[-1], ignored)
    return counted, safe, np.take_along_axis(log_p, safe[..., None], -1)[..., 0]


def _products(log_p: Array) -> Array:
    """p log p."""
    return np.where(log_p == -np.inf, 0, np.exp(log_p) * log_p)


@widened
def _forward(
    input: Array, target: Indices | None = None, ignore_index: int = -100, excess: float = 0.0, entropy: bool = True
) -> tuple[Array, ...]:  # fmt: skip
    top, rest, log_p = _log_probabilities(input, excess)
    results = []
    counted: Any = True
    if target is not None:
        counted, _, log_prob = _chosen(log_p, target, ignore_index)
        results.append(np.where(counted, log_prob, 0))
    if entropy:
        results.append(np.where(counted, -_products(log_p).sum(axis=-1), 0))
    return *results, top, rest


@widened
def _backward(
    input: Array, top: Array, rest: Array, target: Indices | None = None, grad_log_prob: Array | None = None, grad_entropy: Array | None = None,
    log_prob: Array | None = None, entropy: Array | None = None, ignore_index: int = -100, excess: float = 0.0,
) -> Array:  # fmt: skip
    z = input * (1 + excess)
    log_p = (z - top[..., None]) - rest[..., None]
    p, out = np.exp(log_p), np.zeros_like(z)
    counted: Any = np.True_
    if target is not None and grad_log_prob is not None:
        counted, safe, chosen = _chosen(log_p, target, ignore_index)
        one_less_p = -p
        np.put_along_axis(one_less_p, safe[..., None], -np.expm1(chosen)[..., None], -1)
        out = out + grad_log_prob[..., None] * one_less_p
    if grad_entropy is not None and entropy is not None:
        out = out - grad_entropy[..., None] * (_products(log_p) + p * entropy[..., None])
    return np.where(np.asarray(counted)[..., None], out * (1 + excess), 0)


_IGNORED = Parameter("ignoreIndex", Kind.INT64, "the class that counts for nothing", default=-100)
EXCESS = Parameter("excess", Kind.DOUBLE, "one over the temperature, less 1", default=0.0)
RULES = (
    checks.expect("6", "excess is above -1", "excess", "a number above -1", lambda call: "" if -1 < call["excess"] < math.inf else str(call["excess"])),
)  # fmt: skip
_FREE_EXCESS = Free("excess", low=float(np.nextafter(np.float32(-1), np.float32(0))), high=float(np.finfo(np.float32).max), keeps_zero=True)  # fmt: skip


def _operator(
    name: str, summary: str, formula: str, kernel: RowFormula, read: Sequence[str], written: list[str], reference: Any, sample: Sample
) -> Operator:  # fmt: skip
    targeted = "target" in read

    def values(call: Call) -> dict[str, Any]:
        excess = float_of(call["excess"])
        numbers = {"ignore_index": call["ignoreIndex"]} if targeted else {}
        return {**numbers, "excess": excess, "scales": excess != 0}

    numbers = (_IGNORED, EXCESS) if targeted else (EXCESS,)
    free = (Free("ignore_index", integer=True), _FREE_EXCESS) if targeted else (_FREE_EXCESS,)
    return row_operator(name, summary, formula, kernel, read, written, reference, sample, numbers, values, free, RULES)  # fmt: skip


_PROBABILITIES = "z = (1 + excess) * input, top = max z, rest = log(sum of exp(z - top)), log p = (z - top) - rest, along the last axis\n"
_LOG_PROB = "logProb = log p[target], 0 where the target is ignored"
_ENTROPY = "entropy = -(sum of p * log p)"
_BY_LOG_PROB, _BY_ENTROPY = (
    "gradLogProb * ([c = target] - p)",
    "gradEntropy * p * (log p + entropy)",
)
_ROW, _LN2 = (FLOAT, [[0, 0], [2, 2]]), math.log(2)
_TARGETS = (INT64, [0, -100])

LOG_PROBS: tuple[Operator, ...] = (
    _operator(
        "SelectedLogProbs", "Log-probabilities of chosen classes.", _PROBABILITIES + _LOG_PROB, formulas.selected_log_probs,
        ["input", "target"], ["logProb", "top", "rest"], functools.partial(_forward, entropy=False),
        Sample("two classes alike", {"input": _ROW, "target": _TARGETS}, ([-_LN2, 0], [0, 2], [_LN2, _LN2])),
    ),
    _operator(
        "SelectedLogProbsGrad", "Gradient of log-probabilities of chosen classes.", f"{_PROBABILITIES}out = (1 + excess) * {_BY_LOG_PROB}, 0 in ignored rows",
        formulas.selected_log_probs_grad, ["gradLogProb", "input", "target", "logProb", "top", "rest"], ["out"], _backward,
        Sample(
            "two classes alike",
            {"grad_log_prob": (FLOAT, [2, 2]), "input": _ROW, "target": _TARGETS, "log_prob": (FLOAT, [-_LN2, 0]), "top": (FLOAT, [0, 2]), "rest": (FLOAT, [_LN2, _LN2])},
            [[1, -1], [0, 0]],
        ),
    ),
    _operator(
        "RowEntropy", "Entropies of rows of logits.", _PROBABILITIES + _ENTROPY, formulas.row_entropy,
        ["input"], ["entropy", "top", "rest"], _forward,
        Sample("two classes alike", {"input": _ROW}, ([_LN2, _LN2], [0, 2], [_LN2, _LN2])),
    ),
    _operator(
        "RowEntropyGrad", "Gradient of entropies.", f"{_PROBABILITIES}out = -(1 + excess) * {_BY_ENTROPY}", formulas.row_entropy_grad,
        ["gradEntropy", "input", "entropy", "top", "rest"], ["out"], _backward,
        Sample(
            "with another entropy",
            {"grad_entropy": (FLOAT, [1, 2]), "input": _ROW, "entropy": (FLOAT, [0, 0]), "top": (FLOAT, [0, 2]), "rest": (FLOAT, [_LN2, _LN2])},
            [[_LN2 / 2, _LN2 / 2], [_LN2, _LN2]],
        ),
    ),
    _operator(
        "LogProbsAndEntropy", "Log-probabilities of chosen classes, and entropies.", f"{_PROBABILITIES}{_LOG_PROB}\n{_ENTROPY}, 0 there too",
        formulas.log_probs_and_entropy, ["input", "target"], ["logProb", "entropy", "top", "rest"], _forward,
        Sample("two classes alike", {"input": _ROW, "target": _TARGETS}, ([-_LN2, 0], [_LN2, 0], [0, 2], [_LN2, _LN2])),
    ),
    _operator(
        "LogProbsAndEntropyGrad", "Gradient of log-probabilities and entropies.",
        f"{_PROBABILITIES}out = (1 + excess) * ({_BY_LOG_PROB} - {_BY_ENTROPY}), 0 in ignored rows",
        formulas.log_probs_and_entropy_grad, ["gradLogProb", "gradEntropy", "input", "target", "logProb", "entropy", "top", "rest"], ["out"],
        _backward,
        Sample(
            "with another entropy",
            {
                "grad_log_prob": (FLOAT, [2, 2]), "grad_entropy": (FLOAT, [1, 1]), "input": _ROW, "target": _TARGETS, "log_prob": (FLOAT, [-_LN2, 0]),
                "entropy": (FLOAT, [0, 0]), "top": (FLOAT, [0, 2]), "rest": (FLOAT, [_LN2, _LN2]),
            },
            [[1 + _LN2 / 2, _LN2 / 2 - 1], [0, 0]],
        ),
    ),
)  # fmt: skip
"""Each with its gradient behind it."""


# Cross entropy against shares of classes, and divergences between two rows of logits, with their gradients: what mixed labels and distillation need.
#
# Cross entropy against shares y, of which smoothing keeps a part and spreads the rest: y' = keep * y + spread, with weights w of classes.
#
#     loss = sum of w y' (-log p), p = softmax(x)            its derivative by x: p * (sum of w y') - w y'
#
# Divergences of a student's p = softmax(x / T) from a teacher's q = softmax(t / T); `excess` is 1 / T - 1.
#
#     beta 0: sum of q (log q - log p)                       p - q
#     beta 1: sum of p (log p - log q) = D                   p ((log p - log q) - D)
#     else, with m = beta q + (1 - beta) p: beta * (sum of q (log q - log m)) + (1 - beta) * K, K = sum of p (log p - log m)
#                                                            (1 - beta) p ((log p - log m) - K)
#
# These derivatives are by x / T. A class of probability 0 has no part in a divergence that it weighs.


@widened
def _soft_forward(
    input: Array, share: Array, weight: Array | None = None, keep: float = 1.0, spread: float = 0.0
) -> tuple[Array, ...]:  # fmt: skip
    top, rest, log_p = _log_probabilities(input, 0.0)
    wanted = _wanted(share, weight, keep, spread)
    return (wanted * -log_p).sum(axis=-1), wanted.sum(axis=-1), top, rest


def _wanted(share: Array, weight: Array | None, keep: float, spread: float) -> Array:
    wanted = share * keep + spread
    return wanted if weight is None else wanted * weight


@widened
def _soft_backward(
    grad_loss: Array, input: Array, share: Array, loss: Array, whole: Array, top: Array, rest: Array, weight: Array | None = None,
    keep: float = 1.0, spread: float = 0.0,
) -> Array:  # fmt: skip
    log_p = (input - top[..., None]) - rest[..., None]
    by_x = np.exp(log_p) * whole[..., None] - _wanted(share, weight, keep, spread)
    return np.asarray(by_x * grad_loss[..., None])


def _weighed(log_weights: Array, differences: Array) -> Array:
    return np.where(log_weights == -np.inf, 0, np.exp(log_weights) * differences)


def _mean(log_p: Array, log_q: Array, beta: float) -> Array:
    return np.asarray(np.log(beta * np.exp(log_q) + (1 - beta) * np.exp(log_p)))


@widened
def reference_divergence(
    input: Array, teacher: Array, beta: float = 0.0, excess: float = 0.0
) -> tuple[Array, ...]:
    top, rest, log_p = _log_probabilities(input, excess)
    teacher_top, teacher_rest, log_q = _log_probabilities(teacher, excess)
    if beta == 0:
        own = loss = _weighed(log_q, log_q - log_p).sum(axis=-1)
    elif beta == 1:
        own = loss = _weighed(log_p, log_p - log_q).sum(axis=-1)
    else:
        log_m = _mean(log_p, log_q, beta)
        own = _weighed(log_p, log_p - log_m).sum(axis=-1)
        loss = beta * _weighed(log_q, log_q - log_m).sum(axis=-1) + (1 - beta) * own
    return loss, own, top, rest, teacher_top, teacher_rest


@widened
def reference_divergence_grad(
    grad_loss: Array, input: Array, teacher: Array, loss: Array, own: Array, top: Array, rest: Array, teacher_top: Array, teacher_rest: Array,
    beta: float = 0.0, excess: float = 0.0,
) -> Array:  # fmt: skip
    scale, mine = 1 + excess, own[..., None]
    log_p = (input * scale - top[..., None]) - rest[..., None]
    log_q = (teacher * scale - teacher_top[..., None]) - teacher_rest[..., None]
    if beta == 0:
        by_z = np.exp(log_p) - np.exp(log_q)
    elif beta == 1:
        by_z = _weighed(log_p, (log_p - log_q) - mine)
    else:
        by_z = (1 - beta) * _weighed(log_p, (log_p - _mean(log_p, log_q, beta)) - mine)
    return np.asarray(by_z * scale * grad_loss[..., None])


_SMOOTHING = (
    Parameter("keep", Kind.DOUBLE, "what smoothing leaves of a share", default=1.0),
    Parameter("spread", Kind.DOUBLE, "what it gives to each class", default=0.0),
)
_BETA = Parameter("beta", Kind.DOUBLE, "the teacher's share of the mean", default=0.0)


def _smoothing_numbers(call: Call) -> dict[str, Any]:
    keep, spread = float_of(call["keep"]), float_of(call["spread"])
    return {"keep": keep, "spread": spread, "smooths": keep != 1 or spread != 0}


def _teacher_numbers(call: Call) -> dict[str, Any]:
    beta, excess = float_of(call["beta"]), float_of(call["excess"])
    return {
        "beta": beta, "excess": excess, "reverse": beta == 1, "mixed": 0 < beta < 1, "scales": excess != 0,
    }  # fmt: skip


def _soft(name: str, text: str, formula: str, kernel: RowFormula, read: list[str], written: list[str], reference: Any, sample: Sample) -> Operator:  # fmt: skip
    return row_operator(name, text, formula, kernel, read, written, reference, sample, _SMOOTHING, _smoothing_numbers)  # fmt: skip


_LOSS = "y = keep * share + spread{}; log p = (input - top) - rest; whole = sum of y; loss = sum of y * -log p"
_GRAD = "y, p as in the forward; out = gradLoss * (p * whole - y)"
_SIDES, _TEACHERS = ["loss", "whole", "top", "rest"], ["loss", "own", "top", "rest", "teacherTop", "teacherRest"]  # fmt: skip
_PAIR, _ALIKE = {"input": (FLOAT, [[0, 0]]), "share": (FLOAT, [[1, 0]])}, {"top": (FLOAT, [0]), "rest": (FLOAT, [_LN2])}  # fmt: skip
_WEIGHTS = {"weight": (FLOAT, [3, 1])}

DISTILLATION: tuple[Operator, ...] = (
    _soft(
        "SoftCrossEntropy", "Cross entropy against shares of classes.", _LOSS.format(""), formulas.soft_cross_entropy, ["input", "share"], _SIDES,
        _soft_forward, Sample("two classes alike", _PAIR, ([_LN2], [1], [0], [_LN2])),
    ),
    _soft(
        "SoftCrossEntropyGrad", "Gradient of cross entropy against shares of classes.", _GRAD, formulas.soft_cross_entropy_grad,
        ["gradLoss", "input", "share", *_SIDES], ["out"], _soft_backward,
        Sample("two classes alike", {"grad_loss": (FLOAT, [2]), **_PAIR, "loss": (FLOAT, [_LN2]), "whole": (FLOAT, [1]), **_ALIKE}, [[-1, 1]]),
    ),
    _soft(
        "WeightedSoftCrossEntropy", "The same with weights of classes.", _LOSS.format(", times weight"), formulas.weighted_soft_cross_entropy,
        ["input", "share", "weight"], _SIDES, _soft_forward, Sample("two classes alike", _PAIR | _WEIGHTS, ([3 * _LN2], [3], [0], [_LN2])),
    ),
    _soft(
        "WeightedSoftCrossEntropyGrad", "Its gradient.", _GRAD, formulas.weighted_soft_cross_entropy_grad,
        ["gradLoss", "input", "share", "weight", *_SIDES], ["out"], _soft_backward,
        Sample(
            "two classes alike", {"grad_loss": (FLOAT, [2]), **_PAIR, **_WEIGHTS, "loss": (FLOAT, [3 * _LN2]), "whole": (FLOAT, [3]), **_ALIKE}, [[-3, 3]]
        ),
    ),
    *(
        row_operator(
            name, text, formula, kernel, read, written, reference, sample, (_BETA, EXCESS), _teacher_numbers, (),
            (
                *RULES,
                checks.expect("7", "beta is in [0, 1]", "beta", "a value in [0, 1]", lambda call: "" if 0 <= call["beta"] <= 1 else str(call["beta"])),
            ),
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
