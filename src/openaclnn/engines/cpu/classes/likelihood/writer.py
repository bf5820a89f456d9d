"""What the two ways of writing per-pixel gradients have in common."""

from __future__ import annotations

from openaclnn.engines.cpu.arithmetic.numerics import Opaque
from openaclnn.engines.cpu.classes.shared.parameters import Parameters
from openaclnn.engines.cpu.classes.shared.targets import Targets
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Value

__all__ = ["Writer"]


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
