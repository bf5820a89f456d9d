"""Results in short: by operator and regime the median and the worst, and where PyTorch is ahead.

Of our engines the first counts, which is the one that calls get by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import NamedTuple

from openaclnn.bench.tables.cells import Row, number, threads_of

__all__ = ["SMALL", "ShortTable", "closest", "counts", "ours", "same_kind", "short_tables"]

CLOSEST = 8
SMALL = ("call", "cache")  # of a copy: what is not bound by memory has nothing to compare with


class ShortTable(NamedTuple):
    """Its first two columns are text."""

    title: str
    headings: list[str]
    lines: list[list[str]]


def same_kind(row: Row) -> float | None:
    """PyTorch's time over ours by its way of the same kind: allocating, or into `out=` where it has that."""
    allocates = row["contender"] == row["engine"]
    ratios = row["ratios"]
    found: float | None = ratios.get("torch")
    return found if allocates else ratios.get("torch out=", found)


def short_tables(rows: Sequence[Row]) -> list[ShortTable]:
    """Times PyTorch, of a copy, and odd sizes beside round ones; those that have something to say."""
    own = ours(rows)
    large = [row for row in own if row["family"] not in SMALL]
    tables = (
        _table("PyTorch's time over ours, median / worst", own, same_kind, "family"),
        _table("Of a copy, median / worst", large, lambda row: row["of_copy"], "family"),
        _table("Odd sizes: throughput over that of the round neighbour, median / worst",
               own, lambda row: row["of_round"], "regime"),
    )  # fmt: skip
    return [table for table in tables if table.lines]


def ours(rows: Iterable[Row]) -> list[Row]:
    """The timed rows of the engine that counts."""
    timed = [row for row in rows if row["ours"] and "median_us" in row]
    return [row for row in timed if row["engine"] == timed[0]["engine"]]


def _table(
    title: str, rows: Sequence[Row], value: Callable[[Row], float | None], by: str
) -> ShortTable:
    operators = list(dict.fromkeys(row["operator"] for row in rows))
    values: dict[tuple[str, int], dict[str, list[float]]] = {}
    teams: dict[tuple[str, int], dict[str, None]] = {}
    for row in rows:
        found, key = value(row), (row[by], row["threads"] or 0)
        if found is not None:
            values.setdefault(key, {}).setdefault(row["operator"], []).append(found)
            teams.setdefault(key, {})[row["team"]] = None
    order = list(dict.fromkeys(regime for regime, _ in values))  # the threads of a regime together
    lines = [
        [key[0], _threads(key[1], ", ".join(teams[key])),
         *(_cell(values[key].get(operator, [])) for operator in operators)]
        for key in sorted(values, key=lambda key: order.index(key[0]))
    ]  # fmt: skip
    return ShortTable(title, ["regime", "threads", *operators], lines)


def _threads(count: int, teams: str) -> str:
    return f"{count} ({teams})" if count else teams


def _cell(values: Sequence[float]) -> str:
    return f"{number(median(values))} / {number(min(values))}" if values else ""


def counts(rows: Sequence[Row]) -> str:
    """In how many timings PyTorch's way of the same kind is faster, and torch.compile; "" without PyTorch."""
    own = ours(rows)
    ratios = [found for found in map(same_kind, own) if found is not None]
    compiled = [
        min(found)
        for row in own
        if (found := [v for n, v in row["ratios"].items() if n.startswith("torch.compile") and v])
    ]
    told = [
        f"{sum(value < 1 for value in found)} of {len(found)} timings"
        for found in (ratios, compiled)
    ]
    text = f"PyTorch's way of the same kind is faster in {told[0]}"
    return f"{text}, `torch.compile` in {told[1]}" if compiled else text if ratios else ""


def closest(rows: Sequence[Row]) -> list[str]:
    """The timings in which PyTorch is furthest ahead, or least behind."""
    ranked = [(found, n, row) for n, row in enumerate(ours(rows)) if (found := same_kind(row))]
    return [
        f"{found:.2f}: {row['operator']} {row['variant']} {row['regime']} {row['dtype']}, "
        f"{row['contender']}, {threads_of(row)}"
        for found, _, row in sorted(ranked)[:CLOSEST]
    ]
