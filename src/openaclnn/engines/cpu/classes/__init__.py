"""Kernels with a class axis. Importing this enters them in the engine's registry.

In the order to read: `parameters.py` has what every such kernel knows of its plan, and its targets; `totals.py` sums over targets and weights in a fixed
order; `launches.py` runs a kernel for one plan, for any size and for any strides.

Row formulas need no kernel of their own: `row_passes.py` orders a formula's values into loops over the classes, `row_formulas.py` walks rows, short ones some together,
vectors of positions or runs of planes by them, `row_copies.py` copies positions that do not lie as vectors do. Cross entropy and its gradients are such formulas, with sums
over all positions before or after them: `cross_entropy.py`.

NLL reads one element of each row alone, and its gradient writes one: a formula would read or compute them all. So `nll_loss.py` and `nll_gradient.py` are
written by hand, and the multi-label margin loss in `multilabel.py`. A row formula of the loss takes 1.3 to 2.0 times as long where values lie beyond the caches, since it
asks for none ahead, and 0.8 to 1.0 within them.
"""

from __future__ import annotations

from openaclnn.engines.cpu.classes import cross_entropy, multilabel, nll_gradient, nll_loss

__all__ = ["cross_entropy", "multilabel", "nll_gradient", "nll_loss"]
