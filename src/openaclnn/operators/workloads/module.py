"""The module of `torch.nn`, and of ours, that an operator is the loss or the activation of."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Module"]


class Module(NamedTuple):
    """A module by its name, and what it is given: `elementwise`, `rows`, `pixels`."""

    name: str
    patterns: tuple[str, ...]
