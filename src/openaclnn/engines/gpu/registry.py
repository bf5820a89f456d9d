"""The kernels of this engine by their names: what launches each kernel with a class axis, and every formula."""

from __future__ import annotations

from openaclnn.core.plan import Plan
from openaclnn.engines.formulas import FORMULAS
from openaclnn.engines.formulas.rows import ROW_FORMULAS
from openaclnn.engines.gpu.launchers import logit_pixels, pixels
from openaclnn.engines.gpu.launchers.elementwise import Elementwise
from openaclnn.engines.gpu.launchers.fused_backward import Steps
from openaclnn.engines.gpu.launchers.gradients import GRADIENTS
from openaclnn.engines.gpu.launchers.launcher import Launcher
from openaclnn.engines.gpu.launchers.logits import LOGITS
from openaclnn.engines.gpu.launchers.multilabel import MULTILABEL
from openaclnn.engines.gpu.launchers.reductions import NLL, Filling, Summed
from openaclnn.engines.gpu.launchers.row_formulas import RowFormulas

SUMMED, FILLING, ELEMENTWISE, ROW_KERNELS = Summed(), Filling(), Elementwise(), RowFormulas()
CLASS_KERNELS: dict[str, Launcher] = {
    "nll_loss": NLL,
    "nll_loss2d_backward": pixels.PIXELS,
    "nll_loss_backward": pixels.ROWS,
    "cross_entropy_loss_grad": GRADIENTS,
    "cross_entropy_loss": LOGITS,
    "multilabel_margin_loss": MULTILABEL,
    "cross_entropy_logits": LOGITS,
    "cross_entropy_logits_pixels": logit_pixels.LOSSES,
    "cross_entropy_logits_grad": GRADIENTS,
    "cross_entropy_logits_grad_pixels": GRADIENTS,
    "cross_entropy_ahead": Steps(backward=False),
    "cross_entropy_late": Steps(backward=True),
}


def launcher_of(plan: Plan) -> Launcher | None:
    """What launches the plan's kernel; None where no kernel has the name."""
    if plan.classes:
        by_formula = ROW_KERNELS if plan.kernel in ROW_FORMULAS else None
        return CLASS_KERNELS.get(plan.kernel, by_formula)
    if plan.kernel == "fill":
        return FILLING
    if plan.kernel not in FORMULAS:
        return None
    return SUMMED if plan.reduction else ELEMENTWISE
