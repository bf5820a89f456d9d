"""Row formulas that tests compile: a row and a number of it as results, targets, weights of classes, shares of rows, and a switch."""

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
from openaclnn.engines.formulas.words import exp, log1p, where


@row_formula
def cross_entropy_step(x: Row, target: Target, share: PerRow) -> tuple[Row, PerRow]:
    """The gradient for a share of the loss's gradient, and the loss of each row.

    The largest class's own 1 is never added to what the others have, beside which small ones would lose their digits: near
    a loss of 0 all digits are theirs.
    """
    top = largest(x)
    powers = exp(x - top)
    equal = total(where(x == top, 1.0, 0.0))
    others = total(where(x == top, 0.0, powers)) + (equal - 1.0)
    # A row with NaN or an infinite largest class has no probabilities.
    none = top - top
    factor = share / (1.0 + others) + none
    hit = at(x, target)
    less_one = where(hit == top, -others, exp(hit - top) - (1.0 + others))
    gradient = where(is_target(target), less_one, powers) * factor
    loss = log1p(others) - (hit - top) + none
    return where(is_counted(target), gradient, 0.0), where(is_counted(target), loss, 0.0)


@row_formula
def cross_entropy_weighted_step(
    x: Row, target: Target, weight: PerClass, share: PerRow, *, smoothing: float, smooths: bool
) -> tuple[Row, PerRow]:
    """The same with weights of classes and label smoothing, which spreads a part of each row's loss over all classes alike."""
    top = largest(x)
    powers = exp(x - top)
    equal = total(where(x == top, 1.0, 0.0))
    others = total(where(x == top, 0.0, powers)) + (equal - 1.0)
    whole = 1.0 + others
    hit = at(x, target)
    power = exp(hit - top)
    less_one = where(hit == top, -others, power - whole)
    log_whole = log1p(others)
    hit_weight = at(weight, target)
    chosen = hit_weight
    if smooths:
        chosen = hit_weight * (1.0 - smoothing)
    # A row with NaN or an infinite largest class has no probabilities.
    none = top - top
    factor = share / whole + none
    loss = chosen * (log_whole - (hit - top)) + none
    if smooths:
        each = smoothing / total(where(weight == weight, 1.0, 1.0))
        everywhere = each * total(weight)
        exact = (less_one * chosen + power * everywhere) * factor - each * hit_weight * share
        elsewhere = powers * ((chosen + everywhere) * factor) - weight * (each * share)
        gradient = where(is_target(target), exact, elsewhere)
        loss = loss + each * total(weight * (top - x)) + everywhere * log_whole
    else:
        gradient = where(is_target(target), less_one, powers) * (chosen * factor)
    return where(is_counted(target), gradient, 0.0), where(is_counted(target), loss, 0.0)
