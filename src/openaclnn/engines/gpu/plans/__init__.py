"""The launches of one plan: of each kernel with how many programs, which numbers, which constants.

In the order to read: `tiles.py` and `elementwise.py` for formulas; `sums.py` for what `mean` divides by, `reductions.py` for sums over all
elements; `rows.py` and `pixels.py` for gradients over classes; `logits.py`, `logit_pixels.py` and `ahead.py` for cross entropy from
logits. `kernels/` and `launching/` lie below.
"""
