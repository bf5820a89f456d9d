"""How cross entropy from logits is launched: rows are read once by many programs, then finished by few."""

from __future__ import annotations

from typing import NamedTuple

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.launch import (
    VECTOR_BYTES,
    Family,
    Launch,
    Slot,
    next_power_of_two,
    power_of_two_divisor,
)
from openaclnn.engines.gpu.logit_kernel import logit_loss, logit_losses, logit_sums
from openaclnn.engines.gpu.operands import (
    ignored,
    operand_of,
    pointer_type,
    slots_of,
    step_of,
    stride_of,
)
from openaclnn.engines.gpu.runners import runner_of
from openaclnn.engines.gpu.steps import Runner
from openaclnn.engines.gpu.tuned import as_float

WEIGHT = "weightOptional"
TURNS = 4  # blocks that a program reads before it computes
PROGRAMS = 512  # that keep a device busy: long rows are shared out where there are fewer
FINISHED = 128  # rows that one program finishes
SUMS = 4  # of a block of finished rows, float64
PARTS = 4  # numbers of a row's part, float32
LONG = 16  # vectors: shorter rows are mostly edges


class Tile(NamedTuple):
    """What a program reads: rows, classes at once, how often before it computes, and warps."""

    rows: int
    classes: int
    turns: int
    warps: int


def tile_of(itemsize: int, rows: int, classes: int) -> Tile:
    """A long row by as many threads as read 16 bytes each four times in a turn; short rows together."""
    wide = 1024 if itemsize >= 4 else 2048
    if classes > wide:
        return Tile(1, wide, TURNS, 8)
    across = next_power_of_two(classes)
    tall = min(wide // across, next_power_of_two(rows))
    return Tile(tall, across, 1, max(1, min(8, tall * across // 128)))


def runner(plan: Plan) -> Runner:
    """What queues the plan on a stream."""
    numbers, (rows,), classes = plan.numbers, plan.shape, plan.classes
    own, weight = plan.inputs[1], operand_of(plan, WEIGHT)
    smooths, squares = (as_float(numbers[name]) != 0 for name in ("label_smoothing", "zloss_scale"))
    item = own.dtype.itemsize
    row_stride, class_stride = own.strides[0], own.class_stride if classes > 1 else 1
    weight_stride = weight.class_stride if weight else 0
    tile = tile_of(item, rows, classes)
    vector = VECTOR_BYTES // item if class_stride == 1 and tile.rows == 1 else 0
    vector = vector if classes >= LONG * VECTOR_BYTES // item else 0
    unit = 1 if vector or class_stride != 1 else power_of_two_divisor(row_stride, classes)
    turn = tile.classes * tile.turns
    splits = 1 if tile.rows > 1 else max(1, min(PROGRAMS // rows, -(-classes // turn)))
    spans = -(-classes // (splits * turn))
    splits = -(-classes // (spans * turn))

    finished = -(-rows // FINISHED)
    scratch = len(plan.operands)
    kept = rows * splits * PARTS * 4
    kept += -kept % 8
    parts, sums = Slot(scratch, "float32"), Slot(scratch, "float64", kept)
    target, values, weights = slots_of(
        plan, {"target": False, "input": bool(vector or unit > 1), WEIGHT: False}
    )
    assert values is not None
    sides = []
    for place, operand in enumerate(plan.outputs, len(plan.inputs)):
        shift = operand.offset * operand.dtype.itemsize
        sides.append(Slot(place, pointer_type(operand), shift))
    out, top, rest = sides
    each = not plan.reduction
    add = Launch(
        Family(
            logit_sums,
            (values._replace(wide=not vector and unit > 1), weights if smooths else None, parts),
            (smooths,),
            overlapped=True,
        ),
        -(-rows // tile.rows) * splits,
        (rows, classes // unit, row_stride // unit, class_stride, weight_stride, splits, spans),
        (step_of(class_stride), step_of(weight_stride), unit, vector, tile.turns, tile.rows, tile.classes),
        tile.warps,
    )  # fmt: skip
    finish = Launch(
        Family(
            logit_losses,
            (
                target, values._replace(wide=False), weights, parts, out if each else None, top, rest,
                None if each else sums,
            ),
            (each, smooths, squares),
            overlapped=True,
            follows=True,
        ),
        finished,
        (
            rows, classes, row_stride, class_stride, stride_of(plan.inputs[0], -1), weight_stride,
            *(stride_of(operand, -1) for operand in plan.outputs), splits, ignored(numbers["ignore_index"]),
            as_float(numbers["label_smoothing"]), as_float(numbers["zloss_scale"]),
        ),
        (FINISHED,),
        4,
    )  # fmt: skip
    launches = [add, finish]
    if not each:
        family = Family(
            logit_loss, (sums, out), (plan.reduction == "mean", squares), overlapped=True, follows=True
        )  # fmt: skip
        block = min(next_power_of_two(finished), 1024)
        launches.append(Launch(family, 1, (finished,), (block,), 4))
    return runner_of(launches, kept + (0 if each else finished * SUMS * 8))
