"""The kernels of this engine by their names: a runner for each kernel with a class axis, and every formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import FORMULAS
from openaclnn.engines.gpu.launchers import (
    elementwise,
    logit_pixels,
    logits,
    pixels,
    reductions,
    rows,
    tiles,
)
from openaclnn.engines.gpu.launching.queues import SizedRunner
from openaclnn.engines.gpu.launching.steps import Runner

__all__ = ["CLASS_KERNELS", "maker_of"]


class Maker(NamedTuple):
    """What makes a plan's runner, the one for any shape, and the one for any layout, if there is one."""

    runner: Callable[[Plan], Runner]
    sized: Callable[[Plan], SizedRunner | None]
    laid: Callable[[Plan], tuple[Callable[..., int], int] | None] = lambda plan: None
    reduces: bool = False  # whether it adds up all positions, if asked to
    few: Callable[[Plan], tuple[int, ...] | None] = lambda plan: None  # the shape, of few elements
    axes: int = 8  # of positions that do not merge: so many at most


def _of_no_size(plan: Plan) -> None:
    """Each size has launches of its own."""


SUMMED = Maker(reductions.runner, reductions.sized, reductions.laid, reduces=True)
FILLING = Maker(reductions.filling, _of_no_size)
ELEMENTWISE = Maker(elementwise.runner, elementwise.sized, tiles.laid, few=elementwise.few)
CLASS_KERNELS: dict[str, Maker] = {
    "nll_loss": Maker(
        reductions.nll_runner, reductions.sized_nll, reductions.laid_nll, reduces=True
    ),
    "nll_loss2d_backward": Maker(pixels.runner, pixels.sized, pixels.laid, few=pixels.few),
    "nll_loss_backward": Maker(pixels.runner, pixels.sized_rows, pixels.laid),
    "cross_entropy_loss_grad": Maker(rows.runner, rows.sized, rows.laid, few=rows.few),
    "cross_entropy_loss": Maker(logits.runner, logits.sized, logits.laid, reduces=True),
    "cross_entropy_logits": Maker(logits.runner, logits.sized, logits.laid, reduces=True),
    "cross_entropy_logits_pixels": Maker(
        logit_pixels.losses, logit_pixels.sized_losses, reduces=True, axes=3
    ),
    "cross_entropy_logits_grad": Maker(rows.runner, rows.sized, rows.laid, few=rows.few),
    "cross_entropy_logits_grad_pixels": Maker(
        logit_pixels.gradients, logit_pixels.sized_gradients, axes=3
    ),
}


def maker_of(plan: Plan) -> Maker | None:
    """What makes the plan's runner; None where no kernel has the name."""
    if plan.classes:
        return CLASS_KERNELS.get(plan.kernel)
    if plan.kernel == "fill":
        return FILLING
    if plan.kernel not in FORMULAS:
        return None
    return SUMMED if plan.reduction else ELEMENTWISE
