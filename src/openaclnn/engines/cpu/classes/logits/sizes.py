"""aclnnCrossEntropyLoss over any sizes: what its kernels' parameters and launches follow from, as code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.classes.logits.rows import (
    ALONE,
    PLACES,
    RECORD,
    SLOTS,
    WHOLE,
    CrossEntropy,
    Cut,
    kind_of,
    staged_rows,
)
from openaclnn.engines.cpu.classes.logits.short_rows import emit_short_rows
from openaclnn.engines.cpu.classes.positions.sizes import Pieces, pieces_of, place_rows
from openaclnn.engines.cpu.classes.shared.parameters import few
from openaclnn.engines.cpu.classes.shared.sized import (
    Fitted,
    LaidRunner,
    Problem,
    Sizing,
    laid_runner,
    put_ignored,
    put_smoothing,
    row_major,
    sized_runner,
)
from openaclnn.engines.cpu.registry import KERNELS, SizedRunner
from openaclnn.engines.machine.cache import compiled
from openaclnn.engines.machine.host import machine
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Value

FULL = ("input", "log_prob")


class CrossEntropyLoss(CrossEntropy):
    """The kernel for any sizes and numbers; short rows, of fewer classes than a vector has lanes, have one of their own."""

    def cut(self, plan: Plan) -> Cut:
        if not _is_short(plan.classes):
            return super().cut(plan)
        rows = plan.shape[0]
        return Cut(1, False, rows, max(1, ALONE // plan.classes), rows)

    def kernels(self, plan: Plan) -> tuple[int, int]:
        return self._kernels(plan, _is_short(plan.classes))

    def _kernels(self, plan: Plan, short: bool) -> tuple[int, int]:
        if not short:
            return super().kernels(plan)
        dtype, target, each = kind_of(plan)
        name = f"{WHOLE}.short.{dtype}.{target}.{each}"
        write = compiled(name, emit_short_rows(dtype, target, each), few=few)
        return write, self.finishes(plan)

    def _compiling(self, plan: Plan) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
        def kernels(shape: tuple[int, ...]) -> tuple[int, ...]:
            short = _is_short(shape[-1])
            write, finish = self._kernels(plan, short)
            return int(short), write, 0, 0, finish

        return kernels

    def sized(self, plan: Plan) -> SizedRunner:
        """What runs row-major operands of any (N, C)."""
        fixed = {f"{name}.class_step": plan.compute.itemsize for name in FULL}
        block = row_major(self.block(plan, Cut(1, False, 1, 1, 1)), plan, SLOTS, PLACES, fixed)
        return sized_runner(SIZINGS[not plan.reduction], block, self._compiling(plan))

    def laid(self, plan: Plan) -> LaidRunner:
        """The same with any strides."""
        block, dtype = self.block(plan, Cut(1, False, 1, 1, 1)), plan.compute.short
        sizing = LAYINGS[not plan.reduction, dtype]
        return laid_runner(sizing, block, self._compiling(plan), plan.operands, PLACES)

    def variants(self) -> Iterator[Plan]:
        """Rows of either sort."""
        for plan in super().variants():
            yield plan
            yield replace(plan, classes=1 << 10)


def _is_short(classes: int) -> bool:
    return classes < machine().lanes


def _fit(problem: Problem, each: bool) -> Fitted:
    """The parameters of row-major rows."""
    place_rows(problem, FULL)
    return _cut(problem, problem.code.integer(1), each)


def _fit_laid(problem: Problem, each: bool, dtype: str) -> Fitted:
    """The parameters of rows that lie anyhow."""
    code, classes = problem.code, problem["classes"]
    beside = [problem[f"{name}.class_step"] == SIZE[dtype] for name in FULL]
    here = (classes < machine().lanes) | (beside[0] & beside[1])
    problem["staged"] = (~here).to("i64")
    return _cut(problem, here.choose(code.integer(1), staged_rows(dtype)), each)


def _cut(problem: Problem, tile: Value, each: bool) -> Fitted:
    """The launches over tiles of rows."""
    classes, short = problem["classes"], problem["classes"] < machine().lanes
    return fitted(problem, short.to("i64"), pieces_of(problem, tile, classes), problem["positions"], each)  # fmt: skip


def fitted(problem: Problem, way: Value, pieces: Pieces, records: Value, each: bool) -> Fitted:
    """The launches, which leave so many records where each loss is not written."""
    problem["records"] = records
    return Fitted(way, *pieces, left=None if each else records * (8 * RECORD))


def _put_scale(problem: Problem, number: Value) -> None:
    problem.put_double("zloss_scale", number)


NUMBERS = ("i64", put_ignored), ("f64", put_smoothing), ("f64", _put_scale)


def _sizing(each: bool) -> Sizing:
    name = f"cross_entropy_loss.{'each' if each else 'sum'}"
    return Sizing(name, SLOTS, 2, lambda problem: _fit(problem, each), NUMBERS)


def _laying(each: bool, dtype: str) -> Sizing:
    name = f"cross_entropy_loss.{'each' if each else 'sum'}.{dtype}.laid"
    return Sizing(name, SLOTS, 0, lambda problem: _fit_laid(problem, each, dtype), NUMBERS)


SIZINGS = {each: _sizing(each) for each in (False, True)}
LAYINGS = {
    (each, dtype): _laying(each, dtype)
    for each in (False, True)
    for dtype in ("f32", "f16", "bf16")
}
KERNELS[WHOLE] = CrossEntropyLoss(WHOLE)
