"""A comparison as a picture: error against magnitude, the ULP histogram, and where the bad elements lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from openaclnn.core.dtypes import dtype_of_name
from openaclnn.core.writing import replacing
from openaclnn.testing.extras import need
from openaclnn.testing.judging.compare import Comparison
from openaclnn.testing.judging.figures import (
    Array,
    Rules,
    Tolerance,
    Yardstick,
    errors_of,
    flat,
    overflow_from,
)

__all__ = ["draw_picture", "errors_at", "map_of", "yardstick_of"]


@dataclass(frozen=True)
class _Errors:
    """Some elements at even distances that are off and not 0: their golden sizes, errors, and which are bad."""

    size: Array
    error: Array
    bad: Array


@dataclass(frozen=True)
class _Map:
    """The share of bad elements in each cell of a grid, over so many rows and columns of elements."""

    share: Array  # NaN where a cell has no elements
    rows: int
    columns: int


def yardstick_of(comparison: Comparison, rules: Rules) -> Yardstick:
    """What made an element bad."""
    return Yardstick.of(rules, dtype_of_name(comparison.dtype))


def errors_at(
    comparison: Comparison, actual: Array, golden: Array, rules: Rules, points: int
) -> _Errors:
    """The errors of at most so many elements."""
    step = max(-(-flat(actual).size // points), 1)
    stick = yardstick_of(comparison, rules)
    seen = [
        (size[shown], error[shown], bad[shown])
        for _, error, size, finite, bad in _judged(
            stick, flat(actual)[::step], flat(golden)[::step]
        )
        for shown in [finite & (size > 0) & (error > 0)]
    ]
    return _Errors(*(np.concatenate(each) for each in zip(*seen, strict=True)))


def map_of(comparison: Comparison, actual: Array, golden: Array, rules: Rules, cells: int) -> _Map:
    """A grid of at most so many cells on each side; the rows are all axes but the last."""
    shape, stick = actual.shape, yardstick_of(comparison, rules)
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
    return _Map(share, rows, columns)


def _judged(
    stick: Yardstick, actual: Array, golden: Array
) -> Iterator[tuple[int, Array, Array, Array, Array]]:
    """Blocks as the verdict sees them: start, errors, sizes, which are finite, which are bad."""
    overflow = overflow_from(stick.dtype)
    for start, one, other, differs in stick.blocks(actual, golden):
        error, size, finite, special = errors_of(one, other, overflow)
        off = special | (error > stick.tolerance.allowed(size))
        yield start, error, size, finite, off if differs is None else differs


_POINTS = 20_000
_CELLS = 192
_GOOD, _BAD = "#2f6fb0", "#d1242f"


def draw_picture(
    path: Path, comparison: Comparison, actual: Array, golden: Array, rules: Rules
) -> None:
    """Write the picture, as the kind of file that its name says."""
    figure = need("matplotlib.figure", "pictures are drawn by matplotlib").Figure(
        figsize=(13, 4.2), layout="constrained"
    )
    verdict = "passed" if comparison.passed else "failed"
    figure.suptitle(
        f"{verdict}: {comparison.standard}, {comparison.dtype}, shape {comparison.shape}, "
        f"{comparison.bad:,} of {comparison.count:,} elements bad",
        color="#1a7f37" if comparison.passed else "#b42318", fontsize=11,
    )  # fmt: skip
    left, middle, right = figure.subplots(1, 3)
    if actual.shape == golden.shape and actual.size:
        pair = (comparison, actual, golden, rules)
        _errors(left, errors_at(*pair, _POINTS), yardstick_of(comparison, rules).tolerance)
        _histogram(middle, comparison)
        _map(right, figure, map_of(*pair, _CELLS), len(actual.shape))
    else:
        for axes in (left, middle, right):
            axes.set_axis_off()
        middle.text(0.5, 0.5, "\n".join(comparison.reasons) or "no elements", ha="center")
    try:
        with replacing(path) as file:
            figure.savefig(file, format=path.suffix[1:] or "png", dpi=130)
    except ValueError as error:
        raise ValueError(f"{path}: {str(error).partition(chr(10))[0]}") from error


def _errors(axes: Any, errors: _Errors, tolerance: Tolerance) -> None:
    """Some elements, and the line between good and bad."""
    size, error, bad = errors.size, errors.error, errors.bad
    axes.set(xscale="log", yscale="log", xlabel="|golden|", ylabel="|output - golden|")
    axes.set_title("error against magnitude", fontsize=10)
    for which, color, label in ((~bad, _GOOD, "good"), (bad, _BAD, "bad")):
        axes.plot(size[which], error[which], ".", ms=3, color=color, label=label, alpha=0.6)
    if size.size:
        low, high = size.min(), size.max() * (1 + 1e-9)
        if high < 10 * low:  # else every tick of the axis would have a label
            low, high = low / 10, high * 10
            axes.set_xlim(low, high)
        ends = np.geomspace(low, high, 64)
        if not tolerance.exact:
            axes.plot(ends, tolerance.allowed(ends), "-", color="#57606a", lw=1, label="allowed")
        axes.legend(fontsize=8)
    else:
        axes.text(0.5, 0.5, "no error at all", ha="center", transform=axes.transAxes)


def _histogram(axes: Any, comparison: Comparison) -> None:
    labels = [label for label, _ in comparison.ulp_histogram]
    counts = [count for _, count in comparison.ulp_histogram]
    colors = [_BAD if label.endswith("differ") else _GOOD for label in labels]
    bars = axes.bar(labels, counts, color=colors)
    axes.bar_label(bars, [f"{count:,}" if count else "" for count in counts], fontsize=7)
    axes.set_title("ULP of the output's dtype", fontsize=10)
    axes.set_ylabel("elements")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(top=3 * max(counts))  # room for the numbers
    for label in axes.get_xticklabels():
        label.set(rotation=40, rotation_mode="anchor", ha="right", fontsize=8)


def _map(axes: Any, figure: Any, seen: _Map, rank: int) -> None:
    """The share of bad elements in each cell."""
    image = axes.imshow(
        seen.share, cmap="Reds", vmin=0, vmax=float(np.nanmax(seen.share)) or 1.0, aspect="auto",
        extent=(0, seen.columns, seen.rows, 0), interpolation="nearest",
    )  # fmt: skip
    axes.set(xlabel="last axis" if rank > 1 else "folded", ylabel="all axes before it")
    axes.set_title("where the bad elements lie (share)", fontsize=10)
    figure.colorbar(image, ax=axes)
