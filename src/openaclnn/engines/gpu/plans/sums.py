"""How the sums that `mean` divides by are launched: in how many parts, and where they lie."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from openaclnn.core.plan import Plan, collapse
from openaclnn.engines.gpu.kernels.sums import add_up, finish_sums
from openaclnn.engines.gpu.launching import scratch
from openaclnn.engines.gpu.launching.launch import (
    Family,
    Launch,
    Launched,
    Sizes,
    Slot,
    next_power_of_two,
)
from openaclnn.engines.gpu.launching.operands import (
    INT32_LIMIT,
    ignored,
    operand_of,
    pointer_type,
    slots_of,
)
from openaclnn.engines.gpu.launching.queues import Ready, SizedRunner, queue_of

FLOAT64_BYTES = 8
SUMS = 3  # the counted targets' weights, their number, all classes' weights

# Up to this many positions the kernel that needs a sum adds up a few parts itself; beyond, the sum is
# shared out among more programs, and a launch of its own (1-2 us) finishes it.
FEW_POSITIONS = 1 << 17
FEW_PARTS, MANY_PARTS = 16, 1024
SUM_BLOCK = 1024


class Sums(NamedTuple):
    """The sums of a plan."""

    launches: list[Launch]  # make them
    slot: Slot | None  # where they lie
    parts: int  # that their user adds up
    scratch: int  # bytes of memory


NO_SUMS = Sums([], None, 1, 0)


def sum_launches(plan: Plan, weight: str) -> Sums:
    """What makes the sums that a plan needs."""
    target, weights = plan.inputs[plan.targets], operand_of(plan, weight)
    # Only the targets are walked, so axes merge that other operands may keep apart.
    merged, (steps,), (offset,) = collapse(plan.shape, [target.strides])
    missing = 3 - len(merged)
    shape, strides = (1,) * missing + merged, (0,) * missing + steps
    count = math.prod(shape)
    parts = _parts(count, plan.classes if weights else 0)
    step = weights.class_stride if weights else 0
    sizes = _add_sizes(
        count, shape[1:], strides, step, plan.classes, plan.numbers["ignore_index"], parts, len(merged)
    )  # fmt: skip
    add = Launch(add_family(plan, weight, offset), *sizes)
    if parts <= FEW_PARTS:
        return Sums([add], _into(plan), parts, _scratch(parts))
    finished = _into(plan)._replace(shift=SUMS * parts * FLOAT64_BYTES)
    finish = Launch(_finish_family(plan, finished), *_finish_sizes(weights is not None))
    return Sums([add, finish], finished, 1, _scratch(parts))


def _parts(count: int, classes: int) -> int:
    longest = max(count, classes)
    if longest > FEW_POSITIONS:
        return MANY_PARTS
    return min(next_power_of_two(-(-longest // SUM_BLOCK)), FEW_PARTS)


def _scratch(parts: int) -> int:
    return SUMS * (parts + (parts > FEW_PARTS)) * FLOAT64_BYTES


def _into(plan: Plan) -> Slot:
    return Slot(len(plan.inputs) + 1, "float64")


def add_family(plan: Plan, weight: str, offset: int = 0) -> Family:
    target = plan.inputs[plan.targets]
    shift = (target.offset + offset) * target.dtype.itemsize
    slots = (
        Slot(plan.targets, pointer_type(target), shift),
        *slots_of(plan, {weight: False}),
        _into(plan),
    )
    return Family(add_up, slots, overlapped=True)


def _finish_family(plan: Plan, finished: Slot) -> Family:
    return Family(finish_sums, (_into(plan), finished), overlapped=True, follows=True)


def _add_sizes(
    count: int, shape: tuple[int, ...], strides: tuple[int, ...],
    weight_stride: int, classes: int, ignore_index: int, parts: int, axes: int,
) -> Sizes:  # fmt: skip
    wide = count + (parts + 1) * SUM_BLOCK >= INT32_LIMIT
    numbers = count, *shape, *strides, weight_stride, classes, ignored(ignore_index), parts
    return parts, numbers, (axes, wide, SUM_BLOCK), 8


def _finish_sizes(weighted: bool) -> Sizes:
    return SUMS if weighted else SUMS - 1, (), (MANY_PARTS,), 4


Main = Callable[[Sequence[int], int, Sequence[int], Sequence[Any], int], None]
"""Queues a kernel: of addresses with those of the sums and a 0, a stream, the output's shape, numbers, and parts."""


def sums_slot(plan: Plan) -> Slot:
    """Where `sized_with_sums` has the sums: one address for their parts, another for what is to be read."""
    return Slot(len(plan.inputs) + 2, "float64")


def add_sizes(count: int, weighted: bool, classes: int, ignore_index: int, parts: int) -> Sizes:
    """Of row-major targets."""
    shape, strides = (1, count), (0, 0, 1)
    return _add_sizes(count, shape, strides, int(weighted), classes, ignore_index, parts, 1)


ADD, FINISH = "add", "finish"
"""The launches of sums by their names."""

ReadyOf = Callable[[str], Ready | None]
"""Who is told compiled kernels, by the launch's name."""


def sums_launched(plan: Plan, weight: str, strided: bool = False) -> Launched:
    """What makes the sums of `sized_with_sums` or `strided_with_sums`, at some size."""
    add = strided_add_sizes((1, 1, 1), (0, 0, 0), 0, 1, -1, 1)
    weighted = operand_of(plan, weight) is not None
    if not strided:
        add = add_sizes(1, weighted, 1, -1, 1)
    finish = _finish_family(plan, sums_slot(plan)), _finish_sizes(weighted)
    return {ADD: (add_family(plan, weight), add), FINISH: finish}


def sized_with_sums(plan: Plan, weight: str, main: Main, ready: ReadyOf) -> SizedRunner:
    """`main` with sums of row-major targets, whatever the shape: positions, with the classes second."""
    weighted, own = operand_of(plan, weight) is not None, plan.numbers["ignore_index"]
    with_sums = _with_sums(plan, weight, ready)

    def run(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[Any]
    ) -> int:
        classes, ignore_index = shape[1], numbers[0] if numbers else own
        count = math.prod(shape) // classes
        return with_sums(
            addresses, stream, count, classes,
            lambda parts: add_sizes(count, weighted, classes, ignore_index, parts),
            lambda given, parts: main(given, stream, shape, numbers, parts),
        )  # fmt: skip

    return run


def strided_add_sizes(
    shape: tuple[int, ...], strides: tuple[int, ...], weight_stride: int, classes: int, ignore_index: int, parts: int,
) -> Sizes:  # fmt: skip
    """Of targets of three axes that lie anyhow."""
    count = math.prod(shape)
    return _add_sizes(count, shape[1:], strides, weight_stride, classes, ignore_index, parts, 3)


def strided_with_sums(plan: Plan, weight: str, ready: ReadyOf) -> Callable[..., int]:
    """The same for targets of up to three axes that lie anyhow: of addresses, a stream, the targets' sizes and strides, the
    weights' stride, the classes, the ignored one, and what queues the kernel given all addresses and the parts."""
    with_sums = _with_sums(plan, weight, ready)

    def run(
        addresses: Sequence[int], stream: int, shape: tuple[int, ...], strides: tuple[int, ...],
        weight_stride: int, classes: int, ignore_index: int, main: Callable[[Sequence[int], int], None],
    ) -> int:  # fmt: skip
        count = math.prod(shape)
        return with_sums(
            addresses, stream, count, classes,
            lambda parts: strided_add_sizes(
                shape, strides, weight_stride, classes, ignore_index, parts
            ),
            main,
        )  # fmt: skip

    return run


def _with_sums(plan: Plan, weight: str, ready: ReadyOf) -> Callable[..., int]:
    add, finish = (
        queue_of(family, ready(name)) for name, (family, _) in sums_launched(plan, weight).items()
    )
    weighted = operand_of(plan, weight) is not None

    def run(
        addresses: Sequence[int], stream: int, count: int, classes: int,
        sizes: Callable[[int], Sizes], main: Callable[[Sequence[int], int], None],
    ) -> int:  # fmt: skip
        parts = _parts(count, classes if weighted else 0)
        memory = scratch.allocate(_scratch(parts), stream)
        try:
            few = parts <= FEW_PARTS
            ready_at = memory if few else memory + SUMS * parts * FLOAT64_BYTES
            given = (*addresses, memory, ready_at, 0)
            add(given, stream, *sizes(parts))
            if not few:
                finish(given, stream, *_finish_sizes(weighted))
            main(given, parts if few else 1)
        finally:
            scratch.release(memory)
        return 0

    return run
