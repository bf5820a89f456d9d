"""What launches each kernel of this engine, by the kernels' names. A module of `launchers/` is imported when a plan first needs it: Triton reads the source of
all kernels that come with it, which takes a third of a second for all modules together."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING

from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import FORMULAS
from openaclnn.engines.formulas.rows import ROW_FORMULAS

if TYPE_CHECKING:
    from openaclnn.engines.gpu.launchers.launcher import Launcher

CLASS_KERNELS = {
    "nll_loss": "reductions.NLL",
    "nll_loss2d_backward": "pixels.PIXELS",
    "nll_loss_backward": "gradients.GRADIENTS",
    "cross_entropy_loss_grad": "gradients.GRADIENTS",
    "cross_entropy_loss": "losses.LOSSES",
    "multilabel_margin_loss": "multilabel.MULTILABEL",
    "cross_entropy_logits": "losses.LOSSES",
    "cross_entropy_logits_pixels": "losses.LOSSES",
    "cross_entropy_logits_grad": "gradients.GRADIENTS",
    "cross_entropy_ahead": "fused_backward.STEPS_AHEAD",
    "cross_entropy_late": "fused_backward.STEPS_LATE",
}
"""Those with a class axis that no row formula has, by module and name."""


def launcher_of(plan: Plan) -> Launcher | None:
    """What launches the plan's kernel; None where no kernel has the name, or a plan's steps have one each."""
    if plan.steps:
        place = "" if plan.classes or plan.kernel not in FORMULAS else "axis_sums.AXIS_SUMS"
    elif plan.classes:
        by_formula = "row_formulas.ROW_KERNELS" if plan.kernel in ROW_FORMULAS else ""
        place = CLASS_KERNELS.get(plan.kernel, by_formula)
    elif plan.kernel == "fill":
        place = "reductions.FILLING"
    elif plan.kernel in FORMULAS:
        place = "reductions.SUMMED" if plan.reduction else "elementwise.ELEMENTWISE"
    else:
        place = ""
    return _launcher(place) if place else None


@functools.cache
def _launcher(place: str) -> Launcher:
    module, name = place.split(".")
    launcher: Launcher = getattr(
        importlib.import_module(f"openaclnn.engines.gpu.launchers.{module}"), name
    )
    return launcher
