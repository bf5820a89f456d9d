"""The floating-point mode of a thread. Calls compute in IEEE 754's default mode, whatever the caller has set: they round to
nearest-even and keep subnormal numbers.

A program that flushes them (`torch.set_flush_denormal`, a C program built with -ffast-math) or rounds otherwise has its mode
back when the call returns. Machine code and C set the mode with instructions, Python by this module.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TINY, _SLIGHT = 5e-324, 2.0**-80
_ENVIRONMENT_BYTES = 64  # more than any C library's fenv_t has
_DEFAULT = ctypes.c_void_p(-1)  # FE_DFL_ENV of glibc and musl


def is_standard() -> bool:
    """Whether this thread is in IEEE 754's default mode, by the results of some sums; takes 0.1 us."""
    return _TINY + _TINY != 0.0 and 1.0 + _SLIGHT == 1.0 and 1.0 - _SLIGHT == 1.0


@contextmanager
def standard() -> Iterator[None]:
    """A block in IEEE 754's default mode; in the thread's mode where the C library cannot set it."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc is None or not hasattr(libc, "fesetenv"):
        yield
        return
    before = ctypes.create_string_buffer(_ENVIRONMENT_BYTES)
    libc.fegetenv(before)
    libc.fesetenv(_DEFAULT)
    try:
        yield
    finally:
        libc.fesetenv(before)
