"""The short road of two-phase calls: phase one finds the kind and runs nothing, phase two runs what it found.

In the order to read: `located.py` is the road of phase one on arrays and tensors, `descriptors.py` the same on descriptors; `sizes.py` is what an executor
runs, `again.py` knows calls that come again just as they were.
"""
