"""Libraries that only some of the tools need, and the words for dtypes in lists, in commands and behind names of files."""

from __future__ import annotations

import importlib
from typing import Any

from openaclnn.core.dtypes import DType, dtype_of_name

__all__ = ["MissingLibraryError", "dtype_named", "need"]

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


_SHORT = {
    "fp16": "float16", "fp32": "float32", "fp64": "float64", "f16": "float16", "f32": "float32", "f64": "float64",
    "int": "int64", "half": "float16", "double": "float64", "attr_bool": "bool",
}  # fmt: skip


def dtype_named(name: str) -> DType:
    """A dtype by the name that a list gives it; ValueError where there is none of that name."""
    try:
        return dtype_of_name(_SHORT.get(name.strip().lower(), name.strip()))
    except KeyError as error:
        raise ValueError(error.args[0]) from None
