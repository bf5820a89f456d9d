"""One value for each position, at its target's class: clear the output, then scatter.

Both halves matter (2 threads, (8, 21, 512, 512) FLOAT): clearing takes 1.7 ms, random targets 5 ms more,
which is the memory's time for reading and writing back the lines they touch; prefetching them gains
nothing. Targets that are equal for 8 neighbours, as in a segmentation mask, take 0.9 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.classes.likelihood.writer import Writer
from openaclnn.engines.cpu.classes.shared.parameters import Parameters
from openaclnn.engines.cpu.classes.shared.targets import GROUP
from openaclnn.engines.cpu.classes.shared.totals import runs
from openaclnn.engines.machine.cache import Emit
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Shape, Value

LEAVE, SPAN, STRIDED = range(3)
"""How a piece of work clears its output: not at all, as one span of memory, or as its strides say."""


def emit_clear(slots: dict[str, int]) -> Emit:
    """The kernel that clears an output without gaps, `span` bytes a piece."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, slots)
        out, span, size = parameters.address("out"), parameters["span"], parameters["bytes"]
        with code.loop(first, last) as piece:
            start = piece * span
            code.clear(out + start, (size - start).least(span))

    return emit


class Scatter(Writer):
    def __init__(self, code: Code, *operands: Any) -> None:
        super().__init__(code, *operands)
        self.steps = [self.parameters[f"{name}.step2"] for name in ("target", "gradient", "out")]
        self.sizes = [self.targets.size, self.size, self.size]

    def clear(self, start: Value, stop: Value) -> None:
        code, way = self.code, self.parameters["clear"]
        with code.when(way == SPAN):
            where = self.parameters.position("out", start)
            code.clear(where, (stop - start) * self.classes * self.size)
        with code.when(way == STRIDED):
            runs(code, self.parameters, start, stop, ("out",), self._clear_run)

    def _clear_run(self, addresses: list[Value], count: Value) -> None:
        """Spans along the positions or along the classes, or every element for itself."""
        code, size = self.code, self.size
        first, step = addresses[0], self.steps[2]
        along, across = step == size, self.class_step == size
        with code.when(along), code.loop(0, self.classes) as label:
            code.clear(first + label * self.class_step, count * size)
        with code.when(~along & across), code.loop(0, count) as index:
            code.clear(first + index * step, self.classes * size)
        with (
            code.when(~along & ~across),
            code.loop(0, count) as index,
            code.loop(0, self.classes) as label,
        ):
            place = first + index * step + label * self.class_step
            code.array(place, self.bits).write(0, 0)

    def run(self, addresses: list[Value], count: Value) -> None:
        """A stretch of positions: groups of neighbours where everything lies side by side, then one by one."""
        code, done = self.code, self.code.variable(0)
        target, gradient, out = (
            step == size for step, size in zip(self.steps, self.sizes, strict=True)
        )
        side_by_side = target & out
        if self.gradient is None:
            side_by_side = side_by_side & gradient
        with code.when(side_by_side):
            whole = count - count.unsigned_rem(GROUP)
            with code.loop(done.get(), whole, GROUP) as index:
                self._group(addresses, index)
            done.set(whole)
        with code.loop(done.get(), count) as index:
            self._one(addresses, index, self.steps)

    def _one(self, addresses: list[Value], index: Value, steps: list[Any]) -> None:
        code = self.code
        place, gradient, out = (
            address + index * step for address, step in zip(addresses, steps, strict=True)
        )
        target = self.targets.at(place)
        with code.when(target.counted, likely=True):
            own = code.load(gradient, self.dtype) if self.gradient is None else self.gradient
            value = -(own * self.weight(target.label))
            code.store(value, out + target.label * self.class_step, self.dtype)
        with code.when(target.stray, likely=False):
            self.parameters.report_stray()

    def _group(self, addresses: list[Value], index: Value) -> None:
        code = self.code
        place, gradient, out = (
            address + index * size for address, size in zip(addresses, self.sizes, strict=True)
        )
        target = self.targets.at(place)
        with code.either(self.targets.alike(place) & target.counted) as (together, apiece):
            with together:
                label = target.label
                lanes, zero = min(code.lanes, GROUP), code.integer(0)
                shape = Shape(GROUP // lanes, lanes)
                weight = -self.weight(label)
                if self.gradient is None:
                    values = numerics.load(code.array(gradient, self.dtype), zero, shape) * weight
                else:
                    values = (self.gradient * weight).fill(shape)
                results = code.array(out + label * self.class_step, self.dtype)
                numerics.store(values, results, zero, self.opaque)
            with apiece:
                for offset in range(GROUP):
                    self._one(addresses, index + offset, self.sizes)
