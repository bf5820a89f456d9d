"""Workloads of aclnnL1Loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openaclnn.core.interface import REDUCTIONS
from openaclnn.operators.workloads.pairwise import LOSS_VARIANTS, loss_maker, reduced
from openaclnn.operators.workloads.words import KernelForm, Module, Peers

PATTERN = "elementwise"
TRAINED = "l1_loss"
MODULE = Module("L1Loss", ("elementwise",))
KERNELS = (KernelForm("lp_loss", {"predict": "self", "label": "target"}, only={"p": 1}),)
VARIANTS = LOSS_VARIANTS
make = loss_maker


def torch_peers(torch: Any, given: Mapping[str, Any], out: Any) -> Peers:
    """aten's own operator."""
    arguments = given["self"], given["target"], REDUCTIONS.index(given["reduction"])
    return {"torch": lambda: torch.ops.aten.l1_loss(*arguments)}


def torch_formula(torch: Any, given: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    return reduced((given["self"].float() - given["target"].float()).abs(), given)
