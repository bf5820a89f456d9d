"""What is refused: a PyTorch that is too old, and our refusals as PyTorch's exceptions; its old options, with its warning."""

from __future__ import annotations

import importlib
import re
import warnings
from typing import Any

from openaclnn.core.status import AclnnError, Status

LOWEST = (2, 11)
"""The lowest version that passes the tests; `pyproject.toml` has it in the extra `torch`."""


class UnservedError(RuntimeError):
    """No engine of ours runs this call."""


def in_torch_words(error: AclnnError | MemoryError) -> Exception:
    """What PyTorch would raise."""
    if isinstance(error, MemoryError):
        return RuntimeError(f"openaclnn can't allocate memory: {error or 'there is none left'}")
    said = str(error.args[0])
    if not error.operator.startswith("aclnn"):  # an inner operator, which nobody calls by its name
        said = said.removeprefix(f"{error.operator}: ")
    if error.status == Status.ACLNN_ERR_INNER_FIND_KERNEL_ERROR:
        return UnservedError(said)
    if error.expected.startswith("class indices"):
        return IndexError(f"Target {error.got.partition(' ')[0]} is out of bounds. ({said})")
    if error.expected in ("a number", "an integer"):
        return TypeError(said)
    return RuntimeError(said)


def reduction_of(size_average: Any, reduce: Any) -> str:
    """The reduction that these two options, which PyTorch had before, ask for."""
    each = reduce is not None and not reduce
    return "none" if each else "mean" if size_average is None or size_average else "sum"


def warn_of(reduction: str) -> None:
    """That one was asked for by the two."""
    warnings.warn(
        f"size_average and reduce args will be deprecated, please use reduction={reduction!r} instead.",
        stacklevel=4,
    )


def check_version(version: str | None) -> None:
    """ImportError unless this version will do; None where there is none."""
    wanted = ".".join(map(str, LOWEST))
    how = f"openaclnn.torch needs PyTorch {wanted} or newer (pip install 'torch>={wanted}')"
    if version is None:
        raise ImportError(f"{how}, and there is none")
    if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < LOWEST:
        raise ImportError(f"{how}, and found {version}")


def _installed() -> str | None:
    try:
        return str(importlib.import_module("torch").__version__)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return None


check_version(_installed())
