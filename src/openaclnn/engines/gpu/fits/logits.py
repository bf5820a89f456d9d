"""How launches of cross entropy from logits follow from sizes and strides, in machine code: what `sizes/logits.py` says in Python."""

from __future__ import annotations

from collections.abc import Mapping

from openaclnn.engines.gpu.fits import code as fit_code
from openaclnn.engines.gpu.fits.classes import ASTRAY, ClassFit, places_of, power_of_two
from openaclnn.engines.gpu.fits.code import FORMS, Step
from openaclnn.engines.gpu.fits.flat import blocks, names_of
from openaclnn.engines.gpu.fits.strided import StridedFit
from openaclnn.engines.gpu.kernels.logits import log_probabilities, logit_losses, logit_sums
from openaclnn.engines.gpu.kernels.short_logits import short_rows
from openaclnn.engines.gpu.launching.operands import INT32_LIMIT
from openaclnn.engines.gpu.plans.logits import (
    FEW,
    FEW_CLASSES,
    FINISH,
    FINISHED,
    LEAST_BLOCK,
    LOG_PROB,
    LONG,
    MOST_BLOCK,
    PARTS,
    PROGRAMS,
    READ,
    SCRATCH,
    SHORT,
    SUMS,
    TOTAL,
    TURNS,
    WIDE,
)
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value

__all__ = ["KEYS", "STEP_OF", "LogitFit", "StridedLogitFit"]

STEP_OF = {
    READ: fit_code.SUMS, FINISH: fit_code.FINISH, SHORT: fit_code.AT_ONCE, TOTAL: fit_code.OTHER, LOG_PROB: fit_code.MAIN,
}  # fmt: skip
"""The step of each launch: their order is that of steps."""

KEYS: Mapping[str, Mapping[str, int]] = {
    READ: {
        "anywhere": 1, "CLASS_STEP": 2, "WEIGHT_STEP": 2, "UNIT": 5, "VECTOR": 5, "TURNS": 3, "ROWS": 11,
        "CLASSES": 11, "warps": 4,
    },
    FINISH: {},
    SHORT: {"ROWS": 11, "CLASSES": 11},
    TOTAL: {"BLOCK": 12},
    LOG_PROB: {
        "anywhere": 1, "CLASS_STEP": 2, "OUT_STEP": 2, "UNIT": 5, "ROWS": 11, "CLASSES": 11, "warps": 4,
    },
}  # fmt: skip
"""The constants that sizes decide of each launch, and how many bits each takes in a key."""


class AnyLogitFit(ClassFit):
    """Rows of logits, however they lie."""

    EACH, WHOLE, ITEM, VECTOR = range(4)  # facts

    def __init__(self, code: Code, control: Array) -> None:
        super().__init__(code, control)
        self.places = [code.variable(code.integer(0)) for _ in SCRATCH]
        self.few = code.variable(code.integer(0))

    def fit_rows(
        self, rows: Value, classes: Value, row: Value, by_class: Value, weight: Value,
        written: tuple[Value, Value],
    ) -> None:  # fmt: skip
        """All launches, by the strides of logits, along classes of weights, and of log-probabilities."""
        # A row of one class has other strides.
        self.expect((classes > 1) & (classes < INT32_LIMIT) & (rows > 0) & (rows < INT32_LIMIT))
        few = (classes <= WIDE) & (rows * classes <= FEW)
        self.few.set(few.to("i64"))
        with self.when_fit(), self.code.either(few) as (short, long):
            with short:
                self.fit_short(rows, classes, row, by_class, weight, *written)
            with long:
                for step in (self.sums, self.finish, self.main):
                    step.begin()
                splits = self.fit_read(rows, classes, row, by_class, weight)
                self.fit_finish(rows, classes, splits, row, by_class, weight)
                self.fit_total(blocks(rows, FINISHED))
                self.fit_written(rows, classes, row, by_class, *written)

    def fit_short(
        self, rows: Value, classes: Value, row: Value, by_class: Value, weight: Value, out_row: Value, out_class: Value,
    ) -> None:  # fmt: skip
        """What does all for a few short rows, but for adding up: what `Logits.short_sizes` says."""
        code, step = self.code, self.at_once
        wide = code.integer(FEW_CLASSES[-1])
        for own in FEW_CLASSES[-2::-1]:
            wide = (classes <= own).choose(own, wide)
        tall = code.integer(WIDE) // wide
        programs, each = blocks(rows, tall), self.fact(self.EACH) != 0
        step.begin()
        step.programs.set(programs)
        step.put(
            names_of(short_rows, "rows"),
            {
                "rows": rows, "classes": classes, "row_stride": row, "class_stride": by_class, "weight_stride": weight,
                "log_prob_row": out_row, "log_prob_class": out_class, **self.loss_numbers(),
            },
        )  # fmt: skip
        self.choose_of(step, SHORT, {"ROWS": tall, "CLASSES": wide})
        self.summed.set(each.choose(0, self.summed.get()))
        self.scratch.set(programs * (SUMS * 8))
        self.fit_total(programs)

    def fit_read(
        self, rows: Value, classes: Value, row: Value, by_class: Value, weight: Value
    ) -> Value:
        """What reads the rows, each in as many parts as are returned."""
        code = self.code
        in_line = by_class == 1
        tall, wide, turns, warps = self.tile(rows, classes)
        vector = self.fact(self.VECTOR)
        by_vectors = in_line & (tall == 1) & (classes >= vector * LONG)
        vector = by_vectors.choose(vector, 0)
        unit = (by_vectors | ~in_line).choose(1, power_of_two(row | classes))
        turn = wide * turns
        splits = (code.integer(PROGRAMS) // rows).least(blocks(classes, turn))
        splits = ((splits < 1) | (tall > 1)).choose(1, splits)
        spans = blocks(classes, splits * turn)
        splits = blocks(classes, spans * turn)
        programs = blocks(rows, tall) * splits
        self.expect(programs < INT32_LIMIT)
        self.sums.programs.set(programs)
        self.sums.put(
            names_of(logit_sums, "rows"),
            {
                "rows": rows, "classes": classes // unit, "row_stride": row // unit, "class_stride": by_class,
                "weight_stride": weight, "splits": splits, "span": spans,
            },
        )  # fmt: skip
        self.choose_of(
            self.sums, READ,
            {
                "CLASS_STEP": _step(by_class), "WEIGHT_STEP": _step(weight), "UNIT": unit, "VECTOR": vector,
                "TURNS": turns, "ROWS": tall, "CLASSES": wide, "warps": warps,
            },
        )  # fmt: skip
        return splits

    def fit_finish(
        self, rows: Value, classes: Value, splits: Value, row: Value, by_class: Value, weight: Value
    ) -> None:
        """What finishes rows, and the memory between launches: what `Logits.memory` says."""
        each, whole = (self.fact(own) != 0 for own in (self.EACH, self.WHOLE))
        parts = each.choose(0, blocks(rows, FINISHED) * (SUMS * 8))
        tops = parts + rows * splits * (PARTS * 4)
        rests = tops + rows * 4
        for place, at in zip(self.places[1:], (parts, tops, rests), strict=True):
            place.set(at)
        self.scratch.set(whole.choose(rests + rows * 4, tops))
        self.finish.programs.set(blocks(rows, FINISHED))
        self.finish.put(
            names_of(logit_losses, "rows"),
            {
                "rows": rows, "classes": classes, "row_stride": row, "class_stride": by_class,
                "weight_stride": weight, "splits": splits, **self.loss_numbers(),
            },
        )  # fmt: skip

    def tile(self, rows: Value, classes: Value) -> tuple[Value, Value, Value, Value]:
        """What `tile_of` of `plans/logits.py` says."""
        code, long = self.code, classes > WIDE
        wide = self.power(classes, WIDE)
        tall = self.power(rows, WIDE).least(code.integer(WIDE) // wide)
        warps = _clamped(tall * wide // 128, 8)
        narrow = self.fact(self.ITEM) < 4
        return (
            long.choose(1, tall),
            wide,
            long.choose(TURNS, code.integer(1)),
            long.choose(narrow.choose(4, code.integer(8)), warps),
        )

    def share_out(self, memory: Value, addresses: Array) -> None:
        for place, own in enumerate(self.places):
            addresses.write(place, memory + own.get())

    def fit_total(self, finished: Value) -> None:
        """What adds up the losses of so many blocks of rows."""
        block = self.power(finished, MOST_BLOCK)
        self.other.begin()
        self.other.programs.set(self.code.integer(1))
        self.other.numbers.write(0, finished)
        self.choose_of(self.other, TOTAL, {"BLOCK": (block < LEAST_BLOCK).choose(LEAST_BLOCK, block)})  # fmt: skip

    def fit_written(
        self, rows: Value, classes: Value, row: Value, by_class: Value, out_row: Value, out_class: Value,
    ) -> None:  # fmt: skip
        """What writes log-probabilities."""
        code = self.code
        wide = self.power(classes, WIDE)
        tall = self.power(rows, WIDE).least(code.integer(WIDE) // wide)
        warps = _clamped(tall * wide // 128, 4)
        in_line = (by_class == 1) & (out_class == 1)
        unit = (~in_line).choose(1, power_of_two(row | out_row | classes))
        across = blocks(classes, wide)
        programs = blocks(rows, tall) * across
        self.expect(programs < INT32_LIMIT)
        self.main.programs.set(programs)
        self.main.put(
            names_of(log_probabilities, "rows"),
            {
                "rows": rows, "classes": classes // unit, "class_blocks": across, "row_stride": row // unit,
                "class_stride": by_class, "out_row": out_row // unit, "out_class": out_class,
            },
        )  # fmt: skip
        self.choose_of(
            self.main, LOG_PROB,
            {
                "CLASS_STEP": _step(by_class), "OUT_STEP": _step(out_class), "UNIT": unit, "ROWS": tall,
                "CLASSES": wide, "warps": warps,
            },
        )  # fmt: skip

    def choose_of(self, step: Step, name: str, constants: Mapping[str, Value]) -> None:
        """The kernel that has these constants; without vectors it takes no address as aligned."""
        key = self.code.integer(0)
        for own, at in places_of(KEYS[name]).items():
            value = (constants["UNIT"] == 1).to("i64") if own == "anywhere" else constants[own]
            key = key | value << at
        step.key.set(key)

    def align(self, step: Step, astray: Value) -> None:
        key = step.key.get()  # its first bit says whether addresses matter
        step.key.set(key | ((key & 1) != 0).choose(0, astray) << ASTRAY)

    def wanted(self) -> dict[int, Value]:
        few, each = self.few.get(), self.fact(self.EACH)
        long = (few == 0).to("i64")
        return {
            fit_code.SUMS: long, fit_code.FINISH: long, fit_code.AT_ONCE: few, fit_code.OTHER: (each == 0).to("i64"),
            fit_code.MAIN: long & self.fact(self.WHOLE),
        }  # fmt: skip


class LogitFit(AnyLogitFit):
    """Of row-major (rows, classes); the strides that are not of whole rows are the plan's own."""

    name, axes = "logits", 2
    WEIGHTED = 4  # one more fact

    def fit(self, shape: Array, axes: Value) -> None:
        rows, classes = (self.size(shape, axis) for axis in range(2))
        one, weight = self.code.integer(1), self.fact(self.WEIGHTED)
        self.fit_rows(rows, classes, classes, one, weight, (classes, one))


class StridedLogitFit(AnyLogitFit, StridedFit):
    """Of few elements that lie anyhow."""

    name, depth, more = "logits.strided", 2, ("strides", "numbers")
    WEIGHT, WRITTEN = 4, 5  # more facts: where these are among the operands, or -1

    def fit(self, shape: Array, axes: Value) -> None:
        rows, classes = self.sizes(shape, axes, self.code.integer(FEW))
        self.expect(axes == 2)
        row, by_class = (self.steps(1).read(axis) for axis in range(2))
        written = self.along(self.fact(self.WRITTEN), 0), self.along(self.fact(self.WRITTEN), 1)
        self.fit_rows(rows, classes, row, by_class, self.along(self.fact(self.WEIGHT), 1), written)
        # Both kernels that finish rows have these numbers in the same places.
        finish = self.step((self.few.get() != 0).choose(fit_code.AT_ONCE, self.code.integer(fit_code.FINISH)))  # fmt: skip
        names = names_of(logit_losses, "rows")
        finish.put(names, {"target_stride": self.steps(0).read(0)})
        # Of a row's results; the fit's words say where they are among the operands, or -1.
        for place in range(5):
            operand = self.control.read(FORMS + place)
            with self.code.when(operand >= 0):
                finish.numbers.write(names.index("out_stride") + place, self.steps(operand).read(0))

    def along(self, operand: Value, axis: int) -> Value:
        """An operand's stride along rows or classes; 0 where there is none."""
        found = self.code.variable(self.code.integer(0))
        with self.code.when(operand >= 0):
            found.set(self.steps(operand).read(axis))
        return found.get()


def _step(stride: Value) -> Value:
    """As a constant of kernels."""
    return (stride != 1).to("i64") + 1


def _clamped(warps: Value, most: int) -> Value:
    """From 1 on."""
    return (warps < 1).choose(1, warps.least(most))
