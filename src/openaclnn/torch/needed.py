"""PyTorch, as new as this face needs it; a sentence where it is not."""

from __future__ import annotations

import importlib
import re

__all__ = ["LOWEST", "check"]

LOWEST = (2, 11)
"""The lowest version that passes the tests; `pyproject.toml` has it in the extra `torch`."""


def check(found: str | None) -> None:
    """ImportError unless this version will do; None where there is none."""
    wanted = ".".join(map(str, LOWEST))
    how = f"openaclnn.torch needs PyTorch {wanted} or newer (pip install 'torch>={wanted}')"
    if found is None:
        raise ImportError(f"{how}, and there is none")
    if tuple(int(number) for number in re.findall(r"\d+", found)[:2]) < LOWEST:
        raise ImportError(f"{how}, and found {found}")


def _installed() -> str | None:
    try:
        return str(importlib.import_module("torch").__version__)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return None


check(_installed())
