"""The exit of a C program destroys LLVM's data. So it waits for the thread that is inside LLVM, and no thread enters LLVM after that.

The end of a Python program needs none of this: it takes longer than LLVM does, and Python's threads do not run after it.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Iterator
from typing import Any

_AT_WORK, _ENDING = range(2)
_ENDS_WITHIN = 2.0
"""Seconds that a thread sleeps instead of entering LLVM before it raises: the process is gone by then, unless its exit waits for the thread."""

_Words = ctypes.c_int32 * 2

_state: Any = _Words()
"""Two words: whether a thread is inside LLVM, and whether the process is exiting."""


def _no_c_program() -> None:
    """There is no C program."""


_watch: Callable[[], None] = _no_c_program


def watch_exit(state: int, watch: Callable[[], None]) -> None:
    """Set the address of the two words that the exit of a C program reads and writes, and the function that registers the exit handler: it runs before the data is
    destroyed that exists when the function is called."""
    global _state, _watch
    _state, _watch = _Words.from_address(state), watch
    _watch()  # so that an exit before LLVM is loaded is known, too


def note_loaded() -> None:
    """LLVM has been loaded: register the exit handler again, so that it runs before LLVM's data is destroyed."""
    _watch()


@contextlib.contextmanager
def inside_llvm() -> Iterator[None]:
    """The exit of the process waits until the block is left. At most one thread at a time may enter."""
    state = _state
    state[_AT_WORK] = 1
    try:
        _watch()  # for the data that LLVM has made since the last time
        if state[_ENDING]:
            state[_AT_WORK] = 0
            time.sleep(_ENDS_WITHIN)
            raise RuntimeError("a process that ends compiles no more")
        yield
    finally:
        state[_AT_WORK] = 0
