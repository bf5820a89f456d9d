"""What a comparison's picture shows: errors against magnitudes, and where the bad elements lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from openaclnn.core.dtypes import dtype_of_name
from openaclnn.testing.judging.compare import Comparison
from openaclnn.testing.judging.figures import Array, errors_of, flat, overflow_from
from openaclnn.testing.judging.rules import Rules, Yardstick

__all__ = ["Errors", "Map", "errors_at", "map_of", "stick_of"]


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


def stick_of(found: Comparison, rules: Rules) -> Yardstick:
    """What made an element bad."""
    return Yardstick.of(rules, dtype_of_name(found.dtype))


def errors_at(found: Comparison, actual: Array, golden: Array, rules: Rules, points: int) -> Errors:
    """The errors of at most so many elements."""
    step = max(-(-flat(actual).size // points), 1)
    stick = stick_of(found, rules)
    seen = [
        (size[shown], error[shown], bad[shown])
        for _, error, size, finite, bad in _judged(
            stick, flat(actual)[::step], flat(golden)[::step]
        )
        for shown in [finite & (size > 0) & (error > 0)]
    ]
    return Errors(*(np.concatenate(each) for each in zip(*seen, strict=True)))


def map_of(found: Comparison, actual: Array, golden: Array, rules: Rules, cells: int) -> Map:
    """A grid of at most so many cells on each side; the rows are all axes but the last."""
    shape, stick = actual.shape, stick_of(found, rules)
    actual, golden = flat(actual), flat(golden)
    columns = max(actual.size // max(int(np.prod(shape[:-1])), 1), 1) if shape else 1
    if columns == actual.size:  # one axis: folded like lines of text
        columns = int(np.ceil(np.sqrt(actual.size)))
    rows = -(-actual.size // columns)
    high, wide = min(rows, cells), min(columns, cells)
    bad, all_ = np.zeros(high * wide), np.zeros(high * wide)
    for start, error, _, _, wrong in _judged(stick, actual, golden):
        row, column = np.divmod(np.arange(start, start + error.size), columns)
        cell = row * high // rows * wide + column * wide // columns
        bad += np.bincount(cell, wrong, high * wide)
        all_ += np.bincount(cell, minlength=high * wide)
    share = np.where(all_ > 0, bad / np.maximum(all_, 1), np.nan).reshape(high, wide)
    return Map(share, rows, columns)


def _judged(
    stick: Yardstick, actual: Array, golden: Array
) -> Iterator[tuple[int, Array, Array, Array, Array]]:
    """Blocks as the verdict sees them: start, errors, sizes, which are finite, which are bad."""
    overflow = overflow_from(stick.dtype)
    for start, one, other, differs in stick.blocks(actual, golden):
        error, size, finite, special = errors_of(one, other, overflow)
        off = special | (error > stick.tolerance.allowed(size))
        yield start, error, size, finite, off if differs is None else differs
