"""Results on the terminal: a table for each operator, then all in short. Made from what the JSON file holds."""

from __future__ import annotations

from itertools import chain, groupby
from typing import Any

from rich import box
from rich.table import Table

from openaclnn.bench.tables.calls import calls_tables
from openaclnn.bench.tables.cells import (
    SLOW,
    Row,
    by_operator,
    case_of,
    duration,
    notes,
    number,
    peers_of,
    ratio_to,
    threads_of,
)
from openaclnn.bench.tables.overrides import overrides_tables
from openaclnn.bench.tables.processes import process_tables
from openaclnn.bench.tables.summary import short_tables
from openaclnn.bench.tables.training import training_tables

__all__ = ["console_tables", "disturbed", "find_wrong", "headline_table"]


def find_wrong(results: dict[str, Any]) -> list[Row]:
    """Our rows with wrong results."""
    return [row for row in _timed(results) if row["status"] == "WRONG" and row["ours"]]


def _timed(results: dict[str, Any]) -> list[Row]:
    more = (results.get(section, ()) for section in ("training", "overrides"))
    return [*results["rows"], *results["calls"], *chain.from_iterable(more)]


def disturbed(results: dict[str, Any]) -> list[str]:
    """How much of a result was timed beside other work, and how much on a machine that was slow; nothing of what there was none."""
    told = {
        "disturbed": "cases (!) were timed while other processes ran",
        "slow": f"cases ({SLOW}) were timed while the machine was slow",
    }
    found = []
    for name, what in told.items():
        cases = {
            (row["operator"], *case_of(row), row["threads"]): row[name]
            for row in _timed(results)
            if name in row
        }
        if any(cases.values()):
            found.append(f"{sum(cases.values())} of {len(cases)} {what}")
    return found


def console_tables(results: dict[str, Any]) -> list[Table]:
    """One table for each operator: a section for each case, a line for each way to call ours; then the short ones."""
    tables = []
    for operator, rows in by_operator(results["rows"]):
        table = _table(operator)
        table.add_column("case")
        table.add_column("ours", no_wrap=True)
        table.add_column("threads", no_wrap=True)
        peers = peers_of(rows)
        for heading in ("time", "+-", "GB/s", "of copy", *(f"x {peer}" for peer in peers)):
            table.add_column(heading, justify="right")
        for case, group in groupby(rows, key=case_of):
            label = ", ".join(case)
            for row in (row for row in group if row["ours"]):
                start = (label, row["contender"], threads_of(row))
                if row["status"] == "ok":
                    table.add_row(*start, *_console_cells(row, peers))
                else:
                    table.add_row(*start, row["status"], style="red")
                label = ""
            table.add_section()
        table.caption = "\n".join(notes(rows)) or None
        table.caption_justify = "left"
        tables.append(table)
    tables += calls_tables(results["calls"]) + training_tables(results.get("training", ()))
    tables += overrides_tables(results.get("overrides", ())) + process_tables(results)
    return tables + _short_tables(results["rows"])


def _short_tables(rows: list[Row]) -> list[Table]:
    if len({(row["operator"], *case_of(row)) for row in rows}) < 2:
        return []
    tables = []
    for title, headings, lines in short_tables(rows):
        table = _table(title)
        for heading in headings[:2]:
            table.add_column(heading, no_wrap=True)
        for heading in headings[2:]:
            table.add_column(heading, justify="right")
        for line in lines:
            table.add_row(*line)
        tables.append(table)
    return tables


def _table(title: str) -> Table:
    return Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)


def headline_table(results: dict[str, Any]) -> Table:
    """One line for each case: our fastest engine beside NumPy's, PyTorch's and a copy."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("operator")
    for heading in ("problem", "threads", "ours", "GB/s", "of a copy", "x NumPy", "x PyTorch"):
        table.add_column(heading, justify="right", no_wrap=True)
    for (operator, case, _), group in groupby(
        results["rows"], key=lambda row: (row["operator"], case_of(row), row["threads"])
    ):
        rows = {row["contender"]: row for row in group if row["status"] == "ok"}
        own = min((row for row in rows.values() if row["ours"]), key=lambda row: row["median_us"])
        plain = rows.get("numpy out=")
        times = [
            plain["median_us"] / own["median_us"] if plain else None,
            own["ratios"].get("torch out="),
        ]
        table.add_row(
            f"{operator} ({case[0]}){' !' * own['disturbed']}", case[2], threads_of(own), duration(own["median_us"]),
            number(own["gbps"], 1), number(own["of_copy"]), *(number(value, 1) for value in times),
        )  # fmt: skip
    return table


def _console_cells(row: Row, peers: list[str]) -> list[str]:
    spread = (row["q3_us"] - row["q1_us"]) / 2 / row["median_us"]
    ratios = [ratio_to(row, peer) for peer in peers]
    numbers = [number(row["gbps"], 1), number(row["of_copy"])]
    return [duration(row["median_us"]), f"{spread:.0%}", *numbers, *ratios]
