"""The cross entropy gradient: see the formula and its derivation in `operators/cross_entropy_loss.py`.

A row is factor * exp(logProb) - smooth * weight, and nll less at its target. A row's numbers and its
target's element are computed in FLOAT64, the rest in FLOAT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.core.plan import Plan
from openaclnn.engines.cpu import pool
from openaclnn.engines.cpu.classes import rows, totals
from openaclnn.engines.cpu.classes.code import SIZE, Code, Number
from openaclnn.engines.cpu.classes.one_row import Sums, emit_one_row
from openaclnn.engines.cpu.classes.parameters import Parameters, fields, pack
from openaclnn.engines.machine.cache import compiled

OPERANDS = {
    "target": "target", "gradient": "gradLoss", "log_prob": "logProb", "weight": "weightOptional",
    "lse": "lseForZlossOptional", "grad_zloss": "gradZlossOptional", "out": "out",
}  # fmt: skip
SLOTS = fields(
    tuple(OPERANDS),
    ("weighted", "mean", "zloss", "grad_zloss_given", "smooths", "smoothing", "zloss_scale", "table",
     "staged", "tile", "chunk", "chunks"),
)  # fmt: skip

ALONE = 1 << 15  # elements that one thread does faster than two
CHUNK = 1 << 16  # classes of one piece of work: few long rows keep all threads busy
TILE_ROWS, TILE_CLASSES = 64, 128  # of rows whose classes lie apart: 32 KB each way
SUMS_HERE = 1 << 13  # targets and weights that each piece of work sums for itself: 10 us


@cache
def exp_table(dtype: DType) -> np.ndarray[Any, Any]:
    """exp of every 16-bit pattern, rounded to FLOAT. 256 KB; log-probabilities use little of it."""
    patterns = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    with np.errstate(all="ignore"):
        table = np.exp(patterns.astype(np.float64)).astype(np.float32)
    # One NaN whose low half is zero: rounding to bfloat16 needs that.
    table[np.isnan(table)] = np.nan
    return table


def emit_rows(dtype: str, target: str, lanes: int = 0) -> Callable[[Any, Any], None]:
    """The kernel: pieces of work are tiles of rows times chunks of classes."""

    def emit(builder: Any, arguments: Any) -> None:
        code = Code(builder, lanes)
        parameters = Parameters(code, arguments[0], SLOTS)
        sums = _sums(code, parameters, target)
        buffers, tile = rows.Buffers(code, dtype), _Tile(code, parameters, dtype)
        height, chunk, chunks = (parameters[name] for name in ("tile", "chunk", "chunks"))
        positions, classes = parameters["positions"], parameters["classes"]
        weights, weight_step = parameters.address("weight"), parameters["weight.class_step"]
        with code.loop(code.number(arguments[1]), code.number(arguments[2])) as piece:
            band = piece // chunks
            first_class, first_row = (piece - band * chunks) * chunk, band * height
            count = (classes - first_class).least(chunk)
            many = (positions - first_row).least(height)
            tile.read(first_row, first_class, many, count)
            with code.loop(code.integer(0), many) as index:
                log_prob, out = tile.row(first_row, first_class, index)
                weight = weights + first_class * weight_step
                row = rows.Row(log_prob, out, weight, weight_step, count)
                position = first_row + index
                emit_one_row(
                    code, parameters, dtype, target, position, first_class, row, sums, buffers
                )
            tile.write(first_row, first_class, many, count)

    return emit


class _Tile:
    """Rows where they lie, or copied together where their classes do not lie side by side.

    The copies walk along the operand's smaller step: a transposed matrix is read and written line by line.
    """

    def __init__(self, code: Code, parameters: Parameters, dtype: str) -> None:
        self.code, self.parameters, self.dtype = code, parameters, dtype
        self.staged = parameters["staged"].differs(0)
        self.inputs = code.buffer(dtype, TILE_ROWS * TILE_CLASSES)
        self.results = code.buffer(dtype, TILE_ROWS * TILE_CLASSES)
        self.pitch = TILE_CLASSES * SIZE[dtype]

    def _place(self, operand: str, position: Number, label: Number) -> Number:
        steps = self.parameters[f"{operand}.step2"], self.parameters[f"{operand}.class_step"]
        return self.parameters.address(operand) + position * steps[0] + label * steps[1]

    def row(self, first_row: Number, first_class: Number, index: Number) -> tuple[Number, Number]:
        """The addresses of a row's inputs and results."""
        position, offset = first_row + index, index * self.pitch
        places = (self._place(name, position, first_class) for name in ("log_prob", "out"))
        inputs, results = places
        return (
            self.staged.choose(self.inputs + offset, inputs),
            self.staged.choose(self.results + offset, results),
        )

    def read(self, first_row: Number, first_class: Number, many: Number, count: Number) -> None:
        self._copy("log_prob", self.inputs, first_row, first_class, many, count, inwards=True)

    def write(self, first_row: Number, first_class: Number, many: Number, count: Number) -> None:
        self._copy("out", self.results, first_row, first_class, many, count, inwards=False)

    def _copy(
        self, operand: str, buffer: Number, first_row: Number, first_class: Number, many: Number,
        count: Number, inwards: bool,
    ) -> None:  # fmt: skip
        code, zero = self.code, self.code.integer(0)
        origin = self._place(operand, first_row, first_class)
        down = self.parameters[f"{operand}.step2"], code.integer(self.pitch)
        along = self.parameters[f"{operand}.class_step"], code.integer(SIZE[self.dtype])
        by_rows = along[0].size() < down[0].size()
        for condition, outer, inner, lines, length in (
            (by_rows, down, along, many, count), (~by_rows, along, down, count, many),
        ):  # fmt: skip
            with code.when(self.staged & condition), code.loop(zero, lines) as line:
                ends = [(origin + line * outer[0], inner[0]), (buffer + line * outer[1], inner[1])]
                source, target = ends if inwards else ends[::-1]
                code.copy(*source, *target, length, self.dtype)


def _sums(code: Code, parameters: Parameters, target: str) -> Sums:
    positions, classes, scratch = parameters["positions"], parameters["classes"], parameters.scratch
    mean = parameters["mean"].differs(0)
    weighted = parameters["weighted"].differs(0)
    zero = code.integer(0)
    total, counted = totals.in_blocks(
        code, mean.choose(positions, zero), scratch, zero, 2,
        lambda start, stop: totals.sum_targets(code, parameters, start, stop, target, "f32"),
    )  # fmt: skip
    (weight_sum,) = totals.in_blocks(
        code, weighted.choose(classes, zero), scratch,
        (positions + (totals.BLOCK - 1)) // totals.BLOCK, 1,
        lambda start, stop: (totals.sum_weights(code, parameters, start, stop),),
    )  # fmt: skip
    return Sums(
        mean.choose(total, 1.0),
        mean.choose(counted, 1.0),
        weighted.choose(weight_sum, classes.to_f64()),
    )


def runner(plan: Plan, lanes: int = 0) -> Callable[[Sequence[int], int], int]:
    """What runs a plan: `run(addresses, stream)`; nonzero if a target was out of range."""
    dtype, numbers = plan.output.dtype, plan.numbers
    target = "i64" if plan.inputs[plan.targets].dtype.itemsize == 8 else "i32"
    positions, classes = plan.shape[-1], plan.classes
    by_name = {operand.parameter: operand for operand in (*plan.inputs, plan.output)}
    side_by_side = by_name["logProb"].class_stride == by_name["out"].class_stride == 1
    tile = 1 if side_by_side else TILE_ROWS
    chunk = min(classes, CHUNK if side_by_side else TILE_CLASSES)
    chunks = -(-classes // chunk)
    pieces = -(-positions // tile) * chunks
    table = exp_table(dtype) if dtype.itemsize == 2 else None
    block = pack(
        SLOTS, plan, OPERANDS,
        {
            "weighted": int(numbers["weighted"]),
            "mean": int(numbers["mean"]),
            "zloss": int(numbers["zloss_scale"] != 0),
            "grad_zloss_given": int(numbers["grad_zloss_given"]),
            "smooths": int(numbers["label_smoothing"] != 0),
            "smoothing": float(numbers["label_smoothing"]),
            "zloss_scale": 2.0 * float(numbers["zloss_scale"]),
            "table": 0 if table is None else table.ctypes.data,
            "staged": int(not side_by_side),
            "tile": tile,
            "chunk": chunk,
            "chunks": chunks,
        },
    )  # fmt: skip
    kernel = compiled(
        f"cross_entropy.{dtype.short}.{target} x{lanes}", emit_rows(dtype.short, target, lanes)
    )
    grain = max(1, ALONE // (min(tile, positions) * chunk))
    to_sum = positions * numbers["mean"] + classes * numbers["weighted"]
    at = block.ctypes.data
    if pieces <= grain or to_sum <= SUMS_HERE:
        return pool.bind(kernel, pieces, grain, at, 0, keep=(block, table))
    sums = compiled(f"totals.cross_entropy.{target}", totals.emit_totals(target, "f32", SLOTS))
    blocks = totals.block_count(positions) + totals.block_count(classes) * numbers["weighted"]

    def run(addresses: Sequence[int], stream: int = 0, keep: Any = (block, table)) -> int:
        scratch = np.empty(2 * blocks)
        place = scratch.ctypes.data
        pool.launch(sums, blocks, totals.GRAIN, at, place, *addresses)
        return pool.launch(kernel, pieces, grain, at, place, *addresses)

    return run
