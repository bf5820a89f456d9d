"""What a problem with classes launches: sums that are made first, a clearing of the output, the kernel itself."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from openaclnn.engines.cpu.classes.shared import totals
from openaclnn.engines.cpu.launching import pool
from openaclnn.engines.cpu.registry import Runner

__all__ = ["Passes", "runner_of"]


class Passes(NamedTuple):
    """The launches of a problem: kernels by address, and over how many pieces."""

    kernel: int
    pieces: int
    grain: int
    sums: int = 0  # the kernel that leaves sums in scratch memory, if they are made first
    sum_blocks: int = 0
    clear: int = 0  # the kernel that clears the output, if that is done first
    spans: int = 0


def runner_of(block: array[int], one: Passes, keep: Any = None) -> Runner:
    """What runs a problem of one size, with its parameters."""
    at, held = block.buffer_info()[0], (block, keep)
    if not one.sums and not one.clear:
        return pool.bind(one.kernel, one.pieces, one.grain, at, 0, keep=held)

    def run(addresses: Sequence[int], stream: int = 0, keep: Any = held) -> int:
        place, scratch = 0, None
        if one.sums:
            scratch = np.empty(2 * one.sum_blocks)
            place = scratch.ctypes.data
            pool.launch(one.sums, one.sum_blocks, totals.GRAIN, at, place, *addresses)
        if one.clear:
            pool.launch(one.clear, one.spans, 1, at, place, *addresses)
        return pool.launch(one.kernel, one.pieces, one.grain, at, place, *addresses)

    return run
