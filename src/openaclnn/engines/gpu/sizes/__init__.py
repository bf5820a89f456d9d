"""The launches of any size, with any numbers: those of `plans/`, told sizes and often strides in the call.

In the order to read: `elementwise.py` and `tiles.py` for formulas; `sums.py` for what `mean` divides by; `rows.py` and `pixels.py` for gradients
over classes, and `strided.py` for few elements of those, of any strides; `logits.py` and `logit_pixels.py` for cross entropy from logits; `reductions.py` and
`strided_sums.py` for sums over all elements. Each asks `fits/` for the same as a builtin, and is what that falls back to.
"""
