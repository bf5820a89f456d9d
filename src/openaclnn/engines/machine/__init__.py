"""Machine code made at run time, through llvmlite: written word by word, compiled once, called as builtins.

The CPU engine's kernels, the GPU engine's launches and the short way of repeated calls are made with this. Its
modules import llvmlite, so whoever can do without imports them when they are needed.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util

__all__ = ["unusable"]


@functools.cache
def unusable() -> str | None:
    """Why nothing can be compiled here; None if it can. An installed llvmlite may lack a library of the system's."""
    compiler = "llvmlite, the compiler it writes code with,"
    if importlib.util.find_spec("llvmlite") is None:
        return f"{compiler} is not installed"
    try:
        importlib.import_module("llvmlite.binding")
    except (ImportError, OSError) as error:
        return f"{compiler} cannot be loaded ({error})"
    return None
