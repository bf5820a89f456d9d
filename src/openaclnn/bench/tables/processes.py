"""The tables of first calls and of memory, each measured in a fresh process, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from openaclnn.bench.tables.cells import Row, duration, markdown_table, size, terminal_table

__all__ = ["process_markdown", "process_tables"]


class _Told(NamedTuple):
    """A table: its title, headings, how many of these are words, and its lines."""

    title: str
    headings: Sequence[str]
    left: int
    lines: list[list[str]]


def process_tables(results: dict[str, Any]) -> list[Table]:
    """Those with something in them."""
    return [terminal_table(*own, ()) for own in _told(results)]


def process_markdown(results: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The same as titles and text."""
    for own in _told(results):
        yield own.title, markdown_table(own.headings, own.left, own.lines)


def _told(results: dict[str, Any]) -> Iterator[_Told]:
    first, memory = (results.get(section, ()) for section in ("first_calls", "memory"))
    if first:
        yield _Told(
            "First call in a fresh process",
            ["operator", "shape", "contender", "cache", "import", "first call", "later calls"],
            4, [[*_case(row), row["cache"], *_times(row)] for row in first],
        )  # fmt: skip
    if memory:
        # A call that allocates its result needs the output's size; into `out=` nothing is the right answer.
        yield _Told(
            "Memory beyond arguments and output",
            ["operator", "shape", "contender", "MiB above what was there"],
            3, [[*_case(row), _mebibytes(row)] for row in memory],
        )  # fmt: skip


def _case(row: Row) -> list[str]:
    return [row["operator"], size(row["shape"]), row["contender"]]


def _times(row: Row) -> list[str]:
    if "note" in row:
        return [row["note"], "-", "-"]
    first, later = (duration(row[name] * 1e3) for name in ("first_ms", "again_ms"))
    return [f"{row['import_s']:.2f} s", first + (" !" if row["disturbed"] else ""), later]


def _mebibytes(row: Row) -> str:
    return row["note"] if "note" in row else f"{row['extra_bytes'] / 2**20:.1f}"
