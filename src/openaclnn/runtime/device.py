"""What stands in for the NPU: the `Device` protocol, the host itself, and the choice by name."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Protocol

import numpy as np

from openaclnn.core.status import AclError
from openaclnn.runtime import config
from openaclnn.runtime.errors import refuse

__all__ = ["Device", "HostDevice", "device_named", "host", "known_devices", "register", "selected"]

ALIGNMENT = 64
"""Of every address that the runtime hands out, in bytes."""


class Device(Protocol):
    """Memory and copies of one kind of device; `name` is also the device of tensors on it.

    `allocate` gives an aligned address and an owner; the memory lives as long as the owner does,
    so that a task still queued may hold on to memory that the program has freed already.
    """

    @property
    def name(self) -> str: ...

    @property
    def count(self) -> int: ...

    def enter(self) -> None: ...

    def capacity(self) -> int: ...

    def cores(self) -> int: ...

    def cache_size(self) -> int: ...

    def allocate(self, size: int) -> tuple[int, object]: ...

    def allocate_host(self, size: int) -> tuple[int, object]: ...

    def copy(self, target: int, source: int, count: int) -> None: ...

    def fill(self, address: int, value: int, count: int) -> None: ...

    def open_stream(self) -> int: ...

    def is_done(self, stream: int) -> bool: ...

    def drain(self, stream: int) -> None: ...

    def close_stream(self, stream: int) -> None: ...


class HostDevice:
    """Device memory that is ordinary memory of this process."""

    name = "cpu"
    count = 1

    def enter(self) -> None: ...

    def capacity(self) -> int:
        return _physical_memory()

    def cores(self) -> int:
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1

    def cache_size(self) -> int:
        name = "SC_LEVEL2_CACHE_SIZE"
        return max(os.sysconf(name), 0) if name in os.sysconf_names else 0

    def allocate(self, size: int) -> tuple[int, object]:
        # Zeroed, which fresh pages are anyway: what a program reads of the padding is the same every time.
        block = np.zeros(size + ALIGNMENT, np.uint8)
        address: int = block.__array_interface__["data"][0]
        return -(-address // ALIGNMENT) * ALIGNMENT, block

    def allocate_host(self, size: int) -> tuple[int, object]:
        return self.allocate(size)

    def copy(self, target: int, source: int, count: int) -> None:
        ctypes.memmove(target, source, count)

    def fill(self, address: int, value: int, count: int) -> None:
        ctypes.memset(address, value, count)

    # A stream's tasks do their work themselves here: there is nothing behind them to wait for.
    def open_stream(self) -> int:
        return 0

    def is_done(self, stream: int) -> bool:
        return True

    def drain(self, stream: int) -> None: ...

    def close_stream(self, stream: int) -> None: ...


@functools.cache
def _physical_memory() -> int:
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    # In a container the machine's own size is not what the process may have.
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path, encoding="ascii") as file:
                limits.append(int(file.read()))
        except (OSError, ValueError):
            continue
    return min(limits)


_factories: dict[str, Callable[[], Device]] = {}
_devices: dict[str, Device] = {}


def register(name: str, factory: Callable[[], Device]) -> None:
    """Make a device known by name; `factory` is called when it is first used."""
    _factories[name] = factory


def known_devices() -> tuple[str, ...]:
    """The names that the configuration's "device" may have."""
    return tuple(sorted(_factories))


def device_named(name: str) -> Device:
    """The device of this name; the failure for an unknown one lists the known names."""
    found = _devices.get(name)
    if found is None:
        factory = _factories.get(name)
        if factory is None:
            code = AclError.ACL_ERROR_RT_DEV_SETUP_ERROR
            raise refuse(code, "device", f"one of {', '.join(known_devices())}", repr(name))
        found = _devices.setdefault(name, factory())
    return found


def selected() -> Device:
    """The device that the configuration names."""
    return device_named(config.device_name())


def _cuda(index: int) -> Device:
    from openaclnn.runtime.cuda import CudaDevice

    return CudaDevice(index)


host: Device = HostDevice()
register("cpu", lambda: host)
register("cuda", lambda: device_named("cuda:0"))
for _index in range(8):
    register(f"cuda:{_index}", functools.partial(_cuda, _index))
