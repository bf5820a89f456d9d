"""Stacks of threads: by default as large as `ulimit -s` says, which may be less than a kernel needs."""

from __future__ import annotations

import _thread
from collections.abc import Iterator
from contextlib import contextmanager

from openaclnn.core.forks import hold_over_forks

__all__ = ["stacks_of"]

_lock = _thread.allocate_lock()
hold_over_forks(_lock)


@contextmanager
def stacks_of(size: int) -> Iterator[None]:
    """Threads that Python starts in this block have so many bytes; the setting is the process's."""
    with _lock:
        before = _thread.stack_size(size)
        try:
            yield
        finally:
            _thread.stack_size(before)
