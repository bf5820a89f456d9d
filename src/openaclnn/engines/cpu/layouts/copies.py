"""Copies between a strided tile of a tensor and a dense buffer, for `driver`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from openaclnn.engines.machine import cache
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.kinds import signature
from openaclnn.engines.machine.values import Shape, Value

__all__ = ["copier", "transposed"]

COPY = signature(None, *["i64"] * 6)  # buffer, tensor, rows, columns, two steps in bytes


@functools.cache
def copier(item: int, writes: bool) -> int:
    """The compiled copy between a dense buffer and a strided tile, of elements of two or four bytes."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        copy = _Copy(code, arguments, item, writes)
        if writes:  # the output is walked in memory order already
            copy.by_rows()
        else:
            copy.by_the_best_way()

    return cache.compiled(f"tiles.{'unpack' if writes else 'pack'}{item}", emit, COPY)


class _Copy:
    """The copy being written."""

    def __init__(self, code: Code, arguments: Sequence[Value], item: int, writes: bool) -> None:
        self.code, self.item, self.writes = code, item, writes
        self.buffer, self.tensor, self.rows, self.columns, self.row_step, self.column_step = (
            arguments
        )
        self.kind = {2: "i16", 4: "i32"}[item]
        self.wide = 16 // item  # a square of this many vectors is turned round in registers
        self.zero = code.integer(0)

    def buffered(self, row: Value, column: Value) -> Array:
        index = row * self.columns + column
        return self.code.array(self.buffer + index * self.item, self.kind)

    def strided(self, row: Value, column: Value) -> Array:
        distance = row * self.row_step + column * self.column_step
        return self.code.array(self.tensor + distance, self.kind)

    def vector(self, row: Value, column: Value) -> Value:
        """Elements side by side in the tensor's memory, from one on."""
        return self.strided(row, column).load(self.zero, Shape(1, self.wide))

    def put(self, vector: Value, row: Value, column: Value) -> None:
        self.buffered(row, column).store(vector, self.zero)

    def one(self, row: Value, column: Value) -> None:
        source, target = self.strided(row, column), self.buffered(row, column)
        if self.writes:
            source, target = target, source
        target.write(0, source.read(0))

    def by_the_best_way(self) -> None:
        with self.code.first_of() as done:
            for condition, way in (
                (self.row_step == self.item, self.turned),
                (self.column_step == -self.item, self.backwards),
                (self.column_step == 2 * self.item, self.halved),
            ):
                with self.code.when(condition):
                    way()
                    done()
            self.by_rows()

    def by_rows(self) -> None:
        with self.code.loop(0, self.rows) as row, self.code.loop(0, self.columns) as column:
            self.one(row, column)

    def turned(self) -> None:
        """Whole cache lines of the tensor, one after the other, into columns of the buffer."""
        code = self.code

        def square(row: Value, column: Value) -> None:
            lines = [self.vector(row, column + k) for k in range(self.wide)]
            for k, line in enumerate(transposed(lines)):
                self.put(line, row + k, column)

        def strip(column: Value) -> None:
            rest = code.strides(self.zero, self.rows, self.wide, lambda row: square(row, column))
            edge(rest, column, self.wide)

        def edge(start: Value, column: Value, width: int) -> None:
            with code.loop(start, self.rows) as row:
                for k in range(width):
                    self.one(row, column + k)

        rest = code.strides(self.zero, self.columns, self.wide, strip)
        code.strides(rest, self.columns, 1, lambda column: edge(self.zero, column, 1))

    def backwards(self) -> None:
        """Rows that run downwards through memory: vectors turned end for end."""
        flipped = range(self.wide - 1, -1, -1)

        def some(row: Value, column: Value) -> None:
            last = column + (self.wide - 1)
            self.put(self.vector(row, last).pick(flipped), row, column)

        with self.code.loop(0, self.rows) as row:
            self._line(row, self.columns, some)

    def halved(self) -> None:
        """Every second element: the even lanes of two vectors. 17 ms instead of 27 for L1's 2^24 FLOAT elements."""
        even = range(0, 2 * self.wide, 2)

        def some(row: Value, column: Value) -> None:
            low, high = self.vector(row, column), self.vector(row, column + self.wide // 2)
            self.put(low.interleave(high, even), row, column)

        with self.code.loop(0, self.rows) as row:
            # A vector reads one element behind its last; the row's own last is therefore left to `one`.
            self._line(row, self.columns - 1, some)

    def _line(self, row: Value, inside: Value, some: Callable[[Value, Value], None]) -> None:
        """A row: vectors as long as they lie inside, then elements."""
        code = self.code
        rest = code.strides(self.zero, inside, self.wide, lambda column: some(row, column))
        code.strides(rest, self.columns, 1, lambda column: self.one(row, column))


def transposed(lines: list[Value]) -> list[Value]:
    """A square turned round by interleaving its halves log2(wide) times."""
    wide = len(lines)
    half = wide // 2
    low = [lane for k in range(half) for lane in (k, wide + k)]
    high = [lane + half for lane in low]
    size = wide
    while size > 1:
        lines = [
            lines[k].interleave(lines[k + half], order)
            for k in range(half)
            for order in (low, high)
        ]
        size //= 2
    return lines
