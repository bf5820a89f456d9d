"""Functions that `torch.compile` leaves as they are: its graph ends before them, and the next begins behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

__all__ = ["uncompiled"]

REASON = "openaclnn.torch.parallel exchanges numbers between processes and calls kernels, which no graph has"

_Function = TypeVar("_Function", bound=Callable[..., Any])


def uncompiled(function: _Function) -> _Function:
    """`torch.compiler.disable`, which would import the compiler, for programs that never compile."""
    own: Any = function
    own._torchdynamo_disable, own._torchdynamo_disable_msg = True, REASON  # what the compiler reads
    return function if _skipped(own.__code__) else _disabled(function)


def _skipped(code: Any) -> bool:
    """Whether the compiler could be told to run this code, and what it calls, as it is."""
    try:
        theirs: Any = torch._C._dynamo.eval_frame  # type: ignore[attr-defined,unused-ignore]
        skip = theirs._FrameAction.SKIP
        theirs.set_code_exec_strategy(code, theirs._FrameExecStrategy(skip, skip))
    except AttributeError:  # another PyTorch
        return False
    return True


def _disabled(function: _Function) -> _Function:
    found: _Function = torch.compiler.disable(function, reason=REASON)  # type: ignore[no-untyped-call]
    return found
