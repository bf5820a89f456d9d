"""The gradient of cross entropy from logits, of rows and of pixels: see `operators/logits.py`.

A row is factor * exp(x - top) - smooth * weight, and nll less at its target, where exp(-rest) is part of the factor.
No x lies above the top, so that one short exponential serves all rows. A row's numbers and its target's element are
computed in FLOAT64, the rest in FLOAT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

from openaclnn.core.dtypes import FLOAT, FLOATS, INT32, INT64
from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.arithmetic.functions import (
    CONSTANT,
    PLAIN,
    WEIGHTS,
    Exp,
    exp64,
    expm1_64,
    foldable,
    power64,
)
from openaclnn.engines.cpu.classes import totals
from openaclnn.engines.cpu.classes.launches import (
    IMAGES,
    ClassKernel,
    Kernels,
    Launches,
    Problem,
    cut_tiles,
    example,
)
from openaclnn.engines.cpu.classes.parameters import (
    Parameters,
    Targets,
    double,
    few,
    fields,
    target_kind,
)
from openaclnn.engines.cpu.classes.pixel_groups import CHUNK, Chunk, Group, Groups, Pixels, unit_of
from openaclnn.engines.cpu.classes.row_tiles import (
    TILE_CLASSES,
    TILE_ROWS,
    Stretch,
    Tile,
    classes_lie_apart,
    cut_rows,
    each_stretch,
)
from openaclnn.engines.cpu.classes.totals import Sums, sums_of
from openaclnn.engines.cpu.registry import KERNELS
from openaclnn.engines.machine.cache import Emit, compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.host import LINE, machine
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.numbers import (
    Number,
    Truth,
    all_of,
    flag,
    inverse,
    least,
    most,
    where,
)
from openaclnn.engines.machine.values import Shape, Value

OF_ROWS, OF_PIXELS = "cross_entropy_logits_grad", "cross_entropy_logits_grad_pixels"
OPERANDS = {
    "target": "target", "gradient": "gradLoss", "input": "input", "top": "top", "rest": "rest",
    "weight": "weightOptional", "out": "out",
}  # fmt: skip
SLOTS = fields(
    tuple(OPERANDS),
    ("weighted", "mean", "zloss", "smooths", "smoothing", "zloss_scale", "staged", "tile", "chunk", "chunks", "past"),
)  # fmt: skip
AT_ONCE = 1 << 12  # elements of the rows that are one piece of work, if they are short
# As pixels rows of 4 classes take 18 ns, of 21 45, of 47 65; as rows those of 48 take 75.
SHORT = 48
PAST_CACHES = 1 << 24  # bytes of a gradient that nobody would find in a cache
WALKED = ("target", "input", "top", "rest", "gradient", "out")  # by pixels
ROW_TERMS, PIXEL_TERMS = 12, 8
EXPM1_TERMS = {ROW_TERMS: 14, PIXEL_TERMS: 9}
"""Terms of exponentials, and of those less 1: to all digits, or to what FLOAT can show."""


class Scales:
    """What rows share, and how a row's gradient becomes its three numbers, FLOAT64."""

    def __init__(self, parameters: Parameters, sums: Sums) -> None:
        self.sums, self.classes = sums, parameters["classes"].to("f64")
        self.smoothing, self.square = (
            parameters.double(name) for name in ("smoothing", "zloss_scale")
        )
        self.smooths, self.squares = (parameters.flag(name) for name in ("smooths", "zloss"))
        # Added where it is 0, too: rows have 0 for the element of a certain class, where pixels have the sign of -nll.
        self.adds_squares = parameters.code.integer(0) == 0

    def of(
        self, gradient: Value, lse: Value
    ) -> tuple[Value, Callable[[], Value], Callable[[], Value]]:
        """The factor of the target's weight; what smoothing subtracts for each class; the z-loss's part."""
        sums, smoothing = self.sums, self.smoothing
        return (
            gradient * (1.0 - smoothing) / sums.total,
            lambda: gradient / sums.total * smoothing / self.classes,
            lambda: self.square * lse * (gradient / sums.rows_counted),
        )


class ScalesOnce(Scales):
    """The same with divisions made once for all, whose results pixels are multiplied by."""

    def __init__(self, parameters: Parameters, sums: Sums) -> None:
        super().__init__(parameters, sums)
        self.nll = (1.0 - self.smoothing) / sums.total
        self.smooth = self.smooths.choose(self.smoothing / self.classes / sums.total, 0.0)
        self.square = self.square / sums.rows_counted
        self.adds_squares = self.squares

    def of(
        self, gradient: Value, lse: Value
    ) -> tuple[Value, Callable[[], Value], Callable[[], Value]]:
        return (
            gradient * self.nll,
            lambda: gradient * self.smooth,
            lambda: lse * (gradient * self.square),
        )


class Numbers(NamedTuple):
    """What the elements of some rows follow from, a vector of rows each, FLOAT; `exact` is the target's element."""

    top: Value
    factor: Value
    addend: Value
    exact: Value


def numbers_of(
    code: Code, scales: Scales, terms: int, logit: Value, top: Value, rest: Value, gradient: Value, weight: Value
) -> Numbers:  # fmt: skip
    """Of rows with these logits and weights of their targets' classes; exponentials have so many terms."""
    lse = top + rest
    of_target, of_class, of_square = scales.of(gradient, lse)
    nll = of_target * weight
    nothing = code.constant("f64", 0.0, code.lanes)
    everywhere, smooth, square = (code.variable(nothing) for _ in range(3))
    with code.when(scales.smooths):
        smooth.set(of_class())
        everywhere.set(scales.sums.times(smooth.get()))
    with code.when(scales.squares):
        square.set(of_square())
    factor = (nll + square.get() + everywhere.get()) * exp64(code, -rest, terms)
    x = (logit - top) - rest
    probability = power64(code, x, terms)
    exact = code.variable(expm1_64(code, x, probability, EXPM1_TERMS[terms]) * nll)
    with code.when(scales.adds_squares):
        exact.set(exact.get() + probability * square.get())
    with code.when(scales.smooths):
        more = probability * everywhere.get() - smooth.get() * weight
        exact.set(exact.get() + more)
    numbers = top, factor, -smooth.get(), exact.get()
    return Numbers(*(plain_nan(number.to("f32")) for number in numbers))


def plain_nan(number: Value) -> Value:
    """NaN with an empty low half, whatever came in: rounding to bfloat16 needs that."""
    plain: Value = number.is_nan().choose(float("nan"), number)
    return plain


class RowNumbers(NamedTuple):
    """Of one row: the target's class among those of a stretch (elsewhere negative) and its element, FLOAT like the others."""

    counted: Value
    column: Value
    exact: Value
    top: Value
    factor: Value
    addend: Value


class TileNumbers:
    """The numbers of up to TILE_ROWS rows, computed for as many rows at once as a vector has lanes: one by one they took half the time of a short
    row (100 classes: 100 of 200 ns)."""

    def __init__(
        self, code: Code, parameters: Parameters, dtype: str, target: str, sums: Sums, tile: Tile
    ) -> None:
        self.code, self.parameters, self.dtype, self.tile = code, parameters, dtype, tile
        self.scales = Scales(parameters, sums)
        self.targets = Targets(code, parameters, target)
        self.counted, self.columns = (code.frame("i64", TILE_ROWS) for _ in range(2))
        self.logit, self.rest, self.gradient, self.weight = (
            code.frame("f32", TILE_ROWS) for _ in range(4)
        )
        self.top, self.factor, self.addend, self.exact = (
            code.frame("f32", TILE_ROWS) for _ in range(4)
        )

    def begin(self, first_row: Value, first_class: Value, many: Value, count: Value) -> None:
        """Have the numbers of some rows, and of a stretch of their classes."""
        with self.code.loop(0, many) as index:
            self._collect(first_row, first_class, count, index)
        with self.code.loop(0, many, self.code.lanes) as index:
            self._compute(index)

    def of(self, index: Value) -> RowNumbers:
        """A row's."""
        frames = self.columns, self.exact, self.top, self.factor, self.addend
        counted = self.counted.flag(index)
        return RowNumbers(counted, *(frame.read(index) for frame in frames))

    def _collect(self, first_row: Value, first_class: Value, count: Value, index: Value) -> None:
        """What memory has of a row."""
        code, parameters, position = self.code, self.parameters, first_row + index

        def read(operand: str, kind: str) -> Value:
            place = parameters.address(operand) + position * parameters[f"{operand}.step2"]
            return code.load(place, kind)

        target = self.targets.of(read("target", self.targets.kind))
        with code.when(target.stray, likely=False):
            parameters.report_stray()
        column = target.label - first_class
        hit = target.counted & column.below(count)
        self.counted.write(index, target.counted.to("i64"))
        self.columns.write(index, hit.choose(column, -1))
        self.top.write(index, read("top", "f32"))
        self.rest.write(index, read("rest", "f32"))
        self.gradient.write(index, read("gradient", self.dtype))
        self.weight.write(index, 1.0)
        with code.when(parameters.flag("weighted")):
            step = target.counted.choose(target.label, 0) * parameters["weight.class_step"]
            self.weight.write(index, code.load(parameters.address("weight") + step, "f32"))
        place = self.tile.input_row(first_row, first_class, index)
        self.logit.write(
            index, code.load(place + hit.choose(column, 0) * SIZE[self.dtype], self.dtype)
        )

    def _compute(self, index: Value) -> None:
        """A vector of rows."""
        frames = self.logit, self.top, self.rest, self.gradient, self.weight
        shape = Shape(1, self.code.lanes)
        inputs = [frame.load(index, shape).to("f64") for frame in frames]
        numbers = numbers_of(self.code, self.scales, ROW_TERMS, *inputs)
        for frame, value in zip(
            (self.top, self.factor, self.addend, self.exact), numbers, strict=True
        ):
            frame.store(value, index)


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
        smooths, weighted = (parameters.flag(name) for name in ("smooths", "weighted"))
        folds = foldable(factor)
        ways = (
            (folds & ~smooths, PLAIN, True),
            (folds & ~weighted, CONSTANT, True),
            (folds, WEIGHTS, True),
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


Put = Callable[[Group, Value, Value, Value, bool], None]
"""Writes a plane's values: of a group, a class, to a place; with NaNs of any kind among them or not."""


def emit_pixels(dtype: str, target: str) -> Emit:
    """The kernel: pieces of work are runs of pixels."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, SLOTS)
        worker = _Pixels(code, parameters, dtype, target)
        totals.each_piece(code, parameters, first, last, WALKED, worker.run)
        code.settle()

    return emit


class _Pixels:
    def __init__(self, code: Code, parameters: Parameters, dtype: str, target: str) -> None:
        self.code, self.parameters, self.dtype = code, parameters, dtype
        sums = sums_of(code, parameters, target)
        self.groups = Groups(code, parameters, dtype, target, WALKED)
        self.scales = ScalesOnce(parameters, sums)
        self.exp, self.opaque = Exp(code, None, "negative"), numerics.Opaque(code)
        self.out_step = parameters["out.class_step"]
        width = self.groups.width
        self.tops, self.rests = (code.frame("f32", width) for _ in range(2))
        self.gradients = code.frame(dtype, width)
        # What the loop over classes reads of each pixel: all bits are set where it counts.
        self.top, self.factor, self.addend = (code.frame("f32", width) for _ in range(3))
        self.exact = code.frame("f32", width)
        self.counted, self.classes = (code.frame("i32", width) for _ in range(2))
        self.results = code.frame(dtype, width)

    def run(self, addresses: list[Value], count: Value) -> None:
        self.groups.of(addresses, count, self._group)

    def _group(self, group: Group) -> None:
        code, groups, many_classes = self.code, self.groups, self.groups.targets.classes
        whole = Chunk(code.integer(0), many_classes)
        alone = many_classes <= CHUNK
        with code.when(alone):
            groups.read(group, whole)
        gradient = self._gradients(group)
        top = groups.fetch(group, "top", self.tops)
        rest = groups.fetch(group, "rest", self.rests)
        with code.loop(0, group.many, code.lanes) as index:
            self._numbers(groups.pixels(group, index), index, top, rest, gradient)

        def chunk_of(chunk: Chunk) -> None:
            with code.when(~alone):
                groups.read(group, chunk)
            rows = groups.are_rows(group, chunk, self.out_step)
            with code.first_of() as written:
                for condition, smooths, put in (
                    (rows & self.scales.smooths, True, self._turn),
                    (rows, False, self._turn),
                    (self.scales.smooths, True, self._put),
                    (self._past(group), False, self._stream),
                ):
                    with code.when(condition):
                        self._write(group, chunk, smooths, put)
                        written()
                self._write(group, chunk, False, self._put)
            with code.when(rows):
                out = group.places["out"] + chunk.start * self.out_step
                groups.turned.write(out, groups.steps["out"], chunk.many, self.opaque)

        groups.chunks(chunk_of)

    def _numbers(
        self, pixels: Pixels, index: Value, tops: Array, rests: Array, gradients: Array
    ) -> None:
        """Of one vector of pixels."""
        shape = Shape(1, self.code.lanes)
        top, rest = (array.load(index, shape).to("f64") for array in (tops, rests))
        gradient = numerics.load(gradients, index, shape).to("f64")
        labels, counted, logit, weight = pixels
        numbers = numbers_of(
            self.code, self.scales, PIXEL_TERMS, logit, top, rest, gradient, weight
        )
        self.classes.store(labels.to("i32"), index)
        self.counted.store(counted.signed("i32"), index)
        for array, value in zip(
            (self.top, self.factor, self.addend, self.exact), numbers, strict=True
        ):
            array.store(value, index)

    def _gradients(self, group: Group) -> Array:
        """Those of a group, or one that is all of them."""
        code, groups = self.code, self.groups
        alike = groups.steps["gradient"] == 0
        with code.when(alike):
            one = code.array(group.places["gradient"], self.dtype).read(0)
            self.gradients.store(one.fill(groups.shape), code.integer(0))
        return groups.fetch(group._replace(here=group.here & ~alike), "gradient", self.gradients)

    def _past(self, group: Group) -> Value:
        """Whether a group is written past the caches, a line of them at once."""
        out = group.places["out"]
        apart = self.parameters.flag("past") & (out != group.places["input"])
        return apart & group.here & (((out | self.out_step) & (LINE - 1)) == 0)

    def _write(self, group: Group, chunk: Chunk, smooths: bool, put: Put) -> None:
        code, groups, zero = self.code, self.groups, self.code.integer(0)
        top, factor, addend, counted, exact, labels = (
            array.load(zero, groups.shape)
            for array in (
                self.top, self.factor, self.addend, self.counted, self.exact, self.classes,
            )
        )  # fmt: skip
        x = group.places["input"] + chunk.start * groups.class_step
        with code.loop(0, chunk.many) as label:
            groups.ahead(x + label * groups.class_step)
            values = self.exp(groups.plane(label) - top) * factor
            if smooths:
                values = values + addend * groups.factor(chunk, label)
            values = (labels == (chunk.start + label).to("i32")).choose(exact, values)
            values = (values.bits_as("i32") & counted).bits_as("f32")
            place = group.places["out"] + (chunk.start + label) * self.out_step
            put(group, label, values, place, smooths)

    def _turn(self, group: Group, label: Value, values: Value, place: Value, any_nan: bool) -> None:
        """In the logits' place, until all planes are there for `Turned`."""
        self.groups.logits.store(values, label * self.groups.width)

    def _stream(
        self, group: Group, label: Value, values: Value, place: Value, any_nan: bool
    ) -> None:
        narrowed = numerics.narrow(values, self.dtype, self.opaque, any_nan)
        self.code.array(place, self.dtype).stream(narrowed, self.code.integer(0))

    def _put(self, group: Group, label: Value, values: Value, place: Value, any_nan: bool) -> None:
        """A plane's elements, which pass through a buffer where they are not a whole group."""
        code, groups, buffer = self.code, self.groups, self.results.address()
        groups.ahead(place, written=True)
        target = code.array(group.here.choose(place, buffer), self.dtype)
        numerics.store(values, target, code.integer(0), self.opaque, any_nan)
        with code.when(~group.here, likely=False):
            step, size = groups.steps["out"], code.integer(groups.size)
            code.copy(buffer, size, place, step, group.many, self.dtype)


def goes_past(item: Number, elements: Number) -> Truth:
    """Whether so many elements, of so many bytes, are written past the caches.

    The gradient of (4, 21, 512, 512) took 2.1 ns an element, past the caches 1.35; of BFLOAT16 1.6, 1.7.
    """
    return (item >= 4) & (elements * 4 >= (1 << 62 if machine().neon else PAST_CACHES))


class LogitGradient(ClassKernel):
    """Of rows and of pixels. Of a short row, what is done once a row would take longest: so short rows are computed as pixels are, many at a
    time, with planes that lie one element apart."""

    full = ("input", "out")
    free = ("ignore_index", "i64", 1), ("smoothing", "f64", 1), ("zloss_scale", "f64", 2.0)

    def __init__(self, name: str) -> None:
        super().__init__(name, SLOTS, OPERANDS)
        self.axes = IMAGES if name == OF_PIXELS else 2

    def is_dense(self, plan: Plan) -> bool:
        """One gradient may stand for all pixels."""
        target, gradient, *walked = (*plan.inputs[:5], plan.output)
        dense = all(operand.strides[-1] == 1 for operand in (target, *walked))
        return dense and gradient.strides[-1] in (0, 1)

    def numbers(self, plan: Plan) -> Mapping[str, int]:
        numbers = plan.numbers
        return {
            "weighted": numbers["weighted"], "mean": numbers["mean"], "zloss": numbers["zloss_scale"] != 0,
            "smooths": numbers["label_smoothing"] != 0, "smoothing": double(numbers["label_smoothing"]),
            "zloss_scale": double(2.0 * numbers["zloss_scale"]),
        }  # fmt: skip

    def cut(self, problem: Problem) -> Launches:
        positions, classes = problem["positions"], problem["classes"]
        as_pixels = True if self.axes == IMAGES else classes < SHORT
        apart = all_of(classes > 1, classes_lie_apart(problem, *self.full))
        together = most(least(AT_ONCE // classes, TILE_ROWS), 1)
        tile, chunk, chunks = cut_rows(problem, all_of(inverse(as_pixels), apart), together)
        problem["staged"] = where(as_pixels, 1 - problem["dense"], problem["staged"])
        past = all_of(as_pixels, goes_past(problem["item"], positions * classes))
        problem["past"] = flag(past)
        tile = where(as_pixels, unit_of(classes), tile)
        chunk, chunks = where(as_pixels, classes, chunk), where(as_pixels, 1, chunks)
        pieces, grain = cut_tiles(problem, tile, chunk, chunks)
        shared = problem["mean"], problem["weighted"], positions, classes, pieces > grain
        return Launches(flag(as_pixels), pieces, grain, totals.blocks_first(*shared))

    def kernels(self, plan: Plan, variant: int) -> Kernels:
        dtype, target = plan.output.dtype.short, target_kind(plan)
        emit = (emit_pixels if variant else emit_rows)(dtype, target)
        name = OF_PIXELS if variant else OF_ROWS
        write = compiled(f"{name}.{dtype}.{target}", emit, few=few)
        sums = compiled(f"totals.logits_grad.{target}", totals.emit_totals(target, "f32", SLOTS))
        return Kernels(write, sums)

    def variants(self) -> Iterator[Plan]:
        """Long rows: what short ones need, pixels have."""
        classes = 2 if self.axes == IMAGES else SHORT
        for dtype, target in product(FLOATS, (INT64, INT32)):
            yield example(
                self.name, dtype, classes,
                [("target", target, "positions"), ("gradLoss", dtype, "single"), ("input", dtype, "full"),
                 ("top", FLOAT, "positions"), ("rest", FLOAT, "positions")],
                [("out", dtype, "full")], positions=1 << 17,
            )  # fmt: skip


KERNELS.update({name: LogitGradient(name) for name in (OF_ROWS, OF_PIXELS)})
