"""Declarations as text and tables: one operator's page, and the table of what is supported where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

from openaclnn.core.interface import Interface
from openaclnn.core.outcome import Check
from openaclnn.core.products import PRODUCTS

__all__ = ["SupportTable", "describe"]

_SHORT = {"FLOAT": "F32", "FLOAT16": "F16", "BFLOAT16": "BF16", "DOUBLE": "F64"}


def describe(operator: Interface, checks: Sequence[Check]) -> str:
    """Prototypes, formula, parameters and ordered checks."""
    lines = [operator.name, operator.summary, "", *(f"{p};" for p in operator.prototypes()), ""]
    lines += [f"Python: {operator.signature()}", "", operator.formula, "", "Parameters:"]
    for parameter in operator.parameters:
        dtypes = ", ".join(dtype.name for dtype in parameter.dtypes)
        notes = "; ".join(part for part in (parameter.text, parameter.shape, dtypes) if part)
        optional = " (may be null)" if parameter.optional else ""
        lines.append(f"  {parameter.declaration}{optional}: {notes}")
    lines += ["", "Checks, in order:"]
    lines += [f"  {check.row:>2}  {int(check.status)}  {check.rule}" for check in checks]
    return "\n".join(lines)


@dataclass(frozen=True)
class SupportTable:
    """Operator by product: the dtypes it computes with there; print it, or read `header` and `rows`."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, operators: Iterable[Interface]) -> SupportTable:
        """The table of these operators, from their declarations."""
        rows = []
        for operator in operators:
            cells = [
                " ".join(_SHORT[dtype.name] for dtype in operator.dtypes_on(product)) or "-"
                for product in PRODUCTS
            ]
            rows.append((operator.name, *cells))
        return cls(("operator", *(product.tag for product in PRODUCTS)), tuple(rows))

    def markdown(self) -> str:
        """The table as Markdown."""
        return _render(self, markdown=True)

    def __str__(self) -> str:
        return _render(self, markdown=False)


def _render(table: SupportTable, markdown: bool) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    drawn: Any = Table(box=box.MARKDOWN if markdown else box.SIMPLE)
    for title in table.header:
        drawn.add_column(title, no_wrap=True)
    for row in table.rows:
        drawn.add_row(*row)
    text = StringIO()
    Console(file=text, width=200, color_system=None).print(drawn)
    lines = (line.rstrip() for line in text.getvalue().splitlines())
    return "\n".join(line for line in lines if line)
