"""The CPU engine's kernels by name: each module enters its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from openaclnn.core.plan import Plan

__all__ = ["KERNELS", "Kernel", "Runner", "kernel"]

Runner = Callable[[Sequence[int], int], int]
"""Runs a plan: a function of the operands' addresses (the output's last) and a stream.

It returns nonzero if a target was neither a class nor the ignored value.
"""


class Kernel(Protocol):
    """What serves the plans of one name."""

    def declines(self, plan: Plan) -> str | None:
        """Why this kernel does not serve a plan; None if it does."""

    def runner(self, plan: Plan, lanes: int = 0) -> Runner:
        """What runs a plan. `lanes` is for tests."""

    def variants(self) -> Iterator[Plan]:
        """Plans that between them need every code of this kernel, for compiling ahead."""


KERNELS: dict[str, Kernel] = {}

K = TypeVar("K", bound=Kernel)


def kernel(name: str) -> Callable[[type[K]], type[K]]:
    """Enter a class's one object under a name."""

    def enter(made: type[K]) -> type[K]:
        KERNELS[name] = made()
        return made

    return enter
