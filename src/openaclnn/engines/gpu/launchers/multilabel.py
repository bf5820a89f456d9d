"""The multi-label margin loss: one program a row."""

from __future__ import annotations

from openaclnn.core.plan import Plan
from openaclnn.engines.gpu.kernels.multilabel import margin_rows
from openaclnn.engines.gpu.launchers.launcher import Launcher
from openaclnn.engines.gpu.launching.launch import (
    KernelSpec,
    Launch,
    PointerArg,
    next_power_of_two,
    pointer_type,
)
from openaclnn.engines.gpu.launching.runners import Runner, runner_of

__all__ = ["MULTILABEL"]

LONGEST = 1024  # classes at a time


class _Rows(Launcher):
    axes = 1

    def runner(self, plan: Plan) -> Runner:
        slots = tuple(
            PointerArg(place, pointer_type(own), own.offset * own.dtype.itemsize)
            for place, own in enumerate(plan.operands)
        )
        x, target, loss, mask = plan.operands
        strides = (
            x.strides[0], x.class_stride, target.strides[0], target.class_stride, loss.strides[0], mask.strides[0], mask.class_stride,
        )  # fmt: skip
        chunk = min(next_power_of_two(plan.classes), LONGEST)
        spec = KernelSpec(margin_rows, slots)
        return runner_of([Launch(spec, plan.shape[0], (plan.classes, *strides), (chunk,), 4)])


MULTILABEL = _Rows()
