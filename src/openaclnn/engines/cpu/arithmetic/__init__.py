"""Vectors of numbers, for all kernels: `numerics.py` loads, rounds and stores the three floating dtypes, `functions.py` has exp and log(1 + x)."""
