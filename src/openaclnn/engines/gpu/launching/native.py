"""Compiled kernels as the CUDA driver launches them. Whatever this cannot be sure of is left to Triton's launcher."""

from __future__ import annotations

import ctypes
import functools
import struct
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from openaclnn.engines.machine import unusable

# CUlaunchConfig: grid, block and shared memory as seven 32-bit numbers, then the rest by slots.
CONFIG_SLOTS, CONFIG_STREAM, CONFIG_ATTRIBUTES, CONFIG_ATTRIBUTE_COUNT = 7, 4, 5, 6

_OVERLAP = (6, 1)  # programmatic stream serialisation: allowed
_CLUSTER = 4  # then its three sides, 32 bits each
ATTRIBUTE_SLOTS = 9
_GRID = struct.Struct("=7I")
_FLOATS = ("fp32", "f32")
SIZES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "u64": 8, "fp32": 4, "f32": 4}


@functools.cache
def driver() -> Any:
    """The CUDA driver, if it has what is needed here, and machine code can call it; None otherwise."""
    if unusable() is not None:
        return None
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    needed = ("cuLaunchKernelEx", "cuFuncGetParamInfo")
    return library if all(hasattr(library, name) for name in needed) else None


class Kernel(NamedTuple):
    """What a launch of a compiled kernel passes to the driver whatever its size and addresses."""

    function: int
    threads: int
    shared: int
    kinds: tuple[str, ...]  # of the numbers
    hidden: int  # pointers to scratch memory, null where there is none
    overlaps: bool
    cluster: int = 1  # programs that run at once; those of a cluster do not overlap

    @classmethod
    def of(cls, binary: Any, pointers: int, numbers: int, cluster: int = 1) -> Kernel | None:
        """That of a kernel which Triton compiled; None where its parameters are not what we take them for."""
        metadata = binary.metadata
        plain = (
            getattr(metadata, "num_ctas", 1) == 1
            and not getattr(metadata, "global_scratch_size", 0)
            and not getattr(metadata, "profile_scratch_size", 0)
            and not getattr(metadata, "launch_cooperative_grid", False)
        )
        kinds = [kind for kind in binary.src.signature.values() if kind != "constexpr"]
        kept = [kind for kind in kinds if not kind.startswith("*")]
        known = all(kind in SIZES for kind in kept)
        if not plain or not known or kinds[pointers:] != kept or len(kept) != numbers:
            return None
        sizes = [8] * pointers + [SIZES[kind] for kind in kept]
        driver_sizes = _parameter_sizes(binary.function)
        hidden = len(driver_sizes) - len(sizes)
        if driver_sizes != sizes + [8] * hidden:
            return None
        return cls(
            binary.function, 32 * metadata.num_warps, metadata.shared, tuple(kept), hidden,
            bool(getattr(metadata, "launch_pdl", False)), cluster,
        )  # fmt: skip

    def words(self, numbers: Sequence[int | float]) -> list[int]:
        """Parameters after the pointers, but for the hidden ones."""
        return [
            word(float(number) if is_float else int(number))
            for number, is_float in zip(numbers, self.floats(), strict=True)
        ]

    def floats(self) -> list[bool]:
        """Which of the numbers are FLOAT; the others are integers."""
        return [kind in _FLOATS for kind in self.kinds]


def word(number: int | float) -> int:
    """A parameter as the low bytes of an int64."""
    if type(number) is float:
        return int.from_bytes(struct.pack("<f", number), "little")
    return int(number)


def write_config(block: array[int], at: int, attribute: int, kernel: Kernel) -> None:
    """A kernel's CUlaunchConfig but for grid and stream, and the attribute of a cluster, or of launches that may start while the one before ends, at their
    places in a block."""
    cluster = kernel.cluster
    block[attribute], block[attribute + 1] = _OVERLAP if cluster == 1 else (_CLUSTER, cluster + (1 << 32))  # fmt: skip
    block[attribute + 2] = int(cluster > 1)
    _GRID.pack_into(block, 8 * at, 1, 1, 1, kernel.threads, 1, 1, kernel.shared)
    block[at + CONFIG_ATTRIBUTES] = block.buffer_info()[0] + 8 * attribute
    block[at + CONFIG_ATTRIBUTE_COUNT] = int(kernel.overlaps or cluster > 1)


def _parameter_sizes(function: int) -> list[int]:
    """In bytes, of a loaded kernel, as the driver tells them."""
    sizes: list[int] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    library = driver()
    while not library.cuFuncGetParamInfo(
        ctypes.c_void_p(function), ctypes.c_size_t(len(sizes)),
        ctypes.byref(offset), ctypes.byref(size),
    ):  # fmt: skip
        sizes.append(size.value)
    return sizes


@functools.cache
def launch_function() -> int:
    """The driver's launch by its address; 0 without a driver."""
    from openaclnn.engines.machine.builtins import address_of_function

    library = driver()
    return 0 if library is None else address_of_function(library.cuLaunchKernelEx)
