"""Results as somebody reads them: one form of table for all sections, on the terminal and on a page with pictures, and every timing as CSV.

All are made from what the JSON file holds.
"""

from __future__ import annotations

import base64
import csv
import io
import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from openaclnn.bench.timing import Row
from openaclnn.core.writing import write_bytes
from openaclnn.testing.extras import need

INEXACT, SLOW = "†", "~"
SMALL = ("call", "cache")  # of a copy: what is not bound by memory has nothing to compare with
FILES = ("--json", "--csv", "--html", "--plots")
SPEED, CALLS = "speed", "calls"
TITLES = {
    SPEED: "", "elementwise": "Elementwise operators", CALLS: "Calls that change", "training": "Forward and backward", "modules": "Modules",
    "overrides": "PyTorch's operators, replaced", "first-call": "First calls in a fresh process",
}  # fmt: skip
"""The sections, with the titles of their tables."""


@dataclass(frozen=True)
class Table:
    """A table, its cells written; the first columns are text and the others numbers."""

    title: str
    headings: Sequence[str]
    left: int
    lines: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    cases: bool = False  # a line without a first cell belongs to the case above

    def markdown(self) -> str:
        rule = ["---"] * self.left + ["---:"] * (len(self.headings) - self.left)
        rows = [self.headings, rule, *self.lines]
        escaped = ([cell.replace("|", "\\|") for cell in cells] for cells in rows)
        table = "\n".join("| " + " | ".join(cells) + " |" for cells in escaped) + "\n"
        listed = "".join(f"- {note}\n" for note in self.notes)
        return f"{table}\n{listed}" if listed else table


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows that have the same under these names, as they came first; "case" is what was computed, with its marks."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = tuple([case_of(row) if name == "case" else row.get(name) for name in names])
        groups.setdefault(key, []).append(row)
    return groups


def command_of(arguments: Sequence[str]) -> str:
    """The command to paste for the same results: without the files they were written to."""
    kept: list[str] = []
    files = False
    for word in arguments:
        named = files and not word.startswith("--")  # --json may stand alone
        files = word in FILES
        if not (files or named or word.startswith(tuple(f"{name}=" for name in FILES))):
            kept.append(word)
    return shlex.join(["openaclnn", "bench", *kept])


def name_of(results: dict[str, Any]) -> str:
    """The machine that results come from."""
    machine = results["machine"]
    gpu: str | None = machine.get("gpu")
    return gpu or f"{machine['cpu']}, {machine['cores']} cores, {results['mode']}"


def duration(microseconds: float | None) -> str:
    """Three digits and a unit."""
    if microseconds is None:
        return "-"
    for limit, factor, unit in ((1e3, 1.0, "us"), (1e6, 1e-3, "ms")):
        if microseconds < limit:
            return f"{microseconds * factor:.3g} {unit}"
    return f"{microseconds * 1e-6:.3g} s"


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def case_of(row: Row) -> tuple[str, ...]:
    """What was computed, with its marks; a shape that is in the regime's name is not said again."""
    shape = size(row["shape"])
    named = "" if shape in row["regime"] else shape
    return row["variant"], row["regime"], named, row["dtype"] + marks(row)


def marks(row: Row) -> str:
    """The signs of what went on beside a case; sections without a yardstick, and older results, tell of no slow machine."""
    signs = {"!": row["disturbed"], SLOW: row.get("slow", False)}
    return "".join(f" {sign}" for sign, shown in signs.items() if shown)


def notes(rows: Iterable[Row]) -> list[str]:
    """Each distinct reason why a contender was not timed, or is marked, with where it was seen first."""
    seen: dict[tuple[str, str], str] = {}
    for row in rows:
        if row["status"] != "ok":
            where = f"{row['variant']}, {row['regime']}, {row['dtype']}"
            seen.setdefault((row["contender"], row["note"]), f"{row['status']} at {where}")
    return [f"{name}: {status}: {note}" for (name, note), status in seen.items()]


_TEXTS = ("operator", "case", "ours", "threads")
_NUMBERS: dict[str, tuple[str, Callable[[float], str]]] = {
    "time": ("median_us", duration), "+-": ("spread", "{:.0%}".format), "host": ("caller_us", duration), "later": ("again_us", duration),
    "import": ("import_us", duration), "GB/s": ("gbps", "{:.1f}".format), "of copy": ("of_copy", number), "of same": ("of_same", number),
}  # fmt: skip
"""What is said of one of our ways, by column: from which field, and how it is written."""


def cases_table(title: str, rows: Sequence[Row]) -> Table:
    """A line for each of our ways to run a case: the time, what it is beside a copy, and the others' time over ours. Columns in which nothing
    is said are left out; of one operator, its name is."""
    lines: list[dict[str, str]] = []
    for (operator, case, _), group in grouped(rows, "operator", "case", "threads").items():
        memory = {f"{row['contender']} MiB": f"{row['extra_bytes'] / 2**20:.0f}" for row in group if "extra_bytes" in row}  # fmt: skip
        for place, row in enumerate([row for row in group if row["ours"]]):
            named = {} if place else {"operator": operator, "case": ", ".join(filter(None, case)), **memory}  # fmt: skip
            lines.append(named | {"ours": row["contender"], "threads": str(row["threads"] or "")} | _said(row))  # fmt: skip
    if len({row["operator"] for row in rows}) == 1:
        title = ": ".join(filter(None, (rows[0]["operator"], title)))
        lines = [line | {"operator": ""} for line in lines]
    peers = dict.fromkeys(name for line in lines for name in line if name not in _TEXTS)
    names = [name for name in dict.fromkeys((*_TEXTS, *_NUMBERS, *peers)) if any(line.get(name) for line in lines)]  # fmt: skip
    texts = sum(name in _TEXTS for name in names)
    cells = [[line.get(name, "") for name in names] for line in lines]
    return Table(title, names, texts, cells, notes(rows), cases=True)


def _said(row: Row) -> dict[str, str]:
    """The cells of one of our ways, without those of texts."""
    if row["status"] != "ok":
        return {"time": row["status"]}
    told = row | {"spread": (row["q3_us"] - row["q1_us"]) / 2 / row["median_us"]} if "q1_us" in row else row  # fmt: skip
    others = {"": row["ratios"]}
    if row.get("host_ratios") and row["threads"] is None:  # on a CPU they are the same
        told |= {"caller_us": row["host_us"]}
        others[", host"] = row["host_ratios"]
    said = {name: write(told[key]) for name, (key, write) in _NUMBERS.items() if told.get(key) is not None}  # fmt: skip
    inexact = row.get("inexact", ())
    for ending, ratios in others.items():
        said |= {f"x {peer}{ending}": number(ratio) + f" {INEXACT}" * (peer in inexact) for peer, ratio in ratios.items()}  # fmt: skip
    return said


def headline_table(results: dict[str, Any]) -> Table:
    """Of each case our fastest engine, also beside NumPy's."""
    told = []
    for group in grouped(results["rows"], "operator", "case", "threads").values():
        rows = {row["contender"]: row for row in group if row["status"] == "ok"}
        ours = min((row for row in rows.values() if row["ours"]), key=lambda row: row["median_us"])
        plain = rows.get("numpy out=")
        beside = {"NumPy": plain["median_us"] / ours["median_us"]} if plain else {}
        told.append(ours | {"ratios": ours["ratios"] | beside})
    return cases_table("", told)


def same_kind(row: Row) -> float | None:
    """PyTorch's time over ours by its way of the same kind: allocating, or into `out=` where it has that."""
    ratios = row["ratios"]
    allocating: float | None = ratios.get("torch")
    return allocating if row["contender"] == row["engine"] else ratios.get("torch out=", allocating)


def first_engine(rows: Iterable[Row]) -> list[Row]:
    """The timed rows of our first engine, which is the one that calls get by themselves: it alone counts in short tables."""
    timed = [row for row in rows if row["ours"] and "median_us" in row]
    return [row for row in timed if row["engine"] == timed[0]["engine"]]


def section_of(results: dict[str, Any], section: str) -> list[Row]:
    """The rows of a section."""
    return [row for row in results["rows"] if row["section"] == section]


def short_tables(rows: Sequence[Row]) -> list[Table]:
    """By operator and regime the median and the worst: times PyTorch, of a copy, and odd sizes beside round ones; those that have something to say."""
    ours = first_engine(rows)
    large = [row for row in ours if row["family"] not in SMALL]
    tables = (
        _short("PyTorch's time over ours, median / worst", ours, same_kind, "family", *_faster(ours)),
        _short("Of a copy, median / worst", large, lambda row: row["of_copy"], "family"),
        _short("Odd sizes: throughput over that of the round neighbour, median / worst",
               ours, lambda row: row["of_round"], "regime"),
    )  # fmt: skip
    return [table for table in tables if table.lines]


def _short(
    title: str, rows: Sequence[Row], value_of: Callable[[Row], float | None], by: str, *said: str
) -> Table:
    operators = dict.fromkeys(row["operator"] for row in rows)
    timed = [row | {"value": value} for row in rows if (value := value_of(row)) is not None]
    lines = []
    for (regime,), at_regime in grouped(timed, by).items():
        for (count,), members in grouped(at_regime, "threads").items():
            values = {name: [row["value"] for row in each] for (name,), each in grouped(members, "operator").items()}  # fmt: skip
            cells = {name: f"{number(median(each))} / {number(min(each))}" for name, each in values.items()}  # fmt: skip
            line = [cells.get(name, "") for name in operators]
            lines.append([regime, str(count or ""), *line])
    return Table(title, ["regime", "threads", *operators], 2, lines, said)


def _faster(ours: Sequence[Row]) -> Iterator[str]:
    """In how many timings PyTorch's way of the same kind is faster, and torch.compile."""
    compiled = [[v for name, v in row["ratios"].items() if name.startswith("torch.compile") and v] for row in ours]  # fmt: skip
    for peer, every in {
        "PyTorch's way of the same kind": [ratio for row in ours if (ratio := same_kind(row)) is not None],
        "`torch.compile`": [min(ratios) for ratios in compiled if ratios],
    }.items():  # fmt: skip
        if every:
            yield f"{peer} is faster in {sum(ratio < 1 for ratio in every)} of {len(every)} timings"


def case_tables(results: dict[str, Any]) -> Iterator[Table]:
    """Every case: a table for each section, of operators by size and of calls one for each operator."""
    for section, title in TITLES.items():
        rows = section_of(results, section)
        parts = grouped(rows, "operator").values() if section in (SPEED, CALLS) else [rows]
        yield from (cases_table(title, part) for part in parts if part)


def terminal_tables(results: dict[str, Any]) -> Iterator[Table]:
    """All cases, and operators by size in short where those are several."""
    yield from case_tables(results)
    rows = section_of(results, SPEED)
    if len(grouped(rows, "operator", "case")) > 1:
        yield from short_tables(rows)


def find_wrong(results: dict[str, Any]) -> list[Row]:
    """Our rows with wrong results."""
    return [row for row in results["rows"] if row["status"] == "WRONG" and row["ours"]]


def disturbances(results: dict[str, Any]) -> list[str]:
    """How much of a result was timed beside other work, and how much on a machine that was slow; nothing of what there was none."""
    kinds = {
        "disturbed": "cases (!) were timed while other processes ran",
        "slow": f"cases ({SLOW}) were timed while the machine was slow",
    }
    told = []
    for name, what in kinds.items():
        rows = [row for row in results["rows"] if name in row]
        cases = [members[-1][name] for members in grouped(rows, "section", "operator", "case", "threads").values()]  # fmt: skip
        if any(cases):
            told.append(f"{sum(cases)} of {len(cases)} {what}")
    return told


def report_page(reports: Iterable[dict[str, Any]], drawn: Sequence[dict[str, bytes]]) -> str:
    """One HTML file with nothing from outside: of each run its machine and command, its pictures, and the tables, the short ones first."""
    markdown_it = need("markdown_it", "reports are rendered by markdown-it-py")
    parts = []
    for results, pictures in zip(reports, drawn, strict=True):
        parts += [f"## {name_of(results)}\n", _preface(results)]
        parts += [
            f"![{name}](data:image/png;base64,{base64.b64encode(data).decode()})\n"
            for name, data in pictures.items()
        ]
        tables = (*short_tables(section_of(results, SPEED)), *case_tables(results))
        parts += [f"### {table.title}\n\n{table.markdown()}" for table in tables]
    render = markdown_it.MarkdownIt("commonmark", {"html": False}).enable("table").render
    wide = r'<div class="wide" tabindex="0">\g<0></div>'
    body = re.sub(r"(?s)<table>.*?</table>|<p><img[^>]*></p>", wide, render("\n".join(parts)))
    body = re.sub(r"(?<=<th)[^<]+", lambda match: match[0].replace("_", "_<wbr>"), body)
    page = (files("openaclnn.bench") / "report.html").read_text(encoding="utf-8")
    return page.replace("{body}", body)


def _preface(results: dict[str, Any]) -> str:
    machine, versions = results["machine"], results["versions"]
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    facts = ", ".join(f"{name} {value}" for name, value in machine.items() if value is not None)
    engines = "; ".join(f"{name}: {state}" for name, state in results["engines"].items())
    copied = results["copy_gbps"]
    return "\n".join(
        [
            f"- machine: {facts}",
            f"- threads: {results['threads']}",
            f"- versions: {listed}",
            f"- engines: {engines}",
            *([f"- fastest copy: {number(copied, 1)} GB/s, read and written bytes together"] if copied else []),
            *(f"- **{noise}**" for noise in disturbances(results)),
            f"- date: {results['date']}",
            f"- command: `{results['command']}`",
        ]
    ) + "\n"  # fmt: skip


_FIELDS = (
    "section", "operator", "variant", "regime", "layout", "dtype", "threads", "contender", "status",
    "disturbed", "slow", "median_us", "q1_us", "q3_us", "minimum_us", "host_us", "rounds", "inner", "gbps", "of_copy",
    "of_round", "of_same", "again_us", "import_us", "extra_bytes",
)  # fmt: skip


def sheet(reports: Sequence[dict[str, Any]]) -> str:
    """Every timing as CSV, a line for each contender of each case."""
    target = io.StringIO()
    every = [(results, row) for results in reports for row in results["rows"]]
    ratios = dict.fromkeys(f"x {peer}" for _, row in every for peer in row["ratios"])
    names = ("machine", "mode", "date", "shape", "round shape", *_FIELDS, *ratios, "note")
    lines = csv.DictWriter(target, names, extrasaction="ignore", lineterminator="\n")
    lines.writeheader()
    for results, row in every:
        cells = row | {f"x {peer}": ratio for peer, ratio in row["ratios"].items()}
        cells |= {name: f"{value:.4g}" for name, value in cells.items() if isinstance(value, float)}
        lines.writerow(cells | {
            "machine": results["machine"].get("gpu") or results["machine"]["cpu"], "mode": results["mode"],
            "date": results["date"], "shape": size(row["shape"]), "round shape": size(row.get("near", ())),
        })  # fmt: skip
    return target.getvalue()


# Pictures, each of which answers a question: how near an operator comes to a copy, how many times as fast as PyTorch it is, and at which sizes. Of
# several numbers of threads the largest is drawn; of our engines the first, which is the one that calls get by themselves.

_COLORS = {"FLOAT": "#2f6fb0", "FLOAT16": "#d08700", "BFLOAT16": "#1a7f37"}
_PANELS = 3


def need_matplotlib() -> Any:
    """Matplotlib's figures, without a window and without state of the process."""
    return need("matplotlib.figure", "pictures are drawn by matplotlib").Figure


def write_pictures(drawn: Sequence[dict[str, bytes]], folder: Path) -> list[Path]:
    """PNG files, a few for each run; several runs have numbers."""
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
    wide = min(len(panels), _PANELS)
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
