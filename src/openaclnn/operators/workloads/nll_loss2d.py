"""Workloads of aclnnNLLLoss2d."""

from __future__ import annotations

from openaclnn.operators.workloads import likelihood
from openaclnn.operators.workloads.words import Module, Variants

PATTERN = "pixels"
TRAINED = "nll_loss"
MODULE = Module("NLLLoss", ("pixels",))
KERNELS = likelihood.LOSS_KERNELS
DOMAINS = likelihood.LOG_PROBABILITIES
VARIANTS: Variants = {
    "mean, patches": {"reduction": "mean", "patch": 64},
    "none, random": {"reduction": "none", "patch": 1},
}
make = likelihood.loss_maker(VARIANTS)
torch_peers = likelihood.forward_peers("nll_loss2d_forward")
torch_formula = likelihood.forward_formula
