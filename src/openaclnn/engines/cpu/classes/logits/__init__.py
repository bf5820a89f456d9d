"""Cross entropy from logits. Importing this enters its kernels.

In the order to read: `chunks.py` takes a row in pieces that stay in the cache, `rows.py` has the kernels of rows, `short_rows.py` of those shorter than a
vector, `pixels.py` of pixels; `training.py` runs both over any sizes, and `sizes.py` aclnnCrossEntropyLoss. The gradient is in `gradients/`.
"""

from __future__ import annotations

from openaclnn.engines.cpu.classes.logits import pixels, rows, sizes, training

__all__ = ["pixels", "rows", "sizes", "training"]
