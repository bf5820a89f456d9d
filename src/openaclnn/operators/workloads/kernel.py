"""The kernels below an interface, where case lists speak of those: their names, inputs and attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["KernelForm"]


@dataclass(frozen=True)
class KernelForm:
    """A kernel as case lists call it, with the interface's C names."""

    name: str
    inputs: Mapping[str, str]  # in the kernel's order, by the kernel's names
    renamed: Mapping[str, str] = field(default_factory=dict)  # attributes with other names
    values: Mapping[str, Any] = field(
        default_factory=dict
    )  # arguments that the kernel has no attribute for
    only: Mapping[str, Any] = field(
        default_factory=dict
    )  # attributes that this interface has one value of
    ones: Mapping[str, str] = field(
        default_factory=dict
    )  # optional here, weights of one for the interface: each with the tensor whose classes and dtype it has
