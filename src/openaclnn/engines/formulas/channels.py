"""PReLU, whose slope is a number for each channel, its gradients, and sums of rows."""

from __future__ import annotations

from openaclnn.engines.formulas import formula
from openaclnn.engines.formulas.rows import PerRow, Row, row_formula, total
from openaclnn.engines.formulas.words import Value, where


@formula
def prelu(x: Value, weight: Value) -> Value:
    return where(x > 0, x, x * weight)


@formula
def prelu_backward(gradient: Value, x: Value, weight: Value) -> tuple[Value, Value]:
    """The gradient by the input, and an element's part of that by its weight."""
    return where(x > 0.0, gradient, gradient * weight), where(x > 0.0, 0.0, gradient * x)


@row_formula
def prelu_backward_total(gradient: Row, x: Row, weight: PerRow) -> tuple[Row, PerRow]:
    """The same of a row, whose parts are added up."""
    by_weight = total(where(x > 0.0, 0.0, gradient * x))
    return where(x > 0.0, gradient, gradient * weight), by_weight


@row_formula
def added_up(x: Row, *, count: float) -> PerRow:
    """The sum of a row, or its mean, by what it is divided by."""
    return total(x) / count
