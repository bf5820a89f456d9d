"""Machine code made at run time, through llvmlite: Python code writes a function in a small language, which is compiled once and called as a builtin.

The CPU engine's kernels, the GPU engine's launches and the fast path of repeated calls are written in it. Its modules import llvmlite, so
they are imported only where they are needed.

`values.py` has the language's expressions, `code.py` its statements, `kinds.py` its types; `assembly.py` writes LLVM's text, and `numbers.py` has arithmetic of sizes for values and for Python
ints. `cache.py` compiles functions and caches them (`compile_thread.py`: on a thread with a large stack; `process_exit.py`: a C program that ends waits for LLVM). `builtins.py` makes them callable
from Python and C++, `callers.py` is the calling convention of runners, `objects.py` has the memory layout of Python's objects, `host.py` and `modes.py` describe the CPU.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util

from openaclnn.engines.machine import process_exit

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
    process_exit.note_loaded()
    return None
