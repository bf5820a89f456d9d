"""Sums and means of what a formula gives: a block of elements is computed into the cache and added up in float64, then
block after block. The order does not depend on threads, so the same bits come out of every run.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from openaclnn.core.dtypes import FLOAT, DType
from openaclnn.core.interop import strided_view
from openaclnn.core.plan import Operand, Plan
from openaclnn.core.tensor import contiguous_strides
from openaclnn.engines.cpu import pool, tiles
from openaclnn.engines.cpu.control import FIRST_ARGUMENT, MAX_ARGUMENTS
from openaclnn.engines.cpu.forms import Form, Signature, constants, kernel_address
from openaclnn.engines.cpu.launcher import grain_of_one
from openaclnn.engines.cpu.registry import Runner
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Shape, Value

__all__ = ["Filling", "runner"]

BLOCK = 4096  # elements
SLAB = 1 << 18  # elements that are computed before they are added up where they have to be gathered
LANES = 16  # sums that run beside each other in a block, on every machine

# What comes before the flat kernel's own arguments; of one block the divisor, in place of where sums are left.
FLAT, COUNT, SUMS, PASSED, OWN = range(5)


@functools.cache
def _blocks() -> int:
    """The kernel that leaves the sums of blocks in memory, one after the other."""
    return cache.compiled("sums.blocks", _emit)


@functools.cache
def _one(dtype: str) -> int:
    """The kernel of one block, which writes its sum over a divisor into the output."""
    return cache.compiled(f"sums.one.{dtype}", functools.partial(_emit, dtype=dtype))


def _emit(code: Code, arguments: Sequence[Value], dtype: str = "") -> None:
    block, first, last = arguments
    given = code.slots(block).at(FIRST_ARGUMENT)
    flat, count, sums, passed = (given.read(where) for where in (FLAT, COUNT, SUMS, PASSED))
    results = code.array(sums, "f64")
    own = code.frame("i64", FIRST_ARGUMENT + MAX_ARGUMENTS)
    with code.loop(0, passed) as index:
        own.write(index + FIRST_ARGUMENT, given.read(index + OWN))
    values = code.frame("f32", BLOCK)
    place = values.address()
    with code.loop(first, last) as number:
        start = number * BLOCK
        stop = (start + BLOCK).least(count)
        with code.when((stop - start) < BLOCK):
            code.clear(place, code.integer(4 * BLOCK))
        own.write(passed + FIRST_ARGUMENT, place - start * 4)  # it writes from element `start` on
        code.call(flat, None, own, start, stop)
        total = code.variable(code.constant("f64", 0.0, LANES))
        with code.loop(0, code.integer(BLOCK), LANES) as index:
            total.set(total.get() + values.load(index, Shape(1, LANES)).to("f64"))
        parts = [total.get().lane(lane) for lane in range(LANES)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [a + b for a, b in zip(parts[:half], parts[half:], strict=True)]
        if dtype:
            mean = parts[0] / sums.bits_as("f64")
            code.store(mean.to("f32"), given.read(passed + OWN), dtype)
        else:
            results.write(number, parts[0])


def runner(plan: Plan, form: Form, lanes: int = 0) -> Runner:
    """What runs a plan by a form."""
    if len(plan.shape) > 1 or any(own.strides[0] not in (0, 1) for own in plan.inputs):
        return _strided(plan, form, lanes)
    count = plan.shape[0]
    single = tuple([at for at, own in enumerate(plan.inputs) if count > 1 and not own.strides[0]])
    dtypes = tuple([operand.dtype.short for operand in plan.inputs])
    flat = kernel_address(form, Signature(dtypes, FLOAT.short, FLOAT.short, single), lanes)
    own, blocks = constants(form), -(-count // BLOCK)
    passed = len(own) + len(plan.inputs)
    pool.check_fit(OWN + passed)
    offsets = [operand.offset * operand.dtype.itemsize for operand in plan.inputs]
    divisor = count if plan.reduction == "mean" else 1
    if blocks == 1 and not any(offsets) and plan.output.dtype is plan.compute:
        (bits,) = struct.unpack("q", struct.pack("d", divisor))
        kernel = _one(plan.compute.short)
        return pool.bind(kernel, 1, grain_of_one(count), flat, count, bits, passed, *own, keep=form)  # fmt: skip

    def run(addresses: Sequence[int], stream: int = 0, keep: Form = form) -> int:
        sums = np.empty(blocks)
        places = [address + offset for address, offset in zip(addresses, offsets, strict=False)]
        pool.launch(
            _blocks(), blocks, tiles.GRAIN // BLOCK, flat, count, sums.ctypes.data, passed, *own, *places
        )  # fmt: skip
        with np.errstate(all="ignore"):
            write_one(plan.output, addresses[-1], sums.sum() / divisor, plan.compute)
        return 0

    return run


def _strided(plan: Plan, form: Form, lanes: int) -> Runner:
    """The same for operands with any strides: slab after slab of the first axis is computed, then added up."""
    size, inner = plan.shape[0], math.prod(plan.shape[1:])
    step = min(size, max(1, SLAB // inner))
    run_slab = {rows: _slab(plan, form, rows, lanes) for rows in {step, size % step or step}}
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


def _slab(plan: Plan, form: Form, rows: int, lanes: int) -> Runner:
    """What computes a slab's elements one after the other."""
    shape = (rows, *plan.shape[1:])
    dense = Operand(plan.output.parameter, FLOAT, contiguous_strides(shape))
    slab = replace(plan, shape=shape, compute=FLOAT, output=dense, reduction="")
    layout = tiles.arrange(slab)
    dtypes = tuple([operand.dtype.short for operand in plan.inputs])
    own = Signature(dtypes, FLOAT.short, FLOAT.short, layout.single)
    kernel = kernel_address(form, own, lanes)
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

    def runner(self, plan: Plan, lanes: int = 0) -> Runner:
        def run(addresses: Sequence[int], stream: int = 0) -> int:
            for operand, address in zip(plan.operands, addresses, strict=True):
                write_one(operand, address, plan.numbers[operand.parameter], FLOAT)
            return 0

        return run

    def variants(self) -> Iterator[Plan]:
        yield Plan("", "fill", FLOAT, (1,), (), Operand("out", FLOAT, (0,)), {"out": math.nan})
