"""What code must know of the CPU it is written for."""

from __future__ import annotations

import functools
import os
from typing import NamedTuple

import llvmlite.binding as llvm

__all__ = ["LINE", "Machine", "last_cache", "machine"]

LINE = 64  # bytes of a cache line


class Machine(NamedTuple):
    """A CPU's vector unit."""

    lanes: int  # float32 lanes of one register
    registers: int  # vector registers
    neon: bool
    half: bool  # has conversions between float16 and float32
    fma: bool


@functools.cache
def machine() -> Machine:
    """This machine's."""
    features = dict(llvm.get_host_cpu_features())
    if llvm.get_process_triple().startswith(("aarch64", "arm64")):
        return Machine(4, 32, True, True, True)
    half, fma = bool(features.get("f16c")), bool(features.get("fma"))
    if features.get("avx512f"):
        return Machine(16, 32, False, half, fma)
    return Machine(8 if features.get("avx2") else 4, 16, False, half, fma)


_USUAL_CACHE = 1 << 25  # bytes, where the system does not say


@functools.cache
def last_cache() -> int:
    """Bytes of the largest cache, which all cores share."""
    names = [f"SC_LEVEL{level}_CACHE_SIZE" for level in (3, 2)]
    sizes = [os.sysconf(name) for name in names if name in getattr(os, "sysconf_names", {})]
    return next((size for size in sizes if size > 0), _USUAL_CACHE)
