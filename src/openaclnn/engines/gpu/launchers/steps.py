"""Launches of training steps of cross entropy: its row formula with the gradient as one more result. The AHEAD kernel writes it with the loss, for the loss's gradient that is expected;
the LATE kernel writes it anew if another came. `operators/logit_steps.py` has the plans, `torch/fused_backward.py` their use, `fused_backward.py` the kernels of long rows.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import triton.language as tl

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.plan import Plan
from openaclnn.engines.formulas.cross_entropy import (
    OPERANDS,
    STEP_BOTH,
    STEP_GRADIENT,
    STEP_LOSS,
    STEP_SQUARE,
    cross_entropy_step,
    switches_of,
)
from openaclnn.engines.gpu.kernels.row_source import AHEAD, LATE, Signature, Traversal, kernel_of
from openaclnn.engines.gpu.kernels.steps import StepWriter, expect
from openaclnn.engines.gpu.kernels.sums import finish_sums
from openaclnn.engines.gpu.launchers import sums
from openaclnn.engines.gpu.launchers.geometry import (
    DIVISOR,
    IGNORED,
    Geometry,
    Launches,
    Specs,
    power_of_two_divisor,
)
from openaclnn.engines.gpu.launchers.losses import FINISH, LossLauncher
from openaclnn.engines.gpu.launchers.row_formulas import Tile, Walk
from openaclnn.engines.gpu.launchers.sums import NUMBERS
from openaclnn.engines.gpu.launching.launch import (
    INT32_LIMIT,
    VECTOR_BYTES,
    KernelSpec,
    next_power_of_two,
    pointers_by_name,
    scratch_of,
    spec_of,
)
from openaclnn.engines.gpu.launching.runners import Runner
from openaclnn.engines.machine.numbers import Number

MEMORY = 2  # FLOATs that are expected; in their memory, the sums over all targets follow them
MOST_CLASSES = {True: 8192, False: 4096}  # of rows, of images
WHOLE = 32  # classes up to which a thread has a whole row, unless that gives bank conflicts in shared memory
PROGRAMS = 2048  # programs of the LATE kernel, which keep a device busy
EXPECT = "expect"
RESULTS = {"gradInputOut": "0", "lossOut": "1"}


def _rows(itemsize: int, classes: int) -> Tile:
    """The tile of rows: short ones have several in a warp, with up to 32 classes in a thread; long ones have as many warps as hold 64 each. Microseconds of a step, FLOAT and BFLOAT16, of four rows in a warp, and of
    two: (50000, 190) 29.8 and 24.8 (40.2 and 39.2)."""
    vector = min(power_of_two_divisor(classes), VECTOR_BYTES // itemsize)
    if classes <= 4:
        return Tile(128, 1, next_power_of_two(classes), False, 4, True)
    warps = next_power_of_two(-(-classes // (32 * 64)))
    positions = 4 if 128 < classes <= 256 else 1 << max(20 * 32 // classes, 1).bit_length() - 1
    lanes = max(32, 32 * warps // positions * vector)
    if classes <= 48:
        positions, lanes = 32, 8 if classes <= 32 else 32
    elif positions == 4 and -classes % 64 * 3 < classes:
        lanes = 64
    return Tile(positions, next_power_of_two(-(-classes // lanes)), lanes, False, warps, True)


def _images(classes: int, pixels: int, smoothed: bool, weighted: bool) -> Tile:
    """The tile of images: a thread has all classes of a pixel, or as many as fit into registers, where smoothing needs logits and powers, and the classes' weights, at once. Microseconds in FLOAT and
    BFLOAT16 by eight threads for four pixels, and by two for two: (8, 150, 384, 384) with weights and smoothing 857 and 848 (1924 and 1901), (4, 256, 256, 256) 310 and 289 (2692 and 2442); by
    four for two, without weights, 168 and 158 (1887 and 291), without either 169 and 144 (1460 and 223)."""
    lanes, positions, warps = 1, 256 if classes <= (24 if smoothed else 32) else 128, 4
    if classes > 256:
        lanes, positions, warps = 8, 16, next_power_of_two(-(-classes // 256))
    elif smoothed and weighted and classes > 64:
        lanes, positions, warps = 8, 32, 2
    elif classes > 192:
        lanes, positions = 4, 64
    elif classes > (64 if smoothed else 160):
        lanes, positions, warps = 2, 64, 2
    elif classes > 128:
        lanes = 4
    positions = min(positions, next_power_of_two(pixels))
    if lanes == 1:
        warps = min(warps, max(1, positions // 32))
    return Tile(positions, next_power_of_two(-(-classes // lanes)), lanes, False, warps, True)


def serves(by_class: bool, images: int, pixels: int, classes: int) -> bool:
    """Whether programs can hold all classes of a position, of rows (`by_class`) or images; pixels of an image and tiles must be counted by 32 bits."""
    tiles = images * -(-pixels // _images(classes, pixels, False, False).positions)
    fits = images * pixels < INT32_LIMIT if by_class else max(tiles, pixels * 2) < INT32_LIMIT
    return fits and 1 < classes <= MOST_CLASSES[by_class]


class StepLauncher(LossLauncher):
    """The launcher of one kernel of a step: AHEAD with the launch that reads what is expected, LATE without further launches."""

    def __init__(self, operands: tuple[str, ...], switches: tuple[tuple[str, bool], ...], reduction: str, step: str) -> None:  # fmt: skip
        """`operands`: the formula's names of the plan's operands; a result's name is its index."""
        known = dict(switches)
        self.places = {name: place for place, name in enumerate(operands)}
        self.reduction, self.step = reduction, step
        self.smooths, self.squares = known["smooths"], known["squares"]
        self.totals = 4 if known["weighted"] and self.smooths else 2 if reduction == "mean" else 0
        results, added = [STEP_GRADIENT], 0
        if step == AHEAD:
            losses = [STEP_LOSS, *[STEP_SQUARE] * self.squares]
            results, added = results + (losses if reduction else [STEP_BOTH]), len(losses) if reduction else 0  # fmt: skip
            self.others = {EXPECT: expect, sums.FINISH: finish_sums}
        formula = cross_entropy_step
        kinds = tuple([pair for pair in formula.operands if pair[0] in self.places])
        signature = Signature(
            formula.name, kinds, NUMBERS[:1], NUMBERS[1:], True, ("gradient",) if reduction else (), tuple(range(1, 1 + added)), added, step
        )  # fmt: skip
        graph = formula.graph(known)
        graph = dataclasses.replace(graph, results=tuple([graph.results[each] for each in results]))
        name = ".".join([step, *(str(int(on)) for _, on in switches), reduction])
        super().__init__(name, signature, graph, 0)

    def kernel(self, graph: Any, traversal: Traversal) -> Any:
        return kernel_of(self.signature, graph, traversal, StepWriter)

    def traversals(self) -> list[Traversal]:
        return [self.rows, self.images, Traversal(False, False, 1, dealt=True)]

    def _places(self, plan: Plan) -> dict[str, int]:
        return {name: self.places[name] for name, _ in self.kinds}

    def static(self, plan: Plan) -> Mapping[str, int]:
        return {**super().static(plan), "sums": self.totals, "weighted": int(self.totals > 2)}

    def specs(self, plan: Plan, offset: int = 0) -> Specs:
        ahead, mean = self.step == AHEAD, self.reduction == "mean"
        named = pointers_by_name(plan, lambda operand: operand.role == "full")
        expected = named["keptOut" if ahead else "kept"]
        totals = expected._replace(dtype="float64", shift=MEMORY * 4) if self.totals else None
        inputs = {OPERANDS[name]: slot for name, slot in named.items() if name in OPERANDS}
        told = {
            **{f"from_{name}": slot for name, slot in inputs.items()}, "to_0": named["gradInputOut"], "to_1": named.get("lossOut"),
            "expected": expected, "memory": named["memory"], "totals": totals, "sums": scratch_of(plan),
            "COMPUTE": tl.float32, "PRECISE": plan.compute is FLOAT, "MEAN": mean,
        }  # fmt: skip
        # Both kernels must give the same bits, so the compiler fuses no multiply-adds but those that are written.
        specs: dict[Any, KernelSpec] = {
            traversal: spec_of(kernel, told, fused=False, overlapped=ahead, follows=ahead) for traversal, kernel in self.traversed.items()
        }  # fmt: skip
        if not ahead:
            return specs
        read = {"target": inputs["target"], "weight": inputs.get("weight")} if self.totals else {"target": None, "weight": None}  # fmt: skip
        specs[EXPECT] = spec_of(expect, {**told, **read, "sums": totals, "SUMS": self.totals})
        specs[sums.FINISH] = spec_of(finish_sums, {"sums": totals}, follows=True)
        if self.reduction:
            specs |= self.finishing(plan, {"totals": totals if mean else None, "MEAN": mean, "SQUARED": self.squares, "WEIGHTED": False})  # fmt: skip
        return specs

    def deals(self, g: Geometry, classes: Number) -> tuple[bool, bool]:
        return classes <= WHOLE and classes != 4 and classes * g.static["itemsize"] % 64 != 0, False

    def tile(self, g: Geometry, walk: Walk) -> Tile:
        if walk.traversal.dealt:
            positions, warps = (256, 4) if walk.classes < 8 else (64, 2)
            return Tile(positions, next_power_of_two(walk.classes), 1, False, warps, True)
        if walk.by_class:
            return _rows(g.static["itemsize"], walk.classes)
        return _images(walk.classes, walk.shape[-1], self.smooths, "weight" in self.places)

    def unit(self, walk: Walk) -> int:
        """Vectors of several pixels would take more registers than they are worth, unless there are few pixels of many classes."""
        return DIVISOR if walk.by_class else 2 if walk.classes > 256 else 1

    def is_cut(self, places: Number, pixels: Number) -> bool:
        return True

    def vector(self, *_: Any) -> int:
        """1: the edges of misaligned rows would take as much time as the vectors save."""
        return 1

    def launch(self, g: Geometry) -> Launches:
        launches = super().launch(g)
        before, behind = g.layout.shape
        summing, parts = sums.with_sums(g, "weight", self.totals > 0)
        steps = []
        for step in launches.steps:
            constexprs = step.constexprs
            if step.kernel in self.traversed:
                along = behind if constexprs["CUT"] else before * behind
                constexprs = {"FULL": along % constexprs["POSITIONS"] == 0, "PARTS": parts, **constexprs}  # fmt: skip
                if self.step == LATE:
                    step = step._replace(args={**step.args, "programs": step.grid}, grid=min(step.grid, PROGRAMS))  # fmt: skip
            elif step.kernel == FINISH:
                constexprs = {"PARTS": parts, **constexprs}
            steps.append(step._replace(constexprs=constexprs))
        if self.step == AHEAD:
            adding, *finishing = summing.steps or [sums.adding(g.targets, 0, g.layout.classes, g.numbers[IGNORED], 1)]  # fmt: skip
            steps = [adding._replace(kernel=EXPECT), *finishing, *steps]
        return launches._replace(steps=steps)


_launcher = functools.cache(StepLauncher)


def runner(plan: Plan, step: str) -> Runner:
    """The runner of a plan of `operators/logit_steps.py`."""
    names = tuple([OPERANDS.get(each.parameter) or RESULTS.get(each.parameter, each.parameter) for each in plan.operands])  # fmt: skip
    loss = plan.operands[names.index("1" if step == AHEAD else "gradient")]
    reduction = "" if loss.role == "positions" else "mean" if plan.numbers["mean"] else "sum"
    switches = switches_of(cross_entropy_step, plan)
    return _launcher(names, switches, reduction, step).runner(plan)
