"""Threads survive neither a fork nor the end of the interpreter: who has some, or waits for some, is told of both."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from typing import Protocol

__all__ = ["hold_exit", "tell_of_exit", "tell_of_fork"]

_EXIT_SECONDS = 5.0
"""How long the end of the interpreter waits for work that nobody synchronised."""


class _Forked(Protocol):
    def start_afresh(self) -> None: ...


class _Ending(Protocol):
    def end(self, deadline: float) -> None: ...


_forked: weakref.WeakSet[_Forked] = weakref.WeakSet()
_ending: weakref.WeakSet[_Ending] = weakref.WeakSet()
_held = False


def tell_of_fork(thing: _Forked) -> None:
    """Have `start_afresh` called in the child of a fork, which has none of the threads: their work is the parent's."""
    _forked.add(thing)


def tell_of_exit(thing: _Ending) -> None:
    """Have `end` called when the interpreter ends, if there was work (`hold_exit`)."""
    _ending.add(thing)


def hold_exit() -> None:
    """There is work from now on; handlers that a program registered before this run after it is done."""
    global _held
    if not _held:
        _held = True
        atexit.register(_end_all)


def _end_all() -> None:
    deadline = time.monotonic() + _EXIT_SECONDS
    for thing in list(_ending):
        thing.end(deadline)


def _start_all_afresh() -> None:
    for thing in list(_forked):
        thing.start_afresh()


os.register_at_fork(after_in_child=_start_all_afresh)
