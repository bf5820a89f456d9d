"""Our refusals as PyTorch's exceptions."""

from __future__ import annotations

from openaclnn.core.status import AclnnError, Status

__all__ = ["UnservedError", "in_torch_words"]


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
