"""The gradient of the negative log-likelihood of a class per pixel: see `operators/nll_loss2d_backward.py`.

It is written in one of two ways, each of which `Writer` makes a kernel of: by `Scatter` at the targets, or by `Select` everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from openaclnn.core.dtypes import FLOATS, INT32, INT64, UINT8
from openaclnn.core.plan import Plan
from openaclnn.core.tensor import element_count
from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.classes import totals
from openaclnn.engines.cpu.classes.launches import (
    IMAGES,
    ClassKernel,
    Kernels,
    Launches,
    Problem,
    cut_tiles,
    example,
)
from openaclnn.engines.cpu.classes.parameters import (
    GROUP,
    Parameters,
    Targets,
    few,
    fields,
    target_kind,
)
from openaclnn.engines.cpu.classes.totals import runs
from openaclnn.engines.cpu.registry import KERNELS
from openaclnn.engines.machine.cache import Emit, compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.host import last_cache, machine
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.numbers import (
    Number,
    Truth,
    all_of,
    ceil_div,
    flag,
    inverse,
    least,
    most,
    where,
)
from openaclnn.engines.machine.values import Shape, Value, Variable, intrinsic

NAME = "nll_loss2d_backward"
OPERANDS = {
    "target": "target", "gradient": "gradOutput", "weight": "weight", "total": "totalWeight",
    "out": "out",
}  # fmt: skip
SLOTS = fields(
    tuple(OPERANDS), ("weighted", "mean", "total_given", "tile", "clear", "span", "bytes")
)

FEW = 8  # classes up to which comparing every plane beats clearing and scattering
MANY = 1 << 6  # the same of FLOAT outputs that leave the caches
VECTOR = 32  # bytes of a vector, from which on that is so
UNIT = 1 << 14  # positions of one piece of work: all planes of it are compared with cached targets
COMPARED = 1 << 11, UNIT  # a 64th of the positions, between these
# Where values are scattered: a 64th of the positions, so that no thread of 16 has a part more, between these.
SCATTERED = 1 << 12, 1 << 16
# The same for what is cleared first. Long spans are cleared at 112 GB/s, 64 KB at 60, 4 KB at 24: past the caches
# nothing is read first.
SPANS = 1 << 18, 1 << 22
IN_CACHE = 1 << 19  # bytes that are still in a core's cache when their values are scattered


PLANES = 2
SEGMENT = 2048  # positions between two looks at whether a target was no class
STREAMS = 4

LEAVE, SPAN, STRIDED = range(3)
"""How a piece of work clears its output: not at all, as one span of memory, or as its strides say."""


def compares(item: Any, classes: Any, pixels: Any, size: Any) -> Any:
    """Whether every plane, of so many pixels, is compared with the targets; outputs have so many bytes in an element and in all.

    Of numbers and of code's values alike: what compiles a kernel and what calls it go by one rule.

    In caches, clearing is cheap, and so are patches of one class: comparing 21 planes takes 1.3 to 2.5 times as long there, and gains a fifth
    where targets are random. From half of the last cache on FLOAT gains: on a Xeon with two cores 1.0 to 1.5 for patches and 1.3 to 3 for random targets, on another with 16
    0.8 to 1.0 and 1.4 to 1.8. Of more classes one loses there what the other gains, and so do 16 bits: 0.5 to 0.7 for patches.
    """
    wide = (item >= 4) & (item * machine().lanes >= VECTOR)
    many = wide & (size > last_cache() // 2) & (classes <= MANY)
    # Images of one pixel are the pixels of one image that has its classes side by side.
    return ((classes <= FEW) | many) & ((pixels > 1) | (classes <= 1))


class Writer:
    """The operands of a kernel being written; `gradient` is None where each position has its own."""

    def __init__(
        self, code: Code, parameters: Parameters, dtype: str, target: str, gradient: Value | None
    ) -> None:
        self.code, self.parameters = code, parameters
        self.dtype, self.size, self.gradient = dtype, SIZE[dtype], gradient
        self.bits = f"i{8 * self.size}"  # integers of an element's size
        self.targets = Targets(code, parameters, target)
        self.classes = self.targets.classes
        self.weights = parameters.address("weight")
        self.weight_step = parameters["weight.class_step"]
        self.class_step = parameters["out.class_step"]
        self.opaque = numerics.Opaque(code)

    def weight(self, label: Value) -> Value:
        """A class's weight, as FLOAT."""
        return self.code.load(self.weights + label * self.weight_step, self.dtype)

    def clear(self, start: Value, stop: Value) -> None:
        """What a piece begins with."""
        raise NotImplementedError

    def run(self, addresses: list[Value], count: Value) -> None:
        """A stretch of a piece's positions that lie at one stride."""
        raise NotImplementedError


def emit_pieces(writer: type[Writer], dtype: str, target: str, single: bool) -> Emit:
    """The kernel of a writer: pieces of work are runs of positions. `single`: one gradient is that of all positions."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, SLOTS)
        gradient = single_gradient(code, parameters, dtype, target) if single else None
        pieces = writer(code, parameters, dtype, target, gradient)
        operands = ("target", "gradient", "out")
        totals.each_piece(code, parameters, first, last, operands, pieces.run, pieces.clear)

    return emit


def single_gradient(code: Code, parameters: Parameters, dtype: str, target: str) -> Value:
    """The one gradient of all positions, divided by the total weight for mean: FLOAT, as documented."""
    gradient = code.variable(code.load(parameters.address("gradient"), dtype))
    total_given = parameters.flag("total_given")
    positions, zero = parameters["positions"], code.integer(0)
    with code.when(parameters.flag("mean")):
        total, _ = totals.in_blocks(
            code, total_given.choose(zero, positions), parameters.scratch, zero, 2,
            lambda start, stop: totals.sum_targets(code, parameters, start, stop, target, dtype),
        )  # fmt: skip
        divisor = code.variable(total.to("f32"))
        with code.when(total_given):
            divisor.set(code.load(parameters.address("total"), dtype))
        gradient.set(gradient.get() / divisor.get())
    return gradient.get()


def emit_clear(code: Code, arguments: Sequence[Value]) -> None:
    """The kernel that clears an output without gaps, `span` bytes a piece."""
    block, first, last = arguments
    parameters = Parameters(code, block, SLOTS)
    out, span, size = parameters.address("out"), parameters["span"], parameters["bytes"]
    with code.loop(first, last) as piece:
        start = piece * span
        code.clear(out + start, (size - start).least(span))


class Scatter(Writer):
    """One value for each position, at its target's class: clear the output, then scatter.

    Both halves matter (2 threads, (8, 21, 512, 512) FLOAT): clearing takes 1.7 ms, random targets 5 ms more,
    which is the memory's time for reading and writing back the lines they touch; prefetching them gains
    nothing. Targets that are equal for 8 neighbours, as in a segmentation mask, take 0.9 ms.
    """

    def __init__(self, code: Code, *operands: Any) -> None:
        super().__init__(code, *operands)
        self.steps = [self.parameters[f"{name}.step2"] for name in ("target", "gradient", "out")]
        self.sizes = [self.targets.size, self.size, self.size]

    def clear(self, start: Value, stop: Value) -> None:
        code, way = self.code, self.parameters["clear"]
        with code.when(way == SPAN):
            where = self.parameters.position("out", start)
            code.clear(where, (stop - start) * self.classes * self.size)
        with code.when(way == STRIDED):
            runs(code, self.parameters, start, stop, ("out",), self._clear_run)

    def _clear_run(self, addresses: list[Value], count: Value) -> None:
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
            code.array(place, self.bits).write(0, 0)

    def run(self, addresses: list[Value], count: Value) -> None:
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
        target = self.targets.at(place)
        with code.when(target.counted, likely=True):
            factor = code.load(gradient, self.dtype) if self.gradient is None else self.gradient
            value = -(factor * self.weight(target.label))
            code.store(value, out + target.label * self.class_step, self.dtype)
        with code.when(target.stray, likely=False):
            self.parameters.report_stray()

    def _group(self, addresses: list[Value], index: Value) -> None:
        code = self.code
        place, gradient, out = (
            address + index * size for address, size in zip(addresses, self.sizes, strict=True)
        )
        target = self.targets.at(place)
        with code.either(self.targets.alike(place) & target.counted) as (together, apiece):
            with together:
                label = target.label
                lanes, zero = min(code.lanes, GROUP), code.integer(0)
                shape = Shape(GROUP // lanes, lanes)
                weight = -self.weight(label)
                if self.gradient is None:
                    values = numerics.load(code.array(gradient, self.dtype), zero, shape) * weight
                else:
                    values = (self.gradient * weight).fill(shape)
                results = code.array(out + label * self.class_step, self.dtype)
                numerics.store(values, results, zero, self.opaque)
            with apiece:
                for offset in range(GROUP):
                    self._one(addresses, index + offset, self.sizes)


class Plane(NamedTuple):
    """One class of a stretch of positions."""

    wanted: Value  # the key of its positions
    factor: Value  # its negative weight, times the gradient where there is but one
    out: Array


class Select(Writer):
    """Few classes, or outputs that leave the caches: every plane is written once, each value or zero by comparing its class with the
    targets. For positions that lie side by side in all operands.

    Two planes a pass over 16,384 positions: two streams of stores run at the memory's pace, four do not.
    """

    def __init__(self, code: Code, *operands: Any) -> None:
        super().__init__(code, *operands)
        # Results are chosen as they lie in memory: 16-bit elements twice as many at a time.
        self.width = code.lanes * 4 // self.size

    def clear(self, start: Value, stop: Value) -> None:
        """Nothing: every class of every position is written."""

    def run(self, addresses: list[Value], count: Value) -> None:
        """A stretch of positions, all planes of it."""
        code = self.code
        pairs = self.classes - self.classes.unsigned_rem(PLANES)
        with code.loop(0, pairs, PLANES) as plane:
            self._planes(addresses, count, plane, PLANES)
        with code.when(pairs != self.classes):
            self._planes(addresses, count, pairs, 1)

    def _planes(self, addresses: list[Value], count: Value, first: Value, planes: int) -> None:
        code = self.code
        labels = [first + index for index in range(planes)]
        factors = []
        for label in labels:
            weight = -self.weight(label)
            factors.append(weight if self.gradient is None else self.gradient * weight)
        # A plane whose class is ignored takes a number that no key has.
        none = self.classes + 1
        wanted = [(label == self.targets.ignored).choose(none, label) for label in labels]
        with code.loop(0, count, SEGMENT) as start:
            sizes = self.targets.size, self.size, self.size
            targets, gradients, out = (
                address + start * size for address, size in zip(addresses, sizes, strict=True)
            )
            outs = [code.array(out + label * self.class_step, self.bits) for label in labels]
            length = (count - start).least(SEGMENT)
            highest = code.variable(0)
            self._segment(
                code.array(targets, self.targets.kind), code.array(gradients, self.dtype),
                [Plane(*plane) for plane in zip(wanted, factors, outs, strict=True)], length,
                highest,
            )  # fmt: skip
            beyond = highest.get() >= self.classes
            with code.when(beyond & (first == 0), likely=False):
                self._look_for_strays(targets, length)

    def _segment(
        self, targets: Array, gradients: Array, planes: list[Plane], count: Value, highest: Variable
    ) -> None:
        index = self.code.integer(0)
        for shape in Shape(STREAMS, self.width), Shape(1, self.width), Shape(1, 1):
            body = partial(self._positions, shape, targets, gradients, planes, highest)
            index = self.code.strides(index, count, shape.elements, body)

    def _positions(
        self, shape: Shape, targets: Array, gradients: Array, planes: list[Plane],
        highest: Variable, index: Value,
    ) -> None:  # fmt: skip
        """The results of neighbouring positions in all planes."""
        # Stream by stream: 64-bit targets and masks of all streams at once would fill the registers.
        starts = range(0, shape.elements, shape.lanes)
        wide = self.code.joined([self._keys(targets, index + at, shape.lanes) for at in starts])
        keys = wide.to(self.bits)
        self._note(keys, highest)
        factors = self._gradients(gradients, index, shape)
        for plane, values in zip(planes, self._values(factors, wide, planes, shape), strict=True):
            wanted = plane.wanted.to(self.bits)
            for at, (key, value) in zip(starts, keys.streams_with(values), strict=True):
                plane.out.store((key == wanted).choose(value, 0), index + at)

    def _keys(self, targets: Array, index: Value, lanes: int) -> Value:
        """Targets as small integers: every one that is no class becomes the number of classes."""
        keys = targets.load(index, Shape(1, lanes))
        if targets.kind == "i64":  # saturate to 32 bits, which NEON does while it narrows
            keys = intrinsic("umin", keys, 0xFFFFFFFF).to("i32")
        elif targets.kind == "u8":
            keys = keys.unsigned("i32")
        return intrinsic("umin", keys, self.classes.to("i32"))

    def _note(self, keys: Value, highest: Variable) -> None:
        largest, *others = keys.streams()
        for key in others:
            largest = intrinsic("umax", largest, key)
        value = largest.reduce("umax").unsigned("i64")
        highest.set((value > highest.get()).choose(value, highest.get()))

    def _gradients(self, gradients: Array, index: Value, shape: Shape) -> Value | None:
        """The positions' own gradients as FLOAT vectors, if they have any."""
        if self.gradient is not None:
            return None
        lanes = min(shape.lanes, self.code.lanes)
        return numerics.load(gradients, index, Shape(shape.elements // lanes, lanes))

    def _values(
        self, gradients: Value | None, keys: Value, planes: list[Plane], shape: Shape
    ) -> list[Value]:
        """-(gradient * weight) for each plane, rounded, as integers of the element's size."""
        factors = [plane.factor for plane in planes]
        if gradients is None:
            return [self._rounded(factor.splat(1)).lane(0) for factor in factors]
        if self.dtype == "f32" or len(planes) == 1:
            return [self._joined(gradients * factor, shape) for factor in factors]
        # Rounding costs more than choosing the weight first: one value a position serves both planes.
        first = planes[0].wanted.to("i32")
        weights = gradients.join(
            (key == first).choose(*factors) for key in keys.split(gradients.lanes).streams()
        )
        return [self._joined(gradients * weights, shape)] * len(planes)

    def _joined(self, values: Value, shape: Shape) -> Value:
        bits = self._rounded(values)
        return bits if bits.lanes == shape.lanes else bits.joined()

    def _rounded(self, values: Value) -> Value:
        return numerics.narrow(values, self.dtype, self.opaque).bits_as(self.bits)

    def _look_for_strays(self, targets: Value, count: Value) -> None:
        code = self.code
        with code.loop(0, count) as index:
            target = self.targets.at(targets + index * self.targets.size)
            with code.when(target.stray, likely=False):
                self.parameters.report_stray()


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


class NllGradient(ClassKernel):
    axes, strided, full = IMAGES, True, ("out",)

    def numbers(self, plan: Plan) -> Mapping[str, int]:
        total_given = int(plan.numbers["total_weight_given"])
        return {"weighted": 1, "mean": int(plan.numbers["mean"]), "total_given": total_given}

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
        tile = where(compared, _share_of(positions, COMPARED), tile)
        clear, span = where(compared, LEAVE, clear), _share_of(size, SPANS)
        problem["clear"], problem["bytes"], problem["span"] = clear, size, span
        pieces, grain = cut_tiles(problem, tile, classes)
        spans = where(all_of(inverse(compared), clear == LEAVE), ceil_div(size, span), 0)
        summed = (problem["mean"] != 0) & (problem["total_given"] == 0)
        first = summed & (pieces > grain) & (positions > totals.BLOCK)
        sum_blocks = where(first, totals.block_count(positions), 0)
        return Launches(flag(compared), pieces, grain, sum_blocks, spans)

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
        dtype, target = plan.output.dtype.short, target_kind(plan)
        gradient = next(operand for operand in plan.inputs if operand.parameter == "gradOutput")
        single = gradient.role == "single"
        writer: type[Writer] = Select if variant else Scatter
        write = compiled(
            f"nll.{writer.__name__}.{dtype}.{target}.{'single' if single else 'each'}",
            emit_pieces(writer, dtype, target, single),
            few=few,
        )
        sums = compiled(f"totals.nll.{dtype}.{target}", totals.emit_totals(target, dtype, SLOTS))
        return Kernels(write, sums, compiled("nll.clear", emit_clear))

    def variants(self) -> Iterator[Plan]:
        """Those of rows need the code of images."""
        kinds = product(FLOATS, (INT64, INT32, UINT8), (FEW, MANY + 1), ("positions", "single"))
        for dtype, target, classes, role in kinds:
            yield example(
                NAME, dtype, classes,
                [("target", target, "positions"), ("gradOutput", dtype, role), ("weight", dtype, "classes")],
                [("out", dtype, "planes")], positions=1 << 17,
            )  # fmt: skip


KERNELS[NAME] = KERNELS["nll_loss_backward"] = NllGradient("nll", SLOTS, OPERANDS)
