"""How cross entropy from logits, for training and as aclnnCrossEntropyLoss, is launched: rows are read once by many
programs, then finished by few; for log-probabilities they are read again.
"""

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
from openaclnn.engines.gpu.logit_kernel import (
    log_probabilities,
    logit_loss,
    logit_losses,
    logit_sums,
)
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
    wide = 1024
    if classes > wide:
        # BF16 of 4096 x 128256, 8192 x 32000 and 16384 x 50257: 0.53, 0.58 and 0.53 of a copy's time; 2048 on 8 warps took
        # 0.54, 0.65 and 0.75. FLOAT 0.49, all alike.
        return Tile(1, wide, TURNS, 8 if itemsize >= 4 else 4)
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
    whole = plan.kernel == "cross_entropy_loss"
    # Scratch memory: sums of blocks of rows, parts of rows, then what training has among its outputs.
    each, scratch = not plan.reduction, len(plan.operands)
    sums = Slot(scratch, "float64")
    first = 0 if each else finished * SUMS * 8
    parts = Slot(scratch, "float32", first)
    sides = first + rows * splits * PARTS * 4
    target, values, weights = slots_of(plan, {"target": False, "input": unit > 1, WEIGHT: False})
    assert values is not None
    slots, steps = _outputs(plan)
    out = slots["lossOut"]
    top, rest = slots.get("topOut"), slots.get("restOut")
    if whole:
        top, rest = (Slot(scratch, "float32", sides + number * rows * 4) for number in range(2))
        steps |= {"topOut": 1, "restOut": 1}
    add = Launch(
        Family(logit_sums, (values, weights if smooths else None, parts), (smooths,), overlapped=True),
        -(-rows // tile.rows) * splits,
        (rows, classes // unit, row_stride // unit, class_stride, weight_stride, splits, spans),
        (step_of(class_stride), step_of(weight_stride), unit, vector, tile.turns, tile.rows, tile.classes),
        tile.warps,
    )  # fmt: skip
    square, lse = slots.get("zlossOut"), slots.get("lseForZlossOut")
    finish = Launch(
        Family(
            logit_losses,
            (
                target, values._replace(wide=False), weights, parts, out if each else None, top, rest,
                square if each else None, lse, None if each else sums,
            ),
            (whole, each, smooths, squares),
            overlapped=True,
            follows=True,
        ),
        finished,
        (
            rows, classes, row_stride, class_stride, stride_of(plan.inputs[0], -1), weight_stride,
            *(steps.get(name, 0) for name in ("lossOut", "topOut", "restOut", "zlossOut", "lseForZlossOut")),
            splits, ignored(numbers["ignore_index"]), as_float(numbers["label_smoothing"]),
            as_float(numbers["zloss_scale"]),
        ),
        (FINISHED,),
        4,
    )  # fmt: skip
    launches = [add, finish]
    if not each:
        mean, block = plan.reduction == "mean", min(next_power_of_two(finished), 1024)
        family = Family(
            logit_loss, (sums, out, square), (mean, squares), overlapped=True, follows=True
        )
        launches.append(Launch(family, 1, (finished,), (block,), 4))
    if whole:
        assert top is not None
        assert rest is not None
        launches.append(_log_prob(plan, values, top, rest, slots["logProbOut"]))
    return runner_of(launches, sides + (2 * rows * 4 if whole else 0))


def _outputs(plan: Plan) -> tuple[dict[str, Slot], dict[str, int]]:
    """The outputs' slots, and their strides along rows, by name."""
    slots = {
        own.parameter: Slot(place, pointer_type(own), own.offset * own.dtype.itemsize)
        for place, own in enumerate(plan.outputs, len(plan.inputs))
    }
    return slots, {own.parameter: stride_of(own, -1) for own in plan.outputs}


def _log_prob(plan: Plan, values: Slot, top: Slot, rest: Slot, out: Slot) -> Launch:
    """The launch that writes log-probabilities, after those before."""
    own, (rows,), classes = plan.inputs[1], plan.shape, plan.classes
    written = next(operand for operand in plan.outputs if operand.parameter == "logProbOut")
    strides = own.strides[0], own.class_stride, written.strides[0], written.class_stride
    steps = [1 if classes == 1 else stride for stride in strides[1::2]]
    unit = 1 if steps != [1, 1] else power_of_two_divisor(strides[0], strides[2], classes)
    wide = min(next_power_of_two(classes), 1024)
    tall = min(1024 // wide, next_power_of_two(rows))
    blocks = -(-classes // wide)
    slots = values._replace(wide=unit > 1), top, rest, out._replace(wide=unit > 1)
    return Launch(
        Family(log_probabilities, slots, overlapped=True, follows=True),
        -(-rows // tall) * blocks,
        (rows, classes // unit, blocks, strides[0] // unit, strides[1], strides[2] // unit, strides[3]),
        (step_of(steps[0]), step_of(steps[1]), unit, tall, wide),
        max(1, min(4, tall * wide // 128)),
    )  # fmt: skip
