"""What a comparison's picture shows: errors against magnitudes, and where the bad elements lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from openaclnn.core.dtypes import dtype_of_name
from openaclnn.testing.compare import Comparison
from openaclnn.testing.figures import Array, blocks, errors_of, flat, overflow_from
from openaclnn.testing.limits import Tolerance, limits_of, real_type
from openaclnn.testing.rules import Rules

__all__ = ["Errors", "Map", "errors_at", "map_of", "tolerance_of"]


@dataclass(frozen=True)
class Errors:
    """Some elements at even distances that are off and not 0: their golden sizes, errors, and which are bad."""

    size: Array
    error: Array
    bad: Array


@dataclass(frozen=True)
class Map:
    """The share of bad elements in each cell of a grid, over so many rows and columns of elements."""

    share: Array  # NaN where a cell has no elements
    rows: int
    columns: int


def tolerance_of(found: Comparison, rules: Rules) -> Tolerance:
    """What made an element bad."""
    return rules.tolerance(limits_of(dtype_of_name(found.dtype)))


def errors_at(found: Comparison, actual: Array, golden: Array, rules: Rules, points: int) -> Errors:
    """The errors of at most so many elements."""
    step = max(-(-flat(actual).size // points), 1)
    one, other = (flat(array)[::step].astype(np.float64) for array in (actual, golden))
    overflow = overflow_from(real_type(dtype_of_name(found.dtype)))
    error, size, finite, _ = errors_of(one, other, overflow)
    shown = finite & (size > 0) & (error > 0)
    bad = shown & (error > tolerance_of(found, rules).allowed(size))
    return Errors(size[shown], error[shown], bad[shown])


def map_of(found: Comparison, actual: Array, golden: Array, rules: Rules, cells: int) -> Map:
    """A grid of at most so many cells on each side; the rows are all axes but the last."""
    shape, tolerance = actual.shape, tolerance_of(found, rules)
    overflow = overflow_from(real_type(dtype_of_name(found.dtype)))
    actual, golden = flat(actual), flat(golden)
    columns = max(actual.size // max(int(np.prod(shape[:-1])), 1), 1) if shape else 1
    if columns == actual.size:  # one axis: folded like lines of text
        columns = int(np.ceil(np.sqrt(actual.size)))
    rows = -(-actual.size // columns)
    high, wide = min(rows, cells), min(columns, cells)
    bad, all_ = np.zeros(high * wide), np.zeros(high * wide)
    for start, (one, other) in blocks(actual, golden):
        error, size, _, special = errors_of(one, other, overflow)
        wrong = special | (error > tolerance.allowed(size))
        row, column = np.divmod(np.arange(start, start + one.size), columns)
        cell = row * high // rows * wide + column * wide // columns
        bad += np.bincount(cell, wrong, high * wide)
        all_ += np.bincount(cell, minlength=high * wide)
    share = np.where(all_ > 0, bad / np.maximum(all_, 1), np.nan).reshape(high, wide)
    return Map(share, rows, columns)
