"""Workloads of aclnnNLLLoss."""

from __future__ import annotations

from openaclnn.operators.workloads import likelihood
from openaclnn.operators.workloads.words import Module, Variants

PATTERN = "rows"
MODULE = Module("NLLLoss", ("rows",))
KERNELS = likelihood.LOSS_KERNELS
DOMAINS = likelihood.LOG_PROBABILITIES
VARIANTS: Variants = {"mean": {"reduction": "mean"}, "none": {"reduction": "none"}}
make = likelihood.loss_maker(VARIANTS)
torch_peers = likelihood.forward_peers("nll_loss_forward")
torch_formula = likelihood.forward_formula
