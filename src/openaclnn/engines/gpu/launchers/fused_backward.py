"""Launches of training steps of cross entropy with long rows: loss and gradient in one reading, and the gradient alone where another loss's gradient was expected. `steps.py` has shorter rows."""

from __future__ import annotations

import functools
from math import prod
from typing import Any, NamedTuple

from openaclnn.core.dtypes import DType
from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.kernels.fused_backward import (
    ROUND,
    at_targets,
    expect,
    gradient_late,
    loss_ahead,
    losses_ahead,
)
from openaclnn.engines.gpu.kernels.row_source import AHEAD, LATE
from openaclnn.engines.gpu.kernels.sums import finish_loss
from openaclnn.engines.gpu.launchers import steps
from openaclnn.engines.gpu.launchers.geometry import ignored_class, launch_of, power_of_two_divisor
from openaclnn.engines.gpu.launchers.launcher import Launcher
from openaclnn.engines.gpu.launchers.losses import finish_of
from openaclnn.engines.gpu.launchers.steps import MOST_CLASSES
from openaclnn.engines.gpu.launching.launch import (
    INT32_LIMIT,
    VECTOR_BYTES,
    PointerArg,
    launched,
    next_power_of_two,
    spec_of,
)
from openaclnn.engines.gpu.launching.runners import Runner, runner_of
from openaclnn.engines.gpu.launching.variants import has_clusters, limits

EXPECTED = 4  # FLOATs


class Rows(NamedTuple):
    """The problem: the loss of so many rows with a reduction."""

    dtype: DType
    rows: int
    classes: int
    mean: bool
    ignore_index: int

    @classmethod
    def of(cls, plan: Plan) -> Rows:
        numbers, dtype = plan.numbers, plan.outputs[-1].dtype
        return cls(dtype, prod(plan.shape), plan.classes, numbers["mean"], numbers["ignore_index"])


def _told(step: Rows, backward: bool) -> dict[str, Any]:
    """The arguments of a step's kernels by their names. Behind what is expected are two FLOATs for each row: the largest logit, and the sum of the others' powers."""
    names = ("gradient", "x", "target", "expected", "memory", "out", "scratch") if backward else ("x", "target", "memory", "loss", "expected", "out", "scratch")  # fmt: skip
    dtypes = {"target": "int64", "expected": "float32", "memory": "float32", "scratch": "float64"}
    slots = {
        name: PointerArg(place, dtypes.get(name, step.dtype.numpy_name), wide=name in ("x", "out")) for place, name in enumerate(names)
    }  # fmt: skip
    return {
        **slots, "parts": slots["expected"]._replace(shift=4 * EXPECTED), "rows": step.rows, "classes": step.classes,
        "ignore_index": ignored_class(step.ignore_index), "MEAN": step.mean,
    }  # fmt: skip


TILES = {
    4: {16384: (16, 8), 32768: (16, 16), 131072: (32, 4), 262144: (16, 16)},
    2: {16384: (8, 8), 32768: (4, 32), 65536: (8, 4), 131072: (16, 4)},
}  # fmt: skip
"""By an element's bytes and the most classes: how many times a thread holds 16 bytes, and warps. Where such a tile has fewer
classes than the row, it holds a piece of it.

A step's time in times of a copy on an H200, and of loss and gradient one after the other: FLOAT of 32000, 65536, 128256 and 256000 classes
1.05, 1.08, 1.09 and 1.32 (1.50, 1.48, 1.48, 1.49), of 50257, where no row is aligned, 1.35 (1.57); BFLOAT16 of 24576, 32000, 50304 and 128256
1.53, 1.32, 1.49 and 1.42 (the second 1.58, then 1.55 and 1.53; without reading ahead 1.62 and 1.44 of the first two). Where 16 bits are in rows that are not all aligned, and of more classes, it gains nothing.
"""

FEWEST = MOST_CLASSES[True]  # up to so many classes `steps.py` serves
COUNTED = 8192  # rows that are counted at once
FULL = 32  # warps of a program that has a multiprocessor for itself
STAGES = 3  # rows that it has at once, two of them on their way into shared memory
FINISHED = 128  # rows whose losses a program adds up
RESERVED = 1 << 10  # bytes of shared memory that a program needs beside these
WIDE = 1024  # classes that a program of the LATE kernel writes at once
PROGRAMS = 2048  # programs of it, which keep a device busy


class Tile(NamedTuple):
    """A program holds `held` classes in each of `lanes` lanes, by so many warps; a row has so many pieces, and a program `stages` rows at once."""

    held: int
    lanes: int
    warps: int
    pieces: int
    stages: int


def tile_of(itemsize: int, classes: int) -> Tile:
    held, warps = next(tile for most, tile in TILES[itemsize].items() if classes <= most)
    lanes = warps * 32 * (VECTOR_BYTES // itemsize)
    return Tile(held, lanes, warps, -(-classes // (held * lanes)), STAGES if warps == FULL else 1)


def _runs(itemsize: int, tile: Tile) -> bool:
    """Whether the device has the clusters, or the shared memory, that the tile needs."""
    if tile.stages > 1:
        row = tile.held * tile.lanes * itemsize
        return (tile.stages - 1) * row + RESERVED <= limits()[1]
    return tile.pieces == 1 or has_clusters()


def serves(dtype: DType, rows: int, classes: int) -> bool:
    """Whether rows fit into registers, gain by that, and the device can run the tile."""
    itemsize = dtype.itemsize
    whole = itemsize == 4 or classes % (VECTOR_BYTES // itemsize) == 0
    fits = whole and FEWEST < classes <= max(TILES[itemsize])
    few = rows * -(-classes // WIDE) < INT32_LIMIT
    return fits and few and _runs(itemsize, tile_of(itemsize, classes))


@functools.lru_cache(64)
def loss_runner(step: Rows) -> Runner:
    """The runner of loss and gradient."""
    named, rows, classes = _told(step, backward=False), step.rows, step.classes
    sums, blocks = named["scratch"], -(-rows // FINISHED)
    tile, unit = tile_of(step.dtype.itemsize, classes), power_of_two_divisor(classes)
    programs = rows * tile.pieces if tile.stages == 1 else min(rows, limits()[0])
    pieces = sums._replace(dtype="int64", shift=blocks * 16) if tile.pieces > 1 else None
    read = {
        **named, "pieces": pieces, "classes": classes // unit, "each": -(-classes // (tile.pieces * ROUND.value)), "UNIT": unit,
        "HELD": tile.held, "LANES": tile.lanes, "PIECES": tile.pieces, "WIDTH": next_power_of_two(tile.pieces), "STAGES": tile.stages,
    }  # fmt: skip
    finish = {
        "totals": None, "sums": sums, "loss": named["loss"], "square_out": None, "MEAN": named["MEAN"], "SQUARED": False, "WEIGHTED": False, "PARTS": 1,
    }  # fmt: skip
    narrow = {"x": named["x"]._replace(wide=False), "sums": sums, "ROWS": FINISHED}
    launches = (
        launched(expect, 1, {**named, "BLOCK": COUNTED}, 16),
        launched(loss_ahead, programs, read, tile.warps, cluster=tile.pieces),
        launched(losses_ahead, blocks, {**named, **narrow}, 4, follows=True),
        launch_of(spec_of(finish_loss, finish, follows=True), finish_of(blocks)),
    )
    return runner_of(launches, blocks * 16 + rows * tile.pieces * 8)


@functools.lru_cache(64)
def gradient_runner(step: Rows) -> Runner:
    """The runner of the gradient in the backward pass: all of it if another was expected, and in any case the elements at targets."""
    named, rows, classes = _told(step, backward=True), step.rows, step.classes
    unit, blocks = power_of_two_divisor(classes), -(-classes // WIDE)
    programs = min(rows * blocks, PROGRAMS)
    late = {**named, "classes": classes // unit, "blocks": blocks, "programs": programs, "UNIT": unit, "CLASSES": WIDE}  # fmt: skip
    narrow = {name: named[name]._replace(wide=False) for name in ("x", "out")}
    return runner_of([
        launched(gradient_late, programs, late, 4), launched(at_targets, -(-rows // FINISHED), {**named, **narrow, "ROWS": FINISHED}, 4),
    ])  # fmt: skip


class Steps(Launcher):
    """The launcher of a step's AHEAD or LATE kernel: by the row formula, or for long rows by the kernels of this module."""

    reduces = True

    def __init__(self, step: str) -> None:
        self._step = step

    def runner(self, plan: Plan) -> Runner:
        if plan.classes <= FEWEST:
            return steps.runner(plan, self._step)
        return (loss_runner if self._step == AHEAD else gradient_runner)(Rows.of(plan))


STEPS_AHEAD, STEPS_LATE = Steps(AHEAD), Steps(LATE)
