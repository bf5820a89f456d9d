"""Results as pictures: the fraction of a copy, the ratios to PyTorch, and how throughput grows with size.

A panel for each operator. Of several numbers of threads the largest is drawn; of our engines the first, which is the
one that calls get by themselves.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from openaclnn.bench.tables import SMALL, by_operator, first_engine, merged, name_of, same_kind
from openaclnn.bench.timing import COPY, Row
from openaclnn.core.writing import write_bytes
from openaclnn.testing.extras import need

_COLORS = {"FLOAT": "#2f6fb0", "FLOAT16": "#d08700", "BFLOAT16": "#1a7f37"}
_LINES = {"ours": "#2f6fb0", "PyTorch": "#d1242f", "a copy": "#57606a"}
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
    for number, own in enumerate(drawn, 1):
        for name, data in own.items():
            stem = name.replace(" ", "-") + (f"-{number}" if len(drawn) > 1 else "")
            written.append(folder / f"{stem}.png")
            write_bytes(written[-1], data)
    return written


def pictures(results: dict[str, Any]) -> dict[str, bytes]:
    """PNG by name, those that have something to show."""
    rows = [row for row in results["rows"] if "median_us" in row]
    most = max((row["threads"] or 0 for row in rows), default=0)
    rows = [row for row in rows if (row["threads"] or 0) == most]
    large = [row for row in first_engine(rows) if row["family"] not in SMALL]
    drawn = {
        "of a copy": _ranges(large, lambda row: row["of_copy"], "of the speed of a copy of as many bytes"),
        "ratios": _ranges(first_engine(rows), same_kind, "PyTorch's time over ours (above 1 we are faster)"),
        "scaling": _scaling(rows),
    }  # fmt: skip
    where = name_of(results) + (f", {most} thread{'s' * (most > 1)}" if most else "")
    return {name: _png(figure, where) for name, figure in drawn.items() if figure is not None}


def _png(figure: Any, where: str) -> bytes:
    figure.suptitle(where, fontsize=10)
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110, metadata={"Software": None})
    return data.getvalue()


def _panels(count: int, high: float) -> tuple[Any, Iterator[Any]]:
    """A figure with a panel each, and the panels; nothing is drawn in the last places that are over."""
    wide = min(count, _COLUMNS)
    deep = math.ceil(count / wide)
    figure = need_matplotlib()(figsize=(4.3 * wide, high * deep + 0.5), layout="constrained")
    axes = figure.subplots(deep, wide, squeeze=False).reshape(-1)
    for left in axes[count:]:
        left.set_axis_off()
    return figure, iter(axes[:count])


def _ranges(rows: Sequence[Row], value: Callable[[Row], float | None], label: str) -> Any | None:
    """Medians as dots on a line from the worst to the best, a line for each regime and dtype."""
    told = [row for row in rows if value(row) is not None]
    groups = by_operator(told)
    if not groups:
        return None
    deepest = max(len({row["family"] for row in own}) for _, own in groups)
    figure, axes = _panels(len(groups), 0.9 + 0.34 * deepest)
    for operator, own in groups:
        _range_panel(next(axes), operator, own, value)
    figure.supxlabel(label, fontsize=9)
    dtypes = [name for name in _COLORS if any(row["dtype"] == name for row in told)]
    handles = [_dot(_COLORS[name], name) for name in dtypes]
    figure.legend(handles=handles, loc="outside lower right", ncols=3, fontsize=8, frameon=False)
    return figure


def _dot(color: str, label: str) -> Any:
    lines = need("matplotlib.lines", "pictures are drawn by matplotlib")
    return lines.Line2D([], [], color=color, marker="o", ms=4, lw=1.2, label=label)


def _range_panel(
    axes: Any, operator: str, rows: Sequence[Row], value: Callable[[Row], float | None]
) -> None:
    families = list(dict.fromkeys(row["family"] for row in rows))
    for place, family in enumerate(families):
        for shift, dtype in zip((-0.22, 0.0, 0.22), _COLORS, strict=True):
            found = [value(r) for r in rows if r["family"] == family and r["dtype"] == dtype]
            known = [each for each in found if each is not None]
            if known:
                y = place + shift
                axes.plot([min(known), max(known)], [y, y], "-", color=_COLORS[dtype], lw=1.2)
                axes.plot([median(known)], [y], "o", color=_COLORS[dtype], ms=4)
    axes.axvline(1.0, color="#57606a", lw=0.8, ls="--")
    axes.set(xscale="log", yticks=range(len(families)), ylim=(len(families) - 0.5, -0.5))
    axes.set_yticklabels(families, fontsize=8)
    axes.set_title(operator, fontsize=9)
    ticker = need("matplotlib.ticker", "pictures are drawn by matplotlib")
    low, high = axes.get_xlim()
    near = high < 2 * low  # the steps of a logarithm are too far apart
    axes.xaxis.set_major_locator(
        ticker.MaxNLocator(4) if near else ticker.LogLocator(subs=(1, 2, 5))
    )
    axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="#d0d7de", lw=0.5)


def _scaling(rows: Sequence[Row]) -> Any | None:
    """Bytes a second against elements: of each operator the first variant, in FLOAT."""
    found = []
    for operator, own in by_operator(rows):
        lines = _lines([row for row in own if row["variant"] == own[0]["variant"]])
        if len(lines.get("ours", {})) > 1:
            found.append((operator, lines))
    if not found:
        return None
    figure, panels = _panels(len(found), 2.7)
    for operator, lines in found:
        axes = next(panels)
        for name, points in lines.items():
            sizes = sorted(points)
            speeds = [points[size] for size in sizes]
            axes.plot(sizes, speeds, "o-", ms=3, lw=1.2, color=_LINES[name], label=name)
        axes.set(xscale="log", yscale="log")
        axes.minorticks_off()
        axes.set_title(operator, fontsize=9)
        axes.tick_params(labelsize=8)
        axes.grid(color="#d0d7de", lw=0.5)
        axes.legend(fontsize=8)
    figure.supxlabel("elements", fontsize=9)
    figure.supylabel("GB/s", fontsize=9)
    return figure


def _lines(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """GB/s by number of elements; sizes of one kind alone where the run has a row of them."""
    plain = [
        row
        for row in rows
        if row["layout"] == "contiguous" and row["dtype"] == "FLOAT" and row["family"] != "odd"
    ]
    series = [row for row in plain if row["family"] in ("scaling", "middle")]
    drawn = series if len({math.prod(row["shape"]) for row in series}) > 1 else plain
    lines: dict[str, dict[int, float]] = {}
    into = {f"{row['engine']} out=" for row in first_engine(drawn)}
    for name, contenders in (("ours", into), ("PyTorch", {"torch out="}), ("a copy", {COPY})):
        points = {
            math.prod(row["shape"]): row["gbps"]
            for row in drawn
            if row["contender"] in contenders and row["gbps"]
        }
        if points:
            lines[name] = points
    return lines
