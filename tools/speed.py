"""Tables of speed from the files of cases in docs/, which `openaclnn bench --csv` writes: that of large problems, each row with the filter
that makes it, stands in docs/benchmarks.md; `tables_of` makes those that the site alone shows. The picture of speed is
drawn from the same file: `python -m tools.speed`. `python -m tools.speed NEW.csv ...` first enters the cases of new runs into the files in docs/."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from openaclnn.bench.regimes import ELEMENTWISE, REGIMES
from openaclnn.bench.reports import (
    Table,
    cases_table,
    first_engine,
    pictures,
    same_kind,
    short_tables,
)
from openaclnn.bench.timing import Row
from openaclnn.bench.training import OURS
from openaclnn.engines.dispatch import ENGINES

__all__ = [
    "CALLS",
    "LARGE",
    "ROWS",
    "calls_table",
    "enter",
    "picture",
    "results_of",
    "speed_table",
    "tables_of",
]

ROWS = (
    ("ELU backward, from the input", "elu_backward input bandwidth"),
    ("ELU backward, from the result", "elu_backward result bandwidth"),
    ("L1 backward, dense gradient", "l1_loss_backward dense gradient bandwidth"),
    ("Smooth L1 backward, dense gradient", "smooth_l1_loss_backward dense gradient bandwidth"),
    ("Smooth L1 backward, one gradient", "smooth_l1_loss_backward one gradient bandwidth"),
    ("Cross entropy, 32,000 classes, mean", "cross_entropy_loss_grad mean vocabulary 32k"),
    ("Cross entropy, 128,256 classes, mean", "cross_entropy_loss_grad mean vocabulary 128k"),
    ("Cross entropy, transposed", "cross_entropy_loss_grad mean transposed"),
    ("NLL 2-d, 21 classes, patches", "nll_loss2d_backward patches 21 classes"),
    ("NLL 2-d, 21 classes, random pixels", "nll_loss2d_backward random 21 classes"),
    ("NLL 2-d, 150 classes, random pixels", "nll_loss2d_backward random 150 classes"),
)
"""What a row is called, and the filter."""

_DOCS = Path(__file__).parent.parent / "docs"
LARGE, CALLS = _DOCS / "benchmarks-large.csv", _DOCS / "benchmarks-calls.csv"
BY_SHAPE, STEPS = _DOCS / "benchmarks-shapes.csv", _DOCS / "benchmarks-steps.csv"
PICTURE = _DOCS / "pictures" / "benchmark.png"
KIND = "same"
"""The kind of calls that the table shows, those that do not change; the file has all."""
WAYS = {"arrays": "NumPy arrays", "tensors": "PyTorch's tensors", "torch": "PyTorch itself"}

_DTYPES = {"FLOAT": "F32", "BFLOAT16": "BF16", "FLOAT16": "F16"}


def results_of(path: Path) -> list[dict[str, Any]]:
    """The results of a file of cases, as the benchmark's JSON file has them: one for each machine."""
    families = {
        each.name: each.family or each.name
        for device in REGIMES.values()
        for regimes in device.values()
        for each in regimes
    }
    machines: dict[
        str, dict[tuple[Any, ...], Row]
    ] = {}  # of a case that was timed again the last run
    for line in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        engine = line["contender"].removesuffix(" out=")
        row: Row = {name: line[name] for name in ("operator", "variant", "regime", "layout", "dtype", "contender", "status", "note")}  # fmt: skip
        row |= {name: float(line[name]) if line[name] else None for name in ("of_copy", "of_round")}
        row |= {
            "section": "speed", "family": families.get(line["regime"], line["regime"]), "engine": engine, "ours": engine in (*ENGINES, OURS),
            "threads": int(line["threads"]) if line["threads"] else None, "disturbed": line["disturbed"] == "True",
            "shape": [int(size) for size in line["shape"].split("x")] if line["shape"] else [],
            "ratios": {name[2:]: float(text) for name, text in line.items() if name.startswith("x ") and text},
        }  # fmt: skip
        row |= {"median_us": float(line["median_us"])} if line["median_us"] else {}
        machines.setdefault(line["machine"], {})[_key(line)] = row
    found = []
    for name, cases in machines.items():
        rows = list(cases.values())
        cores = max(row["threads"] or 0 for row in rows)
        machine = {"cpu": name, "cores": cores} if cores else {"cpu": "", "cores": 0, "gpu": name}
        found.append({"machine": machine, "mode": "beside PyTorch", "rows": rows})
    return found


def _key(line: dict[str, str]) -> tuple[str, ...]:
    """What a line of a file of cases is known by."""
    return tuple(line[name] for name in ("machine", "operator", "variant", "regime", "threads", "dtype", "contender"))  # fmt: skip


def enter(new: Path) -> Path:
    """Enter a run's cases into the file in docs/ that they belong to, in place of what was measured before: training steps, rows by shape, elementwise
    operators, or large problems. Returns that file."""
    lines = list(csv.DictReader(new.read_text(encoding="utf-8").splitlines()))
    regimes = {line["regime"] for line in lines}
    elementwise = {each.name for device in ELEMENTWISE.values() for each in device}
    target = (
        STEPS if any(line["contender"] == OURS for line in lines)
        else BY_SHAPE if all(regime.startswith(("shape ", "output transposed")) for regime in regimes)
        else _DOCS / "benchmarks-elementwise.csv" if regimes <= elementwise
        else LARGE
    )  # fmt: skip
    before = list(csv.DictReader(target.read_text(encoding="utf-8").splitlines())) if target.exists() else []  # fmt: skip
    every = {_key(line): line for line in (*before, *lines)}
    names = dict.fromkeys(name for line in every.values() for name in line)
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(every.values())
    target.write_text(text.getvalue(), encoding="utf-8")
    return target


def picture() -> bytes:
    """How many times as fast as PyTorch, on the first machine, as PNG."""
    results = results_of(LARGE)[0]
    rows = [row | {"of_copy": None} for row in results["rows"] if row["family"] in ("middle", "large", "odd")]  # fmt: skip
    return pictures(results | {"rows": rows})["ratios"]


def tables_of(name: str) -> str:
    """The tables of a page that its file only names: of large problems on the cores or the GPU, of rows by shape and of training steps there, of elementwise
    operators, of calls that change, or a CSV file as it is."""
    if name.endswith(".csv"):
        headings, *lines = csv.reader((_DOCS / name).read_text(encoding="utf-8").splitlines())
        return _table(headings, lines)
    if name == "small calls":
        return calls_table(CALLS.read_text(encoding="utf-8"))
    what, _, number = name.partition(" ")
    if what == "elementwise":
        return _elementwise()
    if what == "calls":
        return _calls(int(number)).markdown()
    if what == "shapes":
        return _of_machines(BY_SHAPE, _by_shape)
    if what == "steps":
        return _of_machines(STEPS, lambda each: cases_table("", each["rows"]).markdown())
    rows = [row for row in results_of(LARGE)[int(number)]["rows"] if row["regime"] != "override"]
    return "\n".join(f"### {each.title}\n\n{each.markdown()}" for each in short_tables(rows))


def _elementwise() -> str:
    """A line for each operator: the worst of its variants on each machine, of a copy and beside PyTorch, FLOAT / BFLOAT16."""
    lines: dict[str, list[str]] = {}
    headings = ["operator"]
    for results in results_of(_DOCS / "benchmarks-elementwise.csv"):
        machine = results["machine"]
        headings += [f"{machine.get('gpu') or machine['cpu']}: of copy", "x torch"]
        worst: dict[str, dict[str, dict[str, float]]] = {}
        for row in first_engine(results["rows"]):
            cells = worst.setdefault(row["operator"], {"copy": {}, "torch": {}})
            for kind, value in (("copy", row["of_copy"]), ("torch", same_kind(row))):
                if value is not None and row["dtype"] in ("FLOAT", "BFLOAT16"):
                    cells[kind][row["dtype"]] = min(value, cells[kind].get(row["dtype"], value))
        for operator, cells in worst.items():
            lines.setdefault(operator, [f"`{operator}`"]).extend(
                " / ".join(f"{cells[kind][dtype]:.2f}" for dtype in ("FLOAT", "BFLOAT16") if dtype in cells[kind])
                for kind in ("copy", "torch")
            )  # fmt: skip
    return _table(headings, lines.values())


def _of_machines(path: Path, table: Callable[[dict[str, Any]], str]) -> str:
    """A table for each machine of a file of cases, below its name."""
    return "\n\n".join(f"### {_machine(each)}\n\n{table(each)}" for each in results_of(path))


def _machine(results: dict[str, Any]) -> str:
    machine = results["machine"]
    cpu = machine["cpu"].replace("(R)", "").replace(" Processor", "")
    return machine.get("gpu") or f"{cpu}, {machine['cores']} cores"


def _by_shape(results: dict[str, Any]) -> str:
    """A line for each shape and variant: PyTorch's time over ours into `out=`, and on a GPU before it our share of a copy's pace, FLOAT / BFLOAT16."""
    of_copy, usual = "gpu" in results["machine"], ("rows", "mean")
    cells: dict[str, dict[str, dict[str, str]]] = {}
    told = [row for row in results["rows"] if row["contender"].endswith(" out=") and row["ours"]]
    for row in told:
        value = f"{same_kind(row):.2f}"
        variant = "" if row["variant"] in usual else f", {row['variant']}"
        shape = row["regime"].removeprefix("shape ") + variant
        shown = f"{row['of_copy']:.2f}, {value}" if of_copy else value
        cells.setdefault(shape, {}).setdefault(row["operator"], {})[row["dtype"]] = shown
    operators = list(dict.fromkeys(row["operator"] for row in told))
    lines = []
    for shape, shown in cells.items():
        dtypes = [shown.get(name, {}) for name in operators]
        lines.append(
            [shape, *(" / ".join(each[d] for d in _DTYPES if d in each) for each in dtypes)]
        )
    ratios = [ratio for row in told if (ratio := same_kind(row)) is not None]
    ahead = sum(ratio < 1 for ratio in ratios)
    said = f"PyTorch's time over ours is {median(ratios):.2f} in the median of {len(ratios)} cases, and below 1 in {ahead}."
    return f"{_table(['classes along axis 1', *operators], lines)}\n\n{said}"


def _calls(number: int) -> Table:
    """The ranges over the operators on a machine; columns that no operator has are left out."""
    lines = list(csv.DictReader(CALLS.read_text(encoding="utf-8").splitlines()))
    machine = list(dict.fromkeys(line["machine"] for line in lines))[number]
    own = [line for line in lines if line["machine"] == machine]
    for line in own:
        line |= {way: line[way] or line[f"{way} two-phase"] for way in ("arrays", "tensors")}
    names = [name for name in own[0] if name != "machine" and "two-phase" not in name and any(line[name] for line in own)]  # fmt: skip
    left = ("operator", "calls", "dtype", "engine")
    whole = Table("", names, len(left), [[line[name] for name in names] for line in own])
    return _ranges(whole, "calls", "operators")


_UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}


def _ranges(table: Table, by: str, counted: str) -> Table:
    """A line for each cell of one column: how many lines have it, and the least and the largest of their numbers, but for those into `out=`."""
    place = table.headings.index(by)
    columns = [n for n, heading in enumerate(table.headings) if n >= table.left and "out=" not in heading]  # fmt: skip
    lines: list[list[str]] = []
    for name in dict.fromkeys(line[place] for line in table.lines):
        members = [line for line in table.lines if line[place] == name]
        cells = [_range(line[column] for line in members) for column in columns]
        lines.append([name, str(len(members)), *cells])
    headings = [by, counted, *(table.headings[column] for column in columns)]
    return Table(table.title, headings, 1, lines, table.notes)


def _range(cells: Iterable[str]) -> str:
    """Durations or ratios; what is neither is not counted."""
    sizes = {}
    for cell in cells:
        value, _, unit = cell.partition(" ")
        if value.replace(".", "", 1).isdigit():
            sizes[cell] = float(value) * _UNITS.get(unit, 1.0)
    if len(sizes) < 2:
        return "".join(sizes)
    least, largest = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
    same_unit = least.partition(" ")[2] == largest.partition(" ")[2]
    return f"{least.partition(' ')[0] if same_unit else least} to {largest}"


def speed_table(reports: Iterable[dict[str, Any]]) -> str:
    """Markdown: for each CPU PyTorch's time over ours, for each GPU what part of a copy too."""
    columns = [column for results in reports for column in _columns(results)]
    lines = [
        [title, f"`{only}`", *(cells.get(only, "-") for _, cells in columns)]
        for title, only in ROWS
    ]
    return _table(["large problems", "`--only`", *(heading for heading, _ in columns)], lines)


def _table(headings: list[str], lines: Iterable[list[str]]) -> str:
    rows = [headings, ["---"] * len(headings), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _columns(results: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Headings with cells by filter, of the calls into `out=`."""
    machine = results["machine"]
    into = [row for row in results["rows"] if row["ours"] and row["contender"].endswith(" out=") and "median_us" in row]  # fmt: skip
    if "gpu" in machine:
        told = [row for row in into if row["dtype"] != "FLOAT16"]
        yield _column(f"{machine['gpu']}, of a copy", told, [row["of_copy"] for row in told], 2)
        yield _column(f"{machine['gpu']}, times PyTorch", told, [*map(same_kind, told)], 1)
        return
    count = max(row["threads"] for row in into)
    own = [row for row in into if row["threads"] == count and row["engine"] == "cpu"]
    yield _column(f"{machine['cpu']}, {count} threads, times PyTorch", own, [*map(same_kind, own)], 1)  # fmt: skip


def _column(
    heading: str, rows: Sequence[Row], values: Sequence[float | None], digits: int
) -> tuple[str, dict[str, str]]:
    known = {
        (f"{row['operator']} {row['variant']} {row['regime']}", row["dtype"]): f"{value:.{digits}f}"
        for row, value in zip(rows, values, strict=True)
        if value is not None
    }
    dtypes = [name for name in _DTYPES if any(dtype == name for _, dtype in known)]
    cells = {
        only: " / ".join(known.get((only, dtype), "-") for dtype in dtypes) for only, _ in known
    }
    return f"{heading} ({' / '.join(_DTYPES[name] for name in dtypes)})", cells


def calls_table(sheet: str) -> str:
    """Markdown, a line an operator: on each machine ours and PyTorch's, allocating and into `out=`, from a CSV file of calls."""
    cells: dict[str, dict[str, str]] = {}
    for row in csv.DictReader(sheet.splitlines()):
        dtype, *marks = row["dtype"].split()
        if row["calls"] == KIND and dtype == "FLOAT":
            machine = row["machine"].replace("(R)", "").replace(" Processor", "")
            for name, title in WAYS.items():
                if row[name]:
                    told = " / ".join(filter(None, (row[name], row[f"{name} out="])))
                    heading = f"{machine.removesuffix(', beside PyTorch')}: {title}"
                    cells.setdefault(row["operator"], {})[heading] = " ".join([told, *marks])
    headings = list(dict.fromkeys(heading for told in cells.values() for heading in told))
    lines = [
        [operator, *(told.get(heading, "-") for heading in headings)]
        for operator, told in cells.items()
    ]
    return _table(["small calls, FLOAT", *headings], lines)


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(enter(Path(path)))
    PICTURE.write_bytes(picture())
