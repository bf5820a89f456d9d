"""The tables of docs/benchmarks.md: speed on large problems from the benchmark's results, each row with the filter that makes it, and what
small calls cost, from the file of calls that change."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from openaclnn.bench.tables import merged, same_kind
from openaclnn.bench.timing import Row

__all__ = ["CALLS", "ROWS", "calls_table", "speed_table"]

ROWS = (
    ("ELU backward, from the input", "elu_backward input bandwidth"),
    ("ELU backward, from the result", "elu_backward result bandwidth"),
    ("L1 backward, dense gradient", "l1_loss_backward dense gradient bandwidth"),
    ("Smooth L1 backward, dense gradient", "smooth_l1_loss_backward dense gradient bandwidth"),
    ("Smooth L1 backward, one gradient", "smooth_l1_loss_backward one gradient bandwidth"),
    ("Cross entropy, 32,000 classes, mean", "cross_entropy_loss_grad mean vocabulary 32k"),
    ("Cross entropy, 128,256 classes, mean", "cross_entropy_loss_grad mean vocabulary 128k"),
    ("Cross entropy, transposed", "cross_entropy_loss_grad mean transposed"),
    ("NLL 2-d, 21 classes, patches", "nll_loss2d_backward patches 21 classes"),
    ("NLL 2-d, 21 classes, random pixels", "nll_loss2d_backward random 21 classes"),
    ("NLL 2-d, 150 classes, random pixels", "nll_loss2d_backward random 150 classes"),
)
"""What a row is called, and the filter."""

CALLS = Path(__file__).parent.parent / "docs" / "benchmarks-calls.csv"
KIND = "same"
"""The kind of calls that the table shows, those that do not change; the file has all."""
WAYS = {"arrays": "NumPy arrays", "tensors": "PyTorch's tensors", "torch": "PyTorch itself"}

_DTYPES = {"FLOAT": "F32", "BFLOAT16": "BF16", "FLOAT16": "F16"}


def speed_table(reports: Iterable[dict[str, Any]]) -> str:
    """Markdown: for each CPU and number of threads PyTorch's time over ours, for each GPU what part of a copy too."""
    columns = [column for results in merged(reports) for column in _columns(results)]
    lines = [
        [title, f"`{only}`", *(cells.get(only, "-") for _, cells in columns)]
        for title, only in ROWS
    ]
    return _table(["large problems", "`--only`", *(heading for heading, _ in columns)], lines)


def _table(headings: list[str], lines: Iterable[list[str]]) -> str:
    rows = [headings, ["---"] * len(headings), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _columns(results: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Headings with cells by filter, of the calls into `out=`."""
    machine = results["machine"]
    into = [row for row in results["rows"] if row["contender"] == f"{row['engine']} out=" and "median_us" in row]  # fmt: skip
    if "gpu" in machine:
        told = [row for row in into if row["dtype"] != "FLOAT16"]
        yield _column(f"{machine['gpu']}, of a copy", told, [row["of_copy"] for row in told], 2)
        yield _column(f"{machine['gpu']}, times PyTorch", told, [*map(same_kind, told)], 1)
        return
    for count in dict.fromkeys(row["threads"] for row in into):
        own = [row for row in into if row["threads"] == count and row["engine"] == "cpu"]
        heading = f"{machine['cpu']}, {count} thread{'s' * (count > 1)}, times PyTorch"
        yield _column(heading, own, [*map(same_kind, own)], 1)


def _column(
    heading: str, rows: Sequence[Row], values: Sequence[float | None], digits: int
) -> tuple[str, dict[str, str]]:
    known = {
        (f"{row['operator']} {row['variant']} {row['regime']}", row["dtype"]): f"{value:.{digits}f}"
        for row, value in zip(rows, values, strict=True)
        if value is not None
    }
    dtypes = [name for name in _DTYPES if any(dtype == name for _, dtype in known)]
    cells = {
        only: " / ".join(known.get((only, dtype), "-") for dtype in dtypes) for only, _ in known
    }
    return f"{heading} ({' / '.join(_DTYPES[name] for name in dtypes)})", cells


def calls_table(sheet: str) -> str:
    """Markdown, a line an operator: on each machine ours and PyTorch's, allocating and into `out=`, from a CSV file of calls."""
    cells: dict[str, dict[str, str]] = {}
    for row in csv.DictReader(sheet.splitlines()):
        dtype, *marks = row["dtype"].split()
        if row["calls"] == KIND and dtype == "FLOAT":
            machine = row["machine"].replace("(R)", "").replace(" Processor", "")
            for name, title in WAYS.items():
                if row[name]:
                    told = " / ".join(filter(None, (row[name], row[f"{name} out="])))
                    heading = f"{machine.removesuffix(', beside PyTorch')}: {title}"
                    cells.setdefault(row["operator"], {})[heading] = " ".join([told, *marks])
    headings = list(dict.fromkeys(heading for told in cells.values() for heading in told))
    lines = [
        [operator, *(told.get(heading, "-") for heading in headings)]
        for operator, told in cells.items()
    ]
    return _table(["small calls, FLOAT", *headings], lines)
