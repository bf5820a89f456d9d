"""The negative log-likelihood of class indices as row formulas; `operators/likelihood.py` has where they come from."""

from __future__ import annotations

from openaclnn.engines.formulas.rows import (
    PerClass,
    PerRow,
    Row,
    Target,
    at,
    described,
    is_counted,
    is_target,
)
from openaclnn.engines.formulas.words import where


@described
def nll_loss(x: Row, target: Target, weight: PerClass, *, weighted: bool) -> tuple[PerRow, PerRow]:
    """A row's loss and the weight of its class, which are added up. Of a row one value is read, at any time: engines walk no classes."""
    counted = is_counted(target)
    hit_weight = where(counted, at(weight, target), 0.0) if weighted else where(counted, 1.0, 0.0)
    # Where nothing counts, -(0 * -0) is 0.
    return -(hit_weight * where(counted, at(x, target), -0.0)), hit_weight


@described
def nll_gradient(
    target: Target, gradient: PerRow, weight: PerClass, total: PerRow, *, total_weight: float, mean: bool, total_weight_given: bool, by_row: bool
) -> Row:  # fmt: skip
    """A mean's gradient is divided by the total, as FLOAT; before, by engines that say it is none. Its value is made once for a row (`by_row`) or for each class."""
    share = gradient
    if mean:
        share = gradient / (total if total_weight_given else total_weight)
    counted = is_counted(target)
    value = where(counted, -(share * at(weight, target)), 0.0) if by_row else -(share * weight)
    return where(is_target(target) if by_row else is_target(target) & counted, value, 0.0)
