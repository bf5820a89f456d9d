"""The launch of the multi-label margin loss: one program for each row."""

from __future__ import annotations

from typing import Any

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.kernels.multilabel import margin_rows
from openaclnn.engines.gpu.launchers.geometry import power_of_two_above
from openaclnn.engines.gpu.launchers.launcher import Launcher
from openaclnn.engines.gpu.launching.launch import launched, pointers_of
from openaclnn.engines.gpu.launching.runners import Runner, runner_of

LONGEST = 1024  # classes at a time


class _Rows(Launcher):
    axes = 1

    def runner(self, plan: Plan) -> Runner:
        named: dict[str, Any] = {"classes": plan.classes, "CHUNK": power_of_two_above(plan.classes, LONGEST)}  # fmt: skip
        for name, slot, operand in zip(("x", "target", "loss", "mask"), pointers_of(plan), plan.operands, strict=True):  # fmt: skip
            named |= {name: slot, f"{name}_row": operand.strides[0], f"{name}_class": operand.class_stride}  # fmt: skip
        return runner_of([launched(margin_rows, plan.shape[0], named, 4)])


MULTILABEL = _Rows()
