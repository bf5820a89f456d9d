"""Forks: a child must not find a lock held for ever by a thread that it has not, nor what it guards half changed."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["hold_over_forks"]


def hold_over_forks(lock: Any) -> None:
    """Nobody else has the lock while a process forks; both sides begin with it free."""
    if hasattr(os, "register_at_fork"):  # Windows has no forks
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
