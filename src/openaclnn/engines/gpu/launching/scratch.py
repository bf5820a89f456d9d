"""Scratch memory for the sums of `mean`, a few kilobytes, and between the stages of plans: from torch's caching allocator."""

from __future__ import annotations

import functools
from typing import Any

from openaclnn.engines import scratch

__all__ = ["allocate", "functions", "release"]


@functools.cache
def _allocator() -> tuple[Any, Any]:
    """Allocation on the current device and stream-ordered release, without torch's checks if it can be."""
    import triton

    if triton.knobs.runtime.interpret:
        return scratch.allocate, scratch.release
    import torch

    torch.cuda.init()  # type: ignore[no-untyped-call, unused-ignore]
    raw = getattr(torch._C, "_cuda_cudaCachingAllocator_raw_alloc", None)
    raw_delete = getattr(torch._C, "_cuda_cudaCachingAllocator_raw_delete", None)
    if raw and raw_delete:
        return raw, raw_delete  # 1.6 us, where the public functions below take 3.8
    allocate = torch.cuda.caching_allocator_alloc
    return lambda size, stream: allocate(size, stream=stream), torch.cuda.caching_allocator_delete


def functions() -> tuple[Any, Any]:
    """`allocate` and `release` as machine code calls them."""
    return _allocator()


def allocate(size: int, stream: int) -> int:
    """Memory on the current device for work on a stream."""
    # Its blocks belong to a stream: freed right after the launches, one is used again only by work
    # queued later on that stream. While a graph is captured they come from the graph's own pool.
    address: int = _allocator()[0](size, stream)
    return address


def release(address: int) -> None:
    """To be called as soon as the work is queued."""
    _allocator()[1](address)
