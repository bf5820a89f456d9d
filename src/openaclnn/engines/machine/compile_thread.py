"""Runs the compiler on another thread, which has a large enough stack, and where no signal handler interrupts it.

LLVM wants more stack than the threads of some programs have, and must not be left in the middle: an exception that a
signal handler raises, in Python's main thread, waits until the work is over.
"""

from __future__ import annotations

import _thread
import mmap
from collections.abc import Callable
from typing import TypeVar, cast

from openaclnn.core.forks import acquire_in_turns, stacks_of
from openaclnn.core.rounding import standard

T = TypeVar("T")

_STACK = 16 << 20
_ROOM = _STACK + (8 << 20)
_NO_ROOM = "there is no memory for a thread to compile on"


def run_uninterrupted(work: Callable[[], T]) -> T:
    """Call `work()` on another thread, or here if there can be none. Returns what it returns, or raises what it raises."""
    _check_room()
    try:
        done, begun = _thread.allocate_lock(), _thread.allocate_lock()
    except RuntimeError:  # for want of memory, says Python
        raise MemoryError(_NO_ROOM) from None
    done.acquire()
    results: list[T | None] = [None]  # lists of one, since there may be no memory to append
    failures: list[BaseException | None] = [None]
    ended = [False]

    def run() -> None:
        if not begun.acquire(False):
            return
        try:
            with standard():
                results[0] = work()
        except BaseException as error:
            failures[0] = error
        finally:
            ended[0] = True
            done.release()

    if not _started(run):
        run()
    interrupt: BaseException | None = None
    while not ended[0]:  # set before the lock is released, so it holds if waiting was interrupted
        try:
            woken = acquire_in_turns(done)
        except BaseException as error:
            interrupt = error
            continue
        if not woken and begun.acquire(False):  # the thread ended before `run` began
            raise MemoryError(_NO_ROOM)
    if interrupt is not None:
        raise interrupt
    if failures[0] is not None:
        raise failures[0]
    return cast(T, results[0])


def _check_room() -> None:
    """MemoryError where a thread would find too little: C's library ends the process if a thread cannot have its variables."""
    try:
        mmap.mmap(-1, _ROOM).close()
    except OSError:
        raise MemoryError(_NO_ROOM) from None


def _started(run: Callable[[], None]) -> bool:
    """Start a thread. False if there can be no more threads, or the interpreter is ending."""
    with stacks_of(_STACK):
        try:
            _thread.start_new_thread(run, ())
        except RuntimeError:
            return False
    return True
