"""How cross entropy from logits, for training and as aclnnCrossEntropyLoss, is launched: rows are read once by many
programs, then finished by few; for log-probabilities they are read again. A few short rows are all done by one launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.formulas.tuned import as_float
from openaclnn.engines.gpu.kernels.logits import (
    log_probabilities,
    logit_loss,
    logit_losses,
    logit_sums,
)
from openaclnn.engines.gpu.kernels.short_logits import short_rows
from openaclnn.engines.gpu.launching.launch import (
    VECTOR_BYTES,
    Family,
    Launch,
    Sizes,
    Slot,
    anywhere,
    next_power_of_two,
    power_of_two_divisor,
)
from openaclnn.engines.gpu.launching.operands import (
    ignored,
    pointer_type,
    slots_of,
    step_of,
    stride_of,
)
from openaclnn.engines.gpu.launching.runners import runner_of
from openaclnn.engines.gpu.launching.steps import Runner

WEIGHT, WRITTEN = "weightOptional", "logProbOut"
SIDES = "topOut", "restOut"
RESULTS = "lossOut", *SIDES, "zlossOut", "lseForZlossOut"  # of each row
WIDE = 1024  # classes that a program reads at once
TURNS = 4  # blocks that a program reads before it computes
PROGRAMS = 512  # that keep a device busy: long rows are shared out where there are fewer
FINISHED = 128  # rows that one program finishes
SCRATCH = (
    "float64",
    "float32",
    "float32",
    "float32",
)  # what scratch memory is of, see `Logits.families`
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
UNIT_AT = 2  # among the constants of READ and LOG_PROB


class Tile(NamedTuple):
    """What a program reads: rows, classes at once, how often before it computes, and warps."""

    rows: int
    classes: int
    turns: int
    warps: int


def is_few(rows: int, classes: int) -> bool:
    """Whether rows are short, and few."""
    return classes <= WIDE and rows * classes <= FEW


def tile_of(itemsize: int, rows: int, classes: int) -> Tile:
    """A long row by as many threads as read 16 bytes each four times in a turn; short rows together."""
    if classes > WIDE:
        # BF16 of 4096 x 128256, 8192 x 32000 and 16384 x 50257: 0.53, 0.58 and 0.53 of a copy's time; 2048 on 8 warps took
        # 0.54, 0.65 and 0.75. FLOAT 0.49, all alike.
        return Tile(1, WIDE, TURNS, 8 if itemsize >= 4 else 4)
    across = next_power_of_two(classes)
    tall = min(WIDE // across, next_power_of_two(rows))
    return Tile(tall, across, 1, max(1, min(8, tall * across // 128)))


class Cut(NamedTuple):
    """How rows are read: in so many parts each, of so many turns; `vector` for long rows that begin anywhere."""

    tile: Tile
    vector: int
    unit: int
    splits: int
    spans: int


def cut_of(itemsize: int, rows: int, classes: int, row_stride: int, class_stride: int) -> Cut:
    tile, vector = tile_of(itemsize, rows, classes), VECTOR_BYTES // itemsize
    if class_stride != 1 or tile.rows > 1 or classes < LONG * vector:
        vector = 0
    choosing = not vector and class_stride == 1
    unit = power_of_two_divisor(row_stride, classes) if choosing else 1
    turn = tile.classes * tile.turns
    splits = 1 if tile.rows > 1 else max(1, min(PROGRAMS // rows, -(-classes // turn)))
    spans = -(-classes // (splits * turn))
    return Cut(tile, vector, unit, -(-classes // (spans * turn)), spans)


class Steps(NamedTuple):
    """Strides along rows; `by_class` ones, and the weights', along classes."""

    target: int
    row: int
    by_class: int
    weight: int
    results: tuple[int, ...]  # of RESULTS
    written_row: int
    written_by_class: int


Last = tuple[int, float, float]
"""The ignored class, how much is smoothed, the z-loss's factor."""

NUMBERS = "ignore_index", "label_smoothing", "zloss_scale"


def last_of(ignore_index: int, label_smoothing: float, zloss_scale: float) -> Last:
    return ignored(ignore_index), as_float(label_smoothing), as_float(zloss_scale)


class Memory(NamedTuple):
    """Where scratch memory has parts of rows, what is largest of each and the rest, behind sums of blocks; and its size."""

    parts: int
    tops: int
    rests: int
    size: int


class Logits:
    """The launches of a plan, whatever its sizes."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.itemsize = plan, plan.inputs[1].dtype.itemsize
        self.each, self.whole = not plan.reduction, plan.kernel == "cross_entropy_loss"

    def families(self, scratch: Sequence[Slot]) -> dict[str, Family]:
        """With scratch memory for sums of blocks, parts of rows, and what training has among its outputs: each row's largest
        logit, and the rest."""
        plan, numbers = self.plan, self.plan.numbers
        sums, parts, *sides = scratch
        smooths, squares = (
            as_float(numbers[name]) != 0 for name in ("label_smoothing", "zloss_scale")
        )
        target, x, weight = slots_of(plan, {"target": False, "input": True, WEIGHT: False})
        assert x is not None
        slots = {
            own.parameter: Slot(place, pointer_type(own), own.offset * own.dtype.itemsize)
            for place, own in enumerate(plan.outputs, len(plan.inputs))
        }
        top, rest = sides if self.whole else [slots[name] for name in SIDES]
        out, square, lse = (slots.get(own) for own in ("lossOut", "zlossOut", "lseForZlossOut"))
        finished = (out, top, rest, square) if self.each else (None, top, rest, None)
        found = {
            READ: Family(
                logit_sums, (x, weight if smooths else None, parts), (smooths,), overlapped=True
            ),
            FINISH: Family(
                logit_losses,
                (
                    target, x._replace(wide=False), weight, parts, *finished, lse,
                    None if self.each else sums,
                ),
                (self.whole, self.each, smooths, squares), overlapped=True, follows=True,
            ),
            SHORT: Family(
                short_rows,
                (
                    target, x._replace(wide=False), weight, finished[0], *((None, None) if self.whole else (top, rest)),
                    finished[3], lse, None if self.each else sums, slots.get(WRITTEN),
                ),
                (self.whole, self.each, smooths, squares), overlapped=True,
            ),
        }  # fmt: skip
        if not self.each:
            found[TOTAL] = total_loss(sums, out, plan.reduction == "mean", square, squares)
        if self.whole:
            written = slots[WRITTEN]._replace(wide=True)
            found[LOG_PROB] = Family(
                log_probabilities, (x, top, rest, written), overlapped=True, follows=True
            )
        return found

    def memory(self, rows: int, splits: int) -> Memory:
        parts = self.sums(-(-rows // FINISHED))
        tops = parts + rows * splits * PARTS * 4
        rests = tops + rows * 4
        return Memory(parts, tops, rests, rests + rows * 4 if self.whole else tops)

    def sums(self, blocks: int) -> int:
        """Bytes of the sums that blocks of rows leave."""
        return 0 if self.each else blocks * SUMS * 8

    def sizes(
        self, rows: int, classes: int, steps: Steps, last: Last
    ) -> tuple[dict[str, Sizes], Memory]:
        """Of each launch, in order, and the memory between them."""
        if is_few(rows, classes):
            return self.short_sizes(rows, classes, steps, last)
        cut = cut_of(self.itemsize, rows, classes, steps.row, steps.by_class)
        tile, unit, finished = cut.tile, cut.unit, -(-rows // FINISHED)
        found: dict[str, Sizes] = {
            READ: (
                -(-rows // tile.rows) * cut.splits,
                (
                    rows, classes // unit, steps.row // unit, steps.by_class, steps.weight, cut.splits,
                    cut.spans,
                ),
                (
                    step_of(steps.by_class), step_of(steps.weight), unit, cut.vector, tile.turns, tile.rows,
                    tile.classes,
                ),
                tile.warps,
            ),
            FINISH: (
                finished,
                (
                    rows, classes, steps.row, steps.by_class, steps.target, steps.weight, *steps.results,
                    cut.splits, *last,
                ),
                (FINISHED,),
                4,
            ),
        }  # fmt: skip
        if not self.each:
            found[TOTAL] = total_sizes(finished)
        if self.whole:
            found[LOG_PROB] = _written(rows, classes, steps)
        return found, self.memory(rows, cut.splits)

    def short_sizes(
        self, rows: int, classes: int, steps: Steps, last: Last
    ) -> tuple[dict[str, Sizes], Memory]:
        """The same of a few short rows."""
        across = next(own for own in FEW_CLASSES if classes <= own)
        tall = WIDE // across
        blocks = -(-rows // tall)
        numbers = (
            rows, classes, steps.row, steps.by_class, steps.target, steps.weight, *steps.results, steps.written_row,
            steps.written_by_class, *last,
        )  # fmt: skip
        found: dict[str, Sizes] = {SHORT: (blocks, numbers, (tall, across), FEW_WARPS)}
        if not self.each:
            found[TOTAL] = total_sizes(blocks)
        size = self.sums(blocks)
        return found, Memory(size, size, size, size)


def total_loss(
    sums: Slot, out: Slot | None, mean: bool, square: Slot | None = None, squared: bool = False
) -> Family:
    """The launch that adds up the sums of blocks of rows."""
    return Family(logit_loss, (sums, out, square), (mean, squared), overlapped=True, follows=True)


def total_sizes(blocks: int) -> Sizes:
    """Its sizes."""
    return 1, (blocks,), (max(LEAST_BLOCK, min(next_power_of_two(blocks), MOST_BLOCK)),), 4


def _written(rows: int, classes: int, steps: Steps) -> Sizes:
    """Of the launch that writes log-probabilities."""
    along = steps.by_class, steps.written_by_class
    wide = min(next_power_of_two(classes), WIDE)
    tall = min(WIDE // wide, next_power_of_two(rows))
    warps = max(1, min(4, tall * wide // 128))
    choosing = along == (1, 1)
    unit = power_of_two_divisor(steps.row, steps.written_row, classes) if choosing else 1
    blocks = -(-classes // wide)
    return (
        -(-rows // tall) * blocks,
        (rows, classes // unit, blocks, steps.row // unit, along[0], steps.written_row // unit, along[1]),
        (*map(step_of, along), unit, tall, wide),
        warps,
    )  # fmt: skip


def has_vectors(name: str, sizes: Sizes) -> bool:
    """Whether a launch reads and writes whole vectors where addresses are aligned."""
    return name in (READ, LOG_PROB) and sizes[2][UNIT_AT] > 1


def _steps_of(plan: Plan) -> Steps:
    operands = {own.parameter: own for own in plan.operands}
    along = {name: stride_of(own, -1) for name, own in operands.items()}
    x, weight, written = (operands.get(own) for own in ("input", WEIGHT, WRITTEN))
    # A row of one class is no step long: as good as 1.
    by_class = [own.class_stride if own and plan.classes > 1 else 1 for own in (x, written)]
    results = tuple(along.get(name, own) for name, own in usual_steps(plan).items())
    return Steps(
        along["target"], along["input"], by_class[0], weight.class_stride if weight else 0, results,
        along.get(WRITTEN, 0), by_class[1],
    )  # fmt: skip


def usual_steps(plan: Plan) -> dict[str, int]:
    """Strides of results of a row that are no operands: in scratch memory, or nowhere."""
    names = [own.parameter for own in plan.outputs]
    return {name: int(WRITTEN in names and name in SIDES) for name in RESULTS}


def runner(plan: Plan) -> Runner:
    """What queues the plan on a stream."""
    kernels, (rows,) = Logits(plan), plan.shape
    last = last_of(*(plan.numbers[name] for name in NUMBERS))
    sizes, memory = kernels.sizes(rows, plan.classes, _steps_of(plan), last)
    shifts = 0, memory.parts, memory.tops, memory.rests
    families = kernels.families(
        [Slot(len(plan.operands), *own) for own in zip(SCRATCH, shifts, strict=True)]
    )
    launches = [
        Launch(families[name] if has_vectors(name, own) else anywhere(families[name]), *own)
        for name, own in sizes.items()
    ]
    return runner_of(launches, memory.size)
