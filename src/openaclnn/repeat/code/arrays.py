"""The machine code of the short road as long as no tensor of PyTorch's came: seven tenths of it, which is what a first call waits for."""

from __future__ import annotations

from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat.code.road import RoadCode
from openaclnn.repeat.words import slots as at

__all__ = ["emit_road_of_arrays"]


def emit_road_of_arrays(code: Code, control: Array, given: Array, number: Value) -> None:
    """The builtin of `road.py` for NumPy's arrays alone: anything else takes the full way."""
    _ArrayCode(code, control, given).write(number)


class _ArrayCode(RoadCode):
    """The function being written."""

    def look_further(self, item: Value, view: Array, kind: Value, first: bool) -> None:
        self.doubt.expect(kind == self.control.read(at.NDARRAY))  # which it is not

    def read_fresh(self, item: Value, view: Array, library: Value) -> None:
        self.look_at_numpy(item, view)

    def expect_untracked(self, library: Value) -> None:
        """There is no autograd."""

    def count_writes(self, library: Value) -> None:
        """Nobody counts."""

    def made_of(
        self, library: Value, make: Value, shape: Value, strides: tuple[Array, Value], dtype: Value
    ) -> Value:
        return self.made_by(make, shape, dtype)

    def ask_stream(self, library: Value, place: Value, stream: Array) -> None:
        """There is none."""
