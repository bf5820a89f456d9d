"""Log-probabilities of chosen classes and entropies of rows of logits, and what a row loses against shares of classes, and against another row of logits;
`operators/log_probs.py` has the derivations.
"""

from __future__ import annotations

from openaclnn.engines.formulas.rows import (
    PerClass,
    PerRow,
    Row,
    Target,
    at,
    is_counted,
    is_target,
    largest,
    row_formula,
    total,
)
from openaclnn.engines.formulas.words import Value, exp, expm1, log, maximum, where

LOWEST = (
    -200.0
)  # whose power is 0 in FLOAT, so that a class of probability 0 has no part in an entropy


def _scaled(x: Value, excess: Value, scales: bool) -> Value:
    """Times 1 + excess."""
    result = x
    if scales:
        result = x * (excess + 1.0)
    return result


def _entropy_of(shifted: Value, powers: Value, whole: Value) -> Value:
    """Both terms are positive: nothing cancels."""
    return log(whole) - total(powers * maximum(shifted, LOWEST)) / whole


@row_formula
def selected_log_probs(
    x: Row, target: Target, *, excess: float, scales: bool
) -> tuple[PerRow, PerRow, PerRow]:
    z = _scaled(x, excess, scales)
    top = largest(z)
    rest = log(total(exp(z - top)))
    log_prob = (_scaled(at(x, target), excess, scales) - top) - rest
    return where(is_counted(target), log_prob, 0.0), top, rest


@row_formula
def row_entropy(x: Row, *, excess: float, scales: bool) -> tuple[PerRow, PerRow, PerRow]:
    z = _scaled(x, excess, scales)
    top = largest(z)
    powers = exp(z - top)
    whole = total(powers)
    return _entropy_of(z - top, powers, whole), top, log(whole)


@row_formula
def log_probs_and_entropy(
    x: Row, target: Target, *, excess: float, scales: bool
) -> tuple[PerRow, PerRow, PerRow, PerRow]:
    z = _scaled(x, excess, scales)
    top = largest(z)
    powers = exp(z - top)
    whole = total(powers)
    rest = log(whole)
    log_prob = (_scaled(at(x, target), excess, scales) - top) - rest
    entropy = _entropy_of(z - top, powers, whole)
    counted = is_counted(target)
    return where(counted, log_prob, 0.0), where(counted, entropy, 0.0), top, rest


@row_formula
def selected_log_probs_grad(
    gradient: PerRow, x: Row, target: Target, log_prob: PerRow, top: PerRow, rest: PerRow, *, excess: float, scales: bool
) -> Row:  # fmt: skip
    z = _scaled(x, excess, scales)
    # 1 - p where p is near 1 keeps its digits.
    less_one = where(is_target(target), expm1(log_prob), exp((z - top) - rest))
    return where(is_counted(target), less_one * -_scaled(gradient, excess, scales), 0.0)


@row_formula
def row_entropy_grad(
    gradient: PerRow, x: Row, entropy: PerRow, top: PerRow, rest: PerRow, *, excess: float, scales: bool
) -> Row:  # fmt: skip
    log_p = (_scaled(x, excess, scales) - top) - rest
    return exp(log_p) * (maximum(log_p, LOWEST) + entropy) * -_scaled(gradient, excess, scales)


@row_formula
def log_probs_and_entropy_grad(
    by_log_prob: PerRow, by_entropy: PerRow, x: Row, target: Target, log_prob: PerRow, entropy: PerRow, top: PerRow, rest: PerRow,
    *, excess: float, scales: bool,
) -> Row:  # fmt: skip
    log_p = (_scaled(x, excess, scales) - top) - rest
    p = exp(log_p)
    less_one = where(is_target(target), expm1(log_prob), p)
    by_chosen = -_scaled(by_log_prob, excess, scales)
    by_all = -_scaled(by_entropy, excess, scales)
    gradient = less_one * by_chosen + p * (maximum(log_p, LOWEST) + entropy) * by_all
    return where(is_counted(target), gradient, 0.0)


def _spread(share: Value, keep: Value, spread: Value, smooths: bool) -> Value:
    result = share
    if smooths:
        result = share * keep + spread
    return result


@row_formula
def soft_cross_entropy(
    x: Row, share: Row, *, keep: float, spread: float, smooths: bool
) -> tuple[PerRow, PerRow, PerRow, PerRow]:
    top = largest(x)
    rest = log(total(exp(x - top)))
    wanted = _spread(share, keep, spread, smooths)
    return total(wanted * ((top - x) + rest)), total(wanted), top, rest


@row_formula
def weighted_soft_cross_entropy(
    x: Row, share: Row, weight: PerClass, *, keep: float, spread: float, smooths: bool
) -> tuple[PerRow, PerRow, PerRow, PerRow]:
    top = largest(x)
    rest = log(total(exp(x - top)))
    wanted = _spread(share, keep, spread, smooths) * weight
    return total(wanted * ((top - x) + rest)), total(wanted), top, rest


@row_formula
def soft_cross_entropy_grad(
    gradient: PerRow, x: Row, share: Row, loss: PerRow, whole: PerRow, top: PerRow, rest: PerRow,
    *, keep: float, spread: float, smooths: bool,
) -> Row:  # fmt: skip
    wanted = _spread(share, keep, spread, smooths)
    return (exp((x - top) - rest) * whole - wanted) * gradient


@row_formula
def weighted_soft_cross_entropy_grad(
    gradient: PerRow, x: Row, share: Row, weight: PerClass, loss: PerRow, whole: PerRow, top: PerRow, rest: PerRow,
    *, keep: float, spread: float, smooths: bool,
) -> Row:  # fmt: skip
    wanted = _spread(share, keep, spread, smooths) * weight
    return (exp((x - top) - rest) * whole - wanted) * gradient


def _times(p: Value, x: Value) -> Value:
    """A class of probability 0 has no part, whatever its logarithm."""
    return where(p == 0.0, 0.0, p * x)


@row_formula
def divergence(
    x: Row, teacher: Row, *, beta: float, excess: float, reverse: bool, mixed: bool, scales: bool
) -> tuple[PerRow, PerRow, PerRow, PerRow, PerRow, PerRow]:
    """With the part that the student's probabilities weigh, which the gradient needs."""
    s = _scaled(x, excess, scales)
    t = _scaled(teacher, excess, scales)
    top = largest(s)
    rest = log(total(exp(s - top)))
    teacher_top = largest(t)
    teacher_rest = log(total(exp(t - teacher_top)))
    log_p = (s - top) - rest
    log_q = (t - teacher_top) - teacher_rest
    p = exp(log_p)
    q = exp(log_q)
    if mixed:
        log_mean = log(q * beta + p * (1.0 - beta))
        one_sided = total(_times(p, log_p - log_mean))
        result = total(_times(q, log_q - log_mean)) * beta + one_sided * (1.0 - beta)
    else:
        if reverse:
            one_sided = total(_times(p, log_p - log_q))
        else:
            one_sided = total(_times(q, log_q - log_p))
        result = one_sided
    return result, one_sided, top, rest, teacher_top, teacher_rest


@row_formula
def divergence_grad(
    gradient: PerRow, x: Row, teacher: Row, result: PerRow, one_sided: PerRow, top: PerRow, rest: PerRow, teacher_top: PerRow, teacher_rest: PerRow,
    *, beta: float, excess: float, reverse: bool, mixed: bool, scales: bool,
) -> Row:  # fmt: skip
    log_p = (_scaled(x, excess, scales) - top) - rest
    log_q = (_scaled(teacher, excess, scales) - teacher_top) - teacher_rest
    p = exp(log_p)
    q = exp(log_q)
    if mixed:
        by_z = _times(p, (log_p - log(q * beta + p * (1.0 - beta))) - one_sided) * (1.0 - beta)
    else:
        if reverse:
            by_z = _times(p, (log_p - log_q) - one_sided)
        else:
            by_z = p - q
    return by_z * _scaled(gradient, excess, scales)
