"""The sums that `mean` divides by, of targets of any number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.launching import scratch
from openaclnn.engines.gpu.launching.launch import Launched, Sizes, Slot
from openaclnn.engines.gpu.launching.operands import operand_of
from openaclnn.engines.gpu.launching.queues import Ready, SizedRunner, queue_of
from openaclnn.engines.gpu.plans import sums

Main = Callable[[Sequence[int], int, Sequence[int], Sequence[Any], int], None]
"""Queues a kernel: of addresses with those of the sums and a 0, a stream, the output's shape, numbers, and parts."""


def sums_slot(plan: Plan) -> Slot:
    """Where `sized_with_sums` has the sums: one address for their parts, another for what is to be read."""
    return Slot(len(plan.inputs) + 2, "float64")


def _row_major_sizes(
    count: int, weighted: bool, classes: int, ignore_index: int, parts: int
) -> Sizes:
    """Of row-major targets."""
    shape, strides = (1, count), (0, 0, 1)
    return sums.add_sizes(count, shape, strides, int(weighted), classes, ignore_index, parts, 1)


ReadyOf = Callable[[str], Ready | None]
"""Who is told compiled kernels, by the launch's name."""


def sums_launched(plan: Plan, weight: str, strided: bool = False) -> Launched:
    """What makes the sums of `sized_with_sums` or `strided_with_sums`, at some size."""
    add = _strided_sizes((1, 1, 1), (0, 0, 0), 0, 1, -1, 1)
    weighted = operand_of(plan, weight) is not None
    if not strided:
        add = _row_major_sizes(1, weighted, 1, -1, 1)
    finish = sums.finish_family(plan, sums_slot(plan)), sums.finish_sizes(weighted)
    return {sums.ADD: (sums.add_family(plan, weight), add), sums.FINISH: finish}


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
            lambda parts: _row_major_sizes(count, weighted, classes, ignore_index, parts),
            lambda given, parts: main(given, stream, shape, numbers, parts),
        )  # fmt: skip

    return run


def sized_without_sums(main: Main) -> SizedRunner:
    """The same where the kernel takes none."""

    def run(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[Any]
    ) -> int:
        main((*addresses, 0), stream, shape, numbers, 1)
        return 0

    return run


def _strided_sizes(
    shape: tuple[int, ...], strides: tuple[int, ...], weight_stride: int, classes: int, ignore_index: int, parts: int,
) -> Sizes:  # fmt: skip
    """Of targets of three axes that lie anyhow."""
    count = math.prod(shape)
    return sums.add_sizes(count, shape[1:], strides, weight_stride, classes, ignore_index, parts, 3)


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
            lambda parts: _strided_sizes(
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
        parts = sums.parts_of(count, classes if weighted else 0)
        with scratch.lent(sums.scratch_of(parts), stream) as memory:
            few = parts <= sums.FEW_PARTS
            ready_at = memory if few else memory + sums.SUMS * parts * sums.FLOAT64_BYTES
            given = (*addresses, memory, ready_at, 0)
            add(given, stream, *sizes(parts))
            if not few:
                finish(given, stream, *sums.finish_sizes(weighted))
            main(given, parts if few else 1)
        return 0

    return run
