"""The tables of training steps, of large problems and of modules on few elements, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from rich.table import Table

from openaclnn.bench.sections.modules import REGIME
from openaclnn.bench.sections.pairs import OURS
from openaclnn.bench.sections.training import PEERS
from openaclnn.bench.tables.cells import (
    Row,
    duration,
    markdown_table,
    notes,
    number,
    size,
    terminal_table,
)
from openaclnn.bench.tables.pairs import LEFT, pair_headings, pair_lines

__all__ = ["training_markdown", "training_tables"]

LARGE = """Medians of a step: the loss, and its gradient by `backward()`. `copies` is our time over that of one copy of the input,
and `x` columns are the others' time over ours, in the same rounds. `torch.compile` is compiled for the very shape, `torch.compile
dynamic` for any: what PyTorch makes of a function, unless told otherwise, once it has met a second shape.
"""
SMALL = """Our modules beside PyTorch's, both eager, on 16 elements: medians of a step until all is computed, and of the caller's time (`host`).
`x torch` is PyTorch's host time over ours in the same rounds.
"""


class _Shown(NamedTuple):
    """A table, its parts ready."""

    title: str
    text: str
    headings: Sequence[str]
    left: int
    lines: list[list[str]]
    rows: list[Row]


def training_tables(rows: Sequence[Row]) -> list[Table]:
    """Those that there is something in."""
    return [
        terminal_table(own.title, own.headings, own.left, own.lines, own.rows)
        for own in _shown(rows)
    ]


def training_markdown(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Their titles, and the tables with what they mean."""
    for own in _shown(rows):
        noted = "".join(f"- {note}\n" for note in notes(own.rows))
        table = markdown_table(own.headings, own.left, own.lines)
        yield own.title, "\n".join([own.text, table, noted])


def _shown(rows: Sequence[Row]) -> Iterator[_Shown]:
    large = [row for row in rows if row["regime"] != REGIME]
    if large:
        headings, left = _headings(large)
        yield _Shown("Forward and backward", LARGE, headings, left, [*_lines(large)], large)
    small = [row for row in rows if row["regime"] == REGIME]
    if small:
        lines = [*pair_lines(small, "host_ratios")]
        headings = pair_headings("module", "ours")
        yield _Shown("Forward and backward of modules", SMALL, headings, LEFT, lines, small)


def _peers(rows: Sequence[Row]) -> list[str]:
    present = {row["contender"] for row in rows if "median_us" in row}
    return [peer for peer in PEERS if peer in present]


def _headings(rows: Sequence[Row]) -> tuple[Sequence[str], int]:
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
