"""Elementwise operands of any strides: which axes tiles cover, and their shape; few elements of any sizes and strides have one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from openaclnn.core.plan import Plan, covered_elements
from openaclnn.engines.gpu.formulas.compiled import precision
from openaclnn.engines.gpu.formulas.tuned import as_float, form_of
from openaclnn.engines.gpu.kernels.tiles import AXES, tiled_kernel
from openaclnn.engines.gpu.launchers.formulas import emit, in_order
from openaclnn.engines.gpu.launchers.geometry import (
    NUMBERS_ARGS,
    STRIDES_ARGS,
    Elements,
    Launches,
    LaunchParams,
    Pattern,
    padded,
)
from openaclnn.engines.gpu.launchers.numbers import ceil_div, power_of_two_divisor
from openaclnn.engines.gpu.launching.launch import (
    KernelSpec,
    Launch,
    next_power_of_two,
)
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT, elementwise_slots, table_of
from openaclnn.engines.gpu.launching.queues import queue_of, remembered

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
        family = KernelSpec(
            tiled_kernel(form.formula),
            elementwise_slots(plan, [True] * len(operands), shifts),
            (*form.switches, *precision(plan), *steps),
            fused=False,
        )
        programs = math.prod(batch) * row_tiles * column_tiles
        yield Launch(family, programs, arguments, tuple(settings.values()), warps)


TILES = "tiles"
ElementRunner = Callable[[Sequence[int], int, Sequence[int], Sequence[int]], int]
"""Of addresses, a stream, the axes' sizes, and each operand's strides along them one after the other."""


def launch_few(g: Elements) -> Launches:
    """Nothing is chosen for a layout, so that one compiled kernel serves all; axes are in the output's order."""
    first, second, third, rows, columns = g.sizes
    row_tiles, column_tiles = ceil_div(rows, FEW_ROWS), ceil_div(columns, FEW_COLUMNS)
    args = {
        "rows": rows, "columns": columns, "row_tiles": row_tiles, "column_tiles": column_tiles, "second_size": second,
        "third_size": third, STRIDES_ARGS: 0, NUMBERS_ARGS: 0,
    }  # fmt: skip
    constexprs = {
        "UNIT": 1, "ROWS_UNIT": 1, "COLUMNS_UNIT": 1, "BATCHED": True, "WIDE": True, "ROWS": FEW_ROWS,
        "COLUMNS": FEW_COLUMNS,
    }  # fmt: skip
    grid = first * second * third * row_tiles * column_tiles
    return Launches([LaunchParams(TILES, grid, args, constexprs, 4)])


_ANY_STRIDES = Pattern("tiles", launch_few, {TILES: None}, (), (), 0, INLINE_AXES, limit=LAID)


def laid(plan: Plan) -> tuple[ElementRunner, int] | None:
    """What runs the plan's kernel over few elements of any sizes and strides, and up to how many."""
    operands = (*plan.inputs, plan.output)
    if any(own.offset for own in operands) or covered_elements(plan) > LAID:
        return None
    return remembered(plan, _laid, strided=True), LAID


def _laid(plan: Plan) -> ElementRunner:
    operands, form = (*plan.inputs, plan.output), form_of(plan)
    steps = (2, 2) * len(operands)  # known at run time only
    slots = elementwise_slots(plan, [False] * len(operands), [0] * len(operands))
    known = (*form.switches, *precision(plan), *steps)
    spec = KernelSpec(tiled_kernel(form.formula), slots, known, fused=False)
    some = launch_few(Elements(1, {}, False, True, sizes=(1,) * INLINE_AXES))
    forms = [(form.formula, form.switches)]
    fixed = dict(zip(form.formula.numbers, form.numbers, strict=True))
    emitted = emit(_ANY_STRIDES, plan, forms, [{TILES: spec}], {}, some, len(operands), fixed=fixed)
    queue = queue_of(spec, emitted.ready.get((0, TILES, True)))
    place = form.formula.numbers.index(plan.reciprocal) if plan.reciprocal else -1
    items = [own.dtype.itemsize for own in operands]

    def start(
        addresses: Sequence[int], stream: int, sizes: Sequence[int], table: list[Sequence[int]],
        numbers: tuple[float, ...],
    ) -> None:  # fmt: skip
        if len(sizes) > INLINE_AXES:  # the host walks the first axis
            for index in range(sizes[0]):
                shifts = [index * own[0] * item for own, item in zip(table, items, strict=True)]
                there = [address + by for address, by in zip(addresses, shifts, strict=True)]
                start(there, stream, sizes[1:], [own[1:] for own in table], numbers)
            return
        strides = tuple([step for own in table for step in padded(own, INLINE_AXES, 0)])
        g = Elements(
            1, {}, False, True, sizes=padded(sizes, INLINE_AXES, 1), numbers=numbers, strides=strides
        )  # fmt: skip
        (step,) = launch_few(g).steps
        queue(addresses, stream, *in_order(g, step))

    def run(
        addresses: Sequence[int], stream: int, sizes: Sequence[int], strides: Sequence[int]
    ) -> int:
        numbers = form.numbers
        if place >= 0:
            share = as_float(1.0 / math.prod(sizes))
            numbers = (*numbers[:place], share, *numbers[place + 1 :])
        start(addresses, stream, sizes, table_of(strides, len(sizes)), numbers)
        return 0

    builtin: ElementRunner = run if emitted.made is None else emitted.made.function(run)
    return builtin
