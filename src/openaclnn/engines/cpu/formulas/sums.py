"""Sums and means of what a formula gives: a block of elements is computed into the cache by a flat kernel and added up in float64, then
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
from openaclnn.core.plan import BoundedCache, Operand, Plan
from openaclnn.core.tensor import contiguous_strides
from openaclnn.engines.cpu.formulas.forms import (
    Flat,
    Form,
    Signature,
    constants,
    derive_address,
    kernel_address,
)
from openaclnn.engines.cpu.launching import pool
from openaclnn.engines.cpu.launching.control import FIRST_ARGUMENT, MAX_ARGUMENTS
from openaclnn.engines.cpu.launching.launcher import TINY
from openaclnn.engines.cpu.layouts import tiles
from openaclnn.engines.cpu.layouts.gathered import Gathered
from openaclnn.engines.cpu.registry import Runner, SizedRunner
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.kinds import signature
from openaclnn.engines.machine.values import Shape, Value

SLAB = 1 << 18  # elements that are computed before they are added up where they have to be gathered
BLOCK = 4096  # elements
FEW = tiles.GRAIN // BLOCK  # blocks that one thread does sooner than two
LANES = 16  # sums that run beside each other in a block, on every machine
ROOM = BLOCK + LANES
# NumPy's pairwise sum: running sums, and elements up to which nothing is halved.
UNROLLED, IN_ORDER = 8, 128

# What comes before the flat kernel's own arguments. Of few blocks the count is the launch's: there the first two are whether
# to divide by it, and what adds up pairwise.
FLAT, PASSED, COUNT, SUMS, FIRST = range(5)
MEAN, PAIRWISE = COUNT, SUMS


def runner(plan: Plan, form: Form) -> Runner:
    """What runs a plan by a form."""
    if not _in_a_row(plan):
        return _strided(plan, form)
    count, numbers = plan.shape[0], constants(form)
    signature, blocks = _signature(plan, tiles.singles(plan)), -(-count // BLOCK)
    kernel = kernel_address(form, signature)
    passed = len(numbers) + len(plan.inputs)
    pool.check_fit(FIRST + passed)
    offsets = [operand.offset * operand.dtype.itemsize for operand in plan.inputs]
    if blocks <= FEW and not any(offsets) and plan.output.dtype is plan.compute:
        before = _before(plan, kernel, passed)
        return pool.bind(
            few_blocks(plan.compute.short), count, tiles.GRAIN, *before, *numbers, keep=form
        )

    def run(addresses: Sequence[int], stream: int = 0, keep: Form = form) -> int:
        memory = array("d", bytes(8 * blocks))
        left, _ = memory.buffer_info()
        places = [address + offset for address, offset in zip(addresses, offsets, strict=False)]
        pool.launch(all_blocks(), blocks, FEW, kernel, passed, count, left, *numbers, *places)
        divisor = count if plan.reduction == "mean" else 1
        with np.errstate(all="ignore"):
            mean = np.frombuffer(memory).sum() / divisor
        if plan.output.dtype is not plan.compute:
            write_one(plan.output, addresses[-1], mean, plan.compute)
            return 0
        (bits,) = struct.unpack("q", struct.pack("d", mean))
        return pool.launch(stored(plan.compute.short), 1, TINY, bits, addresses[-1])

    return run


def _in_a_row(plan: Plan) -> bool:
    """Whether each input's elements lie side by side, or are one."""
    return len(plan.shape) == 1 and all(operand.strides[0] in (0, 1) for operand in plan.inputs)


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
    numbers, dtype = constants(form), plan.compute.short
    kernel = kernel_address(form, _signature(plan, single))
    before = _before(plan, kernel, len(numbers) + len(plan.inputs))
    derived = () if form.derive is None else form.derive.numbers
    return Flat(
        few_blocks(dtype), tiles.GRAIN, (*before, *numbers), -1, (1, FEW * BLOCK + 1), form, derive_address(form, FIRST), derived,
        functools.partial(kernel_address, form, _signature(plan)), functools.partial(gathered_block, dtype),
        BLOCK,
    )  # fmt: skip


def dynamic_shapes(plan: Plan, form_of: Callable[[Plan], Form]) -> SizedRunner:
    """What runs more elements in a row than few blocks have, with any numbers; a size that comes again has its runner."""
    names = [changed.option for changed in plan.free]
    known: BoundedCache[tuple[Any, ...], Runner] = BoundedCache(64)

    def run(
        addresses: Sequence[int], stream: int, shape: Sequence[int], numbers: Sequence[float]
    ) -> int:
        count = math.prod(shape)
        key = (count, *numbers)
        run_size = known.get(key)
        if run_size is None:
            changed = dict(zip(names, numbers, strict=True)) if numbers else {}
            now = replace(plan, shape=(count,), numbers={**plan.numbers, **changed})
            run_size = known[key] = runner(now, form_of(now))
        return run_size(tuple(addresses), stream)

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
            places = [
                address + start * move for address, move in zip(addresses, moves, strict=False)
            ]
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
    """Outputs of one element, each with the number under its name, or one of several: what operators give for empty tensors."""

    def declines(self, plan: Plan) -> str | None:
        return None

    def runner(self, plan: Plan) -> Runner:
        def run(addresses: Sequence[int], stream: int = 0) -> int:
            for operand, address in zip(plan.operands, addresses, strict=True):
                number = plan.numbers[operand.parameter]
                if operand.role == "single":
                    write_one(operand, address, number, FLOAT)
                else:
                    start = address + operand.offset * operand.dtype.itemsize
                    strided_view(start, operand.dtype, plan.shape, operand.strides)[...] = number
            return 0

        return run

    def variants(self) -> Iterator[Plan]:
        yield Plan("", "fill", FLOAT, (1,), (), Operand("out", FLOAT, (0,)), {"out": math.nan})


@functools.cache
def all_blocks() -> int:
    """The kernel that leaves the sums of blocks in memory, one after the other."""
    return cache.compiled("sums.blocks", _emit_blocks)


def _emit_blocks(code: Code, arguments: Sequence[Value]) -> None:
    block, first, last = arguments
    passed = code.slots(block).at(FIRST_ARGUMENT)
    count, results = passed.read(COUNT), code.array(passed.read(SUMS), "f64")
    computed = _Computed(code, passed)
    with code.loop(first, last) as number:
        start = number * BLOCK
        results.write(number, computed.total(start, (start + BLOCK).least(count)))


@functools.cache
def few_blocks(dtype: str) -> int:
    """The kernel over all of up to FEW blocks, which writes their sum or mean into the output."""
    return cache.compiled(f"sums.few.{dtype}", functools.partial(_emit_few, dtype=dtype))


def _emit_few(code: Code, arguments: Sequence[Value], dtype: str) -> None:
    block, _, count = arguments
    passed = code.slots(block).at(FIRST_ARGUMENT)
    computed, sums = _Computed(code, passed), code.frame("f64", FEW)
    total, many = code.variable(code.double(0.0)), (count + (BLOCK - 1)).unsigned_div(BLOCK)
    with code.loop(0, many) as number:
        start = number * BLOCK
        block_sum = computed.total(start, (start + BLOCK).least(count))
        sums.write(number, block_sum)
        total.set(total.get() + block_sum)
    # NumPy, which adds up many blocks, takes eight numbers by pairs of neighbours.
    by_pairs = paired([sums.read(at) for at in (0, 4, 2, 6, 1, 5, 3, 7)])
    result = (many == FEW).choose(by_pairs, total.get())
    code.store(_mean(passed, result, count), passed.read(passed.read(PASSED) + FIRST), dtype)


def stored(dtype: str) -> int:
    """The kernel that writes one number: ten times as fast as NumPy."""
    return cache.compiled(f"sums.stored.{dtype}", functools.partial(_emit_stored, dtype=dtype))


def _emit_stored(code: Code, arguments: Sequence[Value], dtype: str) -> None:
    number, place = (code.slots(arguments[0]).at(FIRST_ARGUMENT).read(at) for at in range(2))
    code.store(number.bits_as("f64").to("f32"), place, dtype)


def _mean(passed: Array, total: Value, count: Value) -> Value:
    """A sum, or a mean of so many, as FLOAT."""
    divisor = passed.flag(MEAN).choose(count.to("f64"), 1.0)
    return (total / divisor).to("f32")


class _Computed:
    """Blocks being computed: room for one, and the flat kernel's arguments."""

    def __init__(self, code: Code, passed_on: Array) -> None:
        self.code, self.flat, self.passed = code, passed_on.read(FLAT), passed_on.read(PASSED)
        self.values = code.frame("f32", ROOM)
        self.arguments = code.frame("i64", FIRST_ARGUMENT + MAX_ARGUMENTS)
        with code.loop(0, self.passed) as index:
            self.arguments.write(index + FIRST_ARGUMENT, passed_on.read(index + FIRST))

    def total(self, start: Value, stop: Value) -> Value:
        """The sum of up to BLOCK elements from one on."""
        code, place = self.code, self.values.address()
        clear_last(code, self.values, stop - start)
        # The kernel writes from element `start` on.
        self.arguments.write(self.passed + FIRST_ARGUMENT, place - start * 4)
        code.call(self.flat, None, self.arguments, start, stop)
        return sum_of_block(code, self.values, stop - start)


def clear_last(code: Code, values: Array, count: Value) -> None:
    """Zeros into the last lanes of so many elements, before those are computed."""
    values.store(code.constant("f32", 0.0, LANES), count - count.unsigned_rem(LANES))


def sum_of_block(code: Code, values: Array, count: Value) -> Value:
    total = code.variable(code.constant("f64", 0.0, LANES))
    with code.loop(0, count, LANES) as index:
        total.set(total.get() + values.load(index, Shape(1, LANES)).to("f64"))
    return paired([total.get().lane(lane) for lane in range(LANES)])


def paired(parts: list[Value]) -> Value:
    """Their sum, by halves."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [a + b for a, b in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]


def gathered_block(dtype: str) -> int:
    """The same as `few_blocks` for one block of elements of any strides, which are gathered (`gathered.py`)."""
    return cache.compiled(f"sums.gathered.{dtype}", functools.partial(_emit_gathered, dtype=dtype))


def _emit_gathered(code: Code, arguments: Sequence[Value], dtype: str) -> None:
    block, _, stop = arguments
    passed = code.slots(block).at(FIRST_ARGUMENT)
    one, constants_of_sum = _GatheredSum(code, passed, FIRST), passed.at(1)
    clear_last(code, one.values, stop)
    one.tiles(code.integer(0), stop)
    total = code.variable(code.double(0.0))
    # What lies in a row is added up as a block is, the rest as NumPy does: as there are plans of either sort.
    with code.either(one.all_in_a_row()) as (in_a_row, anyhow):
        with in_a_row:
            total.set(sum_of_block(code, one.values, stop))
        with anyhow:
            total.set(code.call(constants_of_sum.read(PAIRWISE), "f64", one.values, stop))
    code.store(_mean(constants_of_sum, total.get(), stop), one.bases.read(one.output), dtype)


class _GatheredSum(Gathered):
    """The kernel being written: results stay in a block."""

    def __init__(self, code: Code, passed: Array, before: int) -> None:
        super().__init__(code, passed, before)
        self.values = code.frame("f32", ROOM)

    def take_outputs(self, start: Value) -> None:
        self.taken.write(self.output, self.values.address() + start * 4)

    def put_outputs(self, start: Value, count: Value) -> None:
        pass

    def all_in_a_row(self) -> Value:
        """Whether every input's elements lie side by side, or are one."""
        code, answer = self.code, self.code.variable(self.axes == 1)
        with code.loop(0, self.output) as operand:
            step = self.steps(operand).read(0)
            fits = (step == 0) | (step == self.items.read(operand))
            answer.set(answer.get() & fits)
        return answer.get()


@functools.cache
def pairwise() -> int:
    """`double sum(float *values, int64_t count)` in the order of NumPy's sum in float64."""
    return cache.compiled("sums.pairwise", _emit_pairwise, signature("f64", "i64", "i64"))


def _emit_pairwise(code: Code, arguments: Sequence[Value]) -> None:
    address, count = arguments
    values = code.array(address, "f32")
    with code.when(count > IN_ORDER):
        half = count.unsigned_div(2)
        first = half - half.unsigned_rem(UNROLLED)
        code.leave(
            code.call_self(address, first) + code.call_self(address + first * 4, count - first)
        )
    together = count - count.unsigned_rem(UNROLLED)
    total = code.variable(code.double(0.0))
    with code.when(together > 0):
        shape = Shape(1, UNROLLED)
        sums = code.variable(values.load(code.integer(0), shape).to("f64"))
        with code.loop(UNROLLED, together, UNROLLED) as index:
            sums.set(sums.get() + values.load(index, shape).to("f64"))
        parts = [sums.get().lane(lane) for lane in range(UNROLLED)]
        while len(parts) > 1:
            parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
        total.set(parts[0])
    with code.loop(together, count) as index:
        total.set(total.get() + values.read(index).to("f64"))
    code.leave(total.get())
