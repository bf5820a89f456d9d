"""Cross entropy from logits of pixels (`operators/logits.py`): one pass over the logits, vectors across pixels; and the kernels of all
losses from logits.

Of a chunk of classes the largest logits are found while they are read, then the powers are summed. As in `loss_rows.py`, what was
summed before is lowered where a largest logit rises, and the largest one's own 1 stays out of the sum. Each piece of work adds up its pixels in one order and leaves its sums as a record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

from openaclnn.core.dtypes import FLOAT, FLOAT16, FLOATS, INT32, INT64
from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.arithmetic.functions import Exp, exp64, log1p_32
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
from openaclnn.engines.cpu.classes.loss_rows import (
    AT_ONCE,
    INFINITY,
    OPERANDS,
    PARTS,
    RECORD,
    SLOTS,
    TRAINING,
    WHOLE,
    added,
    below,
    emit_reduction,
    emit_rows,
    emit_short_rows,
    larger,
    moved,
    parts_of,
    staged_rows,
)
from openaclnn.engines.cpu.classes.parameters import Parameters, double, few, target_kind
from openaclnn.engines.cpu.classes.pixel_groups import CHUNK, Chunk, Group, Groups, Pixels, unit_of
from openaclnn.engines.cpu.classes.row_tiles import classes_lie_apart
from openaclnn.engines.cpu.registry import KERNELS
from openaclnn.engines.machine.cache import Emit, compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.host import machine
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

TRAINING_PIXELS = "cross_entropy_logits_pixels"
# As pixels rows of 4 classes take 17 ns, of 21 26, of 100 75, of 127 95; as rows those of 128 take 155.
SHORT = 128
TURN = 16  # classes whose powers are summed in FLOAT; of 8 or 10 short rows take a tenth more time


def emit_pixels(dtype: str, target: str, each: bool) -> Emit:
    """The kernel: pieces of work are runs of pixels."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, SLOTS)
        worker = _Pixels(code, parameters, dtype, target, each)
        operands = worker.groups.operands
        totals.each_piece(
            code, parameters, first, last, operands, worker.run, worker.begin, worker.end
        )

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

    def begin(self, start: Value, stop: Value) -> None:
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
        largest = raised.choose(code.single(1.0), 0.0)
        self.others.store(self.others.load(zero, shape) + (ties - largest).to("f64"), zero)
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
        code, parameters, shape = self.code, self.parameters, Shape(1, self.code.lanes)
        top = self.top.load(index, shape)
        rest = log1p_32(code, self.others.load(index, shape).to("f32")) + (top - top)
        top = rest.is_nan().choose(rest, top)
        places["top"].store(top, index)
        places["rest"].store(rest, index)
        top, rest = top.to("f64"), rest.to("f64")
        _, counted, logit, weight = pixels
        parts = parts_of(
            code, parameters, counted, (logit - top) - rest, weight,
            lambda: rest * self.weight_sum - self.spread.load(index, shape),
            lambda scale: (top + rest) * (top + rest) * scale,
        )  # fmt: skip
        if self.each:
            both = (parts.loss + parts.square).to("f32")
            numerics.store(both, places["loss"], index, self.opaque, any_nan=True)
            return
        self._add(0, parts.loss)
        self._add(3, parts.counted)
        # Of few classes, adding zeros takes a thirtieth of the time.
        with code.when(parameters.flag("zloss")):
            self._add(1, parts.square)
        with code.when(self.groups.weighted):
            self._add(2, parts.weight)

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


class LogitLoss(ClassKernel):
    """Of one of the three names: of rows for aclnnCrossEntropyLoss, of rows and of pixels for training. Of a short row, what is done once a row would
    take longest: so short rows are computed many at a time, for training as pixels are, with planes that lie one element apart."""

    def __init__(self, name: str) -> None:
        super().__init__(name, SLOTS, OPERANDS)
        self.whole, self.of_pixels = name == WHOLE, name == TRAINING_PIXELS
        self.axes, self.strided = IMAGES if self.of_pixels else 2, self.whole
        self.full = ("input", "log_prob") if self.whole else ("input",)
        numbers = ("smoothing", "f64", 1), ("zloss_scale", "f64", 1)
        self.free = (*ClassKernel.free, *numbers) if self.whole else ()

    def declines(self, plan: Plan) -> str | None:
        if self.of_pixels:
            return super().declines(plan)
        lacks_half = plan.compute is FLOAT16 and not machine().half
        return "this CPU does not convert FLOAT16" if lacks_half else None

    def numbers(self, plan: Plan) -> Mapping[str, int]:
        numbers = plan.numbers
        return {
            "weighted": numbers["weighted"], "mean": plan.reduction == "mean",
            "zloss": numbers["zloss_scale"] != 0, "smooths": numbers["label_smoothing"] != 0,
            "smoothing": double(numbers["label_smoothing"]), "zloss_scale": double(numbers["zloss_scale"]),
            "returns": numbers.get("return_zloss", False), "each": not plan.reduction,
        }  # fmt: skip

    def is_short(self, classes: Number) -> Truth:
        return True if self.of_pixels else classes < (machine().lanes if self.whole else SHORT)

    def cut(self, problem: Problem) -> Launches:
        positions, classes = problem["positions"], problem["classes"]
        short = self.is_short(classes)
        apart = all_of(classes > 1, classes_lie_apart(problem, *self.full))
        staged = staged_rows(problem["item"])
        tile = where(apart, staged, most(least(AT_ONCE // classes, staged), 1))
        if self.whole:
            tile, apart = where(short, 1, tile), all_of(inverse(short), apart)
            problem["staged"] = flag(apart)
        else:
            tile = where(short, unit_of(classes), tile)
            problem["staged"] = where(short, 1 - problem["dense"], flag(apart))
        pieces, grain = cut_tiles(problem, tile, classes)
        records = positions if self.whole else where(short, pieces, positions)
        problem["records"] = records
        left = where(problem["each"] != 0, 0, records * (8 * RECORD))
        return Launches(flag(short), pieces, grain, left=left)

    def kernels(self, plan: Plan, variant: int) -> Kernels:
        """The kernel over rows, and the one that adds up what it leaves."""
        dtype, target, each = plan.compute.short, target_kind(plan), not plan.reduction
        name, emit = self.name, emit_rows(dtype, target, each, self.whole)
        if variant and self.whole:
            name, emit = f"{WHOLE}.short", emit_short_rows(dtype, target, each)
        elif variant:
            name, emit = TRAINING_PIXELS, emit_pixels(dtype, target, each)
        how = "each" if each else "sum"
        write = compiled(f"{name}.{dtype}.{target}.{how}", emit, few=few)
        finish = 0 if each else compiled(f"logits.reduction.{dtype}", emit_reduction(dtype))
        return Kernels(write, finish=finish)

    def variants(self) -> Iterator[Plan]:
        """Rows of either sort; what short ones need for training, pixels have."""
        sizes = (2, 1 << 10) if self.whole else (2,) if self.of_pixels else (SHORT,)
        for dtype, target, reduction, classes in product(FLOATS, (INT64, INT32), ("", "mean"), sizes):  # fmt: skip
            more = [("topOut", FLOAT, "positions"), ("restOut", FLOAT, "positions")]
            if self.whole:
                more = [("logProbOut", dtype, "full")]
            loss = "single" if reduction else "positions"
            yield example(
                self.name, dtype, classes, [("target", target, "positions"), ("input", dtype, "full")],
                [("lossOut", dtype, loss), *more], reduction=reduction,
            )  # fmt: skip


KERNELS.update({name: LogitLoss(name) for name in (WHOLE, TRAINING, TRAINING_PIXELS)})
