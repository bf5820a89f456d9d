"""Cross entropy's two gradients: a row is factor * exp(x) - smooth * weight, and nll less at its target. Importing this enters their kernels.

In the order to read: `formula.py` writes that, `numbers.py` has the numbers of a row; of log-probabilities `rows.py` and `one_row.py` have one row, `few_classes.py`
as many as a vector has lanes, `cross_entropy.py` the kernel; of logits `logit_numbers.py` has the numbers of many rows, `logits.py` the kernel and
`logit_pixels.py` that of pixels, and `logit_sizes.py` runs both over any sizes.
"""

from __future__ import annotations

from openaclnn.engines.cpu.classes.gradients import cross_entropy, logit_pixels, logit_sizes, logits

__all__ = ["cross_entropy", "logit_pixels", "logit_sizes", "logits"]
