"""Memory that is short for one of Python's objects, at a chosen allocation of a call."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Scarce"]


class Scarce:
    """Built from `scarce.c` in a folder."""

    def __init__(self, folder: Path) -> None:
        source, library = Path(__file__).with_name("scarce.c"), folder / "scarce.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", source, "-o", library], check=True)
        loaded = ctypes.PyDLL(str(library))
        self._begin, self._end = loaded.scarce_begin, loaded.scarce_end
        self._begin.argtypes, self._begin.restype, self._end.restype = (ctypes.c_long,), None, None

    @contextmanager
    def at(self, number: int) -> Iterator[None]:
        """The allocation of this number fails in the block."""
        try:
            self._begin(number)
            yield
        finally:
            self._end()
