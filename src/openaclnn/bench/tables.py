"""Results as tables, whoever shows them: made from what the JSON file holds, of one run or of several on one machine."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from openaclnn.bench.calls import ALLOCATING, ARRAYS, INTO, PEER, TENSORS, TWO_PHASE
from openaclnn.bench.timing import Row
from openaclnn.bench.training import MODULE, OURS, PEERS, THEIRS

SPEED_PEERS = ("torch", "torch out=", "torch.compile", "torch.compile ops")
INEXACT, SLOW = "†", "~"
SMALL = ("call", "cache")  # of a copy: what is not bound by memory has nothing to compare with
CLOSEST = 8
ELEMENTWISE_DTYPES = ("FLOAT", "FLOAT16", "BFLOAT16")
FILES = ("--json", "--markdown", "--csv", "--html", "--plots")

SECTIONS = ("rows", "elementwise", "calls", "training", "overrides", "first_calls", "memory")
"""What results have rows of, by their names there."""
_TIMED = SECTIONS[:5]  # those in which contenders take turns
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
    text: str = ""
    cases: bool = field(
        default=False, kw_only=True
    )  # a line without a first cell belongs to the case above

    def markdown(self) -> str:
        rule = ["---"] * self.left + ["---:"] * (len(self.headings) - self.left)
        rows = [self.headings, rule, *self.lines]
        escaped = ([cell.replace("|", "\\|") for cell in cells] for cells in rows)
        table = "\n".join("| " + " | ".join(cells) + " |" for cells in escaped) + "\n"
        listed = "".join(f"- {note}\n" for note in self.notes)
        return "\n".join(
            [*([self.text] if self.text else []), table, *([listed] if listed else [])]
        )


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
    """Rows that have the same under these names, as they came first; threads are there as a table names them, and what was computed with its marks."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = tuple([_MADE[name](row) if name in _MADE else row.get(name) for name in names])
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
    count, team = row["threads"], row["team"]
    if team == "caller" and count:
        return team if count == 1 else f"{team} of {count}"
    return f"{count} {team}" if count else team


def case_of(row: Row) -> tuple[str, ...]:
    """What was computed, with its marks."""
    return row["variant"], row["regime"], size(row["shape"]), row["dtype"] + marks(row)


def marks(row: Row) -> str:
    """The signs of what went on beside a case; sections without a yardstick, and older results, tell of no slow machine."""
    signs = {"!": row["disturbed"], SLOW: row.get("slow", False)}
    return "".join(f" {sign}" for sign, shown in signs.items() if shown)


_MADE: dict[str, Callable[[Row], Any]] = {
    "case": case_of, "size": lambda row: size(row["shape"]), "team": threads_of,
}  # fmt: skip
"""What rows are grouped by that is made of several of their fields."""


def by_operator(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    """Rows grouped by operator, in their order."""
    return [(name, members) for (name,), members in grouped(rows, "operator").items()]


def notes(rows: Iterable[Row]) -> list[str]:
    """Each distinct reason why a contender was not timed, or is marked, with where it was seen first."""
    seen: dict[tuple[str, str], str] = {}
    for row in rows:
        if row["status"] != "ok":
            where = f"{row['variant']}, {row['regime']}, {row['dtype']}"
            seen.setdefault((row["contender"], row["note"]), f"{row['status']} at {where}")
    return [f"{name}: {status}: {note}" for (name, note), status in seen.items()]


def _present(names: Sequence[str], rows: Iterable[Row]) -> list[str]:
    """Those of the contenders that the rows are of."""
    present = {row["contender"] for row in rows}
    return [name for name in names if name in present]


def speed_table(operator: str, rows: Sequence[Row]) -> Table:
    """A line for each way to call ours."""
    peers = _present(SPEED_PEERS, rows)
    lines = []
    for (case,), members in grouped([row for row in rows if row["ours"]], "case").items():
        for place, row in enumerate(members):
            start = ["" if place else ", ".join(case), row["contender"], threads_of(row)]
            if row["status"] != "ok":
                lines.append([*start, row["status"], *[""] * (3 + len(peers))])
                continue
            low, middle, high = row["q1_us"], row["median_us"], row["q3_us"]
            lines.append([
                *start, duration(middle), f"{(high - low) / 2 / middle:.0%}", number(row["gbps"], 1), number(row["of_copy"]),
                *(number(row["ratios"].get(peer)) + f" {INEXACT}" * (peer in row["inexact"]) for peer in peers),
            ])  # fmt: skip
    headings = ["case", "ours", "threads", "time", "+-", "GB/s", "of copy", *(f"x {peer}" for peer in peers)]  # fmt: skip
    return Table(operator, headings, 3, lines, notes(rows), cases=True)


def elementwise_table(rows: Sequence[Row]) -> Table:
    """A line for each kernel and size: of a copy, and the others' times over ours, in each dtype."""
    ours = first_engine(rows)
    compiled = [name for name in _present(SPEED_PEERS, rows) if name.startswith("torch.compile")]
    columns: dict[str, Callable[[Row], float | None]] = {
        "of copy": lambda row: row["of_copy"], "x torch": same_kind,
        **{f"x {name}": partial(_ratio, name) for name in compiled},
    }  # fmt: skip
    lines = []
    for key, group in grouped(ours, "operator", "variant", "regime", "team").items():
        members = {row["dtype"]: row for row in group}
        in_order = [members[name] for name in ELEMENTWISE_DTYPES if name in members]
        times = " / ".join(duration(row["median_us"]) + marks(row) for row in in_order)
        shares = [" / ".join(number(value(row)) for row in in_order) for value in columns.values()]
        lines.append([*key, times, *shares])
    headings = ["operator", "variant", "elements", "threads", "ours", *columns]
    return Table("Elementwise operators", headings, 4, lines, notes(rows))


def _ratio(peer: str, row: Row) -> float | None:
    ratio: float | None = row["ratios"].get(peer)
    return ratio


def headline_table(results: dict[str, Any]) -> Table:
    """One line for each case: our fastest engine beside NumPy's, PyTorch's and a copy."""
    lines = []
    for (operator, case, _), group in grouped(results["rows"], "operator", "case", "threads").items():  # fmt: skip
        rows = {row["contender"]: row for row in group if row["status"] == "ok"}
        ours = min((row for row in rows.values() if row["ours"]), key=lambda row: row["median_us"])
        plain = rows.get("numpy out=")
        times = [plain["median_us"] / ours["median_us"] if plain else None, ours["ratios"].get("torch out=")]  # fmt: skip
        lines.append([
            f"{operator} ({case[0]}){' !' * ours['disturbed']}", case[2], threads_of(ours), duration(ours["median_us"]),
            number(ours["gbps"], 1), number(ours["of_copy"]), *(number(value, 1) for value in times),
        ])  # fmt: skip
    headings = ["operator", "problem", "threads", "ours", "GB/s", "of a copy", "x NumPy", "x PyTorch"]  # fmt: skip
    counts = {line[2] for line in lines}
    if len(counts) == 1:  # the same in every line: said once, which leaves room on narrow terminals
        headings, lines = [name for name in headings if name != "threads"], [[*line[:2], *line[3:]] for line in lines]  # fmt: skip
        return Table("", headings, 1, lines, notes=[f"threads: {counts.pop()}"])
    return Table("", headings, 1, lines)


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
    operators = list(dict.fromkeys(row["operator"] for row in rows))
    values: dict[tuple[str, int], dict[str, list[float]]] = {}
    teams: dict[tuple[str, int], dict[str, None]] = {}
    for row in rows:
        value, key = value_of(row), (row[by], row["threads"] or 0)
        if value is not None:
            values.setdefault(key, {}).setdefault(row["operator"], []).append(value)
            teams.setdefault(key, {})[row["team"]] = None

    def cell(numbers: Sequence[float]) -> str:
        return f"{number(median(numbers))} / {number(min(numbers))}" if numbers else ""

    order = list(dict.fromkeys(regime for regime, _ in values))  # the threads of a regime together
    lines = []
    for key in sorted(values, key=lambda key: order.index(key[0])):
        team = ", ".join(teams[key])
        cells = [cell(values[key].get(operator, [])) for operator in operators]
        lines.append([key[0], f"{key[1]} ({team})" if key[1] else team, *cells])
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


WAYS = (ARRAYS, ARRAYS + INTO, ARRAYS + TWO_PHASE, TENSORS, TENSORS + INTO, TENSORS + TWO_PHASE)


def calls_table(rows: Sequence[Row], page: bool) -> Table:
    """A line for each operator, regime, dtype and engine; on a terminal the operator's name has no room beside the columns."""
    present = {row["contender"].removeprefix(row["engine"]) for row in rows if row["ours"]}
    ways = [way for way in WAYS if way in present]
    peers = _present((PEER + ALLOCATING, PEER + INTO), rows)
    lines = []
    for key, members in grouped(rows, "operator", "regime", "dtype").items():
        timed = {row["contender"]: row for row in members if "median_us" in row}
        for engine in dict.fromkeys(row["engine"] for row in members if row["ours"]):
            ours = [timed.get(engine + way) for way in ways]
            ratios = [_call_ratio(timed, engine, peer) for peer in peers]
            same = next((row["of_same"] for row in ours if row is not None), None)
            lines.append([
                *key[:2], key[2] + marks(members[0]), engine,
                *("" if row is None else duration(row["median_us"]) for row in (*ours, *map(timed.get, peers))),
                *("" if value is None else number(value) for value in (*ratios, same)),
            ])  # fmt: skip
    headings = [
        "operator", "calls", "dtype", "engine", *(way.removeprefix(", ") for way in ways), *peers,
        *(f"x {peer}" for peer in peers), "of same",
    ]  # fmt: skip
    if page:
        return Table("Calls that change", headings, 4, lines, notes(rows))
    title, shorter = f"{rows[0]['operator']}: calls that change", [line[1:] for line in lines]
    return Table(title, headings[1:], 3, shorter, notes(rows))


def _call_ratio(timed: dict[str, Row], engine: str, peer: str) -> float | None:
    """Ours beside PyTorch's way of the same kind, on tensors; both phases beside either, where they are alone."""
    way = peer.removeprefix(PEER)
    ours = timed.get(engine + TENSORS + way) or timed.get(engine + TENSORS + TWO_PHASE)
    return None if ours is None else ours["ratios"].get(peer)


def steps_table(rows: Sequence[Row]) -> Table:
    peers = _present(PEERS, [row for row in rows if "median_us" in row])
    weighed = _present((OURS, *PEERS), [row for row in rows if "extra_bytes" in row])
    lines = []
    for key, group in grouped(rows, "operator", "regime", "size", "dtype", "threads").items():
        members = {row["contender"]: row for row in group}
        ours = members[OURS]
        start = [*key[:3], ours["dtype"] + " !" * ours["disturbed"]]
        if ours["status"] != "ok":
            lines.append([*start, ours["status"], *[""] * (1 + 2 * len(peers) + len(weighed))])
            continue
        times = [duration(members[p].get("median_us")) if p in members else "" for p in peers]
        ratios = [number(ours["ratios"][p]) if p in ours["ratios"] else "" for p in peers]
        extra = [members.get(p, {}).get("extra_bytes") for p in weighed]
        memory = ["" if each is None else f"{each / 2**20:.0f}" for each in extra]
        lines.append([*start, duration(ours["median_us"]), number(ours["copies"]), *times, *ratios, *memory])  # fmt: skip
    compared = [*peers, *(f"x {peer}" for peer in peers)]
    compared += [f"{'ours' if side == OURS else side} MiB" for side in weighed]
    headings = ["function", "regime", "shape", "dtype", "ours", "copies", *compared]
    return Table("Forward and backward", headings, 4, lines, notes(rows))


def pair_table(title: str, what: str, side: str, ratio: str, rows: Sequence[Row]) -> Table:
    """Ours beside PyTorch's, on few elements, with the ratios of that name."""
    lines = []
    for (operator, case, _), group in grouped(rows, "operator", "case", "threads").items():
        members = {row["contender"]: row for row in group}
        ours, theirs = members[OURS], members[THEIRS]
        variant, _, *rest = case
        times = [duration(each.get(time)) for each in (ours, theirs) for time in ("median_us", "host_us")]  # fmt: skip
        if ours["status"] != "ok":
            times[0] = ours["status"]
        lines.append([operator, variant, *rest, *times, number(ours[ratio].get(THEIRS))])
    headings = [what, "variant", "shape", "dtype", side, "host", "torch", "torch host", "x torch"]
    return Table(title, headings, 4, lines, notes(rows))


_UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}


def ranges(table: Table, by: str, counted: str) -> Table:
    """A line for each cell of one column: how many lines have it, and the least and the largest of their numbers, but for those into `out=`."""
    place = table.headings.index(by)
    columns = [n for n, heading in enumerate(table.headings) if n >= table.left and INTO not in heading]  # fmt: skip
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


def section_tables(results: dict[str, Any], page: bool) -> Iterator[Table]:
    """The tables of all sections but the first, those that have something in them."""
    if rows := results.get("elementwise", ()):
        yield elementwise_table(rows)
    calls = results["calls"]
    if page and calls:
        table = calls_table(calls, page)
        yield ranges(table, "calls", "operators")
        same = [line for line in table.lines if line[1] == "same"]
        yield Table("Calls that do not change", table.headings, table.left, same)
    elif calls:
        for _, rows in by_operator(calls):
            yield calls_table(rows, page)
    training = results.get("training", ())
    if large := [row for row in training if row["regime"] != MODULE]:
        yield steps_table(large)
    if small := [row for row in training if row["regime"] == MODULE]:
        title = "Forward and backward of modules"
        yield pair_table(title, "module", "ours", "host_ratios", small)
    if overrides := results.get("overrides", ()):
        title = "PyTorch's operators, replaced"
        table = pair_table(title, "operator", "replaced", "ratios", overrides)
        yield ranges(table, "operator", "cases") if page else table
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
    return [row for name in _TIMED for row in results.get(name, ())]  # fmt: skip


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
