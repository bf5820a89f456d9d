"""Targets: which class each names, and whether it counts."""

from __future__ import annotations

from typing import NamedTuple

from openaclnn.core.dtypes import INT32, INT64, UINT8
from openaclnn.core.plan import Plan
from openaclnn.engines.cpu.classes.shared.parameters import Parameters
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.kinds import SIZE
from openaclnn.engines.machine.values import Shape, Value

__all__ = ["GROUP", "Target", "Targets", "target_kind"]

GROUP = 8  # neighbouring targets that are compared together
_KINDS = {INT64: "i64", INT32: "i32", UINT8: "u8"}


def target_kind(plan: Plan) -> str:
    """What kernels call the dtype of a plan's targets."""
    return _KINDS[plan.inputs[plan.targets].dtype]


class Target(NamedTuple):
    """A target is a class and counts, or is the ignored value, or is astray."""

    label: Value
    inside: Value  # a class
    heeded: Value  # not the ignored value

    @property
    def counted(self) -> Value:
        return self.inside & self.heeded

    @property
    def stray(self) -> Value:
        return self.heeded & ~self.inside


class Targets:
    """Reads targets of one kind."""

    def __init__(self, code: Code, parameters: Parameters, kind: str) -> None:
        self.code, self.kind, self.size = code, kind, SIZE[kind]
        self.classes, self.ignored = parameters["classes"], parameters["ignore_index"]

    def at(self, place: Value) -> Target:
        return self.of(self.code.load(place, self.kind))

    def of(self, label: Value) -> Target:
        return Target(label, label.below(self.classes), label != self.ignored)

    def alike(self, place: Value) -> Value:
        """Whether a group's targets, which lie side by side, are all the same."""
        group = self.code.array(place, self.kind).load(self.code.integer(0), Shape(1, GROUP))
        return (group ^ group.lane(0)).reduce("or") == 0
