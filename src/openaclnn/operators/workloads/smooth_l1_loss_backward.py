"""Workloads of aclnnSmoothL1LossBackward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openaclnn.core.interface import REDUCTIONS
from openaclnn.operators.workloads.pairwise import (
    GRADIENT_VARIANTS,
    element_scale,
    gradient_maker,
)
from openaclnn.operators.workloads.words import KernelForm, Peers, allocating_and_into

PATTERN = "elementwise"
KERNELS = (
    KernelForm(
        "smooth_l1_loss_grad_v2",
        {"predict": "self", "label": "target", "dout": "gradOut"},
        {"sigma": "beta"},
    ),
)
VARIANTS = GRADIENT_VARIANTS
make = gradient_maker("grad_out")


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> Peers:
    """aten's own operator, in both ways."""
    tensors = given["grad_out"], given["self"], given["target"]
    options = REDUCTIONS.index(given["reduction"]), given.get("beta", 1.0)
    return allocating_and_into(torch.ops.aten.smooth_l1_loss_backward, (*tensors, *options), out)


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    gradient, x, y = (given[name].float() for name in ("grad_out", "self", "target"))
    beta = given.get("beta", 1.0)
    difference = x - y
    slope = torch.where(difference.abs() < beta, difference / beta, torch.sign(difference))
    return (slope * gradient * element_scale(given)).to(given["self"].dtype)
