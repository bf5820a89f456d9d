"""`compare`: an output against its golden values by one of the field's precision standards; and the comparison as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DOUBLE, FLOAT, DType, dtype_of_name, dtype_of_numpy
from openaclnn.core.interop import to_numpy
from openaclnn.core.writing import replacing
from openaclnn.engines.threads import blocks_of, map_in_order
from openaclnn.testing.extras import dtype_named, need
from openaclnn.testing.figures import (
    STANDARDS,
    STRETCH,
    ULP_STEPS,
    Array,
    Computed,
    Rules,
    Tally,
    Yardstick,
    cross_check,
    errors_of,
    faults,
    flat,
    overflow_from,
    precision,
    spacing,
)

_ULP_LABELS = [f"<= {step:g}" for step in ULP_STEPS] + [f"> {ULP_STEPS[-1]:g}"]
_SPECIAL_LABELS = ["NaN/Inf equal", "NaN/Inf differ"]  # elements without an error in ULP


@dataclass(frozen=True)
class BadElement:
    """An element that is not as it should be."""

    position: tuple[int, ...]
    actual: float
    golden: float
    error: float
    ulp: float


@dataclass(frozen=True)
class Comparison:
    """A verdict with its figures; true if it passed, and its text says why it did not."""

    standard: str
    dtype: str
    shape: tuple[int, ...]
    passed: bool
    reasons: tuple[str, ...]  # what the standard found fault with
    count: int = 0
    bad: int = 0
    figures: dict[str, float] | None = None
    ulp_histogram: tuple[tuple[str, int], ...] = ()
    first_bad: tuple[BadElement, ...] = ()
    output: str = ""  # which of several it is of
    golden_dtype: str = ""
    notes: tuple[str, ...] = ()  # on how it was judged

    def __bool__(self) -> bool:
        return self.passed

    def as_dict(self) -> dict[str, Any]:
        """Everything, in types that JSON has (but for NaN and infinities among the numbers)."""
        return asdict(self) | {"ulp_histogram": dict(self.ulp_histogram)}

    def __str__(self) -> str:
        verdict = "passed" if self.passed else "failed"
        prefix = f"{self.output}, " if self.output else ""
        lines = [f"{verdict}: {prefix}{self.standard}, {self.dtype}, shape {self.shape}"]
        lines += [f"  {sentence}" for sentence in (*self.notes, *self.reasons)]
        for each in self.first_bad:
            lines.append(
                f"  {each.position}: {each.actual!r}, golden {each.golden!r}, "
                f"error {each.error:.3g}, {each.ulp:.3g} ULP"
            )
        return "\n".join(lines)


def compare(
    actual: Any,
    golden: Any,
    third: Any = None,
    *,
    standard: str = STANDARDS[0],
    dtype: str | DType | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    ptol: float | None = None,
    limit: float | None = None,
    level: str = "L1",
    positions: int = 10,
) -> Comparison:
    """Compare an output with its golden values; `third`, another party's output, is for cross_check.

    `dtype` is the output's where the array has another, as a dump widened to float32 has; without it, the narrower of
    output and golden values says which limits hold, and `notes` has that where they differ. `rtol`, `atol`, `ptol`
    (the share of elements that may be off) and `limit` take the place of the standard's own numbers. Golden values of a
    wider type are rounded to the output's for close, stat_rel_err and binary alone, whose bounds are smaller than that; those that
    overflow it are infinite for all. Integers must be equal.

    Several outputs, as named tuples, are compared each with its own; the answer is that of the worst.
    """
    rules = Rules(standard, rtol, atol, ptol, limit, level)
    if hasattr(golden, "_fields"):
        return _compare_each(actual, golden, third, rules, dtype, positions)
    return judge(_array(actual), _array(golden), third, rules, dtype, positions)


def _array(value: Any) -> Array:
    """An array of any library as NumPy's; PyTorch's also from a device, and those with gradients."""
    try:
        return to_numpy(value.detach().cpu() if hasattr(value, "detach") else value)
    except TypeError as error:
        raise TypeError(f"compare expects {error}") from None


def _compare_each(
    actual: Any, golden: Any, third: Any, rules: Rules, dtype: str | DType | None, kept: int
) -> Comparison:
    if not isinstance(actual, tuple) or len(actual) != len(golden):
        raise ValueError(f"{len(golden)} outputs are expected: {', '.join(golden._fields)}")
    verdicts = {}
    others = (None,) * len(golden) if third is None else third
    for name, result, known, other in zip(golden._fields, actual, golden, others, strict=True):
        if known is None:
            continue  # not computed
        if result is None:
            raise ValueError(f"the output {name} is missing")
        verdicts[name] = judge(_array(result), _array(known), other, rules, dtype, kept)
    return worst(verdicts)


def worst(verdicts: Mapping[str, Comparison]) -> Comparison:
    """The comparison of several outputs that decides: one that failed, else the one with the largest error."""

    def rank(name: str) -> tuple[bool, float, float]:
        verdict = verdicts[name]
        return (
            verdict.passed,
            -verdict.bad / max(verdict.count, 1),
            -(verdict.figures or {}).get("max_ulp", 0.0),
        )

    name = min(verdicts, key=rank)
    return replace(verdicts[name], output=name)


def judge(
    actual: Array,
    golden: Array | Computed,
    third: Any,
    rules: Rules,
    dtype: str | DType | None,
    kept: int,
) -> Comparison:
    """`compare` on NumPy arrays; each element of the golden values is looked at once, but for cross_check's and bad ones."""
    for array in (actual, golden):
        if dtype_of_numpy(array.dtype) is None and array.dtype.kind not in "biufc":
            raise ValueError(f"numbers are expected, not an array of {array.dtype}")
    judged_type, known = _judged_type(actual, golden, dtype), dtype_of_numpy(golden.dtype)
    about: dict[str, Any] = {
        "golden_dtype": known.name if known else str(golden.dtype),
        "notes": _notes(actual, known, judged_type, dtype),
    }
    if actual.shape != golden.shape:
        text = f"the output has shape {actual.shape}, the golden values have {golden.shape}"
        return Comparison(rules.standard, judged_type.name, actual.shape, False, (text,), **about)
    stick = Yardstick.of(rules, judged_type)
    lines = flat(actual), flat(golden)

    def tallied(stretch: slice) -> Tally:
        tally = Tally(stick, kept)
        one, other = (line[stretch] for line in lines)
        for start, out, expected, differs in stick.blocks(one, other):
            tally.add(stretch.start + start, out, expected, differs)
        return tally

    tally, *others = map_in_order(
        tallied, blocks_of(lines[0].size, elements=STRETCH) or [slice(0, 0)]
    )
    for other in others:  # in their order, so that threads do not matter
        tally.join(other)
    reasons = list(faults(tally, rules))
    figures = tally.figures()
    if rules.standard == "cross_check" and not stick.exact:
        if third is None:
            raise ValueError("cross_check needs the output of a third party")
        peer = _array(third)
        if peer.shape != actual.shape:
            raise ValueError(f"the third output has shape {peer.shape}, the first {actual.shape}")
        reasons += cross_check(*lines, flat(peer), stick.dtype, rules.level, figures)
    return Comparison(
        rules.standard, judged_type.name, actual.shape, not reasons, tuple(reasons), tally.count, tally.bad,
        figures, tuple(zip(_ULP_LABELS + _SPECIAL_LABELS, tally.bins(), strict=True)),
        tuple(_bad_elements(tally, lines, actual)), **about,
    )  # fmt: skip


def _judged_type(actual: Array, golden: Array | Computed, dtype: str | DType | None) -> DType:
    """The dtype whose limits hold: the one that is said, or of two floating ones the narrower."""
    if dtype is not None:
        return dtype if isinstance(dtype, DType) else dtype_named(dtype)
    actual_dtype, known = dtype_of_numpy(actual.dtype) or FLOAT, dtype_of_numpy(golden.dtype)
    if known is None or (actual_dtype.kind, known.kind) != ("floating", "floating"):
        return actual_dtype
    return max(actual_dtype, known, key=precision)


def _notes(actual: Array, known: DType | None, judged: DType, dtype: Any) -> tuple[str, ...]:
    """Golden values of float64 are the rule, of the output's dtype usual; others are worth a word."""
    actual_dtype = dtype_of_numpy(actual.dtype)
    if dtype is not None or actual_dtype is None or known in (None, actual_dtype, DOUBLE):
        return ()
    narrower = ", the narrower" if judged is not actual_dtype else ""
    return (
        f"the output is {actual_dtype}, the golden values are {known}: judged as {judged}{narrower}",
    )


def _bad_elements(tally: Tally, lines: tuple[Array, Array], actual: Array) -> Iterator[BadElement]:
    shape = actual.shape if actual.dtype.kind != "c" else (*actual.shape, 2)
    for place in tally.places:
        one, other = (float(line[place : place + 1][0]) for line in lines)
        error = abs(one - other)
        dtype = tally.stick.dtype
        unit = spacing(np.array(other), dtype) if dtype.kind == "floating" else 1.0
        position = tuple(int(index) for index in np.unravel_index(place, shape))
        yield BadElement(position, one, other, error, error / float(unit))


# A comparison as a picture: error against magnitude, the ULP histogram, and where the bad elements lie.


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
    stick, lines = yardstick_of(comparison, rules), (flat(actual)[::step], flat(golden)[::step])
    seen = []
    for _, error, size, bad in _judged(stick, *lines):
        shown = (size > 0) & (error > 0)
        seen.append((size[shown], error[shown], bad[shown]))
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
    for start, error, _, wrong in _judged(stick, actual, golden):
        row, column = np.divmod(np.arange(start, start + error.size), columns)
        cell = row * high // rows * wide + column * wide // columns
        bad += np.bincount(cell, wrong, high * wide)
        all_ += np.bincount(cell, minlength=high * wide)
    share = np.where(all_ > 0, bad / np.maximum(all_, 1), np.nan).reshape(high, wide)
    return _Map(share, rows, columns)


def _judged(
    stick: Yardstick, actual: Array, golden: Array
) -> Iterator[tuple[int, Array, Array, Array]]:
    """Blocks as the verdict sees them: start, errors, sizes, which are bad."""
    overflow = overflow_from(stick.dtype)
    for start, one, other, differs in stick.blocks(actual, golden):
        error, size, special = errors_of(one, other, overflow)
        bad = error > stick.allowed(size)
        bad = bad if special is None else bad | special[1]
        yield start, error, size, bad if differs is None else differs


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
        _errors(left, errors_at(*pair, _POINTS), yardstick_of(comparison, rules))
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


def _errors(axes: Any, errors: _Errors, stick: Yardstick) -> None:
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
        if not stick.exact:
            axes.plot(ends, stick.allowed(ends), "-", color="#57606a", lw=1, label="allowed")
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
