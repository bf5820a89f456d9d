"""The negative log-likelihood of a class at each position: its loss and its gradient. Importing this enters their kernels.

In the order to read: `loss.py` is the loss; `gradient.py` chooses how the gradient is written, by `scatter.py` at the targets or by `select.py` everywhere,
of which `writer.py` makes the kernel; `sizes.py` has the same for any sizes.
"""

from __future__ import annotations

from openaclnn.engines.cpu.classes.likelihood import gradient, loss

__all__ = ["gradient", "loss"]
