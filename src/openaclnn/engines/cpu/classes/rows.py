"""One row of class probabilities: out = factor * exp(x) + constant, or + slope * weight.

Whole blocks of vectors are computed where they lie. What is left at a row's end passes through buffers to
the same code, so an element's bits never depend on its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from openaclnn.engines.cpu import numerics
from openaclnn.engines.cpu.classes.code import SIZE, Code, Number
from openaclnn.engines.cpu.simd import (
    Opaque,
    Value,
    Values,
    Vec,
    add_loop,
    loops,
    machine,
    repeat,
    volatile_load,
)
from openaclnn.engines.machine.words import F32, I32, i64, stack

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

    log_prob: Number
    out: Number
    weight: Number
    weight_step: Number
    count: Number


@dataclass(frozen=True)
class Terms:
    """The row's numbers, FLOAT; `addend` is the constant or the slope, minus zero for none."""

    factor: Number
    addend: Number
    table: Number  # exp of every 16-bit pattern


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

    `folded`: the factor is moderate (see `numerics.Exp`) and goes into FLOAT's exponential.
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
        whole = left - left.rest(block)
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


def emit_zero(code: Code, dtype: str, row: Row, value: Number) -> Number:
    """Fill the stretch with a zero, unless exp(x) * 0 is NaN somewhere; whether it was filled.

    Reading and filling takes about half as long as computing (2.3 ms against 4.1 for 2^24 FLOAT16).
    """
    builder, size = code.builder, SIZE[dtype]
    filled = code.variable(value.differs(value))  # false
    positive = builder.icmp_unsigned("==", builder.bitcast(value.value, I32), ir.Constant(I32, 0))
    with code.when(code.number(positive)):
        lanes = code.lanes
        kinds = {width: ir.VectorType(F32, width) for width in (lanes, 1)}
        places = {width: stack(builder, kind, 1) for width, kind in kinds.items()}
        for width, place in places.items():
            builder.store(repeat(F32, float("-inf"), width), place, align=4 * width)

        def watch(vec: Vec, index: Value) -> None:
            values = numerics.load(vec, row.log_prob.pointer, index, dtype)
            place, align = places[vec.lanes], 4 * vec.lanes
            one = Vec(builder, 1, vec.lanes)
            highest = builder.load(place, typ=vec.floats, align=align)
            for value in values:
                (highest,) = one.max(value, highest)
            builder.store(highest, place, align=align)

        loops(builder, row.count.value, 4, watch, lanes)
        small = None
        for width, place in places.items():
            vec = Vec(builder, 1, width)
            highest = builder.load(place, typ=vec.floats, align=4 * width)
            below = _all(vec, vec.compare("<=", highest, vec.const(88.0))[0])
            small = below if small is None else builder.and_(small, below)
        filled.set(code.number(small))
        with code.when(filled.get()):
            code.clear(row.out, row.count * size)
    return filled.get()


class _Formula:
    """One piece in one mode; constants are laid out here, outside the loop over pieces."""

    def __init__(self, code: Code, dtype: str, mode: int, terms: Terms, folded: bool) -> None:
        self.code, self.dtype, self.mode, self.terms = code, dtype, mode, terms
        self.folded = folded and dtype == "f32"
        builder = code.builder
        self.streams, self.lanes = streams(dtype), code.lanes
        self.opaque = Opaque(builder, code.lanes)
        if dtype == "f32":
            multiplier = terms.factor.value if folded else None
            self.short = numerics.Exp(builder, multiplier, "negative", lanes=code.lanes)
            self.full = numerics.Exp(builder, multiplier, "full", lanes=code.lanes)
            self.seen = stack(builder, ir.VectorType(I32, self.lanes), 1)

    def piece(self, x: Number, weight: Number, out: Number, count: Number) -> None:
        """`count` elements, a multiple of the block."""
        code = self.code
        vec = Vec(code.builder, self.streams, self.lanes)
        places = x.pointer, weight.pointer, out.pointer

        def loop(vec: Vec, body: Callable[..., None]) -> None:
            step = vec.streams * vec.lanes
            add_loop(
                code.builder, i64(0), count.value, step, lambda index: body(vec, index, *places)
            )

        if self.dtype != "f32":
            loop(vec, self._anything)
            return
        few = Vec(code.builder, _part(self.streams), self.lanes)
        if not self.folded:
            loop(few, self._anything)
            return
        # The usual code runs first and is judged after; in place it must be judged before.
        self._forget()
        with code.when(x.equals(out), likely=False):
            loop(vec, self._look)
        usual = code.variable(self._all_usual())
        with code.when(usual.get()):
            loop(vec, self._usual)
            usual.set(self._all_usual())
        with code.when(~usual.get(), likely=False):
            loop(few, self._anything)

    def _usual(self, vec: Vec, index: Value, x: Value, weight: Value, out: Value) -> None:
        values = numerics.load(vec, x, index, "f32")
        self._note(vec, values)
        self._store(vec, self._sum(vec, self.short.clamped(vec, values), weight, index), out, index)

    def _look(self, vec: Vec, index: Value, x: Value, weight: Value, out: Value) -> None:
        self._note(vec, numerics.load(vec, x, index, "f32"))

    def _forget(self) -> None:
        lowest = repeat(I32, -(1 << 31), self.lanes)
        self.code.builder.store(lowest, self.seen, align=4 * self.lanes)

    def _note(self, vec: Vec, values: Values) -> None:
        """Keep the largest bits. In memory: one more live register would spill."""
        builder = vec.builder
        ints = vec.as_ints(values)
        ints.append(volatile_load(builder, self.seen, vec.ints, 4 * vec.lanes))
        while len(ints) > 1:
            pairs = zip(ints[::2], ints[1::2], strict=False)
            ints = [_intrinsic(vec, "smax", *pair) for pair in pairs] + ints[len(ints) // 2 * 2 :]
        builder.store(ints[0], self.seen, align=4 * vec.lanes)

    def _all_usual(self) -> Number:
        builder = self.code.builder
        vec = Vec(builder, 1, self.lanes)
        seen = builder.load(self.seen, typ=vec.ints, align=4 * self.lanes)
        highest = _intrinsic(vec, "vector.reduce.smax", seen)
        return self.code.number(builder.icmp_signed("<=", highest, ir.Constant(I32, LOWEST_BITS)))

    def _anything(self, vec: Vec, index: Value, x: Value, weight: Value, out: Value) -> None:
        self._store(vec, self._sum(vec, self._exp(vec, x, index), weight, index), out, index)

    def _exp(self, vec: Vec, x: Value, index: Value) -> Values:
        """exp everywhere, times the factor where that is folded in."""
        if self.dtype != "f32":
            return numerics.lookup(vec, x, index, self.terms.table.pointer)
        values = numerics.load(vec, x, index, self.dtype)
        result = self.full(vec, values)
        if self.folded:  # a small factor must not make exp's infinity finite
            factor = vec.splat(self.terms.factor.value)
            infinite = vec.builder.fmul(factor, vec.const(float("inf")))
            result = vec.select(vec.compare(">", values, vec.const(HIGHEST)), infinite, result)
        return result

    def _sum(self, vec: Vec, exponential: Values, weight: Value, index: Value) -> Values:
        factor, addend = vec.splat(self.terms.factor.value), vec.splat(self.terms.addend.value)
        if self.mode == CONSTANT:
            if self.folded:
                return vec.add(exponential, addend)
            return vec.fma(exponential, factor, addend)
        product = exponential if self.folded else vec.mul(exponential, factor)
        if self.mode == PLAIN:
            return product
        return vec.fma(numerics.load(vec, weight, index, "f32"), addend, product)

    def _store(self, vec: Vec, values: Values, out: Value, index: Value) -> None:
        numerics.store(vec, values, out, index, self.dtype, self.opaque)


def _part(count: int) -> int:
    """Streams where the exponential's full range needs more registers."""
    return count // 2 if count % 2 == 0 else 1


def _intrinsic(vec: Vec, name: str, *values: Value) -> Value:
    """An LLVM intrinsic over integer vectors."""
    builder, full = vec.builder, f"llvm.{name}.v{vec.lanes}i32"
    function = builder.module.globals.get(full)
    if function is None:
        result = I32 if name.startswith("vector.reduce") else vec.ints
        signature = ir.FunctionType(result, [value.type for value in values])
        function = ir.Function(builder.module, signature, full)
    return builder.call(function, values)


def _all(vec: Vec, condition: Value) -> Value:
    """Whether every lane holds."""
    bits = vec.builder.sext(condition, vec.ints)
    together = _intrinsic(vec, "vector.reduce.and", bits)
    return vec.builder.icmp_signed("!=", together, ir.Constant(I32, 0))
