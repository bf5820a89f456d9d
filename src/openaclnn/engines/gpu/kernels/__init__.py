"""The kernels: all that runs on the device. `launchers/` says how they are launched, under the same names.

In the order to read: `elementwise.py` computes formulas; `sums.py` adds up what `mean` divides by, `reductions.py` all elements; `rows.py`
and `pixels.py` have gradients over classes; `logits.py`, `logit_pixels.py` and `fused_backward.py` have cross entropy from logits. Only `formulas/`
lies below.
"""
