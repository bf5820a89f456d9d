"""Kernels with a class axis. Importing this enters them in the engine's registry."""

from __future__ import annotations

from openaclnn.engines.cpu.classes import (
    cross_entropy,
    logit_pixels,
    logit_pixels_grad,
    logit_sizes,
    logits,
    logits_grad,
    nll,
    nll_loss,
)

__all__ = [
    "cross_entropy",
    "logit_pixels",
    "logit_pixels_grad",
    "logit_sizes",
    "logits",
    "logits_grad",
    "nll",
    "nll_loss",
]
