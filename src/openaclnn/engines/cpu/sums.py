"""Sums and means of what a formula gives: a block of elements is computed into the cache and added up in float64, then
block after block. The order does not depend on threads, so the same bits come out of every run.
"""

from __future__ import annotations

import functools
import math
import struct
from array import array
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
from openaclnn.engines.cpu.launcher import TINY, grain_of_one
from openaclnn.engines.cpu.registry import Runner
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Shape, Value

__all__ = ["Filling", "runner"]

BLOCK = 4096  # elements
SLAB = 1 << 18  # elements that are computed before they are added up where they have to be gathered
LANES = 16  # sums that run beside each other in a block, on every machine

FEW = tiles.GRAIN // BLOCK  # blocks that one thread does sooner than two

# What comes before the flat kernel's own arguments; of few blocks the divisor, in place of where sums are left.
FLAT, COUNT, SUMS, PASSED, OWN = range(5)


@functools.cache
def _blocks() -> int:
    """The kernel that leaves the sums of blocks in memory, one after the other."""
    return cache.compiled("sums.blocks", _emit_blocks)


@functools.cache
def _few(dtype: str) -> int:
    """The kernel of few blocks, which writes their sum over a divisor into the output."""
    return cache.compiled(f"sums.few.{dtype}", functools.partial(_emit_few, dtype))


@functools.cache
def _stored(dtype: str) -> int:
    """The kernel that writes one number: ten times as fast as NumPy."""
    return cache.compiled(f"sums.stored.{dtype}", functools.partial(_emit_stored, dtype))


def _emit_stored(dtype: str, code: Code, arguments: Sequence[Value]) -> None:
    number, place = (code.slots(arguments[0]).at(FIRST_ARGUMENT).read(at) for at in range(2))
    code.store(number.bits_as("f64").to("f32"), place, dtype)


class _Blocks:
    """Blocks of elements, computed into the cache and added up."""

    def __init__(self, code: Code, block: Value) -> None:
        self.code, self.given = code, code.slots(block).at(FIRST_ARGUMENT)
        self.flat, self.count, self.sums, self.passed = (
            self.given.read(where) for where in (FLAT, COUNT, SUMS, PASSED)
        )
        self.own = code.frame("i64", FIRST_ARGUMENT + MAX_ARGUMENTS)
        with code.loop(0, self.passed) as index:
            self.own.write(index + FIRST_ARGUMENT, self.given.read(index + OWN))
        self.values = code.frame("f32", BLOCK)

    def sum_of(self, number: Value) -> Value:
        code, place, start = self.code, self.values.address(), number * BLOCK
        stop = (start + BLOCK).least(self.count)
        with code.when((stop - start) < BLOCK):
            code.clear(place, code.integer(4 * BLOCK))
        # It writes from element `start` on.
        self.own.write(self.passed + FIRST_ARGUMENT, place - start * 4)
        code.call(self.flat, None, self.own, start, stop)
        total = code.variable(code.constant("f64", 0.0, LANES))
        with code.loop(0, code.integer(BLOCK), LANES) as index:
            total.set(total.get() + self.values.load(index, Shape(1, LANES)).to("f64"))
        return _paired([total.get().lane(lane) for lane in range(LANES)])


def _paired(parts: list[Value]) -> Value:
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [a + b for a, b in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]


def _emit_blocks(code: Code, arguments: Sequence[Value]) -> None:
    block, first, last = arguments
    blocks = _Blocks(code, block)
    results = code.array(blocks.sums, "f64")
    with code.loop(first, last) as number:
        results.write(number, blocks.sum_of(number))


def _emit_few(dtype: str, code: Code, arguments: Sequence[Value]) -> None:
    blocks, results = _Blocks(code, arguments[0]), code.frame("f64", FEW)
    many = (blocks.count + (BLOCK - 1)) // BLOCK
    total = code.variable(code.double(0.0))
    with code.loop(0, many) as number:
        own = blocks.sum_of(number)
        results.write(number, own)
        total.set(total.get() + own)
    # NumPy, which adds up many blocks, takes eight numbers by pairs of neighbours.
    parts = [results.read(at) for at in (0, 4, 2, 6, 1, 5, 3, 7)]
    mean = many.equals(FEW).choose(_paired(parts), total.get()) / blocks.sums.bits_as("f64")
    code.store(mean.to("f32"), blocks.given.read(blocks.passed + OWN), dtype)


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
    if blocks <= FEW and not any(offsets) and plan.output.dtype is plan.compute:
        (bits,) = struct.unpack("q", struct.pack("d", divisor))
        kernel = _few(plan.compute.short)
        return pool.bind(kernel, 1, grain_of_one(count), flat, count, bits, passed, *own, keep=form)  # fmt: skip

    def run(addresses: Sequence[int], stream: int = 0, keep: Form = form) -> int:
        memory = array("d", bytes(8 * blocks))
        left, _ = memory.buffer_info()
        places = [address + offset for address, offset in zip(addresses, offsets, strict=False)]
        pool.launch(
            _blocks(), blocks, FEW, flat, count, left, passed, *own, *places
        )  # fmt: skip
        with np.errstate(all="ignore"):
            mean = np.frombuffer(memory).sum() / divisor
        if plan.output.dtype is not plan.compute:
            write_one(plan.output, addresses[-1], mean, plan.compute)
            return 0
        (bits,) = struct.unpack("q", struct.pack("d", mean))
        return pool.launch(_stored(plan.compute.short), 1, TINY, bits, addresses[-1])

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
