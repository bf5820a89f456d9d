"""PyTorch below whoever stands between callers and memory in this thread: modes, transforms, tracers, a default device.

What is made of their tensors may have no memory, be larger than it says, or end with the block that it was made in.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

__all__ = ["undisturbed"]

_BETWEEN = (
    "Python", "PythonTLSSnapshot", "PythonDispatcher", "PreDispatch", "Functionalize", "Tracer",
    "FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode", "FuncTorchVmapMode",
)  # fmt: skip


@contextmanager
def undisturbed() -> Iterator[None]:
    """A block in which PyTorch, which has been imported, makes tensors that are plain memory."""
    theirs = sys.modules["torch"]._C
    with theirs.DisableTorchFunction(), _below():
        yield


def _below() -> Any:
    """The dispatcher below them all, as far as this PyTorch has names for that."""
    try:
        return sys.modules["torch"]._C._ExcludeDispatchKeyGuard(_keys())
    except AttributeError:
        return nullcontext()


@functools.cache
def _keys() -> Any:
    theirs = sys.modules["torch"]._C
    each = [theirs.DispatchKeySet(theirs._dispatch_key_parse(name)) for name in _BETWEEN]
    return functools.reduce(lambda one, other: one | other, each)
