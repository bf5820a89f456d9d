"""Machine code made at run time, through llvmlite: written in a small language of its own, compiled once, called as builtins.

The CPU engine's kernels, the GPU engine's launches and the fast path of repeated calls are written in it. Its modules import llvmlite, so
they are imported where they are needed and not before.

`values.py` and `code.py` are the language, `assembly.py` writes it as LLVM's, `kinds.py` has its types, `numbers.py` the arithmetic of sizes over its values and Python's ints. `cache.py` compiles and keeps
(`apart.py`: on a thread with a large stack; `ending.py`: a C program that ends waits for it). `builtins.py` makes functions for
Python and for C++, `callers.py` has what calls one that computes, `objects.py` knows Python's objects. `host.py` and `modes.py` know the machine.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util

from openaclnn.engines.machine import ending

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
    ending.loaded()
    return None
