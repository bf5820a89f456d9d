"""The gradient of the negative log-likelihood, of rows and of pixels: see `operators/likelihood.py`.

Few classes, and outputs that leave the caches, are written as the row formula of `engines/formulas/likelihood.py` says, by runs of two planes: each class is compared with
the targets. Elsewhere `TargetLines` clears the output and writes the targets' classes alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from openaclnn.core.dtypes import FLOATS
from openaclnn.core.plan import Plan
from openaclnn.core.tensor import element_count
from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.classes import totals
from openaclnn.engines.cpu.classes.launches import (
    Kernels,
    Launches,
    Problem,
    cut_tiles,
    example,
)
from openaclnn.engines.cpu.classes.losses import Likelihood, LossKernel
from openaclnn.engines.cpu.classes.parameters import GROUP, Parameters
from openaclnn.engines.cpu.classes.row_formulas import (
    LINES,
    ROWS,
    RUN,
    RUNS,
    Lines,
    RunLines,
)
from openaclnn.engines.cpu.classes.row_passes import Passes
from openaclnn.engines.cpu.registry import KERNELS
from openaclnn.engines.formulas.likelihood import nll_gradient
from openaclnn.engines.formulas.rows import Node
from openaclnn.engines.machine.cache import compiled
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.host import last_cache, machine
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.numbers import (
    Number,
    Truth,
    all_of,
    ceil_div,
    inverse,
    least,
    most,
    where,
)
from openaclnn.engines.machine.values import Shape, Value, intrinsic

FEW = 8  # classes up to which comparing every plane beats clearing and scattering
MANY = 1 << 6  # the same of FLOAT outputs that leave the caches
PLANES = 2  # that are written together
VECTOR = 32  # bytes of a vector, from which on that is so
UNIT = 1 << 14  # positions of one piece of work that lie apart
# Where values are scattered: a 64th of the positions, so that no thread of 16 has a part more, between these.
SCATTERED = 1 << 12, 1 << 16
# The same for what is cleared first. Long spans are cleared at 112 GB/s, 64 KB at 60, 4 KB at 24: past the caches
# nothing is read first.
SPANS = 1 << 18, 1 << 22
IN_CACHE = 1 << 19  # bytes that are still in a core's cache when their values are scattered

LEAVE, SPAN, STRIDED = range(3)
"""How a piece of work clears its output: not at all, as one span of memory, or as its strides say."""


def compares(item: Any, classes: Any, pixels: Any, size: Any) -> Any:
    """Whether every plane, of so many pixels, is compared with the targets; outputs have so many bytes in an element and in all.

    Of numbers and of code's values alike: what compiles a kernel and what calls it go by one rule.

    16 bits must have few classes: `PlaneLines` compares these as integers of 16 bits.

    In caches, clearing is cheap, and so are patches of one class: comparing 21 planes takes 1.3 to 2.5 times as long there, and gains a fifth
    where targets are random. From half of the last cache on FLOAT gains: on a Xeon with two cores 1.0 to 1.5 for patches and 1.3 to 3 for random targets, on another with 16
    0.8 to 1.0 and 1.4 to 1.8. Of more classes one loses there what the other gains, and so do 16 bits: 0.5 to 0.7 for patches.
    """
    wide = (item >= 4) & (item * machine().lanes >= VECTOR)
    many = wide & (size > last_cache() // 2) & (classes <= MANY)
    # Images of one pixel are the pixels of one image that has its classes side by side.
    return ((classes <= FEW) | many) & ((pixels > 1) | (classes <= 1))


def emit_clear(slots: Mapping[str, int], code: Code, arguments: Sequence[Value]) -> None:
    """The kernel that clears an output without gaps, `span` bytes a piece."""
    block, first, last = arguments
    parameters = Parameters(code, block, slots)
    out, span, size = parameters.address("out"), parameters["span"], parameters["bytes"]
    with code.loop(first, last) as piece:
        start = piece * span
        code.clear(out + start, (size - start).least(span))


def weight_of(lines: Lines, label: Value) -> Value:
    """A class's weight, as FLOAT."""
    place = lines.parameters.address("weight") + label * lines.parameters["weight.class_step"]
    return lines.code.load(place, lines.kinds.of["weight"])


class TargetLines(Lines):
    """One value for each position, at its target's class: clear the output, then scatter.

    Both halves matter (2 threads, (8, 21, 512, 512) FLOAT): clearing takes 1.7 ms, random targets 5 ms more,
    which is the memory's time for reading and writing back the lines they touch; prefetching them gains
    nothing. Targets that are equal for 8 neighbours, as in a segmentation mask, take 0.9 ms.
    """

    def __init__(self, code: Code, *arguments: Any) -> None:
        super().__init__(code, *arguments)
        parameters, kinds = self.parameters, self.kinds.of
        self.dtype, self.size = kinds["out"], SIZE[kinds["out"]]
        self.of_targets = self.targets("target")
        self.operands = ("target", "gradient", "out")
        self.steps = [parameters[f"{name}.step2"] for name in self.operands]
        self.sizes = [self.of_targets.size, self.size, self.size]
        self.class_step = parameters["out.class_step"]

    def walk(self, passes: Passes, first: Value, last: Value) -> None:
        code, parameters = self.code, self.parameters
        gradient = self.shared.get("gradient")
        self.gradient = None if gradient is None else gradient.to("f32")
        tile, positions = parameters["tile"], parameters["positions"]
        with code.loop(first, last) as piece:
            start = piece * tile
            stop = (start + tile).least(positions)
            self.clear(start, stop)
            parameters.stretches(start, stop, self.operands, self.run)

    def clear(self, start: Value, stop: Value) -> None:
        code, way = self.code, self.parameters["clear"]
        with code.when(way == SPAN):
            where = self.parameters.position("out", start)
            code.clear(where, (stop - start) * self.classes * self.size)
        with code.when(way == STRIDED):
            self.parameters.stretches(start, stop, ("out",), self._clear_run)

    def _clear_run(self, addresses: list[Value], count: Value, _: Value) -> None:
        """Spans along the positions or along the classes, or every element for itself."""
        code, size = self.code, self.size
        first, step = addresses[0], self.steps[2]
        along, across = step == size, self.class_step == size
        with code.when(along), code.loop(0, self.classes) as label:
            code.clear(first + label * self.class_step, count * size)
        with code.when(~along & across), code.loop(0, count) as index:
            code.clear(first + index * step, self.classes * size)
        with (
            code.when(~along & ~across),
            code.loop(0, count) as index,
            code.loop(0, self.classes) as label,
        ):
            place = first + index * step + label * self.class_step
            code.array(place, f"i{8 * self.size}").write(0, 0)

    def run(self, addresses: list[Value], count: Value, _: Value) -> None:
        """A stretch of positions: groups of neighbours where everything lies side by side, then one by one."""
        code, done = self.code, self.code.variable(0)
        target, gradient, out = (
            step == size for step, size in zip(self.steps, self.sizes, strict=True)
        )
        side_by_side = target & out
        if self.gradient is None:
            side_by_side = side_by_side & gradient
        with code.when(side_by_side):
            whole = count - count.unsigned_rem(GROUP)
            with code.loop(done.get(), whole, GROUP) as index:
                self._group(addresses, index)
            done.set(whole)
        with code.loop(done.get(), count) as index:
            self._one(addresses, index, self.steps)

    def _one(self, addresses: list[Value], index: Value, steps: list[Any]) -> None:
        code = self.code
        place, gradient, out = (
            address + index * step for address, step in zip(addresses, steps, strict=True)
        )
        target = self.of_targets.at(place)
        with code.either(target.counted) as (counts, does_not):
            with counts:
                factor = code.load(gradient, self.dtype) if self.gradient is None else self.gradient
                value = -(factor * weight_of(self, target.label))
                code.store(value, out + target.label * self.class_step, self.dtype)
            with does_not:
                self.report(target.stray)

    def _group(self, addresses: list[Value], index: Value) -> None:
        code = self.code
        place, gradient, out = (
            address + index * size for address, size in zip(addresses, self.sizes, strict=True)
        )
        target = self.of_targets.at(place)
        with code.either(self.of_targets.alike(place) & target.counted) as (together, apiece):
            with together:
                label = target.label
                lanes, zero = min(code.lanes, GROUP), code.integer(0)
                shape = Shape(GROUP // lanes, lanes)
                weight = -weight_of(self, label)
                if self.gradient is None:
                    values = numerics.load(code.array(gradient, self.dtype), zero, shape) * weight
                else:
                    values = (self.gradient * weight).fill(shape)
                results = code.array(out + label * self.class_step, self.dtype)
                numerics.store(values, results, zero, self.opaque)
            with apiece:
                for offset in range(GROUP):
                    self._one(addresses, index + offset, self.sizes)


class PlaneLines(RunLines):
    """Runs of positions, two planes at a time, for a formula that reads no class: targets and numbers of positions are read anew for each two, and nothing lies in
    the frame. Two streams of stores run at the memory's pace, four do not.
    """

    chooses = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Targets are compared as integers as wide as results: 16 bits have few classes, by `compares`.
        self.bits = f"i{8 * SIZE[self.kinds.of['out']]}"

    def over(self, passes: Passes) -> None:
        code = self.code
        whole = self.classes - self.classes.unsigned_rem(PLANES)
        for start, stop, step in ((code.integer(0), whole, PLANES), (whole, self.classes, 1)):
            with code.loop(start, stop, step) as first:
                labels = [first + k for k in range(step)]
                # Weights are read once: results could be written over them, for all that LLVM knows.
                self.planes = [(label, weight_of(self, label)) for label in labels]
                self._each_position(functools.partial(self._some, passes))

    def _some(self, passes: Passes) -> None:
        labels = self._along("target").load(self.index, self.shape)
        self.keys = self._saturated(labels)
        beyond = ~self.keys.below(self.classes.to(self.bits))
        with self.code.when(numerics.any_lane(beyond), likely=False):  # strays, or ignored
            self.report(self.targets("target").of_vector(labels).stray)
        super().over(passes)

    def _saturated(self, labels: Value) -> Value:
        """What is no class is none as such integers either."""
        wide, width = labels.element.width, 8 * SIZE[self.bits]
        if wide > width:
            return intrinsic("umin", labels, (1 << width) - 1).to(self.bits)
        return labels if wide == width else labels.unsigned(self.bits)

    def number(self, node: Node) -> Value:
        if node.what != "is_counted":
            return super().number(node)
        # Of a target that is a class; the formula asks this of no others.
        ignored = self.parameters["ignore_index"]
        return self.keys != self._saturated(ignored)

    def settled(self, settle: Callable[[], None]) -> None:
        settle()

    def each(self, count: Value, phase: Any, body: Callable[..., None], leaves: Any) -> None:
        for label, weight in self.planes:
            self.label, self.weight = label, weight
            body(self.shape, self.index, None, None)

    def is_target(self, node: Node, index: Value, shape: Shape) -> Value:
        return self.keys == self.label.to(self.bits)

    def load(self, node: Node, index: Value, shape: Shape) -> Value:
        return self.weight.fill(shape)

    def write_where(self, result: int, index: Value, truths: Value, values: Value) -> None:
        """Rounded before they are chosen: what is the same for all positions is rounded once."""
        plane = self._plane(self.written[result])
        narrow = numerics.narrow(values, plane.kind, self.opaque).bits_as(self.bits)
        numerics.write(truths.choose(narrow, 0), self.code.array(plane.pointer, self.bits), index)


def _without_gaps(plan: Plan) -> bool:
    """Whether the output's elements fill one span of memory that begins at its first element."""
    out = plan.output
    axes = zip((*out.strides, out.class_stride), (*plan.shape, plan.classes), strict=True)
    reach = 1
    for stride, size in sorted(axes):
        if size > 1:
            if stride != reach:
                return False
            reach *= size
    return True


class _Layout(NamedTuple):
    """How positions lie: images of so many pixels, and whether each has its classes side by side."""

    images: Number
    pixels: Number
    rows: Truth


def _layout(plan: Plan) -> _Layout | None:
    """Of a plan's output; None where it has gaps."""
    if not _without_gaps(plan):
        return None
    out, pixels = plan.output, plan.shape[-1]
    rows = len(plan.shape) == 1 and out.strides[0] == plan.classes
    apart = len(plan.shape) == 2 and out.strides[0] == plan.classes * pixels
    return _Layout(*((plan.shape[0], pixels) if apart else (1, element_count(plan.shape))), rows)


def _share_of(count: Number, bounds: tuple[int, int]) -> Number:
    """A 64th of it, within bounds, which are multiples of 64, too."""
    return least(most((count + 4095) >> 12 << 6, bounds[0]), bounds[1])


class GradientKernel(LossKernel):
    """Of plans with the same operands."""

    own_slots = ("clear", "span", "bytes")
    lines = {
        "targets": TargetLines,
        **{how: LINES[how] for how in list(LINES)[1:]},
        "runs": PlaneLines,
    }

    def share(self, code: Code, parameters: Parameters) -> Mapping[str, Value]:
        """The one gradient of all positions, divided by the total weight for mean: FLOAT, as documented."""
        if "gradient" not in self.named.singles:
            return {}
        dtype = self.dtype
        gradient = code.variable(code.load(parameters.address("gradient"), dtype))
        with code.when(parameters.flag("mean")):
            if "total" in self.named.inputs:
                divisor = code.load(parameters.address("total"), dtype)
            else:
                total, _ = totals.in_blocks(
                    code, parameters["positions"], parameters.scratch, code.integer(0), 2,
                    lambda start, stop: totals.sum_targets(code, parameters, start, stop, self.target, dtype),
                )  # fmt: skip
                divisor = total.to("f32")
            gradient.set(gradient.get() / divisor)
        return {"gradient": gradient.get().to("f64")}

    def cut(self, problem: Problem) -> Launches:
        positions, classes, item = (problem[name] for name in ("positions", "classes", "item"))
        size, layout, dense, width = positions * classes * item, None, False, 1
        if problem.plan is not None:
            layout, width = _layout(problem.plan), problem.plan.shape[-1]
            dense = bool(problem["dense"])
        elif problem.shape:
            images, _, width = problem.shape
            layout, dense = _Layout(images, width, width == 1), True
        compared = all_of(dense, compares(item, classes, width, size))
        tile, clear = self._pieces(problem, layout)
        tile = where(compared, RUN // item, tile)
        clear, span = where(compared, LEAVE, clear), _share_of(size, SPANS)
        problem["clear"], problem["bytes"], problem["span"] = clear, size, span
        pieces, grain = cut_tiles(problem, tile, classes)
        spans = where(all_of(inverse(compared), clear == LEAVE), ceil_div(size, span), 0)
        sum_blocks: Number = 0
        if "gradient" in self.named.singles and "total" not in self.named.inputs:
            first = (problem["mean"] != 0) & (pieces > grain) & (positions > totals.BLOCK)
            sum_blocks = where(first, totals.block_count(positions), 0)
        return Launches(where(compared, RUNS, ROWS), pieces, grain, sum_blocks, spans)

    def _pieces(self, problem: Problem, layout: _Layout | None) -> tuple[Number, Number]:
        """Where values are scattered: positions of a piece, and how it clears its output."""
        positions, classes = problem["positions"], problem["classes"]
        if layout is None:
            return most(least((1 << 18) // classes, UNIT), 1), STRIDED
        images, pixels, rows = layout
        column = classes * problem["item"]
        whole = positions * column <= IN_CACHE
        apiece = (images > 1) & (pixels * column <= IN_CACHE)
        unit = where(apiece, pixels, _share_of(positions, SCATTERED))
        unit = where(rows, most(IN_CACHE // column, 1), where(whole, positions, unit))
        return unit, where(rows | whole | apiece, SPAN, LEAVE)

    def kernels(self, plan: Plan, variant: int) -> Kernels:
        kernels = super().kernels(plan, variant)
        sums = totals.emit_totals(self.target, self.dtype, self.slots)
        clear = functools.partial(emit_clear, self.slots)
        return kernels._replace(
            sums=compiled(f"{self.name}.totals.{self.dtype}", sums),
            clear=compiled(f"{self.name}.clear", clear),
        )


class NllGradient(Likelihood):
    """Its plans say with `total_weight_given` whether a mean's total is among the operands."""

    kernel = GradientKernel

    def variants(self) -> Iterator[Plan]:
        """Those of rows need the code of images."""
        kinds = product(FLOATS, self.targets, (FEW, MANY + 1), ("positions", "single"))
        for dtype, target, classes, role in kinds:
            yield example(
                self.plan["name"], dtype, classes,
                [("target", target, "positions"), ("gradOutput", dtype, role), ("weight", dtype, "classes")],
                [("out", dtype, "planes")], positions=1 << 17,
            )  # fmt: skip


for _name in ("nll_loss_backward", "nll_loss2d_backward"):
    KERNELS[_name] = NllGradient(
        nll_gradient, {"name": _name}, mean=False, total_weight_given=False, by_row=False
    )
