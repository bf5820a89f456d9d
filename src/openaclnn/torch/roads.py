"""Which way a functional loss goes: straight to the kernels as a rule, by PyTorch's dispatcher where somebody records
operations, transforms or casts them.
"""

from __future__ import annotations

from typing import Any

import torch

from openaclnn.torch.kernels import disturbed

__all__ = ["FLOATS", "is_ours", "is_tracked", "needs_dispatcher"]

FLOATS = frozenset((torch.float32, torch.float16, torch.bfloat16, torch.float64))

_is_compiling, _grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
_any_autocast = torch._C._is_any_autocast_enabled


def needs_dispatcher() -> bool:
    return _is_compiling() or disturbed() or _any_autocast()


def is_tracked(tensor: Any) -> bool:
    """Whether autograd wants to know of work on this."""
    return tensor.requires_grad and _grad_enabled()


def is_ours(tensor: Any) -> bool:
    """Whether the kernels have this dtype and device; without data, shapes at least."""
    return tensor.dtype in FLOATS and (tensor.is_cpu or tensor.is_cuda or tensor.is_meta)
