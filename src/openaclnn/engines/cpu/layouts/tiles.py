"""Geometry: any strides become rows of dense or single-valued operands, which flat kernels take.

A plan is cut into tiles of rows x columns, columns along the innermost axis. Operands that lie dense (or
single-valued) along it are used where they are; the others are copied tile by tile into a buffer in the
first-level cache. No tensor is ever copied as a whole.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from openaclnn.core.plan import Operand, Plan
from openaclnn.engines.cpu.launching import pool
from openaclnn.engines.cpu.layouts import copies
from openaclnn.engines.cpu.layouts.driver import BUFFERED, DENSE, PACKED, SINGLE, driver
from openaclnn.engines.machine.host import LINE

__all__ = ["Arrangement", "arrange", "is_shifted", "runner", "singles"]

GRAIN = 1 << 15  # elements that one thread does sooner than two: waking a worker takes 15 to 40 us
TILE = 4096  # elements of a buffered tile, or fewer where many operands share the buffers
NARROW = 16  # fewer columns than this are not worth a row of their own


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
    in_a_row = plan.reduction or plan.output.strides[0] == 1
    if 0 not in steps or not (in_a_row and _FLAT.issuperset(steps)):
        return ()
    return tuple([index for index, step in enumerate(steps) if step == 0])


def arrange(plan: Plan) -> Arrangement:
    """Choose modes and tile sizes."""
    if plan.dense:
        return _ALL_DENSE
    operands = (*plan.inputs, plan.output)
    shape = plan.shape
    width = shape[-1]
    inner = [operand.strides[-1] for operand in operands] if width > 1 else [1] * len(operands)
    if len(shape) == 1 and inner[-1] == 1 and _FLAT.issuperset(inner):
        if 0 not in inner:
            return _ALL_DENSE
        return Arrangement(True, tuple([index for index, step in enumerate(inner) if step == 0]))
    merged = width < NARROW and len(shape) > 1
    modes = []
    for operand, step in zip(operands, inner, strict=True):
        if merged:
            modes.append(PACKED if any(operand.strides) or operand is plan.output else SINGLE)
        else:
            modes.append(_MODES.get(step, PACKED))
    packed = [operand for operand, mode in zip(operands, modes, strict=True) if mode == PACKED]
    single = tuple([index for index, mode in enumerate(modes[:-1]) if mode == SINGLE])
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
    operands = (*plan.inputs, plan.output)
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
        layout.rows, layout.columns, row_tiles, column_tiles, int(layout.merged), 0, *constants,
    ]  # fmt: skip
    tables: list[int] = []
    size = layout.rows * layout.columns
    buffer = 0
    for index, (operand, mode) in enumerate(zip(operands, layout.modes, strict=True)):
        item = operand.dtype.itemsize
        strides = operand.strides if len(plan.shape) > 1 else (0, *operand.strides)
        row_step, step = strides[layout.row_axis] * item, strides[-1] * item
        copy = copies.copier(item, index == len(operands) - 1) if mode == PACKED else 0
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
    return not plan.dense and any(own.offset for own in (*plan.inputs, plan.output))


def _shifted(
    run: Callable[..., int], operands: Sequence[Operand]
) -> Callable[[Sequence[int], int], int]:
    """A runner whose operands start elsewhere than at their addresses."""
    offsets = [operand.offset * operand.dtype.itemsize for operand in operands]

    def moved(addresses: Sequence[int], stream: int = 0) -> int:
        return run([place + offset for place, offset in zip(addresses, offsets, strict=True)])

    return moved
