"""Workloads of aclnnL1LossBackward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openaclnn.operators.workloads.pairwise import (
    GRADIENT_VARIANTS,
    element_scale,
    gradient_maker,
)
from openaclnn.operators.workloads.words import KernelForm, Peers

PATTERN = "elementwise"
KERNELS = (
    KernelForm("l1_loss_grad", {"grads": "gradOutput", "predict": "self", "label": "target"}),
)
VARIANTS = GRADIENT_VARIANTS
make = gradient_maker("grad_output")


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> Peers:
    """PyTorch has no such operator: the expression its autograd evaluates, allocating and into `out`."""
    gradient, x, y = given["grad_output"], given["self"], given["target"]
    scale = element_scale(given)

    def into() -> Any:
        torch.sub(x, y, out=out)
        torch.sign(out, out=out)
        return torch.mul(out, gradient * scale if scale != 1 else gradient, out=out)

    return {
        "torch": lambda: torch.sign(x - y) * (gradient * scale if scale != 1 else gradient),
        "torch out=": into,
    }


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    gradient, x, y = (given[name].float() for name in ("grad_output", "self", "target"))
    sign = (x > y).float() - (x < y).float()
    return (sign * (gradient * element_scale(given))).to(given["self"].dtype)
