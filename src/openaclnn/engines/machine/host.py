"""The CPU that machine code is written for: its vectors, its instructions, its caches."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import llvmlite.binding as llvm

from openaclnn.core.dtypes import BFLOAT16, FLOAT16, DType
from openaclnn.core.results import cache_sizes

LINE = 64  # bytes of a cache line


class Machine(NamedTuple):
    """A CPU's vector unit."""

    lanes: int  # float32 lanes of one register
    registers: int  # vector registers
    neon: bool
    half: bool  # has conversions between float16 and float32
    fma: bool
    picks_bytes: bool = False
    """Whether AVX2's vectors look bytes up at twice the pace of FLOATs, as AMD's and newer ones of Intel's do. Those of Intel's that have one unit for all moves between lanes do not."""


_ONE_UNIT_FOR_MOVES = frozenset(("haswell", "broadwell", "skylake"))

_other: Machine | None = None


def machine() -> Machine:
    """The vector unit that code is written for: this CPU's, or in tests another one."""
    return _other or this_machine()


@contextmanager
def written_for(other: Machine) -> Iterator[None]:
    """For tests: code is written as on another CPU, so that any machine computes what that one does; LLVM splits vectors, or leaves registers half empty.
    It holds for calls that name their engine; the fast path keeps code for the CPU before."""
    global _other
    before, _other = _other, other
    try:
        yield
    finally:
        _other = before


def vectors_of(lanes: int) -> AbstractContextManager[None]:
    """`written_for` a machine with vectors of so many FLOATs: NEON's 4, AVX2's 8, AVX-512's 16."""
    registers = 16 if lanes == 8 else 32
    return written_for(machine()._replace(lanes=lanes, registers=registers, neon=lanes == 4))


@functools.cache
def on_arm() -> bool:
    triple: str = llvm.get_process_triple()
    return triple.startswith(("aarch64", "arm64"))


@functools.cache
def this_machine() -> Machine:
    """This CPU's vector unit, whatever CPU code is written for."""
    features = dict(llvm.get_host_cpu_features())
    if on_arm():
        return Machine(4, 32, True, True, True)
    half, fma = bool(features.get("f16c")), bool(features.get("fma"))
    if features.get("avx512f"):
        return Machine(16, 32, False, half, fma)
    if not features.get("avx2"):
        return Machine(4, 16, False, half, fma)
    return Machine(8, 16, False, half, fma, llvm.get_host_cpu_name() not in _ONE_UNIT_FOR_MOVES)


_OF_PRODUCTS = {
    BFLOAT16: ("bf16", "avx512bf16", "amx-bf16"), FLOAT16: ("fullfp16", "avx512fp16", "amx-fp16"),
}  # fmt: skip


def multiplies(dtype: DType) -> bool:
    """Whether this CPU has instructions for matrix products of a dtype of 16 bits."""
    features = dict(llvm.get_host_cpu_features())
    return any(features.get(name) for name in _OF_PRODUCTS[dtype])


_USUAL_CACHE = 1 << 25  # bytes, where the system does not say


@functools.cache
def last_cache() -> int:
    """Bytes of the largest cache that a call may count on: half of a large one, which other processes use, too.

    On 16 cores with a cache of 300 MiB, counting on half makes ELU of 48 MiB take 0.6 to 1.1 of the time that counting on 32 MiB does, 0.6 to 0.8 where a sum reads the
    result after it, and larger ones as much; counting on all of it makes ELU of 128 MiB take 1.1 to 1.5 of it. On one core both vary too much to tell.
    """
    size = max(cache_sizes().values(), default=0)
    return min(size, max(size // 2, _USUAL_CACHE)) or _USUAL_CACHE
