"""Which way a functional loss goes: straight to the kernels as a rule, by the short road where a call of its kind was
made before, and by PyTorch's dispatcher where somebody records operations, transforms or casts them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import has_torch_function_variadic

from openaclnn.torch.kernels import disturbed

__all__ = ["FLOATS", "is_ours", "is_tracked", "may_be_short", "needs_dispatcher"]

FLOATS = frozenset((torch.float32, torch.float16, torch.bfloat16, torch.float64))

_is_compiling, _grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
_any_autocast = torch._C._is_any_autocast_enabled
_transformed = torch._C._are_functorch_transforms_active


def may_be_short(*tensors: Any) -> bool:
    """Whether all that is left to ask is what the short road asks itself."""
    return not (has_torch_function_variadic(*tensors) or _transformed() or _any_autocast())


# Not in functions that PyTorch compiles: its compiler reads this attribute, and asks that instead.
may_be_short._torchdynamo_inline = lambda *tensors: False  # type: ignore[attr-defined]


def needs_dispatcher() -> bool:
    return _is_compiling() or disturbed() or _any_autocast()


def is_tracked(tensor: Any) -> bool:
    """Whether autograd wants to know of work on this."""
    return tensor.requires_grad and _grad_enabled()


def is_ours(tensor: Any) -> bool:
    """Whether the kernels have this dtype and device; without data, shapes at least."""
    return tensor.dtype in FLOATS and (tensor.is_cpu or tensor.is_cuda or tensor.is_meta)
