"""Cross entropy from logits: for training (`operators/logits.py`) one pass over each row; for aclnnCrossEntropyLoss, which
writes log-probabilities, a second one over what the caches still hold.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core.dtypes import FLOAT, FLOAT16, FLOATS, INT32, INT64, DType
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.arithmetic.doubles import log1p_64
from openaclnn.engines.cpu.classes.logits.chunks import CHUNK, Chunks, Rows
from openaclnn.engines.cpu.classes.positions.tile import Tile
from openaclnn.engines.cpu.classes.shared.parameters import (
    Parameters,
    double,
    few,
    fields,
    pack,
    places,
)
from openaclnn.engines.cpu.classes.shared.targets import Targets, target_kind
from openaclnn.engines.cpu.launching import in_turn, pool
from openaclnn.engines.cpu.registry import Runner
from openaclnn.engines.machine.cache import Emit, compiled
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.host import machine
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Shape, Value, Variable, fma

# Either writes top and rest, or log-probabilities and perhaps z-loss and log-sum-exp.
TRAINING, WHOLE = "cross_entropy_logits", "cross_entropy_loss"
OPERANDS = {
    "target": "target", "input": "input", "weight": "weightOptional", "loss": "lossOut", "top": "topOut",
    "rest": "restOut", "log_prob": "logProbOut", "square": "zlossOut", "lse": "lseForZlossOut",
}  # fmt: skip
SLOTS = fields(
    tuple(OPERANDS),
    ("weighted", "mean", "zloss", "smooths", "smoothing", "zloss_scale", "returns", "staged", "tile", "records"),
)  # fmt: skip
PLACES = places(SLOTS, OPERANDS)

ALONE = 1 << 15  # elements that one thread does faster than two
AT_ONCE = 1 << 12  # elements of the rows that are one piece of work, if they are short
STAGED_BYTES = 1 << 16  # of a tile of rows whose classes lie apart
RECORD = 4  # of a row in scratch memory: its loss, z-loss, weight, and whether it counts


def staged_rows(dtype: str) -> int:
    return STAGED_BYTES // (CHUNK * SIZE[dtype])


def emit_rows(dtype: str, target: str, each: bool, whole: bool) -> Emit:
    """The kernel: pieces of work are tiles of rows. It leaves records in scratch memory, or writes each row's loss."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, SLOTS)
        many_rows = staged_rows(dtype)
        tile = Tile(code, parameters, dtype, "input", many_rows, CHUNK, "log_prob")
        rows = Rows(code, many_rows)
        chunks = Chunks(code, parameters, dtype, rows)
        finish = _Finish(code, parameters, dtype, target, each, whole, rows)
        height, positions, classes = (parameters[name] for name in ("tile", "positions", "classes"))
        weight_step = parameters["weight.class_step"]
        with code.loop(first, last) as piece:
            first_row = piece * height
            many = (positions - first_row).least(height)
            with code.loop(0, many) as index:
                rows.begin(index)
            with code.loop(0, classes, CHUNK) as start:
                count = (classes - start).least(CHUNK)
                tile.read(first_row, start, many, count)
                weight = parameters.address("weight") + start * weight_step
                with code.loop(0, many) as index:
                    chunks.look(tile.input_row(first_row, start, index), count, index)
                with code.loop(0, many) as index:
                    place = tile.input_row(first_row, start, index)
                    chunks.take(place, weight, weight_step, count, index)
            with code.loop(0, many) as index:
                finish.row(first_row + index, index)
            if whole:
                with code.loop(0, classes, CHUNK) as start:
                    count = (classes - start).least(CHUNK)
                    tile.read(first_row, start, many, count)
                    with code.loop(0, many) as index:
                        finish.log_prob(*tile.row(first_row, start, index), count, index)
                    tile.write(first_row, start, many, count)

    return emit


class _Finish:
    """Writes a row's results."""

    def __init__(
        self, code: Code, parameters: Parameters, dtype: str, target: str, each: bool, whole: bool, rows: Rows
    ) -> None:  # fmt: skip
        self.code, self.parameters, self.dtype, self.rows = code, parameters, dtype, rows
        self.each, self.whole = each, whole
        self.targets = Targets(code, parameters, target)
        self.opaque = numerics.Opaque(code)

    def at(self, operand: str, position: Value) -> Value:
        return self.parameters.address(operand) + position * self.parameters[f"{operand}.step2"]

    def _rest(self, index: Value) -> Value:
        """log-sum-exp less the largest. Where that is infinite, training has no probabilities; the formula of
        aclnnCrossEntropyLoss has them where one alone is."""
        highest, others = self.rows.top.read(index), self.rows.others.read(index)
        rest = log1p_64(self.code, others)
        if not self.whole:
            return rest + (highest - highest)
        many = self.parameters["classes"] > 1
        none = ((highest == -math.inf) & many) | ((highest == math.inf) & (others >= 0.5))
        unlike: Value = none.choose(math.nan, rest)
        return unlike

    def row(self, position: Value, index: Value) -> None:
        code, parameters, rows = self.code, self.parameters, self.rows
        found = self.targets.at(self.at("target", position))
        with code.when(found.stray, likely=False):
            parameters.report_stray()
        counted, label = found.counted, found.counted.choose(found.label, 0)
        rest, top = self._rest(index), rows.top.read(index)
        if self.whole:
            rows.others.write(index, rest)  # what was there has done its work
        else:
            top = rest.is_nan().choose(rest, top)
            code.store(top.to("f32"), self.at("top", position), "f32")
            code.store(rest.to("f32"), self.at("rest", position), "f32")

        weight = code.variable(code.double(1.0))
        with code.when(parameters.flag("weighted")):
            place = parameters.address("weight") + label * parameters["weight.class_step"]
            weight.set(code.load(place, "f32").to("f64"))
        place = self.at("input", position) + label * parameters["input.class_step"]
        own = code.load(place, self.dtype).to("f64")
        loss = code.variable(-(weight.get() * ((own - top) - rest)))
        with code.when(parameters.flag("smooths")):
            smoothing, classes = parameters.double("smoothing"), parameters["classes"].to("f64")
            # An infinite largest logit has no log-probability.
            spread = (rest + (top - top)) * rows.weights.read(index) - rows.spread.read(index)
            loss.set(fma(loss.get(), 1.0 - smoothing, smoothing / classes * spread))
        square = code.variable(code.double(0.0))
        with code.when(parameters.flag("zloss")):
            square.set(parameters.double("zloss_scale") * (top + rest) * (top + rest))
        parts = [
            counted.choose(part, 0.0) for part in (loss.get(), square.get(), weight.get(), code.double(1.0))
        ]  # fmt: skip
        returns = parameters.flag("returns")
        if self.each:
            code.store((parts[0] + parts[1]).to("f32"), self.at("loss", position), self.dtype)
        else:
            record = code.array(parameters.scratch + position * (8 * RECORD), "f64")
            for slot, part in enumerate(parts):
                record.write(slot, part)
        if self.whole:
            with code.when(returns):
                code.store((top + rest).to("f32"), self.at("lse", position), self.dtype)
                if self.each:
                    code.store(parts[1].to("f32"), self.at("square", position), self.dtype)

    def log_prob(self, x: Value, out: Value, count: Value, index: Value) -> None:
        """A chunk of a row's log-probabilities."""
        code, rows = self.code, self.rows
        top, rest = (array.read(index).to("f32") for array in (rows.top, rows.others))
        source, written = code.array(x, self.dtype), code.array(out, self.dtype)

        def body(shape: Shape, place: Value) -> None:
            values = (numerics.load(source, place, shape) - top) - rest
            numerics.store(values, written, place, self.opaque, any_nan=True)

        code.elements(count, 4, body)


def emit_reduction(dtype: str) -> Emit:
    """The kernel that adds up records, one after another, and writes the loss."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        parameters = Parameters(code, arguments[0], SLOTS)
        sums: list[Variable] = [code.variable(code.double(0.0)) for _ in range(RECORD)]
        with code.loop(0, parameters["records"]) as number:
            record = code.array(parameters.scratch + number * (8 * RECORD), "f64")
            for slot, total in enumerate(sums):
                total.set(total.get() + record.read(slot))
        loss, square, weight, count = (total.get() for total in sums)
        mean = parameters.flag("mean")
        loss, square = loss / mean.choose(weight, 1.0), square / mean.choose(count, 1.0)
        loss = parameters.flag("zloss").choose(loss + square, loss)
        code.store(loss.to("f32"), parameters.address("loss"), dtype)
        with code.when(parameters.flag("returns")):
            code.store(square.to("f32"), parameters.address("square"), dtype)

    return emit


class Cut(NamedTuple):
    """How the work is cut: rows of a piece, whether they are copied together first, pieces, those that one thread does faster
    than two, and records that are left."""

    tile: int
    staged: bool
    pieces: int
    grain: int
    records: int


def kind_of(plan: Plan) -> tuple[str, str, bool]:
    """The kinds of logits and targets that a kernel is written for, and whether each row's loss is written."""
    return plan.compute.short, target_kind(plan), not plan.reduction


class CrossEntropy:
    """Of one of the two names."""

    def __init__(self, name: str) -> None:
        self.name, self.whole = name, name == WHOLE

    def declines(self, plan: Plan) -> str | None:
        """Why it does not serve a plan; None if it does."""
        if plan.compute is FLOAT16 and not machine().half:
            return "this CPU does not convert FLOAT16"
        return None

    def cut(self, plan: Plan) -> Cut:
        rows = plan.shape[0]
        full = [operand for operand in plan.operands if operand.role == "full"]
        side_by_side = plan.classes == 1 or all(operand.class_stride == 1 for operand in full)
        tile = staged_rows(plan.compute.short)
        if side_by_side:
            tile = max(1, min(tile, AT_ONCE // plan.classes))
        grain = max(1, ALONE // (min(tile, rows) * plan.classes))
        return Cut(tile, not side_by_side, -(-rows // tile), grain, rows)

    def emits(self, dtype: str, target: str, each: bool) -> Emit:
        return emit_rows(dtype, target, each, self.whole)

    def runner(self, plan: Plan) -> Runner:
        cut = self.cut(plan)
        _, _, pieces, grain, records = cut
        words = self.block(plan, cut)
        block = words.buffer_info()[0]
        write, reduce = self.kernels(plan)
        if not plan.reduction:
            return pool.bind(write, pieces, grain, block, 0, keep=words)
        if pieces <= grain and RECORD * records <= in_turn.ROOM:
            operands, elements = len(plan.operands), math.prod(plan.shape) * plan.classes
            return in_turn.bind_both(write, pieces, reduce, block, operands, elements, words)

        def run(addresses: Sequence[int], stream: int = 0, keep: Any = words) -> int:
            scratch = np.empty(RECORD * records)
            place = scratch.ctypes.data
            status = pool.launch(write, pieces, grain, block, place, *addresses)
            pool.launch(reduce, 1, 1, block, place, *addresses)
            return status

        return run

    def block(self, plan: Plan, cut: Cut) -> array[int]:
        """The parameters of a plan."""
        numbers = plan.numbers
        return pack(
            SLOTS, plan, PLACES,
            {
                "weighted": numbers["weighted"], "mean": plan.reduction == "mean",
                "zloss": numbers["zloss_scale"] != 0, "smooths": numbers["label_smoothing"] != 0,
                "smoothing": double(numbers["label_smoothing"]),
                "zloss_scale": double(numbers["zloss_scale"]),
                "returns": numbers.get("return_zloss", False), "staged": cut.staged, "tile": cut.tile,
                "records": cut.records,
            },
        )  # fmt: skip

    def kernels(self, plan: Plan) -> tuple[int, int]:
        """The kernel over rows, and the one that adds up what it leaves."""
        return self.writes(plan), self.finishes(plan)

    def writes(self, plan: Plan) -> int:
        dtype, target, each = kind_of(plan)
        kind = f"{dtype}.{target}.{'each' if each else 'sum'}"
        return compiled(f"{self.name}.{kind}", self.emits(dtype, target, each), few=few)

    def finishes(self, plan: Plan) -> int:
        dtype, _, each = kind_of(plan)
        return 0 if each else compiled(f"logits.reduction.{dtype}", emit_reduction(dtype))

    def variants(self) -> Iterator[Plan]:
        for dtype in FLOATS:
            for target in (INT64, INT32):
                for reduction in ("", "mean"):
                    yield self._example(dtype, target, reduction)

    def _example(self, dtype: DType, target: DType, reduction: str) -> Plan:
        """A plan of two rows."""
        numbers = {
            "ignore_index": -100, "weighted": False, "label_smoothing": 0.0, "zloss_scale": 0.0,
        }  # fmt: skip
        inputs = Operand("target", target, (1,), role="positions"), Operand("input", dtype, (2,), 1)
        many = Operand("lossOut", dtype, (1,), role="positions")
        one = Operand("lossOut", dtype, (0,), role="single")
        more = tuple(Operand(name, FLOAT, (1,), role="positions") for name in ("topOut", "restOut"))
        if self.whole:
            more = (Operand("logProbOut", dtype, (2,), 1),)
        return Plan(
            "", self.name, dtype, (2,), inputs, one if reduction else many, numbers, 2, 0, more=more,
            reduction=reduction,
        )  # fmt: skip
