"""Compiled kernels as the CUDA driver launches them: `CUlaunchConfig`, and parameters as words. Kernels with parameters that are not understood here are left to Triton's launcher."""

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
    """The CUDA driver, if it has the functions that are needed and machine code can be compiled; None otherwise."""
    if unusable() is not None:
        return None
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    needed = ("cuLaunchKernelEx", "cuFuncGetParamInfo")
    return library if all(hasattr(library, name) for name in needed) else None


class Kernel(NamedTuple):
    """A compiled kernel: what its launches pass to the driver whatever their sizes and addresses."""

    function: int
    threads: int
    shared: int
    number_types: tuple[str, ...]  # Triton's names
    hidden: int  # how many pointers to scratch memory Triton adds behind the others: null here
    overlaps: bool
    cluster: int = 1  # programs that run at once; those of a cluster do not overlap

    @classmethod
    def of(cls, binary: Any, pointers: int, numbers: int, cluster: int = 1) -> Kernel | None:
        """From a kernel that Triton compiled; None if the driver reports other parameters than its signature has, or it needs scratch memory."""
        metadata = binary.metadata
        supported = (
            getattr(metadata, "num_ctas", 1) == 1
            and not getattr(metadata, "global_scratch_size", 0)
            and not getattr(metadata, "profile_scratch_size", 0)
            and not getattr(metadata, "launch_cooperative_grid", False)
        )
        types = [name for name in binary.src.signature.values() if name != "constexpr"]
        number_types = [name for name in types if not name.startswith("*")]
        known = all(name in SIZES for name in number_types)
        if not supported or not known or types[pointers:] != number_types or len(number_types) != numbers:  # fmt: skip
            return None
        sizes = [8] * pointers + [SIZES[name] for name in number_types]
        driver_sizes = _parameter_sizes(binary.function)
        hidden = len(driver_sizes) - len(sizes)
        if driver_sizes != sizes + [8] * hidden:
            return None
        return cls(
            binary.function, 32 * metadata.num_warps, metadata.shared, tuple(number_types), hidden,
            bool(getattr(metadata, "launch_pdl", False)), cluster,
        )  # fmt: skip

    def words(self, numbers: Sequence[int | float]) -> list[int]:
        """The numbers as parameters, which follow the pointers."""
        return [
            word(float(number) if is_float else int(number))
            for number, is_float in zip(numbers, self.floats(), strict=True)
        ]

    def floats(self) -> list[bool]:
        """Which of the numbers are FLOAT; the others are integers."""
        return [name in _FLOATS for name in self.number_types]


def word(number: int | float) -> int:
    """A parameter as the low bytes of an int64."""
    if type(number) is float:
        return int.from_bytes(struct.pack("<f", number), "little")
    return int(number)


def write_config(block: array[int], at: int, attribute: int, kernel: Kernel) -> None:
    """Write a kernel's CUlaunchConfig, without grid and stream, to a block at `at`, and at `attribute` its launch attribute: that of a cluster, or that of launches
    which may start while the one before ends."""
    cluster = kernel.cluster
    block[attribute], block[attribute + 1] = _OVERLAP if cluster == 1 else (_CLUSTER, cluster + (1 << 32))  # fmt: skip
    block[attribute + 2] = int(cluster > 1)
    _GRID.pack_into(block, 8 * at, 1, 1, 1, kernel.threads, 1, 1, kernel.shared)
    block[at + CONFIG_ATTRIBUTES] = block.buffer_info()[0] + 8 * attribute
    block[at + CONFIG_ATTRIBUTE_COUNT] = int(kernel.overlaps or cluster > 1)


def _parameter_sizes(function: int) -> list[int]:
    """The sizes in bytes of a loaded kernel's parameters, as the driver reports them."""
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
    """The address of the driver's cuLaunchKernelEx; 0 without a driver."""
    from openaclnn.engines.machine.builtins import address_of_function

    library = driver()
    return 0 if library is None else address_of_function(library.cuLaunchKernelEx)
