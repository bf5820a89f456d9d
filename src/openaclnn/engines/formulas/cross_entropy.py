"""Cross entropy of class indices as row formulas; `operators/logits.py` has the derivation."""

from __future__ import annotations

import math

from openaclnn.core.plan import Plan
from openaclnn.engines.formulas.rows import (
    PerClass,
    PerRow,
    Row,
    RowFormula,
    Target,
    at,
    described,
    is_counted,
    is_target,
    largest,
    total,
)
from openaclnn.engines.formulas.words import abs, exp, expm1, fma, log1p, where

LOSS, SQUARE, WEIGHT, COUNTED, BOTH, LOG_PROB, LSE, TOP, REST, GRADIENT = range(10)
"""The results of the loss, in order; the first four are added up over positions."""
RESULTS = {
    "lossOut": BOTH, "zlossOut": SQUARE, "logProbOut": LOG_PROB, "lseForZlossOut": LSE, "topOut": TOP, "restOut": REST, "gradInputOut": GRADIENT,
}  # fmt: skip
"""Those that plans write."""

OPERANDS = {
    "target": "target", "input": "x", "self": "x", "logProb": "log_prob", "gradLoss": "gradient", "gradOutput": "gradient",
    "weightOptional": "weight", "weight": "weight", "totalWeight": "total",
    "lseForZlossOptional": "lse", "gradZlossOptional": "grad_zloss", "top": "top", "rest": "rest",
}  # fmt: skip
"""What formulas of targets, and of likelihoods too, call what plans have."""

INFINITE = math.inf
EXPONENTIAL_ENDS = 709.78  # beyond, exponentials are infinite in FLOAT64, too
PART = 2.0**-20


def switches_of(formula: RowFormula, plan: Plan, **chosen: bool) -> tuple[tuple[str, bool], ...]:
    """The switches of a formula of targets, likelihoods too, for a plan; an engine has chosen some. A plan has its numbers as FLOAT: what is 0 there switches
    nothing on."""
    known = {
        **plan.numbers, "weighted": any(OPERANDS.get(one.parameter) == "weight" for one in plan.inputs), "smooths": plan.numbers.get("label_smoothing", 0) != 0, "squares": plan.numbers.get("zloss_scale", 0) != 0,
        "keeps_infinite": plan.kernel == "cross_entropy_loss", **chosen,
    }  # fmt: skip
    return tuple([(name, bool(known.get(name))) for name in formula.switches])


def smoothed_everywhere(each: PerRow, weight_sum: PerRow, infinite_sum: PerRow) -> PerRow:
    """The sum of each * weight over all classes, of which each term may be infinite, or NaN."""
    return where(abs(each) == INFINITE, each * infinite_sum, each * weight_sum)


@described
def cross_entropy_loss(
    x: Row, target: Target, weight: PerClass, *, label_smoothing: float, zloss_scale: float, class_count: float, total_weight: float,
    weight_sum: float, infinite_sum: float, weighted: bool, smooths: bool, squares: bool, keeps_infinite: bool,
) -> tuple[PerRow, PerRow, PerRow, PerRow, PerRow, Row, PerRow, PerRow, PerRow, Row]:  # fmt: skip
    """Loss, z-loss, the target's weight and whether it counts, which are added up; the first two together; log-probabilities, log-sum-exp, the largest logit
    and log-sum-exp less that; without a z-loss the gradient, where the loss's is 1. `keeps_infinite`: a row whose one infinite logit is the largest has log-probabilities."""
    top = largest(x)
    powers = exp(x - top)
    equal = total(where(x == top, 1.0, 0.0))
    others = total(where(x == top, 0.0, powers)) + (equal - 1.0)
    unknown = top - top
    if keeps_infinite:
        unknown = where(others >= 0.5, unknown, 0.0)
    rest = log1p(others) + unknown
    hit_weight = where(is_counted(target), at(weight, target), 0.0) if weighted else where(is_counted(target), 1.0, 0.0)  # fmt: skip
    log_prob = (at(x, target) - top) - rest
    nll = hit_weight * (1.0 - label_smoothing) / total_weight
    exact = expm1(log_prob) * nll
    elsewhere = powers * (nll / (1.0 + others) + unknown)
    loss = (rest - (at(x, target) - top)) * hit_weight
    if smooths:
        each = label_smoothing / class_count / total_weight
        everywhere = smoothed_everywhere(each, weight_sum, infinite_sum)
        exact = exact + (exp(log_prob) * everywhere - each * (hit_weight if weighted else 1.0))
        elsewhere = powers * ((nll + everywhere) / (1.0 + others) + unknown) - each * (
            weight if weighted else 1.0
        )
        # A part of a difference, where the whole may be beyond FLOAT.
        below = fma(x, PART, -(top * PART))
        below = total(weight * below) if weighted else total(below)
        every = label_smoothing / class_count
        loss = loss * (1.0 - label_smoothing) + (
            rest * (weight_sum * every) - below * (every * (1.0 / PART))
        )
    lse = top + rest
    square = where(is_counted(target), 0.0, 0.0)
    if squares:
        square = lse * lse * zloss_scale
    counted = is_counted(target)
    loss = where(counted, loss, 0.0)
    square = where(counted, square, 0.0)
    return (
        loss, square, hit_weight, where(counted, 1.0, 0.0), loss + square, (x - top) - rest, lse,
        where(rest == rest, top, rest), rest, where(counted, where(is_target(target), exact, elsewhere), 0.0),
    )  # fmt: skip


STEP_GRADIENT, STEP_LOSS, STEP_SQUARE, STEP_BOTH = range(4)
"""The results of a step, in order."""


@described
def cross_entropy_step(
    x: Row, target: Target, gradient: PerRow, weight: PerClass, *, label_smoothing: float, zloss_scale: float, class_count: float,
    total_weight: float, rows_counted: float, weight_sum: float, infinite_sum: float, weighted: bool, smooths: bool, squares: bool,
) -> tuple[Row, PerRow, PerRow, PerRow]:  # fmt: skip
    """Loss and gradient of one reading: the gradient, loss and z-loss, and both. All is made of what the classes beside the target's have, so that nothing is taken from 1:
    near a loss of 0 no digits are lost."""
    counted = is_counted(target)
    hit = at(x, target)
    x = where(counted, x, -INFINITE)  # of rows that do not count nothing is read
    top = largest(x)
    if smooths:
        # A part of a difference, where the whole may be beyond FLOAT; before the powers, which then take the logits' place.
        below = fma(x, PART, -(top * PART))
        below = total(weight * below) if weighted else total(below)
    powers = exp(x - top)
    others = total(where(is_target(target), 0.0, powers))
    power = exp(hit - top)
    whole = others + power
    unknown = top - top
    # Where another class is the largest, its 1 is among the others.
    rest = log1p(where(hit == top, others, (others - 1.0) + power)) + unknown
    hit_weight = at(weight, target) if weighted else 1.0
    share = gradient / total_weight
    nll = share * hit_weight
    at_once = nll
    more = 0.0
    loss = (rest - (hit - top)) * hit_weight
    if smooths:
        every = label_smoothing / class_count
        each = share * every
        nll = nll * (1.0 - label_smoothing)
        at_once = nll + each * hit_weight
        more = smoothed_everywhere(each, weight_sum, infinite_sum)
        loss = loss * (1.0 - label_smoothing) + (
            rest * (weight_sum * every) - below * (every * (1.0 / PART))
        )
    square = where(counted, 0.0, 0.0)
    if squares:
        log_total = top + rest
        square = where(counted, log_total * log_total * zloss_scale, 0.0)
        more = more + zloss_scale * 2.0 * log_total * (gradient / rows_counted)
    factor = where(counted, (nll + more) / whole + unknown, 0.0)
    at_target = fma(power, more, -(others * nll)) / whole + unknown
    value = powers * factor
    if smooths:
        at_target = at_target - each * hit_weight
        value = (
            value - where(counted, each, 0.0) * weight
            if weighted
            else value - where(counted, each, 0.0)
        )
    # Where the others have more than the target, nothing is lost by taking all of it at once, rounded once.
    several = where(power < others, abs(at_once), INFINITE) < INFINITE
    at_target = where(several, fma(power, factor, -at_once), at_target)
    at_target = where(counted, at_target, 0.0)
    loss = where(counted, loss, 0.0)
    return where(is_target(target), at_target, value), loss, square, loss + square


@described
def cross_entropy_logits_grad(
    x: Row, target: Target, gradient: PerRow, top: PerRow, rest: PerRow, weight: PerClass, *, label_smoothing: float,
    zloss_scale: float, class_count: float, total_weight: float, rows_counted: float, weight_sum: float, infinite_sum: float,
    weighted: bool, smooths: bool, squares: bool,
) -> Row:  # fmt: skip
    """From what the loss kept. No logit lies above the top."""
    hit_weight = at(weight, target) if weighted else 1.0
    nll = gradient * (1.0 - label_smoothing) / total_weight * hit_weight
    log_prob = (at(x, target) - top) - rest
    probability = exp(log_prob)
    exact = expm1(log_prob) * nll
    factor = nll
    if squares:
        square = zloss_scale * 2.0 * (top + rest) * (gradient / rows_counted)
        factor = factor + square
        exact = exact + probability * square
    if smooths:
        each = gradient / total_weight * label_smoothing / class_count
        everywhere = smoothed_everywhere(each, weight_sum, infinite_sum)
        factor = factor + everywhere
        exact = exact + (probability * everywhere - each * hit_weight)
    # Nothing of a row that does not count reaches its gradient: its factor is 0, and what is multiplied with that is finite.
    below = x - top
    value = exp(where(below < 0.0, below, 0.0)) * where(
        is_counted(target), factor * exp(-rest), 0.0
    )
    if smooths:  # what a weight makes of 0 may be NaN
        value = where(is_counted(target), value - each * weight, 0.0) if weighted else value - where(is_counted(target), each, 0.0)  # fmt: skip
    return where(is_target(target), where(is_counted(target), exact, 0.0), value)


@described
def cross_entropy_loss_grad(
    log_prob: Row, target: Target, gradient: PerRow, weight: PerClass, lse: PerRow, grad_zloss: PerRow, *, label_smoothing: float,
    zloss_scale: float, class_count: float, total_weight: float, rows_counted: float, weight_sum: float, infinite_sum: float,
    weighted: bool, smooths: bool, squares: bool, grad_zloss_given: bool,
) -> Row:  # fmt: skip
    """`operators/cross_entropy_loss_grad.py` has the derivation."""
    mask = where(is_counted(target), 1.0, 0.0)
    hit_weight = where(is_counted(target), at(weight, target), 0.0) if weighted else mask
    nll = gradient * (1.0 - label_smoothing) / total_weight * mask * hit_weight
    # Without smoothing this is 0, or NaN where the gradient or the total makes it so.
    each = gradient / total_weight * label_smoothing / class_count * mask
    everywhere = smoothed_everywhere(each, weight_sum, infinite_sum)
    infinite = nll * INFINITE + everywhere * INFINITE
    square = mask * 0.0
    if squares:
        both = gradient + grad_zloss if grad_zloss_given else gradient
        square = lse * (zloss_scale * 2.0) * mask * (both / rows_counted)
        infinite = infinite + square * INFINITE
    factor = nll + everywhere + square
    hit = at(log_prob, target)
    probability = exp(hit)
    # p - 1 has no digits left where p is 1 in FLOAT64, too; an infinite nll less itself is NaN.
    exact = expm1(hit) * nll + (nll - nll)
    if smooths:
        # Smoothing's two terms apart from the others: each pair may cancel.
        exact = exact + probability * square + (probability * everywhere - each * hit_weight)
    else:
        exact = exact + probability * (everywhere + square)
    exact = where(hit > EXPONENTIAL_ENDS, infinite - nll, exact)
    # Where the exponential is infinite in FLOAT64, too, it multiplies each of the terms.
    value = exp(log_prob) * factor
    if smooths:
        smooth = each * weight if weighted else each
        value = fma(exp(log_prob), factor, -smooth)
        infinite = infinite - smooth
    value = where(log_prob > EXPONENTIAL_ENDS, infinite, value)
    return where(is_target(target), exact, value)
