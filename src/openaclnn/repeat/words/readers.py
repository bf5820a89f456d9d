"""Where machine code finds NumPy's arrays and PyTorch's tensors: what must hold before it may read them.

Asking an array from Python for its dtype, shape, strides, device and address takes 0.3 to 0.6 us, and a call
has two to seven arrays. Machine code reads a NumPy array as NumPy's C interface lays it out, and asks PyTorch through
DLPack's C interface for exchange, which it has since 2.10: 0.03 us each.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from pathlib import Path
from typing import Any, NamedTuple

from openaclnn.core.results import undisturbed
from openaclnn.engines.machine.objects import arrays_are_readable
from openaclnn.repeat.words import slots as at

__all__ = ["GRAPH_KEYS", "HANDLE", "described", "numpy_is_readable", "torch_functions", "words_of"]

# Tracers and modes see the operations of PyTorch, not ours: while one records, the full way says no.
GRAPH_KEYS = ("Tracer", "Python", "PreDispatch")
HANDLE = object.__basicsize__  # where a Python tensor has the C++ one

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


class TorchFunctions(NamedTuple):
    """Functions of PyTorch's by address."""

    from_python: int  # describes a tensor
    current_stream: int
    storage_size: int
    storage_offset: int  # where in its storage a tensor begins
    is_negated: int  # whether it waits for its negation
    is_inference: int  # whether autograd does not count its changes
    count_write: int  # counts one
    key_is_included: int  # of the dispatcher, in this thread
    requires_grad: int
    graph_keys: int  # no function: the keys that are included while a graph is made, 16 bits each


@functools.cache
def torch_functions() -> TorchFunctions | None:
    """None where one of them is missing."""
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    capsule = getattr(sys.modules["torch"].Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    found = _Exchange.from_address(get(capsule, b"dlpack_exchange_api"))
    if found.major != 1 or not found.from_python or not found.current_stream:
        return None
    asking = _asking()
    if asking is None:
        return None
    return TorchFunctions(found.from_python, found.current_stream, *asking)


def _asking() -> tuple[int, ...] | None:
    """What DLPack does not tell, from PyTorch's C interface for compiled programs, its operators and its dispatcher.

    Methods of Python's tensors would take 0.1 us for each answer, and 0.4 to count a change."""
    torch = sys.modules["torch"]
    with undisturbed():
        probes = torch.empty(3)[1:], torch.nn.Parameter(torch.empty(1))
        if any(_handle_at(id(probe) + HANDLE).value != probe._cdata for probe in probes):
            return None
    try:
        folder = Path(torch.__path__[0]) / "lib"
        compiled, core = (
            ctypes.CDLL(str(folder / f"lib{name}.so")) for name in ("torch_cpu", "c10")
        )
        functions = (
            compiled.aoti_torch_get_storage_size, compiled.aoti_torch_get_storage_offset,
            compiled._ZN2at6native6is_negERKNS_6TensorE, compiled._ZN2at6native12is_inferenceERKNS_6TensorE,
            compiled._ZN5torch8autograd4impl12bump_versionERKN2at6TensorE,
            core._ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE,
            core._ZNK3c1010TensorImpl13requires_gradEv,
        )  # fmt: skip
        keys = [int(torch._C._dispatch_key_parse(name)) for name in GRAPH_KEYS]
    except (AttributeError, OSError, RuntimeError):
        return None
    found = [ctypes.cast(own, ctypes.c_void_p).value or 0 for own in functions]
    return *found, sum(key << 16 * place for place, key in enumerate(keys))


_handle_at = ctypes.c_void_p.from_address


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
    key = array.dtype, array.device
    found = _torch_words.get(key)
    if found is None:
        device, kind = described(array)[at.DEVICE : at.KIND + 1]
        found = _torch_words[key] = device, kind - array.ndim
    return found


_torch_words: dict[tuple[Any, Any], tuple[int, int]] = {}
