"""What the two ways of writing per-pixel gradients have in common."""

from __future__ import annotations

from openaclnn.engines.cpu.classes.code import Code, Number
from openaclnn.engines.cpu.classes.parameters import Parameters
from openaclnn.engines.cpu.simd import Opaque

__all__ = ["Writer"]


class Writer:
    """The operands of a kernel being written; `gradient` is None where each position has its own."""

    def __init__(
        self, code: Code, parameters: Parameters, dtype: str, target: str, gradient: Number | None
    ) -> None:
        self.code, self.parameters = code, parameters
        self.dtype, self.target, self.gradient = dtype, target, gradient
        self.classes, self.ignored = parameters["classes"], parameters["ignore_index"]
        self.weights = parameters.address("weight")
        self.weight_step = parameters["weight.class_step"]
        self.class_step = parameters["out.class_step"]
        self.opaque = Opaque(code.builder, code.lanes)
