"""The table of training steps, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.table import Table

from openaclnn.bench.sections.training import OURS, PEERS
from openaclnn.bench.tables.cells import (
    Row,
    duration,
    markdown_table,
    notes,
    number,
    size,
    terminal_table,
)

__all__ = ["training_markdown", "training_tables"]

TEXT = """Medians of a step: the loss, and its gradient by `backward()`. `copies` is our time over that of one copy of the input,
and `x` columns are the others' time over ours, in the same rounds. `torch.compile` is compiled for the very shape, `torch.compile
dynamic` for any: what PyTorch makes of a function, unless told otherwise, once it has met a second shape.
"""


def training_tables(rows: Sequence[Row]) -> list[Table]:
    """One table, if there is something in it."""
    if not rows:
        return []
    headings, left = _headings(rows)
    return [terminal_table("Forward and backward", headings, left, _lines(rows), rows)]


def training_markdown(rows: Sequence[Row]) -> str:
    """The table with what it means."""
    headings, left = _headings(rows)
    noted = "".join(f"- {note}\n" for note in notes(rows))
    return "\n".join([TEXT, markdown_table(headings, left, _lines(rows)), noted])


def _peers(rows: Sequence[Row]) -> list[str]:
    present = {row["contender"] for row in rows if "median_us" in row}
    return [peer for peer in PEERS if peer in present]


def _headings(rows: Sequence[Row]) -> tuple[list[str], int]:
    peers = _peers(rows)
    names = ["function", "regime", "shape", "dtype"]
    return [*names, "ours", "copies", *peers, *(f"x {peer}" for peer in peers)], len(names)


def _lines(rows: Sequence[Row]) -> Iterator[list[str]]:
    peers = _peers(rows)
    for key, group in groupby(
        rows, key=lambda row: (row["operator"], row["regime"], size(row["shape"]), row["dtype"])
    ):
        members = {row["contender"]: row for row in group}
        own = members[OURS]
        mark = " !" if own["disturbed"] else ""
        if own["status"] != "ok":
            yield [*key[:3], key[3] + mark, own["status"], *[""] * (1 + 2 * len(peers))]
            continue
        times = [
            duration(members[peer].get("median_us")) if peer in members else "" for peer in peers
        ]
        ratios = [number(own["ratios"][peer]) if peer in own["ratios"] else "" for peer in peers]
        yield [
            *key[:3],
            key[3] + mark,
            duration(own["median_us"]),
            number(own["copies"]),
            *times,
            *ratios,
        ]
