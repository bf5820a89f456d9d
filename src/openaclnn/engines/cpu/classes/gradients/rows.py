"""One row of class probabilities: out = factor * exp(x) + constant, or + slope * weight.

Whole blocks of vectors are computed where they lie. What is left at a row's end passes through buffers to
the same code, so an element's bits never depend on its place.
"""

from __future__ import annotations

import functools
import operator

from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.classes.gradients.formula import PIECE, WEIGHTS, RowFormula, Terms
from openaclnn.engines.cpu.classes.positions.stretches import Stretch
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Shape, Value, maximum

__all__ = ["Buffers", "emit_row", "emit_zero"]


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
