"""Types and functions that workloads share: kernels' names in case lists, normal numbers, and PyTorch's operators, allocating and into `out`."""

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
    """The kernel behind an operator as case lists name it, and how its inputs and attributes map to the operator's parameters."""

    name: str
    inputs: Mapping[str, str]  # the operator's C names by the kernel's, in the kernel's order
    renamed: Mapping[str, str] = field(default_factory=dict)  # attributes with other names
    unread: tuple[str, ...] = ()  # further inputs of the kernel that the operator lacks
    # Arguments for which the kernel has no attribute, or one with another default.
    values: Mapping[str, Any] = field(default_factory=dict)
    # Attributes of which the operator supports a single value.
    only: Mapping[str, Any] = field(default_factory=dict)
    # Attributes with names in place of the operator's numbers 0, 1, ..., in this order.
    numbered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Optional inputs of the kernel that the operator requires: weights of one, with the class count and dtype of this tensor.
    ones: Mapping[str, str] = field(default_factory=dict)
    # Outputs of another dtype in the kernel: each with the tensor whose dtype it has in the operator.
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
    """PyTorch's operator, allocating and into `out`. The keyword of `out` is `name`, by default the name of the overload that has it."""
    into = getattr(operator, overload)
    return {
        "torch": lambda: operator(*arguments),
        "torch out=": lambda: into(*arguments, **{name or overload: out}),
    }


def by_expression(expression: Callable[[Any, Mapping[str, Any]], Any]) -> dict[str, Any]:
    """`torch_peers` and `torch_formula` where PyTorch has no such operator: an expression of its operations, eager and compiled."""

    def torch_peers(torch: Any, values: Mapping[str, Any], out: Any) -> Peers:
        return {"torch": lambda: expression(torch, values)}

    return {"torch_peers": torch_peers, "torch_formula": expression}
