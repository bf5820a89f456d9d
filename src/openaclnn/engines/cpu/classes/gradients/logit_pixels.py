"""The gradient of cross entropy from logits of pixels: see `operators/logits.py`, and `logits.py` here for the formula.

A pixel's numbers and its target's element are computed in FLOAT64, to what FLOAT can show; the rest in FLOAT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from openaclnn.core.plan import Plan
from openaclnn.core.tensor import element_count
from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.arithmetic.doubles import exp64, expm1_64, power64
from openaclnn.engines.cpu.arithmetic.exponential import Exp
from openaclnn.engines.cpu.classes.gradients.logit_numbers import plain_nan
from openaclnn.engines.cpu.classes.gradients.logits import SLOTS, CrossEntropyLogitsGrad
from openaclnn.engines.cpu.classes.gradients.numbers import Sums, sums_of
from openaclnn.engines.cpu.classes.positions.pixel_groups import (
    CHUNK,
    Chunk,
    Group,
    Groups,
    Pixels,
    unit_of,
)
from openaclnn.engines.cpu.classes.positions.stretches import ALONE, Cut
from openaclnn.engines.cpu.classes.shared import totals
from openaclnn.engines.cpu.classes.shared.parameters import AXES, Parameters, objection
from openaclnn.engines.machine.cache import Emit
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.host import LINE, machine
from openaclnn.engines.machine.values import Shape, Value

NAME = "cross_entropy_logits_grad_pixels"
# As pixels rows of 4 classes take 18 ns, of 21 45, of 47 65; as rows those of 48 take 75.
SHORT = 48
TERMS = 8  # of exponentials
PAST_CACHES = 1 << 24  # bytes of a gradient that nobody would find in a cache
OPERANDS = ("target", "input", "top", "rest", "gradient", "out")

Put = Callable[[Group, Value, Value, Value, bool], None]
"""Writes a plane's values: of a group, a class, to a place; with NaNs of any kind among them or not."""


def emit_pixels(dtype: str, target: str) -> Emit:
    """The kernel: pieces of work are runs of pixels."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, SLOTS)
        worker = _Pixels(code, parameters, dtype, target)
        unit, positions = parameters["tile"], parameters["positions"]
        with code.loop(first, last) as piece:
            start = piece * unit
            stop = (start + unit).least(positions)
            totals.runs(code, parameters, start, stop, OPERANDS, worker.run)
        code.settle()

    return emit


class _Scales:
    """What all pixels share, FLOAT64."""

    def __init__(self, parameters: Parameters, sums: Sums, classes: Value) -> None:
        smooths, smoothing = parameters.flag("smooths"), parameters.double("smoothing")
        self.nll = (1.0 - smoothing) / sums.total
        self.smooth = smooths.choose(smoothing / classes.to("f64") / sums.total, 0.0)
        self.square = parameters.double("zloss_scale") / sums.rows_counted
        self.sums, self.smooths = sums, smooths
        self.squares = parameters.flag("zloss")


class _Pixels:
    def __init__(self, code: Code, parameters: Parameters, dtype: str, target: str) -> None:
        self.code, self.parameters, self.dtype = code, parameters, dtype
        sums = sums_of(code, parameters, target)
        self.groups = Groups(code, parameters, dtype, target, OPERANDS)
        self.scales = _Scales(parameters, sums, self.groups.targets.classes)
        self.exp, self.opaque = Exp(code, None, "negative"), numerics.Opaque(code)
        self.out_step = parameters["out.class_step"]
        width = self.groups.width
        self.tops, self.rests = (code.frame("f32", width) for _ in range(2))
        self.gradients = code.frame(dtype, width)
        # What the loop over classes reads of each pixel: all bits are set where it counts.
        self.top, self.factor, self.addend = (code.frame("f32", width) for _ in range(3))
        self.exact = code.frame("f32", width)
        self.counted, self.classes = (code.frame("i32", width) for _ in range(2))
        self.results = code.frame(dtype, width)

    def run(self, addresses: list[Value], count: Value) -> None:
        self.groups.of(addresses, count, self._group)

    def _group(self, group: Group) -> None:
        code, groups, many_classes = self.code, self.groups, self.groups.targets.classes
        whole = Chunk(code.integer(0), many_classes)
        alone = many_classes <= CHUNK
        with code.when(alone):
            groups.read(group, whole)
        gradient = self._gradients(group)
        top = groups.fetch(group, "top", self.tops)
        rest = groups.fetch(group, "rest", self.rests)
        with code.loop(0, group.many, code.lanes) as index:
            self._numbers(groups.pixels(group, index), index, top, rest, gradient)

        def chunk_of(chunk: Chunk) -> None:
            with code.when(~alone):
                groups.read(group, chunk)
            rows = groups.are_rows(group, chunk, self.out_step)
            with code.first_of() as written:
                for condition, smooths, put in (
                    (rows & self.scales.smooths, True, self._turn),
                    (rows, False, self._turn),
                    (self.scales.smooths, True, self._put),
                    (self._past(group), False, self._stream),
                ):
                    with code.when(condition):
                        self._write(group, chunk, smooths, put)
                        written()
                self._write(group, chunk, False, self._put)
            with code.when(rows):
                out = group.places["out"] + chunk.start * self.out_step
                groups.turned.write(out, groups.steps["out"], chunk.many, self.opaque)

        groups.chunks(chunk_of)

    def _numbers(
        self, pixels: Pixels, index: Value, tops: Array, rests: Array, gradients: Array
    ) -> None:
        """Of one vector of pixels."""
        code, scales, shape = self.code, self.scales, Shape(1, self.code.lanes)
        labels, counted, own, weight = pixels
        top, rest = (array.load(index, shape).to("f64") for array in (tops, rests))
        gradient = numerics.load(gradients, index, shape).to("f64")
        nll = gradient * scales.nll * weight
        # What smoothing adds everywhere and subtracts for each class, and the z-loss's part.
        nothing = code.constant("f64", 0.0, code.lanes)
        everywhere, smooth, square = (code.variable(nothing) for _ in range(3))
        with code.when(scales.smooths):
            smooth.set(gradient * scales.smooth)
            everywhere.set(scales.sums.times(smooth.get()))
        with code.when(scales.squares):
            square.set((top + rest) * (gradient * scales.square))
        factor = (nll + square.get() + everywhere.get()) * exp64(code, -rest, TERMS)
        x = (own - top) - rest
        probability = power64(code, x, TERMS)
        exact = code.variable(expm1_64(code, x, probability, TERMS + 1) * nll)
        with code.when(scales.squares):
            exact.set(exact.get() + probability * square.get())
        with code.when(scales.smooths):
            more = probability * everywhere.get() - smooth.get() * weight
            exact.set(exact.get() + more)
        self.classes.store(labels.to("i32"), index)
        self.counted.store(counted.signed("i32"), index)
        for array, value in (
            (self.top, top), (self.factor, factor), (self.addend, -smooth.get()),
            (self.exact, exact.get()),
        ):  # fmt: skip
            array.store(plain_nan(value.to("f32")), index)

    def _gradients(self, group: Group) -> Array:
        """Those of a group, or one that is all of them."""
        code, groups = self.code, self.groups
        alike = groups.steps["gradient"] == 0
        with code.when(alike):
            one = code.array(group.places["gradient"], self.dtype).read(0)
            self.gradients.store(one.fill(groups.shape), code.integer(0))
        return groups.fetch(group._replace(here=group.here & ~alike), "gradient", self.gradients)

    def _past(self, group: Group) -> Value:
        """Whether a group is written past the caches, a line of them at once."""
        out = group.places["out"]
        apart = self.parameters.flag("past") & (out != group.places["input"])
        return apart & group.here & (((out | self.out_step) & (LINE - 1)) == 0)

    def _write(self, group: Group, chunk: Chunk, smooths: bool, put: Put) -> None:
        code, groups, zero = self.code, self.groups, self.code.integer(0)
        top, factor, addend, counted, exact, own = (
            array.load(zero, groups.shape)
            for array in (
                self.top, self.factor, self.addend, self.counted, self.exact, self.classes,
            )
        )  # fmt: skip
        x = group.places["input"] + chunk.start * groups.class_step
        with code.loop(0, chunk.many) as label:
            groups.ahead(x + label * groups.class_step)
            values = self.exp(groups.plane(label) - top) * factor
            if smooths:
                values = values + addend * groups.factor(chunk, label)
            values = (own == (chunk.start + label).to("i32")).choose(exact, values)
            values = (values.bits_as("i32") & counted).bits_as("f32")
            place = group.places["out"] + (chunk.start + label) * self.out_step
            put(group, label, values, place, smooths)

    def _turn(self, group: Group, label: Value, values: Value, place: Value, any_nan: bool) -> None:
        """In the logits' place, until all planes are there for `Turned`."""
        self.groups.logits.store(values, label * self.groups.width)

    def _stream(
        self, group: Group, label: Value, values: Value, place: Value, any_nan: bool
    ) -> None:
        narrowed = numerics.narrow(values, self.dtype, self.opaque, any_nan)
        self.code.array(place, self.dtype).stream(narrowed, self.code.integer(0))

    def _put(self, group: Group, label: Value, values: Value, place: Value, any_nan: bool) -> None:
        """A plane's elements, which pass through a buffer where they are not a whole group."""
        code, groups, buffer = self.code, self.groups, self.results.address()
        groups.ahead(place, written=True)
        target = code.array(group.here.choose(place, buffer), self.dtype)
        numerics.store(values, target, code.integer(0), self.opaque, any_nan)
        with code.when(~group.here, likely=False):
            step, size = groups.steps["out"], code.integer(groups.size)
            code.copy(buffer, size, place, step, group.many, self.dtype)


def goes_past(item: Any, elements: Any) -> Any:
    """Whether so many elements, of so many bytes, are written past the caches; of numbers and of code's values alike.

    The gradient of (4, 21, 512, 512) took 2.1 ns an element, past the caches 1.35; of BFLOAT16 1.6, 1.7.
    """
    return (item >= 4) & (elements * 4 >= (1 << 62 if machine().neon else PAST_CACHES))


class CrossEntropyLogitsGradOfPixels(CrossEntropyLogitsGrad):
    def declines(self, plan: Plan) -> str | None:
        return objection(plan, AXES)

    def emits(self, dtype: str, target: str) -> Emit:
        return emit_pixels(dtype, target)

    def cut(self, plan: Plan) -> Cut:
        positions, unit = element_count(plan.shape), unit_of(plan.classes)
        target, gradient, *walked = (*plan.inputs[:5], plan.output)
        dense = all(own.strides[-1] == 1 for own in (target, *walked))
        dense = dense and gradient.strides[-1] in (0, 1)
        grain = max(1, ALONE // (min(unit, positions) * plan.classes))
        past = bool(goes_past(plan.compute.itemsize, positions * plan.classes))
        return Cut(unit, not dense, plan.classes, 1, -(-positions // unit), grain, past)
