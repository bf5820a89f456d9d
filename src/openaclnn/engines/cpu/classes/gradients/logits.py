"""The gradient of cross entropy from logits: see `operators/logits.py`.

A row is factor * exp(x - top) - smooth * weight, and nll less at its target, where exp(-rest) is part of the factor.
No x lies above the top, so that one short exponential serves all rows. A row's numbers and its target's element are
computed in FLOAT64, the rest in FLOAT.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from openaclnn.core.dtypes import FLOAT, FLOATS, INT32, INT64, DType
from openaclnn.core.plan import Operand, Plan
from openaclnn.core.tensor import element_count
from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.arithmetic.exponential import Exp
from openaclnn.engines.cpu.classes.gradients.formula import CONSTANT, PLAIN, WEIGHTS
from openaclnn.engines.cpu.classes.gradients.logit_numbers import RowNumbers, TileNumbers
from openaclnn.engines.cpu.classes.gradients.numbers import sums_of
from openaclnn.engines.cpu.classes.positions.stretches import (
    Cut,
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
from openaclnn.engines.cpu.classes.shared.targets import target_kind
from openaclnn.engines.cpu.registry import Runner
from openaclnn.engines.machine.cache import Emit, compiled
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.host import machine
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Shape, Value

NAME = "cross_entropy_logits_grad"
OPERANDS = {
    "target": "target", "gradient": "gradLoss", "input": "input", "top": "top", "rest": "rest",
    "weight": "weightOptional", "out": "out",
}  # fmt: skip
SLOTS = fields(
    tuple(OPERANDS),
    ("weighted", "mean", "zloss", "smooths", "smoothing", "zloss_scale", "staged", "tile", "chunk", "chunks", "past"),
)  # fmt: skip
PLACES = places(SLOTS, OPERANDS)
AT_ONCE = 1 << 12  # elements of the rows that are one piece of work, if they are short


def emit_rows(dtype: str, target: str) -> Emit:
    """The kernel: pieces of work are tiles of rows times chunks of classes."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, SLOTS)
        sums = sums_of(code, parameters, target)
        tile = Tile(code, parameters, dtype, "input")
        numbers = TileNumbers(code, parameters, dtype, target, sums, tile)
        writer = _Writer(code, parameters, dtype)

        def stretch(position: Value, first_class: Value, row: Stretch, index: Value) -> None:
            _one_row(code, dtype, row, numbers.of(index), writer)

        each_stretch(code, parameters, tile, first, last, stretch, numbers.begin)

    return emit


def _one_row(code: Code, dtype: str, row: Stretch, numbers: RowNumbers, writer: _Writer) -> None:
    """A row's stretch. Its target's element was read before and is written after all others."""
    size = SIZE[dtype]
    with code.either(numbers.counted) as (counts, ignored):
        with ignored:
            code.clear(row.out, row.many * size)
        with counts:
            writer.write(row, numbers)
            with code.when(numbers.column >= 0):
                code.store(numbers.exact, row.out + numbers.column * size, dtype)


class _Writer:
    """Writes a stretch by the cheapest way that serves it."""

    def __init__(self, code: Code, parameters: Parameters, dtype: str) -> None:
        self.code, self.parameters, self.dtype = code, parameters, dtype
        self.opaque = numerics.Opaque(code)
        self.streams = 8 if machine().registers >= 32 else 3
        # Weights that lie apart are copied together, some at a time.
        self.weights = code.frame("f32", TILE_CLASSES).address()

    def write(self, row: Stretch, numbers: RowNumbers) -> None:
        code, parameters = self.code, self.parameters
        top, factor, addend = numbers.top, numbers.factor, numbers.addend
        smooths, weighted = (parameters.flag(own) for own in ("smooths", "weighted"))
        size = abs(factor)
        foldable = (size >= 2.0**-80) & (size <= 2.0**80)
        ways = (
            (foldable & ~smooths, PLAIN, True),
            (foldable & ~weighted, CONSTANT, True),
            (foldable, WEIGHTS, True),
            (smooths & weighted, WEIGHTS, False),
        )
        with code.first_of() as written:
            for condition, mode, folded in ways:
                with code.when(condition):
                    self._way(row, top, factor, addend, mode, folded)
                    written()
            none = smooths.choose(addend, -0.0)
            self._way(row, top, factor, none, CONSTANT, folded=False)

    def _way(
        self, row: Stretch, top: Value, factor: Value, addend: Value, mode: int, folded: bool
    ) -> None:
        code = self.code
        exp = Exp(code, factor if folded else None, "negative")

        def stretch(x: Value, weight: Value, out: Value, count: Value) -> None:
            source, target = code.array(x, self.dtype), code.array(out, self.dtype)
            weights = code.array(weight, "f32")

            def put(x: Value, index: Value) -> None:
                values = exp(x - top)
                if not folded:
                    values = values * factor
                if mode == CONSTANT:
                    values = values + addend
                elif mode == WEIGHTS:
                    values = values + weights.load(index, x.shape) * addend
                any_nan = mode == WEIGHTS
                numerics.store(values, target, index, self.opaque, any_nan)

            def body(shape: Shape, index: Value) -> None:
                put(numerics.load(source, index, shape), index)

            one = Shape(1, code.lanes)
            with code.either(count >= code.lanes) as (many, few):
                with many:
                    # The last vector ends with the stretch; it is read before others are written where it begins.
                    end = count - code.lanes
                    last = numerics.load(source, end, one)
                    done = code.integer(0)
                    for shape in dict.fromkeys((Shape(self.streams, code.lanes), one)):
                        done = code.strides(done, count, shape.elements, partial(body, shape))
                    with code.when(done < count):
                        put(last, end)
                with few:
                    code.strides(code.integer(0), count, 1, partial(body, Shape(1, 1)))

        if mode != WEIGHTS:
            stretch(row.x, row.weight, row.out, row.many)
            return
        apart = row.weight_step != 4
        step = apart.choose(code.integer(TILE_CLASSES), row.many)
        done = code.variable(0)
        with code.repeat_while(lambda: done.get() < row.many):
            start = done.get()
            count = (row.many - start).least(step)
            weight = row.weight + start * row.weight_step
            with code.when(apart):
                code.copy(weight, row.weight_step, self.weights, code.integer(4), count, "f32")
            size = SIZE[self.dtype]
            place = apart.choose(self.weights, weight)
            stretch(row.x + start * size, place, row.out + start * size, count)
            done.set(start + count)


class CrossEntropyLogitsGrad:
    def __init__(self, name: str) -> None:
        self.name = name

    def declines(self, plan: Plan) -> str | None:
        return objection(plan, axes=1)

    def cut(self, plan: Plan) -> Cut:
        (positions,), classes = plan.shape, plan.classes
        here = classes == 1 or plan.inputs[2].class_stride == plan.output.class_stride == 1
        return cut_rows(positions, classes, here, max(1, min(TILE_ROWS, AT_ONCE // classes)))

    def emits(self, dtype: str, target: str) -> Emit:
        return emit_rows(dtype, target)

    def runner(self, plan: Plan) -> Runner:
        numbers, positions, classes = plan.numbers, element_count(plan.shape), plan.classes
        cut = self.cut(plan)
        write, sums = self.kernels(plan)
        shared = numbers["mean"], numbers["weighted"], positions, classes
        if cut.pieces <= cut.grain or not totals.sums_apart(*shared):
            sums = 0
        passes = Passes(write, cut.pieces, cut.grain, sums, totals.sum_blocks(*shared))
        return runner_of(self.block(plan, cut), passes)

    def block(self, plan: Plan, cut: Cut) -> array[int]:
        """The parameters of a plan."""
        numbers = plan.numbers
        return pack(
            SLOTS, plan, PLACES,
            {
                "weighted": numbers["weighted"], "mean": numbers["mean"], "zloss": numbers["zloss_scale"] != 0,
                "smooths": numbers["label_smoothing"] != 0, "smoothing": double(numbers["label_smoothing"]),
                "zloss_scale": double(2.0 * numbers["zloss_scale"]), "staged": cut.staged, "tile": cut.tile,
                "chunk": cut.chunk, "chunks": cut.chunks, "past": cut.past,
            },
        )  # fmt: skip

    def kernels(self, plan: Plan) -> tuple[int, int]:
        """The kernel that writes rows, and the one that leaves sums."""
        dtype = plan.output.dtype.short
        target = target_kind(plan)
        name = f"{self.name}.{dtype}.{target}"
        write = compiled(name, self.emits(dtype, target), few=few)
        sums = compiled(f"totals.logits_grad.{target}", totals.emit_totals(target, "f32", SLOTS))
        return write, sums

    def variants(self) -> Iterator[Plan]:
        for dtype in FLOATS:
            for target in (INT64, INT32):
                yield _example(self.name, dtype, target)


def _example(name: str, dtype: DType, target: DType) -> Plan:
    """A plan of many rows."""
    numbers: dict[str, Any] = {
        "ignore_index": -100, "mean": True, "weighted": False, "label_smoothing": 0.0, "zloss_scale": 0.0,
    }  # fmt: skip
    inputs = (
        Operand("target", target, (1,), role="positions"),
        Operand("gradLoss", dtype, (0,), role="single"),
        Operand("input", dtype, (2,), 1),
        Operand("top", FLOAT, (1,), role="positions"),
        Operand("rest", FLOAT, (1,), role="positions"),
    )
    output = Operand("out", dtype, (2,), 1)
    return Plan("", name, dtype, (1 << 17,), inputs, output, numbers, 2, 0)
