"""What workloads are written in: kernels and modules by name, normal numbers, PyTorch's operators in both their ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType

Arguments = dict[str, Any]
Peers = dict[str, Callable[[], Any]]
Variants = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class KernelForm:
    """A kernel below the interface as case lists call it, with the interface's C names."""

    name: str
    inputs: Mapping[str, str]  # in the kernel's order, by the kernel's names
    renamed: Mapping[str, str] = field(default_factory=dict)  # attributes with other names
    unread: tuple[str, ...] = ()  # inputs behind those that say nothing to the interface
    # Arguments that the kernel has no attribute for, or another default.
    values: Mapping[str, Any] = field(default_factory=dict)
    # Attributes that this interface has one value of.
    only: Mapping[str, Any] = field(default_factory=dict)
    # Attributes that have names where the interface has numbers, in their order.
    numbered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Optional here, weights of one for the interface: each with the tensor whose classes and dtype it has.
    ones: Mapping[str, str] = field(default_factory=dict)
    # Outputs that the kernel has another dtype for: each with the tensor whose dtype the interface gives it.
    typed: Mapping[str, str] = field(default_factory=dict)


def normal(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Any:
    """Normal numbers of a dtype."""
    return np.asarray(rng.standard_normal(shape, np.float32)).astype(dtype.numpy)


def allocating_and_into(
    operator: Any,
    arguments: tuple[Any, ...],
    out: Any,
    overload: str = "grad_input",
    name: str = "",
) -> Peers:
    """aten's own operator, allocating, and writing into `out`, which is named as the overload that takes it, or otherwise."""
    into = getattr(operator, overload)
    return {
        "torch": lambda: operator(*arguments),
        "torch out=": lambda: into(*arguments, **{name or overload: out}),
    }


def by_expression(expression: Callable[[Any, Mapping[str, Any]], Any]) -> dict[str, Any]:
    """Where PyTorch has no function of its own: its operations on a call's arguments, one by one and compiled."""

    def torch_peers(torch: Any, values: Mapping[str, Any], out: Any) -> Peers:
        return {"torch": lambda: expression(torch, values)}

    return {"torch_peers": torch_peers, "torch_formula": expression}
