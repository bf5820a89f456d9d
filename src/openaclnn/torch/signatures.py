"""The arguments of PyTorch's operators, as its dispatcher hands them to kernels."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "BOOL",
    "FLOAT",
    "INTEGER",
    "REDUCTION",
    "SCALAR",
    "TENSOR",
    "WEIGHT",
    "Signature",
]

TENSOR, WEIGHT, SCALAR, FLOAT, INTEGER, BOOL, REDUCTION = "TWSFIBR"
"""Kinds of arguments. WEIGHT: a tensor that may be missing, with a weight for each class of the tensor two before it. SCALAR: a number of any kind,
which PyTorch's stable C interface lacks."""


class Signature(NamedTuple):
    """The arguments of an operator of PyTorch's, and what the fast path takes of them."""

    kinds: str  # of all arguments
    order: tuple[int, ...]  # those that the fast path takes, arrays first
    arrays: int  # how many of these are arrays
    results: int  # 0: it writes over its first argument, and returns that

    @property
    def words(self) -> tuple[int, int, int]:
        """Arrays that are read, outputs and options, as the fast path takes them."""
        return self.arrays, max(self.results, 1), len(self.order) - self.arrays

    @property
    def is_stable(self) -> bool:
        """Whether PyTorch's stable C interface has all of these kinds."""
        return SCALAR not in self.kinds
