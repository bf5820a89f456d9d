"""Sums over targets and weights in a fixed order: float64 inside blocks, then block after block.

The order does not depend on threads, so the same bits come out of every run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from openaclnn.engines.cpu.classes.parameters import GROUP, Parameters, Targets
from openaclnn.engines.machine.cache import Emit
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.numbers import Number, Truth, ceil_div, where
from openaclnn.engines.machine.values import Shape, Value

BLOCK = 4096  # positions, or weights
STRIDE = 16  # bytes of scratch memory for one block: two sums
GRAIN = 8  # blocks up to which one thread is faster than two


def sum_targets(
    code: Code, parameters: Parameters, start: Value, stop: Value, target: str, weight: str
) -> tuple[Value, Value]:
    """The sum of the counted targets' weights in a block of positions, and how many count."""
    weighted = parameters.flag("weighted")
    sums = _TargetSums(code, parameters, target, weight)

    def stretch(places: list[Value], count: Value, _: Value) -> None:
        sums.run(places[0], count, weighted)

    parameters.stretches(start, stop, ("target",), stretch)
    rows_counted = sums.rows_counted.get().to("f64")
    first, second, third, fourth = (total.get() for total in sums.totals)
    return weighted.choose((first + second) + (third + fourth), rows_counted), rows_counted


class _TargetSums:
    """Four running sums, since a single one would wait for the latency of each addition."""

    def __init__(self, code: Code, parameters: Parameters, target: str, weight: str) -> None:
        self.code, self.weight = code, weight
        self.targets = Targets(code, parameters, target)
        self.weights = parameters.address("weight")
        self.weight_step = parameters["weight.class_step"]
        self.target_step = parameters["target.step2"]
        self.totals = [code.variable(code.double(0.0)) for _ in range(4)]
        self.rows_counted = code.variable(0)

    def run(self, first: Value, count: Value, weighted: Value) -> None:
        code, size = self.code, self.targets.size
        with code.when(weighted):
            side_by_side = self.target_step == size
            together = side_by_side.choose(count - count.unsigned_rem(GROUP), 0)
            with code.loop(0, together, GROUP) as index:
                self._group(first + index * size)
            with code.loop(together, count) as index:
                self._one(first + index * self.target_step, 0)
        with code.when(~weighted):
            self._count_only(first, count)

    def _count_only(self, first: Value, count: Value) -> None:
        """Without weights: vectors of contiguous targets, then one at a time."""
        code, shape = self.code, Shape(1, GROUP)
        together = (self.target_step == self.targets.size).choose(
            count - count.unsigned_rem(GROUP), 0
        )
        lanes = code.variable(code.constant("i64", 0, GROUP))
        with code.loop(0, together, GROUP) as index:
            group = code.array(first, self.targets.kind).load(index, shape)
            lanes.set(lanes.get() + self.targets.of_vector(group).counted.to("i64"))
        self._count(lanes.get().reduce("add"))
        with code.loop(together, count) as index:
            target = self.targets.at(first + index * self.target_step)
            self._count(target.counted.to("i64"))

    def _count(self, more: Value | int) -> None:
        self.rows_counted.set(self.rows_counted.get() + more)

    def _add(self, which: int, value: Value) -> None:
        self.totals[which].set(self.totals[which].get() + value)

    def _weight(self, label: Value) -> Value:
        return self.code.load(self.weights + label * self.weight_step, self.weight).to("f64")

    def _one(self, place: Value, which: int) -> None:
        target = self.targets.at(place)
        counted = target.counted
        self._count(counted.to("i64"))
        self._add(which, counted.choose(self._weight(counted.choose(target.label, 0)), 0.0))

    def _group(self, place: Value) -> None:
        """Add GROUP neighbours of one class at once: 8 times a FLOAT is exact in FLOAT64."""
        target = self.targets.at(place)
        with self.code.either(self.targets.alike(place) & target.counted) as (together, apiece):
            with together:
                self._add(0, self._weight(target.label) * float(GROUP))
                self._count(GROUP)
            with apiece:
                for offset in range(GROUP):
                    self._one(place + offset * self.targets.size, offset % 4)


def sum_weights(
    code: Code, parameters: Parameters, start: Value, stop: Value
) -> tuple[Value, Value]:
    """The sum of FLOAT weights of a range of classes, and that of infinity times each: NaN where one is 0 or signs differ."""
    step = parameters["weight.class_step"]
    first = parameters.address("weight")
    total, infinite = (code.variable(code.double(0.0)) for _ in range(2))
    with code.loop(start, stop) as index:
        weight = code.load(first + index * step, "f32").to("f64")
        total.set(total.get() + weight)
        infinite.set(infinite.get() + weight * float("inf"))
    return total.get(), infinite.get()


def in_blocks(
    code: Code, count: Value, scratch: Value, first: Value, slots: int,
    block: Callable[[Value, Value], tuple[Value, ...]],
) -> list[Value]:  # fmt: skip
    """Add up the sums of the blocks of [0, count) in order: they are computed here, or, if `scratch` is not 0, read from there from block `first` on."""
    totals = [code.variable(code.double(0.0)) for _ in range(slots)]
    left = scratch != 0
    with code.loop(0, count, BLOCK) as start:
        with code.when(~left):
            sums = block(start, (start + BLOCK).least(count))
            for total, value in zip(totals, sums, strict=True):
                total.set(total.get() + value)
        with code.when(left):
            place = scratch + (first + start.unsigned_div(BLOCK)) * STRIDE
            for index, total in enumerate(totals):
                total.set(total.get() + code.load(place + 8 * index, "f64"))
    return [total.get() for total in totals]


def added_up(code: Code, scratch: Value, records: Value, slots: int) -> list[Value]:
    """The sums of the slots of records in scratch memory, added in order."""
    sums = [code.variable(code.double(0.0)) for _ in range(slots)]
    with code.loop(0, records) as number:
        record = code.array(scratch + number * (8 * slots), "f64")
        for slot, total in enumerate(sums):
            total.set(total.get() + record.read(slot))
    return [total.get() for total in sums]


def emit_totals(target: str, weight: str, slots: Mapping[str, int]) -> Emit:
    """What writes the kernel that leaves the sums of blocks in scratch memory: first those of targets, then those of weights."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, slots)
        positions, classes = parameters["positions"], parameters["classes"]
        target_blocks = (positions + (BLOCK - 1)).unsigned_div(BLOCK)
        with code.loop(first, last) as index:
            place = parameters.scratch + index * STRIDE
            with code.either(index < target_blocks) as (of_targets, of_weights):
                with of_targets:
                    start = index * BLOCK
                    stop = (start + BLOCK).least(positions)
                    sums = sum_targets(code, parameters, start, stop, target, weight)
                    for slot, value in enumerate(sums):
                        code.store(value, place + 8 * slot, "f64")
                with of_weights:
                    start = (index - target_blocks) * BLOCK
                    stop = (start + BLOCK).least(classes)
                    for slot, value in enumerate(sum_weights(code, parameters, start, stop)):
                        code.store(value, place + 8 * slot, "f64")

    return emit


def blocks_first(
    mean: Number, weighted: Number, positions: Number, classes: Number, shared: Truth
) -> Number:
    """How many blocks are added up in a launch before, if threads share the work, since otherwise each piece would add up all sums itself. 0: none."""
    blocks = block_count(positions) + block_count(classes) * weighted
    return where(shared & (mean + weighted > 0), blocks, 0)


def block_count(count: Number) -> Number:
    return ceil_div(count, BLOCK)


class Sums(NamedTuple):
    """The sum of counted targets' weights and their number (both 1 unless the loss is a mean), the sum of all weights, and that of infinity times each: FLOAT64."""

    total: Value
    rows_counted: Value
    weight_sum: Value
    infinite_sum: Value


def sums_of(code: Code, parameters: Parameters, target: str, scratch: Value) -> Sums:
    """The sums, computed here, or read from scratch memory if that is not 0."""
    positions = parameters["positions"]
    mean, zero = parameters.flag("mean"), code.integer(0)
    total, rows_counted = in_blocks(
        code, mean.choose(positions, zero), scratch, zero, 2,
        lambda start, stop: sum_targets(code, parameters, start, stop, target, "f32"),
    )  # fmt: skip
    weights = sums_of_weights(code, parameters, scratch)
    return Sums(mean.choose(total, 1.0), mean.choose(rows_counted, 1.0), *weights)


def sums_of_weights(code: Code, parameters: Parameters, scratch: Value) -> tuple[Value, Value]:
    """The sum of all weights, and of infinity times each."""
    classes, weighted = parameters["classes"], parameters.flag("weighted")
    weight_sum, infinite_sum = in_blocks(
        code, weighted.choose(classes, 0), scratch, block_count(parameters["positions"]), 2,
        lambda start, stop: sum_weights(code, parameters, start, stop),
    )  # fmt: skip
    return (
        weighted.choose(weight_sum, classes.to("f64")),
        weighted.choose(infinite_sum, float("inf")),
    )
