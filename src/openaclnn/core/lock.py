"""The interpreter's lock. Machine code that reads arrays and records holds it, so that nobody changes or ends them meanwhile."""

from __future__ import annotations

import sys

__all__ = ["check"]


def check() -> None:
    """ImportError in a free-threaded Python that runs without the lock."""
    enabled = getattr(sys, "_is_gil_enabled", None)  # Python 3.13 and later
    if enabled is not None and not enabled():
        raise ImportError(
            "openaclnn needs the interpreter's lock, and this free-threaded Python runs without it; "
            "start it with PYTHON_GIL=1 or -X gil=1"
        )
