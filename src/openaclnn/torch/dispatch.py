"""Which way a functional loss goes: straight to the kernels as a rule, by the fast path where a call of its kind was
made before, and by PyTorch's dispatcher where somebody records operations, transforms or casts them; and who served it.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch.overrides import (
    handle_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
)

from openaclnn.calls import guard
from openaclnn.core.dtypes import FLOAT, is_int64
from openaclnn.core.tensor import Tensor
from openaclnn.torch.kernels import PLAIN, disturbed
from openaclnn.torch.private import any_autocast, base_of, forward_mode, transformed

# What became of calls: how many were served by our kernels, and why the others were PyTorch's.


_MANY = 64  # reasons that are told apart


class Served(NamedTuple):
    """How often a function or an operator was called, and by whom it was computed."""

    calls: int
    ours: int
    reasons: dict[str, int]  # why PyTorch's kernel was taken, and how often


class Count:
    """The calls of one function or operator."""

    __slots__ = ("ours", "reasons")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.ours = 0
        self.reasons: dict[str, int] = {}

    def serve(self) -> None:
        """One by our kernels. What PyTorch compiles or exports is counted nowhere: its graphs run without us."""
        if not torch.compiler.is_compiling():
            self.ours += 1

    def decline(self, reason: object) -> None:
        """One that is PyTorch's."""
        if torch.compiler.is_compiling():
            return
        said = str(reason)
        if len(self.reasons) >= _MANY and said not in self.reasons:
            said = "others"
        self.reasons[said] = self.reasons.get(said, 0) + 1

    def told(self, more: int = 0) -> Served:
        """With so many more of ours that machine code has counted."""
        ours = self.ours + more
        return Served(ours + sum(self.reasons.values()), ours, dict(self.reasons))


FUNCTIONS: defaultdict[str, Count] = defaultdict(Count)
"""Of the functions of `functional`, which modules call too."""


_Function = TypeVar("_Function", bound=Callable[..., Any])


def overridable(function: _Function) -> _Function:
    """A function whose calls are handed to arguments that have a `__torch_function__`, as those of PyTorch's own are."""

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        every = (*arguments, *named.values())
        if has_torch_function_variadic(*every):
            return handle_torch_function(called, every, *arguments, **named)
        return function(*arguments, **named)

    return called  # type: ignore[return-value]


FLOATS = frozenset((torch.float32, torch.float16, torch.bfloat16, torch.float64))

_is_compiling, _grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled


def may_be_short(tensor: Any) -> bool:
    """Whether all that is left to ask is what the fast path asks itself: of the other arguments, whether they are plain tensors."""
    return type(tensor) in PLAIN and not (
        has_torch_function_unary(tensor) or transformed() or any_autocast() or forward_mode()
    )


# Not in functions that PyTorch compiles: its compiler reads this attribute, and asks that instead.
may_be_short._torchdynamo_inline = lambda tensor: False  # type: ignore[attr-defined]


def needs_dispatcher() -> bool:
    return _is_compiling() or disturbed() or any_autocast()


def is_cast_alone(tensor: Any) -> bool:
    """Whether nothing is between caller and kernels but autocast on CUDA, which makes FLOAT of what losses take."""
    narrow = tensor.dtype in FLOATS and tensor.dtype is not torch.float64
    cast = tensor.is_cuda and torch.is_autocast_enabled("cuda") and narrow
    return cast and not (_is_compiling() or disturbed())


def autocast_dtype(tensor: Any) -> Any:
    """What autocast makes of this where matrices are multiplied; None where it is not at work."""
    device = tensor.device.type
    casts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if casts and tensor.dtype is not torch.float64 else None


def parallel_for(tensor: Any) -> Any:
    """`openaclnn.torch.parallel` for a DTensor, whose losses and rules for operators are there; else None."""
    if type(tensor) in PLAIN:
        return None
    spread = sys.modules.get("torch.distributed.tensor")  # which another thread may be importing
    if not isinstance(tensor, getattr(spread, "DTensor", ())):
        return None
    return importlib.import_module("openaclnn.torch.parallel")


def is_tracked(tensor: Any) -> bool:
    """Whether autograd wants to know of work on this."""
    return tensor.requires_grad and _grad_enabled()


def of_a_leaf(tensor: Any) -> bool:
    """Whether writing to a tensor that autograd tracks would write to a leaf: that, or a view of one."""
    if tensor.is_leaf:
        return True
    base = base_of(tensor)
    return base is not None and base.is_leaf and base.requires_grad


def lies_apart(tensor: Any) -> bool:
    """Whether every element has memory of its own, which says what the element is."""
    return not tensor.is_neg() and guard.lies_apart(
        Tensor(tuple(tensor.shape), FLOAT, tensor.stride())
    )


def is_memory(value: Any) -> bool:
    """Whether this is a tensor of strides; PyTorch has words for what is none, and kernels for other layouts and for nested tensors."""
    strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return strided and not value.is_nested


def is_number(value: Any) -> bool:
    """Whether this is a number of Python's, of 64 bits. PyTorch takes more, tensors of one element say, and refuses the rest."""
    return isinstance(value, float) or (isinstance(value, int) and is_int64(value))


def is_index(value: Any) -> bool:
    """Whether this is what PyTorch takes for a class: an integer of 64 bits, and no truth value."""
    return type(value) is int and is_int64(value)


def why_not(tensor: Any) -> str:
    """Why a call on this is PyTorch's, in a few words."""
    if not is_memory(tensor):
        return "a tensor without strides" if isinstance(tensor, torch.Tensor) else "no tensor"
    if tensor.dtype not in FLOATS:
        return str(tensor.dtype)
    if not (tensor.is_cpu or tensor.is_cuda or tensor.is_meta):
        return f"on {tensor.device.type}"
    if forward_mode():
        return "derivatives in forward mode"
    return "arguments that our kernels do not take"


def is_ours(tensor: Any) -> bool:
    """Whether the kernels have this dtype and device; without data, shapes at least. Derivatives in forward mode are
    PyTorch's.
    """
    if not is_memory(tensor):
        return False
    has_kernels = tensor.dtype in FLOATS and (tensor.is_cpu or tensor.is_cuda or tensor.is_meta)
    return has_kernels and not forward_mode()
