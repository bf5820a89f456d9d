"""Plans of several steps: what runs them on an engine, one after the other, with scratch memory between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import numpy as np

from openaclnn.core.plan import Plan

Runner = Callable[[Sequence[int], int], int]
Memory = Callable[[int, int], AbstractContextManager[int]]
"""Lends so many bytes to what is queued on a stream meanwhile."""

LINE = 64  # bytes that memory begins at a multiple of


def objection(plan: Plan, declines: Callable[[Plan], str | None]) -> str | None:
    """Why an engine does not serve a step; None if it serves all."""
    return next(filter(None, (declines(step.plan) for step in plan.steps)), None)


def stepped(plan: Plan, prepare: Callable[[Plan], Runner], memory: Memory) -> Runner:
    """What runs all steps."""
    runners = [(prepare(step.plan), step.places) for step in plan.steps]

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        with memory(plan.scratch, stream) as scratch:
            every = (*addresses, scratch)
            for run_step, places in runners:
                run_step(tuple([every[place] for place in places]), stream)
        return 0

    return run


@contextmanager
def host_memory(size: int, stream: int) -> Iterator[int]:
    """Of engines whose work has ended when they return."""
    held = np.empty(size + LINE, np.uint8)
    yield held.ctypes.data + -held.ctypes.data % LINE
