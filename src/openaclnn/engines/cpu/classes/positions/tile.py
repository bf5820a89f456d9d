"""A tile of rows for the cross entropies: where they lie, or copied together."""

from __future__ import annotations

import functools

from openaclnn.engines.cpu.classes.shared.parameters import Parameters
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Value

__all__ = ["TILE_CLASSES", "TILE_ROWS", "Tile"]

TILE_ROWS, TILE_CLASSES = 64, 128  # of rows whose classes lie apart: 32 KB each way


class Tile:
    """Rows where they lie, or copied together where their classes do not lie side by side.

    The copies walk along the operand's smaller step: a transposed matrix is read and written line by line.
    """

    def __init__(
        self, code: Code, parameters: Parameters, dtype: str, source: str = "log_prob",
        rows: int = TILE_ROWS, classes: int = TILE_CLASSES, result: str = "out",
    ) -> None:  # fmt: skip
        self.code, self.parameters, self.dtype = code, parameters, dtype
        self.staged = parameters.flag("staged")
        self.source, self.result, self.size = source, result, rows * classes
        self.inputs = code.buffer(dtype, self.size)
        self.pitch = classes * SIZE[dtype]

    @functools.cached_property
    def results(self) -> Value:
        """Room for what is written, if anything is."""
        return self.code.buffer(self.dtype, self.size)

    def _place(self, operand: str, position: Value, label: Value) -> Value:
        steps = self.parameters[f"{operand}.step2"], self.parameters[f"{operand}.class_step"]
        return self.parameters.address(operand) + position * steps[0] + label * steps[1]

    def input_row(self, first_row: Value, first_class: Value, index: Value) -> Value:
        """The address of a row's inputs."""
        place = self._place(self.source, first_row + index, first_class)
        return self.staged.choose(self.inputs + index * self.pitch, place)

    def row(self, first_row: Value, first_class: Value, index: Value) -> tuple[Value, Value]:
        """The addresses of a row's inputs and results."""
        inputs = self.input_row(first_row, first_class, index)
        results = self._place(self.result, first_row + index, first_class)
        return inputs, self.staged.choose(self.results + index * self.pitch, results)

    def read(self, first_row: Value, first_class: Value, many: Value, count: Value) -> None:
        self._copy(self.source, self.inputs, first_row, first_class, many, count, inwards=True)

    def write(self, first_row: Value, first_class: Value, many: Value, count: Value) -> None:
        self._copy(self.result, self.results, first_row, first_class, many, count, inwards=False)

    def _copy(
        self, operand: str, buffer: Value, first_row: Value, first_class: Value, many: Value,
        count: Value, inwards: bool,
    ) -> None:  # fmt: skip
        code = self.code
        origin = self._place(operand, first_row, first_class)
        down = self.parameters[f"{operand}.step2"], code.integer(self.pitch)
        along = self.parameters[f"{operand}.class_step"], code.integer(SIZE[self.dtype])
        by_rows = abs(along[0]) < abs(down[0])
        for condition, outer, inner, lines, length in (
            (by_rows, down, along, many, count), (~by_rows, along, down, count, many),
        ):  # fmt: skip
            with code.when(self.staged & condition), code.loop(0, lines) as line:
                ends = [(origin + line * outer[0], inner[0]), (buffer + line * outer[1], inner[1])]
                source, target = ends if inwards else ends[::-1]
                code.copy(*source, *target, length, self.dtype)
