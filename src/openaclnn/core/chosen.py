"""Blocks that choose something for the calls inside them (`use_product`, `use_engine`), and whether there is one anywhere.

A context can be copied inside a block and live on after it, with all that was chosen. So every block leaves a mark in its
context, always the same object: as long as a context has it, the interpreter counts one reference to it more.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

__all__ = ["REFERENCES", "choosing", "references_at"]

Choice = TypeVar("Choice")

_MARK = object()
_mark: ContextVar[object] = ContextVar("openaclnn_mark")


def references_at() -> int:
    """Where machine code reads, in 32 bits, how many references there are; with REFERENCES, nothing is chosen in any context."""
    return id(_MARK)


REFERENCES = ctypes.c_uint32.from_address(references_at()).value


@contextmanager
def choosing(variable: ContextVar[Choice], choice: Choice) -> Iterator[None]:
    """A block in whose context the variable has another value."""
    mark = _mark.set(_MARK)
    token = variable.set(choice)
    try:
        yield
    finally:
        variable.reset(token)
        _mark.reset(mark)
