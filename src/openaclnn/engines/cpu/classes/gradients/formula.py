"""factor * exp(x) of a row's classes, plus a constant or slope * weight: one piece of it at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.arithmetic.exponential import Exp
from openaclnn.engines.cpu.classes.gradients.numbers import INFINITE
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.host import machine
from openaclnn.engines.machine.values import Shape, Value, fma, intrinsic

__all__ = [
    "CONSTANT", "HIGHEST", "PIECE", "PLAIN", "TABLE", "WEIGHTS", "RowFormula", "Terms", "foldable",
    "streams",
]  # fmt: skip

PLAIN, CONSTANT, WEIGHTS = range(3)
"""What is added to factor * exp(x): nothing, a constant, or slope * weight."""

# FLOAT's short exponential is right from here to -0.0, subnormal results included. As signed bits these
# values lie below all others, so one integer maximum a vector tells whether a piece has any other.
LOWEST_BITS = 0xC2D00000 - (1 << 32)  # of -104.0
HIGHEST = 88.72283  # the largest x whose exp is a FLOAT
TABLE = 1 << 16  # entries of exp's table; those of rows with NaN for an infinite exp follow
PIECE = 1024  # elements between two looks at that maximum


@dataclass(frozen=True)
class Terms:
    """The row's numbers, FLOAT; `addend` is the constant or the slope, minus zero for none.

    `infinite` stands for factor * exp(x) where that exp is infinite; the 16-bit dtypes have tables that say so.
    """

    factor: Value
    addend: Value
    infinite: Value
    table: Value  # exp of every 16-bit pattern


def foldable(factor: Value) -> Value:
    """Whether a factor is moderate (see `Exp`) and goes into FLOAT's exponential."""
    size = abs(factor)
    return (size >= 2.0**-80) & (size <= 2.0**80)


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
