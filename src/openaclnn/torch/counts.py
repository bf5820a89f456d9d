"""What became of calls: how many were served by our kernels, and why the others were PyTorch's."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import torch

__all__ = ["FUNCTIONS", "Count", "Served"]

_MANY = 64  # reasons that are told apart


class Served(NamedTuple):
    """How often a function or an operator was called, and by whom it was computed."""

    calls: int
    ours: int
    reasons: dict[str, int]  # why PyTorch's kernel was taken, and how often


class Count:
    """The calls of one function or operator."""

    __slots__ = ("ours", "reasons")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.ours = 0
        self.reasons: dict[str, int] = {}

    def serve(self) -> None:
        """One by our kernels. What PyTorch compiles or exports is counted nowhere: its graphs run without us."""
        if not torch.compiler.is_compiling():
            self.ours += 1

    def decline(self, reason: object) -> None:
        """One that is PyTorch's."""
        if torch.compiler.is_compiling():
            return
        said = str(reason)
        if len(self.reasons) >= _MANY and said not in self.reasons:
            said = "others"
        self.reasons[said] = self.reasons.get(said, 0) + 1

    def told(self, more: int = 0) -> Served:
        """With so many more of ours that machine code has counted."""
        ours = self.ours + more
        return Served(ours + sum(self.reasons.values()), ours, dict(self.reasons))


FUNCTIONS: defaultdict[str, Count] = defaultdict(Count)
"""Of the functions of `functional`, which modules call too."""
