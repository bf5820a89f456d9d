"""Results as tables, whoever shows them: made from what the JSON file holds, of one run or of several on one machine."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from openaclnn.bench.timing import Row

INEXACT, SLOW = "†", "~"
SMALL = ("call", "cache")  # of a copy: what is not bound by memory has nothing to compare with
CLOSEST = 8
FILES = ("--json", "--markdown", "--csv", "--html", "--plots")

TIMED = {
    "rows": "", "elementwise": "Elementwise operators", "calls": "Calls that change", "training": "Forward and backward",
    "overrides": "PyTorch's operators, replaced",
}  # fmt: skip
"""The sections in which contenders take turns, by the names of their rows in results, with the titles of their tables."""
SECTIONS = (*TIMED, "first_calls", "memory")
# What a row is known by: what was measured again replaces what was measured before.
_KEY = ("operator", "regime", "variant", "dtype", "threads", "contender", "cache")


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


def merged(reports: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One result for each machine, device and mode, in the order in which they come first."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for results in reports:
        machine = results["machine"]
        where = (machine["cpu"], machine["cores"], machine.get("gpu"), results["mode"])
        groups.setdefault(where, []).append(results)
    return [_together(group) for group in groups.values()]


def _together(group: Sequence[dict[str, Any]]) -> dict[str, Any]:
    copies = [results["copy_gbps"] for results in group if results["copy_gbps"]]
    whole = {
        **group[-1],
        "commands": list(dict.fromkeys(results["command"] for results in group)),
        "dates": list(dict.fromkeys(results["date"] for results in group)),
        "copy_gbps": max(copies, default=None),
    }
    for name in SECTIONS:
        rows = grouped([row for each in group for row in each.get(name, ())], *_KEY)
        whole[name] = [members[-1] for members in rows.values()]
    return whole


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


def threads_of(row: Row) -> str:
    """Who ran a contender of ours, and how many they may be."""
    count, team = row["threads"], row.get("team", "")
    if team == "caller" and count:
        return team if count == 1 else f"{team} of {count}"
    return f"{count} {team}" if count else team


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
_NUMBERS = ("time", "+-", "host", "GB/s", "of copy", "of same")


def cases_table(title: str, rows: Sequence[Row]) -> Table:
    """A line for each of our ways to run a case: the time, what it is beside a copy, and the others' time over ours. Columns in which nothing
    is said are left out; of one operator, its name is."""
    lines: list[dict[str, str]] = []
    for (operator, case, _), group in grouped(rows, "operator", "case", "threads").items():
        memory = {f"{row['contender']} MiB": f"{row['extra_bytes'] / 2**20:.0f}" for row in group if "extra_bytes" in row}  # fmt: skip
        for place, row in enumerate([row for row in group if row["ours"]]):
            named = {} if place else {"operator": operator, "case": ", ".join(filter(None, case)), **memory}  # fmt: skip
            lines.append(named | {"ours": row["contender"], "threads": threads_of(row)} | _numbers(row))  # fmt: skip
    if len({row["operator"] for row in rows}) == 1:
        title = ": ".join(filter(None, (rows[0]["operator"], title)))
        lines = [line | {"operator": ""} for line in lines]
    peers = dict.fromkeys(name for line in lines for name in line if name not in _TEXTS)
    names = [name for name in dict.fromkeys((*_TEXTS, *_NUMBERS, *peers)) if any(line.get(name) for line in lines)]  # fmt: skip
    texts = sum(name in _TEXTS for name in names)
    cells = [[line.get(name, "") for name in names] for line in lines]
    return Table(title, names, texts, cells, notes(rows), cases=True)


def _numbers(row: Row) -> dict[str, str]:
    """What is said of one of our ways, by column."""
    if row["status"] != "ok":
        return {"time": row["status"]}
    spread = (row["q3_us"] - row["q1_us"]) / 2 / row["median_us"]
    said = {"time": duration(row["median_us"]), "+-": f"{spread:.0%}"}
    for name, key, digits in (("GB/s", "gbps", 1), ("of copy", "of_copy", 2), ("of same", "of_same", 2)):  # fmt: skip
        if row.get(key) is not None:
            said[name] = number(row[key], digits)
    inexact = row.get("inexact", ())
    said |= {f"x {peer}": number(ratio) + f" {INEXACT}" * (peer in inexact) for peer, ratio in row["ratios"].items()}  # fmt: skip
    if row.get("host_ratios") and row["threads"] is None:  # on a CPU they are the same
        said["host"] = duration(row["host_us"])
        said |= {f"x {peer}, host": number(ratio) for peer, ratio in row["host_ratios"].items()}
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


def short_tables(rows: Sequence[Row]) -> list[Table]:
    """By operator and regime the median and the worst: times PyTorch, of a copy, and odd sizes beside round ones; those that have something to say."""
    ours = first_engine(rows)
    large = [row for row in ours if row["family"] not in SMALL]
    tables = (
        _short("PyTorch's time over ours, median / worst", ours, same_kind, "family"),
        _short("Of a copy, median / worst", large, lambda row: row["of_copy"], "family"),
        _short("Odd sizes: throughput over that of the round neighbour, median / worst",
               ours, lambda row: row["of_round"], "regime"),
    )  # fmt: skip
    return [table for table in tables if table.lines]


def _short(
    title: str, rows: Sequence[Row], value_of: Callable[[Row], float | None], by: str
) -> Table:
    operators = dict.fromkeys(row["operator"] for row in rows)
    timed = [row | {"value": value} for row in rows if (value := value_of(row)) is not None]
    lines = []
    for (regime,), at_regime in grouped(timed, by).items():
        for (count,), members in grouped(at_regime, "threads").items():
            team = ", ".join(dict.fromkeys(row["team"] for row in members))
            values = {name: [row["value"] for row in each] for (name,), each in grouped(members, "operator").items()}  # fmt: skip
            cells = {name: f"{number(median(each))} / {number(min(each))}" for name, each in values.items()}  # fmt: skip
            line = [cells.get(name, "") for name in operators]
            lines.append([regime, f"{count} ({team})" if count else team, *line])
    return Table(title, ["regime", "threads", *operators], 2, lines)


def counts(rows: Sequence[Row]) -> str:
    """In how many timings PyTorch's way of the same kind is faster, and torch.compile; "" without PyTorch."""
    ours = first_engine(rows)
    same = [ratio for ratio in map(same_kind, ours) if ratio is not None]
    every = [[v for name, v in row["ratios"].items() if name.startswith("torch.compile") and v] for row in ours]  # fmt: skip
    compiled = [min(ratios) for ratios in every if ratios]
    faster, of_compiled = (
        f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)} timings"
        for ratios in (same, compiled)
    )
    text = f"PyTorch's way of the same kind is faster in {faster}"
    return f"{text}, `torch.compile` in {of_compiled}" if compiled else text if same else ""


def closest(rows: Sequence[Row]) -> list[str]:
    """The timings in which PyTorch is furthest ahead, or least behind."""
    ours = enumerate(first_engine(rows))
    ranked = [(ratio, place, row) for place, row in ours if (ratio := same_kind(row))]
    return [
        f"{ratio:.2f}: {row['operator']} {row['variant']} {row['regime']} {row['dtype']}, "
        f"{row['contender']}, {threads_of(row)}"
        for ratio, _, row in sorted(ranked)[:CLOSEST]
    ]


def range_table(title: str, rows: Iterable[Row], by: str) -> Table:
    """A line for each of our ways at what is named: of how many cases, and the least and the largest of their times and ratios."""
    ours = [row for row in rows if row["ours"] and "median_us" in row]
    columns: dict[str, Callable[[Row], float | None]] = {"time": lambda row: row["median_us"], "of same": lambda row: row.get("of_same")}  # fmt: skip
    for peer in dict.fromkeys(peer for row in ours for peer in row["ratios"]):
        columns[f"x {peer}"] = lambda row, peer=peer: row["ratios"].get(peer)  # type: ignore[misc]
    lines = []
    for (name, way), members in grouped(ours, by, "contender").items():
        values = [[v for row in members if (v := value(row)) is not None] for value in columns.values()]  # fmt: skip
        spreads = [_spread(column, number if place else duration) for place, column in enumerate(values)]  # fmt: skip
        lines.append([name, way, str(len(members)), *spreads])
    return Table(title, [by, "ours", "cases", *columns], 2, lines)


def _spread(values: Sequence[float], told: Callable[[float], str]) -> str:
    """From the least to the largest; a unit that both have is said once."""
    if not values:
        return ""
    least, largest = told(min(values)), told(max(values))
    unit = largest.partition(" ")[2]
    return largest if least == largest else f"{least.removesuffix(f' {unit}')} to {largest}"


def section_tables(results: dict[str, Any], page: bool) -> Iterator[Table]:
    """The tables of all sections, those that have something in them; on a page long ones in short."""
    for name, title in TIMED.items():
        rows = results.get(name, ())
        if name in ("rows", "calls") and not page:
            for members in grouped(rows, "operator").values():
                yield cases_table(title, members)
        elif name == "calls" and rows:
            yield range_table(title, rows, "regime")
            same = [row for row in rows if row["regime"] == "same"]
            yield cases_table("Calls that do not change", same)
        elif name == "overrides" and page and rows:
            yield range_table(title, rows, "operator")
        elif name != "rows" and rows:
            yield cases_table(title, rows)
    if first := results.get("first_calls", ()):
        headings = ["operator", "shape", "contender", "cache", "import", "first call", "later calls"]  # fmt: skip
        lines = [[*_process(row), row["cache"], *_first_call(row)] for row in first]
        yield Table("First call in a fresh process", headings, 4, lines)
    if memory := results.get("memory", ()):
        # A call that allocates its result needs the output's size; into `out=` nothing is the right answer.
        headings = ["operator", "shape", "contender", "MiB above what was there"]
        lines = [[*_process(row), row["note"] if "note" in row else f"{row['extra_bytes'] / 2**20:.1f}"] for row in memory]  # fmt: skip
        yield Table("Memory beyond arguments and output", headings, 3, lines)


def _process(row: Row) -> list[str]:
    return [row["operator"], size(row["shape"]), row["contender"]]


def _first_call(row: Row) -> list[str]:
    if "note" in row:
        return [row["note"], "-", "-"]
    first, later = (duration(row[name] * 1e3) for name in ("first_ms", "again_ms"))
    return [f"{row['import_s']:.2f} s", first + (" !" if row["disturbed"] else ""), later]


def timed_rows(results: dict[str, Any]) -> list[Row]:
    """Of all sections that time contenders."""
    return [row for name in TIMED for row in results.get(name, ())]


def find_wrong(results: dict[str, Any]) -> list[Row]:
    """Our rows with wrong results."""
    return [row for row in timed_rows(results) if row["status"] == "WRONG" and row["ours"]]


def disturbances(results: dict[str, Any]) -> list[str]:
    """How much of a result was timed beside other work, and how much on a machine that was slow; nothing of what there was none."""
    kinds = {
        "disturbed": "cases (!) were timed while other processes ran",
        "slow": f"cases ({SLOW}) were timed while the machine was slow",
    }
    told = []
    for name, what in kinds.items():
        rows = [row for row in timed_rows(results) if name in row]
        cases = [members[-1][name] for members in grouped(rows, "operator", "case", "threads").values()]  # fmt: skip
        if any(cases):
            told.append(f"{sum(cases)} of {len(cases)} {what}")
    return told
