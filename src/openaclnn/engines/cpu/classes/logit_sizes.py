"""aclnnCrossEntropyLoss over any sizes: what its kernels' parameters and launches follow from, as code."""

from __future__ import annotations

from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.classes.logits import (
    ALONE,
    OPERANDS,
    PLACES,
    RECORD,
    SLOTS,
    WHOLE,
    CrossEntropy,
    Cut,
    staged_rows,
)
from openaclnn.engines.cpu.classes.sized import (
    Fitted,
    LaidRunner,
    Problem,
    Sizing,
    at_least_one,
    laid_runner,
    row_major,
    sized_runner,
)
from openaclnn.engines.cpu.registry import KERNELS, SizedRunner
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Value

FULL = ("input", "log_prob")


class CrossEntropyLoss(CrossEntropy):
    """The kernel for any sizes and numbers."""

    def sized(self, plan: Plan) -> SizedRunner:
        """What runs row-major operands of any (N, C)."""
        block = self.block(plan, Cut(1, False, 1, 1, 1))
        fixed = row_major(plan, OPERANDS, SLOTS)
        item = plan.compute.itemsize
        for slot, value in {
            **fixed,
            **{SLOTS[f"{name}.class_step"]: item for name in FULL},
        }.items():
            block[slot] = value

        def kernels(shape: tuple[int, ...]) -> tuple[int, ...]:
            write, finish = self.kernels(plan)
            return 0, write, 0, 0, finish

        return sized_runner(SIZINGS[not plan.reduction], block, kernels, None)

    def laid(self, plan: Plan) -> LaidRunner:
        """The same with any strides."""

        def kernels(shape: tuple[int, ...]) -> tuple[int, ...]:
            write, finish = self.kernels(plan)
            return 0, write, 0, 0, finish

        block, dtype = self.block(plan, Cut(1, False, 1, 1, 1)), plan.compute.short
        sizing = LAYINGS[not plan.reduction, dtype]
        return laid_runner(sizing, block, kernels, None, plan.operands, PLACES)


def _fit(problem: Problem, each: bool) -> Fitted:
    """The parameters of row-major rows."""
    positions, classes = problem.shape
    pitch = classes * problem["input.class_step"]
    for name, value in (
        ("classes", classes), ("positions", positions), ("size2", positions),
        *((f"{name}.step2", pitch) for name in FULL),
    ):  # fmt: skip
        problem[name] = value
    return _cut(problem, problem.code.integer(1), each)


def _fit_laid(problem: Problem, each: bool, dtype: str) -> Fitted:
    """The parameters of rows that lie anyhow."""
    code, classes = problem.code, problem["classes"]
    beside = [problem[f"{name}.class_step"].equals(SIZE[dtype]) for name in FULL]
    here = classes.equals(1) | (beside[0] & beside[1])
    problem["staged"] = (~here).to("i64")
    return _cut(problem, here.choose(code.integer(1), staged_rows(dtype)), each)


def _cut(problem: Problem, tile: Value, each: bool) -> Fitted:
    """The launches over tiles of rows."""
    code, positions, classes = problem.code, problem["positions"], problem["classes"]
    problem["tile"], problem["records"] = tile, positions
    grain = at_least_one(code.integer(ALONE) // (tile.least(positions) * classes))
    left = None if each else positions * (8 * RECORD)
    return Fitted(code.integer(0), (positions + tile - 1) // tile, grain, left=left)


def _put_ignored(problem: Problem, number: Value) -> None:
    problem["ignore_index"] = number


def _put_smoothing(problem: Problem, number: Value) -> None:
    problem.put_double("smoothing", number)


def _put_scale(problem: Problem, number: Value) -> None:
    problem.put_double("zloss_scale", number)


NUMBERS = ("i64", _put_ignored), ("f64", _put_smoothing), ("f64", _put_scale)


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
