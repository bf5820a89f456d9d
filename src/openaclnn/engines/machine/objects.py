"""The memory layout of CPython's and NumPy's objects, in slots of eight bytes. This module needs no llvmlite."""

from __future__ import annotations

import ctypes
import sys

import numpy as np

HEADER_SLOTS = object.__basicsize__ // 8
OBJECT_TYPE = HEADER_SLOTS - 1
TUPLE_LENGTH, TUPLE_ITEMS = HEADER_SLOTS, tuple.__basicsize__ // 8
# NumPy's PyArrayObject after the header: data, axes, shape, strides, base, dtype, flags.
ARRAY_DATA, ARRAY_AXES, ARRAY_SHAPE, ARRAY_STRIDES = (HEADER_SLOTS + slot for slot in range(4))
ARRAY_DTYPE, ARRAY_FLAGS = HEADER_SLOTS + 5, HEADER_SLOTS + 6
C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400
FLOAT_VALUE = HEADER_SLOTS


def arrays_are_readable() -> bool:
    """Whether NumPy's arrays have this layout, which every CPython and NumPy so far has."""
    if sys.implementation.name != "cpython":
        return False
    probe = np.zeros((3, 5), np.float32)[::2]
    slots = (ctypes.c_int64 * (ARRAY_FLAGS + 1)).from_address(id(probe))
    if slots[OBJECT_TYPE] != id(np.ndarray) or slots[ARRAY_DTYPE] != id(probe.dtype):
        return False
    sizes = (ctypes.c_int64 * 2).from_address(slots[ARRAY_SHAPE])
    steps = (ctypes.c_int64 * 2).from_address(slots[ARRAY_STRIDES])
    flags = slots[ARRAY_FLAGS]
    probe.flags.writeable = False
    return bool(
        slots[ARRAY_DATA] == probe.ctypes.data
        and slots[ARRAY_AXES] & 0xFFFFFFFF == 2
        and (tuple(sizes), tuple(steps)) == (probe.shape, probe.strides)
        and (flags ^ slots[ARRAY_FLAGS]) & 0xFFFFFFFF == WRITEABLE
    )
