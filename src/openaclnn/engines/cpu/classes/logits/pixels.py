"""Cross entropy from logits of pixels (`operators/logits.py`): one pass over the logits, vectors across pixels.

Of a chunk of classes the largest logits are found while they are read, then the powers are summed. As in `chunks.py`, what was
summed before is lowered where a largest logit rises, and the largest one's own 1 stays out of the sum. Each piece of work adds up its pixels in one order and leaves its sums as a record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from openaclnn.core.plan import Plan
from openaclnn.core.tensor import element_count
from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.arithmetic.doubles import exp64
from openaclnn.engines.cpu.arithmetic.exponential import Exp
from openaclnn.engines.cpu.arithmetic.singles import log1p_32
from openaclnn.engines.cpu.classes.logits.chunks import PARTS, added, below, larger, moved
from openaclnn.engines.cpu.classes.logits.rows import (
    ALONE,
    RECORD,
    SLOTS,
    CrossEntropy,
    Cut,
)
from openaclnn.engines.cpu.classes.positions.pixel_groups import (
    CHUNK,
    Chunk,
    Group,
    Groups,
    Pixels,
    unit_of,
)
from openaclnn.engines.cpu.classes.shared import totals
from openaclnn.engines.cpu.classes.shared.parameters import AXES, Parameters, objection
from openaclnn.engines.machine.cache import Emit
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Shape, Value, fma

NAME = "cross_entropy_logits_pixels"
INFINITY = float("inf")
# As pixels rows of 4 classes take 17 ns, of 21 26, of 100 75, of 127 95; as rows those of 128 take 155.
SHORT = 128
TURN = 16  # classes whose powers are summed in FLOAT; of 8 or 10 short rows take a tenth more time


def emit_pixels(dtype: str, target: str, each: bool) -> Emit:
    """The kernel: pieces of work are runs of pixels."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, SLOTS)
        worker = _Pixels(code, parameters, dtype, target, each)
        unit, positions = parameters["tile"], parameters["positions"]
        with code.loop(first, last) as piece:
            start = piece * unit
            stop = (start + unit).least(positions)
            worker.begin()
            totals.runs(code, parameters, start, stop, worker.groups.operands, worker.run)
            worker.end(piece)

    return emit


class _Pixels:
    def __init__(
        self, code: Code, parameters: Parameters, dtype: str, target: str, each: bool
    ) -> None:
        self.code, self.parameters, self.dtype, self.each = code, parameters, dtype, each
        operands = ("target", "input", "top", "rest", *(("loss",) if each else ()))
        self.groups = Groups(code, parameters, dtype, target, operands)
        self.exp, self.opaque = Exp(code, None, "negative"), numerics.Opaque(code)
        self.smooths = parameters.flag("smooths")
        width = self.groups.width
        self.top, self.rest = (code.frame("f32", width) for _ in range(2))
        self.others, self.spread = (code.frame("f64", width) for _ in range(2))
        self.losses = code.frame(dtype, width)
        self.sums = [code.frame("f64", code.lanes) for _ in range(RECORD)]
        self.weight_sum = self._weights(code.integer(0), self.groups.targets.classes)
        self.before = code.variable(code.double(0.0))  # the sum of those of the chunks before

    def begin(self) -> None:
        self._fill(*self.sums)

    def _fill(self, *arrays: Array, number: float = 0.0) -> None:
        """With a number, every element of them."""
        width = self.groups.width if arrays[0] is not self.sums[0] else self.code.lanes
        with self.code.loop(0, self.code.integer(width), self.code.lanes) as index:
            for array in arrays:
                array.store(self.code.constant(array.kind, number, self.code.lanes), index)

    def end(self, piece: Value) -> None:
        """The record of a piece."""
        if not self.each:
            record = self.code.array(self.parameters.scratch + piece * (8 * RECORD), "f64")
            loss, square, weight, count = (
                functools.reduce(added, [array.read(lane) for lane in range(self.code.lanes)])
                for array in self.sums
            )
            weight = self.groups.weighted.choose(weight, count)
            for slot, total in enumerate((loss, square, weight, count)):
                record.write(slot, total)

    def run(self, addresses: list[Value], count: Value) -> None:
        self.groups.of(addresses, count, self._group)

    def _group(self, group: Group) -> None:
        code, groups = self.code, self.groups
        self._fill(self.top, number=-INFINITY)
        self._fill(self.others, self.spread)
        groups.chunks(lambda chunk: self._chunk(group, chunk))
        outputs = {"top": self.top, "rest": self.rest}
        if self.each:
            outputs["loss"] = self.losses
        places = {name: groups.beside(group, name, frame) for name, frame in outputs.items()}
        with code.loop(0, group.many, code.lanes) as index:
            self._finish(groups.pixels(group, index), index, places)
        for name, frame in outputs.items():
            groups.put_back(group, name, frame)

    def _chunk(self, group: Group, chunk: Chunk) -> None:
        """Some classes of all pixels of a group."""
        code, shape, zero = self.code, self.groups.shape, self.code.integer(0)
        before = self.top.load(zero, shape)
        highest = _Vectors(code, shape, -INFINITY)
        self.groups.read(group, chunk, lambda values: highest.take(values, larger))
        top = larger(before, highest.get())
        raised = highest.get() > before
        shift = _finite(top)
        self.top.store(top, zero)
        with code.when(chunk.start != 0, likely=False):
            others = self.others.load(zero, shape)
            lowered = exp64(code, before.to("f64") - top.to("f64"))
            self.others.store(raised.choose((others + 1.0) * lowered, others), zero)
            with code.when(self.smooths):
                self._move(chunk, before, top)
        ties = self._powers(group, chunk, shift)
        own = raised.choose(code.single(1.0), 0.0)
        self.others.store(self.others.load(zero, shape) + (ties - own).to("f64"), zero)
        with code.when(self.smooths):
            self._spread(chunk)

    def _powers(self, group: Group, chunk: Chunk, shift: Value) -> Value:
        """Add exp(x - shift) of the classes that are not the shift itself, and say how many are."""
        code, shape, zero = self.code, self.groups.shape, self.code.integer(0)
        ties = _Vectors(code, shape, 0.0)
        x = group.places["input"] + chunk.start * self.groups.class_step
        with code.loop(0, chunk.many, TURN) as start:
            powers = _Vectors(code, shape, 0.0)
            with code.loop(start, (start + TURN).least(chunk.many)) as label:
                self.groups.ahead(x + label * self.groups.class_step)
                values = self.groups.plane(label)
                tie = values == shift
                powers.take(tie.choose(code.single(0.0), self.exp(values - shift)), added)
                ties.take(tie.choose(code.single(1.0), 0.0), added)
            total = powers.get().to("f64")
            self.others.store(self.others.load(zero, shape) + total, zero)
        return ties.get()

    def _weights(self, start: Value, stop: Value) -> Value:
        """The sum of the weights of some classes."""
        code = self.code
        total = code.variable((stop - start).to("f64"))
        with code.when(self.smooths & self.groups.weighted):
            total.set(totals.sum_weights(code, self.parameters, start, stop)[0])
        return total.get()

    def _move(self, chunk: Chunk, before: Value, top: Value) -> None:
        """What was summed of the chunks before, as differences from a largest logit that may have risen."""
        shape, zero = self.groups.shape, self.code.integer(0)
        with self.code.when(chunk.start == CHUNK):
            self.before.set(self.code.double(0.0))
        self.before.set(self.before.get() + self._weights(chunk.start - CHUNK, chunk.start))
        change = moved(self.before.get(), before, top)
        self.spread.store(self.spread.load(zero, shape) + change, zero)

    def _spread(self, chunk: Chunk) -> None:
        """What label smoothing sums: weight * (x - shift)."""
        code, shape, zero = self.code, self.groups.shape, self.code.integer(0)
        shift = _finite(self.top.load(zero, shape))
        with code.loop(0, chunk.many, TURN) as start:
            sums = _Vectors(code, shape, 0.0)
            with code.loop(start, (start + TURN).least(chunk.many)) as label:
                factor = self.groups.factor(chunk, label)
                sums.take(below(self.groups.plane(label), shift) * factor, added)
            total = sums.get().to("f64") * PARTS
            self.spread.store(self.spread.load(zero, shape) + total, zero)

    def _finish(self, pixels: Pixels, index: Value, places: dict[str, Array]) -> None:
        """One vector of pixels: their results."""
        code, parameters, groups = self.code, self.parameters, self.groups
        shape = Shape(1, code.lanes)
        top = self.top.load(index, shape)
        rest = log1p_32(code, self.others.load(index, shape).to("f32")) + (top - top)
        top = rest.is_nan().choose(rest, top)
        places["top"].store(top, index)
        places["rest"].store(rest, index)
        top, rest = top.to("f64"), rest.to("f64")
        _, counted, own, weight = pixels
        loss = code.variable(-(weight * ((own - top) - rest)))
        with code.when(self.smooths):
            smoothing, classes = parameters.double("smoothing"), groups.targets.classes.to("f64")
            smoothed = rest * self.weight_sum - self.spread.load(index, shape)
            loss.set(fma(loss.get(), 1.0 - smoothing, smoothed * (smoothing / classes)))
        square = code.variable(code.constant("f64", 0.0, code.lanes))
        squares = parameters.flag("zloss")
        with code.when(squares):
            square.set((top + rest) * (top + rest) * parameters.double("zloss_scale"))

        def masked(value: Value) -> Value:
            return counted.choose(value, 0.0)

        if self.each:
            both = masked(loss.get() + square.get()).to("f32")
            numerics.store(both, places["loss"], index, self.opaque, any_nan=True)
            return
        self._add(0, masked(loss.get()))
        self._add(3, masked(code.constant("f64", 1.0, code.lanes)))
        with code.when(squares):
            self._add(1, masked(square.get()))
        with code.when(groups.weighted):
            self._add(2, masked(weight))

    def _add(self, slot: int, values: Value) -> None:
        array, zero = self.sums[slot], self.code.integer(0)
        array.store(array.load(zero, Shape(1, self.code.lanes)) + values, zero)


def _finite(top: Value) -> Value:
    """What is subtracted before powers: where all are minus infinity, any finite number gives 0."""
    shift: Value = (top == -INFINITY).choose(0.0, top)
    return shift


class _Vectors:
    """A running sum or maximum of each pixel of a group."""

    def __init__(self, code: Code, shape: Shape, start: float) -> None:
        constant = code.constant("f32", start, shape.lanes)
        self.code, self.streams = code, [code.variable(constant) for _ in range(shape.streams)]

    def take(self, values: Value, join: Callable[[Value, Value], Value]) -> None:
        for variable, value in zip(self.streams, values.streams(), strict=True):
            variable.set(join(variable.get(), value))

    def get(self) -> Value:
        return self.code.joined([variable.get() for variable in self.streams])


class CrossEntropyOfPixels(CrossEntropy):
    def __init__(self) -> None:
        super().__init__(NAME)

    def declines(self, plan: Plan) -> str | None:
        return objection(plan, AXES)

    def emits(self, dtype: str, target: str, each: bool) -> Emit:
        return emit_pixels(dtype, target, each)

    def cut(self, plan: Plan) -> Cut:
        positions, unit = element_count(plan.shape), unit_of(plan.classes)
        walked = [own for own in plan.operands if own.role in ("full", "positions")]
        dense = all(own.strides[-1] == 1 for own in walked)
        pieces = -(-positions // unit)
        grain = max(1, ALONE // (min(unit, positions) * plan.classes))
        return Cut(unit, not dense, pieces, grain, pieces)
