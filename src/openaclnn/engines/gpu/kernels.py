"""The kernels of this engine by their names: a runner for each kernel with a class axis, and every formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import FORMULAS
from openaclnn.engines.gpu import elementwise, logits, pixels, rows, tiles
from openaclnn.engines.gpu.queues import SizedRunner
from openaclnn.engines.gpu.steps import Runner

__all__ = ["CLASS_KERNELS", "maker_of"]


class Maker(NamedTuple):
    """What makes a plan's runner, the one for any shape, and the one for any layout, if there is one."""

    runner: Callable[[Plan], Runner]
    sized: Callable[[Plan], SizedRunner | None]
    laid: Callable[[Plan], tuple[tiles.LaidRunner, int] | None] = lambda plan: None
    reduces: bool = False  # whether it adds up all positions, if asked to


ELEMENTWISE = Maker(elementwise.runner, elementwise.sized, tiles.laid)
CLASS_KERNELS: dict[str, Maker] = {
    "nll_loss2d_backward": Maker(pixels.runner, pixels.sized),
    "cross_entropy_loss_grad": Maker(rows.runner, rows.sized),
    "cross_entropy_logits": Maker(logits.runner, logits.sized, reduces=True),
    "cross_entropy_logits_grad": Maker(rows.runner, rows.sized),
}


def maker_of(plan: Plan) -> Maker | None:
    """What makes the plan's runner; None where no kernel has the name."""
    if plan.classes:
        return CLASS_KERNELS.get(plan.kernel)
    return ELEMENTWISE if plan.kernel in FORMULAS else None
