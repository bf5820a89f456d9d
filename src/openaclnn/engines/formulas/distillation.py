"""What a row of logits loses against shares of classes, and against another row of logits; `operators/distillation.py` has the derivation."""

from __future__ import annotations

from openaclnn.engines.formulas.rows import PerClass, PerRow, Row, largest, row_formula, total
from openaclnn.engines.formulas.words import Value, exp, log, where


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


def _scaled(x: Value, excess: Value, scales: bool) -> Value:
    """Times 1 + excess."""
    result = x
    if scales:
        result = x * (excess + 1.0)
    return result


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
        own = total(_times(p, log_p - log_mean))
        result = total(_times(q, log_q - log_mean)) * beta + own * (1.0 - beta)
    else:
        if reverse:
            own = total(_times(p, log_p - log_q))
        else:
            own = total(_times(q, log_q - log_p))
        result = own
    return result, own, top, rest, teacher_top, teacher_rest


@row_formula
def divergence_grad(
    gradient: PerRow, x: Row, teacher: Row, result: PerRow, own: PerRow, top: PerRow, rest: PerRow, teacher_top: PerRow, teacher_rest: PerRow,
    *, beta: float, excess: float, reverse: bool, mixed: bool, scales: bool,
) -> Row:  # fmt: skip
    log_p = (_scaled(x, excess, scales) - top) - rest
    log_q = (_scaled(teacher, excess, scales) - teacher_top) - teacher_rest
    p = exp(log_p)
    q = exp(log_q)
    if mixed:
        by_z = _times(p, (log_p - log(q * beta + p * (1.0 - beta))) - own) * (1.0 - beta)
    else:
        if reverse:
            by_z = _times(p, (log_p - log_q) - own)
        else:
            by_z = p - q
    return by_z * _scaled(gradient, excess, scales)
