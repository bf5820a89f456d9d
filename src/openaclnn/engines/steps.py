"""Plans of several steps: what runs them on an engine, one after the other, with scratch memory between them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from operator import itemgetter
from typing import Any

import numpy as np

from openaclnn.core.plan import Plan

Runner = Callable[[Sequence[int], int], int]
Memory = Callable[[int, int], AbstractContextManager[int]]
"""Lends so many bytes to what is queued on a stream meanwhile."""

LINE = 64  # bytes that memory begins at a multiple of
LITTLE = 1 << 13  # bytes up to which Python's own array takes less time than NumPy's


def objection(plan: Plan, declines: Callable[[Plan], str | None]) -> str | None:
    """Why an engine does not serve a step; None if it serves all."""
    return next(filter(None, (declines(step.plan) for step in plan.steps)), None)


def stepped(plan: Plan, prepare: Callable[[Plan], Runner], memory: Memory) -> Runner:
    """What runs all steps."""
    runners = [(prepare(step.plan), itemgetter(*step.places)) for step in plan.steps]

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        with memory(plan.scratch, stream) as scratch:
            every = (*addresses, scratch)
            for run_step, operands_of in runners:  # two at least: what is read, and what is written
                run_step(operands_of(every), stream)
        return 0

    return run


class HostMemory:
    """Of engines whose work has ended when they return."""

    __slots__ = ("_held",)

    def __init__(self, size: int, stream: int) -> None:
        room = size + LINE
        self._held: Any = array("q", bytes(-(-room // 8) * 8)) if room <= LITTLE else np.empty(room, np.uint8)  # fmt: skip

    def __enter__(self) -> int:
        held = self._held
        address: int = held.buffer_info()[0] if type(held) is array else held.ctypes.data
        return address + -address % LINE

    def __exit__(self, *raised: object) -> None:
        self._held = None
