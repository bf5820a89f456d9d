"""Cross entropy of rows of logits: for training (`operators/logits.py`) one pass over each row; for aclnnCrossEntropyLoss, which
writes log-probabilities, a second one over what the caches still hold.

A row is taken in chunks that stay in the first-level cache: a chunk's largest logit first, then the sum of exp(x - largest) over the others. Where it
raises the row's largest, what was summed before is lowered. The largest one's own 1 stays out of the sum, since beside it the digits of small ones
would be lost. Vectors are FLOAT, a row's numbers FLOAT64. So few numbers are added up in FLOAT before their sum becomes part of one in
FLOAT64 that the error grows neither with the number of classes nor with narrow vectors.

Label smoothing sums weight * (x - largest), where nothing cancels, whichever class is far from the others.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.arithmetic.functions import Exp, exp64, log1p_64
from openaclnn.engines.cpu.arithmetic.numerics import across, paired
from openaclnn.engines.cpu.classes.parameters import Parameters, fields
from openaclnn.engines.cpu.classes.row_tiles import RowLanes, Tile
from openaclnn.engines.machine.cache import Emit
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.host import LINE, machine
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.numbers import Number
from openaclnn.engines.machine.values import Shape, Value, Variable, fma

# Either writes top and rest, or log-probabilities and perhaps z-loss and log-sum-exp.
TRAINING, WHOLE = "cross_entropy_logits", "cross_entropy_loss"
OPERANDS = {
    "target": "target", "input": "input", "weight": "weightOptional", "loss": "lossOut", "top": "topOut",
    "rest": "restOut", "log_prob": "logProbOut", "square": "zlossOut", "lse": "lseForZlossOut",
}  # fmt: skip
SLOTS = fields(
    tuple(OPERANDS),
    ("weighted", "mean", "zloss", "smooths", "smoothing", "zloss_scale", "returns", "each", "staged", "tile", "records"),
)  # fmt: skip

AT_ONCE = 1 << 12  # elements of the rows that are one piece of work, if they are short
STAGED_BYTES = 1 << 16  # of a tile of rows whose classes lie apart
RECORD = 4  # of a row in scratch memory: its loss, z-loss, weight, and whether it counts
CHUNK = 2048  # classes
TURN = 8  # steps whose numbers are added up in FLOAT
INFINITY = float("inf")
PART = 2.0**-10  # of a difference is summed in FLOAT, where the sum of whole ones may be infinite
PARTS = 1 / PART


def staged_rows(item: Number) -> Number:
    """Rows of a tile, of elements of so many bytes."""
    return STAGED_BYTES // CHUNK // item


class _Largest:
    """A running maximum in as many vectors as there are streams, and one of single elements."""

    def __init__(self, code: Code, streams: int) -> None:
        self.wide, self.single = (
            [code.variable(code.constant("f32", -INFINITY, lanes)) for _ in range(many)]
            for lanes, many in ((code.lanes, streams), (1, 1))
        )

    def take(self, values: Value) -> None:
        variables = self.wide if values.lanes == self.wide[0].get().lanes else self.single
        for variable, value in zip(variables, values.streams(), strict=False):
            variable.set(larger(variable.get(), value))

    def get(self) -> Value:
        wide = paired([variable.get() for variable in self.wide], larger)
        return larger(across(wide, larger), self.single[0].get().lane(0))


class _Sum:
    """A running sum in FLOAT64; vectors are added up in FLOAT until it is told to fold them."""

    def __init__(self, code: Code) -> None:
        self.code, self.lanes = code, code.lanes
        self.wide, self.folded, self.single = (
            code.variable(code.constant(kind, 0.0, lanes))
            for kind, lanes in (("f32", code.lanes), ("f64", code.lanes), ("f64", 1))
        )

    def take(self, values: Value) -> None:
        if values.lanes == self.lanes:
            self.wide.set(self.wide.get() + paired(values.streams(), added))
        else:
            self.single.set(self.single.get() + values.to("f64"))

    def fold(self) -> None:
        self.folded.set(self.folded.get() + self.wide.get().to("f64"))
        self.wide.set(self.code.constant("f32", 0.0, self.lanes))

    def get(self) -> Value:
        """What was folded, in a fixed order."""
        return across(self.folded.get(), added) + self.single.get().lane(0)


def larger(first: Value, second: Value) -> Value:
    """The larger of two, NaN left out: that shows in the sum of powers."""
    larger: Value = (second > first).choose(second, first)
    return larger


def added(first: Value, second: Value) -> Value:
    return first + second


def below(values: Value, top: Value) -> Value:
    """A part of values - top, which is finite where both are; `PARTS` of them are the difference."""
    return fma(values, PART, -(top * PART))


def moved(weights: Value, before: Value, top: Value) -> Value:
    """By how much a sum of weight * (x - before) changes if it is of x - top, in FLOAT64; nothing was summed below all numbers."""
    rise = before.to("f64") - top.to("f64")
    change: Value = (before > -INFINITY).choose(weights * rise, 0.0)
    return change


class Rows:
    """The numbers of a tile's rows while its chunks are taken, FLOAT64."""

    def __init__(self, code: Code, count: int) -> None:
        self.code = code
        self.top, self.others, self.spread, self.weights = (
            code.frame("f64", count) for _ in range(4)
        )
        self.highest = code.frame("f32", count)  # of a chunk

    def begin(self, index: Value) -> None:
        self.top.write(index, self.code.double(-INFINITY))
        for array in (self.others, self.spread, self.weights):
            array.write(index, self.code.double(0.0))

    def add(self, array: Array, index: Value, value: Value) -> None:
        array.write(index, array.read(index) + value)


class Chunks:
    """Takes a chunk of a row."""

    def __init__(self, code: Code, parameters: Parameters, dtype: str, rows: Rows) -> None:
        self.code, self.parameters, self.dtype, self.rows = code, parameters, dtype, rows
        # AVX-512 by 2, 4, 8: 0.47, 0.41, 0.40 ns an element FLOAT. NEON's registers hold sums, too, beside six.
        self.streams = 6 if machine().neon else 8 if machine().registers >= 32 else 2
        self.exp = Exp(code, None, "negative")
        self.last, self.tied = (code.frame("f32", code.lanes) for _ in range(2))

    def _summed(
        self, count: Value, sums: Sequence[_Sum], body: Callable[[Shape, Value], None]
    ) -> Value:
        """`body` over all whole vectors, and the sums of what it took; returns where the rest begins."""
        code, shape = self.code, Shape(self.streams, self.code.lanes)
        turn, whole = TURN * shape.elements, count - count.unsigned_rem(shape.elements)
        with code.loop(0, whole, turn) as start:
            stop = (start + turn).least(whole)
            code.strides(start, stop, shape.elements, functools.partial(body, shape))
            for each_sum in sums:
                each_sum.fold()
        done = code.strides(whole, count, code.lanes, functools.partial(body, Shape(1, code.lanes)))
        for each_sum in sums:
            each_sum.fold()
        return done

    def look(self, place: Value, count: Value, index: Value) -> None:
        """Find a chunk's largest logit, before it is taken."""
        x, highest = self.code.array(place, self.dtype), _Largest(self.code, self.streams)

        def body(shape: Shape, at: Value) -> None:
            highest.take(numerics.load(x, at, shape))

        self.code.elements(count, self.streams, body)
        self.rows.highest.write(index, highest.get())

    def take(self, place: Value, weight: Value, weight_step: Value, count: Value, index: Value) -> None:  # fmt: skip
        code, rows = self.code, self.rows
        x = code.array(place, self.dtype)
        before, highest = rows.top.read(index).to("f32"), rows.highest.read(index)
        top = larger(before, highest)
        # Where all are minus infinity, any finite number gives them the power 0.
        shift = (top == -INFINITY).choose(0.0, top)
        with code.either(highest > before) as (raised, kept):
            with raised:
                lowered = exp64(code, before.to("f64") - top.to("f64"))
                old = (rows.others.read(index) + 1.0) * lowered
                rows.others.write(index, old + self._powers(x, count, shift, apart=True))
            with kept:
                rows.add(rows.others, index, self._powers(x, count, shift, apart=False))
        rows.top.write(index, top.to("f64"))
        with code.when(self.parameters.flag("smooths")):
            rows.add(rows.spread, index, moved(rows.weights.read(index), before, top))
            self._spread(x, shift, weight, weight_step, count, index)

    def _powers(self, x: Array, count: Value, shift: Value, apart: bool) -> Value:
        """The sum of exp(x - shift); `apart`: without one of those that are the shift itself."""
        code = self.code
        total, ties, size = _Sum(code), _Sum(code), SIZE[self.dtype]

        def powers_of(values: Value) -> tuple[Value, Value]:
            """And 1 for each of them that is left out."""
            powers, tie = self.exp(values - shift), values == shift
            tied = tie.choose(code.single(1.0), 0.0)
            return (tie.choose(code.single(0.0), powers) if apart else powers), tied

        def body(shape: Shape, index: Value) -> None:
            # Memory would rest while powers are computed: what the next chunk begins with is asked for meanwhile.
            if shape.streams > 1:
                for line in range(0, shape.elements * size, LINE):
                    code.prefetch(x.address(index + CHUNK) + line)
            powers, tied = powers_of(numerics.load(x, index, shape))
            if apart:
                ties.take(tied)
            total.take(powers)

        done = self._summed(count, (total, ties) if apart else (total,), body)
        with code.either(count >= code.lanes) as (vector, few):
            with vector, code.when(done < count):
                # What is left are the last lanes of the chunk's last vector, added one after another.
                end = count - code.lanes
                powers, tied = powers_of(numerics.load(x, end, Shape(1, code.lanes)))
                self.last.store(powers, code.integer(0))
                self.tied.store(tied, code.integer(0))
                with code.loop(done - end, code.integer(code.lanes)) as lane:
                    total.take(self.last.read(lane).splat(1))
                    if apart:
                        ties.take(self.tied.read(lane).splat(1))
            with few:
                code.strides(done, count, 1, functools.partial(body, Shape(1, 1)))
        return total.get() + (ties.get() - 1.0) if apart else total.get()

    def _spread(
        self, x: Array, shift: Value, weight: Value, weight_step: Value, count: Value, index: Value
    ) -> None:
        """What label smoothing sums: weight * (x - shift), and the weights."""
        code, rows = self.code, self.rows
        spread, weights = _Sum(code), _Sum(code)
        with code.either(self.parameters.flag("weighted")) as (weighted, alike):
            with weighted:
                copied = code.frame("f32", CHUNK).address()
                with code.when(weight_step != 4):
                    code.copy(weight, weight_step, copied, code.integer(4), count, "f32")
                factors = code.array((weight_step == 4).choose(weight, copied), "f32")

                def body(shape: Shape, place: Value) -> None:
                    factor = factors.load(place, shape)
                    spread.take(below(numerics.load(x, place, shape), shift) * factor)
                    weights.take(factor)

                done = self._summed(count, (spread, weights), body)
                code.strides(done, count, 1, functools.partial(body, Shape(1, 1)))
                rows.add(rows.weights, index, weights.get())
            with alike:

                def plain(shape: Shape, place: Value) -> None:
                    spread.take(below(numerics.load(x, place, shape), shift))

                done = self._summed(count, (spread,), plain)
                code.strides(done, count, 1, functools.partial(plain, Shape(1, 1)))
                rows.add(rows.weights, index, count.to("f64"))
        rows.add(rows.spread, index, spread.get() * PARTS)


class Parts(NamedTuple):
    """Of rows: the loss, the z-loss, the weight and whether they count, FLOAT64; 0 of those that do not."""

    loss: Value
    square: Value
    weight: Value
    counted: Value


def parts_of(
    code: Code, parameters: Parameters, counted: Value, log_prob: Value, weight: Value,
    spread: Callable[[], Value], square: Callable[[Value], Value],
) -> Parts:  # fmt: skip
    """Of rows with these log-probabilities and weights of their targets' classes: of one row as scalars, of several as vectors.

    `spread()` is the sum of weight * (log-sum-exp - x) over all classes, `square(scale)` the z-loss.
    """
    lanes = log_prob.lanes
    loss = code.variable(-(weight * log_prob))
    with code.when(parameters.flag("smooths")):
        smoothing, classes = parameters.double("smoothing"), parameters["classes"].to("f64")
        loss.set(fma(loss.get(), 1.0 - smoothing, spread() * (smoothing / classes)))
    squared = code.variable(code.double(0.0).splat(lanes))
    with code.when(parameters.flag("zloss")):
        squared.set(square(parameters.double("zloss_scale")))
    parts = loss.get(), squared.get(), weight, code.double(1.0).splat(lanes)
    return Parts(*(counted.choose(part, 0.0) for part in parts))


def emit_rows(dtype: str, target: str, each: bool, whole: bool) -> Emit:
    """The kernel: pieces of work are tiles of rows. It leaves records in scratch memory, or writes each row's loss."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, SLOTS)
        many_rows = staged_rows(SIZE[dtype])
        tile = Tile(code, parameters, dtype, "input", many_rows, CHUNK, "log_prob")
        rows = Rows(code, many_rows)
        chunks = Chunks(code, parameters, dtype, rows)
        results = _Results(code, parameters, dtype, target, each, whole)
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
                results.of_long_row(first_row + index, rows, index)
            if whole:
                with code.loop(0, classes, CHUNK) as start:
                    count = (classes - start).least(CHUNK)
                    tile.read(first_row, start, many, count)
                    with code.loop(0, many) as index:
                        results.log_prob(*tile.row(first_row, start, index), count, rows, index)
                    tile.write(first_row, start, many, count)

    return emit


class _Results:
    """Writes the results of rows: of one, or of as many as a vector has lanes."""

    def __init__(
        self, code: Code, parameters: Parameters, dtype: str, target: str, each: bool, whole: bool
    ) -> None:
        self.code, self.parameters, self.dtype = code, parameters, dtype
        self.each, self.whole = each, whole
        operands = ("log_prob", "square", "lse") if whole else ("top", "rest")
        self.lanes = RowLanes(code, parameters, dtype, target, ("target", "input", "loss", *operands))  # fmt: skip

    def rest(self, top: Value, others: Value) -> Value:
        """log-sum-exp less the largest. Where that is infinite, training has no probabilities; the formula of
        aclnnCrossEntropyLoss has them where one alone is."""
        rest = log1p_64(self.code, others)
        if not self.whole:
            return rest + (top - top)
        many = self.parameters["classes"] > 1
        none = ((top == -math.inf) & many) | ((top == math.inf) & (others >= 0.5))
        certain: Value = none.choose(math.nan, rest)
        return certain

    def write(
        self, rows: list[Value], top: Value, others: Value, spread: Callable[[Value, Value], Value]
    ) -> Value:
        """Losses and numbers of rows with this largest logit, FLOAT64; returns the rest. `spread(top, rest)` is as `parts_of` has it."""
        code, parameters, lanes = self.code, self.parameters, self.lanes
        labels, targets = lanes.labels(rows)
        counted, rest = targets.counted, self.rest(top, others)
        if not self.whole:
            top = rest.is_nan().choose(rest, top)
            lanes.put(top.to("f32"), lanes.places("top", rows), "f32")
            lanes.put(rest.to("f32"), lanes.places("rest", rows), "f32")
        safe = [counted.lane(lane).choose(label, 0) for lane, label in enumerate(labels)]
        weight = code.variable(code.double(1.0).splat(top.lanes))
        with code.when(parameters.flag("weighted")):
            weight.set(lanes.weights(safe))
        places = lanes.at_labels("input", lanes.places("input", rows), safe)
        log_prob = (lanes.read(places).to("f64") - top) - rest
        parts = parts_of(
            code, parameters, counted, log_prob, weight.get(), lambda: spread(top, rest),
            lambda scale: scale * (top + rest) * (top + rest),
        )  # fmt: skip
        if self.each:
            self._put("loss", rows, parts.loss + parts.square)
        else:
            for lane, row in enumerate(rows):
                record = code.array(parameters.scratch + row * (8 * RECORD), "f64")
                for slot, part in enumerate(parts):
                    record.write(slot, part.lane(lane))
        if self.whole:
            with code.when(parameters.flag("returns")):
                self._put("lse", rows, top + rest)
                if self.each:
                    self._put("square", rows, parts.square)
        return rest

    def _put(self, operand: str, rows: list[Value], values: Value) -> None:
        self.lanes.put(values.to("f32"), self.lanes.places(operand, rows))

    def of_long_row(self, position: Value, rows: Rows, index: Value) -> None:
        """Of a row of a tile."""

        def spread(top: Value, rest: Value) -> Value:
            # An infinite largest logit has no log-probability.
            return (rest + (top - top)) * rows.weights.read(index) - rows.spread.read(index)

        top, others = (array.read(index).splat(1) for array in (rows.top, rows.others))
        rest = self.write([position], top, others, spread)
        if self.whole:
            rows.others.write(index, rest.lane(0))  # what was there has done its work

    def log_prob(self, x: Value, out: Value, count: Value, rows: Rows, index: Value) -> None:
        """A chunk of a row's log-probabilities."""
        code = self.code
        top, rest = (array.read(index).to("f32") for array in (rows.top, rows.others))
        source, written = code.array(x, self.dtype), code.array(out, self.dtype)

        def body(shape: Shape, place: Value) -> None:
            values = (numerics.load(source, place, shape) - top) - rest
            numerics.store(values, written, place, self.lanes.opaque, any_nan=True)

        code.elements(count, 4, body)


def emit_short_rows(dtype: str, target: str, each: bool) -> Emit:
    """The kernel of aclnnCrossEntropyLoss over fewer classes than a vector has lanes: as many rows at once as there are lanes, class after class.
    Pieces of work are rows. It leaves records in scratch memory, or writes each row's loss.

    Alone, a row of 4 classes took 200 ns, its numbers in FLOAT64 one after the other. The bits are those of `emit_rows`: so few classes
    are added up one by one there, too.
    """

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        rows = _ShortRows(code, Parameters(code, block, SLOTS), dtype, target, each)
        rows.results.lanes.each(first, last, rows.write)

    return emit


class _ShortRows:
    """Rows whose classes are all held in the frame."""

    def __init__(
        self, code: Code, parameters: Parameters, dtype: str, target: str, each: bool
    ) -> None:
        self.code, self.classes = code, parameters["classes"]
        self.results = _Results(code, parameters, dtype, target, each, whole=True)
        self.weighted, self.exp = parameters.flag("weighted"), Exp(code, None, "negative")
        self.x = code.frame("f32", code.lanes * code.lanes)  # class after class

    def write(self, rows: list[Value]) -> None:
        """All results of some rows; all of theirs is read before anything is written."""
        code, lanes = self.code, self.results.lanes
        inputs = lanes.places("input", rows)
        highest = code.variable(code.constant("f32", -math.inf, code.lanes))
        with code.loop(0, self.classes) as current:
            values = lanes.read(lanes.of_class("input", inputs, current))
            self.x.store(values, current * code.lanes)
            highest.set(larger(highest.get(), values))
        top = highest.get()
        rest = self.results.write(rows, top.to("f64"), self._others(top), self._spread)
        places = lanes.places("log_prob", rows)
        with code.loop(0, self.classes) as current:
            values = (self._class(current) - top) - rest.to("f32")
            lanes.put(values, lanes.of_class("log_prob", places, current))

    def _class(self, current: Value) -> Value:
        return self.x.load(current * self.code.lanes, Shape(1, self.code.lanes))

    def _zeros(self, kind: str) -> Variable:
        return self.code.variable(self.code.constant(kind, 0.0, self.code.lanes))

    def _others(self, top: Value) -> Value:
        """The sum of exp(x - top) over all but one of the largest."""
        code = self.code
        total, ties = self._zeros("f64"), self._zeros("f32")
        shift = (top == -math.inf).choose(0.0, top)
        with code.loop(0, self.classes) as current:
            values = self._class(current)
            powers, tie = self.exp(values - shift), values == shift
            ties.set(ties.get() + tie.choose(code.single(1.0), 0.0))
            total.set(total.get() + tie.choose(code.single(0.0), powers).to("f64"))
        powers = total.get() + 0.0
        # A row begins with a sum that is lowered by as much as can be.
        lowered = exp64(code, code.double(-math.inf))
        apart = powers + ((ties.get().to("f64") + 0.0) - 1.0)
        others: Value = (top > -math.inf).choose(apart + lowered, powers + 0.0)
        return others

    def _spread(self, top: Value, rest: Value) -> Value:
        """What label smoothing adds: the sum of weight * (log-sum-exp - x)."""
        code, lanes, largest = self.code, self.results.lanes, top.to("f32")
        spread, weights = self._zeros("f64"), code.variable(code.double(0.0))
        with code.loop(0, self.classes) as current:
            distance = below(self._class(current), largest)
            with code.either(self.weighted) as (weighted, alike):
                with weighted:
                    place = lanes.base["weight"] + current * lanes.along["weight"]
                    factor = code.load(place, "f32")
                    spread.set(spread.get() + (distance * factor).to("f64"))
                    weights.set(weights.get() + factor.to("f64"))
                with alike:
                    spread.set(spread.get() + distance.to("f64"))
        every = self.weighted.choose(weights.get() + 0.0, self.classes.to("f64"))
        return rest * every - (spread.get() + 0.0) * PARTS


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
