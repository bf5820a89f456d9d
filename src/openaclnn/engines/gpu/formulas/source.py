"""Functions made from text, whose source Triton finds again as if it lay in a file."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Iterable, Mapping
from typing import Any

import triton
import triton.language as tl

__all__ = ["constants", "define", "listed"]


def define(text: str, scope: Mapping[str, Any], **options: Any) -> Any:
    """The first of a text's functions as a `triton.jit` function; it sees the others and the scope."""
    file = f"<openaclnn {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    # Triton reads a function's source through `inspect`, which asks here before it asks the disk.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    everything = {"__name__": __name__, "tl": tl, **scope}
    made: dict[str, Any] = {}
    exec(compile(text, file, "exec"), everything, made)
    first, *others = made.values()
    everything.update((own.__name__, triton.jit(own)) for own in others)
    return triton.jit(**options)(first)


def listed(names: Iterable[str]) -> str:
    """Names as parameters or arguments that others follow."""
    return "".join(f"{name}, " for name in names)


def constants(names: Iterable[str]) -> str:
    """Names as parameters that are known when the code is made."""
    return "".join(f"{name}: tl.constexpr, " for name in names)
