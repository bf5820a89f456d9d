"""Kernels with a class axis. `enter` puts those that are no row formulas alone into the engine's registry.

In the order to read: `parameters.py` has what every such kernel knows of its plan, and its targets; `totals.py` sums over targets and weights in a fixed
order; `launches.py` runs a kernel for one plan, for any size and for any strides.

Row formulas need no kernel of their own: `row_passes.py` orders a formula's values into loops over the classes, `row_formulas.py` walks rows, short ones some together,
vectors of positions or runs of planes by them, `row_copies.py` copies positions that do not lie as vectors do. Losses of class indices are such formulas, with sums
over all positions before or after them: `losses.py`. That of NLL has no loop over the classes: of each row one value is read, which is asked for some rows before.

Its gradient is one, too, by which few classes are written. Elsewhere clearing the output and writing one element of each row takes less time: `nll_gradient.py`. Of the
multi-label margin loss a row has many labels, each against all other classes: `multilabel.py` is written by hand.
"""

from __future__ import annotations

import importlib

ENTERED = "losses", "multilabel", "nll_gradient"
"""The files that enter kernels."""


def enter() -> None:
    for name in ENTERED:
        importlib.import_module(f"{__name__}.{name}")
