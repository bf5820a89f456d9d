"""The kernels of this engine by their names: a runner for each kernel with a class axis, and every formula."""

from __future__ import annotations

from collections.abc import Callable

from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import FORMULAS
from openaclnn.engines.gpu import elementwise, pixels, rows
from openaclnn.engines.gpu.variants import Runner

__all__ = ["CLASS_KERNELS", "maker_of"]

Maker = Callable[[Plan], Runner]

CLASS_KERNELS: dict[str, Maker] = {
    "nll_loss2d_backward": pixels.runner,
    "cross_entropy_loss_grad": rows.runner,
}


def maker_of(plan: Plan) -> Maker | None:
    """What makes the plan's runner; None where no kernel has the name."""
    if plan.classes:
        return CLASS_KERNELS.get(plan.kernel)
    return elementwise.runner if plan.kernel in FORMULAS else None
