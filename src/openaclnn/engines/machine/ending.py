"""The end of a C program takes LLVM's data away: it waits for who is inside, and nobody goes in any more.

Python's own end needs nothing of this: it takes longer than LLVM does, and threads of Python's do not go on after it.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Iterator
from typing import Any

_AT_WORK, _ENDING = range(2)
_ENDS_WITHIN = 2.0
"""Seconds after which a thread that may not go inside is told so: the process is gone by then, unless its end waits for the thread."""

_Words = ctypes.c_int32 * 2

_state: Any = _Words()
"""Whether a thread is inside, and whether the process ends."""


def _nobody() -> None:
    """There is no C program."""


_watch: Callable[[], None] = _nobody


def hear_of_exit(state: int, watch: Callable[[], None]) -> None:
    """The address of the two words that a C program's end reads and writes, and what makes it do so before anything goes that is
    there when it is called."""
    global _state, _watch
    _state, _watch = _Words.from_address(state), watch
    _watch()  # an end that begins before LLVM is there is known, too


def loaded() -> None:
    """LLVM is there: from now on its data goes at the end."""
    _watch()


@contextlib.contextmanager
def inside_llvm() -> Iterator[None]:
    """Be waited for. For one thread at a time."""
    state = _state
    state[_AT_WORK] = 1
    try:
        _watch()  # what LLVM made since the last time goes, too
        if state[_ENDING]:
            state[_AT_WORK] = 0
            time.sleep(_ENDS_WITHIN)
            raise RuntimeError("a process that ends compiles no more")
        yield
    finally:
        state[_AT_WORK] = 0
