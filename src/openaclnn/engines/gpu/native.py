"""The launches of a plan as one builtin function: addresses in, the CUDA driver called, nothing between.

Triton's launcher parses a kernel's arguments anew on every call. They are known here but for the
addresses, so a control block holds them as the driver wants them, and machine code (by llvmlite, as in
the CPU engine) puts the addresses in. Whatever this cannot be sure of is left to Triton's launcher.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from openaclnn.engines.machine.builtins import address_of_function, as_int64, builtin, call_slot
from openaclnn.engines.machine.objects import OBJECT_TYPE, TUPLE_ITEMS, TUPLE_LENGTH
from openaclnn.engines.machine.words import (
    I32,
    I64,
    PTR,
    for_range,
    i64,
    read_slot,
    slot,
    stack,
    write_slot,
)

__all__ = ["Builtin", "Kernel", "driver"]

# The control block, one int64 a slot: functions by address, then a block for each launch.
LAUNCH, COUNT, ADDRESSES, FALLBACK, TUPLE, SAVE, RESTORE, VECTORCALL, FROM_INT64 = range(9)
HEADER = 16
FUNCTION, CONFIG, POINTERS, PARAMETERS, PLACES = 0, 1, 8, 9, 10
MAX_POINTERS, MAX_PARAMETERS, MAX_LAUNCHES = 10, 48, 4
SHIFTS, MASKS, VALUES = PLACES + MAX_POINTERS, PLACES + 2 * MAX_POINTERS, PLACES + 3 * MAX_POINTERS
STRIDE = VALUES + MAX_PARAMETERS

# CUlaunchConfig: grid, block and shared memory as seven 32-bit numbers, then the rest by slots.
CONFIG_SLOTS, CONFIG_STREAM, CONFIG_ATTRIBUTES, CONFIG_ATTRIBUTE_COUNT = 7, 4, 5, 6
_OVERLAP_ATTRIBUTE = (6, 1)  # programmatic stream serialisation: allowed
_ATTRIBUTE_SLOTS = 9

SIZES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "u64": 8, "fp32": 4, "f32": 4}


def emit_entry(builder: Any, arguments: Any) -> None:
    """`launch(addresses, stream)`: all launches, or the fallback where an address is off a vector's bounds."""
    self, given, number = arguments
    read_integer = as_int64(builder)
    control = builder.inttoptr(builder.call(read_integer, [self]), PTR)
    launches = read_slot(builder, control, COUNT)
    pointers = stack(builder, I64, MAX_LAUNCHES * MAX_POINTERS)
    state = stack(builder, I64, 1)
    write_slot(builder, state, 0, 0)  # not 0: nothing was launched, or not all of it

    def block_of(index: Any) -> Any:
        return slot(builder, control, builder.add(builder.mul(index, i64(STRIDE)), i64(HEADER)))

    def mark(bits: Any) -> None:
        write_slot(builder, state, 0, builder.or_(read_slot(builder, state, 0), bits))

    def fits(condition: Any) -> None:
        mark(builder.zext(builder.not_(condition), I64))

    def if_fit() -> Any:
        return builder.if_then(builder.icmp_signed("==", read_slot(builder, state, 0), i64(0)))

    def gather(addresses: Any, index: Any) -> None:
        block = block_of(index)
        fits(builder.icmp_signed("!=", read_slot(builder, block, FUNCTION), i64(0)))
        first = builder.mul(index, i64(MAX_POINTERS))

        def one(number: Any) -> None:
            place = read_slot(builder, block, builder.add(number, i64(PLACES)))
            item = read_slot(builder, addresses, builder.add(place, i64(TUPLE_ITEMS)))
            value = builder.call(read_integer, [builder.inttoptr(item, PTR)])
            shift = read_slot(builder, block, builder.add(number, i64(SHIFTS)))
            value = builder.add(value, shift)
            write_slot(builder, pointers, builder.add(first, number), value)
            mark(builder.and_(value, read_slot(builder, block, builder.add(number, i64(MASKS)))))

        for_range(builder, read_slot(builder, block, POINTERS), one)

    # Whoever calls differently from a runner's protocol meets the fallback.
    fits(builder.icmp_signed("==", number, i64(2)))
    with if_fit():
        addresses = builder.load(given, typ=PTR, align=8)
        kind = read_slot(builder, addresses, OBJECT_TYPE)
        fits(builder.icmp_signed("==", kind, read_slot(builder, control, TUPLE)))
        with if_fit():
            length = read_slot(builder, addresses, TUPLE_LENGTH)
            fits(builder.icmp_signed(">=", length, read_slot(builder, control, ADDRESSES)))
        with if_fit():
            for_range(builder, launches, lambda index: gather(addresses, index))
    with if_fit():
        stream = builder.call(
            read_integer, [builder.load(slot(builder, given, 1), typ=PTR, align=8)]
        )
        # A full queue makes the driver wait, perhaps for a host function that needs the interpreter.
        saved = call_slot(builder, control, SAVE, PTR)

        def start(index: Any) -> None:
            mark(_start(builder, control, block_of(index), pointers, index, stream))

        for_range(builder, launches, start)
        call_slot(builder, control, RESTORE, ir.VoidType(), saved)
        with if_fit():
            builder.ret(call_slot(builder, control, FROM_INT64, PTR, i64(0)))
    fallback = builder.inttoptr(read_slot(builder, control, FALLBACK), PTR)
    nothing = ir.Constant(PTR, None)
    builder.ret(call_slot(builder, control, VECTORCALL, PTR, fallback, given, number, nothing))


def _start(builder: Any, control: Any, block: Any, pointers: Any, index: Any, stream: Any) -> Any:
    """One launch; the driver's code as an int64."""
    config = stack(builder, I64, CONFIG_SLOTS)
    values, places = stack(builder, I64, MAX_PARAMETERS), stack(builder, I64, MAX_PARAMETERS)
    for number in range(CONFIG_SLOTS):
        write_slot(builder, config, number, read_slot(builder, block, CONFIG + number))
    write_slot(builder, config, CONFIG_STREAM, stream)
    count = read_slot(builder, block, POINTERS)
    first = builder.mul(index, i64(MAX_POINTERS))

    def place(number: Any) -> None:
        value = read_slot(builder, block, builder.add(number, i64(VALUES)))
        write_slot(builder, values, number, value)
        where = builder.ptrtoint(slot(builder, values, number), I64)
        write_slot(builder, places, number, where)

    def put(number: Any) -> None:
        value = read_slot(builder, pointers, builder.add(first, number))
        write_slot(builder, values, number, value)

    for_range(builder, read_slot(builder, block, PARAMETERS), place)
    for_range(builder, count, put)
    function = builder.inttoptr(read_slot(builder, block, FUNCTION), PTR)
    code = call_slot(
        builder, control, LAUNCH, I32, config, function, places, ir.Constant(PTR, None)
    )
    return builder.zext(code, I64)


@functools.cache
def driver() -> Any:
    """The CUDA driver, if it has what is needed here; None otherwise."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    needed = ("cuLaunchKernelEx", "cuFuncGetParamInfo")
    return library if all(hasattr(library, name) for name in needed) else None


class Kernel:
    """What a launch of a compiled kernel passes to the driver: all but the addresses."""

    def __init__(
        self,
        function: int,
        programs: int,
        threads: int,
        shared: int,
        values: Sequence[tuple[int | float, str]],
        hidden: int,
        overlaps: bool,
    ) -> None:
        self.function = function
        self.grid = (programs, 1, 1, threads, 1, 1, shared)
        self.values = [_word(value, kind) for value, kind in values] + [0] * hidden
        self.overlaps = overlaps

    @classmethod
    def of(
        cls, found: Any, programs: int, numbers: Sequence[int | float], pointers: int
    ) -> Kernel | None:
        """Of a kernel that Triton compiled; None where its parameters are not what we take them for."""
        metadata = found.metadata
        plain = (
            getattr(metadata, "num_ctas", 1) == 1
            and not getattr(metadata, "global_scratch_size", 0)
            and not getattr(metadata, "profile_scratch_size", 0)
            and not getattr(metadata, "launch_cooperative_grid", False)
        )
        kinds = [kind for kind in found.src.signature.values() if kind != "constexpr"]
        kept = [kind for kind in kinds if not kind.startswith("*")]
        known = all(kind in SIZES for kind in kept)
        if not plain or not known or kinds[pointers:] != kept or len(kept) != len(numbers):
            return None
        sizes = [8] * pointers + [SIZES[kind] for kind in kept]
        found_sizes = _parameter_sizes(found.function)
        hidden = len(found_sizes) - len(sizes)  # scratch pointers, null where there is no scratch
        if found_sizes != sizes + [8] * hidden or len(found_sizes) > MAX_PARAMETERS:
            return None
        return cls(
            found.function, programs, 32 * metadata.num_warps, metadata.shared,
            list(zip(numbers, kept, strict=True)), hidden,
            bool(getattr(metadata, "launch_pdl", False)),
        )  # fmt: skip


def _word(value: int | float, kind: str) -> int:
    """A parameter as the low bytes of an int64."""
    if kind in ("fp32", "f32"):
        return int.from_bytes(struct.pack("<f", value), "little")
    return int(value)


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


class Builtin:
    """The builtin `run(addresses, stream)` for some launches; `fallback` takes calls it is not ready for.

    A launch has its pointers as (place among the addresses, bytes to add, whether it must be aligned).
    """

    def __init__(
        self,
        launches: Sequence[Sequence[tuple[int, int, bool]]],
        fallback: Callable[[Sequence[int], int], int],
        launch: int = 0,
    ) -> None:
        api = ctypes.pythonapi
        self._block = np.zeros(HEADER + STRIDE * len(launches) + _ATTRIBUTE_SLOTS, np.int64)
        self._fallback = fallback
        places = [place for pointers in launches for place, *_ in pointers]
        self._block[: FROM_INT64 + 1] = [
            launch or address_of_function(driver().cuLaunchKernelEx),
            len(launches), max(places) + 1, id(fallback), id(tuple),
            *(
                address_of_function(function)
                for function in (
                    api.PyEval_SaveThread, api.PyEval_RestoreThread,
                    api.PyObject_Vectorcall, api.PyLong_FromLongLong,
                )
            ),
        ]  # fmt: skip
        attribute = HEADER + STRIDE * len(launches)
        self._block[attribute : attribute + 2] = _OVERLAP_ATTRIBUTE
        self._attribute: int = self._block.ctypes.data + 8 * attribute
        for index, pointers in enumerate(launches):
            block = self._launch(index)
            block[POINTERS] = len(pointers)
            for number, (place, shift, aligned) in enumerate(pointers):
                block[PLACES + number] = place
                block[SHIFTS + number] = shift
                block[MASKS + number] = 15 if aligned else 0

    def function(self) -> Callable[[Sequence[int], int], int]:
        """The builtin itself, which keeps this object."""
        return builtin("gpu.launch", emit_entry, self._block.ctypes.data, self)

    @staticmethod
    def takes(launches: Sequence[Sequence[Any]]) -> bool:
        """Whether a block has room for them."""
        return len(launches) <= MAX_LAUNCHES and all(len(p) <= MAX_POINTERS for p in launches)

    def _launch(self, index: int) -> Any:
        return self._block[HEADER + index * STRIDE :][:STRIDE]

    def fill(self, index: int, kernel: Kernel) -> None:
        """From now on, launch this kernel for addresses that are aligned."""
        block = self._launch(index)
        pointers = int(block[POINTERS])
        block[CONFIG : CONFIG + 4].view(np.uint32)[: len(kernel.grid)] = kernel.grid
        block[CONFIG + CONFIG_ATTRIBUTES] = self._attribute
        block[CONFIG + CONFIG_ATTRIBUTE_COUNT] = int(kernel.overlaps)
        block[PARAMETERS] = pointers + len(kernel.values)
        block[VALUES + pointers : VALUES + pointers + len(kernel.values)] = kernel.values
        block[FUNCTION] = kernel.function  # last: this makes it ready
