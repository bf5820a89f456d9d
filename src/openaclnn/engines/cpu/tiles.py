"""Geometry: any strides become rows of dense or single-valued operands, which flat kernels take.

A plan is cut into tiles of rows x columns, columns along the innermost axis. Operands that lie dense (or
single-valued) along it are used where they are; the others are copied tile by tile into a buffer in the
first-level cache. No tensor is ever copied as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core.plan import Plan
from openaclnn.engines.cpu import copies, pool
from openaclnn.engines.cpu.launcher import MAX_ARGUMENTS
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.words import (
    I8,
    I64,
    PTR,
    for_range,
    i64,
    read_slot,
    slot,
    stack,
    write_slot,
)

GRAIN = 1 << 15  # elements that one thread does sooner than two: waking a worker takes 15 to 40 us
TILE = 4096  # elements of a buffered tile: 16 KiB of float32, four of which fit into the cache
LINE = 64  # bytes of a cache line: how much a transposed operand gives at one place
NARROW = 16  # fewer columns than this are not worth a row of their own

SINGLE, DENSE, PACKED = 0, 1, 2


class Form(NamedTuple):
    """How a plan is cut."""

    flat: bool  # one row, nothing to cut
    single: tuple[int, ...]  # inputs that are one value for a whole row (or for all)
    modes: tuple[int, ...] = ()
    merged: bool = False  # no operand is used in place along rows: a tile is one row
    row_axis: int = 0
    rows: int = 1  # of a tile
    columns: int = 1


def arrange(plan: Plan) -> Form:
    """Choose modes and tile sizes."""
    operands = (*plan.inputs, plan.output)
    shape = plan.shape
    width = shape[-1]
    inner = [operand.strides[-1] if width > 1 else 1 for operand in operands]
    if len(shape) == 1 and inner[-1] == 1 and all(step in (0, 1) for step in inner):
        return Form(True, tuple(index for index, step in enumerate(inner) if step == 0))
    merged = width < NARROW and len(shape) > 1
    modes = []
    for operand, step in zip(operands, inner, strict=True):
        if merged:
            modes.append(PACKED if any(operand.strides) or operand is plan.output else SINGLE)
        else:
            modes.append({0: SINGLE, 1: DENSE}.get(step, PACKED))
    packed = [operand for operand, mode in zip(operands, modes, strict=True) if mode == PACKED]
    single = tuple(index for index, mode in enumerate(modes[:-1]) if mode == SINGLE)
    merged = merged or not any(mode == DENSE for mode in modes)
    if merged:  # a tile is one row only if single values stay the same from row to row
        merged = all(
            mode == PACKED or not any(operand.strides)
            for operand, mode in zip(operands, modes, strict=True)
        )
    row_axis, rows = _rows(plan, packed)
    size = TILE if packed else GRAIN
    columns = min(width, size // rows)
    depth = shape[row_axis] if len(shape) > 1 else 1
    rows = min(depth, max(rows, size // columns))
    return Form(False, single, tuple(modes), merged, row_axis, rows, columns)


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


# The driver's block: these slots, the flat kernel's constants, then for each operand OPERAND slots, then
# the sizes of the remaining axes, then each operand's strides (in bytes) along them.
FLAT, OPERANDS, CONSTANTS, AXES, ROWS, COLUMNS = range(6)
TILE_ROWS, TILE_COLUMNS, ROW_TILES, COLUMN_TILES, MERGED = range(6, 11)
FIRST_CONSTANT = 12
ITEM, MODE, ROW_STEP, COLUMN_STEP, OFFSET, COPY, BUFFER, OPERAND = 0, 1, 2, 3, 4, 5, 6, 8


def runner(
    plan: Plan, form: Form, kernel: int, constants: Sequence[int], keep: Any
) -> Callable[[Sequence[int], int], int]:
    """Run a flat kernel over a plan."""
    operands = (*plan.inputs, plan.output)
    offsets = [operand.offset * operand.dtype.itemsize for operand in operands]
    if form.flat:
        run = pool.bind(kernel, plan.shape[0], GRAIN, *constants, keep=keep)
        return _shifted(run, offsets) if any(offsets) else run
    shape = plan.shape if len(plan.shape) > 1 else (1, *plan.shape)
    others = [axis for axis in range(len(shape) - 1) if axis != form.row_axis]
    row_tiles = -(-shape[form.row_axis] // form.rows)
    column_tiles = -(-shape[-1] // form.columns)
    block = [
        kernel, len(operands), len(constants), len(others), shape[form.row_axis], shape[-1],
        form.rows, form.columns, row_tiles, column_tiles, int(form.merged), 0, *constants,
    ]  # fmt: skip
    tables = []
    size = form.rows * form.columns
    buffer = 0
    for index, (operand, mode) in enumerate(zip(operands, form.modes, strict=True)):
        item = operand.dtype.itemsize
        strides = [step * item for step in operand.strides]
        strides = strides if len(plan.shape) > 1 else [0, *strides]
        writes = index == len(operands) - 1
        copy = copies.copier(item, writes) if mode == PACKED else 0
        row_step, step = strides[form.row_axis], strides[-1]
        block += [item, mode, row_step, step, offsets[index], copy, buffer, 0]
        tables.append([strides[axis] for axis in others])
        if mode == PACKED:
            buffer += -(-size * item // 64) * 64
    block += [shape[axis] for axis in others]
    for table in tables:
        block += table
    words = np.array(block, np.int64)
    count = row_tiles * column_tiles
    for axis in others:
        count *= shape[axis]
    driver = cache.compiled("tiles.driver", _emit_driver)
    grain = max(1, GRAIN // size)
    return pool.bind(driver, count, grain, words.ctypes.data, keep=(keep, words))


def _shifted(
    run: Callable[..., int], offsets: Sequence[int]
) -> Callable[[Sequence[int], int], int]:
    """A runner whose operands start elsewhere than at their addresses."""

    def moved(addresses: Sequence[int], stream: int = 0) -> int:
        places = (
            pool.address_of(operand) for operand in addresses
        )  # arrays may stand for addresses
        return run([place + offset for place, offset in zip(places, offsets, strict=True)])

    return moved


SCRATCH = 4 * TILE * 4 + 4 * LINE


def _emit_driver(builder: Any, arguments: Any) -> None:
    """For each tile: pack, call the flat kernel on its rows, unpack."""
    outer, start, stop = arguments
    block = builder.inttoptr(read_slot(builder, outer, 1), PTR)
    operands, constants = (read_slot(builder, block, index) for index in (OPERANDS, CONSTANTS))
    axes = read_slot(builder, block, AXES)
    flat = builder.inttoptr(read_slot(builder, block, FLAT), cache.KERNEL.as_pointer())
    records = slot(builder, block, builder.add(constants, i64(FIRST_CONSTANT)))
    sizes = slot(builder, records, builder.mul(operands, i64(OPERAND)))
    steps = slot(builder, sizes, axes)
    inner = stack(builder, I64, MAX_ARGUMENTS)
    bases, moves = stack(builder, I64, 8), stack(builder, I64, 8)
    scratch = builder.ptrtoint(stack(builder, I8, SCRATCH), I64)
    write_slot(builder, inner, 0, 0)

    def copy_constant(index: Any) -> None:
        value = read_slot(builder, block, builder.add(index, i64(FIRST_CONSTANT)))
        write_slot(builder, inner, builder.add(index, i64(1)), value)

    for_range(builder, constants, copy_constant)
    first = builder.add(constants, i64(1))  # the flat kernel's first operand

    def field(operand: Any, name: int) -> Any:
        return read_slot(
            builder, records, builder.add(builder.mul(operand, i64(OPERAND)), i64(name))
        )

    def tile(unit: Any) -> None:
        left = builder.add(start, unit)
        left, column = _split(builder, left, read_slot(builder, block, COLUMN_TILES))
        left, row = _split(builder, left, read_slot(builder, block, ROW_TILES))
        row, rows = _extent(builder, block, row, TILE_ROWS, ROWS)
        column, columns = _extent(builder, block, column, TILE_COLUMNS, COLUMNS)

        def locate(operand: Any) -> None:
            address = read_slot(builder, outer, builder.add(operand, i64(2)))
            address = builder.add(address, field(operand, OFFSET))
            address = builder.add(address, builder.mul(row, field(operand, ROW_STEP)))
            address = builder.add(address, builder.mul(column, field(operand, COLUMN_STEP)))
            write_slot(builder, bases, operand, address)

        for_range(builder, operands, locate)
        rest = stack(builder, I64, 1)
        write_slot(builder, rest, 0, left)

        def walk(behind: Any) -> None:
            axis = builder.sub(builder.sub(axes, i64(1)), behind)
            size = read_slot(builder, sizes, axis)
            left, index = _split(builder, read_slot(builder, rest, 0), size)
            write_slot(builder, rest, 0, left)

            def shift(operand: Any) -> None:
                where = builder.add(builder.mul(operand, axes), axis)
                step = builder.mul(index, read_slot(builder, steps, where))
                write_slot(
                    builder, bases, operand, builder.add(read_slot(builder, bases, operand), step)
                )

            for_range(builder, operands, shift)

        for_range(builder, axes, walk)

        def copy(operand: Any) -> None:
            function = builder.inttoptr(field(operand, COPY), copies.COPY_TYPE.as_pointer())
            buffer = builder.add(scratch, field(operand, BUFFER))
            given = [buffer, read_slot(builder, bases, operand), rows, columns]
            builder.call(function, [*given, field(operand, ROW_STEP), field(operand, COLUMN_STEP)])

        output = builder.sub(operands, i64(1))

        def place(operand: Any) -> None:
            packed = builder.icmp_signed("==", field(operand, MODE), i64(PACKED))
            is_output = builder.icmp_signed("==", operand, output)
            buffer = builder.add(scratch, field(operand, BUFFER))
            base = builder.select(packed, buffer, read_slot(builder, bases, operand))
            pitch = builder.mul(columns, field(operand, ITEM))
            move = builder.select(packed, pitch, field(operand, ROW_STEP))
            write_slot(builder, inner, builder.add(first, operand), base)
            write_slot(builder, moves, operand, move)
            with builder.if_then(builder.and_(packed, builder.not_(is_output))):
                copy(operand)

        for_range(builder, operands, place)
        merged = builder.icmp_signed("!=", read_slot(builder, block, MERGED), i64(0))
        calls = builder.select(merged, i64(1), rows)
        length = builder.select(merged, builder.mul(rows, columns), columns)

        def call(_: Any) -> None:
            builder.call(flat, [inner, i64(0), length])

            def advance(operand: Any) -> None:
                where = builder.add(first, operand)
                moved = builder.add(
                    read_slot(builder, inner, where), read_slot(builder, moves, operand)
                )
                write_slot(builder, inner, where, moved)

            for_range(builder, operands, advance)

        for_range(builder, calls, call)
        with builder.if_then(builder.icmp_signed("==", field(output, MODE), i64(PACKED))):
            copy(output)

    for_range(builder, builder.sub(stop, start), tile)


def _split(builder: Any, value: Any, size: Any) -> tuple[Any, Any]:
    """Quotient and remainder."""
    quotient = builder.udiv(value, size)
    return quotient, builder.sub(value, builder.mul(quotient, size))


def _extent(builder: Any, block: Any, index: Any, step: int, size: int) -> tuple[Any, Any]:
    """A tile's start along an axis, and how far it reaches."""
    width = read_slot(builder, block, step)
    begin = builder.mul(index, width)
    left = builder.sub(read_slot(builder, block, size), begin)
    return begin, builder.select(builder.icmp_signed("<", left, width), left, width)
