"""The table of PyTorch's operators that ours replace, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from openaclnn.bench.tables.cells import Row, markdown_table, notes, terminal_table
from openaclnn.bench.tables.pairs import LEFT, pair_headings, pair_lines

__all__ = ["TITLE", "overrides_markdown", "overrides_tables"]

TITLE = "PyTorch's operators, replaced"
TEXT = """Medians of a call of PyTorch's operator through its dispatcher, while `openaclnn.torch.enable()` has our kernel in its place, and without;
`x torch` is PyTorch's time over ours in the same rounds. `host` is what the call takes of the caller's time.
"""
HEADINGS = pair_headings("operator", "replaced")


def overrides_tables(rows: Sequence[Row]) -> list[Table]:
    """One table, if there is something in it."""
    return [terminal_table(TITLE, HEADINGS, LEFT, pair_lines(rows, "ratios"), rows)] if rows else []


def overrides_markdown(rows: Sequence[Row]) -> str:
    """The table with what it means."""
    noted = "".join(f"- {note}\n" for note in notes(rows))
    return "\n".join([TEXT, markdown_table(HEADINGS, LEFT, pair_lines(rows, "ratios")), noted])
