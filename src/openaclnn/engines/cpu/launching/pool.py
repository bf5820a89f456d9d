"""Threads: `launch` runs a kernel on the caller and on workers that sleep in native code.

A kernel is `void(int64_t *arguments, int64_t start, int64_t stop)` at an address. Its arguments lie in the
caller's frame: arguments[0] is a status word, 0 at first, that `launch` returns; the rest are `launch`'s own.
Kernels must not depend on how [0, count) is cut.

Where PyTorch or another library runs on an OpenMP team whose threads spin, kernels run on that team (see
`engines/openmp.py`); both divide a kernel in the same way (`launcher.py`). Why not another layer elsewhere: after 5 ms of
idleness OpenMP loses 600 us on waking (and is dead after a fork), Numba's workqueue 80 (and aborts on two callers); this loses 25
hot and 40 after idleness. The kernel wakes a sleeper on the caller's CPU, which would serialise us, so workers are kept
off it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from openaclnn.core.forks import hold_over_forks
from openaclnn.engines import threads
from openaclnn.engines.cpu.launching import control as at
from openaclnn.engines.cpu.launching.launcher import (
    MEMBER,
    WORKER,
    BoundBlock,
    emit_entry,
    emit_member,
    emit_worker,
)
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.builtins import address_of_function, builtin

_STACK = 1 << 20  # of a worker, whatever `ulimit -s` says
_ATTRIBUTE_BYTES = 64  # no C library's pthread_attr_t is larger
_SIGNAL_SET_BYTES = 128  # nor sigset_t

_CONTROL = np.zeros(at.WORKERS + at.MAX_WORKERS * at.WORKER_SLOTS, np.int64)
_CONTROL_AT: int = _CONTROL.ctypes.data


@functools.cache
def native() -> Callable[..., int]:
    """The builtin `launch` itself. It costs 0.2 us a call; a Numba dispatcher would 0.7."""
    return builtin("pool.entry", emit_entry, _CONTROL_AT)


_lock = threading.Lock()
_state = {"started": False, "workers": 0}
# macOS has no unnamed semaphores and Windows none of this: there a kernel runs on its caller alone.
_supported = sys.platform == "linux"


def get_num_threads() -> int:
    """How many threads share a large kernel, the caller included."""
    return min(threads.get_num_threads(), at.MAX_WORKERS + 1) if _supported else 1


def _restart() -> None:
    with _lock:
        _start()


def reconsider() -> None:
    """Another library came: its threads may be the ones to run on."""
    if _state["started"]:
        _restart()


threads.listeners.append(_restart)


def ensure_started() -> None:
    """Have the workers running."""
    with _lock:
        if not _state["started"]:
            _start()


def _start() -> None:
    """Have an OpenMP team or workers ready, and say how many to use; without POSIX semaphores, none."""
    wanted = get_num_threads() - 1  # first: a number that cannot be is refused every time
    team = threads.team_in_use()
    if team is not None:
        asks = threads.chosen_number() is None
        _CONTROL[at.TEAM_BODY] = cache.compiled("pool.member", emit_member, MEMBER)
        _CONTROL[at.TEAM_RANK] = address_of_function(team.thread_number)
        _CONTROL[at.TEAM_MEMBERS] = address_of_function(team.members)
        _CONTROL[at.TEAM_SIZE] = address_of_function(team.max_threads) if asks else 0
        _CONTROL[at.ACTIVE] = max(wanted, 1) if asks else wanted
        _CONTROL[at.TEAM] = address_of_function(team.parallel)
        _ready()
        return
    _CONTROL[at.TEAM] = 0
    if wanted > _state["workers"] and _load_functions():
        start = cache.compiled("pool.worker", emit_worker, WORKER)
        with _signals_blocked():
            while _state["workers"] < wanted and _create(start, _state["workers"]):
                _state["workers"] += 1
    _CONTROL[at.AVOID] = -1
    _CONTROL[at.ACTIVE] = min(wanted, _state["workers"])
    _ready()


def _ready() -> None:
    """Last: what a lack of memory ended before is begun again by the next call."""
    _state["started"] = True
    _CONTROL[at.STARTED] = 1


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Signals are for the interpreter's threads; workers inherit this mask. By C's functions: Python's make hundreds of objects of it."""
    libc = ctypes.CDLL(None)
    every, before = (ctypes.create_string_buffer(_SIGNAL_SET_BYTES) for _ in range(2))
    libc.sigfillset(every)
    libc.pthread_sigmask(signal.SIG_BLOCK, None, before)
    try:
        libc.pthread_sigmask(signal.SIG_BLOCK, every, None)
        yield
    finally:
        libc.pthread_sigmask(signal.SIG_SETMASK, before, None)


def _load_functions() -> bool:
    """Find the C library's functions; False where this platform lacks one that is needed."""
    libc = ctypes.CDLL(None)
    needed = ("sem_wait", "sem_post", "sem_init", "pthread_create")
    if not all(hasattr(libc, name) for name in needed):
        return False
    _CONTROL[at.SEM_WAIT] = address_of_function(libc.sem_wait)
    _CONTROL[at.SEM_POST] = address_of_function(libc.sem_post)
    cpus = os.sched_getaffinity(0)
    if hasattr(libc, "sched_getcpu") and hasattr(libc, "pthread_setaffinity_np"):
        _CONTROL[at.GETCPU] = address_of_function(libc.sched_getcpu)
        _CONTROL[at.SET_AFFINITY] = address_of_function(libc.pthread_setaffinity_np)
        mask = _CONTROL[at.MASK : at.MASK + at.MASK_SLOTS].view(np.uint64)
        mask[:] = 0
        for cpu in cpus:
            if cpu < 64 * at.MASK_SLOTS:
                mask[cpu // 64] |= np.uint64(1 << cpu % 64)
        _CONTROL[at.CPUS] = len(cpus)
    return True


def _create(start: int, index: int) -> bool:
    first = at.WORKERS + index * at.WORKER_SLOTS
    if _CONTROL[first + at.HANDLE]:
        return True  # an interrupt came before it was counted
    try:
        return _begin(start, index, first)
    except ctypes.ArgumentError:  # its word where there is no memory for an argument
        return False


def _begin(start: int, index: int, first: int) -> bool:
    libc = ctypes.CDLL(None)
    worker = _CONTROL_AT + 8 * first
    _CONTROL[first + at.CONTROL], _CONTROL[first + at.RANK] = _CONTROL_AT, index + 1
    for semaphore in (at.GO, at.DONE):
        if libc.sem_init(ctypes.c_void_p(worker + 8 * semaphore), 0, 0) != 0:
            return False
    handle = ctypes.c_void_p(worker + 8 * at.HANDLE)
    attributes = ctypes.create_string_buffer(_ATTRIBUTE_BYTES)
    libc.pthread_attr_init(attributes)
    libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(_STACK))
    argument = ctypes.c_void_p(worker)
    failed: int = libc.pthread_create(handle, attributes, ctypes.c_void_p(start), argument)
    if failed:
        _CONTROL[first + at.HANDLE] = 0
    libc.pthread_attr_destroy(attributes)
    return failed == 0


def _after_fork_in_child() -> None:
    """Only the forking thread lives on: forget the workers; the next large call makes new ones."""
    _CONTROL[at.BUSY] = _CONTROL[at.ACTIVE] = _CONTROL[at.STARTED] = _CONTROL[at.TEAM] = 0
    _CONTROL[at.WORKERS + at.HANDLE :: at.WORKER_SLOTS] = 0
    _state.update(started=False, workers=0)


hold_over_forks(_lock, _after_fork_in_child)


def control_address() -> int:
    """Where the control block lies, for code that launches kernels itself."""
    native()
    return _CONTROL_AT


def check_fit(count: int) -> None:
    """ValueError where a kernel cannot be given so many arguments."""
    if count > at.MAX_ARGUMENTS:
        raise ValueError(f"a kernel takes up to {at.MAX_ARGUMENTS} arguments, not {count}")


def launch(kernel: int, count: int, grain: int, *arguments: int) -> int:
    """Run `kernel` over [0, count) and return its status word; up to `grain` units stay on this thread."""
    if count > grain and not _state["started"]:
        ensure_started()
    check_fit(len(arguments))
    return native()(kernel, count, grain, *arguments)


def bind(
    kernel: int, count: int, grain: int, *constants: int, keep: Any = None
) -> Callable[[Sequence[int], int], int]:
    """An engine's runner: `run(addresses, stream)` launches the kernel with the constants, then the addresses.

    `keep` lives as long as the runner: the arrays that constants point into.
    """
    entry = native()

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        check_fit(len(constants) + len(addresses))
        if count > grain and not _state["started"]:
            ensure_started()
        return entry(kernel, count, grain, *constants, *addresses)

    return BoundBlock(_CONTROL_AT, kernel, count, grain, constants, keep).function(run)
