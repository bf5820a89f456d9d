"""Programs that call the C functions, for the fuzzer: `attack.c` takes what it draws from an input, and the libraries are built so that the C compiler's
coverage counts beside that of Python's lines.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from attack.table import table_source
from faults.programs import Wrong
from openaclnn.capi.build import Installation, installation
from openaclnn.runtime.memory import used_bytes

__all__ = ["Surface", "covered_libraries"]


def covered_libraries(folder: Path) -> Installation:
    """Libraries whose C code tells which edges it takes; in a folder, for the next time too."""
    with mock.patch.dict(os.environ, CC="cc -fsanitize-coverage=trace-pc"):
        return installation(folder)


class Surface:
    """The C functions of libraries, called as inputs say; what is compiled for that goes into a folder."""

    def __init__(self, installation: Installation, folder: Path) -> None:
        source, library = Path(__file__).parents[1] / "attack" / "attack.c", folder / "surface.so"
        (folder / "attack_table.h").write_text(table_source())
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-g", "-DATTACK_INPUT", str(source), f"-I{folder}", *installation.cflags, *installation.libs, "-pthread",
             "-o", str(library)],
            check=True,
        )  # fmt: skip
        loaded = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
        self._run: Callable[..., bytes | None] = loaded.attack_input
        loaded.attack_input.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_long))  # fmt: skip
        loaded.attack_input.restype = ctypes.c_char_p
        self._edges = (ctypes.c_uint8 * (1 << 16)).in_dll(loaded, "attack_edges")
        self._last = folder / "last_input"

    def run(self, data: bytes) -> int:
        """The calls of one program; the file tells which one it was that ended the process."""
        self._last.write_bytes(data)
        called = ctypes.c_long()
        told = self._run(data, len(data), called)
        if told is not None:
            raise Wrong(told.decode(errors="replace"))
        if used_bytes("cpu"):
            raise Wrong(f"{used_bytes('cpu')} bytes are left")
        return called.value

    def edges(self) -> list[int]:
        """The edges of C code that the last program reached."""
        reached = bytes(self._edges)
        return [place for place, value in enumerate(reached) if value]
