"""The numbers of each row in the gradient of cross entropy from logits, FLOAT64: computed for as many rows at once as a vector has
lanes, since one by one they took half the time of a short row (100 classes: 100 of 200 ns).
"""

from __future__ import annotations

from typing import NamedTuple

from openaclnn.engines.cpu.arithmetic.doubles import exp64, expm1_64, power64
from openaclnn.engines.cpu.classes.gradients.numbers import Sums
from openaclnn.engines.cpu.classes.positions.tile import TILE_ROWS, Tile
from openaclnn.engines.cpu.classes.shared.parameters import Parameters
from openaclnn.engines.cpu.classes.shared.targets import Targets
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Shape, Value

__all__ = ["RowNumbers", "TileNumbers", "plain_nan"]


class RowNumbers(NamedTuple):
    """Of one row: the target's class among those of a stretch (elsewhere negative) and its element, FLOAT like the others."""

    counted: Value
    column: Value
    exact: Value
    top: Value
    factor: Value
    addend: Value


class TileNumbers:
    """Of up to TILE_ROWS rows."""

    def __init__(
        self, code: Code, parameters: Parameters, dtype: str, target: str, sums: Sums, tile: Tile
    ) -> None:
        self.code, self.parameters, self.dtype, self.sums, self.tile = (
            code, parameters, dtype, sums, tile,
        )  # fmt: skip
        self.targets = Targets(code, parameters, target)
        self.counted, self.columns = (code.frame("i64", TILE_ROWS) for _ in range(2))
        self.own, self.rest, self.gradient, self.weight = (
            code.frame("f32", TILE_ROWS) for _ in range(4)
        )
        self.top, self.factor, self.addend, self.exact = (
            code.frame("f32", TILE_ROWS) for _ in range(4)
        )

    def begin(self, first_row: Value, first_class: Value, many: Value, count: Value) -> None:
        """Have the numbers of some rows, and of a stretch of their classes."""
        with self.code.loop(0, many) as index:
            self._collect(first_row, first_class, count, index)
        with self.code.loop(0, many, self.code.lanes) as index:
            self._compute(index)

    def of(self, index: Value) -> RowNumbers:
        """A row's."""
        frames = self.columns, self.exact, self.top, self.factor, self.addend
        counted = self.counted.flag(index)
        return RowNumbers(counted, *(frame.read(index) for frame in frames))

    def _collect(self, first_row: Value, first_class: Value, count: Value, index: Value) -> None:
        """What memory has of a row."""
        code, parameters, position = self.code, self.parameters, first_row + index

        def read(operand: str, kind: str) -> Value:
            place = parameters.address(operand) + position * parameters[f"{operand}.step2"]
            return code.load(place, kind)

        found = self.targets.of(read("target", self.targets.kind))
        with code.when(found.stray, likely=False):
            parameters.report_stray()
        column = found.label - first_class
        hit = found.counted & column.below(count)
        self.counted.write(index, found.counted.to("i64"))
        self.columns.write(index, hit.choose(column, -1))
        self.top.write(index, read("top", "f32"))
        self.rest.write(index, read("rest", "f32"))
        self.gradient.write(index, read("gradient", self.dtype))
        self.weight.write(index, 1.0)
        with code.when(parameters.flag("weighted")):
            step = found.counted.choose(found.label, 0) * parameters["weight.class_step"]
            self.weight.write(index, code.load(parameters.address("weight") + step, "f32"))
        place = self.tile.input_row(first_row, first_class, index)
        self.own.write(
            index, code.load(place + hit.choose(column, 0) * SIZE[self.dtype], self.dtype)
        )

    def _compute(self, index: Value) -> None:
        """A vector of rows."""
        code, parameters, sums, shape = self.code, self.parameters, self.sums, self._shape
        own, top, rest, gradient, weight = (
            frame.load(index, shape).to("f64")
            for frame in (self.own, self.top, self.rest, self.gradient, self.weight)
        )
        smooths, smoothing = parameters.flag("smooths"), parameters.double("smoothing")
        nll = gradient * (1.0 - smoothing) / sums.total * weight
        # What smoothing subtracts for each class and adds everywhere, and the z-loss's part.
        nothing = code.constant("f64", 0.0, code.lanes)
        smooth, everywhere, square = (code.variable(nothing) for _ in range(3))
        with code.when(smooths):
            smooth.set(gradient / sums.total * smoothing / self.targets.classes.to("f64"))
            everywhere.set(sums.times(smooth.get()))
        with code.when(parameters.flag("zloss")):
            scale = parameters.double("zloss_scale") * (top + rest)
            square.set(scale * (gradient / sums.rows_counted))
        factor = (nll + square.get() + everywhere.get()) * exp64(code, -rest)
        x = (own - top) - rest
        probability = power64(code, x)
        exact = code.variable(expm1_64(code, x, probability) * nll + probability * square.get())
        with code.when(smooths):
            more = probability * everywhere.get() - smooth.get() * weight
            exact.set(exact.get() + more)
        for frame, value in (
            (self.top, top), (self.factor, factor), (self.addend, -smooth.get()),
            (self.exact, exact.get()),
        ):  # fmt: skip
            frame.store(plain_nan(value.to("f32")), index)

    @property
    def _shape(self) -> Shape:
        return Shape(1, self.code.lanes)


def plain_nan(number: Value) -> Value:
    """NaN with an empty low half, whatever came in: rounding to bfloat16 needs that."""
    plain: Value = number.is_nan().choose(float("nan"), number)
    return plain
