"""One row of class probabilities: out = factor * exp(x) + constant, or + slope * weight.

Whole blocks of vectors are computed where they lie. What is left at a row's end passes through buffers to
the same code, so an element's bits never depend on its place.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from openaclnn.engines.cpu import numerics
from openaclnn.engines.cpu.exponential import Exp
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.host import machine
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Shape, Value, fma, intrinsic, maximum

PLAIN, CONSTANT, WEIGHTS = range(3)
"""What is added to factor * exp(x): nothing, a constant, or slope * weight."""

# FLOAT's short exponential is right from here to -0.0, subnormal results included. As signed bits these
# values lie below all others, so one integer maximum a vector tells whether a piece has any other.
LOWEST_BITS = 0xC2D00000 - (1 << 32)  # of -104.0
HIGHEST = 88.72283  # the largest x whose exp is a FLOAT
PIECE = 1024  # elements between two looks at that maximum


@dataclass(frozen=True)
class Row:
    """Where a stretch of classes lies: side by side, but for weights, which lie `weight_step` bytes apart."""

    log_prob: Value
    out: Value
    weight: Value
    weight_step: Value
    count: Value


@dataclass(frozen=True)
class Terms:
    """The row's numbers, FLOAT; `addend` is the constant or the slope, minus zero for none."""

    factor: Value
    addend: Value
    table: Value  # exp of every 16-bit pattern


class Buffers:
    """Room for one block of inputs, weights and results."""

    def __init__(self, code: Code, dtype: str) -> None:
        block = streams(dtype) * code.lanes
        self.inputs = code.buffer(dtype, block)
        self.weights = code.buffer("f32", block)
        self.results = code.buffer(dtype, block)
        # Lanes past a row's end are computed and dropped: they hold something harmless from the start.
        code.clear(self.inputs, code.integer(block * SIZE[dtype]))
        code.clear(self.weights, code.integer(block * 4))


def streams(dtype: str) -> int:
    """Vectors side by side: 8 fill NEON's 32 registers (9 spill, 1.7 times slower); tables need fewer."""
    if dtype != "f32":
        return 8 if dtype == "bf16" else 4
    return 8 if machine().registers >= 32 else 3


def emit_row(
    code: Code, dtype: str, mode: int, row: Row, terms: Terms, buffers: Buffers, folded: bool
) -> None:
    """Compute a stretch of classes, piece after piece.

    `folded`: the factor is moderate (see `Exp`) and goes into FLOAT's exponential.
    """
    size, block = SIZE[dtype], streams(dtype) * code.lanes
    width, four = code.integer(size), code.integer(4)
    formula = _Formula(code, dtype, mode, terms, folded)
    done = code.variable(code.integer(0))
    with code.repeat_while(lambda: done.get() < row.count):
        start = done.get()
        left = row.count - start
        x, out = row.log_prob + start * size, row.out + start * size
        weight = row.weight + start * row.weight_step
        whole = left - left % block
        here = whole.differs(0)
        if mode == WEIGHTS:
            here = here & row.weight_step.equals(4)
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


def emit_zero(code: Code, dtype: str, row: Row, value: Value) -> Value:
    """Fill the stretch with a zero, unless exp(x) * 0 is NaN somewhere; whether it was filled.

    Reading and filling takes about half as long as computing (2.3 ms against 4.1 for 2^24 FLOAT16).
    """
    filled = code.variable(value.differs(value))  # false
    positive = value.bits_as("i32").equals(0)
    with code.when(positive):
        zero = code.integer(0)
        # The largest of each lane, for vectors and for single elements.
        highest = {lanes: code.frame("f32", 1, lanes) for lanes in (code.lanes, 1)}
        for lanes, array in highest.items():
            array.store(code.constant("f32", float("-inf"), lanes), zero, 4 * lanes)

        def watch(shape: Shape, index: Value) -> None:
            values = numerics.load(code.array(row.log_prob, dtype), index, shape)
            array, one, align = highest[shape.lanes], Shape(1, shape.lanes), 4 * shape.lanes
            largest = array.load(zero, one, align=align)
            for x in values.streams():
                largest = maximum(x, largest)
            array.store(largest, zero, align)

        code.elements(row.count, 4, watch)
        small = [
            array.load(zero, Shape(1, lanes), align=4 * lanes) <= 88.0
            for lanes, array in highest.items()
        ]
        everywhere = [lanes.signed("i32").reduce("and").differs(0) for lanes in small]
        filled.set(functools.reduce(operator.and_, everywhere))
        with code.when(filled.get()):
            code.clear(row.out, row.count * SIZE[dtype])
    return filled.get()


class _Formula:
    """One piece in one mode; constants are laid out here, outside the loop over pieces."""

    def __init__(self, code: Code, dtype: str, mode: int, terms: Terms, folded: bool) -> None:
        self.code, self.dtype, self.mode, self.terms = code, dtype, mode, terms
        self.folded = folded and dtype == "f32"
        self.opaque = numerics.Opaque(code)
        if dtype == "f32":
            multiplier = terms.factor if folded else None
            self.short = Exp(code, multiplier, "negative")
            self.full = Exp(code, multiplier, "full")
            self.seen = _Highest(code)

    def piece(self, x: Value, weight: Value, out: Value, count: Value) -> None:
        """`count` elements, a multiple of the block."""
        code, many = self.code, streams(self.dtype)
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
        with code.when(x.equals(out), likely=False):
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
        self._store(self.short.clamped(x), index, place)

    def _anything(self, shape: Shape, index: Value, place: _Place) -> None:
        self._store(self._exp(shape, index, place), index, place)

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

    def _store(self, exponential: Value, index: Value, place: _Place) -> None:
        total = self._sum(exponential, index, place)
        numerics.store(total, place.out, index, self.opaque)

    def _sum(self, exponential: Value, index: Value, place: _Place) -> Value:
        factor, addend = self.terms.factor, self.terms.addend
        if self.mode == CONSTANT:
            return exponential + addend if self.folded else fma(exponential, factor, addend)
        product = exponential if self.folded else exponential * factor
        if self.mode == PLAIN:
            return product
        return fma(numerics.load(place.weight, index, exponential.shape), addend, product)


class _Place(NamedTuple):
    """Where a piece lies."""

    x: Array
    weight: Array
    out: Array


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
