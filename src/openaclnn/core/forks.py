"""Forks, threads and the interpreter's lock. A child must not find a lock held for ever by a thread that it has not, nor what it guards half changed.

The same holds for modules: a child that was forked while another thread imports one waits for that thread for ever. Calls import and
compile what they need when they first need it, so a fork waits until no thread is in the middle of that.
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

_PATIENCE = 60.0
"""Seconds after which a fork goes on: a thread that waits for the forking one would keep it waiting for ever."""
_TENTHS = 50
"""Tenths of a second until a thread that does not begin is given up: without memory it ends before its first line, and nobody tells."""
_STEP = 0.0005
_STANDS_BACK = 0.1
"""Seconds that a thread waits for a fork that waits for others: one of those may be waiting for this thread."""

_NO_FORK, _WAITING, _FORKING = range(3)


class _Fork:
    """The fork that is under way. The interpreter's lock makes each reading and writing of `state` one step."""

    state = _NO_FORK
    gate = threading.Lock()  # held from its beginning to its end
    held: list[tuple[Any, Callable[[], None] | None]] = []
    taken: list[Any] = []


def hold_over_forks(lock: Any, in_child: Callable[[], None] | None = None) -> None:
    """Nobody else has the lock while a process forks; both sides begin with it free, the child after `in_child()`.

    Who holds it may take those that were registered before it.
    """
    _Fork.held.append((lock, in_child))


def undivided(function: Callable[P, T]) -> Callable[P, T]:
    """No fork of another thread happens while a thread is in this function. It costs nothing but the call."""

    @functools.wraps(function)
    def whole(*args: P.args, **kwargs: P.kwargs) -> T:
        while _Fork.state != _NO_FORK:
            _stand_back()
            if _Fork.state == _WAITING:
                break
        return function(*args, **kwargs)

    _WHOLE.add(whole.__code__)  # type: ignore[attr-defined]
    return whole


_WHOLE: set[Any] = set()  # one code object, which all of these functions share


def _stand_back() -> None:
    if _Fork.gate.acquire(timeout=_STANDS_BACK):
        _Fork.gate.release()


def _is_inside(frame: FrameType | None) -> bool:
    """Whether a thread is in an undivided function; not if it is just standing back from its first."""
    depth = 0
    waits = frame is not None and frame.f_code is _stand_back.__code__
    while frame is not None:
        depth += frame.f_code in _WHOLE
        frame = frame.f_back
    return depth > waits


def _others_inside() -> bool:
    caller = threading.get_ident()
    return any(_is_inside(top) for thread, top in sys._current_frames().items() if thread != caller)


def _before() -> None:
    _Fork.gate.acquire()
    _Fork.taken.append(_Fork.gate)
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        _Fork.state = _FORKING  # nobody goes inside any more
        if not _others_inside() and _take_all():
            return
        _Fork.state = _WAITING
        time.sleep(_STEP)
    _Fork.state = _FORKING


def _take_all() -> bool:
    """All locks that there are by now; none of them where one cannot be had, since who has it may be standing back."""
    for lock, _ in reversed(_Fork.held):
        if not lock.acquire(timeout=_STANDS_BACK):
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
    """Threads that Python starts in this block have stacks of so many bytes; the setting is the process's. By default they are
    as large as `ulimit -s` says, which may be less than a kernel needs.
    """
    with _stack_size:
        before = threading.stack_size(size)
        try:
            yield
        finally:
            threading.stack_size(before)


def acquire_in_turns(lock: LockType) -> bool:
    """Take a lock that a thread frees which was just started; False after five seconds. Each tenth of a second is waited for by itself: where
    the process has no turn on any CPU for seconds, nor have its other threads."""
    return any(lock.acquire(timeout=0.1) for _ in range(_TENTHS))


def check_lock() -> None:
    """ImportError in a free-threaded Python that runs without the interpreter's lock: machine code that reads arrays and cache
    entries holds it, so that nobody changes or ends them meanwhile.
    """
    enabled = getattr(sys, "_is_gil_enabled", None)  # Python 3.13 and later
    if enabled is not None and not enabled():
        raise ImportError(
            "openaclnn needs the interpreter's lock, and this free-threaded Python runs without it; "
            "start it with PYTHON_GIL=1 or -X gil=1"
        )
