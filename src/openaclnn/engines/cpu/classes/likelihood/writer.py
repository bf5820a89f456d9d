"""The gradient's kernel, whichever of two ways it is written by: a loop over pieces of work, each a run of positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from openaclnn.engines.cpu.arithmetic.numerics import Opaque
from openaclnn.engines.cpu.classes.shared.parameters import Parameters
from openaclnn.engines.cpu.classes.shared.targets import Targets
from openaclnn.engines.cpu.classes.shared.totals import runs
from openaclnn.engines.machine.cache import Emit
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Value

__all__ = ["Writer", "emit_pieces"]


class Writer:
    """The operands of a kernel being written; `gradient` is None where each position has its own."""

    def __init__(
        self, code: Code, parameters: Parameters, dtype: str, target: str, gradient: Value | None
    ) -> None:
        self.code, self.parameters = code, parameters
        self.dtype, self.size, self.gradient = dtype, SIZE[dtype], gradient
        self.bits = f"i{8 * self.size}"  # integers of an element's size
        self.targets = Targets(code, parameters, target)
        self.classes = self.targets.classes
        self.weights = parameters.address("weight")
        self.weight_step = parameters["weight.class_step"]
        self.class_step = parameters["out.class_step"]
        self.opaque = Opaque(code)

    def weight(self, label: Value) -> Value:
        """A class's weight, as FLOAT."""
        return self.code.load(self.weights + label * self.weight_step, self.dtype)

    def clear(self, start: Value, stop: Value) -> None:
        """What a piece begins with."""
        raise NotImplementedError

    def run(self, addresses: list[Value], count: Value) -> None:
        """A stretch of a piece's positions that lie at one stride."""
        raise NotImplementedError


def emit_pieces(
    writer: type[Writer],
    dtype: str,
    target: str,
    single: bool,
    slots: dict[str, int],
    scale: Callable[[Code, Parameters], Value],
) -> Emit:
    """The kernel of a writer. `scale` gives the gradient of all positions where there is but one."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, first, last = arguments
        parameters = Parameters(code, block, slots)
        unit, positions = parameters["unit"], parameters["positions"]
        gradient = scale(code, parameters) if single else None
        made = writer(code, parameters, dtype, target, gradient)
        with code.loop(first, last) as piece:
            start = piece * unit
            stop = (start + unit).least(positions)
            made.clear(start, stop)
            runs(code, parameters, start, stop, ("target", "gradient", "out"), made.run)

    return emit
