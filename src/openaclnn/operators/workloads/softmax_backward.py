"""Workloads of aclnnSoftmaxBackward; what those of the other gradient have in common with them stands here too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators import softmax
from openaclnn.operators.workloads.softmax import PATTERN, VARIANTS
from openaclnn.operators.workloads.words import (
    Arguments,
    KernelForm,
    Peers,
    allocating_and_into,
    normal,
)

__all__ = ["PATTERN", "VARIANTS"]

KERNELS = (
    KernelForm("softmax_grad", {"softmax": "output", "grad_softmax": "gradOutput"}, {"axes": "dim"}),
)  # fmt: skip
DOMAINS = {"output": (0.0, 1.0)}


def make(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:
    """A normal gradient, and softmax of normal logits."""
    return gradient_arguments(rng, dtype, shape, variant, softmax.reference)


def gradient_arguments(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str, forward: Any
) -> Arguments:
    """A normal gradient, and the forward's result of normal logits."""
    gradient, x = (normal(rng, dtype, shape) for _ in range(2))
    result = forward(x, **VARIANTS[variant], work=np.float32).astype(dtype.numpy)
    return {"grad_output": gradient, "output": result, **VARIANTS[variant]}


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> Peers:
    """aten's own operator, in both ways."""
    operator = torch.ops.aten._softmax_backward_data
    return allocating_and_into(operator, peer_arguments(given), out, "out", "grad_input")


def peer_arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """What aten's operators take."""
    return given["grad_output"], given["output"], given.get("dim", -1), given["output"].dtype


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    gradient, result = given["grad_output"].float(), given["output"].float()
    whole = (gradient * result).sum(given.get("dim", -1), keepdim=True)
    return ((gradient - whole) * result).to(given["output"].dtype)
