"""Cross entropy from logits: one pass over each row, see `operators/logits.py`.

A row is taken in chunks that stay in the first-level cache: the chunk's largest logit, then the sum of exp(x - top).
Where a chunk raises the top, what was summed before is lowered; the top's own 1 stays out of the sum, since beside
it the digits of small ones would be lost. Vectors are FLOAT, a chunk's sums and a row's numbers FLOAT64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from openaclnn.core.dtypes import FLOAT16, FLOATS, INT32, INT64, DType
from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.cpu import numerics, pool
from openaclnn.engines.cpu.classes.doubles import exp64, log1p_64
from openaclnn.engines.cpu.classes.parameters import Parameters, double, fields, pack, places
from openaclnn.engines.cpu.classes.targets import Targets
from openaclnn.engines.cpu.classes.tile import Tile
from openaclnn.engines.cpu.exponential import Exp
from openaclnn.engines.cpu.registry import KERNELS, Runner
from openaclnn.engines.machine.cache import Emit, compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.host import machine
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Shape, Value, Variable, fma

NAME = "cross_entropy_logits"
OPERANDS = {
    "target": "target", "input": "input", "weight": "weightOptional", "loss": "lossOut", "top": "topOut",
    "rest": "restOut",
}  # fmt: skip
SLOTS = fields(
    tuple(OPERANDS),
    ("weighted", "mean", "zloss", "smooths", "smoothing", "zloss_scale", "staged", "tile"),
)
PLACES = places(SLOTS, OPERANDS)

ALONE = 1 << 15  # elements that one thread does faster than two
CHUNK = 2048  # classes
STAGED_BYTES = 1 << 16  # of a tile of rows whose classes lie apart
LINE = 64  # bytes
RECORD = 4  # of a row in scratch memory: its loss, z-loss, weight, and whether it counts


def staged_rows(dtype: str) -> int:
    return STAGED_BYTES // (CHUNK * SIZE[dtype])


class _Sum:
    """A running sum or maximum in as many vectors as there are streams, and one of single elements."""

    def __init__(self, code: Code, streams: int, start: float) -> None:
        self.wide = [code.variable(code.constant("f32", start, code.lanes)) for _ in range(streams)]
        self.single = code.variable(code.constant("f32", start, 1))
        self.lanes = code.lanes

    def take(self, values: Value, join: Callable[[Value, Value], Value]) -> None:
        own = self.wide if values.lanes == self.lanes else [self.single]
        for variable, value in zip(own, values.streams(), strict=False):
            variable.set(join(variable.get(), value))

    def all_of(self, join: Callable[[Value, Value], Value], kind: str = "f32") -> Value:
        """One number, in a fixed order."""
        parts = [variable.get().to(kind) for variable in self.wide]
        vector = _paired(parts, join)
        lanes = [vector.lane(lane) for lane in range(self.lanes)]
        return join(_paired(lanes, join), self.single.get().to(kind).lane(0))


def _paired(parts: list[Value], join: Callable[[Value, Value], Value]) -> Value:
    while len(parts) > 1:
        half = (len(parts) + 1) // 2
        joined = [join(a, b) for a, b in zip(parts[:half], parts[half:], strict=False)]
        parts = joined + parts[len(joined) : half]
    return parts[0]


def _larger(first: Value, second: Value) -> Value:
    """NaN is not: it shows in the sum of powers."""
    larger: Value = (second > first).choose(second, first)
    return larger


def _added(first: Value, second: Value) -> Value:
    return first + second


class _Rows:
    """The numbers of a tile's rows while its chunks are taken, FLOAT64."""

    def __init__(self, code: Code, count: int) -> None:
        self.code = code
        self.top, self.others, self.spread, self.weights, self.first = (
            code.frame("f64", count) for _ in range(5)
        )

    def begin(self, index: Value, first: Value) -> None:
        """`first` is near which a row's logits are added up; it must be finite."""
        self.top.write(index, self.code.double(float("-inf")))
        for array in (self.others, self.spread, self.weights):
            array.write(index, self.code.double(0.0))
        self.first.write(index, (first.size() < float("inf")).choose(first, 0.0).to("f64"))

    def add(self, array: Array, index: Value, value: Value) -> None:
        array.write(index, array.read(index) + value)


class _Chunks:
    """Takes a chunk of a row."""

    def __init__(self, code: Code, parameters: Parameters, dtype: str, rows: _Rows) -> None:
        self.code, self.parameters, self.dtype, self.rows = code, parameters, dtype, rows
        # AVX-512 by 2, 4, 8: 0.47, 0.41, 0.40 ns an element FLOAT. NEON's registers hold sums, too, beside six.
        self.streams = 6 if machine().neon else 8 if machine().registers >= 32 else 2
        self.exp = Exp(code, None, "negative")

    def _each(self, count: Value, body: Callable[[Shape, Value], None]) -> None:
        self.code.elements(count, self.streams, body)

    def take(self, place: Value, weight: Value, weight_step: Value, count: Value, index: Value) -> None:  # fmt: skip
        code, rows = self.code, self.rows
        x = code.array(place, self.dtype)
        before = rows.top.read(index).to("f32")
        highest = self._highest(x, count)
        top = _larger(before, highest)
        # Where all are minus infinity, any finite number gives them the power 0.
        shift = top.equals(float("-inf")).choose(0.0, top)
        with code.either(highest > before) as (raised, kept):
            with raised:
                lowered = exp64(code, before.to("f64") - top.to("f64"))
                old = (rows.others.read(index) + 1.0) * lowered
                rows.others.write(index, old + self._powers(x, count, shift, apart=True))
            with kept:
                rows.add(rows.others, index, self._powers(x, count, shift, apart=False))
        rows.top.write(index, top.to("f64"))
        with code.when(self.parameters["smooths"].differs(0)):
            self._spread(x, weight, weight_step, count, index)

    def _highest(self, x: Array, count: Value) -> Value:
        highest = _Sum(self.code, self.streams, float("-inf"))

        def body(shape: Shape, index: Value) -> None:
            highest.take(numerics.load(x, index, shape), _larger)

        self._each(count, body)
        return highest.all_of(_larger)

    def _powers(self, x: Array, count: Value, shift: Value, apart: bool) -> Value:
        """The sum of exp(x - shift); `apart`: without one of those that are the shift itself."""
        code = self.code
        total, ties = (_Sum(code, self.streams, 0.0) for _ in range(2))

        size = SIZE[self.dtype]

        def body(shape: Shape, index: Value) -> None:
            # Memory would rest while powers are computed: what the next chunk begins with is asked for meanwhile.
            if shape.streams > 1:
                for line in range(0, shape.elements * size, LINE):
                    code.prefetch(x.address(index + CHUNK) + line)
            values = numerics.load(x, index, shape)
            powers = self.exp(values - shift)
            if apart:
                tie = values.equals(shift)
                ties.take(tie.choose(code.single(1.0), 0.0), _added)
                powers = tie.choose(code.single(0.0), powers)
            total.take(powers, _added)

        self._each(count, body)
        found = total.all_of(_added, "f64")
        return found + (ties.all_of(_added, "f64") - 1.0) if apart else found

    def _spread(
        self, x: Array, weight: Value, weight_step: Value, count: Value, index: Value
    ) -> None:
        """What label smoothing sums: weight * (x - first), and the weights."""
        code, rows = self.code, self.rows
        first = rows.first.read(index).to("f32")
        spread, weights = (_Sum(code, self.streams, 0.0) for _ in range(2))
        with code.either(self.parameters["weighted"].differs(0)) as (weighted, alike):
            with weighted:
                own = code.frame("f32", CHUNK).address()
                with code.when(weight_step.differs(4)):
                    code.copy(weight, weight_step, own, code.integer(4), count, "f32")
                factors = code.array(weight_step.equals(4).choose(weight, own), "f32")

                def body(shape: Shape, place: Value) -> None:
                    factor = factors.load(place, shape)
                    spread.take((numerics.load(x, place, shape) - first) * factor, _added)
                    weights.take(factor, _added)

                self._each(count, body)
                rows.add(rows.weights, index, weights.all_of(_added, "f64"))
            with alike:

                def plain(shape: Shape, place: Value) -> None:
                    spread.take(numerics.load(x, place, shape) - first, _added)

                self._each(count, plain)
                rows.add(rows.weights, index, count.to("f64"))
        rows.add(rows.spread, index, spread.all_of(_added, "f64"))


def emit_rows(dtype: str, target: str, each: bool, lanes: int) -> Emit:
    """The kernel: pieces of work are tiles of rows. It leaves records in scratch memory, or writes each row's loss."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        code.lanes = lanes or code.lanes
        block, first, last = arguments
        parameters = Parameters(code, block, SLOTS)
        many_rows = staged_rows(dtype)
        tile = Tile(code, parameters, dtype, "input", many_rows, CHUNK)
        rows = _Rows(code, many_rows)
        chunks = _Chunks(code, parameters, dtype, rows)
        height, positions, classes = (parameters[name] for name in ("tile", "positions", "classes"))
        weight_step = parameters["weight.class_step"]
        with code.loop(first, last) as piece:
            first_row = piece * height
            many = (positions - first_row).least(height)
            with code.loop(0, many) as index:
                place = (
                    parameters.address("input") + (first_row + index) * parameters["input.step2"]
                )
                rows.begin(index, code.load(place, dtype))
            with code.loop(0, classes, CHUNK) as start:
                count = (classes - start).least(CHUNK)
                tile.read(first_row, start, many, count)
                weight = parameters.address("weight") + start * weight_step
                with code.loop(0, many) as index:
                    place = tile.input_row(first_row, start, index)
                    chunks.take(place, weight, weight_step, count, index)
            with code.loop(0, many) as index:
                _finish(code, parameters, dtype, target, each, rows, first_row + index, index)

    return emit


def _finish(
    code: Code, parameters: Parameters, dtype: str, target: str, each: bool, rows: _Rows, position: Value,
    index: Value,
) -> None:  # fmt: skip
    """A row's results."""

    def at(operand: str) -> Value:
        return parameters.address(operand) + position * parameters[f"{operand}.step2"]

    found = Targets(code, parameters, target).at(at("target"))
    with code.when(found.stray, likely=False):
        parameters.report_stray()
    counted, label = found.counted, found.counted.choose(found.label, 0)
    highest = rows.top.read(index)
    rest = log1p_64(code, rows.others.read(index)) + (highest - highest)
    top = rest.is_nan().choose(rest, highest)
    code.store(top.to("f32"), at("top"), "f32")
    code.store(rest.to("f32"), at("rest"), "f32")

    weight = code.variable(code.double(1.0))
    with code.when(parameters["weighted"].differs(0)):
        place = parameters.address("weight") + label * parameters["weight.class_step"]
        weight.set(code.load(place, "f32").to("f64"))
    own = code.load(at("input") + label * parameters["input.class_step"], dtype).to("f64")
    loss = code.variable(-(weight.get() * ((own - top) - rest)))
    with code.when(parameters["smooths"].differs(0)):
        smoothing, classes = parameters.double("smoothing"), parameters["classes"].to("f64")
        lse = (top - rows.first.read(index)) + rest
        spread = lse * rows.weights.read(index) - rows.spread.read(index)
        loss.set(fma(loss.get(), 1.0 - smoothing, smoothing / classes * spread))
    square = code.variable(code.double(0.0))
    with code.when(parameters["zloss"].differs(0)):
        square.set(parameters.double("zloss_scale") * (top + rest) * (top + rest))
    parts = [
        counted.choose(part, 0.0) for part in (loss.get(), square.get(), weight.get(), code.double(1.0))
    ]  # fmt: skip
    if each:
        code.store((parts[0] + parts[1]).to("f32"), at("loss"), dtype)
        return
    record = code.array(parameters.scratch + position * (8 * RECORD), "f64")
    for slot, part in enumerate(parts):
        record.write(slot, part)


def emit_reduction(dtype: str) -> Emit:
    """The kernel that adds up records, row after row, and writes the loss."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        parameters = Parameters(code, arguments[0], SLOTS)
        sums: list[Variable] = [code.variable(code.double(0.0)) for _ in range(RECORD)]
        with code.loop(0, parameters["positions"]) as position:
            record = code.array(parameters.scratch + position * (8 * RECORD), "f64")
            for slot, total in enumerate(sums):
                total.set(total.get() + record.read(slot))
        loss, square, weight, count = (total.get() for total in sums)
        mean = parameters["mean"].differs(0)
        loss = loss / mean.choose(weight, 1.0)
        with_squares = loss + square / mean.choose(count, 1.0)
        loss = parameters["zloss"].differs(0).choose(with_squares, loss)
        code.store(loss.to("f32"), parameters.address("loss"), dtype)

    return emit


class CrossEntropyLogits:
    def declines(self, plan: Plan) -> str | None:
        """Why it does not serve a plan; None if it does."""
        if plan.compute is FLOAT16 and not machine().half:
            return "this CPU does not convert FLOAT16"
        return None

    def runner(self, plan: Plan, lanes: int = 0) -> Runner:
        rows, own = plan.shape[0], plan.inputs[1]
        side_by_side = own.class_stride == 1 or plan.classes == 1
        dtype = plan.compute.short
        tile = 1 if side_by_side else staged_rows(dtype)
        numbers = plan.numbers
        words = pack(
            SLOTS, plan, PLACES,
            {
                "weighted": numbers["weighted"], "mean": plan.reduction == "mean",
                "zloss": numbers["zloss_scale"] != 0, "smooths": numbers["label_smoothing"] != 0,
                "smoothing": double(numbers["label_smoothing"]),
                "zloss_scale": double(numbers["zloss_scale"]), "staged": not side_by_side, "tile": tile,
            },
        )  # fmt: skip
        each, block = not plan.reduction, words.buffer_info()[0]
        write, reduce = _kernels(plan, lanes)
        pieces = -(-rows // tile)
        grain = max(1, ALONE // (min(tile, rows) * plan.classes))
        if each:
            return pool.bind(write, pieces, grain, block, 0, keep=words)

        def run(addresses: Sequence[int], stream: int = 0, keep: Any = words) -> int:
            records = np.empty(RECORD * rows)
            place = records.ctypes.data
            status = pool.launch(write, pieces, grain, block, place, *addresses)
            pool.launch(reduce, 1, 1, block, place, *addresses)
            return status

        return run

    def variants(self) -> Iterator[Plan]:
        for dtype in FLOATS:
            for target in (INT64, INT32):
                for reduction in ("", "mean"):
                    yield _example(dtype, target, reduction)


def _kernels(plan: Plan, lanes: int) -> tuple[int, int]:
    """The kernel over rows, and the one that adds up what it leaves."""
    dtype, each = plan.compute.short, not plan.reduction
    target = "i64" if plan.inputs[plan.targets].dtype.itemsize == 8 else "i32"
    kind = f"{dtype}.{target}.{'each' if each else 'sum'} {lanes}"
    write = compiled(f"logits.{kind}", emit_rows(dtype, target, each, lanes))
    return write, 0 if each else compiled(f"logits.reduction.{dtype}", emit_reduction(dtype))


def _example(dtype: DType, target: DType, reduction: str) -> Plan:
    """A plan of two rows."""
    numbers = {
        "ignore_index": -100, "weighted": False, "label_smoothing": 0.0, "zloss_scale": 0.0,
    }  # fmt: skip
    inputs = Operand("target", target, (1,), role="positions"), Operand("input", dtype, (2,), 1)
    many = Operand("lossOut", dtype, (1,), role="positions")
    one = Operand("lossOut", dtype, (0,), role="single")
    sides = tuple(
        Operand(name, FLOATS[0], (1,), role="positions") for name in ("topOut", "restOut")
    )
    return Plan(
        "", NAME, dtype, (2,), inputs, one if reduction else many, numbers, 2, 0, more=sides,
        reduction=reduction,
    )  # fmt: skip


KERNELS[NAME] = CrossEntropyLogits()
