"""Softmax of logits times a number."""

from __future__ import annotations

from openaclnn.engines.formulas.rows import Row, largest, row_formula, total
from openaclnn.engines.formulas.words import exp


@row_formula
def scaled_softmax(x: Row, *, scale: float) -> Row:
    logits = x * scale
    powers = exp(logits - largest(logits))
    return powers / total(powers)
