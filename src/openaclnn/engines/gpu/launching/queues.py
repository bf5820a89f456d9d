"""Launches of any size: a spec's kernel, with what sizes decide told at every call.

A prepared plan has its launches ready for one shape. Here nothing is made for a new shape: sizes select
a compiled variant, which is found by its constexprs, and the rest are numbers among its arguments.
`launchers/code.py` does the same in machine code, for the variants that were found here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import triton

from openaclnn.core.plan import Kept, Plan, exactly, told_of
from openaclnn.engines.gpu.launching import runners
from openaclnn.engines.gpu.launching.launch import VECTOR_BYTES, KernelSpec, Launch
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT
from openaclnn.engines.gpu.launching.steps import (
    interpreted_step,
    is_interpreted,
    offsets_of,
    places_of,
)
from openaclnn.engines.gpu.launching.variants import Start, kinds_of, variant_of

__all__ = [
    "NOT_SERVED",
    "Queue",
    "Ready",
    "SizedRunner",
    "can_be_queued",
    "queue_of",
    "remembered",
]

SizedRunner = Callable[[Sequence[int], int, Sequence[int], Sequence[Any]], int]
"""Of addresses, a stream, the shape, and the plan's free numbers; without these, the plan's own hold."""

NOT_SERVED = 1
"""What a runner of any strides returns where there are more axes than it takes."""

Queue = Callable[..., None]  # of addresses (a 0 last, if it is needed), a stream, and `Sizes`


def can_be_queued() -> bool:
    """Whether there is one device, or the interpreter: nobody asks which device an address is on."""
    return bool(triton.knobs.runtime.interpret) or runners.device_library() is None


Ready = Callable[[tuple[Any, ...], int, Any, int], None]
"""Of constexprs, warps, a native.Kernel, and a bit for each pointer that it takes as off a vector's bounds."""


def queue_of(spec: KernelSpec, ready: Ready | None = None) -> Queue:
    """What queues the kernel on the one device there is. Slots must have no shifts.

    `ready` is told the kernels for numbers of 32 bits.
    """
    if is_interpreted(spec.kernel):
        return _interpreted_queue(spec)
    slots, pick = spec.slots, places_of(spec.slots)
    found: dict[tuple[Any, ...], Start] = {}

    def queue(
        addresses: Sequence[int],
        stream: int,
        grid: int,
        numbers: Any,
        constexprs: Any,
        warps: int,
    ) -> None:
        pointers = pick(addresses)
        bits = 0
        for pointer in pointers:
            bits |= pointer
        key: tuple[Any, ...] = (constexprs, warps)
        large = bool(numbers) and (max(numbers) >= INT32_LIMIT or min(numbers) < -INT32_LIMIT)
        if bits % VECTOR_BYTES or large:
            key = (constexprs, warps, offsets_of(slots, pointers), kinds_of(numbers))
        start = found.get(key)
        if start is None:
            offsets = offsets_of(slots, pointers)
            launch = Launch(spec, grid, numbers, constexprs, warps)
            variant = variant_of(launch, offsets, 0)
            start = found[key] = variant.start
            if ready is not None and variant.native is not None and not large:
                own = [off for off, slot in zip(offsets, slots, strict=True) if slot is not None]
                astray = sum(1 << place for place, off in enumerate(own) if off)
                ready(constexprs, warps, variant.native, astray)
        start(grid, stream, *pointers, *numbers)

    return queue


def _interpreted_queue(spec: KernelSpec) -> Queue:
    def queue(addresses: Sequence[int], stream: int, *sizes: Any) -> None:
        interpreted_step(Launch(spec, *sizes))(addresses, stream, 0)

    return queue


_remembered: Kept[tuple[Any, ...], Any] = Kept(256)
Made = TypeVar("Made")


def remembered(plan: Plan, make: Callable[[Plan], Made], strided: bool = False) -> Made:
    """What `make` gives for a plan, or gave for another of its kind: one that differs in sizes, or in strides, alone."""
    strides = () if plan.classes or strided else map(_strides_of, plan.operands)
    key = (
        make, plan.kernel, plan.compute, plan.reduction, plan.reciprocal, plan.free,
        exactly(plan.numbers, plan.reciprocal), *map(told_of, plan.operands), *strides,
    )  # fmt: skip
    found: Made | None = _remembered.get(key)
    if found is None:
        found = _remembered[key] = make(plan)
    return found


_strides_of = attrgetter("strides")
