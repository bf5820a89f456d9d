"""Workloads of aclnnLogSoftmax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openaclnn.operators.workloads.softmax import PATTERN, VARIANTS, make
from openaclnn.operators.workloads.words import KernelForm, Peers, allocating_and_into

__all__ = ["PATTERN", "VARIANTS", "make"]

KERNELS = (KernelForm("log_softmax_v2", {"logits": "self"}, {"axes": "dim"}),)


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> Peers:
    """aten's own operator, in both ways."""
    arguments = given["self"], given.get("dim", -1), False
    return allocating_and_into(torch.ops.aten._log_softmax, arguments, out, "out")


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    x, dim = given["self"].float(), given.get("dim", -1)
    shifted = x - x.amax(dim, keepdim=True)
    return (shifted - torch.exp(shifted).sum(dim, keepdim=True).log()).to(given["self"].dtype)
