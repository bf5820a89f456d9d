"""Memory for results that the caller did not bring.

A fresh 64 MB array costs 3 ms of page faults, half as much as the operator that fills it. So the memory of
large results is kept for the next one that is about as large once nobody holds the last, up to a limit: 256 MB, or what
`set_result_memory` or `OPENACLNN_RESULT_MEMORY` says, and never more than an eighth of what the process may use.
"""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from openaclnn.core.torch_names import below_all

LARGE = 1 << 20
"""Bytes from which memory is kept; below, NumPy has its own means."""

LARGE_TENSOR = 1 << 23
"""The same of PyTorch's tensors: what is smaller the system's allocator mostly hands out again by itself."""

LINE = 64
"""Results begin at such a multiple of bytes."""

DEFAULT = 256 << 20
"""Bytes kept at the most where nobody says otherwise."""

SHARE = 8
"""No more than one part in so many of the memory that the process may use."""

_free: OrderedDict[int, list[_Block]] = OrderedDict()  # by size, the oldest first
_limit: list[int] = []  # empty until the first large result
_waiting = [0]  # bytes in `_free`, which take long to count where there are many sizes


class _Block(np.ndarray[Any, Any]):
    """Memory that is lent again and again. Not a plain array: NumPy's views of views would look through to one."""

    __slots__ = ()


class _Lent(np.ndarray[Any, Any]):
    """A block under the arrays that view it: with the last of them it goes, and the block is free again."""

    __slots__ = ()

    def __del__(self) -> None:
        if isinstance(self.base, _Block):
            _keep(self.base)


def _keep(block: _Block) -> None:
    # Single operations on built-in containers: other threads cannot come in between.
    most, size = _limit[0], block.nbytes
    if size > most:
        return
    if _waiting[0] + size > most:
        _drop_beyond(most - size)
    _free.setdefault(size, []).append(block)
    _waiting[0] += size
    if _waiting[0] > most:  # where another thread kept one meanwhile
        _drop_beyond(most)


def _drop_beyond(limit: int) -> None:
    while _count() > limit:
        try:
            _free.popitem(last=False)
        except KeyError:
            return


def _count() -> int:
    """Count what waits."""
    _waiting[0] = waiting = kept_bytes()
    return waiting


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An uninitialised array, like `numpy.empty`."""
    size = dtype.itemsize
    for length in shape:
        size *= length
    if size < LARGE:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, buffer=_lent(size))


def empty_tensor(shape: Sequence[int], strides: Sequence[int], dtype: Any) -> Any:
    """An uninitialised tensor of PyTorch's in CPU memory, densely laid; large ones in memory that is kept."""
    torch = sys.modules["torch"]
    size = dtype.itemsize
    for length in shape:
        size *= length
    lent = None
    if size >= LARGE_TENSOR:
        with suppress(MemoryError, ValueError):  # which PyTorch has its own words for
            lent = _lent(size)
    with undisturbed():
        if lent is None:
            return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")
        memory = torch.from_numpy(np.asarray(lent)[:size]).untyped_storage()
        # Not a view of another tensor, which autograd would see in it.
        return torch.empty(0, dtype=dtype, device="cpu").set_(memory, 0, shape, strides)


def _lent(size: int) -> _Lent:
    """So many bytes or a few more, which come back when nobody views them any more. 2 us; a fresh MB costs 50 of page faults."""
    size = _room(size)
    if not _limit:
        limit()
    try:
        block = _free[size].pop()
        _waiting[0] -= size
    except (KeyError, IndexError):
        _count()  # as often as there is more memory, since threads without a common lock may lose a sum
        memory = np.empty(size + LINE, np.uint8)
        start = -memory.ctypes.data % LINE
        block = memory[start : start + size].view(_Block)
    return block.view(_Lent)


def _room(size: int) -> int:
    """What is allocated for so many bytes: up to an eighth more, so that batches of varying length find each other's memory."""
    step = 1 << size.bit_length() - 4
    return -(-size // step) * step


def limit() -> int:
    """Bytes kept at the most. The environment and the machine are read by the first large result."""
    if not _limit:
        text = os.environ.get("OPENACLNN_RESULT_MEMORY", "").strip()
        if text and not text.isdecimal():
            raise ValueError(f"OPENACLNN_RESULT_MEMORY must be a number of bytes, got {text!r}")
        _limit.append(min(int(text) if text else DEFAULT, usable_memory() // SHARE))
    return _limit[0]


def set_result_memory(size: int) -> None:
    """Keep the memory of large results for the next that are about as large, up to so many bytes; 0 keeps none.

    It is 256 MB where nobody says otherwise, and never more than an eighth of the memory that the process may use
    (the machine's, its control group's, its address space's). `OPENACLNN_RESULT_MEMORY` says the same for a whole
    process. It holds for NumPy's arrays from 1 MB on and PyTorch's CPU tensors from 8 MB on; others are allocated by
    their own libraries.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError(f"the memory for results must be a number of bytes, got {size!r}")
    _limit[:] = [min(size, usable_memory() // SHARE)]
    _drop_beyond(_limit[0])


def clear_results() -> None:
    """Give the memory that waits for the next result back to the system; later results are kept again."""
    _free.clear()
    _waiting[0] = 0


def kept_bytes() -> int:
    """How much memory waits to be used again."""
    return sum(size * len(blocks) for size, blocks in list(_free.items()))


_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 10, "M": 20, "G": 30}


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cache_sizes() -> dict[int, int]:
    """Bytes of the CPU's caches by their levels, as Linux tells them: the C library's names for them are not in Python."""
    sizes: dict[int, int] = {}
    for folder in _CACHES.glob("index*"):
        with suppress(OSError, ValueError, KeyError):
            level = int((folder / "level").read_text())
            size = (folder / "size").read_text().strip()  # such as 36608K
            sizes[level] = max(int(size[:-1]) << _UNITS[size[-1:]], sizes.get(level, 0))
    return sizes


def usable_memory() -> int:
    """The least of the machine's memory, the control groups' and the address space's limits, in bytes."""
    return min((_physical(), _address_space(), *_group_limits()))


def _physical() -> int:
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return sys.maxsize


def _address_space() -> int:
    with suppress(ImportError, AttributeError, ValueError, OSError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        return sys.maxsize if soft == resource.RLIM_INFINITY else soft
    return sys.maxsize


def _group_limits() -> Iterator[int]:
    """What the process's control group and those around it allow; both versions of the interface."""
    lines: list[str] = []
    with suppress(OSError):
        lines = _GROUPS.read_text().splitlines()
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if not controllers:
            folder, name = _MOUNT, "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = _MOUNT / "memory", "memory.limit_in_bytes"
        else:
            continue
        # Inside a container the place may be the host's, and the container's own group lies at the mount.
        inner = PurePosixPath(place.lstrip("/"))
        for group in (inner, *inner.parents):
            with suppress(OSError, ValueError):  # no such file, or "max"
                yield int((folder / group / name).read_text())


@contextmanager
def undisturbed() -> Iterator[None]:
    """A block in which PyTorch, which has been imported, makes tensors that are plain memory: below whoever stands between
    callers and memory in this thread (modes, transforms, tracers, a default device), whose tensors may have no memory, be
    larger than they say, or end with the block that they were made in.
    """
    no_functions, below = below_all()
    with no_functions, below:
        yield
