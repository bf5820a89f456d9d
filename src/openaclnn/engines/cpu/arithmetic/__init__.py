"""Vectors of numbers, for all kernels: how they are read and rounded, and the functions that processors do not have.

In the order to read: `numerics.py` loads and stores the three floating dtypes, `exponential.py` is exp in FLOAT, `singles.py` log(1 + x) in FLOAT, and `doubles.py` has
both in FLOAT64. It imports no other room.
"""
