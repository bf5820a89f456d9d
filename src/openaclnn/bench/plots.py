"""Results as pictures, each of which answers a question: how near an operator comes to a copy, how many times as fast as PyTorch it is, and
at which sizes.

Of several numbers of threads the largest is drawn; of our engines the first, which is the one that calls get by themselves.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from openaclnn.bench.reports import (
    SMALL,
    SPEED,
    first_engine,
    grouped,
    merged,
    name_of,
    same_kind,
    section_of,
)
from openaclnn.bench.timing import Row
from openaclnn.core.writing import write_bytes
from openaclnn.testing.extras import need

_COLORS = {"FLOAT": "#2f6fb0", "FLOAT16": "#d08700", "BFLOAT16": "#1a7f37"}
_COLUMNS = 3


def need_matplotlib() -> Any:
    """Matplotlib's figures, without a window and without state of the process."""
    return need("matplotlib.figure", "pictures are drawn by matplotlib").Figure


def draw_all(reports: Iterable[dict[str, Any]]) -> list[dict[str, bytes]]:
    """The pictures of each machine, in the page's order."""
    return [pictures(results) for results in merged(reports)]


def write_pictures(drawn: Sequence[dict[str, bytes]], folder: Path) -> list[Path]:
    """PNG files, a few for each machine; several machines have numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, pictures in enumerate(drawn, 1):
        for name, data in pictures.items():
            stem = name.replace(" ", "-") + (f"-{number}" if len(drawn) > 1 else "")
            written.append(folder / f"{stem}.png")
            write_bytes(written[-1], data)
    return written


def pictures(results: dict[str, Any]) -> dict[str, bytes]:
    """PNG by name, those that have something to show."""
    rows = [row for row in section_of(results, SPEED) if "median_us" in row]
    most = max((row["threads"] or 0 for row in rows), default=0)
    rows = [row for row in rows if (row["threads"] or 0) == most]
    large = [row for row in first_engine(rows) if row["family"] not in SMALL]
    drawn = {
        "of a copy": _operators(large, lambda row: row["of_copy"], "How near to a copy of as many bytes? Speed over that of the copy"),
        "ratios": _operators(first_engine(rows), same_kind, "How many times as fast as PyTorch? PyTorch's time over ours"),
        "ratios by size": _sizes(first_engine(rows)),
    }  # fmt: skip
    where = name_of(results) + (f", {most} thread{'s' * (most > 1)}" if most else "")
    return {name: _png(figure, where) for name, figure in drawn.items() if figure is not None}


def _png(figure: Any, where: str) -> bytes:
    figure.suptitle(f"{figure.get_suptitle()}\n{where}", fontsize=10)
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110, metadata={"Software": None})
    return data.getvalue()


def _operators(rows: Sequence[Row], value: Callable[[Row], float | None], question: str) -> Any:
    """A line for each operator and dtype from the worst of its cases to the best, with a dot at the median; operators with the best first.

    None where there is one value alone: that is a number, not a picture."""
    cases: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        known = value(row)
        if known is not None and row["dtype"] in _COLORS:
            cases.setdefault(row["operator"], {}).setdefault(row["dtype"], []).append(known)
    if sum(len(values) for dtypes in cases.values() for values in dtypes.values()) < 2:
        return None
    middles = {name: median(chain.from_iterable(dtypes.values())) for name, dtypes in cases.items()}
    names = sorted(cases, key=lambda name: -middles[name])
    figure = need_matplotlib()(figsize=(8.6, 1.3 + 0.42 * len(names)), layout="constrained")
    axes = figure.subplots()
    for place, name in enumerate(names):
        for shift, (dtype, color) in zip((-0.22, 0.0, 0.22), _COLORS.items(), strict=True):
            values = cases[name].get(dtype)
            if values:
                y = place + shift
                axes.plot([min(values), max(values)], [y, y], "-", color=color, lw=1.6)
                axes.plot([median(values)], [y], "o", color=color, ms=4.5)
    axes.set(xscale="log", yticks=range(len(names)), ylim=(len(names) - 0.5, -0.5))
    axes.set_yticklabels(names, fontsize=9)
    _log_ticks(axes.xaxis, axes.get_xlim())
    axes.axvline(1.0, color="#57606a", lw=1.0, ls="--")
    axes.grid(axis="x", color="#d0d7de", lw=0.5)
    figure.suptitle(question)
    legend = "dots are medians, lines reach from the worst case to the best"
    figure.supxlabel(legend, x=0.01, ha="left", fontsize=8)
    _dtypes_legend(figure, {dtype for dtypes in cases.values() for dtype in dtypes})
    return figure


def _sizes(rows: Sequence[Row]) -> Any:
    """The ratio to PyTorch against elements, a panel for each operator that was timed at several sizes, all with the same axes.

    Odd sizes stand beside round ones for a reason other than their size."""
    panels: list[tuple[str, dict[str, dict[int, list[float]]]]] = []
    round_sizes = [row for row in rows if row["family"] != "odd"]
    for (operator,), timed in grouped(round_sizes, "operator").items():
        lines: dict[str, dict[int, list[float]]] = {}
        for row in timed:
            ratio = same_kind(row)
            if ratio is not None and row["layout"] == "contiguous" and row["dtype"] in _COLORS:
                sizes = lines.setdefault(row["dtype"], {})
                sizes.setdefault(math.prod(row["shape"]), []).append(ratio)
        lines = {dtype: sizes for dtype, sizes in lines.items() if len(sizes) > 1}
        if lines:
            panels.append((operator, lines))
    if not panels:
        return None
    wide = min(len(panels), _COLUMNS)
    deep = math.ceil(len(panels) / wide)
    size = (max(3.6 * wide, 6.4), 2.4 * deep + 0.9)
    figure = need_matplotlib()(figsize=size, layout="constrained")
    every = figure.subplots(deep, wide, squeeze=False, sharex=True, sharey=True).reshape(-1)
    for axes, (operator, lines) in zip(every, panels, strict=False):
        for dtype, sizes in lines.items():
            elements = sorted(sizes)
            ratios = [median(sizes[count]) for count in elements]
            axes.plot(elements, ratios, "o-", ms=3, lw=1.2, color=_COLORS[dtype])
        axes.axhline(1.0, color="#57606a", lw=1.0, ls="--")
        axes.set(xscale="log", yscale="log")
        axes.set_title(operator, fontsize=9)
        axes.tick_params(labelsize=8, labelbottom=True)
        axes.grid(color="#d0d7de", lw=0.5)
    for axes in every[len(panels) :]:
        axes.set_axis_off()
    _log_ticks(every[0].yaxis, every[0].get_ylim())
    figure.suptitle("At which sizes? PyTorch's time over ours")
    figure.supxlabel("elements", fontsize=9)
    _dtypes_legend(figure, {dtype for _, lines in panels for dtype in lines})
    return figure


def _log_ticks(axis: Any, limits: tuple[float, float]) -> None:
    """Plain numbers, and more of them where the range is less than a decade."""
    ticker = need("matplotlib.ticker", "pictures are drawn by matplotlib")
    near = limits[1] < 2 * limits[0]  # the steps of a logarithm are too far apart
    axis.set_major_locator(ticker.MaxNLocator(4) if near else ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axis.set_minor_locator(ticker.NullLocator())


def _dtypes_legend(figure: Any, dtypes: set[str]) -> None:
    lines = need("matplotlib.lines", "pictures are drawn by matplotlib")
    handles = [
        lines.Line2D([], [], color=color, marker="o", ms=4, lw=1.2, label=dtype)
        for dtype, color in _COLORS.items()
        if dtype in dtypes
    ]
    figure.legend(handles=handles, loc="outside lower right", ncols=3, fontsize=8, frameon=False)
