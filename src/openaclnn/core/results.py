"""Memory for results of calls without `out=`.

A fresh 64 MB array costs 3 ms of page faults, half as much as the operator that fills it. So once nobody uses a large result any
more, its memory is kept for the next result of about that size, up to a limit: 256 MB, or what `set_result_memory` or
`OPENACLNN_RESULT_MEMORY` says, and never more than an eighth of what the process may use.
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
"""The size in bytes from which memory of NumPy arrays is kept; NumPy caches smaller ones itself."""

LARGE_TENSOR = 1 << 23
"""The size in bytes from which memory of PyTorch tensors is kept; the system's allocator mostly reuses smaller ones itself."""

LINE = 64
"""The addresses of results are multiples of so many bytes."""

DEFAULT = 256 << 20
"""The default limit of bytes kept."""

SHARE = 8
"""The limit is at most one part in so many of the memory that the process may use."""

_free: OrderedDict[int, list[_Block]] = OrderedDict()  # by size, the oldest first
_limit: list[int] = []  # empty until the first large result
_free_bytes = [0]  # the sum of `_free`, which takes long to compute where there are many sizes


class _Block(np.ndarray[Any, Any]):
    """Memory that is lent again and again. A subclass, since NumPy makes the base of a view's view the plain array at the bottom."""

    __slots__ = ()


class _Lent(np.ndarray[Any, Any]):
    """A view of a block, and the base of a result's arrays: when the last of these is gone, this is deleted, and the block is free again."""

    __slots__ = ()

    def __del__(self) -> None:
        if isinstance(self.base, _Block):
            _keep(self.base)


def _keep(block: _Block) -> None:
    # Each operation on a built-in container is atomic, so no lock is needed.
    most, size = _limit[0], block.nbytes
    if size > most:
        return
    if _free_bytes[0] + size > most:
        _drop_beyond(most - size)
    _free.setdefault(size, []).append(block)
    _free_bytes[0] += size
    if _free_bytes[0] > most:  # where another thread kept one meanwhile
        _drop_beyond(most)


def _drop_beyond(limit: int) -> None:
    while _recount() > limit:
        try:
            _free.popitem(last=False)
        except KeyError:
            return


def _recount() -> int:
    """Compute the sum of free bytes anew, and return it."""
    _free_bytes[0] = size = kept_bytes()
    return size


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An uninitialised array, like `numpy.empty`."""
    size = dtype.itemsize
    for length in shape:
        size *= length
    if size < LARGE:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, buffer=_lent(size))


def empty_tensor(shape: Sequence[int], strides: Sequence[int], dtype: Any) -> Any:
    """An uninitialised PyTorch tensor in CPU memory, with strides without gaps; large ones in memory that is kept."""
    torch = sys.modules["torch"]
    size = dtype.itemsize
    for length in shape:
        size *= length
    lent = None
    if size >= LARGE_TENSOR:
        with suppress(MemoryError, ValueError):  # PyTorch then raises its own error
            lent = _lent(size)
    with undisturbed():
        if lent is None:
            return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")
        memory = torch.from_numpy(np.asarray(lent)[:size]).untyped_storage()
        # `set_` makes no view of another tensor, which autograd would track.
        return torch.empty(0, dtype=dtype, device="cpu").set_(memory, 0, shape, strides)


def _lent(size: int) -> _Lent:
    """So many bytes or a few more, which are free again when nobody views them. Takes 2 us; page faults of a fresh MB take 50."""
    size = _rounded_up(size)
    if not _limit:
        limit()
    try:
        block = _free[size].pop()
        _free_bytes[0] -= size
    except (KeyError, IndexError):
        _recount()  # whenever memory is added: threads that change the sum at once may lose an update
        memory = np.empty(size + LINE, np.uint8)
        start = -memory.ctypes.data % LINE
        block = memory[start : start + size].view(_Block)
    return block.view(_Lent)


def _rounded_up(size: int) -> int:
    """The size that is allocated: up to an eighth more, so that batches of varying length use each other's memory again."""
    step = 1 << size.bit_length() - 4
    return -(-size // step) * step


def limit() -> int:
    """The limit of bytes kept. The environment and the machine are read at the first large result."""
    if not _limit:
        text = os.environ.get("OPENACLNN_RESULT_MEMORY", "").strip()
        if text and not text.isdecimal():
            raise ValueError(f"OPENACLNN_RESULT_MEMORY must be a number of bytes, got {text!r}")
        _limit.append(min(int(text) if text else DEFAULT, usable_memory() // SHARE))
    return _limit[0]


def set_result_memory(size: int) -> None:
    """Keep the memory of large results for the next that are about as large, up to so many bytes; 0 keeps none.

    The default is 256 MB, and the limit is never more than an eighth of the memory that the process may use
    (the machine's, its control group's, its address space's). The environment variable `OPENACLNN_RESULT_MEMORY` sets it, too.
    It holds for NumPy arrays from 1 MB on and PyTorch CPU tensors from 8 MB on; other memory is allocated by its own
    library.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError(f"the memory for results must be a number of bytes, got {size!r}")
    _limit[:] = [min(size, usable_memory() // SHARE)]
    _drop_beyond(_limit[0])


def clear_results() -> None:
    """Give the memory that is kept back to the system; memory of later results is kept again."""
    _free.clear()
    _free_bytes[0] = 0


def kept_bytes() -> int:
    """How many bytes are free to be used again."""
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
    """Bytes of the CPU's caches by level, from Linux's files: Python has no names for the C library's `sysconf` values."""
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
    """The limits of the process's control group and its parents, in both versions of the interface."""
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
        # Inside a container the path may be the host's; the container's own group is then at the mount.
        inner = PurePosixPath(place.lstrip("/"))
        for group in (inner, *inner.parents):
            with suppress(OSError, ValueError):  # no such file, or "max"
                yield int((folder / group / name).read_text())


@contextmanager
def undisturbed() -> Iterator[None]:
    """A block in which PyTorch, which has been imported, makes plain tensors in memory. Modes, transforms, tracers and a default device of
    this thread are passed by: their tensors may have no memory, or more than their shape says, or end with a block.
    """
    no_functions, below = below_all()
    with no_functions, below:
        yield
