"""The kernels: all that runs on the device. `launchers/` says how they are launched, under the same names.

In the order to read: `elementwise.py` computes formulas; `sums.py` adds up what `mean` divides by, `reductions.py` all elements, `axis_sums.py` those along some axes; `row_source.py` writes
the kernels of row formulas, `steps.py` those of training steps; `pixels.py` has the negative log-likelihood's gradient, `fused_backward.py` steps of long rows,
`multilabel.py` the multi-label margin loss. Only `formulas/` lies below.
"""
