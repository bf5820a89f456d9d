"""Rows as planes and back: squares of as many rows as classes are turned in registers, where single elements would take
longer than what is computed of them (a loss of 100 classes FLOAT16: 280 ns a row, turned 85).
"""

from __future__ import annotations

from collections.abc import Callable

from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.layouts.copies import transposed
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Shape, Value

__all__ = ["Turned"]


class Turned:
    """Between rows in memory, whose classes lie side by side, and planes of so many FLOATs one after another."""

    def __init__(self, code: Code, dtype: str, planes: Array, width: int) -> None:
        self.code, self.dtype, self.planes, self.width = code, dtype, planes, width

    def read(self, place: Value, step: Value, classes: Value) -> None:
        """Rows `step` bytes apart, from a place on; at least one vector of classes."""

        def square(row: Value, label: Value) -> None:
            lines = [self._line(place, step, row + lane, label) for lane in range(self.code.lanes)]
            rows = [numerics.load(line, self.code.integer(0), self._shape) for line in lines]
            for lane, plane in enumerate(transposed(rows)):
                self.planes.store(plane, self._at(row, label + lane))

        self._squares(classes, square)

    def write(self, place: Value, step: Value, classes: Value, opaque: numerics.Opaque) -> None:
        """The planes as rows."""

        def square(row: Value, label: Value) -> None:
            planes = [
                self.planes.load(self._at(row, label + lane), self._shape)
                for lane in range(self.code.lanes)
            ]
            for lane, values in enumerate(transposed(planes)):
                line = self._line(place, step, row + lane, label)
                numerics.store(values, line, self.code.integer(0), opaque, any_nan=True)

        self._squares(classes, square)

    @property
    def _shape(self) -> Shape:
        return Shape(1, self.code.lanes)

    def _at(self, row: Value, label: Value) -> Value:
        return label * self.width + row

    def _line(self, place: Value, step: Value, row: Value, label: Value) -> Array:
        return self.code.array(place + row * step + label * SIZE[self.dtype], self.dtype)

    def _squares(self, classes: Value, body: Callable[[Value, Value], None]) -> None:
        """The last one ends with the classes, and begins among those of the one before."""
        code, lanes = self.code, self.code.lanes
        last = classes - lanes
        rows = code.integer(self.width)
        with code.loop(0, rows, lanes) as row, code.loop(0, classes, lanes) as start:
            body(row, start.least(last))
