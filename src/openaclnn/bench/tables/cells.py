"""What the tables of results share: their cells, their notes, their forms for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from rich import box
from rich.table import Table

__all__ = [
    "PEERS", "Row", "by_operator", "case_of", "duration", "markdown_table", "marks", "name_of", "notes",
    "number", "peers_of", "ratio_to", "size", "terminal_table", "threads_of",
]  # fmt: skip

Row = dict[str, Any]
PEERS = ("torch", "torch out=", "torch.compile", "torch.compile ops")
INEXACT, SLOW = "†", "~"


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


def peers_of(rows: Iterable[Row]) -> list[str]:
    """PyTorch's contenders that a table has columns for."""
    present = {row["contender"] for row in rows}
    return [peer for peer in PEERS if peer in present]


def ratio_to(row: Row, peer: str) -> str:
    """PyTorch's time over ours, marked where its result failed the check."""
    mark = f" {INEXACT}" if peer in row["inexact"] else ""
    return number(row["ratios"].get(peer)) + mark


def by_operator(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    """Rows grouped by operator, in their order."""
    return [(name, list(group)) for name, group in groupby(rows, key=lambda row: row["operator"])]


def notes(rows: Iterable[Row]) -> list[str]:
    """Each distinct reason why a contender was not timed, or is marked, with where it was seen first."""
    found: dict[tuple[str, str], str] = {}
    for row in rows:
        if row["status"] != "ok":
            where = f"{row['variant']}, {row['regime']}, {row['dtype']}"
            found.setdefault((row["contender"], row["note"]), f"{row['status']} at {where}")
    return [f"{name}: {status}: {note}" for (name, note), status in found.items()]


def markdown_table(headings: Sequence[str], left: int, lines: Iterable[Sequence[str]]) -> str:
    """A table whose first columns are text and the others numbers."""
    rule = ["---"] * left + ["---:"] * (len(headings) - left)
    rows = [headings, rule, *lines]
    escaped = ([cell.replace("|", "\\|") for cell in cells] for cells in rows)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in escaped) + "\n"


def terminal_table(
    title: str,
    headings: Sequence[str],
    left: int,
    lines: Iterable[Sequence[str]],
    rows: Sequence[Row],
) -> Table:
    """The same for the terminal, with the notes of the rows that the lines tell of."""
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < left else "right", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    table.caption = "\n".join(notes(rows)) or None
    table.caption_justify = "left"
    return table
