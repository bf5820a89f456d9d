"""Scratch memory in the host's."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["allocate", "release"]

_held: dict[int, Any] = {}  # by its address


def allocate(size: int, stream: int) -> int:
    """So many bytes, which are there until they are released."""
    memory = ctypes.create_string_buffer(size)
    _held[ctypes.addressof(memory)] = memory
    return ctypes.addressof(memory)


def release(address: int) -> None:
    del _held[address]
