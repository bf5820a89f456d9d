"""The multi-label margin loss: one program a row."""

from __future__ import annotations

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.kernels.multilabel import margin_rows
from openaclnn.engines.gpu.launchers.geometry import LaunchParams, launch_of, power_of_two_above
from openaclnn.engines.gpu.launchers.launcher import Launcher
from openaclnn.engines.gpu.launching.launch import KernelSpec, pointers_of
from openaclnn.engines.gpu.launching.runners import Runner, runner_of

LONGEST = 1024  # classes at a time


class _Rows(Launcher):
    axes = 1

    def runner(self, plan: Plan) -> Runner:
        args = {"classes": plan.classes}
        for name, operand in zip(("x", "target", "loss", "mask"), plan.operands, strict=True):
            args |= {f"{name}_row": operand.strides[0], f"{name}_class": operand.class_stride}
        del args["loss_class"]
        chunk = power_of_two_above(plan.classes, LONGEST)
        params = LaunchParams("rows", plan.shape[0], args, {"CHUNK": chunk}, 4)
        return runner_of([launch_of(KernelSpec(margin_rows, pointers_of(plan)), params)])


MULTILABEL = _Rows()
