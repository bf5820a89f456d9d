"""The CPU engine's kernels, by name."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from openaclnn.core.plan import Plan

__all__ = ["KERNELS", "Kernel", "Runner", "SizedRunner", "exactly"]

Runner = Callable[[Sequence[int], int], int]
"""Of the operands' addresses, the output's last, and a stream; not 0 where a target was out of range."""

SizedRunner = Callable[[Sequence[int], int, Sequence[int], Sequence[float]], int]
"""Of the operands' addresses, a stream, the shape of what is row-major and the plan's free numbers; not 0 where a target was
out of range. Without numbers, those of the plan hold."""


def exactly(numbers: Mapping[str, Any]) -> bytes:
    """A plan's numbers as a key, in which -0.0 is another than 0.0. (As text that takes three times as long.)"""
    try:
        return marshal.dumps(tuple(numbers.values()), _BARE)
    except ValueError:
        known = "floats, integers and truth values (a Scalar's is its `.float32()`)"
        raise TypeError(f"a plan's numbers: expected {known}, got {numbers}") from None


_BARE = 2  # the last of marshal's versions that has objects by value alone


class Kernel(Protocol):
    """What serves plans of one kernel name."""

    def declines(self, plan: Plan) -> str | None:
        """Why it does not serve a plan; None if it does."""

    def runner(self, plan: Plan, lanes: int = 0) -> Runner:
        """What runs a plan. `lanes` is for tests: vectors of another width than the machine's."""

    def variants(self) -> Iterator[Plan]:
        """Plans that between them need all its code, for compiling ahead."""


KERNELS: dict[str, Kernel] = {}
"""Every kernel that was written out by hand; formulas need no entry."""
