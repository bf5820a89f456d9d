"""Sums along some axes of a formula's last result, over few elements of any strides: they are gathered and computed a tile at a time, in the order in which inputs lie, and added to
their sums in float64. Further results are written as they are. More elements take the plan's steps.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import chain
from operator import add

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Plan, collapse, covered_elements
from openaclnn.engines.cpu.formulas.forms import (
    Flat,
    Form,
    Signature,
    constants,
    derive_address,
    kernel_address,
)
from openaclnn.engines.cpu.formulas.sums import LANES, paired
from openaclnn.engines.cpu.launching.control import FIRST_ARGUMENT
from openaclnn.engines.cpu.layouts.gathered import (
    AXES,
    MAX_AXES,
    OPERANDS,
    SIZES,
    STEPS,
    TILE,
    Gathered,
)
from openaclnn.engines.cpu.registry import Runner
from openaclnn.engines.machine import cache
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Shape, Value

MOST = 1 << 13  # elements


def flat(plan: Plan, form: Form) -> Flat | None:
    """The kernel for any sizes and strides; None where it does not serve the plan."""
    *written, summed = plan.outputs
    if form.table is not None or (plan.compute is not FLOAT and summed.dtype is not plan.compute):
        return None
    kinds = tuple([operand.dtype.short for operand in plan.inputs])
    first, *more = [*(operand.dtype.short for operand in written), FLOAT.short]
    signature = Signature(kinds, FLOAT.short, first, (), tuple(more))
    reciprocal = form.names.index(plan.reciprocal) if plan.reciprocal else -1
    derived = () if form.derive is None else form.derive.numbers
    return Flat(
        0, MOST, constants(form), reciprocal, (1, MOST + 1), form, derive_address(form), derived,
        functools.partial(kernel_address, form, signature), functools.partial(adding, summed.dtype.short), MOST,
    )  # fmt: skip


def runner(plan: Plan, flat: Flat) -> Runner | None:
    """What runs a plan of few elements by the kernel; None where it has more."""
    run = flat.runner(plan, strided=True) if covered_elements(plan) <= MOST else None
    if run is None:
        return None
    sizes, strides, offsets = collapse(plan.shape, [operand.strides for operand in plan.operands])
    shifts = [
        (operand.offset + offset) * operand.dtype.itemsize
        for operand, offset in zip(plan.operands, offsets, strict=True)
    ]
    steps, numbers = tuple(chain(*strides)), flat.constants

    def run_few(addresses: Sequence[int], stream: int = 0) -> int:
        return run(tuple(map(add, addresses, shifts)), stream, sizes, steps, numbers)

    return run_few


def adding(dtype: str) -> int:
    """The kernel that gathers, computes and adds up; sums have this dtype. Its arguments are those of `gathering`."""
    return cache.compiled(f"sums.axes.{dtype}", functools.partial(_emit, dtype=dtype))


def _emit(code: Code, arguments: Sequence[Value], dtype: str) -> None:
    passed, start, stop = arguments
    constants_and_operands = code.slots(passed).at(FIRST_ARGUMENT)
    _sort(code, code.slots(constants_and_operands.read(0)))
    adding = _Adding(code, constants_and_operands)
    adding.tiles(start, stop)
    adding.store(dtype)


def _sort(code: Code, geometry: Array) -> None:
    """Put the axis of the longest steps first: by the first operand's or, where they are the same, the next one's."""
    sizes, operands, steps = geometry.at(SIZES), geometry.read(OPERANDS), geometry.at(STEPS)

    def is_shorter(axis: Value) -> Value:
        shorter, decided = code.variable(False), code.variable(False)
        with code.loop(0, operands) as operand, code.when(~decided.get()):
            walk = steps.at(operand * MAX_AXES)
            here, behind = abs(walk.read(axis)), abs(walk.read(axis + 1))
            shorter.set(here < behind)
            decided.set(here != behind)
        return shorter.get()

    with code.loop(1, geometry.read(AXES)) as last, code.loop(0, last) as passed:
        axis = last - 1 - passed
        with code.when(is_shorter(axis)):
            sizes.swap(axis)
            with code.loop(0, operands) as operand:
                steps.at(operand * MAX_AXES).swap(axis)


class _Adding(Gathered):
    """The kernel being written: last results stay in a tile, and are added to their sums, which lie side by side in the order of the axes that are kept."""

    def __init__(self, code: Code, passed: Array) -> None:
        super().__init__(code, passed)
        self.values, self.sums = code.frame("f32", TILE), code.frame("f64", MOST)
        self.summed = self.operands - 1
        self.sum_steps = code.frame("i64", MAX_AXES)
        count = code.variable(1)
        with code.loop(0, self.axes) as behind:
            axis = self.axes - 1 - behind
            kept = self.steps(self.summed).read(axis) != 0
            self.sum_steps.write(axis, kept.choose(count.get(), 0))
            count.set(kept.choose(count.get() * self.sizes.read(axis), count.get()))
        self.count = count.get()
        with code.loop(0, self.count) as index:
            self.sums.write(index, code.double(0.0))

    def take_outputs(self, start: Value) -> None:
        with self.code.loop(self.output, self.summed) as operand:
            self.take(operand, start)
        self.taken.write(self.summed, self.values.address())

    def put_outputs(self, start: Value, count: Value) -> None:
        code, steps, last = self.code, self.sum_steps, self.axes - 1
        with code.loop(self.output, self.summed) as operand, code.when(~self.in_place(operand)):
            self.walk(operand, start, count, out=True)
        done, place = code.variable(0), code.variable(self.enter(steps, start))
        with code.repeat_while(lambda: done.get() < count):
            run = (self.sizes.read(last) - self.places.read(last)).least(count - done.get())
            self.add(done.get(), place.get(), run)
            done.set(done.get() + run)
            place.set(place.get() + run * steps.read(last))
            self.places.write(last, self.places.read(last) + run)
            with self.carry(last) as axis:
                place.set(place.get() + self.to_next(steps, axis))

    def add(self, start: Value, place: Value, count: Value) -> None:
        """Add so many results that lie side by side, to one sum or to as many."""
        code, values, sums = self.code, self.values, self.sums
        whole = count - count.unsigned_rem(LANES)
        with code.either(self.sum_steps.read(self.axes - 1) == 0) as (one, several):
            with one:
                total = code.variable(code.double(0.0))
                with code.when(whole > 0):
                    lanes = code.variable(code.constant("f64", 0.0, LANES))
                    with code.loop(start, start + whole, LANES) as index:
                        lanes.set(lanes.get() + values.load(index, Shape(1, LANES)).to("f64"))
                    total.set(paired([lanes.get().lane(lane) for lane in range(LANES)]))
                with code.loop(start + whole, start + count) as index:
                    total.set(total.get() + values.read(index).to("f64"))
                sums.write(place, sums.read(place) + total.get())
            with several:
                with code.loop(0, whole, LANES) as index:
                    shape = Shape(1, LANES)
                    more = values.load(start + index, shape).to("f64")
                    sums.store(sums.load(place + index, shape) + more, place + index)
                with code.loop(whole, count) as index:
                    more = values.read(start + index).to("f64")
                    sums.write(place + index, sums.read(place + index) + more)

    def store(self, dtype: str) -> None:
        code, steps = self.code, self.steps(self.summed)
        with code.loop(0, self.count) as index:
            rest, distance = code.variable(index), code.variable(0)
            with code.loop(0, self.axes) as behind:
                axis = self.axes - 1 - behind
                with code.when(self.sum_steps.read(axis) != 0):
                    size = self.sizes.read(axis)
                    distance.set(distance.get() + rest.get().unsigned_rem(size) * steps.read(axis))
                    rest.set(rest.get().unsigned_div(size))
            place = self.bases.read(self.summed) + distance.get()
            code.store(self.sums.read(index).to("f32"), place, dtype)
