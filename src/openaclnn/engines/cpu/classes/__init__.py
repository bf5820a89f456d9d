"""Kernels with a class axis. Importing this enters them in the engine's registry.

Three rooms have them, and know nothing of each other:

    likelihood/  NLL and its gradient
    logits/      cross entropy from logits
    gradients/   cross entropy's two gradients, from log-probabilities and from logits

They import from these two, of which the first imports from the second:

    positions/   how rows and pixels are taken, some at a time
    shared/      what every such kernel stands on: its parameters, its targets, its launches at one size or any
"""

from __future__ import annotations

from openaclnn.engines.cpu.classes import gradients, likelihood, logits

__all__ = ["gradients", "likelihood", "logits"]
