"""Class kernels over row-major operands of any size: what depends on sizes is computed in each call.

A kernel's parameter block is made once for a kind of call; a call copies it and writes the slots that sizes decide.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core.plan import Plan
from openaclnn.engines.cpu import pool
from openaclnn.engines.cpu.classes import totals
from openaclnn.engines.cpu.registry import Runner

__all__ = ["Passes", "SizedRunner", "row_major", "runner_of", "sized_runner"]

SizedRunner = Callable[[Sequence[int], int, tuple[int, ...]], int]
"""Of the operands' addresses, a stream and the output's shape; not 0 where the full way must look, below 0 where nothing ran."""

KEPT = 64  # shapes whose block is kept: a repeated size costs nothing more


class Passes(NamedTuple):
    """A problem of one size: the slots that it decides, and the launches it takes."""

    slots: Mapping[int, int]  # none where a block was made for this size
    kernel: int
    pieces: int
    grain: int
    sums: int = 0  # the kernel that leaves sums in scratch memory, if they are made first
    sum_blocks: int = 0
    clear: int = 0  # the kernel that clears the output, if that is done first
    spans: int = 0


def row_major(plan: Plan, names: Mapping[str, str], slots: Mapping[str, int]) -> dict[int, int]:
    """Slots that hold for every size: neighbouring positions and classes lie side by side."""
    found = {}
    parameters = {parameter: name for name, parameter in names.items()}
    for operand in (*plan.inputs, plan.output):
        name, item = parameters[operand.parameter], operand.dtype.itemsize
        if operand.role == "positions":
            found[slots[f"{name}.step2"]] = item
        elif operand.role == "classes":
            found[slots[f"{name}.class_step"]] = item
    return found


def sized_runner(
    block: array[int],
    fixed: Mapping[int, int],
    passes: Callable[[tuple[int, ...]], Passes | None],
    keep: Any,
) -> SizedRunner:
    """What runs a kernel for any shape, given the block of one; `passes` is None for shapes left to the full way."""
    template = block[:]
    for slot, value in fixed.items():
        template[slot] = value
    known: dict[tuple[int, ...], tuple[array[int], Passes]] = {}
    bound: dict[tuple[int, ...], Runner] = {}

    def arrange(shape: tuple[int, ...]) -> tuple[array[int], Passes] | None:
        found = passes(shape)
        if found is None:
            return None
        own = template[:]
        for slot, value in found.slots.items():
            own[slot] = value
        if len(known) >= KEPT:
            known.clear()
            bound.clear()
        known[shape] = made = (own, found)
        return made

    def run(addresses: Sequence[int], stream: int, shape: tuple[int, ...], keep: Any = keep) -> int:
        again = bound.get(shape)
        if again is not None:
            return again(addresses, stream)
        made = known.get(shape)
        if made is not None:  # for the second time: worth a builtin
            again = bound[shape] = runner_of(*made, keep)
            return again(addresses, stream)
        made = arrange(shape)
        return -1 if made is None else launched(made[1], made[0].buffer_info()[0], addresses)

    return run


def runner_of(block: array[int], one: Passes, keep: Any) -> Runner:
    """What runs a problem of one size, with its parameters."""
    at, held = block.buffer_info()[0], (block, keep)
    if not one.sums and not one.clear:
        return pool.bind(one.kernel, one.pieces, one.grain, at, 0, keep=held)

    def run(addresses: Sequence[int], stream: int = 0, keep: Any = held) -> int:
        return launched(one, at, addresses)

    return run


def launched(one: Passes, at: int, addresses: Sequence[int]) -> int:
    """Run a problem whose parameters lie at an address; its status word."""
    place, scratch = 0, None
    if one.sums:
        scratch = np.empty(2 * one.sum_blocks)
        place = scratch.ctypes.data
        pool.launch(one.sums, one.sum_blocks, totals.GRAIN, at, place, *addresses)
    if one.clear:
        pool.launch(one.clear, one.spans, 1, at, place, *addresses)
    return pool.launch(one.kernel, one.pieces, one.grain, at, place, *addresses)
