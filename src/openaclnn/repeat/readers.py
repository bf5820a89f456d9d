"""Where machine code finds NumPy's arrays and PyTorch's tensors: what must hold before it may read them.

Asking an array from Python for its dtype, shape, strides, device and address takes 0.3 to 0.6 us, and a call
has two to seven arrays. Machine code reads a NumPy array as NumPy's C interface lays it out, and asks PyTorch through
DLPack's C interface for exchange, which it has since 2.10 (0.03 us each), and through methods of its tensors for what
DLPack does not tell (0.2 us each). No memory of PyTorch's is read.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, NamedTuple

from openaclnn.core.torch_names import dispatch_modes
from openaclnn.engines.machine.objects import arrays_are_readable
from openaclnn.repeat import slots as at

numpy_is_readable = functools.cache(arrays_are_readable)


class _Exchange(ctypes.Structure):
    """`DLPackExchangeAPI` of dlpack.h."""

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


class TorchFunctions(NamedTuple):
    """What a tensor is asked with: two functions of DLPack's by address, then objects of Python's, in the order of their slots."""

    from_python: int  # describes a tensor
    current_stream: int
    has_mode: Any  # whether somebody's Python code would hear of what follows
    is_negated: Any  # whether a tensor waits for its negation
    storage: Any
    storage_offset: Any  # where in its storage a tensor begins
    is_tracing: Any
    modes: Any  # how many see the operations of PyTorch in this thread
    requires_grad: str  # an attribute
    count_write: Any  # tells autograd


@functools.cache
def torch_functions() -> TorchFunctions | None:
    """None where one of them is missing: tensors take the slow path."""
    torch = sys.modules["torch"]
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    exchange = _Exchange.from_address(get(capsule, b"dlpack_exchange_api"))
    if exchange.major != 1 or not exchange.from_python or not exchange.current_stream:
        return None
    modes = dispatch_modes()
    if modes is None:
        return None
    return TorchFunctions(
        exchange.from_python, exchange.current_stream, torch.overrides.has_torch_function_unary,
        torch.Tensor.is_neg, torch.Tensor.untyped_storage, torch.Tensor.storage_offset,
        *modes, sys.intern("requires_grad"), torch.autograd.graph.increment_version,
    )  # fmt: skip


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
    return ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(functions.from_python)


def words_of(array: Any, library: int) -> tuple[int, int]:
    """What tells an array's dtype and device, DEVICE and KIND, the latter without the number of axes."""
    if library == at.NUMPY:
        return id(array.dtype), 0
    if library != at.TORCH:
        return id(array.dtype), array.format << 32
    key = array.dtype, array.device
    words = _torch_words.get(key)
    if words is None:
        device, kind = described(array)[at.DEVICE : at.KIND + 1]
        words = _torch_words[key] = device, kind - array.ndim
    return words


_torch_words: dict[tuple[Any, Any], tuple[int, int]] = {}
