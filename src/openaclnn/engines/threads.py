"""How many threads the CPU engine may use; results never depend on it."""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["get_num_threads", "set_num_threads"]

_chosen: list[int] = []

listeners: list[Callable[[], None]] = []
"""Called when the number changes."""


def _default() -> int:
    text = os.environ.get("OPENACLNN_NUM_THREADS", "").strip()
    if text:
        if not text.isdigit() or int(text) < 1:
            raise ValueError(f"OPENACLNN_NUM_THREADS must be a positive integer, got {text!r}")
        return int(text)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def get_num_threads() -> int:
    """The number of threads a large call may use: `set_num_threads`, else `OPENACLNN_NUM_THREADS`, else all.

    The environment is read by the first large call; what is not a number is refused by every one.
    """
    if not _chosen:
        _chosen.append(_default())
    return _chosen[0]


def set_num_threads(count: int) -> None:
    """Let large calls use this many threads from now on."""
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"the number of threads must be a positive integer, got {count!r}")
    _chosen[:] = [count]
    for listener in listeners:
        listener()
