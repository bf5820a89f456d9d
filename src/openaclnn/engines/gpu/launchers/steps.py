"""How cross entropy from logits is launched with its gradient in one go where a program holds all classes of some positions, and the gradient
where another was expected."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from openaclnn.core.dtypes import FLOAT, DType, float_of
from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.kernels.steps import (
    expect_step,
    finish_step,
    gather_step,
    step_ahead,
    step_late,
)
from openaclnn.engines.gpu.kernels.sums import finish_sums
from openaclnn.engines.gpu.launchers.geometry import (
    LaunchParams,
    Targets,
    ignored,
    launch_of,
    power_of_two_divisor,
)
from openaclnn.engines.gpu.launchers.sums import (
    FEW_PARTS,
    FEW_POSITIONS,
    MANY_PARTS,
    SUM_BLOCK,
    adding,
)
from openaclnn.engines.gpu.launching.launch import (
    INT32_LIMIT,
    VECTOR_BYTES,
    KernelSpec,
    Launch,
    PointerArg,
    next_power_of_two,
)
from openaclnn.engines.gpu.launching.runners import Runner, runner_of
from openaclnn.engines.machine.numbers import Number

MEMORY = 2  # FLOATs that are remembered, and expected
MOST_CLASSES = {True: 8192, False: 4096}  # of rows, of images
WHOLE = 32  # classes of rows of which a thread has all, unless too many threads would read the same bank of shared memory
PROGRAMS = 2048  # that keep a device busy where all is written late
FINISHED = 8192  # sums of tiles that are added up at once
FEW_TILES = 1 << 16  # that one program adds up: another launch takes the host 5 us
GATHERING = 64  # programs that do it first where there are more


class Step(NamedTuple):
    """What is computed: of so many images of so many pixels each, or of rows (`by_class`), whose classes lie side by side."""

    dtype: DType
    by_class: bool
    images: int
    pixels: int
    classes: int
    reduction: str
    ignore_index: int
    weighted: bool = False
    smoothing: float = 0.0
    zloss_scale: float = 0.0
    weight_dtype: DType = FLOAT

    @classmethod
    def of(cls, plan: Plan) -> Step:
        """That of a plan of `operators/logit_steps.py`."""
        operands = {operand.parameter: operand for operand in plan.operands}
        x, loss, weight = operands["input"], operands.get("lossOut") or operands["gradLoss"], operands.get("weightOptional")  # fmt: skip
        reduction = "none" if loss.role == "positions" else "mean" if plan.numbers["mean"] else "sum"  # fmt: skip
        by_class = x.class_stride == 1
        images, pixels = (prod(plan.shape), 1) if by_class else (1, *plan.shape)[-2:]
        return cls(
            x.dtype, by_class, images, pixels, plan.classes, reduction, plan.numbers["ignore_index"], weight is not None,
            plan.numbers["label_smoothing"], plan.numbers["zloss_scale"], FLOAT if weight is None else weight.dtype,
        )  # fmt: skip

    @property
    def positions(self) -> int:
        return self.images * self.pixels


class Tile(NamedTuple):
    """What a program holds: classes of a thread, lanes of classes, positions, by so many warps; so many pixels beside each other are one
    vector at most."""

    held: int
    lanes: int
    positions: int
    warps: int
    unit: int


def tile_of(step: Step) -> Tile:
    if step.by_class:
        return _rows(step.dtype.itemsize, step.classes)
    return _images(step.classes, step.pixels, step.smoothing != 0)


def _rows(itemsize: int, classes: int) -> Tile:
    """Short rows: one for each thread, so that what is computed once for a row is not computed by all threads that share it. Then up to 32
    classes of a thread, of several rows in a warp; long rows by as many warps as hold 64 each.

    Microseconds of a step, FLOAT and BFLOAT16, and with a row for several threads: (700001, 5) 21.6 and 22.5 (35.6 and 35.4), (600000, 8) 22.8 and 20.0 (32.8 and 32.0), (300000, 21) 30.4
    and 28.2 (34.7 and 33.1); of 4 classes FLOAT 21.9 (20.5), of 16 29.9 (26.1). Of four rows in a warp, and of two: (50000, 190) 29.8 and 24.8 (40.2 and 39.2)."""
    vector = min(power_of_two_divisor(classes), VECTOR_BYTES // itemsize)
    if classes <= WHOLE and classes != 4 and classes * itemsize % 64:
        positions, warps = (256, 4) if classes < 8 else (64, 2)
        return Tile(next_power_of_two(classes), 1, positions, warps, 1)
    if classes <= 4:
        return Tile(1, next_power_of_two(classes), 128, 4, 1)
    warps = next_power_of_two(-(-classes // (32 * 64)))
    positions = 4 if 128 < classes <= 256 else 1 << max(20 * 32 // classes, 1).bit_length() - 1
    lanes = max(32, 32 * warps // positions * vector)
    if classes <= 48:
        positions, lanes = 32, 8 if classes <= 32 else 32
    elif positions == 4 and -classes % 64 * 3 < classes:
        lanes = 64
    return Tile(next_power_of_two(-(-classes // lanes)), lanes, positions, warps, 1)


def _images(classes: int, pixels: int, smoothed: bool) -> Tile:
    """A thread has all classes of a pixel or two, or a part of them. Vectors of several pixels would take more registers than they are worth,
    unless there are few pixels of many classes. Smoothing holds weights, too."""
    lanes, positions, warps, unit = 1, 256 if classes <= 32 else 128, 4, 1
    if classes > 256:
        lanes, positions, warps, unit = 8, 16, next_power_of_two(-(-classes // 256)), 2
    elif classes > (64 if smoothed else 160):
        lanes, positions = 2, 64
    elif classes > 128:
        lanes = 4
    positions = min(positions, next_power_of_two(pixels))
    if classes <= 256:
        warps = min(warps, max(1, positions // 32))
    unit = min(power_of_two_divisor(pixels), unit)
    return Tile(next_power_of_two(-(-classes // lanes)), lanes, positions, warps, unit)


def serves(step: Step) -> bool:
    """Whether the classes of a position fit into registers; tiles, and pixels of an image, are counted by 32 bits."""
    return (
        1 < step.classes <= MOST_CLASSES[step.by_class]
        and _tiles(step, tile_of(step)) < INT32_LIMIT
        and (step.by_class or step.pixels < INT32_LIMIT // 2)
    )


def _tiles(step: Step, tile: Tile) -> int:
    if step.by_class:
        return -(-step.positions // tile.positions)
    return step.images * -(-step.pixels // tile.positions)


def launched(
    spec: KernelSpec, grid: int, args: Mapping[str, Number], constexprs: Mapping[str, Number], warps: int
) -> Launch:  # fmt: skip
    return launch_of(spec, LaunchParams("", grid, args, constexprs, warps))


def pointers(step: Step, backward: bool = False) -> tuple[Any, ...]:
    """Those to logits, targets, weights, the loss or its gradient, what is kept, what is remembered, and the gradient; then to scratch memory. Addresses are in
    the order of a plan's operands, of which weights are the last input, if there are some."""
    dtype, more = step.dtype.numpy_name, int(step.weighted)
    if backward:
        loss, x, target, kept, memory, weight, out = range(7)
        out -= 1 - more
    else:
        x, target, memory, weight = range(4)
        loss, kept, out = (3 + more + place for place in range(3))
    return (
        PointerArg(x, dtype, wide=True), PointerArg(target, "int64"), PointerArg(weight, step.weight_dtype.numpy_name) if more else None,
        PointerArg(loss, dtype), PointerArg(kept, "float32"), PointerArg(memory, "float32"), PointerArg(out, dtype, wide=True),
        PointerArg(out + 1, "float64"),
    )  # fmt: skip


class _Shared(NamedTuple):
    """What both launches have of a step: arguments and constexprs, how many tiles there are, of how many warps."""

    args: Mapping[str, Number]
    constexprs: Mapping[str, Number]
    tiles: int
    warps: int


def _shared(step: Step) -> _Shared:
    tile = tile_of(step)
    tiles, length = _tiles(step, tile), step.positions if step.by_class else step.pixels
    kept, smoothing = _pair(1.0 - step.smoothing), _pair(step.smoothing / step.classes)
    args: dict[str, Number] = {
        "rows": step.positions, "inner": step.pixels // tile.unit, "out_inner": step.pixels // tile.unit, "blocks": -(-step.pixels // tile.positions), "tiles": tiles,
        "ignore_index": ignored(step.ignore_index), "kept": kept[0], "kept_lacks": kept[1], "smoothing": smoothing[0], "smoothing_lacks": smoothing[1],
        "zloss_scale": float_of(step.zloss_scale),
    }  # fmt: skip
    constexprs: dict[str, Number] = {
        "C": step.classes, "BY_CLASS": step.by_class, "ALONG": step.by_class and tile.lanes > 1, "UNIT": tile.unit, "FULL": length % tile.positions == 0,
        "HELD": tile.held, "LANES": tile.lanes, "POSITIONS": tile.positions, "PARTS": _parts(step),
    }  # fmt: skip
    return _Shared(args, constexprs, tiles, tile.warps)


def _pair(number: float) -> tuple[float, float]:
    """A number as FLOAT, and what that lacks."""
    near = float_of(number)
    return near, float_of(number - near)


def _known(step: Step) -> tuple[bool, bool, bool]:
    """EACH, SMOOTHED and SQUARED."""
    return step.reduction == "none", step.smoothing != 0, step.zloss_scale != 0


def _sums_of(step: Step) -> int:
    """How many of `add_up`'s sums it needs; those over all classes are for label smoothing."""
    if step.weighted and step.smoothing:
        return 4
    return 2 if step.reduction == "mean" else 0


def _parts(step: Step) -> int:
    """How many parts sums are made in: few, which kernels that need a sum add up themselves, or many, which a launch makes one."""
    longest = max(step.positions, step.classes if step.weighted else 0)
    if longest > FEW_POSITIONS:
        return MANY_PARTS
    few: int = min(next_power_of_two(-(-longest // SUM_BLOCK)), FEW_PARTS)
    return few


def _sums_at(kept: PointerArg) -> PointerArg:
    """Where sums over all targets are: behind what is expected."""
    return kept._replace(dtype="float64", shift=MEMORY * 4)


@functools.lru_cache(64)
def loss_runner(step: Step) -> Runner:
    """What queues it, of the addresses of a plan's operands."""
    each, smoothed, squared = _known(step)
    mean, summed, shared, parts = step.reduction == "mean", _sums_of(step), _shared(step), _parts(step)  # fmt: skip
    x, target, weight, loss, expected, memory, out, tile_sums = pointers(step)
    sums = _sums_at(expected)
    expect = KernelSpec(
        expect_step, (*((target, weight, sums) if summed else (None,) * 3), memory, expected), (summed,), overlapped=True
    )  # fmt: skip
    targets = Targets((1, 1, step.positions), (0, 0, 1), 1)
    params = adding(targets, 1, step.classes, step.ignore_index, parts if summed else 1)
    launches = [launch_of(expect, params)]
    if summed and parts == MANY_PARTS:
        finish_parts = KernelSpec(finish_sums, (sums,), overlapped=True, follows=True)
        launches.append(launched(finish_parts, summed, {}, {"PARTS": parts}, 4))
    ahead = KernelSpec(
        step_ahead, (x, target, weight, expected, sums if summed else None, loss if each else None, None if each else tile_sums, out),
        (mean, each, smoothed, squared), fused=False, overlapped=True, follows=True,
    )  # fmt: skip
    launches.append(launched(ahead, shared.tiles, shared.args, shared.constexprs, shared.warps))
    if each:
        return runner_of(tuple(launches))
    tiles, scratch = shared.tiles, 8 * (1 + squared) * shared.tiles
    if tiles > FEW_TILES:
        gather = KernelSpec(gather_step, (tile_sums,), (1 + squared,), overlapped=True, follows=True)  # fmt: skip
        sizes: dict[str, Number] = {"count": tiles, "programs": GATHERING}
        launches.append(launched(gather, GATHERING, sizes, {"BLOCK": 1024}, 4))
        tile_sums, tiles = tile_sums._replace(shift=scratch), GATHERING
        scratch += 8 * (1 + squared) * GATHERING
    finish = KernelSpec(
        finish_step, (sums if mean else None, tile_sums, loss), (mean, squared), overlapped=True, follows=True
    )  # fmt: skip
    block = min(next_power_of_two(tiles), FINISHED)
    launches.append(launched(finish, 1, {"count": tiles}, {"PARTS": parts, "BLOCK": block}, max(4, min(block // 32, 32))))  # fmt: skip
    return runner_of(tuple(launches), scratch)


@functools.lru_cache(64)
def gradient_runner(step: Step) -> Runner:
    """What queues the gradient where another was expected, of the addresses of a plan's operands."""
    shared = _shared(step)
    x, target, weight, gradient, expected, memory, out, _ = pointers(step, backward=True)
    sums = _sums_at(expected) if _sums_of(step) else None
    late = KernelSpec(
        step_late, (gradient, x, target, weight, expected, sums, memory, out), (step.reduction == "mean", *_known(step)), fused=False
    )  # fmt: skip
    programs = min(shared.tiles, PROGRAMS)
    launch = launched(
        late, programs, {**shared.args, "programs": programs}, shared.constexprs, shared.warps
    )
    return runner_of((launch,))
