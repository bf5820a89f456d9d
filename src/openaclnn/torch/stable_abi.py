"""PyTorch's stable C interface, by its functions' names: what puts machine code into the dispatcher, and what such a kernel calls.

It is there since 2.10, with a promise for later versions (torch/csrc/stable/c/shim.h). Where it is not, kernels are functions in Python.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from pathlib import Path
from typing import Any

import torch

from openaclnn.engines.machine import unusable

__all__ = ["StableInterface", "address", "stable_interface", "stream_function"]

_FILE = b"openaclnn"  # what PyTorch says of who entered a kernel; it keeps the address


class StableInterface:
    """The functions of `libtorch_cpu` that kernels need."""

    def __init__(self, library: Any) -> None:
        self.library = library
        # In the order of their slots, from GET_DEVICE to STRING_DELETE.
        self.functions = (
            library.aoti_torch_get_device_type, library.aoti_torch_get_device_index, library.aoti_torch_get_dtype,
            library.aoti_torch_get_dim, library.aoti_torch_get_sizes, library.aoti_torch_get_strides,
            library.aoti_torch_get_data_ptr, library.aoti_torch_get_storage_offset, library.aoti_torch_get_storage_size,
            library.aoti_torch_is_defined,
            library.aoti_torch_empty_strided, library.aoti_torch_zero_, library.aoti_torch_delete_tensor_object,
            _freeing(library), library.torch_call_dispatcher, library.aoti_torch_check,
            library.torch_string_length, library.torch_string_c_str, library.torch_delete_string,
        )  # fmt: skip
        self._open, self._close = (
            library.aoti_torch_library_init_impl, library.aoti_torch_delete_library_object,
        )  # fmt: skip
        self._put, version = library.torch_library_impl, library.aoti_torch_abi_version
        text, pointer = ctypes.c_char_p, ctypes.c_void_p
        self._open.argtypes = text, text, text, ctypes.c_uint32, pointer
        self._put.argtypes, self._close.argtypes = (
            (pointer, text, pointer, ctypes.c_uint64),
            (pointer,),
        )
        version.restype = ctypes.c_uint64
        self.version = version()
        """That of PyTorch, whose ways with arguments kernels follow."""
        self._from_memory = library.aoti_torch_create_tensor_from_blob
        self._from_memory.argtypes = (
            pointer, ctypes.c_int64, pointer, pointer, ctypes.c_int64, *[ctypes.c_int32] * 3, pointer
        )  # fmt: skip

    def enter(self, name: str, device: str, kernel: int) -> Any:
        """Into the dispatcher, above what is there; what it returns leaves it."""
        library = ctypes.c_void_p()
        _succeed(self._open(b"aten", device.encode(), _FILE, 0, ctypes.byref(library)))
        _succeed(self._put(library, name.encode(), kernel, self.version))
        return functools.partial(self._close, library)

    def dtype_number(self, name: str) -> int:
        return int(getattr(self.library, f"aoti_torch_dtype_{name}")())

    def device_kind(self, device: str) -> int:
        return int(getattr(self.library, f"aoti_torch_device_type_{device.lower()}")())

    def handle_of(self, tensor: Any) -> int:
        """A handle, never given back, of the memory of a row that the caller keeps."""
        handle, device = ctypes.c_void_p(), tensor.device
        sides = [(ctypes.c_int64 * 1)(length) for length in (len(tensor), 1)]
        number = self.dtype_number(str(tensor.dtype).removeprefix("torch."))
        place = number, self.device_kind(device.type), device.index or 0
        _succeed(self._from_memory(tensor.data_ptr(), 1, *sides, 0, *place, ctypes.byref(handle)))
        return handle.value or 0


def _freeing(library: Any) -> Any:
    """What frees the word behind an optional argument. Before 2.13 the interface has it allocated by the kernel's C++ `new`, which
    is the C library's malloc."""
    return getattr(library, "torch_delete_stable_ivalue", None) or ctypes.CDLL(None).free


def _succeed(status: int) -> None:
    if status:
        raise RuntimeError("PyTorch's stable C interface refused a kernel")


@functools.cache
def stable_interface() -> StableInterface | None:
    """None where machine code cannot be a kernel here."""
    if sys.platform != "linux" or unusable() is not None:
        return None
    try:
        return StableInterface(
            ctypes.CDLL(str(Path(torch.__path__[0]) / "lib" / "libtorch_cpu.so"))
        )
    except (AttributeError, OSError):
        return None


@functools.cache
def stream_function(device: str) -> int | None:
    """What names a device's current stream, and raises nothing: 0 where there are no streams, None where it is missing."""
    if device == "CPU":
        return 0
    try:
        library = ctypes.CDLL(str(Path(torch.__path__[0]) / "lib" / "libtorch_cuda.so"))
        return address(library.aoti_torch_get_current_cuda_stream)
    except (AttributeError, OSError):
        return None


def address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
