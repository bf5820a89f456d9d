"""The table of calls that change, for the terminal and for pages of benchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich import box
from rich.table import Table

from openaclnn.bench.problems.changes import ALLOCATING, CHANGES, INTO, TWO_PHASE
from openaclnn.bench.tables.cells import Row, duration, markdown_table, marks, notes, number
from openaclnn.bench.timing.sequences import ARRAYS, PEER, TENSORS

__all__ = ["calls_markdown", "calls_tables"]

TEXT = """Medians per call on small problems, each contender with calls of its own that were prepared before: what a step of
training costs beside its arithmetic. What the calls of a sample take is looked at before the clock starts, so that it is in a cache, as it
is after the operation that made it. Ours is called on NumPy's arrays and on PyTorch's tensors, and `x torch` compares the latter
with PyTorch on the same tensors: both phases and their wait with PyTorch's call, on a GPU and a wait. `of same` is the time over that of calls which never
change, of the first of ours in the line; where there are eight kinds, over that of the same eight, each in a row. It too is a median
over rounds: the calls that a line is compared with were timed in the rounds of that line. What is new in a call is new to the attempt at its case. An empty cell: no
such call, or none that was right.
"""
WAYS = (ARRAYS, ARRAYS + INTO, ARRAYS + TWO_PHASE, TENSORS, TENSORS + INTO, TENSORS + TWO_PHASE)


def calls_tables(rows: Sequence[Row]) -> list[Table]:
    """For each operator a line for each regime, dtype and engine."""
    tables = []
    headings, left = _headings(rows)
    for operator, lines in groupby(_lines(rows), key=lambda line: line[0]):
        title = f"{operator}: calls that change"
        table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", collapse_padding=True)
        for heading in headings[1:left]:
            table.add_column(heading, no_wrap=True)
        for heading in headings[left:]:
            table.add_column(heading, justify="right", min_width=len("9.99 us"))
        for line in lines:
            table.add_row(*line[1:])
        table.caption = "\n".join(notes(row for row in rows if row["operator"] == operator)) or None
        table.caption_justify = "left"
        tables.append(table)
    return tables


def calls_markdown(rows: Sequence[Row]) -> str:
    """The table with what its lines mean."""
    reasons = [f"- {regime.name}: {regime.reason}" for regime in CHANGES]
    noted = [f"- {note}" for note in notes(rows)]
    headings, left = _headings(rows)
    table = markdown_table(headings, left, _lines(rows))
    listed = "\n".join(noted) + "\n" if noted else ""
    return "\n".join([TEXT, "\n".join(reasons) + "\n", table, listed])


def _ways(rows: Sequence[Row]) -> list[str]:
    present = {row["contender"].removeprefix(row["engine"]) for row in rows if row["ours"]}
    return [way for way in WAYS if way in present]


def _peers(rows: Sequence[Row]) -> list[str]:
    present = {row["contender"] for row in rows}
    return [PEER + way for way in (ALLOCATING, INTO) if PEER + way in present]


def _headings(rows: Sequence[Row]) -> tuple[list[str], int]:
    names = ["operator", "calls", "dtype", "engine"]
    peers = _peers(rows)
    ours = [way.removeprefix(", ") for way in _ways(rows)]
    return [*names, *ours, *peers, *(f"x {peer}" for peer in peers), "of same"], len(names)


def _lines(rows: Sequence[Row]) -> Iterator[list[str]]:
    ways, peers = _ways(rows), _peers(rows)
    for key, group in groupby(rows, key=lambda row: (row["operator"], row["regime"], row["dtype"])):
        members = list(group)
        timed = {row["contender"]: row for row in members if "median_us" in row}
        for engine in dict.fromkeys(row["engine"] for row in members if row["ours"]):
            ours = [timed.get(engine + way) for way in ways]
            ratios = (_beside(timed, engine, peer) for peer in peers)
            usual = next((row["of_same"] for row in ours if row is not None), None)
            yield [
                *key[:2], key[2] + marks(members[0]), engine,
                *(_time(row) for row in (*ours, *map(timed.get, peers))),
                *(_filled(value) for value in (*ratios, usual)),
            ]  # fmt: skip


def _beside(timed: dict[str, Row], engine: str, peer: str) -> float | None:
    """Ours beside PyTorch's way of the same kind, on tensors; both phases beside either, where they are alone."""
    way = peer.removeprefix(PEER)
    own = timed.get(engine + TENSORS + way) or timed.get(engine + TENSORS + TWO_PHASE)
    return None if own is None else own["ratios"].get(peer)


def _time(row: Row | None) -> str:
    return "" if row is None else duration(row["median_us"])


def _filled(value: float | None) -> str:
    return "" if value is None else number(value)
