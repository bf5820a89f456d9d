"""Elementwise kernels over few elements of any sizes and strides."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from openaclnn.core.plan import Plan, covered_elements
from openaclnn.engines.gpu.fits.fitting import MAIN, tiled_fitting
from openaclnn.engines.gpu.formulas.compiled import precision
from openaclnn.engines.gpu.formulas.tuned import as_float, form_of
from openaclnn.engines.gpu.kernels.tiles import tiled_kernel
from openaclnn.engines.gpu.launching.launch import Family
from openaclnn.engines.gpu.launching.operands import elementwise_slots, table_of
from openaclnn.engines.gpu.launching.queues import queue_of, remembered
from openaclnn.engines.gpu.plans import tiles

LaidRunner = Callable[[Sequence[int], int, Sequence[int], Sequence[int]], int]
"""Of addresses, a stream, the axes' sizes, and each operand's strides along them one after the other."""


def laid(plan: Plan) -> tuple[LaidRunner, int] | None:
    """What runs the plan's kernel over few elements of any sizes and strides, and up to how many.

    Nothing is chosen for a layout, so that one compiled kernel serves all; axes must be in the output's order.
    """
    operands = (*plan.inputs, plan.output)
    if any(own.offset for own in operands) or covered_elements(plan) > tiles.LAID:
        return None
    return remembered(plan, _laid, strided=True), tiles.LAID


def _laid(plan: Plan) -> LaidRunner:
    operands, form = (*plan.inputs, plan.output), form_of(plan)
    steps = (2, 2) * len(operands)  # known at run time only
    slots = elementwise_slots(plan, [False] * len(operands), [0] * len(operands))
    family = Family(
        tiled_kernel(form.formula), slots, (*form.switches, *precision(plan), *steps), fused=False
    )
    constants = 1, 1, 1, True, True, tiles.FEW_ROWS, tiles.FEW_COLUMNS
    some = (1,) * 6 + (0,) * (tiles.INLINE_AXES * len(operands)) + form.numbers
    fitting = tiled_fitting(
        plan, form, family, (1, some, constants, 4), (tiles.LAID, tiles.FEW_ROWS, tiles.FEW_COLUMNS)
    )
    queue = queue_of(family, fitting.ready(MAIN))
    place = form.formula.numbers.index(plan.reciprocal) if plan.reciprocal else -1
    items = [own.dtype.itemsize for own in operands]

    def launch(
        addresses: Sequence[int],
        stream: int,
        sizes: Sequence[int],
        table: list[Sequence[int]],
        numbers: tuple[float, ...],
    ) -> None:
        missing = tiles.INLINE_AXES - len(sizes)
        if missing < 0:  # the host walks the first axis
            for index in range(sizes[0]):
                shifts = [index * own[0] * item for own, item in zip(table, items, strict=True)]
                there = [address + by for address, by in zip(addresses, shifts, strict=True)]
                launch(there, stream, sizes[1:], [own[1:] for own in table], numbers)
            return
        first, second, third, rows, columns = (1,) * missing + tuple(sizes)
        row_tiles, column_tiles = -(-rows // tiles.FEW_ROWS), -(-columns // tiles.FEW_COLUMNS)
        arguments = [rows, columns, row_tiles, column_tiles, second, third]
        for own in table:
            arguments += (0,) * missing
            arguments += own
        programs = first * second * third * row_tiles * column_tiles
        queue(addresses, stream, programs, (*arguments, *numbers), constants, 4)

    def run(
        addresses: Sequence[int], stream: int, sizes: Sequence[int], strides: Sequence[int]
    ) -> int:
        numbers = form.numbers
        if place >= 0:
            share = as_float(1.0 / math.prod(sizes))
            numbers = (*numbers[:place], share, *numbers[place + 1 :])
        launch(addresses, stream, sizes, table_of(strides, len(sizes)), numbers)
        return 0

    return fitting.function(run)
