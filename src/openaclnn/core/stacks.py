"""Stacks of threads: by default as large as `ulimit -s` says, which may be less than a kernel needs."""

from __future__ import annotations

import _thread
import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["stacks_of"]

_lock = _thread.allocate_lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


@contextmanager
def stacks_of(size: int) -> Iterator[None]:
    """Threads that Python starts in this block have so many bytes; the setting is the process's."""
    with _lock:
        before = _thread.stack_size(size)
        try:
            yield
        finally:
            _thread.stack_size(before)
