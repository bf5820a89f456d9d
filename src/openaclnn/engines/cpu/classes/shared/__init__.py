"""What every kernel with a class axis stands on, whatever it computes.

In the order to read: `parameters.py` is what a kernel is told of its plan, `targets.py` which class each target names, `totals.py` sums over targets and weights
in a fixed order, `passes.py` what is launched for one plan, and `sized.py` the same for any size, as machine code.
"""
