"""How elementwise operands of any strides are launched: which axes tiles cover, and their shape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.formulas.compiled import precision
from openaclnn.engines.gpu.formulas.tuned import form_of
from openaclnn.engines.gpu.kernels.tiles import AXES, tiled_kernel
from openaclnn.engines.gpu.launching.launch import (
    Family,
    Launch,
    next_power_of_two,
    power_of_two_divisor,
)
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT, elementwise_slots

INLINE_AXES = len(AXES)  # what the kernel takes; the host walks the rest
FEW = 1 << 16  # elements that one launch serves wherever they lie
# Elements for which one tile shape is good enough, whatever the strides: on an H200 it took 0.8 us more of the GPU than the best for 131,072 (1.8 with gaps
# along the last axis), 1.6 (10) for 524,288; another plan takes 300 us of the host.
LAID = 1 << 18
FEW_ROWS, FEW_COLUMNS = 8, 128


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
    tall, wide = next_power_of_two(rows), next_power_of_two(columns)
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
    units = [power_of_two_divisor(rows), power_of_two_divisor(columns)]
    kinds = [[2] * (INLINE_AXES - 2) + [_step(stride) for stride in own[-2:]] for own in table]
    run_time = [
        [stride if kind == 2 else 0 for stride, kind in zip(own, marks, strict=True)]
        for own, marks in zip(table, kinds, strict=True)
    ]
    unit = power_of_two_divisor(*(stride for own in run_time for stride in own))
    form = form_of(plan)
    reach = max(height * abs(own[-2]) + width * abs(own[-1]) for own in table)
    settings = {
        "UNIT": unit,
        "ROWS_UNIT": units[0],
        "COLUMNS_UNIT": units[1],
        "BATCHED": math.prod(batch) > 1,
        "WIDE": reach >= INT32_LIMIT,
        "ROWS": height,
        "COLUMNS": width,
    }
    steps = [mark for marks in kinds for mark in marks[-2:]]
    arguments = (
        rows // units[0], columns // units[1], row_tiles, column_tiles, *batch[1:],
        *(stride // unit for own in run_time for stride in own), *form.numbers,
    )  # fmt: skip
    for position in product(*(range(plan.shape[axis]) for axis in walked)):
        shifts = [
            sum(at * own.strides[axis] for at, axis in zip(position, walked, strict=True))
            for own in operands
        ]
        family = Family(
            tiled_kernel(form.formula),
            elementwise_slots(plan, [True] * len(operands), shifts),
            (*form.switches, *precision(plan), *steps),
            fused=False,
        )
        programs = math.prod(batch) * row_tiles * column_tiles
        yield Launch(family, programs, arguments, tuple(settings.values()), warps)
