"""Few classes, or outputs that leave the caches: every plane is written once, each value or zero by comparing its class with the targets.

Two planes a pass over 16,384 positions: two streams of stores run at the memory's pace, four do not.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.classes.likelihood.writer import Writer
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Shape, Value, Variable, intrinsic

PLANES = 2
SEGMENT = 2048  # positions between two looks at whether a target was no class
STREAMS = 4


class Plane(NamedTuple):
    """One class of a stretch of positions."""

    wanted: Value  # the key of its positions
    factor: Value  # its negative weight, times the gradient where there is but one
    out: Array


class Select(Writer):
    """For positions that lie side by side in all operands."""

    def __init__(self, code: Code, *operands: Any) -> None:
        super().__init__(code, *operands)
        # Results are chosen as they lie in memory: 16-bit elements twice as many at a time.
        self.width = code.lanes * 4 // self.size

    def clear(self, start: Value, stop: Value) -> None:
        """Nothing: every class of every position is written."""

    def run(self, addresses: list[Value], count: Value) -> None:
        """A stretch of positions, all planes of it."""
        code = self.code
        pairs = self.classes - self.classes.unsigned_rem(PLANES)
        with code.loop(0, pairs, PLANES) as plane:
            self._planes(addresses, count, plane, PLANES)
        with code.when(pairs != self.classes):
            self._planes(addresses, count, pairs, 1)

    def _planes(self, addresses: list[Value], count: Value, first: Value, planes: int) -> None:
        code = self.code
        labels = [first + index for index in range(planes)]
        factors = []
        for label in labels:
            weight = -self.weight(label)
            factors.append(weight if self.gradient is None else self.gradient * weight)
        # A plane whose class is ignored takes a number that no key has.
        none = self.classes + 1
        wanted = [(label == self.targets.ignored).choose(none, label) for label in labels]
        with code.loop(0, count, SEGMENT) as start:
            sizes = self.targets.size, self.size, self.size
            targets, gradients, out = (
                address + start * size for address, size in zip(addresses, sizes, strict=True)
            )
            outs = [code.array(out + label * self.class_step, self.bits) for label in labels]
            length = (count - start).least(SEGMENT)
            highest = code.variable(0)
            self._segment(
                code.array(targets, self.targets.kind), code.array(gradients, self.dtype),
                [Plane(*plane) for plane in zip(wanted, factors, outs, strict=True)], length,
                highest,
            )  # fmt: skip
            beyond = highest.get() >= self.classes
            with code.when(beyond & (first == 0), likely=False):
                self._look_for_strays(targets, length)

    def _segment(
        self, targets: Array, gradients: Array, planes: list[Plane], count: Value, highest: Variable
    ) -> None:
        index = self.code.integer(0)
        for shape in Shape(STREAMS, self.width), Shape(1, self.width), Shape(1, 1):
            body = partial(self._positions, shape, targets, gradients, planes, highest)
            index = self.code.strides(index, count, shape.elements, body)

    def _positions(
        self, shape: Shape, targets: Array, gradients: Array, planes: list[Plane],
        highest: Variable, index: Value,
    ) -> None:  # fmt: skip
        """The results of neighbouring positions in all planes."""
        # Stream by stream: 64-bit targets and masks of all streams at once would fill the registers.
        starts = range(0, shape.elements, shape.lanes)
        wide = self.code.joined([self._keys(targets, index + at, shape.lanes) for at in starts])
        keys = wide.to(self.bits)
        self._note(keys, highest)
        own = self._gradients(gradients, index, shape)
        for plane, values in zip(planes, self._values(own, wide, planes, shape), strict=True):
            wanted = plane.wanted.to(self.bits)
            for at, (key, value) in zip(starts, keys.streams_with(values), strict=True):
                plane.out.store((key == wanted).choose(value, 0), index + at)

    def _keys(self, targets: Array, index: Value, lanes: int) -> Value:
        """Targets as small integers: every one that is no class becomes the number of classes."""
        keys = targets.load(index, Shape(1, lanes))
        if targets.kind == "i64":  # saturate to 32 bits, which NEON does while it narrows
            keys = intrinsic("umin", keys, 0xFFFFFFFF).to("i32")
        elif targets.kind == "u8":
            keys = keys.unsigned("i32")
        return intrinsic("umin", keys, self.classes.to("i32"))

    def _note(self, keys: Value, highest: Variable) -> None:
        largest, *others = keys.streams()
        for key in others:
            largest = intrinsic("umax", largest, key)
        value = largest.reduce("umax").unsigned("i64")
        highest.set((value > highest.get()).choose(value, highest.get()))

    def _gradients(self, gradients: Array, index: Value, shape: Shape) -> Value | None:
        """The positions' own gradients as FLOAT vectors, if they have any."""
        if self.gradient is not None:
            return None
        lanes = min(shape.lanes, self.code.lanes)
        return numerics.load(gradients, index, Shape(shape.elements // lanes, lanes))

    def _values(
        self, own: Value | None, keys: Value, planes: list[Plane], shape: Shape
    ) -> list[Value]:
        """-(gradient * weight) for each plane, rounded, as integers of the element's size."""
        factors = [plane.factor for plane in planes]
        if own is None:
            return [self._rounded(factor.splat(1)).lane(0) for factor in factors]
        if self.dtype == "f32" or len(planes) == 1:
            return [self._joined(own * factor, shape) for factor in factors]
        # Rounding costs more than choosing the weight first: one value a position serves both planes.
        first = planes[0].wanted.to("i32")
        weights = own.join(
            (key == first).choose(*factors) for key in keys.split(own.lanes).streams()
        )
        return [self._joined(own * weights, shape)] * len(planes)

    def _joined(self, values: Value, shape: Shape) -> Value:
        bits = self._rounded(values)
        return bits if bits.lanes == shape.lanes else bits.joined()

    def _rounded(self, values: Value) -> Value:
        return numerics.narrow(values, self.dtype, self.opaque).bits_as(self.bits)

    def _look_for_strays(self, targets: Value, count: Value) -> None:
        code = self.code
        with code.loop(0, count) as index:
            target = self.targets.at(targets + index * self.targets.size)
            with code.when(target.stray, likely=False):
                self.parameters.report_stray()
