"""How cross entropy from logits is launched with its gradient in one go where a program holds all classes of some positions, and the gradient
where another was expected."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from openaclnn.core.dtypes import FLOAT, DType, float_of
from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.kernels.steps import expect_step, step_ahead, step_late
from openaclnn.engines.gpu.kernels.sums import finish_loss, finish_sums, gather_sums
from openaclnn.engines.gpu.launchers.geometry import (
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
    PointerArg,
    launched,
    next_power_of_two,
    spec_of,
)
from openaclnn.engines.gpu.launching.runners import Runner, runner_of

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


def pointers(step: Step, backward: bool = False) -> Mapping[str, Any]:
    """Those to a plan's operands and to scratch memory, by their names in kernels."""
    return _pointers(step.dtype.numpy_name, step.weight_dtype.numpy_name if step.weighted else "", backward)  # fmt: skip


@functools.cache
def _pointers(dtype: str, weight: str, backward: bool) -> Mapping[str, Any]:
    """Weights are the last input, if there are some."""
    weights = ("weight",) if weight else ()
    if backward:
        names = "gradient", "x", "target", "expected", "memory", *weights, "out", "scratch"
    else:
        names = "x", "target", "memory", *weights, "loss", "expected", "out", "scratch"
    dtypes = {"target": "int64", "weight": weight, "expected": "float32", "memory": "float32", "scratch": "float64"}  # fmt: skip
    slots = {name: PointerArg(place, dtypes.get(name, dtype), wide=name in ("x", "out")) for place, name in enumerate(names)}  # fmt: skip
    return {"weight": None, **slots}


def _told(step: Step, tile: Tile, backward: bool = False) -> dict[str, Any]:
    """What both launches have of a step, by the kernels' names."""
    slots = pointers(step, backward)
    # Sums over all targets are behind what is expected.
    sums = slots["expected"]._replace(dtype="float64", shift=MEMORY * 4)
    length, inner = step.positions if step.by_class else step.pixels, step.pixels // tile.unit
    kept, smoothing = _pair(1.0 - step.smoothing), _pair(step.smoothing / step.classes)
    return {
        **slots, "sums": sums if _sums_of(step) else None,
        "rows": step.positions, "inner": inner, "out_inner": inner, "blocks": -(-step.pixels // tile.positions), "tiles": _tiles(step, tile),
        "ignore_index": ignored(step.ignore_index), "kept": kept[0], "kept_lacks": kept[1], "smoothing": smoothing[0], "smoothing_lacks": smoothing[1],
        "zloss_scale": float_of(step.zloss_scale),
        "MEAN": step.reduction == "mean", "EACH": step.reduction == "none", "SMOOTHED": step.smoothing != 0, "SQUARED": step.zloss_scale != 0,
        "C": step.classes, "BY_CLASS": step.by_class, "ALONG": step.by_class and tile.lanes > 1, "UNIT": tile.unit, "FULL": length % tile.positions == 0,
        "HELD": tile.held, "LANES": tile.lanes, "POSITIONS": tile.positions, "PARTS": _parts(step),
    }  # fmt: skip


def _pair(number: float) -> tuple[float, float]:
    """A number as FLOAT, and what that lacks."""
    near = float_of(number)
    return near, float_of(number - near)


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


@functools.lru_cache(64)
def loss_runner(step: Step) -> Runner:
    """What queues it, of the addresses of a plan's operands."""
    tile, summed = tile_of(step), _sums_of(step)
    named = _told(step, tile)
    each, of_tile = named["EACH"], 1 + named["SQUARED"]
    tile_sums, parts, tiles = named["scratch"], named["PARTS"], named["tiles"]
    targets = Targets((1, 1, step.positions), (0, 0, 1), 1)
    read = {} if summed else {"target": None, "weight": None}
    launches = [
        launch_of(
            spec_of(expect_step, {**named, **read, "SUMS": summed}),
            adding(targets, 1, step.classes, named["ignore_index"], parts if summed else 1),
        )
    ]
    if summed and parts == MANY_PARTS:
        launches.append(launched(finish_sums, summed, named, 4, follows=True))
    loss, named["tile_sums"] = named["loss"], None if each else tile_sums
    named["loss"] = loss if each else None
    launches.append(launched(step_ahead, tiles, named, tile.warps, fused=False, follows=True))
    if each:
        return runner_of(launches)
    scratch = 8 * of_tile * tiles
    if tiles > FEW_TILES:
        gathered = {"sums": tile_sums, "gathered": tile_sums._replace(shift=scratch), "count": tiles, "programs": GATHERING, "BLOCK": 1024}  # fmt: skip
        launches.append(launched(gather_sums, GATHERING * of_tile, gathered, 4, follows=True))
        tile_sums, tiles = gathered["gathered"], GATHERING
        scratch += 8 * of_tile * GATHERING
    block = min(next_power_of_two(tiles), FINISHED)
    totals = named["sums"] if named["MEAN"] else None
    named |= {"totals": totals, "sums": tile_sums, "loss": loss, "square_out": None, "count": tiles, "WEIGHTED": False, "BLOCK": block}  # fmt: skip
    launches.append(launched(finish_loss, 1, named, max(4, min(block // 32, 32)), follows=True))
    return runner_of(launches, scratch)


@functools.lru_cache(64)
def gradient_runner(step: Step) -> Runner:
    """What queues the gradient where another was expected, of the addresses of a plan's operands."""
    tile = tile_of(step)
    named = _told(step, tile, backward=True)
    named["programs"] = min(named["tiles"], PROGRAMS)
    return runner_of([launched(step_late, named["programs"], named, tile.warps, fused=False)])
