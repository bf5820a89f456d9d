"""Two kernels in one launch, the second on what the first left in scratch memory: for calls so small that launches, and
room for a few numbers, would take longer than they do.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from openaclnn.engines.cpu.launching import pool
from openaclnn.engines.cpu.launching.control import FIRST_ARGUMENT, MAX_ARGUMENTS, STATUS
from openaclnn.engines.cpu.launching.launcher import TINY
from openaclnn.engines.cpu.registry import Runner
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value

__all__ = ["ROOM", "bind_both"]

ROOM = 512  # FLOAT64s of scratch memory

# What comes before the addresses.
FIRST, COUNT, SECOND, ADDRESSES, OWN = range(5)


def bind_both(
    first: int, count: int, second: int, block: int, operands: int, tiny: bool, keep: Any
) -> Runner:
    """What runs `first` over [0, count), then `second`, of a class kernel's arguments: its parameter block, scratch memory
    and so many operands. `tiny`: both keep the interpreter's lock.
    """
    grain = TINY if tiny else 1
    return pool.bind(_both(), 1, grain, first, count, second, operands, block, keep=keep)


@functools.cache
def _both() -> int:
    return cache.compiled("in_turn.both", _emit)


def _emit(code: Code, arguments: Sequence[Value]) -> None:
    block = code.slots(arguments[0])
    given = block.at(FIRST_ARGUMENT)
    first, count, second, operands, own = (given.read(at) for at in range(OWN + 1))
    passed = code.frame("i64", FIRST_ARGUMENT + MAX_ARGUMENTS)
    passed.write(STATUS, 0)
    for place, word in enumerate((own, code.buffer("f64", ROOM)), FIRST_ARGUMENT):
        passed.write(place, word)
    with code.loop(0, operands) as index:
        passed.write(index + (FIRST_ARGUMENT + 2), given.read(index + (OWN + 1)))
    code.call(first, None, passed, 0, count)
    code.call(second, None, passed, 0, 1)
    block.write(STATUS, passed.read(STATUS))
