"""The machine code that brings tiles to a flat kernel; `tiles` chooses them and fills the driver's block."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from openaclnn.engines.cpu.launching.control import FIRST_ARGUMENT, MAX_ARGUMENTS, STATUS
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.host import LINE
from openaclnn.engines.machine.values import Value

__all__ = ["driver"]

BUFFERED = 1 << 16  # bytes of a tile's copies: four operands of 4096 FLOATs fit into the cache
SCRATCH = BUFFERED + MAX_ARGUMENTS * LINE  # each operand's copy begins a line

# How an operand lies along a tile's rows: one value, dense, or in neither way and so copied.
SINGLE, DENSE, PACKED = range(3)

# The driver's block: these slots, the flat kernel's constants, then for each operand OPERAND slots, then
# the sizes of the remaining axes, then each operand's strides (in bytes) along them.
FLAT, OPERANDS, CONSTANTS, AXES, ROWS, COLUMNS = range(6)
TILE_ROWS, TILE_COLUMNS, ROW_TILES, COLUMN_TILES, MERGED = range(6, 11)
FIRST_CONSTANT = 12
ITEM, MODE, ROW_STEP, COLUMN_STEP, OFFSET, COPY, BUFFER, OPERAND = 0, 1, 2, 3, 4, 5, 6, 8


@functools.cache
def driver() -> int:
    """The kernel that runs tiles; its arguments are its block, then the operands."""
    return cache.compiled("tiles.driver", _emit)


def _emit(code: Code, arguments: Sequence[Value]) -> None:
    given, start, stop = arguments
    one = _Driver(code, code.slots(given).at(FIRST_ARGUMENT))
    with code.loop(start, stop) as number:
        one.tile(number)


class _Driver:
    """The driver being written: for each tile it packs, calls the flat kernel on the rows, unpacks."""

    def __init__(self, code: Code, given: Array) -> None:
        self.code = code
        self.block = code.slots(given.read(0))
        self.given = given.at(1)  # the tensors' addresses
        self.flat, self.operands, constants, self.axes = (
            self.block.read(index) for index in (FLAT, OPERANDS, CONSTANTS, AXES)
        )
        self.output = self.operands - 1
        values = self.block.at(FIRST_CONSTANT)
        self.records = values.at(constants)
        self.sizes = self.records.at(self.operands * OPERAND)
        self.steps = self.sizes.at(self.axes)
        self.bases, self.moves = (code.frame("i64", MAX_ARGUMENTS) for _ in range(2))
        self.scratch = code.buffer("u8", SCRATCH)
        self.arguments = code.frame("i64", FIRST_ARGUMENT + MAX_ARGUMENTS)
        self.arguments.write(STATUS, 0)
        first = self.arguments.at(FIRST_ARGUMENT)
        with code.loop(0, constants) as index:
            first.write(index, values.read(index))
        self.taken = first.at(constants)  # what the flat kernel takes for the tensors' addresses

    def record(self, operand: Value) -> Array:
        return self.records.at(operand * OPERAND)

    def tile(self, number: Value) -> None:
        number, column = _divided(number, self.block.read(COLUMN_TILES))
        number, row = _divided(number, self.block.read(ROW_TILES))
        row, rows = self.extent(row, TILE_ROWS, ROWS)
        column, columns = self.extent(column, TILE_COLUMNS, COLUMNS)
        self.locate(number, row, column)
        self.pack(rows, columns)
        self.call(rows, columns)
        with self.code.when(self.record(self.output).read(MODE) == PACKED):
            self.copy(self.output, rows, columns)

    def extent(self, index: Value, step: int, size: int) -> tuple[Value, Value]:
        """A tile's start along an axis, and how far it reaches."""
        width = self.block.read(step)
        start = index * width
        return start, (self.block.read(size) - start).least(width)

    def locate(self, number: Value, row: Value, column: Value) -> None:
        """Where the tile begins in each tensor; the number counts through the axes that tiles do not extend along."""
        code, bases = self.code, self.bases
        with code.loop(0, self.operands) as operand:
            record = self.record(operand)
            start = self.given.read(operand) + record.read(OFFSET)
            start = start + row * record.read(ROW_STEP) + column * record.read(COLUMN_STEP)
            bases.write(operand, start)
        left = code.variable(number)
        with code.loop(0, self.axes) as behind:
            axis = self.axes - 1 - behind
            rest, index = _divided(left.get(), self.sizes.read(axis))
            left.set(rest)
            with code.loop(0, self.operands) as operand:
                step = self.steps.read(operand * self.axes + axis)
                bases.write(operand, bases.read(operand) + index * step)

    def pack(self, rows: Value, columns: Value) -> None:
        """Tell the flat kernel where to find each operand: where it lies, or in a buffer, filled if it is read."""
        with self.code.loop(0, self.operands) as operand:
            record = self.record(operand)
            packed = record.read(MODE) == PACKED
            start, pitch = self.scratch + record.read(BUFFER), columns * record.read(ITEM)
            self.taken.write(operand, packed.choose(start, self.bases.read(operand)))
            self.moves.write(operand, packed.choose(pitch, record.read(ROW_STEP)))
            with self.code.when(packed & (operand != self.output)):
                self.copy(operand, rows, columns)

    def copy(self, operand: Value, rows: Value, columns: Value) -> None:
        """Between an operand's buffer and its tensor, in the direction that its copier has."""
        record = self.record(operand)
        buffer, steps = self.scratch + record.read(BUFFER), (ROW_STEP, COLUMN_STEP)
        tile = buffer, self.bases.read(operand), rows, columns
        record.call(COPY, None, *tile, *(record.read(step) for step in steps))

    def call(self, rows: Value, columns: Value) -> None:
        """The flat kernel, row by row, or once where the rows follow each other."""
        code = self.code
        merged = self.block.flag(MERGED)
        length = merged.choose(rows * columns, columns)
        with code.loop(0, merged.choose(code.integer(1), rows)):
            code.call(self.flat, None, self.arguments, 0, length)
            with code.loop(0, self.operands) as operand:
                moved = self.taken.read(operand) + self.moves.read(operand)
                self.taken.write(operand, moved)


def _divided(number: Value, size: Value) -> tuple[Value, Value]:
    """Quotient and remainder."""
    quotient = number.unsigned_div(size)
    return quotient, number - quotient * size
