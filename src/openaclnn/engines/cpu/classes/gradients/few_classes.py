"""The cross entropy gradient over few classes: as many rows at once as a vector has lanes, class after class.

A row of its own would leave most of each vector empty and wait for itself: 254 rows of 4 took 20 us that way. The bits
are those of longer rows (`one_row.py`): where the factor goes into the exponential it does so here, lane by lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from openaclnn.engines.cpu.arithmetic import numerics
from openaclnn.engines.cpu.arithmetic.exponential import Exp
from openaclnn.engines.cpu.classes.gradients.formula import HIGHEST, TABLE, foldable
from openaclnn.engines.cpu.classes.gradients.numbers import INFINITE, Sums, numbers_of, sums_of
from openaclnn.engines.cpu.classes.shared.parameters import Parameters
from openaclnn.engines.cpu.classes.shared.targets import Targets
from openaclnn.engines.machine.cache import Emit
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value, fma

__all__ = ["emit_few_classes"]


def emit_few_classes(dtype: str, target: str, slots: dict[str, int]) -> Emit:
    """The kernel: pieces of work are rows."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, slots)
        rows = _Rows(code, parameters, dtype, target, sums_of(code, parameters, target))
        with code.loop(first, last, code.lanes) as start:
            # Lanes past the end do the last row again.
            rows.write([(start + lane).least(last - 1) for lane in range(code.lanes)])

    return emit


class _Way(NamedTuple):
    """Where an operand's rows lie, or its classes."""

    base: Value
    step: Value

    def at(self, index: Value) -> Value:
        return self.base + index * self.step


class _Rows:
    """The function being written; what does not depend on the row is read before the loop."""

    def __init__(
        self, code: Code, parameters: Parameters, dtype: str, target: str, sums: Sums
    ) -> None:
        self.code, self.parameters, self.dtype, self.sums = code, parameters, dtype, sums
        self.targets = Targets(code, parameters, target)
        self.ways = {
            name: _Way(parameters.address(name), parameters[f"{name}.step2"])
            for name in ("target", "gradient", "log_prob", "out", "lse", "grad_zloss")
        }
        self.weights = _Way(parameters.address("weight"), parameters["weight.class_step"])
        self.steps = [parameters[f"{name}.class_step"] for name in ("log_prob", "out")]
        self.table = code.array(parameters["table"], "f32")
        self.opaque = numerics.Opaque(code)
        smooths = parameters.flag("smooths")
        # A NaN among the weights makes their sum and so all rows NaN: then they need not be read.
        weighted = parameters.flag("weighted") & ~sums.weight_sum.is_nan()
        self.adds_weights = smooths & weighted

    def write(self, rows: list[Value]) -> None:
        """Every class of some rows. Their targets' elements are read before anything is written."""
        code = self.code
        labels = [code.load(self.ways["target"].at(row), self.targets.kind) for row in rows]
        safe = [self.targets.of(label).inside.choose(label, 0) for label in labels]
        label = code.lanes_of(labels)
        own = self.targets.of(label)
        counted = own.counted
        with code.when(own.stray.reduce("or"), likely=False):
            self.parameters.report_stray()

        def weight() -> Value:
            return self._read([self.weights.at(one) for one in safe], "f32").to("f64")

        def read(operand: str) -> Value:
            places = [self.ways[operand].at(row) for row in rows]
            return self._read(places, self.dtype).to("f64")

        numbers = numbers_of(code, self.parameters, self.sums, counted, weight, read)
        inputs, results = (
            [self.ways[name].at(row) for row in rows] for name in ("log_prob", "out")
        )
        places = [place + one * self.steps[0] for place, one in zip(inputs, safe, strict=True)]
        exact = numbers.at_target(self._read(places, self.dtype).to("f64")).to("f32")
        formula = _Formula(self, *numbers.rounded())
        with code.loop(0, self.targets.classes) as current:
            values = formula.of([place + current * self.steps[0] for place in inputs], current)
            values = (counted & (label == current)).choose(exact, values)
            narrowed = numerics.narrow(values, self.dtype, self.opaque, any_nan=True)
            for lane, place in enumerate(results):
                where = code.array(place + current * self.steps[1], self.dtype)
                where.write(0, narrowed.lane(lane))

    def _read(self, places: list[Value], kind: str) -> Value:
        """An element of each row, as FLOAT."""
        return numerics.widen(self.raw(places, kind), kind)

    def raw(self, places: list[Value], kind: str) -> Value:
        return self.code.lanes_of([self.code.array(place, kind).read(0) for place in places])


class _Formula:
    """factor * exp(x) + addend, or + addend * weight, with a factor and an addend for each row."""

    def __init__(self, rows: _Rows, factor: Value, addend: Value, infinite: Value) -> None:
        self.rows, self.code, self.dtype = rows, rows.code, rows.dtype
        self.factor, self.addend, self.infinite = factor, addend, infinite
        if self.dtype == "f32":
            folds = foldable(factor)
            multiplier, self.factor = folds.choose(factor, 1.0), folds.choose(1.0, factor)
            self.exp = Exp(self.code, multiplier, "full")
            self.overflow = multiplier * float("inf")
        else:
            first = infinite.is_nan().choose(self.code.integer(TABLE), 0)
            self.tables = [first.lane(lane) for lane in range(self.code.lanes)]

    def of(self, places: list[Value], current: Value) -> Value:
        """The elements of a class."""
        code, (exponential, factor) = self.code, self._exp(places)
        values = code.variable(fma(exponential, factor, self.addend))
        with code.when(self.rows.adds_weights):
            weight = code.load(self.rows.weights.at(current), "f32")
            values.set(fma(self.addend, weight, exponential * factor))
        return values.get()

    def _exp(self, places: list[Value]) -> tuple[Value, Value]:
        """exp(logProb), times the factor where that is folded in, and what it is yet to be multiplied by."""
        if self.dtype != "f32":
            bits = [self.code.array(place, "i16").read(0).unsigned("i64") for place in places]
            entries = [one + first for one, first in zip(bits, self.tables, strict=True)]
            return self.code.gathered(self.rows.table, entries), self.factor
        x = self.rows.raw(places, "f32")
        # A small factor must not make exp's infinity finite.
        exponential = (x > HIGHEST).choose(self.overflow, self.exp(x))
        infinite = x > INFINITE
        return infinite.choose(self.infinite, exponential), infinite.choose(1.0, self.factor)
