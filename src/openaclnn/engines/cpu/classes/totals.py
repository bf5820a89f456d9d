"""Sums over targets and weights in a fixed order: float64 inside blocks, then block after block.

The order does not depend on threads, so the same bits come out of every run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from openaclnn.engines.cpu.classes.code import SIZE, STORED, Code, Number
from openaclnn.engines.cpu.classes.parameters import AXES, Parameters
from openaclnn.engines.cpu.simd import splat
from openaclnn.engines.machine.words import I32

BLOCK = 4096  # positions, or weights
GROUP = 8  # neighbouring targets that are compared together
STRIDE = 16  # bytes of scratch memory for one block: two sums
GRAIN = 8  # blocks that one thread sums faster than two


def runs(
    code: Code, parameters: Parameters, start: Number, stop: Number, operands: tuple[str, ...],
    body: Callable[[list[Number], Number], None],
) -> None:  # fmt: skip
    """`body(addresses, count)` for each stretch of positions [start, stop) along the last axis.

    `addresses` are those of the operands' elements at the stretch's first position.
    """
    sizes = [parameters[f"size{axis}"] for axis in range(AXES)]
    bases = [parameters.address(operand) for operand in operands]
    steps = [[parameters[f"{name}.step{axis}"] for axis in range(AXES)] for name in operands]
    lines = start // sizes[2]
    last = code.variable(start - lines * sizes[2])
    first = code.variable(lines // sizes[1])
    middle = code.variable(lines - first.get() * sizes[1])
    left = code.variable(stop - start)
    with code.repeat_while(lambda: left.get() > 0):
        at = (first.get(), middle.get(), last.get())
        count = (sizes[2] - at[2]).least(left.get())
        addresses = [
            base + at[0] * own[0] + at[1] * own[1] + at[2] * own[2]
            for base, own in zip(bases, steps, strict=True)
        ]
        body(addresses, count)
        left.set(left.get() - count)
        last.set(code.integer(0))
        following = middle.get() + 1
        wrapped = following.equals(sizes[1])
        middle.set(wrapped.choose(0, following))
        first.set(wrapped.choose(first.get() + 1, first.get()))


def sum_targets(
    code: Code, parameters: Parameters, start: Number, stop: Number, target: str, weight: str
) -> tuple[Number, Number]:
    """The sum of the counted targets' weights in a block of positions, and how many count."""
    weighted = parameters["weighted"].differs(0)
    sums = _TargetSums(code, parameters, target, weight)

    def stretch(addresses: list[Number], count: Number) -> None:
        sums.run(addresses[0], count, weighted)

    runs(code, parameters, start, stop, ("target",), stretch)
    counted = sums.number.get().to_f64()
    first, second, third, fourth = (total.get() for total in sums.totals)
    return weighted.choose((first + second) + (third + fourth), counted), counted


class _TargetSums:
    """Four running sums: a single one would wait for each addition."""

    def __init__(self, code: Code, parameters: Parameters, target: str, weight: str) -> None:
        self.code, self.target, self.weight = code, target, weight
        self.classes, self.ignored = parameters["classes"], parameters["ignore_index"]
        self.weights = parameters.address("weight")
        self.weight_step = parameters["weight.class_step"]
        self.target_step = parameters["target.step2"]
        self.totals = [code.variable(code.double(0.0)) for _ in range(4)]
        self.number = code.variable(code.integer(0))

    def run(self, targets: Number, count: Number, weighted: Number) -> None:
        code, zero = self.code, self.code.integer(0)
        with code.when(weighted):
            side_by_side = self.target_step.equals(SIZE[self.target])
            together = side_by_side.choose(count - count.rest(GROUP), zero)
            with code.loop(zero, together, GROUP) as index:
                self._group(targets + index * SIZE[self.target])
            with code.loop(together, count) as index:
                self._one(targets + index * self.target_step, 0)
        with code.when(~weighted), code.loop(zero, count) as index:
            _, counted = self._label(targets + index * self.target_step)
            self.number.set(self.number.get() + counted.to_i64())

    def _label(self, place: Number) -> tuple[Number, Number]:
        label = self.code.load(place, self.target)
        return label, label.within(self.classes) & label.differs(self.ignored)

    def _one(self, place: Number, which: int) -> None:
        label, counted = self._label(place)
        self.number.set(self.number.get() + counted.to_i64())
        where = self.weights + counted.choose(label, 0) * self.weight_step
        value = counted.choose(self.code.load(where, self.weight).to_f64(), 0.0)
        self.totals[which].set(self.totals[which].get() + value)

    def _group(self, place: Number) -> None:
        """Neighbours of one class count at once: 8 times a FLOAT is exact in FLOAT64."""
        code = self.code
        label, counted = self._label(place)
        equal = all_equal(code, place, self.target, GROUP)
        with code.builder.if_else((equal & counted).value) as (together, apiece):
            with together:
                value = code.load(self.weights + label * self.weight_step, self.weight).to_f64()
                self.totals[0].set(self.totals[0].get() + value * float(GROUP))
                self.number.set(self.number.get() + GROUP)
            with apiece:
                for offset in range(GROUP):
                    self._one(place + offset * SIZE[self.target], offset % 4)


def all_equal(code: Code, place: Number, kind: str, count: int) -> Number:
    """Whether elements that lie side by side are all the same."""
    builder, element = code.builder, STORED[kind]
    values = builder.load(place.pointer, typ=ir.VectorType(element, count), align=SIZE[kind])
    first = builder.extract_element(values, ir.Constant(I32, 0))
    name = f"llvm.vector.reduce.or.v{count}i{element.width}"
    reduce = builder.module.globals.get(name) or ir.Function(
        builder.module, ir.FunctionType(element, [values.type]), name
    )
    apart = builder.call(reduce, [builder.xor(values, splat(builder, first, count))])
    return code.number(builder.icmp_signed("==", apart, ir.Constant(element, 0)))


def sum_weights(code: Code, parameters: Parameters, start: Number, stop: Number) -> Number:
    """The sum of FLOAT weights of a range of classes."""
    step = parameters["weight.class_step"]
    first = parameters.address("weight")
    total = code.variable(code.double(0.0))
    with code.loop(start, stop) as index:
        total.set(total.get() + code.load(first + index * step, "f32").to_f64())
    return total.get()


def in_blocks(
    code: Code, count: Number, scratch: Number, first: Number, slots: int,
    block: Callable[[Number, Number], tuple[Number, ...]],
) -> list[Number]:  # fmt: skip
    """Add up blocks of [0, count) in order: computed here, or left in scratch memory from block `first` on."""
    totals = [code.variable(code.double(0.0)) for _ in range(slots)]
    left = scratch.differs(0)
    with code.loop(code.integer(0), count, BLOCK) as start:
        with code.when(~left):
            sums = block(start, (start + BLOCK).least(count))
            for total, value in zip(totals, sums, strict=True):
                total.set(total.get() + value)
        with code.when(left):
            place = scratch + (first + start // BLOCK) * STRIDE
            for index, total in enumerate(totals):
                total.set(total.get() + code.load(place + 8 * index, "f64"))
    return [total.get() for total in totals]


def emit_totals(target: str, weight: str, slots: dict[str, int]) -> Callable[[Any, Any], None]:
    """The kernel that leaves one block's sums in scratch memory: first those of targets, then of weights."""

    def emit(builder: Any, arguments: Any) -> None:
        code = Code(builder)
        parameters = Parameters(code, arguments[0], slots)
        positions, classes = parameters["positions"], parameters["classes"]
        target_blocks = (positions + (BLOCK - 1)) // BLOCK
        with code.loop(code.number(arguments[1]), code.number(arguments[2])) as index:
            place = parameters.scratch + index * STRIDE
            with builder.if_else((index < target_blocks).value) as (of_targets, of_weights):
                with of_targets:
                    start = index * BLOCK
                    stop = (start + BLOCK).least(positions)
                    sums = sum_targets(code, parameters, start, stop, target, weight)
                    for slot, value in enumerate(sums):
                        code.store(value, place + 8 * slot, "f64")
                with of_weights:
                    start = (index - target_blocks) * BLOCK
                    stop = (start + BLOCK).least(classes)
                    code.store(sum_weights(code, parameters, start, stop), place, "f64")

    return emit


def block_count(count: int) -> int:
    return -(-count // BLOCK)
