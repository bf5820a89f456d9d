"""No file that a command reads is written by it, and no two outputs go to one file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

__all__ = ["keep_apart"]


def keep_apart(inputs: Iterable[Path], outputs: Iterable[Path]) -> None:
    """Refuse, before anything is run, an output that is an input or another output, by whatever name."""
    taken = [(_identity(path), path, "read") for path in inputs]
    for output in outputs:
        own = _identity(output)
        for other, path, use in taken if own is not None else ():
            if own == other:
                names = (
                    str(output) if output == path else f"{output} and {path} are one file, which"
                )
                verb = (
                    "is read and would be written over"
                    if use == "read"
                    else "would be written twice"
                )
                raise click.UsageError(f"{names} {verb}")
        taken.append((own, output, "written"))


def _identity(path: Path) -> Any:
    """The same for every name of a file, also of one that is not there yet; None for pipes and devices."""
    try:
        held = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return None if _is_stream(held.st_mode) else (held.st_dev, held.st_ino)


def _is_stream(mode: int) -> bool:
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
