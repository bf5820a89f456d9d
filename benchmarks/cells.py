"""What the tables of results share: their cells, their notes, their Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["Row", "duration", "markdown_table", "notes", "number"]

Row = dict[str, Any]


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


def notes(rows: Iterable[Row]) -> list[str]:
    """Each distinct reason why a contender was not timed, with where it was seen first."""
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
