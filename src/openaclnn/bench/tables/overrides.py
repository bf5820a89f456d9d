"""The table of PyTorch's operators that ours replace, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.table import Table

from openaclnn.bench.sections.overrides import OURS, THEIRS
from openaclnn.bench.tables.cells import (
    Row,
    case_of,
    duration,
    markdown_table,
    notes,
    number,
    terminal_table,
)

__all__ = ["TITLE", "overrides_markdown", "overrides_tables"]

TITLE = "PyTorch's operators, replaced"
TEXT = """Medians of a call of PyTorch's operator through its dispatcher, while `openaclnn.torch.enable()` has our kernel in its place, and without;
`x torch` is PyTorch's time over ours in the same rounds. `host` is what the call takes of the caller's time.
"""
HEADINGS = (
    "operator", "variant", "shape", "dtype", "replaced", "host", "torch", "torch host", "x torch",
)  # fmt: skip
LEFT = 4


def overrides_tables(rows: Sequence[Row]) -> list[Table]:
    """One table, if there is something in it."""
    return [terminal_table(TITLE, HEADINGS, LEFT, _lines(rows), rows)] if rows else []


def overrides_markdown(rows: Sequence[Row]) -> str:
    """The table with what it means."""
    noted = "".join(f"- {note}\n" for note in notes(rows))
    return "\n".join([TEXT, markdown_table(HEADINGS, LEFT, _lines(rows)), noted])


def _lines(rows: Sequence[Row]) -> Iterator[list[str]]:
    for (operator, case, _), group in groupby(
        rows, key=lambda row: (row["operator"], case_of(row), row["threads"])
    ):
        members = {row["contender"]: row for row in group}
        own, theirs = members[OURS], members[THEIRS]
        variant, _, *rest = case
        times = [duration(each.get(what)) for each in (own, theirs) for what in ("median_us", "host_us")]  # fmt: skip
        if own["status"] != "ok":
            times[0] = own["status"]
        yield [operator, variant, *rest, *times, number(own["ratios"].get(THEIRS))]
