"""The CPU engine's kernels, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from openaclnn.core.plan import Plan

Runner = Callable[[Sequence[int], int], int]
"""Of the operands' addresses, the output's last, and a stream; not 0 where a target was out of range."""

SizedRunner = Callable[[Sequence[int], int, Sequence[int], Sequence[float]], int]
"""Of the operands' addresses, a stream, the shape of what is row-major and the plan's free numbers; not 0 where a target was
out of range. Without numbers, those of the plan hold."""


class Kernel(Protocol):
    """What serves plans of one kernel name. Some have `offer`, `dynamic_shapes` or `dynamic_strides`, too, which the engine's functions of these names ask."""

    def declines(self, plan: Plan) -> str | None:
        """Why it does not serve a plan; None if it does."""

    def runner(self, plan: Plan) -> Runner:
        """What runs a plan."""

    def variants(self) -> Iterator[Plan]:
        """Plans that between them need all its code, for compiling ahead."""


KERNELS: dict[str, Kernel] = {}
"""Every kernel that was written out by hand; formulas need no entry."""
