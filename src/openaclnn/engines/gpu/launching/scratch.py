"""Scratch memory for the sums of `mean`: a few kilobytes, from torch's caching allocator."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from openaclnn.core.torch_names import raw_allocator
from openaclnn.engines.steps import HostMemory


@functools.cache
def functions() -> tuple[Any, Any]:
    """Functions that allocate on the current device and release in stream order, without torch's checks if possible."""
    import torch

    torch.cuda.init()  # type: ignore[no-untyped-call, unused-ignore]
    return raw_allocator()


@contextmanager
def lent(size: int, stream: int) -> Iterator[int]:
    """The address of memory on the current device while work on a stream is queued; 0 for no bytes."""
    import triton

    if not size:
        yield 0
    elif triton.knobs.runtime.interpret:
        with HostMemory(size, stream) as memory:
            yield memory
    else:
        # Its blocks belong to a stream: freed right after the launches, one is used again only by work
        # queued later on that stream. While a graph is captured they come from the graph's own pool.
        allocate, release = functions()
        memory = allocate(size, stream)
        try:
            yield memory
        finally:
            release(memory)
