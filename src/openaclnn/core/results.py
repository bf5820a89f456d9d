"""Memory for results that the caller did not bring.

A fresh 64 MB array costs 3 ms of page faults, half as much as the operator that fills it. So the memory of
large results is kept for the next one of the same size once nobody holds the last, up to a limit.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np

__all__ = ["empty", "forget_memory", "kept_bytes"]

LARGE = 1 << 20
"""Bytes from which memory is kept; below, NumPy has its own means."""

LIMIT = 256 << 20
"""Bytes kept at the most."""

_free: OrderedDict[int, list[np.ndarray[Any, Any]]] = OrderedDict()  # by size, the oldest first


class _Lease:
    """Lends a block to the arrays that view it, and takes it back with the last of them."""

    __slots__ = ("__array_interface__", "__weakref__", "block")

    def __init__(self, block: np.ndarray[Any, Any]) -> None:
        self.block = block
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        _keep(self.block)


def _keep(block: np.ndarray[Any, Any]) -> None:
    # Single operations on built-in containers: other threads cannot come in between.
    if block.nbytes > LIMIT:
        return
    _free.setdefault(block.nbytes, []).append(block)
    while kept_bytes() > LIMIT:
        try:
            _free.popitem(last=False)
        except KeyError:
            return


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An uninitialised array, like `numpy.empty`."""
    size = dtype.itemsize
    for length in shape:
        size *= length
    if size < LARGE:
        return np.empty(shape, dtype)
    try:
        block = _free[size].pop()
    except (KeyError, IndexError):
        block = np.empty(size, np.uint8)
    return np.asarray(_Lease(block)).view(dtype).reshape(shape)


def kept_bytes() -> int:
    """How much memory waits to be used again."""
    return sum(size * len(blocks) for size, blocks in list(_free.items()))


def forget_memory() -> None:
    """Give the memory that waits back to the system."""
    _free.clear()
