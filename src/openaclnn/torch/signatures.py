"""The arguments of PyTorch's operators, as its dispatcher hands them to machine code."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "BOOL",
    "FLOAT",
    "INTEGER",
    "REDUCTION",
    "SCALAR",
    "SYMBOL",
    "TENSOR",
    "WEIGHT",
    "Signature",
]

TENSOR, WEIGHT, SCALAR, FLOAT, INTEGER, SYMBOL, BOOL, REDUCTION = "TWSFIYBR"
"""Kinds: a tensor; one that may be missing, a weight for each class of the tensor two before it; a number of any kind; a
double, an integer, one that may be a symbol, a truth value, a reduction."""


class Signature(NamedTuple):
    """An operator's arguments by kind; which of them the short road takes, arrays first, with their number; and how many
    results it makes. None: it writes over its first argument, and returns that."""

    kinds: str
    order: tuple[int, ...]
    arrays: int
    results: int

    @property
    def words(self) -> tuple[int, int, int]:
        """Arrays that are read, outputs and options, as the short road takes them."""
        return self.arrays, max(self.results, 1), len(self.order) - self.arrays
