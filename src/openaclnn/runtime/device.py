"""The devices that stand in for the NPU: the host itself, or an NVIDIA GPU. They are chosen by name.

A GPU's memory, copies and streams go through the CUDA driver, by ctypes; every NVIDIA installation has the driver, and
kernels are the Triton engine's. The device's primary context is used, in which PyTorch and Triton work, too.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from openaclnn.core.interop import device_name
from openaclnn.core.results import cache_sizes, usable_cores, usable_memory
from openaclnn.core.status import AclError
from openaclnn.runtime import config
from openaclnn.runtime.errors import refuse

ALIGNMENT = 64
"""The alignment of all memory that the runtime allocates, in bytes."""


class Device:
    """Memory, copies and streams of a device. `name` is also `Tensor.device` of tensors on it. This class is the host, whose device memory is
    ordinary memory of the process; `CudaDevice` derives from it.

    `allocate` gives an aligned address and an owner; the memory lives as long as the owner does,
    so that a task still queued may hold on to memory that the program has freed already.
    """

    name = "cpu"
    count = 1

    def enter(self) -> None:
        """Make this device the calling thread's."""

    def capacity(self) -> int:
        return _usable_memory()

    def cores(self) -> int:
        return usable_cores()

    def cache_size(self) -> int:
        return cache_sizes().get(2, 0)

    def allocate(self, size: int) -> tuple[int, object]:
        # Zeroed, so that a program reads the same from the padding every time; fresh pages are zero anyway.
        block = np.zeros(size + ALIGNMENT, np.uint8)
        address = block.ctypes.data
        return -(-address // ALIGNMENT) * ALIGNMENT, block

    def allocate_host(self, size: int) -> tuple[int, object]:
        """Page-locked memory of the host, for asynchronous copies."""
        return self.allocate(size)

    def copy(self, target: int, source: int, count: int) -> None:
        """Copy between memory of the device and the host in either direction, after the work queued on the device."""
        ctypes.memmove(target, source, count)

    def fill(self, address: int, value: int, count: int) -> None:
        ctypes.memset(address, value, count)

    # On the host, a stream's tasks do the work themselves, and there is nothing more to wait for.
    def open_stream(self) -> int:
        """Open a stream of the device, and return its handle."""
        return 0

    def is_done(self, stream: int) -> bool:
        """Whether a stream has no work left; failed work counts as left, so that `drain` is called and raises."""
        return True

    def drain(self, stream: int) -> None:
        """Wait until the work queued on a stream is done, and raise if it failed."""

    def close_stream(self, stream: int) -> None: ...


_usable_memory = functools.cache(usable_memory)  # in a container, less than the machine has


_OUT_OF_MEMORY = 2
_MULTIPROCESSORS, _L2_BYTES = 16, 38  # attributes of a device
_HOST_PORTABLE = 1  # page-locked for every context


class CudaDevice(Device):
    """One GPU; `name` is the device of tensors on it, such as "cuda:0"."""

    def __init__(self, index: int = 0) -> None:
        self.name = device_name("cuda", index)
        try:
            self._driver: Any = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            code = AclError.ACL_ERROR_RT_DEV_SETUP_ERROR
            raise refuse(code, "device", "an NVIDIA driver (libcuda.so.1)", error) from None
        self._device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(self._device), index)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        self._entered = threading.local()
        self.enter()

    def _call(self, function: str, *arguments: Any) -> None:
        """Call a function of the driver; raises MemoryError or AclFailure with the driver's error."""
        code: int = getattr(self._driver, function)(*arguments)
        if not code:
            return
        text = ctypes.c_char_p()
        self._driver.cuGetErrorString(code, ctypes.byref(text))
        name = function.removesuffix("_v2")
        message = f"{name}: error {code}, {(text.value or b'unknown').decode()}"
        if code == _OUT_OF_MEMORY:
            raise MemoryError(message)
        raise refuse(AclError.ACL_ERROR_RT_AICORE_EXCEPTION, self.name, "success", message)

    def enter(self) -> None:
        if not getattr(self._entered, "done", False):
            self._call("cuCtxSetCurrent", self._context)
            self._entered.done = True

    def capacity(self) -> int:
        self.enter()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value

    def cores(self) -> int:
        return self._attribute(_MULTIPROCESSORS)

    def cache_size(self) -> int:
        return self._attribute(_L2_BYTES)

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    def allocate(self, size: int) -> tuple[int, object]:
        self.enter()
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value, _Owner(self, self._driver.cuMemFree_v2, address)

    def allocate_host(self, size: int) -> tuple[int, object]:
        self.enter()
        pointer = ctypes.c_void_p()
        self._call("cuMemHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(size), _HOST_PORTABLE)
        return pointer.value or 0, _Owner(self, self._driver.cuMemFreeHost, pointer)

    def copy(self, target: int, source: int, count: int) -> None:
        self.enter()
        sides = ctypes.c_uint64(target), ctypes.c_uint64(source)
        self._call("cuMemcpy", *sides, ctypes.c_size_t(count))

    def fill(self, address: int, value: int, count: int) -> None:
        self.enter()
        byte = ctypes.c_ubyte(value)
        self._call("cuMemsetD8_v2", ctypes.c_uint64(address), byte, ctypes.c_size_t(count))

    def open_stream(self) -> int:
        self.enter()
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), 0)
        return stream.value or 0

    def is_done(self, stream: int) -> bool:
        self.enter()
        code: int = self._driver.cuStreamQuery(ctypes.c_void_p(stream))
        return code == 0

    def drain(self, stream: int) -> None:
        self.enter()
        self._call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def close_stream(self, stream: int) -> None:
        self.enter()
        self._driver.cuStreamDestroy_v2(ctypes.c_void_p(stream))


class _Owner:
    """Owns memory, which is freed when the last reference to the owner is dropped, in any thread."""

    def __init__(self, device: CudaDevice, free: Any, address: Any) -> None:
        weakref.finalize(self, _free, device, free, address).atexit = False


def _free(device: CudaDevice, free: Any, address: Any) -> None:
    device.enter()
    free(address)


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
    device = _devices.get(name)
    if device is None:
        factory = _factories.get(name)
        if factory is None:
            code = AclError.ACL_ERROR_RT_DEV_SETUP_ERROR
            raise refuse(code, "device", f"one of {', '.join(known_devices())}", repr(name))
        device = _devices.setdefault(name, factory())
    return device


def selected_device() -> Device:
    """The device that the configuration names."""
    return device_named(config.device_name())


host = Device()
register("cpu", lambda: host)
register("cuda", lambda: device_named("cuda:0"))
for _index in range(8):
    register(f"cuda:{_index}", functools.partial(CudaDevice, _index))
