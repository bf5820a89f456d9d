"""Scratch memory for the sums of `mean`: a few kilobytes, from torch's caching allocator."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from openaclnn.core.torch_names import raw_allocator

_held: dict[int, Any] = {}  # host memory by its address


def _allocate_on_host(size: int, stream: int) -> int:
    memory = ctypes.create_string_buffer(size)
    _held[ctypes.addressof(memory)] = memory
    return ctypes.addressof(memory)


@functools.cache
def _allocator() -> tuple[Any, Any]:
    """Allocation on the current device and stream-ordered release, without torch's checks if it can be."""
    import triton

    if triton.knobs.runtime.interpret:
        return _allocate_on_host, _held.pop
    import torch

    torch.cuda.init()  # type: ignore[no-untyped-call, unused-ignore]
    return raw_allocator()


def functions() -> tuple[Any, Any]:
    """`allocate` and `release` as machine code calls them."""
    return _allocator()


@contextmanager
def lent(size: int, stream: int) -> Iterator[int]:
    """Memory on the current device while work on a stream is queued; 0 where none is needed."""
    if not size:
        yield 0
        return
    # Its blocks belong to a stream: freed right after the launches, one is used again only by work
    # queued later on that stream. While a graph is captured they come from the graph's own pool.
    allocate, release = _allocator()
    memory: int = allocate(size, stream)
    try:
        yield memory
    finally:
        release(memory)
