"""The softmax family."""

from __future__ import annotations

from openaclnn.engines.formulas.rows import Row, largest, row_formula, total
from openaclnn.engines.formulas.words import exp, log


@row_formula
def softmax(x: Row) -> Row:
    powers = exp(x - largest(x))
    return powers / total(powers)


@row_formula
def log_softmax(x: Row) -> Row:
    shifted = x - largest(x)
    return shifted - log(total(exp(shifted)))


@row_formula
def softmax_backward(gradient: Row, result: Row) -> Row:
    return (gradient - total(gradient * result)) * result


@row_formula
def log_softmax_backward(gradient: Row, result: Row) -> Row:
    return gradient - exp(result) * total(gradient)


@row_formula
def softmax_cross_entropy(x: Row, labels: Row) -> tuple[Row, Row]:
    shifted = x - largest(x)
    powers = exp(shifted)
    whole = total(powers)
    return total(labels * (log(whole) - shifted)), powers / whole - labels
