"""The table in docs/benchmarks.md of what small calls cost, read from the page of calls that change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["PAGE", "calls_table"]

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks-calls.md"
KIND = "same"
"""The kind of calls that the table shows, those that do not change; the page has all."""
WAYS = {"arrays": "NumPy arrays", "tensors": "PyTorch's tensors", "torch": "PyTorch itself"}


def calls_table(page: str) -> str:
    """Markdown, a line an operator: on each machine ours and PyTorch's, allocating and into `out=`."""
    cells: dict[str, dict[str, str]] = {}
    for machine, row in _rows(page):
        dtype, *marks = row["dtype"].split()
        if row["calls"] == KIND and dtype == "FLOAT":
            for name, title in WAYS.items():
                if name in row:
                    own = cells.setdefault(row["operator"], {})
                    own[f"{machine}: {title}"] = " ".join([_both(row, name), *marks])
    headings = list(dict.fromkeys(heading for own in cells.values() for heading in own))
    lines = [["small calls, FLOAT", *headings], ["---"] * (len(headings) + 1)]
    for operator, own in cells.items():
        lines.append([operator, *(own.get(heading, "-") for heading in headings)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _both(row: dict[str, str], name: str) -> str:
    return " / ".join(filter(None, (row[name], row.get(f"{name} out=", "")))) or "-"


def _rows(page: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The lines of the tables, with the machine that they stand under."""
    for section in page.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        machine = (
            title.replace("(R)", "").removesuffix(", beside PyTorch").replace(" Processor", "")
        )
        headings: list[str] = []
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")] if line[:1] == "|" else []
            if cells[:2] == ["operator", "calls"]:
                headings = cells
            elif len(cells) == len(headings) and headings and cells[0] != "---":
                yield machine, dict(zip(headings, cells, strict=True))
