"""Our refusals as PyTorch's exceptions, and its old options with its warning."""

from __future__ import annotations

import warnings
from typing import Any

from openaclnn.core.status import AclnnError, Status

__all__ = ["UnservedError", "in_torch_words", "reduction_of"]


class UnservedError(RuntimeError):
    """No engine of ours runs this call."""


def in_torch_words(error: AclnnError | MemoryError) -> Exception:
    """What PyTorch would raise."""
    if isinstance(error, MemoryError):
        return RuntimeError(f"openaclnn can't allocate memory: {error or 'there is none left'}")
    if error.status == Status.ACLNN_ERR_INNER_FIND_KERNEL_ERROR:
        return UnservedError(error.args[0])
    if error.expected.startswith("class indices"):
        return IndexError(
            f"Target {error.got.partition(' ')[0]} is out of bounds. ({error.args[0]})"
        )
    if error.expected in ("a number", "an integer"):
        return TypeError(error.args[0])
    return RuntimeError(error.args[0])


def reduction_of(size_average: Any, reduce: Any) -> str:
    """The reduction that these two options, which PyTorch had before, ask for."""
    each = reduce is not None and not reduce
    reduction = "none" if each else "mean" if size_average is None or size_average else "sum"
    warnings.warn(
        f"size_average and reduce args will be deprecated, please use reduction={reduction!r} instead.",
        stacklevel=4,
    )
    return reduction
