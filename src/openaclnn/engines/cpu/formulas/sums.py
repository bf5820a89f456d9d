"""Sums and means of what a formula gives: a block of elements is computed into the cache and added up in float64, then
block after block. The order does not depend on threads, so the same bits come out of every run.
"""

from __future__ import annotations

import functools
import math
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from openaclnn.core.dtypes import FLOAT, DType
from openaclnn.core.interop import strided_view
from openaclnn.core.plan import Kept, Operand, Plan
from openaclnn.core.tensor import contiguous_strides
from openaclnn.engines.cpu.formulas import sum_code
from openaclnn.engines.cpu.formulas.forms import (
    Flat,
    Form,
    Signature,
    constants,
    derive_address,
    kernel_address,
)
from openaclnn.engines.cpu.formulas.sum_code import (
    BLOCK,
    FEW,
    OWN,
    few_blocks,
    gathered_block,
    pairwise,
)
from openaclnn.engines.cpu.launching import pool
from openaclnn.engines.cpu.launching.launcher import TINY
from openaclnn.engines.cpu.layouts import tiles
from openaclnn.engines.cpu.registry import Runner, SizedRunner

__all__ = ["Filling", "flat", "runner", "sized", "write_one"]

SLAB = 1 << 18  # elements that are computed before they are added up where they have to be gathered


def runner(plan: Plan, form: Form) -> Runner:
    """What runs a plan by a form."""
    if not _in_a_row(plan):
        return _strided(plan, form)
    count, own = plan.shape[0], constants(form)
    signature, blocks = _signature(plan, tiles.singles(plan)), -(-count // BLOCK)
    kernel = kernel_address(form, signature)
    passed = len(own) + len(plan.inputs)
    pool.check_fit(OWN + passed)
    offsets = [operand.offset * operand.dtype.itemsize for operand in plan.inputs]
    if blocks <= FEW and not any(offsets) and plan.output.dtype is plan.compute:
        before = _before(plan, kernel, passed)
        return pool.bind(
            few_blocks(plan.compute.short), count, tiles.GRAIN, *before, *own, keep=form
        )

    def run(addresses: Sequence[int], stream: int = 0, keep: Form = form) -> int:
        memory = array("d", bytes(8 * blocks))
        left, _ = memory.buffer_info()
        places = [address + offset for address, offset in zip(addresses, offsets, strict=False)]
        pool.launch(sum_code.blocks(), blocks, FEW, kernel, passed, count, left, *own, *places)
        divisor = count if plan.reduction == "mean" else 1
        with np.errstate(all="ignore"):
            mean = np.frombuffer(memory).sum() / divisor
        if plan.output.dtype is not plan.compute:
            write_one(plan.output, addresses[-1], mean, plan.compute)
            return 0
        (bits,) = struct.unpack("q", struct.pack("d", mean))
        return pool.launch(sum_code.stored(plan.compute.short), 1, TINY, bits, addresses[-1])

    return run


def _in_a_row(plan: Plan) -> bool:
    """Whether each input's elements lie side by side, or are one."""
    return len(plan.shape) == 1 and all(own.strides[0] in (0, 1) for own in plan.inputs)


def _signature(plan: Plan, single: tuple[int, ...] = ()) -> Signature:
    """Of the flat kernel, whose results are added up as FLOAT."""
    dtypes = tuple([operand.dtype.short for operand in plan.inputs])
    return Signature(dtypes, FLOAT.short, FLOAT.short, single)


def _before(plan: Plan, kernel: int, passed: int) -> tuple[int, int, int, int]:
    """What the kernel of few blocks takes before a form's constants."""
    return kernel, passed, plan.reduction == "mean", pairwise()


def flat(plan: Plan, form: Form, single: tuple[int, ...]) -> Flat | None:
    """The kernel for few blocks of any size, and for one of any strides."""
    if plan.output.dtype is not plan.compute or form.table is not None:
        return None
    own, dtype = constants(form), plan.compute.short
    kernel = kernel_address(form, _signature(plan, single))
    before = _before(plan, kernel, len(own) + len(plan.inputs))
    derived = () if form.derive is None else form.derive.numbers
    return Flat(
        few_blocks(dtype), tiles.GRAIN, (*before, *own), -1, (1, FEW * BLOCK + 1), form, derive_address(form, OWN), derived,
        functools.partial(kernel_address, form, _signature(plan)), functools.partial(gathered_block, dtype),
        BLOCK,
    )  # fmt: skip


def sized(plan: Plan, form_of: Callable[[Plan], Form]) -> SizedRunner:
    """What runs more elements in a row than few blocks have, with any numbers; a size that comes again has its runner."""
    names = [own.option for own in plan.free]
    known: Kept[tuple[Any, ...], Runner] = Kept(64)

    def run(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[float]
    ) -> int:
        count = math.prod(shape)
        key = (count, *numbers)
        found = known.get(key)
        if found is None:
            own = dict(zip(names, numbers, strict=True)) if numbers else {}
            now = replace(plan, shape=(count,), numbers={**plan.numbers, **own})
            found = known[key] = runner(now, form_of(now))
        return found(tuple(addresses), stream)

    return run


def _strided(plan: Plan, form: Form) -> Runner:
    """The same for operands with any strides: slab after slab of the first axis is computed, then added up."""
    size, inner = plan.shape[0], math.prod(plan.shape[1:])
    step = min(size, max(1, SLAB // inner))
    run_slab = {rows: _slab(plan, form, rows) for rows in {step, size % step or step}}
    moves = [operand.strides[0] * operand.dtype.itemsize for operand in plan.inputs]
    divisor = size * inner if plan.reduction == "mean" else 1

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        values = np.empty(step * inner, np.float32)
        total = 0.0
        for start in range(0, size, step):
            rows = min(step, size - start)
            places = [own + start * move for own, move in zip(addresses, moves, strict=False)]
            run_slab[rows]((*places, values.ctypes.data), 0)
            total += float(values[: rows * inner].sum(dtype=np.float64))
        with np.errstate(all="ignore"):
            write_one(plan.output, addresses[-1], np.float64(total) / divisor, plan.compute)
        return 0

    return run


def _slab(plan: Plan, form: Form, rows: int) -> Runner:
    """What computes a slab's elements one after the other."""
    shape = (rows, *plan.shape[1:])
    dense = Operand(plan.output.parameter, FLOAT, contiguous_strides(shape))
    slab = replace(plan, shape=shape, compute=FLOAT, output=dense, reduction="")
    layout = tiles.arrange(slab)
    kernel = kernel_address(form, _signature(plan, layout.single))
    return tiles.runner(slab, layout, kernel, constants(form), keep=form)


def write_one(output: Operand, address: int, number: float, compute: DType) -> None:
    """An output of one element: rounded to FLOAT, then to the computation type, then to its own."""
    with np.errstate(over="ignore"):
        value = np.asarray(number).astype(np.float32).astype(compute.numpy)
        strided_view(address, output.dtype, (), ())[...] = value.astype(output.dtype.numpy)


class Filling:
    """Outputs of one element, each with the number under its name: what operators give for empty tensors."""

    def declines(self, plan: Plan) -> str | None:
        return None

    def runner(self, plan: Plan) -> Runner:
        def run(addresses: Sequence[int], stream: int = 0) -> int:
            for operand, address in zip(plan.operands, addresses, strict=True):
                write_one(operand, address, plan.numbers[operand.parameter], FLOAT)
            return 0

        return run

    def variants(self) -> Iterator[Plan]:
        yield Plan("", "fill", FLOAT, (1,), (), Operand("out", FLOAT, (0,)), {"out": math.nan})
