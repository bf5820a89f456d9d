"""Geometry: any strides become rows of dense or single-valued operands, which flat kernels take.

A plan is cut into tiles of rows x columns, columns along the innermost axis. Operands that lie dense (or
single-valued) along it are used where they are; the others are copied tile by tile into a buffer in the
first-level cache. No tensor is ever copied as a whole.

First the choice of tiles, then the machine code that brings them to a flat kernel, then the copies.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.cpu.launching import pool
from openaclnn.engines.cpu.launching.control import FIRST_ARGUMENT, MAX_ARGUMENTS, STATUS
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.host import LINE
from openaclnn.engines.machine.kinds import signature
from openaclnn.engines.machine.values import Shape, Value

GRAIN = 1 << 15  # elements that one thread does sooner than two: waking a worker takes 15 to 40 us
TILE = 4096  # elements of a buffered tile, or fewer where many operands share the buffers
NARROW = 16  # fewer columns than this are not worth a row of their own
BUFFERED = 1 << 16  # bytes of a tile's copies: four operands of 4096 FLOATs fit into the cache
SCRATCH = BUFFERED + MAX_ARGUMENTS * LINE  # each operand's copy begins a line

# How an operand lies along a tile's rows: one value, dense, or in neither way and so copied.
SINGLE, DENSE, PACKED = range(3)

# The driver's block: these slots, the flat kernel's constants, then for each operand OPERAND slots, then
# the sizes of the remaining axes, then each operand's strides (in bytes) along them.
FLAT, OPERANDS, CONSTANTS, AXES, ROWS, COLUMNS = range(6)
TILE_ROWS, TILE_COLUMNS, ROW_TILES, COLUMN_TILES, MERGED, INPUTS = range(6, 12)
FIRST_CONSTANT = 12
ITEM, MODE, ROW_STEP, COLUMN_STEP, OFFSET, COPY, BUFFER, OPERAND = 0, 1, 2, 3, 4, 5, 6, 8


class Arrangement(NamedTuple):
    """How a plan is cut."""

    flat: bool  # one row, nothing to cut
    single: tuple[int, ...]  # inputs that are one value for a whole row (or for all)
    modes: tuple[int, ...] = ()
    merged: bool = False  # no operand is used in place along rows: a tile is one row
    row_axis: int = 0
    rows: int = 1  # of a tile
    columns: int = 1


_ALL_DENSE = Arrangement(True, ())
_FLAT = frozenset((0, 1))  # steps along the only axis that a flat kernel takes
_MODES = {0: SINGLE, 1: DENSE}


def singles(plan: Plan) -> tuple[int, ...]:
    """The inputs that one flat kernel takes as one value for all elements; none where a plan has to be cut."""
    if plan.dense or len(plan.shape) > 1 or plan.shape[0] == 1:
        return ()
    steps = [operand.strides[0] for operand in plan.inputs]
    in_a_row = plan.reduction or all(operand.strides[0] == 1 for operand in plan.outputs)
    if 0 not in steps or not (in_a_row and _FLAT.issuperset(steps)):
        return ()
    return tuple([index for index, step in enumerate(steps) if step == 0])


def arrange(plan: Plan) -> Arrangement:
    """Choose modes and tile sizes."""
    if plan.dense:
        return _ALL_DENSE
    operands, inputs = plan.operands, len(plan.inputs)
    shape = plan.shape
    width = shape[-1]
    inner = [operand.strides[-1] for operand in operands] if width > 1 else [1] * len(operands)
    if len(shape) == 1 and {*inner[inputs:]} == {1} and _FLAT.issuperset(inner):
        if 0 not in inner:
            return _ALL_DENSE
        return Arrangement(True, tuple([index for index, step in enumerate(inner) if step == 0]))
    merged = width < NARROW and len(shape) > 1
    modes = []
    for place, (operand, step) in enumerate(zip(operands, inner, strict=True)):
        if merged:
            modes.append(PACKED if any(operand.strides) or place >= inputs else SINGLE)
        else:
            modes.append(_MODES.get(step, PACKED))
    packed = [operand for operand, mode in zip(operands, modes, strict=True) if mode == PACKED]
    single = tuple([index for index, mode in enumerate(modes[:inputs]) if mode == SINGLE])
    merged = merged or DENSE not in modes
    if merged:  # a tile is one row only if single values stay the same from row to row
        merged = all(
            mode == PACKED or not any(operand.strides)
            for operand, mode in zip(operands, modes, strict=True)
        )
    row_axis, rows = _rows(plan, packed)
    items = sum([operand.dtype.itemsize for operand in packed])
    size = min(TILE, BUFFERED // items) if packed else GRAIN
    columns = min(width, size // rows)
    depth = shape[row_axis] if len(shape) > 1 else 1
    rows = min(depth, max(rows, size // columns))
    return Arrangement(False, single, tuple(modes), merged, row_axis, rows, columns)


def _rows(plan: Plan, packed: Sequence[Any]) -> tuple[int, int]:
    """The axis that tiles extend along besides the innermost, and how far they must at least."""
    outer = range(len(plan.shape) - 1)
    if not outer:
        return 0, 1
    for operand in packed:
        steps = {axis: abs(operand.strides[axis]) for axis in outer if operand.strides[axis]}
        if steps:
            nearest = min(steps, key=lambda axis: steps[axis])
            if steps[nearest] < abs(operand.strides[-1]):  # transposed: take whole cache lines
                return nearest, min(plan.shape[nearest], LINE // operand.dtype.itemsize)
    return outer[-1], 1


def runner(
    plan: Plan, layout: Arrangement, kernel: int, constants: Sequence[int], keep: Any
) -> Callable[[Sequence[int], int], int]:
    """Run a flat kernel over a plan."""
    operands, inputs = plan.operands, len(plan.inputs)
    pool.check_fit(max(1, len(constants)) + len(operands))  # the driver's block is one argument
    if layout.flat:
        run = pool.bind(kernel, plan.shape[0], GRAIN, *constants, keep=keep)
        return _shifted(run, operands) if is_shifted(plan) else run
    shape = plan.shape if len(plan.shape) > 1 else (1, *plan.shape)
    others = [axis for axis in range(len(shape) - 1) if axis != layout.row_axis]
    row_tiles = -(-shape[layout.row_axis] // layout.rows)
    column_tiles = -(-shape[-1] // layout.columns)
    block = [
        kernel, len(operands), len(constants), len(others), shape[layout.row_axis], shape[-1],
        layout.rows, layout.columns, row_tiles, column_tiles, int(layout.merged), inputs, *constants,
    ]  # fmt: skip
    tables: list[int] = []
    size = layout.rows * layout.columns
    buffer = 0
    for index, (operand, mode) in enumerate(zip(operands, layout.modes, strict=True)):
        item = operand.dtype.itemsize
        strides = operand.strides if len(plan.shape) > 1 else (0, *operand.strides)
        row_step, step = strides[layout.row_axis] * item, strides[-1] * item
        copy = copier(item, index >= inputs) if mode == PACKED else 0
        block += item, mode, row_step, step, operand.offset * item, copy, buffer, 0
        if mode == PACKED:
            buffer += -(-size * item // LINE) * LINE
        if others:
            tables += [strides[axis] * item for axis in others]
    block += [shape[axis] for axis in others]
    block += tables
    words = array("q", block)
    count = row_tiles * column_tiles
    for axis in others:
        count *= shape[axis]
    grain = max(1, GRAIN // size)
    return pool.bind(driver(), count, grain, words.buffer_info()[0], keep=(keep, words))


def is_shifted(plan: Plan) -> bool:
    """Whether an operand's first visited element is not its tensor's."""
    return not plan.dense and any(operand.offset for operand in plan.operands)


def _shifted(
    run: Callable[..., int], operands: Sequence[Operand]
) -> Callable[[Sequence[int], int], int]:
    """A runner whose operands start elsewhere than at their addresses."""
    offsets = [operand.offset * operand.dtype.itemsize for operand in operands]

    def moved(addresses: Sequence[int], stream: int = 0) -> int:
        return run([place + offset for place, offset in zip(addresses, offsets, strict=True)])

    return moved


@functools.cache
def driver() -> int:
    """The kernel that runs tiles; its arguments are its block, then the operands."""
    return cache.compiled("tiles.driver", _emit)


def _emit(code: Code, arguments: Sequence[Value]) -> None:
    passed, start, stop = arguments
    one = _Driver(code, code.slots(passed).at(FIRST_ARGUMENT))
    with code.loop(start, stop) as number:
        one.tile(number)


class _Driver:
    """The driver being written: for each tile it packs, calls the flat kernel on the rows, unpacks."""

    def __init__(self, code: Code, passed: Array) -> None:
        self.code = code
        self.block = code.slots(passed.read(0))
        self.tensors = passed.at(1)  # the tensors' addresses
        self.flat, self.operands, constants, self.axes, self.inputs = (
            self.block.read(index) for index in (FLAT, OPERANDS, CONSTANTS, AXES, INPUTS)
        )
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
        with (
            self.code.loop(self.inputs, self.operands) as output,
            self.code.when(self.record(output).read(MODE) == PACKED),
        ):
            self.copy(output, rows, columns)

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
            start = self.tensors.read(operand) + record.read(OFFSET)
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
            with self.code.when(packed & (operand < self.inputs)):
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


COPY_SIGNATURE = signature(None, *["i64"] * 6)  # buffer, tensor, rows, columns, two steps in bytes


@functools.cache
def copier(item: int, writes: bool) -> int:
    """The compiled copy between a dense buffer and a strided tile, of elements of two or four bytes."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        copy = _Copy(code, arguments, item, writes)
        if writes:  # the output is walked in memory order already
            copy.by_rows()
        else:
            copy.by_the_best_way()

    return cache.compiled(f"tiles.{'unpack' if writes else 'pack'}{item}", emit, COPY_SIGNATURE)


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
