# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Elementwise operands of any strides: tiles over two axes, and a program for each."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from itertools import chain, product
from typing import Any

import triton
import triton.language as tl

from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import Formula
from openaclnn.engines.gpu.formulas import Names, compiled, precision, widen
from openaclnn.engines.gpu.launch import Launch, power_of_two_divisor
from openaclnn.engines.gpu.operands import INT32_LIMIT, elementwise_slots
from openaclnn.engines.gpu.source import constants, define, listed
from openaclnn.engines.gpu.tuned import form_of

INLINE_AXES = 5  # what `tiled` takes; the host walks the rest


@triton.jit
def _places(
    pointer, at_first, at_second, at_third, row_start, column_start, row_lanes, column_lanes,
    first_stride, second_stride, third_stride, row_stride, column_stride,
    ROW_STEP: tl.constexpr, COLUMN_STEP: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """An operand's pointers over a tile. A step is 0, 1, or 2 for a stride known at run time only.

    Along a step of 0 the tile is one element thick: each value is loaded once and then broadcast.
    """
    corner = at_first * first_stride + at_second * second_stride + at_third * third_stride
    pointer += corner * UNIT
    lanes = tl.zeros([1, 1], tl.int32)
    if ROW_STEP == 1:
        pointer += row_start
        lanes = lanes + row_lanes[:, None]
    elif ROW_STEP == 2:
        pointer += row_start * row_stride * UNIT
        lanes = lanes + row_lanes[:, None] * (row_stride * UNIT)
    if COLUMN_STEP == 1:
        pointer += column_start
        lanes = lanes + column_lanes[None, :]
    elif COLUMN_STEP == 2:
        pointer += column_start * column_stride * UNIT
        lanes = lanes + column_lanes[None, :] * (column_stride * UNIT)
    return pointer + lanes


@triton.jit
def _mask(inside_rows, inside_columns, ROW_STEP: tl.constexpr, COLUMN_STEP: tl.constexpr):
    mask = tl.full([1, 1], 1, tl.int1)
    if ROW_STEP:
        mask = mask & inside_rows[:, None]
    if COLUMN_STEP:
        mask = mask & inside_columns[None, :]
    return mask


@triton.jit
def _read(
    pointer, at_first, at_second, at_third, row_start, column_start, row_lanes, column_lanes,
    first_stride, second_stride, third_stride, row_stride, column_stride,
    inside_rows, inside_columns,
    ROW_STEP: tl.constexpr, COLUMN_STEP: tl.constexpr, UNIT: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    places = _places(
        pointer, at_first, at_second, at_third, row_start, column_start, row_lanes, column_lanes,
        first_stride, second_stride, third_stride, row_stride, column_stride,
        ROW_STEP, COLUMN_STEP, UNIT,
    )  # fmt: skip
    mask = _mask(inside_rows, inside_columns, ROW_STEP, COLUMN_STEP)
    return widen(tl.load(places, mask), COMPUTE)


TILED = '''
def tiled_{name}(
    {pointers}out,
    rows, columns, row_tiles, column_tiles, second_size, third_size,
    {strides}
    {numbers}
    {constants}
    OUT_ROW: tl.constexpr, OUT_COLUMN: tl.constexpr,
    UNIT: tl.constexpr, ROWS_UNIT: tl.constexpr, COLUMNS_UNIT: tl.constexpr,
    BATCHED: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):
    """Any strides: tiles over two axes, and up to three more axes walked by the program number."""
    rest = tl.program_id(0)
    column_start = (rest % column_tiles).to(tl.int64) * COLUMNS
    rest = rest // column_tiles
    row_start = (rest % row_tiles).to(tl.int64) * ROWS
    rest = rest // row_tiles
    at_first = tl.full([], 0, tl.int64)
    at_second = at_first
    at_third = at_first
    if BATCHED:
        at_third = (rest % third_size).to(tl.int64)
        rest = rest // third_size
        at_second = (rest % second_size).to(tl.int64)
        at_first = (rest // second_size).to(tl.int64)
    row_lanes = tl.arange(0, ROWS)
    column_lanes = tl.arange(0, COLUMNS)
    inside_rows = row_start + row_lanes < rows.to(tl.int64) * ROWS_UNIT
    inside_columns = column_start + column_lanes < columns.to(tl.int64) * COLUMNS_UNIT
    if WIDE:
        row_lanes = row_lanes.to(tl.int64)
        column_lanes = column_lanes.to(tl.int64)

{reads}
    result = {call}
    places = places_of(
        out, at_first, at_second, at_third, row_start, column_start, row_lanes, column_lanes,
        out_first, out_second, out_third, out_row, out_column, OUT_ROW, OUT_COLUMN, UNIT,
    )
    mask = inside_rows[:, None] & inside_columns[None, :]
    result, mask = tl.broadcast(result.to(COMPUTE), mask)
    places, mask = tl.broadcast(places, mask)
    tl.store(places, result, mask)
'''

AXES = ("first", "second", "third", "row", "column")
READ = """    value_{own} = read(
        from_{own}, at_first, at_second, at_third, row_start, column_start, row_lanes, column_lanes,
        {strides}inside_rows, inside_columns, ROW_{own}, COLUMN_{own}, UNIT, COMPUTE,
    )"""


@functools.cache
def tiled_kernel(formula: Formula) -> Any:
    """The formula's kernel for any strides."""
    names = Names(formula)
    own_strides = {own: [f"stride_{own}_{axis}" for axis in AXES] for own in formula.values}
    strides = [*chain(*own_strides.values()), *(f"out_{axis}" for axis in AXES)]
    steps = [f"{axis}_{own}" for own in formula.values for axis in ("ROW", "COLUMN")]
    text = TILED.format(
        name=formula.name, pointers=listed(names.pointers), strides=listed(strides),
        numbers=listed(names.numbers),
        constants=constants([*names.switches, "COMPUTE", "PRECISE", *steps]),
        reads="\n".join(READ.format(own=own, strides=listed(own_strides[own])) for own in own_strides),
        call=names.call(),
    )  # fmt: skip
    integers = ["rows", "columns", "row_tiles", "column_tiles", "second_size", "third_size"]
    scope = {"formula": compiled(formula), "read": _read, "places_of": _places}
    return define(text, scope, do_not_specialize=[*integers, *strides])


def _tile_axes(plan: Plan) -> tuple[int, int, bool]:
    """The axes that tiles cover (the output's fastest one as columns), and whether an operand is transposed."""
    shape = plan.shape
    column = len(shape) - 1
    others = range(column)
    if not others:
        return -1, column, False
    for operand in plan.inputs:
        own = [abs(stride) for stride in operand.strides]
        if own[column] > 1:
            nearest = min((own[axis] or INT32_LIMIT, axis) for axis in others)
            if nearest[0] < own[column]:
                return nearest[1], column, True
    if shape[column] * shape[column - 1] >= 512:
        return column - 1, column, False
    return max(others, key=lambda axis: shape[axis]), column, False


def tile_shape(
    itemsize: int, rows: int, columns: int, transposed: bool, thin: bool
) -> tuple[int, int, int]:
    """Rows and columns of a tile, and warps; the fractions are of a copy's bandwidth.

    `thin` tiles are read as a row, a column or one element each, and only written as a whole.
    """
    tall, wide = triton.next_power_of_2(rows), triton.next_power_of_2(columns)
    if transposed:
        # Whole 128-byte lines of what is read and of what is written. FLOAT 64 x 64: 1.01 (128 x 64:
        # 0.75). BF16 128 x 64: 1.01 (64 x 64 on 8 warps: 0.88).
        area, height = (4096, 64) if itemsize >= 4 else (8192, 128)
        height = min(tall, height)
        width = min(wide, area // height)
        height = min(tall, area // width)
        warps = 8
    elif thin:
        # BF16 16 x 256 on 4 warps: 1.09 (1 x 2048 on 8: 0.63, most of it what a program does once).
        # FLOAT 16 x 256 on 8 warps: 1.08 (1 x 2048: 1.06).
        width = min(wide, 256)
        height = min(tall, 4096 // width)
        width = min(wide, 4096 // height)
        warps = 8 if itemsize >= 4 else 4
    else:
        # Rows of 2 KiB, four of them: half rows 1.02-1.03, one of three operands a row 0.99 FLOAT
        # and 1.00 BF16 (1 x 2048: 0.97 and 0.95).
        width = min(wide, 2048 // itemsize)
        height = min(tall, 8192 // itemsize // width)
        warps = 8
    return height, width, max(1, min(warps, height * width // 128))


def host_axes(plan: Plan, kept: Sequence[int]) -> list[int]:
    """The axes beyond what the kernel takes: the shortest of those that tiles do not cover."""
    free = sorted(set(range(len(plan.shape))) - set(kept), key=lambda axis: plan.shape[axis])
    return free[: max(0, len(free) - (INLINE_AXES - 2))]


def _step(stride: int) -> int:
    return stride if stride in (0, 1) else 2


def launches(plan: Plan) -> Iterator[Launch]:
    """One launch, or one for each position along the axes that the kernel does not take."""
    operands = (*plan.inputs, plan.output)
    row, column, transposed = _tile_axes(plan)
    walked = host_axes(plan, [row, column])
    inline = [axis for axis in range(len(plan.shape)) if axis not in (row, column, *walked)]
    # None: an axis the plan does not have, of one element.
    axes = [None] * (INLINE_AXES - 2 - len(inline)) + [*inline, None if row < 0 else row, column]
    sizes = [1 if axis is None else plan.shape[axis] for axis in axes]
    table = [[0 if axis is None else own.strides[axis] for axis in axes] for own in operands]
    *batch, rows, columns = sizes
    thin = all(0 in own[-2:] for own in table[:-1])
    height, width, warps = tile_shape(plan.output.dtype.itemsize, rows, columns, transposed, thin)
    row_tiles, column_tiles = -(-rows // height), -(-columns // width)
    units = [power_of_two_divisor([rows]), power_of_two_divisor([columns])]
    kinds = [[2] * (INLINE_AXES - 2) + [_step(stride) for stride in own[-2:]] for own in table]
    run_time = [
        [stride if kind == 2 else 0 for stride, kind in zip(own, marks, strict=True)]
        for own, marks in zip(table, kinds, strict=True)
    ]
    unit = power_of_two_divisor(stride for own in run_time for stride in own)
    form = form_of(plan)
    settings = {
        **form.switches,
        **precision(plan),
        **{
            f"{axis}_{number}": mark
            for number, marks in enumerate(kinds)
            for axis, mark in zip(("ROW", "COLUMN"), marks[-2:], strict=True)
        },
        "UNIT": unit,
        "ROWS_UNIT": units[0],
        "COLUMNS_UNIT": units[1],
        "BATCHED": math.prod(batch) > 1,
        "WIDE": max(height * abs(own[-2]) + width * abs(own[-1]) for own in table) >= INT32_LIMIT,
        "ROWS": height,
        "COLUMNS": width,
    }
    arguments = (
        rows // units[0], columns // units[1], row_tiles, column_tiles, *batch[1:],
        *(stride // unit for own in run_time for stride in own), *form.numbers,
    )  # fmt: skip
    for position in product(*(range(plan.shape[axis]) for axis in walked)):
        shifts = [
            sum(at * own.strides[axis] for at, axis in zip(position, walked, strict=True))
            for own in operands
        ]
        yield Launch(
            tiled_kernel(form.formula),
            math.prod(batch) * row_tiles * column_tiles,
            elementwise_slots(plan, [True] * len(operands), shifts),
            arguments,
            settings,
            warps,
            fused=False,
        )
