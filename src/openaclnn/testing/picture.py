"""A comparison as a picture: error against magnitude, the ULP histogram, and where the bad elements lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType, dtype_of_name
from openaclnn.testing.compare import Comparison
from openaclnn.testing.extras import need
from openaclnn.testing.figures import Array, blocks, errors_of, flat, overflow_from
from openaclnn.testing.limits import Tolerance, limits_of, real_type
from openaclnn.testing.rules import Rules

__all__ = ["draw_picture"]

_POINTS = 20_000
_CELLS = 192


def draw_picture(path: Path, found: Comparison, actual: Array, golden: Array, rules: Rules) -> None:
    """Write the picture, as the kind of file that its name says."""
    figure = need("matplotlib.figure", "pictures are drawn by matplotlib").Figure(
        figsize=(13, 4.2), layout="constrained"
    )
    dtype = real_type(dtype_of_name(found.dtype))
    tolerance = rules.tolerance(limits_of(dtype))
    verdict = "passed" if found.passed else "failed"
    figure.suptitle(
        f"{verdict}: {found.standard}, {found.dtype}, shape {found.shape}, "
        f"{found.bad:,} of {found.count:,} elements bad",
        color="#1a7f37" if found.passed else "#b42318", fontsize=11,
    )  # fmt: skip
    left, middle, right = figure.subplots(1, 3)
    same = actual.shape == golden.shape and actual.size
    if same:
        _errors(left, flat(actual), flat(golden), dtype, tolerance)
        _map(right, figure, flat(actual), flat(golden), actual.shape, dtype, tolerance)
    _histogram(middle, found)
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise ValueError(f"{path}: {told}") from error


def _errors(axes: Any, actual: Array, golden: Array, dtype: DType, tolerance: Tolerance) -> None:
    """Some elements at even distances, and the line between good and bad."""
    step = -(-actual.size // _POINTS)
    one, other = actual[::step].astype(np.float64), golden[::step].astype(np.float64)
    error, size, finite, _ = errors_of(one, other, overflow_from(dtype))
    shown = finite & (size > 0) & (error > 0)
    bad = shown & (error > tolerance.allowed(size))
    axes.set(xscale="log", yscale="log", xlabel="|golden|", ylabel="|output - golden|")
    axes.set_title("error against magnitude", fontsize=10)
    for which, color, label in ((shown & ~bad, "#2f6fb0", "good"), (bad, "#d1242f", "bad")):
        axes.plot(size[which], error[which], ".", ms=3, color=color, label=label, alpha=0.6)
    if shown.any():
        ends = np.geomspace(size[shown].min(), size[shown].max() * (1 + 1e-9), 64)
        if not tolerance.exact:
            axes.plot(ends, tolerance.allowed(ends), "-", color="#57606a", lw=1, label="allowed")
        axes.legend(fontsize=8)
    else:
        axes.text(0.5, 0.5, "no error at all", ha="center", transform=axes.transAxes)


def _histogram(axes: Any, found: Comparison) -> None:
    labels = [label for label, _ in found.ulp_histogram]
    counts = [count for _, count in found.ulp_histogram]
    bars = axes.bar(labels, counts, color="#2f6fb0")
    axes.bar_label(bars, [f"{count:,}" if count else "" for count in counts], fontsize=7)
    axes.set_title("ULP of the output's dtype", fontsize=10)
    axes.set_ylabel("elements")
    axes.set_yscale("symlog", linthresh=1)
    axes.tick_params(axis="x", labelrotation=40, labelsize=8)


def _map(
    axes: Any, figure: Any, actual: Array, golden: Array, shape: tuple[int, ...], dtype: DType,
    tolerance: Tolerance,
) -> None:  # fmt: skip
    """The share of bad elements in each cell of a grid; the rows are all axes but the last."""
    columns = max(actual.size // max(int(np.prod(shape[:-1])), 1), 1) if shape else 1
    if columns == actual.size:  # one axis: folded like lines of text
        columns = int(np.ceil(np.sqrt(actual.size)))
    rows = -(-actual.size // columns)
    high, wide = min(rows, _CELLS), min(columns, _CELLS)
    bad, all_ = np.zeros(high * wide), np.zeros(high * wide)
    for start, (one, other) in blocks(actual, golden):
        error, size, _, special = errors_of(one, other, overflow_from(dtype))
        wrong = special | (error > tolerance.allowed(size))
        row, column = np.divmod(np.arange(start, start + one.size), columns)
        cell = row * high // rows * wide + column * wide // columns
        bad += np.bincount(cell, wrong, high * wide)
        all_ += np.bincount(cell, minlength=high * wide)
    share = np.where(all_ > 0, bad / np.maximum(all_, 1), np.nan).reshape(high, wide)
    image = axes.imshow(
        share, cmap="Reds", vmin=0, vmax=max(float(np.nanmax(share)), 1e-9), aspect="auto",
        extent=(0, columns, rows, 0), interpolation="nearest",
    )  # fmt: skip
    axes.set(xlabel="last axis" if len(shape) > 1 else "folded", ylabel="all axes before it")
    axes.set_title("where the bad elements lie (share)", fontsize=10)
    figure.colorbar(image, ax=axes)
