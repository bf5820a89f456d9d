"""Cross entropy over a vocabulary whose columns several ranks share: what each computes of its own."""

from __future__ import annotations

from openaclnn.engines.formulas import formula
from openaclnn.engines.formulas.rows import (
    PerRow,
    Row,
    Target,
    at,
    index_of,
    is_inside,
    is_target,
    largest,
    row_formula,
    total,
)
from openaclnn.engines.formulas.words import Value, exp, log, where


@row_formula
def sum_exp_and_index_logit(
    x: Row, target: Target, top: PerRow
) -> tuple[PerRow, PerRow, Row, PerRow, PerRow]:
    """The target's logit below the largest of all ranks, the sum of powers, these, the target's column, and 1 where it is another rank's."""
    powers = exp(x - top)
    here = is_inside(target)
    predicted = where(here, at(x, target) - top, 0.0)
    return predicted, total(powers), powers, index_of(target), where(here, 0.0, 1.0)


@row_formula
def loss_with_max_sum(x: Row, top: PerRow, whole: PerRow, predicted: PerRow) -> tuple[PerRow, Row]:
    return log(whole) - predicted, exp(x - top) * (1.0 / whole)


@formula
def loss_of_max_sum(whole: Value, predicted: Value) -> Value:
    """The same without probabilities."""
    return log(whole) - predicted


@row_formula
def online_max_sum(x: Row, target: Target) -> tuple[PerRow, PerRow, PerRow]:
    """A rank's largest logit, the sum of powers below it, and the target's logit below it, 0 where that is another rank's."""
    top = largest(x)
    return top, total(exp(x - top)), where(is_inside(target), at(x, target) - top, 0.0)


@row_formula
def online_max_sum_and_logits(x: Row, target: Target) -> tuple[PerRow, PerRow, PerRow, Row]:
    """The same, and the logits rounded."""
    top = largest(x)
    return top, total(exp(x - top)), where(is_inside(target), at(x, target) - top, 0.0), x * 1.0


@row_formula
def gradient_of_logits(x: Row, target: Target, top: PerRow, whole: PerRow, gradient: PerRow) -> Row:
    """Probabilities, less 1 at the target, times the gradient of the row's loss."""
    return (exp(x - top) / whole - where(is_target(target), 1.0, 0.0)) * gradient


@row_formula
def gradient_of_shares(share: Row, target: Target, gradient: PerRow) -> Row:
    """The same of probabilities."""
    return (share - where(is_target(target), 1.0, 0.0)) * gradient
