"""Cross entropy from logits, for training and as aclnnCrossEntropyLoss: rows are read once by many programs, then finished by few;
for log-probabilities they are read again. A few short rows are all done by one launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from openaclnn.core.dtypes import float_of
from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.kernels.logits import (
    log_probabilities,
    logit_loss,
    logit_losses,
    logit_sums,
    short_rows,
)
from openaclnn.engines.gpu.launchers.geometry import (
    Geometry,
    Launches,
    LaunchParams,
    clamp,
    power_of_two_above,
    power_of_two_divisor,
    where_all,
    within,
)
from openaclnn.engines.gpu.launchers.launcher import ClassLauncher, of_rows
from openaclnn.engines.gpu.launchers.sums import NUMBERS, WEIGHT, loss_numbers
from openaclnn.engines.gpu.launching.launch import (
    VECTOR_BYTES,
    KernelSpec,
    PointerArg,
    pointers_by_name,
    scratch_of,
    spec_of,
)
from openaclnn.engines.machine.numbers import Number, all_of, ceil_div, inverse, least, most, where

WRITTEN = "logProbOut"
SIDES = "topOut", "restOut"
RESULTS = "lossOut", *SIDES, "zlossOut", "lseForZlossOut"  # of each row
ROLES = {"target": "positions", "x": "full", WEIGHT: "classes", **dict.fromkeys(RESULTS, "positions"), WRITTEN: "full"}  # fmt: skip
WIDE = 1024  # classes that a program reads at once
TURNS = 4  # blocks that a program reads before it computes
PROGRAMS = 512  # that keep a device busy: long rows are shared out where there are fewer
FINISHED = 128  # rows that one program finishes
SCRATCH = "float64", "float32", "float32", "float32"  # what scratch memory is of, see `_specs`
SUMS = 4  # of a block of finished rows, float64
PARTS = 4  # numbers of a row's part, float32
LONG = 16  # vectors: shorter rows are mostly edges

# Elements of short rows that one launch does, with one of few tiles, so that no size compiles anything.
FEW = 1 << 16
FEW_CLASSES = (32, 128, WIDE)
FEW_WARPS = 8
LEAST_BLOCK, MOST_BLOCK = 128, 1024  # sums that are added up at once

READ, FINISH, SHORT, TOTAL, LOG_PROB = "read", "finish", "short", "total", "log_prob"
"""The launches by their names, in order; TOTAL where losses are added up, LOG_PROB where log-probabilities are written. SHORT stands
for all others but TOTAL."""


class Cut(NamedTuple):
    """How rows are read: rows and classes of a program, how often it reads before it computes, warps; `vector` for long rows that begin
    anywhere; in so many parts each, of so many turns."""

    tall: Number
    wide: Number
    turns: Number
    warps: Number
    vector: Number
    unit: Number
    splits: Number
    span: Number


def tile_of(itemsize: Number, rows: Number, classes: Number) -> tuple[Number, ...]:
    """Rows and classes of a program, how often it reads before it computes, and warps: a long row by as many threads as read 16 bytes
    each four times in a turn; short rows together."""
    wide = power_of_two_above(classes, WIDE)
    tall = least(power_of_two_above(rows, WIDE), WIDE // wide)
    # BF16 of 4096 x 128256, 8192 x 32000 and 16384 x 50257: 0.53, 0.58 and 0.53 of a copy's time; 2048 on 8 warps took
    # 0.54, 0.65 and 0.75. FLOAT 0.49, all alike.
    one_row = 1, WIDE, TURNS, where(itemsize < 4, 4, 8)
    several = tall, wide, 1, clamp(tall * wide // 128, 1, 8)
    return where_all(classes > WIDE, one_row, several)


def cut_of(
    static: Mapping[str, Number], rows: Number, classes: Number, row: Number, by_class: Number
) -> Cut:
    in_line, vector = by_class == 1, static["vector"]
    tall, wide, turns, warps = tile_of(static["itemsize"], rows, classes)
    by_vectors = all_of(in_line, tall == 1, classes >= vector * LONG)
    unit = where(all_of(in_line, inverse(by_vectors)), power_of_two_divisor(row, classes), 1)
    turn = wide * turns
    splits = most(least(PROGRAMS // rows, ceil_div(classes, turn)), 1)
    splits = where(tall > 1, 1, splits)
    span = ceil_div(classes, splits * turn)
    splits = ceil_div(classes, span * turn)
    return Cut(tall, wide, turns, warps, where(by_vectors, vector, 0), unit, splits, span)


def launch(g: Geometry) -> Launches:
    """All launches, and the memory between them: sums of blocks, parts of rows, and of each row what is largest and the rest."""
    (rows,), classes, strides = g.layout
    each, whole = (g.static[name] > 0 for name in ("each", "whole"))
    row, weight, written = strides["x"][0], strides[WEIGHT][1], strides[WRITTEN]
    # A row of one class is no step long: as good as 1.
    by_class, out_class = (where(classes > 1, steps[1], 1) for steps in (strides["x"], written))
    few = all_of(classes <= WIDE, rows * classes <= FEW)
    # Those that are no operands lie in scratch memory.
    along = [
        where(whole, 1, strides[name][0]) if name in SIDES else strides[name][0] for name in RESULTS
    ]  # fmt: skip
    of_rows = {
        "rows": rows, "classes": classes, "row_stride": row, "class_stride": by_class,
        "target_stride": strides["target"][0], "weight_stride": weight,
        **dict(zip(("out_stride", "top_stride", "rest_stride", "square_stride", "lse_stride"), along, strict=True)),
        **loss_numbers(g),
    }  # fmt: skip

    cut = cut_of(g.static, rows, classes, row, by_class)
    finished = ceil_div(rows, FINISHED)
    read = LaunchParams(
        READ, ceil_div(rows, cut.tall) * cut.splits,
        {
            "rows": rows, "classes": classes // cut.unit, "row_stride": row // cut.unit,
            "class_stride": by_class, "weight_stride": weight, "splits": cut.splits, "span": cut.span,
        },
        {
            "CLASS_STEP": _step(by_class), "WEIGHT_STEP": _step(weight), "UNIT": cut.unit, "VECTOR": cut.vector,
            "TURNS": cut.turns, "ROWS": cut.tall, "CLASSES": cut.wide,
        },
        cut.warps, inverse(few), cut.unit > 1,
    )  # fmt: skip
    finish = LaunchParams(
        FINISH, finished, {**of_rows, "splits": cut.splits}, {"ROWS": FINISHED}, 4, inverse(few), aligned=False,
    )  # fmt: skip

    (across,) = within(classes, [(limit, (limit,)) for limit in FEW_CLASSES[:-1]], (WIDE,))
    tall = WIDE // across
    short_blocks = ceil_div(rows, tall)
    short = LaunchParams(
        SHORT, short_blocks, {**of_rows, "log_prob_row": written[0], "log_prob_class": out_class},
        {"ROWS": tall, "CLASSES": across}, FEW_WARPS, few, aligned=False,
    )  # fmt: skip
    total = total_of(where(few, short_blocks, finished))._replace(when=inverse(each))
    log_prob = _log_prob(rows, classes, (row, by_class), (written[0], out_class))
    log_prob = log_prob._replace(when=all_of(whole, inverse(few)))

    short_size, parts = (where(each, 0, blocks * (SUMS * 8)) for blocks in (short_blocks, finished))
    tops = parts + rows * cut.splits * (PARTS * 4)
    rests = tops + rows * 4
    size = where(whole, rests + rows * 4, tops)
    places = where_all(few, (short_size,) * 4, (parts, tops, rests, size))
    return Launches([read, finish, short, total, log_prob], places[-1], (0, *places[:-1]))


def _log_prob(
    rows: Number, classes: Number, read: tuple[Number, Number], written: tuple[Number, Number]
) -> LaunchParams:
    """The launch that writes log-probabilities, by strides along rows and classes."""
    wide = power_of_two_above(classes, WIDE)
    tall = least(power_of_two_above(rows, WIDE), WIDE // wide)
    in_line = all_of(read[1] == 1, written[1] == 1)
    unit = where(in_line, power_of_two_divisor(read[0], written[0], classes), 1)
    blocks = ceil_div(classes, wide)
    return LaunchParams(
        LOG_PROB, ceil_div(rows, tall) * blocks,
        {
            "rows": rows, "classes": classes // unit, "class_blocks": blocks,
            "row_stride": read[0] // unit, "class_stride": read[1],
            "out_row": written[0] // unit, "out_class": written[1],
        },
        {
            "CLASS_STEP": _step(read[1]), "OUT_STEP": _step(written[1]), "UNIT": unit, "ROWS": tall, "CLASSES": wide,
        },
        clamp(tall * wide // 128, 1, 4), aligned=unit > 1,
    )  # fmt: skip


def total_of(blocks: Number) -> LaunchParams:
    """The launch that adds up the sums of so many blocks of rows."""
    block = most(power_of_two_above(blocks, MOST_BLOCK), LEAST_BLOCK)
    return LaunchParams(TOTAL, 1, {"count": blocks}, {"BLOCK": block}, 4, aligned=False)


def total_loss(
    sums: PointerArg,
    out: PointerArg | None,
    mean: bool,
    square: PointerArg | None = None,
    squared: bool = False,
) -> KernelSpec:
    """Its kernel."""
    named = {"sums": sums, "out": out, "square_out": square, "MEAN": mean, "SQUARED": squared}
    return spec_of(logit_loss, named, follows=True)


def _step(stride: Number) -> Number:
    return where(stride == 1, 1, 2)


def _is_whole(plan: Plan) -> bool:
    """Whether log-probabilities are written, too."""
    return plan.kernel == "cross_entropy_loss"


def _specs(plan: Plan, offset: int = 0) -> dict[str, KernelSpec]:
    """The kernels of a plan, with scratch memory for sums of blocks, parts of rows, and what training has among its outputs: each row's
    largest logit, and the rest."""
    numbers, each, whole = plan.numbers, not plan.reduction, _is_whole(plan)
    sums, parts, *sides = (scratch_of(plan, dtype, place) for place, dtype in enumerate(SCRATCH))
    smooths, squares = (float_of(numbers[name]) != 0 for name in ("label_smoothing", "zloss_scale"))
    slots = pointers_by_name(plan, lambda operand: operand.parameter == "input")
    top, rest = sides if whole else [slots[name] for name in SIDES]
    loss, square, x = slots.get("lossOut"), slots.get("zlossOut"), slots["input"]
    named = {
        "target": slots["target"], "x": x._replace(wide=False), "weight": slots.get(WEIGHT), "parts": parts, "tops": top, "rests": rest,
        "lses": slots.get("lseForZlossOut"), "out": loss if each else None, "squares": square if each else None, "sums": None if each else sums,
        "log_prob": slots.get(WRITTEN), "WHOLE": whole, "EACH": each, "SMOOTHED": smooths, "SQUARED": squares,
    }  # fmt: skip
    specs = {
        READ: spec_of(logit_sums, {**named, "x": x, "weight": slots.get(WEIGHT) if smooths else None}),
        FINISH: spec_of(logit_losses, named, follows=True),
        SHORT: spec_of(short_rows, {**named, "tops": None, "rests": None} if whole else named),
    }  # fmt: skip
    if not each:
        specs[TOTAL] = total_loss(sums, loss, plan.reduction == "mean", square, squares)
    if whole:
        written = {**named, "x": x, "out": slots[WRITTEN]._replace(wide=True)}
        specs[LOG_PROB] = spec_of(log_probabilities, written, follows=True)
    return specs


def _static(plan: Plan) -> dict[str, int]:
    itemsize = plan.inputs[1].dtype.itemsize
    return {
        "each": int(not plan.reduction), "whole": int(_is_whole(plan)), "itemsize": itemsize,
        "vector": VECTOR_BYTES // itemsize,
    }  # fmt: skip


LOGITS = ClassLauncher(
    "logits", launch,
    {
        READ: logit_sums, FINISH: logit_losses, SHORT: short_rows, TOTAL: logit_loss, LOG_PROB: log_probabilities,
    },
    ROLES, 2, NUMBERS, 1, _specs, _static, of_rows, limit=FEW, reduces=True,
)  # fmt: skip
