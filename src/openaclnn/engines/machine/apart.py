"""Work on a thread of its own: a stack that is large enough, and nothing that interrupts it.

LLVM wants more stack than the threads of some programs have, and must not be left in the middle: an exception that a
signal handler raises, in Python's main thread, waits until the work is over.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import TypeVar

from openaclnn.core.rounding import standard
from openaclnn.core.stacks import stacks_of

__all__ = ["run_apart"]

T = TypeVar("T")

_STACK = 16 << 20


def run_apart(work: Callable[[], T]) -> T:
    """What `work()` returns or raises."""
    done = _thread.allocate_lock()
    done.acquire()
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with standard():
                results.append(work())
        except BaseException as error:
            failures.append(error)
        finally:
            done.release()

    if not _started(run):
        run()
    interrupt: BaseException | None = None
    while not results and not failures:  # true as soon as the lock can be had, however we leave it
        try:
            done.acquire()
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
    if failures:
        raise failures[0]
    return results[0]


def _started(run: Callable[[], None]) -> bool:
    """False where there can be no more threads, or the interpreter is ending."""
    with stacks_of(_STACK):
        try:
            _thread.start_new_thread(run, ())
        except RuntimeError:
            return False
    return True
