"""Rows of any length. Of a short one, what is done once a row would take longest: so short rows are computed as pixels are, many
at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.registry import Kernel, Runner

__all__ = ["RowsOfAnyLength"]


class RowsOfAnyLength:
    """Fewer than `short` classes are a short row."""

    def __init__(self, rows: Kernel, pixels: Kernel, short: int) -> None:
        self.rows, self.pixels, self.short = rows, pixels, short

    def declines(self, plan: Plan) -> str | None:
        return self.rows.declines(plan)

    def runner(self, plan: Plan) -> Runner:
        return (self.pixels if plan.classes < self.short else self.rows).runner(plan)

    def variants(self) -> Iterator[Plan]:
        """Long rows; what short ones need, pixels have."""
        for plan in self.rows.variants():
            yield replace(plan, classes=self.short)
