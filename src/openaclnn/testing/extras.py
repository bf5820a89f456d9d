"""Libraries that only some of the tools need."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["MissingLibraryError", "need"]

_EXTRAS = dict.fromkeys(("matplotlib", "markdown_it", "openpyxl", "yaml"), "tools") | {
    "torch": "torch"
}


class MissingLibraryError(ImportError):
    """A library that is not installed, with the extra that has it."""


def need(module: str, purpose: str) -> Any:
    """Import a module; the refusal says what for, and how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        extra = _EXTRAS[module.partition(".")[0]]
        raise MissingLibraryError(
            f"{purpose}, which is not installed: pip install 'openaclnn[{extra}]'"
        ) from error
