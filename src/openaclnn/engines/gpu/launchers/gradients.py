"""Launches of the gradients of cross entropy, from logits or log-probabilities. These row formulas reduce nothing over the classes, but need sums over all positions and weights.

A program has all classes of some pixels or short rows, or some classes of a long row. If targets are few and have no weights, every program counts them itself, which takes less time
than a launch that counts them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import triton.language as tl

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Plan, collapse
from openaclnn.engines.formulas.cross_entropy import (
    OPERANDS,
    cross_entropy_logits_grad,
    cross_entropy_loss_grad,
    switches_of,
)
from openaclnn.engines.formulas.likelihood import nll_gradient
from openaclnn.engines.formulas.rows import Graph, RowFormula
from openaclnn.engines.gpu.kernels.row_source import (
    COUNTED,
    OF_WEIGHTS,
    Signature,
    Traversal,
    kernel_of,
)
from openaclnn.engines.gpu.launchers import row_formulas, sums
from openaclnn.engines.gpu.launchers.geometry import (
    TARGET_AXES,
    Geometry,
    Launches,
    LaunchParams,
    Specs,
    entry_within,
    where_all,
)
from openaclnn.engines.gpu.launchers.row_formulas import (
    SHORT_ROW,
    RowFormulas,
    RowLauncher,
    Tile,
    Walk,
    once_tile,
)
from openaclnn.engines.gpu.launchers.sums import NUMBERS
from openaclnn.engines.gpu.launching.launch import (
    VECTOR_BYTES,
    KernelSpec,
    pointers_of,
    scratch_of,
)
from openaclnn.engines.machine.numbers import (
    Number,
    Truth,
    all_of,
    any_of,
    ceil_div,
    inverse,
    where,
)

FORMULAS = {
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), nll_gradient), "cross_entropy_loss_grad": cross_entropy_loss_grad, "cross_entropy_logits_grad": cross_entropy_logits_grad,
}  # fmt: skip
COUNTED_ROWS = "counted rows"  # key of the `cut` kernel whose programs count targets themselves
# Positions, classes of a thread, lanes of classes, streamed, warps, exact.
FEW_TILES = {True: (8, 1, 128, 1, 4, 0), False: (128, 4, 1, 1, 4, 0)}
MANY_POSITIONS = 1 << 18  # pixels that keep a device busy with two for each thread
MANY_ELEMENTS = 1 << 25  # elements that keep a device busy with several tiles for each program
# Where no row is read, programs write the planes of so many pixels one after the other: 4 MiB of INT64 targets, which stay in the second-level cache. Half of it gave
# (32,21,512,1024) FLOAT 0.91 of a copy instead of 0.95; twice and four times (2,80,2048,2048) 0.86 and 0.72 instead of 0.97, and all planes of a block (8,150,512,512) 0.95 instead of 1.03.
PANEL_PIXELS = 1 << 19
# Tiles for rows with a transposed operand, and for few pixels: a thread for each row or pixel, so that numbers of the row are not computed several times. For 16 bits, then FLOAT:
# for pixels and rows whose input is transposed; for those whose output is; and for MANY_ELEMENTS where both are. Shares of a copy of (16384, 4096), BFLOAT16 and FLOAT: 0.88 and 0.95, 0.87 and 0.91, 0.88 and 0.94.
SQUARES = (
    ((128, 1, 32, 1, 4, 0), (64, 1, 64, 1, 2, 0), (128, 16, 32, 1, 4, 0)), ((128, 1, 16, 1, 4, 0), (128, 1, 32, 1, 4, 0), (128, 1, 16, 1, 4, 0)),
)  # fmt: skip


def _row_tile(static: Mapping[str, Number], classes: Number) -> tuple[Number, ...]:
    """The tile of rows: long ones in pieces, of 16 bits by one warp. Shares of a copy's bandwidth: FLOAT 4096, 5001, 32000 and 50257 classes 0.99, 0.97, 0.98 and 0.98, BFLOAT16 2300, 4096, 5001, 32000 and 50257 0.85, 0.96, 0.98,
    0.97 and 0.98 (by two warps 2048 classes 0.70, 0.96, 0.91, 0.97 and 0.97)."""
    piece = 1, 1, 1024, 1, where(static["itemsize"] < 4, 1, 2), 0
    return where_all(classes <= _short(static), once_tile(static, classes), piece)


def _short(static: Mapping[str, Number]) -> Number:
    """Classes up to which a program has whole rows. BFLOAT16 1501 and 1900 in pieces 0.83 and 0.94 (whole 0.76 and 0.84)."""
    return where(static["itemsize"] < 4, 1024, SHORT_ROW)


def _image_tile(
    static: Mapping[str, Number], classes: Number, pixels: Number, along: Number
) -> tuple[Number, ...]:
    """The tile of images. Shares of a copy's bandwidth on an H200, FLOAT and BFLOAT16, in brackets those of a kernel by hand: (16,21,512,512) 0.78 and 0.54 (0.71 and 0.52), (4,150,512,512) 0.86 and 0.71 (0.82 and
    0.68), (32,1000,16,16) 0.25 and 0.14 (0.11 and 0.05), (128,3,225,225) 0.42 and 0.26 (0.40 and 0.17); planes that begin anywhere, (8,19,713,713) 0.65 and 0.53 (0.63 and
    0.29), (2,150,641,641) 0.56 and 0.55 (0.50 and 0.53)."""
    whole, narrow = (along % (VECTOR_BYTES // static["itemsize"])) == 0, static["itemsize"] < 4
    few = any_of(classes <= 4, all_of(narrow, whole))
    many = all_of(inverse(any_of(whole, narrow)), classes > 64)
    held = where(few, 4, where(many, 16, 8))
    return where_all(pixels >= MANY_POSITIONS, (256, held, 1, 1, 4, 0), (128, 16, 1, 1, 4, 0))


def _written_tile(
    static: Mapping[str, Number], by_class: bool, classes: Number
) -> tuple[Number, ...]:
    """The tile of a kernel that reads no row. Shares of a memset, FLOAT and BFLOAT16, of 100, 150, 300 and 1000 classes: 0.81 and 0.84, 0.79 and 0.78, 0.88 and 0.92, 0.95 and 1.18 (by tiles of what
    reads rows 0.81 and 0.66, 0.77 and 0.64, 0.81 and 0.53, 0.95 and 0.96)."""
    narrow, tile = static["itemsize"] < 4, _row_tile(static, classes)
    if not by_class:
        return 512, where(narrow, 16, 8), 1, 1, 4, 0
    table = (
        (64, tile), (192, where_all(narrow, (16, 1, 64, 1, 4, 0), (16, 1, 128, 1, 4, 0))),
        (512, where_all(narrow, (16, 1, 128, 1, 4, 0), (4, 1, 256, 1, 4, 0))), (1024, where_all(narrow, (4, 1, 256, 1, 4, 0), tile)),
    )  # fmt: skip
    return entry_within(classes, table, tile)


class GradientLauncher(RowLauncher):
    """The launcher of a gradient, with the launches of the sums that a mean divides by, or of the weights' sum for label smoothing."""

    def __init__(self, name: str, signature: Signature, graph: Graph, mean: bool, axes: int) -> None:  # fmt: skip
        of_weights = not {*OF_WEIGHTS}.isdisjoint(
            node.name for node in graph.needed(graph.results) if node.what == "number"
        )
        weighted = "weight" in dict(signature.operands)
        self.mean, self.summed = mean, mean or (weighted and of_weights)
        self.counts = mean and not weighted  # whether the sums are a number of targets
        self.reads_rows = "Row" in dict(signature.operands).values()
        self.sums = {"sums": 4 if weighted and of_weights else 2, "weighted": int(weighted)}
        self.others = {**sums.KERNELS} if self.summed else {}
        if self.counts and not axes:
            self.others[COUNTED_ROWS] = kernel_of(signature, graph, Traversal(True, False, 1, cut=True))  # fmt: skip
        super().__init__(f"{name}.{int(mean)}", signature, graph, axes)

    def static(self, plan: Plan) -> Mapping[str, int]:
        return {**super().static(plan), **self.sums}

    def specs(self, plan: Plan, offset: int = 0) -> Specs:
        slots = pointers_of(plan, lambda operand: operand.role != "single")
        memory = scratch_of(plan) if self.summed else None
        weight = next((operand.parameter for operand in plan.inputs if operand.role == "classes"), "")  # fmt: skip
        # What top and rest are rounded to is FLOAT, whatever the logits are.
        known = tl.float32, plan.compute is FLOAT, self.mean
        specs: dict[Any, KernelSpec] = {
            traversal: KernelSpec(kernel, (*slots, memory), known, overlapped=self.summed, follows=self.summed)
            for traversal, kernel in self.traversed.items()
        }  # fmt: skip
        if COUNTED_ROWS in self.others:
            specs[COUNTED_ROWS] = KernelSpec(self.others[COUNTED_ROWS], (*slots, None), known, overlapped=False)  # fmt: skip
        return {**(sums.specs(plan, weight, offset, self.sums["sums"]) if self.summed else {}), **specs}  # fmt: skip

    def tile(self, g: Geometry, walk: Walk) -> Tile:
        if walk.traversal.dealt:
            return super().tile(g, walk)
        if not self.reads_rows:
            tile = _written_tile(g.static, walk.by_class, walk.classes)
        elif walk.by_class:
            tile = _row_tile(g.static, walk.classes)
        else:
            tile = _image_tile(g.static, walk.classes, walk.positions, walk.along)
        if self.reads_rows and not (self.dense and walk.by_class):
            tile = where_all(self.cuts(g, walk), self.square(g, walk), tile)
        small = walk.positions * walk.classes <= row_formulas.SMALL
        positions, held, lanes, streamed, warps, exact = where_all(small, FEW_TILES[walk.by_class], tile)  # fmt: skip
        return Tile(positions, held, lanes, streamed > 0, warps, exact > 0)

    def square(self, g: Geometry, walk: Walk) -> tuple[Number, ...]:
        """The tile of rows with transposed operands, or of few pixels."""
        read, written, both = [
            where_all(g.static["itemsize"] < 4, *tiles) for tiles in zip(*SQUARES, strict=True)
        ]
        if walk.by_class:
            return read
        alike = all_of(*(walk.last_stride(name) == 1 for name, kind in self.kinds if kind == "Row"))
        much = walk.positions * walk.classes >= MANY_ELEMENTS
        return where_all(alike, where_all(much, both, read), written)

    def traversals(self) -> list[Traversal]:
        both = self.rows, self.images
        several = [each._replace(**{how: True}) for each in both for how in ("streamed", "cut")]
        return [*several, Traversal(False, False, 1, dealt=True)] if self.dense else several

    def cuts(self, g: Geometry, walk: Walk) -> Truth:
        """Whether a program has only some of the classes: of long rows, of small problems, so that a device is less idle, of few pixels with many classes, and of rows with a
        transposed operand."""
        small = walk.positions * walk.classes <= row_formulas.SMALL
        if self.dense and walk.by_class:
            return any_of(walk.classes > _short(g.static), small)
        if self.dense:
            few = all_of(walk.positions < MANY_POSITIONS, walk.classes > 64)
            return all_of(any_of(not self.reads_rows, few), inverse(small))
        return all_of(len(walk.shape) == 1, inverse(small))

    def launches(self, g: Geometry, walk: Walk, when: Truth) -> list[LaunchParams]:
        launches = super().launches(g, walk, when)
        cuts = self.cuts(g, walk)
        if walk.traversal.dealt or cuts is False:
            return launches
        (walked,) = launches
        tile = self.tile(g, walk)
        pieces, more = ceil_div(walk.classes, tile.chunk), {}
        if not walk.by_class:
            blocks = ceil_div(walk.along, tile.positions)
            panels = ceil_div(blocks * tile.positions, PANEL_PIXELS)
            more["panel"] = 1 if self.reads_rows else ceil_div(blocks, panels)
        cut = walked._replace(
            kernel=walk.traversal._replace(cut=True), grid=walked.grid * pieces, args={**walked.args, "pieces": pieces, **more},
            when=all_of(walked.when, cuts),
        )  # fmt: skip
        return [walked._replace(when=all_of(walked.when, inverse(cuts))), cut]

    def launch(self, g: Geometry) -> Launches:
        before, *behind = g.layout.shape
        counts = all_of(
            self.counts, self.dense, not g.strided, g.share_small, before <= COUNTED.value, before * g.layout.classes <= row_formulas.SMALL,
            *(size == 1 for size in behind),
        )  # fmt: skip
        launches, parts = sums.with_sums(g, "weight", all_of(self.summed, inverse(counts)))
        steps = []
        for params in super().launch(g).steps:
            step = params._replace(constexprs={"PARTS": parts, **params.constexprs})
            if params.kernel.by_class and params.kernel.cut and COUNTED_ROWS in self.others:
                steps.append(step._replace(kernel=COUNTED_ROWS, when=all_of(step.when, counts)))
                step = step._replace(when=all_of(step.when, inverse(counts)))
            steps.append(step)
        return launches._replace(steps=[*launches.steps, *steps])


@functools.cache
def _launcher(
    formula: RowFormula, operands: tuple[str, ...], singles: tuple[str, ...], switches: tuple[tuple[str, bool], ...], mean: bool, axes: int
) -> GradientLauncher:  # fmt: skip
    """The launcher for row-major operands (`axes` is 0), or for so many axes of strided ones."""
    kinds = dict(formula.operands)
    numbers = tuple([name for name in formula.numbers if name in NUMBERS])
    signature = Signature(
        formula.name, tuple([(name, kinds[name]) for name in operands]), NUMBERS[:1], numbers, True, singles,
    )  # fmt: skip
    name = ".".join([formula.name, *(str(int(on)) for _, on in switches)])
    return GradientLauncher(name, signature, formula.graph(dict(switches)), mean, axes)


class _Gradients(RowFormulas):
    """The launcher of all plans of these gradients: by their operands, switches and sums."""

    def _launcher(self, plan: Plan, axes: int) -> GradientLauncher:
        formula = FORMULAS[plan.kernel]
        switches = switches_of(formula, plan, by_row=True)
        operands = tuple([OPERANDS[operand.parameter] for operand in plan.inputs])
        singles = tuple(
            [OPERANDS[operand.parameter] for operand in plan.inputs if operand.role == "single"]
        )
        summed = bool(plan.numbers["mean"] and not plan.numbers.get("total_weight_given"))
        return _launcher(formula, operands, singles, switches, summed, axes)

    def _serves_numbers(self, plan: Plan) -> bool:
        return True

    def declines(self, plan: Plan) -> str | None:
        axes = len(collapse(plan.shape, [plan.inputs[plan.targets].strides])[0])
        if axes <= TARGET_AXES or not self._launcher(plan, len(plan.shape)).summed:
            return super().declines(plan)
        return f"the Triton kernel that adds up targets walks {TARGET_AXES} axes, not {axes}"


GRADIENTS = _Gradients()
