"""Forks, threads and the interpreter's lock. A fork copies the calling thread alone: a lock that another thread held stays locked in the child for ever, and
the data that it guards may be half changed. So our locks are taken before a fork.

The same holds for Python's import lock, and calls import and compile modules when they first need them; so a fork waits until no thread is
inside an `undivided` function.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from _thread import LockType
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_FORK_SECONDS = 60.0
"""Seconds that a fork waits at most: a thread inside an undivided function may itself wait for the forking thread."""
_ATTEMPTS = 50
"""Tenths of a second that a started thread has to begin: without memory it ends before its first line, and nothing reports that."""
_STEP = 0.0005
_YIELD_SECONDS = 0.1
"""Seconds that a thread lets a waiting fork go first, at most: a thread that the fork waits for may wait for this one."""

_NO_FORK, _WAITING, _FORKING = range(3)


class _Fork:
    """The state of a fork in progress. The interpreter's lock makes each read and write of `state` atomic."""

    state = _NO_FORK
    gate = threading.Lock()  # held from its beginning to its end
    held: list[tuple[Any, Callable[[], None] | None]] = []
    taken: list[Any] = []


def hold_over_forks(lock: Any, in_child: Callable[[], None] | None = None) -> None:
    """Take the lock before each fork and release it after, in the parent and, after `in_child()`, in the child.

    A thread that holds the lock may take locks that were registered before it, but not later ones.
    """
    _Fork.held.append((lock, in_child))


def undivided(function: Callable[P, T]) -> Callable[P, T]:
    """Decorates a function: no other thread forks while a thread is inside it. The cost is that of a call."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        while _Fork.state != _NO_FORK:
            _yield_to_fork()
            if _Fork.state == _WAITING:
                break
        return function(*args, **kwargs)

    _WRAPPER_CODES.add(wrapper.__code__)  # type: ignore[attr-defined]
    return wrapper


_WRAPPER_CODES: set[Any] = set()  # a single code object, which all wrappers share


def _yield_to_fork() -> None:
    if _Fork.gate.acquire(timeout=_YIELD_SECONDS):
        _Fork.gate.release()


def _is_inside(frame: FrameType | None) -> bool:
    """Whether a thread is inside an undivided function; not if it has only yielded to the fork at its first one."""
    depth = 0
    waits = frame is not None and frame.f_code is _yield_to_fork.__code__
    while frame is not None:
        depth += frame.f_code in _WRAPPER_CODES
        frame = frame.f_back
    return depth > waits


def _others_inside() -> bool:
    caller = threading.get_ident()
    return any(_is_inside(top) for thread, top in sys._current_frames().items() if thread != caller)


def _before() -> None:
    _Fork.gate.acquire()
    _Fork.taken.append(_Fork.gate)
    deadline = time.monotonic() + _FORK_SECONDS
    while time.monotonic() < deadline:
        _Fork.state = _FORKING  # from now on no thread enters an undivided function
        if not _others_inside() and _take_all():
            return
        _Fork.state = _WAITING
        time.sleep(_STEP)
    _Fork.state = _FORKING


def _take_all() -> bool:
    """Take all registered locks. Take none and return False where one is not free: the thread that holds it may be yielding to the fork."""
    for lock, _ in reversed(_Fork.held):
        if not lock.acquire(timeout=_YIELD_SECONDS):
            _release(keep=1)
            return False
        _Fork.taken.append(lock)
    return True


def _release(keep: int = 0) -> None:
    while len(_Fork.taken) > keep:
        _Fork.taken.pop().release()


def _after() -> None:
    _Fork.state = _NO_FORK
    _release()


def _after_in_child() -> None:
    for _, in_child in _Fork.held:
        if in_child is not None:
            in_child()
    _after()


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)

_stack_size = threading.Lock()
hold_over_forks(_stack_size)


@contextmanager
def stacks_of(size: int) -> Iterator[None]:
    """Threads that Python starts in this block have stacks of so many bytes. The setting is the process's. The default is
    `ulimit -s`, which may be less than a kernel needs.
    """
    with _stack_size:
        before = threading.stack_size(size)
        try:
            yield
        finally:
            threading.stack_size(before)


def acquire_in_turns(lock: LockType) -> bool:
    """Take a lock that a thread releases which was just started; False after five seconds. It waits in fifty turns, so that seconds in which the whole
    process gets no CPU count as a single turn."""
    return any(lock.acquire(timeout=0.1) for _ in range(_ATTEMPTS))


def check_lock() -> None:
    """ImportError in a free-threaded Python without the interpreter's lock. Our machine code reads arrays and cache entries, and relies on
    the lock to keep other threads from changing or deleting them.
    """
    enabled = getattr(sys, "_is_gil_enabled", None)  # Python 3.13 and later
    if enabled is not None and not enabled():
        raise ImportError(
            "openaclnn needs the interpreter's lock, and this free-threaded Python runs without it; "
            "start it with PYTHON_GIL=1 or -X gil=1"
        )
