"""Rows of any length: what is done once a row takes longer than a short row itself, so that those are computed as pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.registry import Kernel, Runner

__all__ = ["RowsOfAnyLength"]

# Loss and gradient by the kernels of rows and of pixels, FLOAT: a row of 4 classes 260 and 35 ns, of 21 308 and 114, of 100
# 472 and 625.
SHORT = 48


class RowsOfAnyLength:
    def __init__(self, rows: Kernel, pixels: Kernel) -> None:
        self.rows, self.pixels = rows, pixels

    def declines(self, plan: Plan) -> str | None:
        return self.rows.declines(plan)

    def runner(self, plan: Plan, lanes: int = 0) -> Runner:
        return (self.pixels if plan.classes < SHORT else self.rows).runner(plan, lanes)

    def variants(self) -> Iterator[Plan]:
        """Long rows; what short ones need, pixels have."""
        for plan in self.rows.variants():
            yield replace(plan, classes=SHORT)
