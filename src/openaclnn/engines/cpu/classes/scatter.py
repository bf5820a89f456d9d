"""One value for each position, at its target's class: clear the output, then scatter.

Both halves matter (2 threads, (8, 21, 512, 512) FLOAT): clearing takes 1.7 ms, random targets 5 ms more,
which is the memory's time for reading and writing back the lines they touch; prefetching them gains
nothing. Targets that are equal for 8 neighbours, as in a segmentation mask, take 0.9 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from openaclnn.engines.cpu import numerics
from openaclnn.engines.cpu.classes.code import SIZE, Code, Number
from openaclnn.engines.cpu.classes.parameters import Parameters
from openaclnn.engines.cpu.classes.totals import GROUP, all_equal, runs
from openaclnn.engines.cpu.classes.writer import Writer
from openaclnn.engines.cpu.simd import Vec
from openaclnn.engines.machine.words import i64

LEAVE, SPAN, STRIDED = range(3)
"""How a piece of work clears its output: not at all, as one span of memory, or as its strides say."""


def emit_clear(slots: dict[str, int]) -> Callable[[Any, Any], None]:
    """The kernel that clears an output without gaps, `span` bytes a piece."""

    def emit(builder: Any, arguments: Any) -> None:
        code = Code(builder)
        parameters = Parameters(code, arguments[0], slots)
        out, span, size = parameters.address("out"), parameters["span"], parameters["bytes"]
        with code.loop(code.number(arguments[1]), code.number(arguments[2])) as piece:
            start = piece * span
            code.clear(out + start, (size - start).least(span))

    return emit


class Scatter(Writer):
    def __init__(self, code: Code, *operands: Any) -> None:
        super().__init__(code, *operands)
        self.steps = [self.parameters[f"{name}.step2"] for name in ("target", "gradient", "out")]

    def clear(self, start: Number, stop: Number) -> None:
        code, size = self.code, SIZE[self.dtype]
        way = self.parameters["clear"]
        with code.when(way.equals(SPAN)):
            where = self.parameters.position("out", start)
            code.clear(where, (stop - start) * self.classes * size)
        with code.when(way.equals(STRIDED)):
            runs(code, self.parameters, start, stop, ("out",), self._clear_run)

    def _clear_run(self, addresses: list[Number], count: Number) -> None:
        """Spans along the positions or along the classes, or every element for itself."""
        code, size, zero = self.code, SIZE[self.dtype], self.code.integer(0)
        first, step = addresses[0], self.steps[2]
        along, across = step.equals(size), self.class_step.equals(size)
        with code.when(along), code.loop(zero, self.classes) as index:
            code.clear(first + index * self.class_step, count * size)
        with code.when(~along & across), code.loop(zero, count) as index:
            code.clear(first + index * step, self.classes * size)
        with code.when(~along & ~across):
            blank = ir.Constant(ir.IntType(8 * size), 0)
            with code.loop(zero, count) as index, code.loop(zero, self.classes) as label:
                place = first + index * step + label * self.class_step
                code.builder.store(blank, place.pointer, align=size)

    def run(self, addresses: list[Number], count: Number) -> None:
        """A stretch of positions: groups of neighbours where everything lies side by side, then one by one."""
        code, done = self.code, self.code.variable(self.code.integer(0))
        sizes = SIZE[self.target], SIZE[self.dtype]
        side_by_side = self.steps[0].equals(sizes[0]) & self.steps[2].equals(sizes[1])
        if self.gradient is None:
            side_by_side = side_by_side & self.steps[1].equals(sizes[1])
        with code.when(side_by_side):
            whole = count - count.rest(GROUP)
            with code.loop(done.get(), whole, GROUP) as index:
                self._group(addresses, index)
            done.set(whole)
        with code.loop(done.get(), count) as index:
            self._one(addresses, index, self.steps)

    def _one(self, addresses: list[Number], index: Number, steps: list[Any]) -> None:
        code = self.code
        target, gradient, out = (
            address + index * step for address, step in zip(addresses, steps, strict=True)
        )
        label = code.load(target, self.target)
        heeded = label.differs(self.ignored)
        inside = label.within(self.classes)
        with code.when(heeded & inside, likely=True):
            own = code.load(gradient, self.dtype) if self.gradient is None else self.gradient
            weight = code.load(self.weights + label * self.weight_step, self.dtype)
            code.store(-(own * weight), out + label * self.class_step, self.dtype)
        with code.when(heeded & ~inside, likely=False):
            self.parameters.report_stray()

    def _group(self, addresses: list[Number], index: Number) -> None:
        code, builder = self.code, self.code.builder
        sizes = [SIZE[self.target], SIZE[self.dtype], SIZE[self.dtype]]
        target, gradient, out = (
            address + index * size for address, size in zip(addresses, sizes, strict=True)
        )
        label = code.load(target, self.target)
        equal = all_equal(code, target, self.target, GROUP)
        counted = label.within(self.classes) & label.differs(self.ignored)
        with builder.if_else((equal & counted).value) as (together, apiece):
            with together:
                lanes = min(code.lanes, GROUP)
                vec = Vec(builder, GROUP // lanes, lanes)
                weight = -code.load(self.weights + label * self.weight_step, self.dtype)
                if self.gradient is None:
                    values = numerics.load(vec, gradient.pointer, i64(0), self.dtype)
                    values = vec.mul(values, vec.splat(weight.value))
                else:
                    values = [vec.splat((self.gradient * weight).value)] * vec.streams
                place = (out + label * self.class_step).pointer
                numerics.store(vec, values, place, i64(0), self.dtype, self.opaque)
            with apiece:
                for offset in range(GROUP):
                    self._one(addresses, index + offset, sizes)
