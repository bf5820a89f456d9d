"""Launches of cross entropy's loss from logits, which is a row formula: the losses of all rows or pixels, or their sum or mean.

With a reduction each program leaves the sums of its positions in scratch memory, in float64; one more launch adds these up in their order, or two where there are many programs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import triton.language as tl

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import cross_entropy
from openaclnn.engines.formulas.cross_entropy import COUNTED, LOSS, OPERANDS, SQUARE, WEIGHT
from openaclnn.engines.formulas.rows import AXES, Graph
from openaclnn.engines.gpu.kernels.row_source import PIECES, SPANS, Signature, Traversal
from openaclnn.engines.gpu.kernels.sums import finish_loss, gather_sums
from openaclnn.engines.gpu.launchers import row_formulas
from openaclnn.engines.gpu.launchers.geometry import (
    Geometry,
    Launches,
    LaunchParams,
    Specs,
    entry_within,
    where_all,
)
from openaclnn.engines.gpu.launchers.launcher import is_row_major_2d
from openaclnn.engines.gpu.launchers.row_formulas import RowFormulas, RowLauncher, Tile, Walk
from openaclnn.engines.gpu.launchers.sums import FLOAT64_BYTES, NUMBERS
from openaclnn.engines.gpu.launching.launch import (
    KernelSpec,
    PointerArg,
    pointers_by_name,
    pointers_of,
    scratch_of,
    spec_of,
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

FEW_PROGRAMS = 1 << 13  # programs up to which one adds up the sums of all; else GATHERING do first
GATHERING = 64
BLOCKS = (128, (128, 4)), (1024, (1024, 4))  # of sums at once, and warps, by how many there are
MOST = 1 << 13, 32
# At most so many rows of more than so many classes are shared by clusters; then the same for 16 bits. Microseconds, in brackets by one program each: of 8 rows of 128,256 classes, FLOAT and BFLOAT16, 9.8 and 9.2 us (by one program each 16.0 and
# 14.9), of 16 13.4 and 12.1 (17.8 and 15.3); of 8 and 64 of 32,000 10.2 and 12.4 (8.9 and 9.9), of 64 of 131,072 20.8 and 15.1 (19.4 and 15.9).
CLUSTERED, NARROW_CLUSTERED = (32, 1 << 15), (64, 1 << 16)
FEW_LONG = 64, (1, 8, 4096, True, 16, False)  # up to so many long rows have this tile
# Classes from which on programs of a cluster have 32 warps: one row of 2^22 takes 40.6 us (by 16 warps 54.0), of 16 bits 39.5 (42.3), of 2^20 18.0 (21.1).
LONGEST = 1 << 19
# Positions, classes of a thread, lanes of classes, streamed, warps, exact. Of many pixels a thread has one or two and reads their classes by eights. Microseconds of the loss alone, FLOAT and
# BFLOAT16, and held: none of (8,19,713,713) 112 and 95 (158 and 111), mean 128 and 102 (124 and 99); of (6,150,641,641) 442 and 298 (405 and 332), 441 and 303 (457 and 348).
MANY_PIXELS = 1 << 20
PIXELS, NARROW_PIXELS = (256, 8, 1, True, 8, False), (512, 8, 1, True, 8, False)
# Of few rows of few classes, by the most of these, a warp has two: of (256, 10), (1024, 10), (4096, 10) and (64, 100) 2.7, 2.9, 3.7 and 2.7 us (of 32 rows and 8 in four warps 5.3, 5.5, 5.6 and 5.0;
# of one and four 3.3 and 3.9, 4.1 and 4.0, 8.4 and 4.7, 2.7 and 3.2).
FEW_TILES = (32, (8, 1, 32, False, 4, False)), (128, (2, 4, 32, False, 1, False))
# Of 16 bits, 32,000 and 128,256 classes 80 and 481 us (by two warps 87 and 506).
LONG, NARROW_LONG = 1 << 14, (1, 4, 1024, True, 4, False)
GATHER, FINISH = "gather", "finish loss"
OF_ROWS = "cross_entropy_loss", "cross_entropy_logits"  # plans of tensors of two axes


def finish_of(count: Number) -> LaunchParams:
    """The last launch, which adds up the sums of so many programs."""
    block, warps = entry_within(count, BLOCKS, MOST)
    return LaunchParams(FINISH, 1, {"count": count}, {"BLOCK": block}, warps, aligned=False)


class LossLauncher(RowLauncher):
    """The launcher of a row formula whose results may be added up over all positions."""

    def __init__(self, name: str, signature: Signature, graph: Graph, axes: int) -> None:
        self.last = {GATHER: gather_sums, FINISH: finish_loss} if signature.added else {}
        super().__init__(name, signature, graph, axes)

    def tile(self, g: Geometry, walk: Walk) -> Tile:
        tile, narrow = super().tile(g, walk), g.static["itemsize"] < 4
        few = walk.positions * walk.classes <= row_formulas.SMALL
        if walk.by_class and not walk.traversal.dealt:
            tile = Tile(*where_all(few, entry_within(walk.classes, FEW_TILES, tile), tile))
        if not self.dense or walk.traversal.dealt or self.writes:
            return tile
        if walk.by_class:
            several = inverse(walk.positions <= row_formulas.FEW_READ)
            rows, few_long = FEW_LONG
            gains = all_of(self.cluster is not None, walk.positions <= rows, walk.classes > LONG)
            tile = Tile(*where_all(gains, few_long, tile))
            return Tile(*where_all(all_of(narrow, several, walk.classes > LONG), NARROW_LONG, tile))
        many = all_of(walk.positions >= MANY_PIXELS, walk.classes > 8)
        return Tile(*where_all(many, where_all(narrow, NARROW_PIXELS, PIXELS), tile))

    @property
    def writes(self) -> bool:
        """Whether log-probabilities are written."""
        return any(kind == "Row" for _, kind in self.kinds[len(self.signature.operands) :])

    @property
    def cluster(self) -> Traversal | None:
        """The traversal by clusters for few long rows; None where rows are written, since a program could read at a target what another has overwritten."""
        spreads = self.dense and not self.writes and self.reductions <= 3
        return self.rows._replace(streamed=True, shared=True) if spreads else None

    def traversals(self) -> list[Traversal]:
        return [*super().traversals(), *([] if self.cluster is None else [self.cluster])]

    def launches(self, g: Geometry, walk: Walk, when: Truth) -> list[LaunchParams]:
        launches = super().launches(g, walk, when)
        if not walk.by_class or walk.traversal.dealt or self.cluster is None:
            return launches
        held, streamed = launches
        spans = ceil_div(walk.classes, PIECES.value * SPANS.value)
        lanes, warps = where_all(walk.positions <= 16, (4096, 16), (1024, 4))
        lanes, warps = where_all(walk.classes >= LONGEST, (8192, 32), (lanes, warps))
        several = CLUSTERED, NARROW_CLUSTERED
        fits = [all_of(walk.positions <= rows, walk.classes > least) for rows, least in several]
        long = any_of(fits[0], all_of(g.static["itemsize"] < 4, fits[1]))
        shared = streamed._replace(
            kernel=self.cluster, grid=streamed.grid * PIECES.value, args={**streamed.args, "span": spans}, warps=warps,
            constexprs={**streamed.constexprs, "HELD": 4, "LANES": lanes},
            when=all_of(streamed.when, g.static["clusters"] > 0, long),
        )  # fmt: skip
        return [held, streamed._replace(when=all_of(streamed.when, inverse(shared.when))), shared]

    def specs(self, plan: Plan, offset: int = 0) -> Specs:
        slots: tuple[PointerArg, ...] = pointers_of(plan, lambda operand: operand.role == "full")
        known, added = (tl.float32, plan.compute is FLOAT), len(self.signature.added)
        slots = (*slots, *[scratch_of(plan)] * (added > 0))
        overlapped = True if added else None
        specs: dict[Any, KernelSpec] = {
            each: KernelSpec(kernel, slots, known, overlapped=overlapped)
            for each, kernel in self.traversed.items()
        }
        if self.cluster is not None:
            memory, spec = scratch_of(plan, "float32", 2), specs[self.cluster]
            specs[self.cluster] = spec._replace(slots=(*slots, memory), overlapped=False if added else None, cluster=PIECES.value)  # fmt: skip
        if not added:
            return specs
        finish = {
            "totals": None, "MEAN": plan.reduction == "mean", "SQUARED": added > 2 or (added == 2 and plan.reduction == "sum"),
            "WEIGHTED": plan.numbers["weighted"], "PARTS": 1,
        }  # fmt: skip
        return {**specs, **self.finishing(plan, finish)}

    @staticmethod
    def finishing(plan: Plan, finish: Mapping[str, Any]) -> Specs:
        """The specs of the kernels that add up the programs' sums."""
        sums, gathered = (scratch_of(plan, place=place) for place in range(2))
        outputs = pointers_by_name(plan)
        named = {**finish, "sums": gathered, "loss": outputs["lossOut"], "square_out": outputs.get("zlossOut")}  # fmt: skip
        return {
            GATHER: spec_of(gather_sums, {"sums": sums, "gathered": gathered}, follows=True), FINISH: spec_of(finish_loss, named, follows=True),
        }  # fmt: skip

    def launch(self, g: Geometry) -> Launches:
        steps, added = [*super().launch(g).steps], len(self.signature.added)
        exchange: Number = 0
        count: Number = 0  # of programs, or clusters of them
        for step in steps:
            programs = step.grid
            if step.kernel == self.cluster:
                programs = programs // PIECES.value
                exchange = where(step.when, programs * (PIECES.value * 4 * self.reductions), 0)
            count = count + where(step.when, programs, 0)
        size, many = count * (FLOAT64_BYTES * added), count > FEW_PROGRAMS
        gathered = where(many, GATHERING * FLOAT64_BYTES * added, 0)
        if added:
            gather = LaunchParams(
                GATHER, GATHERING * added, {"count": count, "programs": GATHERING}, {"BLOCK": 1024}, 4, many, False,
            )  # fmt: skip
            steps += [gather, finish_of(where(many, GATHERING, count))]
        return Launches(
            steps, size + gathered + exchange, (0, where(many, size, 0), size + gathered)
        )


@functools.cache
def _graph(switches: tuple[tuple[str, bool], ...]) -> Graph:
    """The formula's graph; each row computes the sum of all classes' weights again."""
    formula, graph, known = cross_entropy.cross_entropy_loss, Graph(), dict(switches)
    inputs = {
        name: graph.node("input", name=name, kind=kind, axes=AXES[kind])
        for name, kind in formula.operands
    }
    numbers = {name: graph.node("number", name=name) for name in formula.numbers}
    classes = graph.node("classes", axes="", level=0)
    numbers |= {
        "class_count": classes,
        "weight_sum": graph.total(inputs["weight"])
        if known["weighted"] and known["smooths"]
        else classes,
    }
    graph.results = formula.function(**inputs, **numbers, **known)
    return graph


@functools.cache
def _launcher(
    switches: tuple[tuple[str, bool], ...], inputs: tuple[str, ...], outputs: tuple[str, ...], reduction: str, axes: int
) -> RowLauncher:  # fmt: skip
    """The launcher for row-major operands (`axes` is 0), or for so many axes of strided ones."""
    formula, known = cross_entropy.cross_entropy_loss, dict(switches)
    results = [cross_entropy.RESULTS[name] for name in outputs]
    added: list[int] = []
    if reduction:
        results[outputs.index("lossOut")] = LOSS
        summed = [LOSS]
        if reduction == "mean":
            summed.append(WEIGHT if known["weighted"] else COUNTED)
        if known["squares"] or "zlossOut" in outputs:
            summed += [SQUARE, COUNTED][: 1 + (reduction == "mean" and known["weighted"])]
        results += [each for each in summed if each not in results]
        added = [results.index(each) for each in summed]
    kinds = dict(formula.operands)
    signature = Signature(
        formula.name, tuple([(name, kinds[name]) for name in inputs]), NUMBERS[:1], NUMBERS[1:], added=tuple(added),
        hidden=len(results) - len(outputs),
    )  # fmt: skip
    graph = _graph(switches)
    chosen = dataclasses.replace(graph, results=tuple([graph.results[each] for each in results]))
    name = ".".join([formula.name, *(str(int(on)) for _, on in switches), *map(str, results)])
    return LossLauncher(name, signature, chosen, axes)


class _Losses(RowFormulas):
    """The launcher of all plans of the loss: by their operands, results and switches."""

    reduces = True

    def _launcher(self, plan: Plan, axes: int) -> RowLauncher:
        switches = cross_entropy.switches_of(cross_entropy.cross_entropy_loss, plan)
        inputs, outputs = (tuple([each.parameter for each in side]) for side in (plan.inputs, plan.outputs))  # fmt: skip
        return _launcher(switches, tuple([OPERANDS[name] for name in inputs]), outputs, plan.reduction, axes)  # fmt: skip

    def _serves_numbers(self, plan: Plan) -> bool:
        return True

    def serves_row_major(self, plan: Plan) -> bool:
        return is_row_major_2d(plan) if plan.kernel in OF_ROWS else super().serves_row_major(plan)


LOSSES = _Losses()
