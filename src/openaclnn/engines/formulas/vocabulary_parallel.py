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
