"""Where machine code finds NumPy's arrays and PyTorch's tensors: what must hold before it may read them.

Asking an array from Python for its dtype, shape, strides, device and address takes 0.3 to 0.6 us, and a call
has two to seven arrays. Machine code reads a NumPy array as NumPy's C interface lays it out, and asks PyTorch through
DLPack's C interface for exchange, which it has since 2.10: 0.03 us each.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

from openaclnn.engines.machine.objects import arrays_are_readable

__all__ = ["described", "numpy_is_readable", "torch_functions"]

numpy_is_readable = functools.cache(arrays_are_readable)


class _Exchange(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocator", ctypes.c_void_p),
        ("managed_from_python", ctypes.c_void_p),
        ("managed_to_python", ctypes.c_void_p),
        ("from_python", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    )


@functools.cache
def torch_functions() -> tuple[int, int] | None:
    """PyTorch's functions that describe a tensor and name the current stream; None where it has none."""
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    capsule = getattr(sys.modules["torch"].Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    found = _Exchange.from_address(get(capsule, b"dlpack_exchange_api"))
    if found.major != 1 or not found.from_python or not found.current_stream:
        return None
    return found.from_python, found.current_stream


def described(tensor: Any) -> Any:
    """What PyTorch's function says of a tensor: the slots of a view from DATA to OFFSET."""
    words = _Words()
    _describe()(tensor, ctypes.addressof(words))
    return words


_Words = ctypes.c_int64 * 8


@functools.cache
def _describe() -> Any:
    functions = torch_functions()
    assert functions is not None
    return ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(functions[0])
