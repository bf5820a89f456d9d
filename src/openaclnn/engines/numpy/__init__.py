"""The NumPy engine: float32 kernels that are right for every plan and need nothing but NumPy.

`elementwise.py` walks formulas, `rows.py` row formulas, `classes.py` has the other kernels with a class axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from openaclnn.core import rounding
from openaclnn.core.plan import Plan
from openaclnn.engines import arrays, steps

DEVICES = ("cpu",)


def unavailable() -> str | None:
    """Why this engine cannot be used on this machine; None if it can."""
    return None


def declines(plan: Plan) -> str | None:
    """Why this engine does not serve a plan; None if it does."""
    from openaclnn.engines.formulas import FORMULAS
    from openaclnn.engines.formulas.rows import ROW_FORMULAS
    from openaclnn.engines.numpy import classes

    if plan.steps:
        return steps.objection(plan, declines)
    if plan.kernel in arrays.ARRAY_KERNELS:
        return None
    of_classes = plan.kernel in classes.KERNELS or plan.kernel in ROW_FORMULAS
    if of_classes if plan.classes else plan.kernel in FORMULAS or plan.kernel == "fill":
        return None
    return f"no NumPy kernel is called {plan.kernel}"


def prepare(plan: Plan) -> Callable[[Sequence[int], int], int]:
    """What runs the plan: a function of the operands' addresses (the output's last) and a stream."""
    from openaclnn.engines.numpy import classes, elementwise, rows

    if plan.steps:
        return steps.stepped(plan, prepare, steps.HostMemory)
    if plan.kernel in arrays.ARRAY_KERNELS:
        return arrays.on_host(plan)
    if plan.kernel == "fill":
        return elementwise.filling(plan)
    if plan.classes:
        make = classes.runner if plan.kernel in classes.KERNELS else rows.runner
    else:
        make = elementwise.reducer if plan.reduction else elementwise.runner
    run_plan = make(plan)

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        if rounding.is_standard():
            return run_plan(addresses, stream)
        with rounding.standard():
            return run_plan(addresses, stream)

    return run
