"""The lines of tables that have ours beside PyTorch's, on few elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from openaclnn.bench.sections.pairs import OURS, THEIRS
from openaclnn.bench.tables.cells import Row, case_of, duration, number

__all__ = ["LEFT", "pair_headings", "pair_lines"]

LEFT = 4


def pair_headings(what: str, ours: str) -> tuple[str, ...]:
    return what, "variant", "shape", "dtype", ours, "host", "torch", "torch host", "x torch"


def pair_lines(rows: Sequence[Row], ratios: str) -> Iterator[list[str]]:
    """A line for each case, with the ratios of that name."""
    for (operator, case, _), group in groupby(
        rows, key=lambda row: (row["operator"], case_of(row), row["threads"])
    ):
        members = {row["contender"]: row for row in group}
        own, theirs = members[OURS], members[THEIRS]
        variant, _, *rest = case
        times = [duration(each.get(what)) for each in (own, theirs) for what in ("median_us", "host_us")]  # fmt: skip
        if own["status"] != "ok":
            times[0] = own["status"]
        yield [operator, variant, *rest, *times, number(own[ratios].get(THEIRS))]
