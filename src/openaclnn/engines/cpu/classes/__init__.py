"""Kernels with a class axis. Importing this enters them in the engine's registry.

In the order to read: `parameters.py` has what every such kernel knows of its plan, and its targets; `totals.py` sums over targets and weights in a fixed
order; `launches.py` runs a kernel for one plan, for any size and for any strides. Rows are taken some at a time by `row_tiles.py`, where their classes lie
side by side or not; pixels, whose classes lie planes apart, by `pixel_groups.py`.

On these stand the kernels, which know nothing of each other: NLL in `nll_loss.py` and its gradient in `nll_gradient.py`; cross entropy from logits in
`loss_rows.py` and `loss_pixels.py`; its gradients, from log-probabilities in `log_prob_gradient.py` and from logits in `logit_gradient.py`; the multi-label
margin loss in `multilabel.py`.

Row formulas need no kernel of their own: `row_passes.py` orders a formula's values into loops over the classes, `row_formulas.py` walks rows or
vectors of positions by them, `row_copies.py` copies positions that do not lie as vectors do.
"""

from __future__ import annotations

from openaclnn.engines.cpu.classes import (
    log_prob_gradient,
    logit_gradient,
    loss_pixels,
    multilabel,
    nll_gradient,
    nll_loss,
)

__all__ = [
    "log_prob_gradient",
    "logit_gradient",
    "loss_pixels",
    "multilabel",
    "nll_gradient",
    "nll_loss",
]
