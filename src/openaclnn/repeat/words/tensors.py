"""Where a C++ tensor of PyTorch's has its words, for machine code that reads them itself.

Asking PyTorch's C functions takes nine calls for each tensor, a third of what a call of few elements takes in all. Nothing documents where the
words are. So the memory of a tensor whose sizes, strides and offset are known is searched for these; unless each is found, and other tensors bear it out, no
tensor is read.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, NamedTuple

from openaclnn.core.results import undisturbed
from openaclnn.repeat.words import slots
from openaclnn.repeat.words.readers import HANDLE, described

__all__ = [
    "DEVICES", "INLINE_AXES", "TABLE_DEVICE", "TABLE_DTYPES", "TensorWords", "dtype_number", "dtype_words", "tensor_table",
    "tensor_words",
]  # fmt: skip

INLINE_AXES = 5  # more have memory of their own, whose address is in the place of the first
_SEARCHED, _STORAGE_SLOTS = 20, 8
_FLAGS = (1 << 56) - 1  # seven truth values, a byte each

_SIZES, _STRIDES, _OFFSET = (3, 5, 7), (1009, 1013, 1019), 1021


class TensorWords(NamedTuple):
    """Which slots of a tensor and of its storage have what, and what these must have in a tensor that is plain memory."""

    table: (
        int  # the first word of a plain tensor, and of a plain storage: the functions of its class
    )
    storage_table: int
    storage: int  # from here on slots of a tensor
    axes: int
    sizes: int
    strides: int
    offset: int
    device_and_dtype: int
    keys: int
    strange_keys: int  # bits that a plain tensor's keys have not: a wrapper's, say
    data: int  # from here on slots of a storage
    size: int
    flags: int
    strange_flags: (
        int  # bits that a plain storage's flags have not: a copy that is yet to be made, say
    )


@functools.cache
def tensor_words() -> TensorWords | None:
    """None where tensors do not look as expected."""
    with undisturbed():
        return _found_words()


def _found_words() -> TensorWords | None:
    torch = sys.modules["torch"]
    probe = torch.empty(20000, dtype=torch.bfloat16).as_strided(_SIZES, _STRIDES, _OFFSET)
    words, memory = _tensor(probe, _SEARCHED), probe.untyped_storage()
    storage = _words(memory._cdata, _STORAGE_SLOTS)
    try:
        axes = words.index(len(_SIZES))
        found = TensorWords(
            words[0], storage[0], words.index(memory._cdata), axes, axes + 1, axes + 1 + INLINE_AXES,
            words.index(_OFFSET), words.index(_OFFSET) + 2, words.index(_OFFSET) + 3, ~_plain_keys(),
            storage.index(memory.data_ptr()), storage.index(memory.nbytes()),
            storage.index(memory.nbytes()) + 1, _FLAGS & ~0xFF00,  # whether it may grow: nobody's business
        )  # fmt: skip
        return found if _holds(found) else None
    except (AttributeError, ValueError):  # PyTorch has no longer what is asked, or not there
        return None


DEVICES = ("CPU", "CUDA")
"""Kinds of devices, by PyTorch's numbers."""

TABLE_DEVICE = len(TensorWords._fields)
TABLE_DTYPES = TABLE_DEVICE + len(DEVICES)
_DTYPES = ("float32", "float16", "bfloat16", "int64", "int32", "uint8")


@functools.cache
def tensor_table() -> int:
    """Where machine code that is written before PyTorch is looked at finds the same: those words, and `dtype_words`. 0 where tensors
    do not look as expected.
    """
    where = tensor_words()
    if where is None:
        return 0
    devices, words = dtype_words()
    table = (ctypes.c_int64 * (TABLE_DTYPES + slots.MAX_DTYPES))(*where, *devices)
    for number, word in words.items():
        table[TABLE_DTYPES + number] = word
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(table))  # for good: roads have its address alone
    return ctypes.addressof(table)


@functools.cache
def dtype_words() -> tuple[tuple[int, int], dict[int, int]]:
    """DLPack's words for the CPU and for the first GPU (0: it has none for these), and its words for PyTorch's dtypes by their numbers,
    of those that kernels read.
    """
    torch = sys.modules["torch"]
    with undisturbed():
        probes = [torch.empty((), dtype=getattr(torch, name)) for name in _DTYPES]
        words = {dtype_number(own.dtype): described(own)[slots.KIND] for own in probes}
    host = described(probes[0])[slots.DEVICE]
    # Both count from the CPU to CUDA; what PyTorch calls CUDA on other makers' GPUs is something else to DLPack.
    return (host, host + 1 if torch.version.cuda else 0), words


def _plain_keys() -> int:
    """The dispatch keys of tensors that are memory and nothing else."""
    kinds: Any = sys.modules["torch"]._C
    found = 0
    for name in (
        "CPU", "CUDA", "AutogradCPU", "AutogradCUDA", "AutocastCPU", "AutocastCUDA", "ADInplaceOrView",
    ):  # fmt: skip
        found |= kinds.DispatchKeySet(getattr(kinds.DispatchKey, name)).raw_repr()
    return int(found)


def _holds(found: TensorWords) -> bool:
    """Whether what was found is true of other tensors, plain and strange."""
    torch = sys.modules["torch"]
    with torch.inference_mode():
        inferred = torch.empty(3)
    wide = torch.empty((1,) * INLINE_AXES + (2, 1), dtype=torch.uint8)
    plain = (torch.empty((), dtype=torch.int64), torch.empty(9)[3:], torch.nn.Parameter(torch.empty(2, 3).t()), inferred, wide)  # fmt: skip
    strange = (torch._lazy_clone(torch.empty(3)), torch.empty(3, dtype=torch.complex64).conj(), torch.empty(3).to_sparse())  # fmt: skip
    return all(_told(found, own) == _known(own) for own in plain) and not any(
        _told(found, own) for own in strange
    )


def _known(tensor: Any) -> tuple[Any, ...]:
    keys = sys.modules["torch"]._C._dispatch_keys(tensor).raw_repr()
    return (
        tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), 0xFF << 24 | dtype_number(tensor.dtype), keys,
        tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes(),
    )  # fmt: skip


def dtype_number(dtype: Any) -> int:
    """PyTorch's own number of a dtype, read where machine code reads it."""
    return ctypes.c_byte.from_address(id(dtype) + object.__basicsize__).value


def _told(found: TensorWords, tensor: Any) -> tuple[Any, ...]:
    """What the words say, as machine code reads them; () of a tensor that is not plain."""
    words = _tensor(tensor, found.keys + 1)
    if words[0] != found.table or words[found.keys] & found.strange_keys:
        return ()
    storage, axes = _words(words[found.storage], _STORAGE_SLOTS), words[found.axes]
    if storage[0] != found.storage_table or storage[found.flags] & found.strange_flags:
        return ()
    sides = words[found.sizes : found.sizes + axes], words[found.strides : found.strides + axes]
    if axes > INLINE_AXES:
        apart = _words(words[found.sizes], 2 * axes)
        sides = apart[:axes], apart[axes:]
    return (
        *map(tuple, sides), words[found.offset], words[found.device_and_dtype] & 0xFFFFFFFF,
        words[found.keys], storage[found.data], storage[found.size],
    )  # fmt: skip


def _tensor(tensor: Any, count: int) -> list[int]:
    return _words(ctypes.c_uint64.from_address(id(tensor) + HANDLE).value, count)


def _words(address: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(address))
