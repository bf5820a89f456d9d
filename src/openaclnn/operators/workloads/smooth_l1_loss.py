"""Workloads of aclnnSmoothL1Loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openaclnn.core.interface import REDUCTIONS
from openaclnn.operators.workloads.pairwise import (
    LOSS_VARIANTS,
    loss_maker,
    reduced,
)
from openaclnn.operators.workloads.words import KernelForm, Module, Peers

PATTERN = "elementwise"
TRAINED = "smooth_l1_loss"
MODULE = Module("SmoothL1Loss", ("elementwise",))
KERNELS = (
    KernelForm("smooth_l1_loss_v2", {"predict": "self", "label": "target"}, {"sigma": "beta"}),
)
VARIANTS = LOSS_VARIANTS
make = loss_maker


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> Peers:
    """aten's own operator, allocating and writing into `out`, which it does not take as it is for a sum."""
    reduction = REDUCTIONS.index(given["reduction"])
    arguments = given["self"], given["target"], reduction, given.get("beta", 1.0)
    aten = torch.ops.aten.smooth_l1_loss
    peers = {"torch": lambda: aten(*arguments)}
    if reduction == 0:
        peers["torch out="] = lambda: aten.out(*arguments, out=out)
    return peers


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    size, beta = (given["self"].float() - given["target"].float()).abs(), given.get("beta", 1.0)
    return reduced(torch.where(size < beta, 0.5 * size * (size / beta), size - 0.5 * beta), given)
