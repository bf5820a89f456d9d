"""The cross entropy gradient: see the formula and its derivation in `operators/cross_entropy_loss_grad.py`.

A row is factor * exp(logProb) - smooth * weight, and nll less at its target. A row's numbers and its
target's element are computed in FLOAT64, the rest in FLOAT.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from openaclnn.core.dtypes import FLOATS, INT32, INT64, DType
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.cpu.classes.gradients import rows
from openaclnn.engines.cpu.classes.gradients.few_classes import emit_few_classes
from openaclnn.engines.cpu.classes.gradients.formula import streams
from openaclnn.engines.cpu.classes.gradients.numbers import sums_of
from openaclnn.engines.cpu.classes.gradients.one_row import emit_one_row
from openaclnn.engines.cpu.classes.positions.sizes import Pieces, pieces_of, place_rows
from openaclnn.engines.cpu.classes.positions.stretches import (
    CHUNK,
    Stretch,
    cut_rows,
    each_stretch,
)
from openaclnn.engines.cpu.classes.positions.tile import TILE_CLASSES, TILE_ROWS, Tile
from openaclnn.engines.cpu.classes.shared import totals
from openaclnn.engines.cpu.classes.shared.parameters import (
    Parameters,
    double,
    few,
    fields,
    objection,
    pack,
    places,
)
from openaclnn.engines.cpu.classes.shared.passes import Passes, runner_of
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
from openaclnn.engines.cpu.classes.shared.targets import target_kind
from openaclnn.engines.cpu.registry import KERNELS, Runner, SizedRunner
from openaclnn.engines.machine.cache import Emit, compiled
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value

NAME = "cross_entropy_loss_grad"
OPERANDS = {
    "target": "target", "gradient": "gradLoss", "log_prob": "logProb", "weight": "weightOptional",
    "lse": "lseForZlossOptional", "grad_zloss": "gradZlossOptional", "out": "out",
}  # fmt: skip
SLOTS = fields(
    tuple(OPERANDS),
    ("weighted", "mean", "zloss", "grad_zloss_given", "smooths", "smoothing", "zloss_scale", "table",
     "staged", "tile", "chunk", "chunks", "item"),
)  # fmt: skip
PLACES = places(SLOTS, OPERANDS)
ONE_BY_ONE = {"staged": 0, "tile": 1, "chunk": 1, "chunks": 1}  # until the sizes are known

SHORT = 48  # fewer classes have a kernel of their own (`few_classes.py`): 64 rows of 4 take it 1.5 us, the other 12


@functools.cache
def exp_table(dtype: DType) -> np.ndarray[Any, Any]:
    """exp of every 16-bit pattern, rounded to FLOAT, then the same with NaN for infinity (see `INFINITE`).

    256 KB each; log-probabilities use little of it.
    """
    patterns = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    with np.errstate(all="ignore"):
        exact = np.exp(patterns.astype(np.float64))
        table = np.stack([exact, np.where(np.isinf(exact), np.nan, exact)]).astype(np.float32)
    # One NaN whose low half is zero: rounding to bfloat16 needs that.
    table[np.isnan(table)] = np.nan
    return table


def emit_rows(dtype: str, target: str) -> Emit:
    """The kernel: pieces of work are tiles of rows times chunks of classes."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, SLOTS)
        sums = sums_of(code, parameters, target)
        buffers, tile = rows.Buffers(code, dtype, streams(dtype)), Tile(code, parameters, dtype)

        def stretch(position: Value, first_class: Value, row: Stretch, index: Value) -> None:
            emit_one_row(code, parameters, dtype, target, position, first_class, row, sums, buffers)

        each_stretch(code, parameters, tile, first, last, stretch)

    return emit


class CrossEntropy:
    def declines(self, plan: Plan) -> str | None:
        return objection(plan, axes=1)

    def runner(self, plan: Plan) -> Runner:
        numbers = plan.numbers
        positions, classes = plan.shape[-1], plan.classes
        log_prob = next(operand for operand in plan.inputs if operand.parameter == "logProb")
        # Few classes are read where they lie, side by side or not.
        here = classes < SHORT or log_prob.class_stride == plan.output.class_stride == 1
        cut = cut_rows(positions, classes, here)
        block, table = _block(
            plan,
            {"staged": cut.staged, "tile": cut.tile, "chunk": cut.chunk, "chunks": cut.chunks},
        )
        write, sums = _kernels(plan, classes < SHORT)
        shared = numbers["mean"], numbers["weighted"], positions, classes
        if cut.pieces <= cut.grain or not totals.sums_apart(*shared):
            sums = 0
        passes = Passes(write, cut.pieces, cut.grain, sums, totals.sum_blocks(*shared))
        return runner_of(block, passes, table)

    def sized(self, plan: Plan) -> SizedRunner:
        """What runs row-major operands of any (N, C)."""
        block, table = _block(plan, ONE_BY_ONE)
        fixed = dict.fromkeys(("log_prob.class_step", "out.class_step"), plan.output.dtype.itemsize)
        block = row_major(block, plan, SLOTS, PLACES, fixed)
        return sized_runner(SIZING, block, _compiling(plan), table)

    def laid(self, plan: Plan) -> LaidRunner:
        """The same with any strides."""
        block, table = _block(plan, ONE_BY_ONE)
        return laid_runner(LAYING, block, _compiling(plan), plan.operands, PLACES, table)

    def variants(self) -> Iterator[Plan]:
        for dtype in FLOATS:
            for target in (INT64, INT32):
                for classes in (SHORT - 1, SHORT):
                    yield _example(dtype, target, classes)


def _block(plan: Plan, cut: Mapping[str, int]) -> tuple[Any, Any]:
    """The parameters of a plan, and the table that they point to."""
    dtype, numbers = plan.output.dtype, plan.numbers
    table = exp_table(dtype) if dtype.itemsize == 2 else None
    block = pack(
        SLOTS, plan, PLACES,
        {
            "weighted": numbers["weighted"],
            "mean": numbers["mean"],
            "zloss": numbers["zloss_scale"] != 0,
            "grad_zloss_given": numbers["grad_zloss_given"],
            "smooths": numbers["label_smoothing"] != 0,
            "smoothing": double(numbers["label_smoothing"]),
            "zloss_scale": double(2.0 * numbers["zloss_scale"]),
            "table": 0 if table is None else table.ctypes.data,
            "item": dtype.itemsize,
            **cut,
        },
    )  # fmt: skip
    return block, table


def _kernels(plan: Plan, short: bool) -> tuple[int, int]:
    """The kernel that writes rows, and the one that leaves sums."""
    return _compiled(plan.output.dtype.short, target_kind(plan), short)


def _compiling(plan: Plan) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    def kernels(shape: tuple[int, ...]) -> tuple[int, ...]:
        short = shape[-1] < SHORT
        return int(short), *_kernels(plan, short), 0

    return kernels


def _compiled(dtype: str, target: str, short: bool) -> tuple[int, int]:
    name = f"{dtype}.{target}"
    if short:
        emit = emit_few_classes(dtype, target, SLOTS)
        write = compiled(f"cross_entropy.few.{name}", emit, few=few)
    else:
        write = compiled(f"cross_entropy.{name}", emit_rows(dtype, target), few=few)
    sums = compiled(f"totals.cross_entropy.{target}", totals.emit_totals(target, "f32", SLOTS))
    return write, sums


def _fit(problem: Problem) -> Fitted:
    """The parameters of row-major rows."""
    place_rows(problem, ("log_prob", "out"))
    return _cut(problem, problem.code.integer(1), problem["classes"].least(CHUNK))


def _fit_laid(problem: Problem) -> Fitted:
    """The parameters of rows that lie anyhow; those of few classes are read where they lie."""
    code, classes, item = problem.code, problem["classes"], problem["item"]
    beside = [problem[f"{name}.class_step"] == item for name in ("log_prob", "out")]
    here = (classes < SHORT) | (beside[0] & beside[1])
    problem["staged"] = (~here).to("i64")
    tile = here.choose(code.integer(1), TILE_ROWS)
    return _cut(problem, tile, classes.least(here.choose(code.integer(CHUNK), TILE_CLASSES)))


def _cut(problem: Problem, tile: Value, chunk: Value) -> Fitted:
    """The launches over tiles of rows and chunks of classes."""
    classes = problem["classes"]
    chunks = (classes + chunk - 1).unsigned_div(chunk)
    for name, value in (("chunk", chunk), ("chunks", chunks)):
        problem[name] = value
    return fitted(problem, (classes < SHORT).to("i64"), pieces_of(problem, tile, chunk, chunks))


def fitted(problem: Problem, way: Value, pieces: Pieces) -> Fitted:
    """The launches; where there is much to sum, that is done first."""
    shared = problem["mean"], problem["weighted"], problem["positions"], problem["classes"]
    apart = (pieces.pieces > pieces.grain) & totals.sums_apart(*shared)
    return Fitted(way, *pieces, apart.choose(totals.sum_blocks(*shared), 0))


def _put_scale(problem: Problem, number: Value) -> None:
    problem.put_double("zloss_scale", number * 2.0)


NUMBERS = ("i64", put_ignored), ("f64", put_smoothing), ("f64", _put_scale)
SIZING = Sizing("cross_entropy", SLOTS, 2, _fit, NUMBERS)
LAYING = Sizing("cross_entropy.laid", SLOTS, 0, _fit_laid, NUMBERS)


def _example(dtype: DType, target: DType, classes: int) -> Plan:
    """A plan of many rows."""
    numbers: dict[str, Any] = {
        "ignore_index": -100, "mean": True, "weighted": False, "label_smoothing": 0.0,
        "zloss_scale": 0.0, "grad_zloss_given": False,
    }  # fmt: skip
    inputs = (
        Operand("target", target, (1,), role="positions"),
        Operand("gradLoss", dtype, (0,), role="single"),
        Operand("logProb", dtype, (classes,), 1),
    )
    output = Operand("out", dtype, (classes,), 1)
    return Plan("", NAME, dtype, (1 << 17,), inputs, output, numbers, classes, 0)


KERNELS[NAME] = CrossEntropy()
