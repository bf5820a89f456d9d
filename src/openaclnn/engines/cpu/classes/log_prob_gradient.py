"""The cross entropy gradient from log-probabilities: see the formula and its derivation in `operators/cross_entropy_loss_grad.py`.

A row is factor * exp(logProb) - smooth * weight, and nll less at its target. A row's numbers and its target's element are computed in FLOAT64,
of one row as scalars, of several as vectors; the rest in FLOAT.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core.dtypes import FLOATS, INT32, INT64, DType
from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.arithmetic.functions import (
    CONSTANT,
    PLAIN,
    WEIGHTS,
    Exp,
    foldable,
    power64,
)
from openaclnn.engines.cpu.classes import totals
from openaclnn.engines.cpu.classes.launches import (
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
from openaclnn.engines.cpu.classes.row_tiles import (
    RowLanes,
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
from openaclnn.engines.machine.host import machine
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.numbers import all_of, flag, inverse
from openaclnn.engines.machine.values import Shape, Value, fma, intrinsic, maximum

NAME = "cross_entropy_loss_grad"
OPERANDS = {
    "target": "target", "gradient": "gradLoss", "log_prob": "logProb", "weight": "weightOptional",
    "lse": "lseForZlossOptional", "grad_zloss": "gradZlossOptional", "out": "out",
}  # fmt: skip
SLOTS = fields(
    tuple(OPERANDS),
    ("weighted", "mean", "zloss", "grad_zloss_given", "smooths", "smoothing", "zloss_scale", "table",
     "staged", "tile", "chunk", "chunks"),
)  # fmt: skip

SHORT = 48  # fewer classes have a kernel of their own (`emit_few_classes`): 64 rows of 4 take it 1.5 us, the other 12


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


# Beyond, exp is infinite in FLOAT64 too. The formula then has infinity times each of a row's terms, one of which may be 0;
# below, FLOAT's infinity stands for a number, which the terms' sum multiplies.
INFINITE = 709.78


# FLOAT's short exponential is right from here to -0.0, subnormal results included. As signed bits these
# values lie below all others, so one integer maximum a vector tells whether a piece has any other.
LOWEST_BITS = 0xC2D00000 - (1 << 32)  # of -104.0
HIGHEST = 88.72283  # the largest x whose exp is a FLOAT
TABLE = 1 << 16  # entries of exp's table; those of rows with NaN for an infinite exp follow
PIECE = 1024  # elements between two looks at that maximum


class Numbers(NamedTuple):
    """What a row's elements follow from."""

    code: Code
    smooths: Value
    target_weight: Value  # 0 where the target does not count
    nll: Value
    smooth: Value
    lse_factor: Value
    smooth_factor: Value
    factor: Value
    infinite: Value  # what the terms give together where exp is infinite: infinity, or NaN

    def at_target(self, x: Value) -> Value:
        """The element of the target's class, whose logProb is x."""
        probability = power64(self.code, x)
        # Smoothing's two terms apart from the others: each pair may cancel.
        picked = probability * (self.nll + self.lse_factor) - self.nll
        smoothed = probability * self.smooth_factor - self.smooth * self.target_weight
        usual = self.smooths.choose(picked + smoothed, probability * self.factor - self.nll)
        return (x > INFINITE).choose(self.infinite - self.nll, usual)

    def rounded(self) -> tuple[Value, Value, Value]:
        """The factor, what is added (times a weight or not; without smoothing minus zero), and `infinite`: FLOAT."""
        factor, infinite = self.factor.to("f32"), self.infinite.to("f32")
        addend = self.smooths.choose((-self.smooth).to("f32"), -0.0)
        # NaN with an empty low half, whatever came in: rounding to bfloat16 needs that.
        return _plain(factor), _plain(addend), _plain(infinite)


def _plain(value: Value) -> Value:
    return value.is_nan().choose(float("nan"), value)


def numbers_of(
    code: Code, parameters: Parameters, sums: Sums, counted: Value, weight: Callable[[], Value],
    read: Callable[[str], Value],
) -> Numbers:  # fmt: skip
    """`weight()` is that of the target's class where it counts, `read(operand)` the row's element; both FLOAT64."""
    mask = counted.to("f64")
    target_weight = code.variable(mask)
    with code.when(parameters.flag("weighted")):
        target_weight.set(counted.choose(weight(), 0.0))
    gradient, smoothing = read("gradient"), parameters.double("smoothing")
    nll = gradient * (1.0 - smoothing) / sums.total * mask * target_weight.get()
    # Without smoothing this is 0, or NaN where the gradient or the total makes it so, as in the formula.
    smooth = gradient / sums.total * smoothing / parameters["classes"].to("f64") * mask
    smooth_factor, infinity = sums.times(smooth), float("inf")
    infinite = code.variable(nll * infinity + smooth_factor * infinity)
    lse_factor = code.variable(code.double(0.0).splat(mask.lanes))
    with code.when(parameters.flag("zloss")):
        both = code.variable(gradient)
        with code.when(parameters.flag("grad_zloss_given")):
            both.set(both.get() + read("grad_zloss"))
        scale = read("lse") * parameters.double("zloss_scale") * mask
        lse_factor.set(scale * (both.get() / sums.rows_counted))
        infinite.set(infinite.get() + lse_factor.get() * infinity)
    return Numbers(
        code, parameters.flag("smooths"), target_weight.get(), nll, smooth, lse_factor.get(),
        smooth_factor, nll + smooth_factor + lse_factor.get(), infinite.get(),
    )  # fmt: skip


@dataclass(frozen=True)
class Terms:
    """The row's numbers, FLOAT; `addend` is the constant or the slope, minus zero for none.

    `infinite` stands for factor * exp(x) where that exp is infinite; the 16-bit dtypes have tables that say so.
    """

    factor: Value
    addend: Value
    infinite: Value
    table: Value  # exp of every 16-bit pattern


def streams(dtype: str) -> int:
    """Vectors side by side: 8 fill NEON's 32 registers (9 spill, 1.7 times slower); tables need fewer."""
    if dtype != "f32":
        return 8 if dtype == "bf16" else 4
    return 8 if machine().registers >= 32 else 3


class _Place(NamedTuple):
    """Where a piece lies."""

    x: Array
    weight: Array
    out: Array


class RowFormula:
    """One piece in one mode; constants are laid out here, outside the loop over pieces."""

    def __init__(
        self, code: Code, dtype: str, mode: int, terms: Terms, folded: bool, streams: int
    ) -> None:
        self.code, self.dtype, self.mode, self.terms = code, dtype, mode, terms
        self.streams = streams
        self.folded = folded and dtype == "f32"
        self.opaque = numerics.Opaque(code)
        if dtype == "f32":
            multiplier = terms.factor if folded else None
            self.short = Exp(code, multiplier, "negative")
            self.full = Exp(code, multiplier, "full")
            self.seen = _Highest(code)

    def piece(self, x: Value, weight: Value, out: Value, count: Value) -> None:
        """`count` elements, a multiple of the block."""
        code, many = self.code, self.streams
        # The exponential's full range needs more registers.
        few = many // 2 if many % 2 == 0 else 1
        place = _Place(
            code.array(x, self.dtype), code.array(weight, "f32"), code.array(out, self.dtype)
        )

        def loop(streams: int, body: Callable[[Shape, Value, _Place], None]) -> None:
            shape = Shape(streams, code.lanes)
            code.strides(
                code.integer(0), count, shape.elements, lambda index: body(shape, index, place)
            )

        if not self.folded:
            loop(few if self.dtype == "f32" else many, self._anything)
            return
        # The usual code runs first and is judged after; in place it must be judged before.
        self.seen.forget()
        with code.when(x == out, likely=False):
            loop(many, self._look)
        usual = code.variable(self.seen.all_usual())
        with code.when(usual.get()):
            loop(many, self._usual)
            usual.set(self.seen.all_usual())
        with code.when(~usual.get(), likely=False):
            loop(few, self._anything)

    def _look(self, shape: Shape, index: Value, place: _Place) -> None:
        self.seen.note(numerics.load(place.x, index, shape))

    def _usual(self, shape: Shape, index: Value, place: _Place) -> None:
        x = numerics.load(place.x, index, shape)
        self.seen.note(x)
        self._store(self._sum(self.short.clamped(x), index, place), index, place)

    def _anything(self, shape: Shape, index: Value, place: _Place) -> None:
        total = self._sum(self._exp(shape, index, place), index, place)
        if self.dtype == "f32":
            infinite = numerics.load(place.x, index, shape) > INFINITE
            total = infinite.choose(self._sum_of_infinite(shape, index, place), total)
        self._store(total, index, place)

    def _exp(self, shape: Shape, index: Value, place: _Place) -> Value:
        """exp everywhere, times the factor where that is folded in."""
        if self.dtype != "f32":
            return numerics.lookup(place.x, index, shape, self.code.array(self.terms.table, "f32"))
        x = numerics.load(place.x, index, shape)
        exponential = self.full(x)
        if self.folded:  # a small factor must not make exp's infinity finite
            infinite = self.terms.factor.splat(shape.lanes) * float("inf")
            exponential = (x > HIGHEST).choose(infinite, exponential)
        return exponential

    def _store(self, total: Value, index: Value, place: _Place) -> None:
        numerics.store(total, place.out, index, self.opaque)

    def _sum_of_infinite(self, shape: Shape, index: Value, place: _Place) -> Value:
        if self.mode != WEIGHTS:
            return self.terms.infinite + self.terms.addend
        weights = numerics.load(place.weight, index, shape)
        return fma(weights, self.terms.addend, self.terms.infinite)

    def _sum(self, exponential: Value, index: Value, place: _Place) -> Value:
        factor, addend = self.terms.factor, self.terms.addend
        if self.mode == CONSTANT:
            return exponential + addend if self.folded else fma(exponential, factor, addend)
        product = exponential if self.folded else exponential * factor
        if self.mode == PLAIN:
            return product
        return fma(numerics.load(place.weight, index, exponential.shape), addend, product)


class _Highest:
    """The largest bits that were seen. In memory: one more live register would spill."""

    def __init__(self, code: Code) -> None:
        self.code, self.lanes, self.align = code, code.lanes, 4 * code.lanes
        self.array = code.frame("i32", 1, self.lanes)

    def forget(self) -> None:
        lowest = self.code.constant("i32", -(1 << 31), self.lanes)
        self.array.store(lowest, self.code.integer(0), self.align)

    def note(self, values: Value) -> None:
        largest = [*values.bits_as("i32").streams(), self._load(volatile=True)]
        while len(largest) > 1:
            pairs = zip(largest[::2], largest[1::2], strict=False)
            left = largest[len(largest) // 2 * 2 :]
            largest = [intrinsic("smax", *pair) for pair in pairs] + left
        self.array.store(largest[0], self.code.integer(0), self.align)

    def all_usual(self) -> Value:
        return self._load().reduce("smax") <= LOWEST_BITS

    def _load(self, volatile: bool = False) -> Value:
        return self.array.load(self.code.integer(0), Shape(1, self.lanes), volatile, self.align)


class Buffers:
    """Room for one block of inputs, weights and results: `streams` vectors."""

    def __init__(self, code: Code, dtype: str, streams: int) -> None:
        self.streams = streams
        block = streams * code.lanes
        self.inputs = code.buffer(dtype, block)
        self.weights = code.buffer("f32", block)
        self.results = code.buffer(dtype, block)
        # Lanes past a row's end are computed and dropped: they hold something harmless from the start.
        code.clear(self.inputs, code.integer(block * SIZE[dtype]))
        code.clear(self.weights, code.integer(block * 4))


def emit_row(
    code: Code, dtype: str, mode: int, row: Stretch, terms: Terms, buffers: Buffers, folded: bool
) -> None:
    """Compute a stretch of classes, piece after piece.

    `folded`: the factor is moderate (see `Exp`) and goes into FLOAT's exponential.
    """
    size, block = SIZE[dtype], buffers.streams * code.lanes
    width, four = code.integer(size), code.integer(4)
    formula = RowFormula(code, dtype, mode, terms, folded, buffers.streams)
    done = code.variable(0)
    with code.repeat_while(lambda: done.get() < row.many):
        start = done.get()
        left = row.many - start
        x, out = row.x + start * size, row.out + start * size
        weight = row.weight + start * row.weight_step
        whole = left - left.unsigned_rem(block)
        here = whole != 0
        if mode == WEIGHTS:
            here = here & (row.weight_step == 4)
        # Only FLOAT looks back at what it has done, so only its pieces need to be short.
        most = whole.least(PIECE // block * block) if dtype == "f32" else whole
        count = here.choose(most, left.least(block))
        with code.when(~here):
            code.copy(x, width, buffers.inputs, width, count, dtype)
            if mode == WEIGHTS:
                code.copy(weight, row.weight_step, buffers.weights, four, count, "f32")
        formula.piece(
            here.choose(x, buffers.inputs),
            here.choose(weight, buffers.weights),
            here.choose(out, buffers.results),
            here.choose(count, block),
        )
        with code.when(~here):
            code.copy(buffers.results, width, out, width, count, dtype)
        done.set(start + count)


def emit_zero(code: Code, dtype: str, row: Stretch, value: Value) -> Value:
    """Fill the stretch with a zero, unless exp(x) * 0 is NaN somewhere; whether it was filled.

    Reading and filling takes about half as long as computing (2.3 ms against 4.1 for 2^24 FLOAT16).
    """
    filled = code.variable(value.is_nan())  # false: a zero is none
    positive = value.bits_as("i32") == 0
    with code.when(positive):
        zero = code.integer(0)
        # The largest of each lane, for vectors and for single elements.
        highest = {lanes: code.frame("f32", 1, lanes) for lanes in (code.lanes, 1)}
        for lanes, array in highest.items():
            array.store(code.constant("f32", float("-inf"), lanes), zero, 4 * lanes)

        def watch(shape: Shape, index: Value) -> None:
            values = numerics.load(code.array(row.x, dtype), index, shape)
            array, one, align = highest[shape.lanes], Shape(1, shape.lanes), 4 * shape.lanes
            largest = array.load(zero, one, align=align)
            for x in values.streams():
                largest = maximum(x, largest)
            array.store(largest, zero, align)

        code.elements(row.many, 4, watch)
        small = [
            array.load(zero, Shape(1, lanes), align=4 * lanes) <= 88.0
            for lanes, array in highest.items()
        ]
        everywhere = [lanes.signed("i32").reduce("and") != 0 for lanes in small]
        filled.set(functools.reduce(operator.and_, everywhere))
        with code.when(filled.get()):
            code.clear(row.out, row.many * SIZE[dtype])
    return filled.get()


def emit_one_row(
    code: Code, parameters: Parameters, dtype: str, target: str, position: Value,
    first_class: Value, row: Stretch, sums: Sums, buffers: Buffers,
) -> None:  # fmt: skip
    """A row's chunk of classes. Its target's element is read before and written after all others."""
    size = SIZE[dtype]

    def at(operand: str) -> Value:
        return parameters.address(operand) + position * parameters[f"{operand}.step2"]

    def read(operand: str) -> Value:
        return code.load(at(operand), dtype).to("f64")

    targeted = Targets(code, parameters, target).at(at("target"))
    label, counted = targeted.label, targeted.counted
    with code.when(targeted.stray, likely=False):
        parameters.report_stray()

    def weight() -> Value:
        step = counted.choose(label, 0) * parameters["weight.class_step"]
        return code.load(parameters.address("weight") + step, "f32").to("f64")

    numbers = numbers_of(code, parameters, sums, counted, weight, read)
    column = label - first_class
    hit = counted & column.below(row.many)
    exact = code.variable(code.double(0.0))
    with code.when(hit):
        exact.set(numbers.at_target(code.load(row.x + column * size, dtype).to("f64")))
    _write(code, parameters, dtype, row, numbers, sums.weight_sum, buffers)
    with code.when(hit):
        code.store(exact.get().to("f32"), row.out + column * size, dtype)


def _write(
    code: Code, parameters: Parameters, dtype: str, row: Stretch, numbers: Numbers,
    weight_sum: Value, buffers: Buffers,
) -> None:  # fmt: skip
    """Choose the cheapest way for a row and take it."""
    smooths = numbers.smooths
    factor, addend, infinite = numbers.rounded()
    table = parameters["table"]
    table = infinite.is_nan().choose(table + 4 * TABLE, table)
    terms = Terms(factor, addend, infinite, table)
    folds = foldable(factor)
    # A NaN among the weights makes their sum and so the whole row NaN: then they need not be read.
    weighted = smooths & parameters.flag("weighted") & ~weight_sum.is_nan()
    ways = [(~smooths, PLAIN, False), (weighted, WEIGHTS, False)]
    if dtype == "f32":
        ways = [
            (folds & ~smooths, PLAIN, True),
            (folds & smooths & ~weighted, CONSTANT, True),
            (folds & weighted, WEIGHTS, True),
            (weighted, WEIGHTS, False),
        ]
    with code.first_of() as written:
        with code.when((factor == 0.0) & (addend == 0.0)):
            filled = emit_zero(code, dtype, row, factor + addend)
            with code.when(filled):
                written()
        for condition, mode, folded in ways:
            with code.when(condition):
                emit_row(code, dtype, mode, row, terms, buffers, folded)
                written()
        emit_row(code, dtype, CONSTANT, row, terms, buffers, folded=False)


def emit_rows(dtype: str, target: str) -> Emit:
    """The kernel: pieces of work are tiles of rows times chunks of classes."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, SLOTS)
        sums = sums_of(code, parameters, target)
        buffers, tile = Buffers(code, dtype, streams(dtype)), Tile(code, parameters, dtype)

        def stretch(position: Value, first_class: Value, row: Stretch, index: Value) -> None:
            emit_one_row(code, parameters, dtype, target, position, first_class, row, sums, buffers)

        each_stretch(code, parameters, tile, first, last, stretch)

    return emit


def emit_few_classes(dtype: str, target: str) -> Emit:
    """The kernel of few classes: as many rows at once as a vector has lanes, class after class. Pieces of work are rows.

    A row of its own would leave most of each vector empty and wait for itself: 254 rows of 4 took 20 us that way. The bits
    are those of longer rows: where the factor goes into the exponential it does so here, lane by lane.
    """

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, SLOTS)
        rows = _Rows(code, parameters, dtype, target, sums_of(code, parameters, target))
        rows.each(first, last, rows.write)

    return emit


class _Rows(RowLanes):
    """The function being written; what does not depend on the row is read before the loop."""

    def __init__(
        self, code: Code, parameters: Parameters, dtype: str, target: str, sums: Sums
    ) -> None:
        operands = ("target", "gradient", "log_prob", "out", "lse", "grad_zloss")
        super().__init__(code, parameters, dtype, target, operands)
        self.sums, self.table = sums, code.array(parameters["table"], "f32")
        # A NaN among the weights makes their sum and so all rows NaN: then they need not be read.
        weighted = parameters.flag("weighted") & ~sums.weight_sum.is_nan()
        self.adds_weights = parameters.flag("smooths") & weighted

    def write(self, rows: list[Value]) -> None:
        """Every class of some rows. Their targets' elements are read before anything is written."""
        code, (labels, targets) = self.code, self.labels(rows)
        safe = [self.targets.of(label).inside.choose(label, 0) for label in labels]
        numbers = numbers_of(
            code, self.parameters, self.sums, targets.counted, lambda: self.weights(safe),
            lambda operand: self.read(self.places(operand, rows)).to("f64"),
        )  # fmt: skip
        inputs, results = (self.places(name, rows) for name in ("log_prob", "out"))
        x = self.read(self.at_labels("log_prob", inputs, safe)).to("f64")
        exact = numbers.at_target(x).to("f32")
        formula = _Formula(self, *numbers.rounded())
        with code.loop(0, self.targets.classes) as current:
            values = formula.of(self.of_class("log_prob", inputs, current), current)
            hit = targets.counted & (targets.label == current)
            self.put(hit.choose(exact, values), self.of_class("out", results, current))


class _Formula:
    """factor * exp(x) + addend, or + addend * weight, with a factor and an addend for each row."""

    def __init__(self, rows: _Rows, factor: Value, addend: Value, infinite: Value) -> None:
        self.rows, self.code, self.dtype = rows, rows.code, rows.dtype
        self.factor, self.addend, self.infinite = factor, addend, infinite
        if self.dtype == "f32":
            folds = foldable(factor)
            multiplier, self.factor = folds.choose(factor, 1.0), folds.choose(1.0, factor)
            self.exp = Exp(self.code, multiplier, "full")
            self.overflow = multiplier * float("inf")
        else:
            first = infinite.is_nan().choose(self.code.integer(TABLE), 0)
            self.tables = [first.lane(lane) for lane in range(self.code.lanes)]

    def of(self, places: list[Value], current: Value) -> Value:
        """The elements of a class."""
        code, (exponential, factor) = self.code, self._exp(places)
        values = code.variable(fma(exponential, factor, self.addend))
        with code.when(self.rows.adds_weights):
            place = self.rows.base["weight"] + current * self.rows.along["weight"]
            weight = code.load(place, "f32")
            values.set(fma(self.addend, weight, exponential * factor))
        return values.get()

    def _exp(self, places: list[Value]) -> tuple[Value, Value]:
        """exp(logProb), times the factor where that is folded in, and what it is yet to be multiplied by."""
        if self.dtype != "f32":
            bits = [self.code.array(place, "i16").read(0).unsigned("i64") for place in places]
            entries = [one + first for one, first in zip(bits, self.tables, strict=True)]
            return self.code.gathered(self.rows.table, entries), self.factor
        x = self.rows.raw(places, "f32")
        # A small factor must not make exp's infinity finite.
        exponential = (x > HIGHEST).choose(self.overflow, self.exp(x))
        infinite = x > INFINITE
        return infinite.choose(self.infinite, exponential), infinite.choose(1.0, self.factor)


class CrossEntropyGradient(ClassKernel):
    strided, full = True, ("log_prob", "out")
    free = ("ignore_index", "i64", 1), ("smoothing", "f64", 1), ("zloss_scale", "f64", 2.0)

    def numbers(self, plan: Plan) -> Mapping[str, int]:
        dtype, numbers = plan.output.dtype, plan.numbers
        return {
            "weighted": numbers["weighted"],
            "mean": numbers["mean"],
            "zloss": numbers["zloss_scale"] != 0,
            "grad_zloss_given": numbers["grad_zloss_given"],
            "smooths": numbers["label_smoothing"] != 0,
            "smoothing": double(numbers["label_smoothing"]),
            "zloss_scale": double(2.0 * numbers["zloss_scale"]),
            "table": exp_table(dtype).ctypes.data if dtype.itemsize == 2 else 0,
        }

    def cut(self, problem: Problem) -> Launches:
        """Few classes are read where they lie, side by side or not."""
        positions, classes = problem["positions"], problem["classes"]
        short = classes < SHORT
        apart = all_of(inverse(short), classes_lie_apart(problem, "log_prob", "out"))
        pieces, grain = cut_tiles(problem, *cut_rows(problem, apart, 1))
        shared = problem["mean"], problem["weighted"], positions, classes, pieces > grain
        return Launches(flag(short), pieces, grain, totals.blocks_first(*shared))

    def kernels(self, plan: Plan, variant: int) -> Kernels:
        dtype, target = plan.output.dtype.short, target_kind(plan)
        name = f"{'few.' * variant}{dtype}.{target}"
        emit = (emit_few_classes if variant else emit_rows)(dtype, target)
        write = compiled(f"cross_entropy.{name}", emit, few=few)
        sums = compiled(f"totals.cross_entropy.{target}", totals.emit_totals(target, "f32", SLOTS))
        return Kernels(write, sums)

    def variants(self) -> Iterator[Plan]:
        for dtype, target, classes in product(FLOATS, (INT64, INT32), (SHORT - 1, SHORT)):
            yield example(
                NAME, dtype, classes,
                [("target", target, "positions"), ("gradLoss", dtype, "single"), ("logProb", dtype, "full")],
                [("out", dtype, "full")], positions=1 << 17,
            )  # fmt: skip


KERNELS[NAME] = CrossEntropyGradient("cross_entropy", SLOTS, OPERANDS)
