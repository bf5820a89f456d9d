"""Results for people: rich tables on the terminal, Markdown for `docs/benchmarks.md`. Both are made from the JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.calls_report import calls_markdown, calls_tables
from benchmarks.cells import Row, duration, markdown_table, notes, number

__all__ = ["console_tables", "disturbed", "find_wrong", "headline_table", "markdown"]

PEERS = ("torch", "torch out=", "torch.compile", "torch.compile ops")
INTRODUCTION = """# Benchmarks

Written by `python -m benchmarks --report RESULTS.json --markdown docs/benchmarks.md`; do not edit.

Times are per call, the median and the quartiles of the rounds. In each round every contender takes its
turn in one process, and the order rotates. `x` columns are the median over the rounds of PyTorch's time
divided by ours in the same round: above 1 we are faster. GB/s counts the bytes that any implementation
must move (inputs once, output once), and `of copy` compares with a plain copy timed in the same rounds,
which moves as many bytes; where elements do not lie side by side (`sliced`) that counts what lies between
them too, as memory moves whole lines (64 bytes here, 32 on a GPU). `torch.compile` is the formula compiled,
`torch.compile ops` the operators that autograd would run, compiled. Results are checked before they are timed, against the float64 reference.
A `!` marks a case during which other processes took cores from the benchmark: do not trust its ratios.
"""


def find_wrong(results: dict[str, Any]) -> list[Row]:
    """Our rows with wrong results."""
    return [row for row in _timed(results) if row["status"] == "WRONG" and row["ours"]]


def _timed(results: dict[str, Any]) -> list[Row]:
    return [*results["rows"], *results["calls"]]


def peers_of(rows: Iterable[Row]) -> list[str]:
    """PyTorch's contenders that a table has columns for."""
    present = {row["contender"] for row in rows}
    return [peer for peer in PEERS if peer in present]


def _size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _spread(row: Row) -> str:
    return f"{duration(row['q1_us'])} .. {duration(row['q3_us'])}"


def by_operator(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    """Rows grouped by operator, in their order."""
    return [(name, list(group)) for name, group in groupby(rows, key=lambda row: row["operator"])]


def _case(row: Row) -> tuple[str, ...]:
    mark = " !" if row["disturbed"] else ""
    return row["variant"], row["regime"], _size(row["shape"]), row["dtype"] + mark


def disturbed(results: dict[str, Any]) -> str:
    """How much of a result was timed beside other work; "" if none was."""
    cases = {(row["operator"], *_case(row)): row["disturbed"] for row in _timed(results)}
    count = sum(cases.values())
    return (
        f"{count} of {len(cases)} cases (!) were timed while other processes ran" if count else ""
    )


def console_tables(results: dict[str, Any]) -> list[Table]:
    """One table for each operator: a section for each case, a line for each way to call ours."""
    tables = []
    for operator, rows in by_operator(results["rows"]):
        table = Table(title=operator, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
        table.add_column("case")
        table.add_column("ours", no_wrap=True)
        peers = peers_of(rows)
        for heading in ("time", "+-", "GB/s", "of copy", *(f"x {peer}" for peer in peers)):
            table.add_column(heading, justify="right")
        for case, group in groupby(rows, key=_case):
            label = ", ".join(case)
            for row in (row for row in group if row["ours"]):
                if row["status"] == "ok":
                    table.add_row(label, row["contender"], *_console_cells(row, peers))
                else:
                    table.add_row(label, row["contender"], row["status"], style="red")
                label = ""
            table.add_section()
        table.caption = "\n".join(notes(rows)) or None
        table.caption_justify = "left"
        tables.append(table)
    return tables + calls_tables(results["calls"])


def headline_table(results: dict[str, Any]) -> Table:
    """One line for each case: our fastest engine beside NumPy's, PyTorch's and a copy."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("gradient of")
    for heading in ("problem", "ours", "GB/s", "of a copy", "x NumPy", "x PyTorch"):
        table.add_column(heading, justify="right", no_wrap=True)
    for (operator, case), group in groupby(
        results["rows"], key=lambda row: (row["operator"], _case(row))
    ):
        rows = {row["contender"]: row for row in group if row["status"] == "ok"}
        own = min((row for row in rows.values() if row["ours"]), key=lambda row: row["median_us"])
        plain = rows.get("numpy out=")
        times = [
            plain["median_us"] / own["median_us"] if plain else None,
            own["ratios"].get("torch out="),
        ]
        title = operator.removesuffix("_backward").removesuffix("_grad").replace("_", " ")
        table.add_row(
            f"{title} ({case[0]})", case[2], duration(own["median_us"]), number(own["gbps"], 1),
            number(own["of_copy"]), *(number(value, 1) for value in times),
        )  # fmt: skip
    return table


def _console_cells(row: Row, peers: list[str]) -> list[str]:
    spread = (row["q3_us"] - row["q1_us"]) / 2 / row["median_us"]
    ratios = [number(row["ratios"].get(peer)) for peer in peers]
    numbers = [number(row["gbps"], 1), number(row["of_copy"])]
    return [duration(row["median_us"]), f"{spread:.0%}", *numbers, *ratios]


def markdown(reports: Sequence[dict[str, Any]]) -> str:
    """The text of `docs/benchmarks.md` from one or more results."""
    parts = [INTRODUCTION]
    for results in reports:
        parts += [_preface(results)]
        for operator, rows in by_operator(results["rows"]):
            parts += [f"### {operator}\n", _speed_table(rows)]
            parts += ["\n".join(f"- {note}" for note in notes(rows)) + "\n"] if notes(rows) else []
        if results["calls"]:
            parts += ["### Calls that change\n", calls_markdown(results["calls"])]
        if results["first_calls"]:
            parts += ["### First call in a fresh process\n", _first_call_table(results)]
        if results["memory"]:
            parts += ["### Memory beyond arguments and output\n", _memory_table(results)]
    return "\n".join(parts)


def _preface(results: dict[str, Any]) -> str:
    machine, versions = results["machine"], results["versions"]
    where = machine.get("gpu") or machine["cpu"]
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    facts = ", ".join(f"{name} {value}" for name, value in machine.items() if value is not None)
    engines = "; ".join(f"{name}: {state}" for name, state in results["engines"].items())
    copied, noise = results["copy_gbps"], disturbed(results)
    return "\n".join(
        [
            f"## {where}\n",
            f"- machine: {facts}; {results['threads']} threads",
            f"- versions: {listed}",
            f"- engines: {engines}",
            f"- fastest copy: {number(copied, 1)} GB/s, read and written bytes together",
            *([f"- **{noise}**"] if noise else []),
            f"- date: {results['date']}",
            f"- command: `{results['command']}`\n",
        ]
    )


def _speed_table(rows: list[Row]) -> str:
    names = peers_of(rows)
    headings = [
        "variant", "regime", "shape", "dtype", "ours", "time", "quartiles", "GB/s", "of copy",
        *names, *(f"x {peer}" for peer in names),
    ]  # fmt: skip
    lines = []
    for case, group in groupby(rows, key=_case):
        members = list(group)
        peers = {row["contender"]: duration(row.get("median_us")) for row in members}
        for row in members:
            if not row["ours"]:
                continue
            start = [*case, row["contender"]]
            if row["status"] != "ok":
                lines.append([*start, f"**{row['status']}**", *["-"] * (len(headings) - 6)])
                continue
            lines.append(
                [*start, duration(row["median_us"]), _spread(row), number(row["gbps"], 1),
                 number(row["of_copy"]), *(peers.get(peer, "-") for peer in names),
                 *(number(row["ratios"].get(peer)) for peer in names)]
            )  # fmt: skip
    return markdown_table(headings, 5, lines)


def _first_call_table(results: dict[str, Any]) -> str:
    headings = ["operator", "shape", "contender", "cache", "import", "first call", "later calls"]
    lines = [
        [row["operator"], _size(row["shape"]), row["contender"], row["cache"]]
        + (
            [row["note"], "-", "-"]
            if "note" in row
            else [
                f"{row['import_s']:.2f} s",
                duration(row["first_ms"] * 1e3) + (" !" if row["disturbed"] else ""),
                duration(row["again_ms"] * 1e3),
            ]
        )
        for row in results["first_calls"]
    ]
    return markdown_table(headings, 4, lines)


def _memory_table(results: dict[str, Any]) -> str:
    """A call that allocates its result needs the output's size; into `out=` nothing is the right answer."""
    headings = ["operator", "shape", "contender", "MiB above what was there"]
    lines = [
        [row["operator"], _size(row["shape"]), row["contender"],
         row["note"] if "note" in row else f"{row['extra_bytes'] / 2**20:.1f}"]
        for row in results["memory"]
    ]  # fmt: skip
    return markdown_table(headings, 3, lines)
