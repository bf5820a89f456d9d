"""Functions that `torch.compile` leaves as they are: its graph ends before them, and the next begins behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from openaclnn.torch.private import keep_compiler_out

__all__ = ["uncompiled"]

REASON = "openaclnn.torch.parallel exchanges numbers between processes and calls kernels, which no graph has"

_Function = TypeVar("_Function", bound=Callable[..., Any])


def uncompiled(function: _Function) -> _Function:
    """`torch.compiler.disable`, which would import the compiler, for programs that never compile."""
    own: Any = function
    own._torchdynamo_disable, own._torchdynamo_disable_msg = True, REASON  # what the compiler reads
    return function if keep_compiler_out(own) else _disabled(function)


def _disabled(function: _Function) -> _Function:
    found: _Function = torch.compiler.disable(function, reason=REASON)  # type: ignore[no-untyped-call]
    return found
