"""Workloads of aclnnLogSoftmaxBackward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.operators import log_softmax
from openaclnn.operators.workloads.softmax import PATTERN, VARIANTS
from openaclnn.operators.workloads.softmax_backward import gradient_arguments, peer_arguments
from openaclnn.operators.workloads.words import Arguments, KernelForm, Peers, allocating_and_into

__all__ = ["PATTERN", "VARIANTS"]

KERNELS = (
    KernelForm("log_softmax_grad", {"grad": "gradOutput", "x": "output"}, {"axis": "dim"}),
)  # fmt: skip
DOMAINS = {"output": (float("-inf"), 0.0)}


def make(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str) -> Arguments:
    """A normal gradient, and log-softmax of normal logits."""
    return gradient_arguments(rng, dtype, shape, variant, log_softmax.reference)


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> Peers:
    """aten's own operator, in both ways."""
    operator = torch.ops.aten._log_softmax_backward_data
    peers = allocating_and_into(operator, peer_arguments(given), out, "out")
    if given["grad_output"].shape == given["output"].shape:
        return peers
    return dict.fromkeys(peers, _refuse)


def _refuse() -> None:
    """In PyTorch's place, which does not compare the shapes and reads what lies behind the smaller tensor."""
    raise RuntimeError("grad_output and output have different shapes")


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    gradient, result = given["grad_output"].float(), given["output"].float()
    whole = gradient.sum(given.get("dim", -1), keepdim=True)
    return (gradient - torch.exp(result) * whole).to(given["output"].dtype)
