"""The OpenMP runtime that other libraries of this process run on, if there is one.

After each parallel region OpenMP's threads spin, on x86-64 for milliseconds, and keep the CPUs that other threads
would want. Beside such a team only the team itself is fast, so that large kernels run on it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

_LOADED = getattr(os, "RTLD_NOLOAD", 0) | getattr(os, "RTLD_LAZY", 0)


class Runtime(NamedTuple):
    """GOMP_parallel, which libgomp, libomp and libiomp5 all have, how many threads a region may get, and inside of one, a thread's number and how many there are."""

    library: str  # through which it was found
    parallel: Any
    max_threads: Callable[[], int]
    thread_number: Callable[[], int]
    members: Callable[[], int]


def at_home() -> Runtime | None:
    """PyTorch's runtime where PyTorch is loaded, else the first that is; None where there is none."""
    if sys.platform != "linux":
        return None
    for path in _candidates():
        if path in _others:
            continue
        try:
            library = ctypes.CDLL(path, mode=_LOADED)  # finds what it was linked with, too
            return Runtime(
                path,
                library.GOMP_parallel,
                library.omp_get_max_threads,
                library.omp_get_thread_num,
                library.omp_get_num_threads,
            )
        except OSError:
            continue
        except AttributeError:
            _others.add(path)
    return None


_others: set[str] = set()  # libraries that have no OpenMP: asking all that are loaded takes 7 ms


def _candidates() -> Iterator[str]:
    place = getattr(sys.modules.get("torch"), "__file__", None)
    if place:
        yield str(Path(place).parent / "lib" / "libtorch_cpu.so")
    with suppress(OSError):
        lines = Path("/proc/self/maps").read_text().splitlines()
        yield from dict.fromkeys(
            words[5] for words in map(str.split, lines) if len(words) > 5 and ".so" in words[5]
        )
