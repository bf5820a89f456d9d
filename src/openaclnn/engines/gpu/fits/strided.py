"""How launches over few elements of any strides follow from these and from sizes, in machine code: what `sizes/tiles.py`
says in Python.
"""

from __future__ import annotations

from collections.abc import Sequence

from openaclnn.engines.gpu.fits.flat import blocks, word
from openaclnn.engines.gpu.launchers.code import ADDRESSES, Fit
from openaclnn.engines.gpu.launching.native_code import MAX_POINTERS
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT
from openaclnn.engines.machine.builtins import integer_of
from openaclnn.engines.machine.code import Array
from openaclnn.engines.machine.objects import TUPLE_ITEMS, TUPLE_LENGTH
from openaclnn.engines.machine.values import Value

__all__ = ["StridedFit", "TileFit", "along"]


class StridedFit(Fit):
    """Few elements of any strides: `depth` axes, the missing ones before the others, of one element."""

    depth = 0

    def take_strides(self, given: Array, axes: Value) -> None:
        """Every operand's strides along the axes, as 32 bits."""
        code, count = self.code, self.control.read(ADDRESSES)
        self.expect((axes > 0) & (axes <= self.depth))
        self.expect(given.read(TUPLE_LENGTH).equals(count * axes))
        self.table = code.frame("i64", MAX_POINTERS * self.depth)
        with self.when_fit():
            missing = code.integer(self.depth) - axes
            with code.loop(0, count) as operand:
                own = self.steps(operand)
                for axis in range(self.depth):
                    own.write(axis, 0)
                with code.loop(0, axes) as place:
                    stride = integer_of(code, given.read(operand * axes + place + TUPLE_ITEMS))
                    self.expect(stride.size() < INT32_LIMIT)
                    own.write(missing + place, stride)

    def steps(self, operand: Value | int) -> Array:
        """An operand's strides along all axes."""
        return self.table.at(operand * self.depth)

    def sizes(self, shape: Array, axes: Value, limit: Value) -> list[Value]:
        """Of all axes; up to so many elements."""
        code, found = self.code, self.code.frame("i64", self.depth)
        for axis in range(self.depth):
            found.write(axis, 1)
        with code.loop(0, axes) as place:
            found.write(code.integer(self.depth) - axes + place, self.size(shape, place))
        several = [found.read(axis) for axis in range(self.depth)]
        total = code.integer(1)
        for size in several:
            self.expect((size > 0) & (size <= limit))
            total = (total * size).least(limit + 1)
        self.expect(total <= limit)
        return several


def along(axes: Sequence[str], **operands: Array) -> dict[str, Value]:
    """Operands' strides along axes, under the names that kernels have for them."""
    return {
        f"{name}_{axis}": steps.read(place)
        for name, steps in operands.items()
        for place, axis in enumerate(axes)
    }


class TileFit(StridedFit):
    """Elementwise kernels over tiles."""

    name, depth, more = "tiles", 5, ("strides",)
    # Facts: which number is one over the count, or -1; elements; a tile's sides.
    SHARE_AT, FEW, TALL, WIDE = range(4)

    def fit(self, shape: Array, axes: Value) -> None:
        code, main = self.code, self.main
        sizes = self.sizes(shape, axes, self.fact(self.FEW))
        first, second, third, rows, columns = sizes
        row_tiles, column_tiles = (
            blocks(rows, self.fact(self.TALL)),
            blocks(columns, self.fact(self.WIDE)),
        )
        main.begin()
        main.programs.set(first * second * third * row_tiles * column_tiles)
        ahead = (rows, columns, row_tiles, column_tiles, second, third)
        for place, number in enumerate(ahead):
            main.numbers.write(place, number)
        with code.loop(0, self.control.read(ADDRESSES) * self.depth) as index:
            main.numbers.write(index + len(ahead), self.table.read(index))
        share = self.fact(self.SHARE_AT)
        with code.when(share >= 0):
            total = (first * second * third * rows * columns).to("f64")
            main.numbers.write(share, word((code.double(1.0) / total).to("f32")))
