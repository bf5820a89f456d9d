"""Machine code as a kernel of PyTorch's dispatcher: how it gets there, and out of it again.

PyTorch's C interface for kernels knows no number of any kind (`Scalar`), which ELU has, so that a kernel is entered as C++
enters its own. What lies where in C++'s objects is known for the versions named here; where anything is otherwise than
expected, there is none, and kernels in Python have to do.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch

from openaclnn.engines.machine import unusable
from openaclnn.repeat.words.readers import torch_functions
from openaclnn.repeat.words.tensors import dtype_number

__all__ = [
    "Entered", "Functions", "address", "entered", "functions", "is_theirs", "stream_function",
]  # fmt: skip

KNOWN: dict[str, tuple[tuple[int, int], ...]] = {
    "x86_64": ((2, 11), (2, 13)),
    "aarch64": ((2, 13),),
}
"""Versions of PyTorch that this was tried with, on each machine."""

_WHERE = b"openaclnn"  # what PyTorch says of who entered a kernel; it keeps the address


class Entered(NamedTuple):
    """A kernel in the dispatcher, by addresses."""

    functor: int  # what its functions are called with first
    boxed: int  # takes arguments on a stack
    unboxed: int  # takes plain arguments
    of_symbols: int  # the same, with integers that may be symbols


def entered(kernel: Any) -> Entered:
    """What PyTorch has, read from what `torch.library.get_kernel` gives."""
    place = ctypes.c_void_p.from_address(id(kernel) + object.__basicsize__).value or 0
    return Entered(*(ctypes.c_uint64 * 4).from_address(place))


class _Function(ctypes.Structure):
    """`torch::CppFunction`, for its library's key, with no signature, schema or text."""

    _fields_ = (
        ("key", ctypes.c_uint64),
        ("kernel", ctypes.c_uint64 * 4),
        ("tokens", ctypes.c_void_p),
        ("signature", ctypes.c_uint64 * 2),
        ("schema", ctypes.c_void_p),
        ("text", ctypes.c_void_p),
        ("length", ctypes.c_uint64),
        ("short_text", ctypes.c_char * 16),
    )


class Functions(NamedTuple):
    """Functions of PyTorch's."""

    # By address: what makes a Python tensor of a C++ one, copies one, ends one, makes one, clears one; and the tensor that is none.
    tensors: tuple[int, ...]
    # For ctypes: what opens a library of kernels, puts one in, and takes all of it out.
    open: Any
    put: Any
    close: Any

    def enter(self, name: str, device: str, kernel: Entered) -> Any:
        """Into the dispatcher, above what is there; what it returns leaves it."""
        own, library = _Function(kernel=kernel), ctypes.c_void_p()
        own.text = ctypes.addressof(own) + _Function.short_text.offset
        self.open(b"aten", device.encode(), _WHERE, 0, ctypes.byref(library))
        self.put(library, name.encode(), ctypes.byref(own), 0)
        return functools.partial(self.close, library)


@functools.cache
def functions() -> Functions | None:
    """None where machine code cannot be a kernel here."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    known = version in KNOWN.get(platform.machine(), ())
    if not known or sys.platform != "linux" or unusable() is not None:
        return None
    if torch_functions() is None or dtype_number(torch.bfloat16) != 15:
        return None
    try:
        folder = Path(torch.__path__[0]) / "lib"
        cpu, python, core = (
            ctypes.CDLL(str(folder / f"lib{name}.so"))
            for name in ("torch_cpu", "torch_python", "c10")
        )
        tensors = (
            python._Z16THPVariable_WrapRKN2at10TensorBaseE, cpu.aoti_torch_new_tensor_handle,
            cpu.aoti_torch_delete_tensor_object, cpu.aoti_torch_empty_strided, cpu.aoti_torch_zero_,
            core._ZN3c1019UndefinedTensorImpl10_singletonE,
        )  # fmt: skip
        open_, close = cpu.aoti_torch_library_init_impl, cpu.aoti_torch_delete_library_object
        put = cpu._ZNR5torch7Library5_implEPKcONS_11CppFunctionENS_17_RegisterOrVerifyE
    except (AttributeError, OSError):
        return None
    text, pointer = ctypes.c_char_p, ctypes.c_void_p
    open_.argtypes, close.argtypes = (text, text, text, ctypes.c_uint32, pointer), (pointer,)
    put.argtypes, put.restype = (pointer, text, pointer, ctypes.c_int), pointer
    return Functions(tuple(map(address, tensors)), open_, put, close)


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


class _Place(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def is_theirs(function: int) -> bool:
    """Whether this is code of PyTorch's own libraries, which stays where it is."""
    place, find = _Place(), ctypes.CDLL(None).dladdr
    find.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    return bool(find(function, ctypes.byref(place))) and b"libtorch" in place.file
