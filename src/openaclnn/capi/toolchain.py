"""What it takes to build: a C compiler, this Python's headers and its library, cffi."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["BuildError", "Toolchain", "find_cffi", "find_toolchain"]


class BuildError(RuntimeError):
    """The C side cannot be built here; the text says what is missing and how to get it."""


@dataclass(frozen=True)
class Toolchain:
    """How to compile against this Python and how to link with it."""

    compiler: tuple[str, ...]
    includes: tuple[str, ...]
    link: tuple[str, ...]
    libpython: str  # the name by which the loader knows it; "" where it is linked in

    def run(self, arguments: Sequence[str], folder: Path) -> None:
        """Run the compiler in a folder; BuildError carries what it said."""
        command = [*self.compiler, *arguments]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        except OSError as error:
            raise BuildError(f"cannot run {command[0]}: {error}") from None
        if done.returncode:
            raise BuildError(f"{shlex.join(command)} failed:\n{done.stderr.strip()[-4000:]}")


def find_cffi() -> Any:
    """The `cffi` package, which only the C side needs."""
    try:
        import cffi
    except ImportError:
        raise BuildError(
            "the C side needs the Python package cffi: python -m pip install cffi"
        ) from None
    return cffi


def _compiler() -> tuple[str, ...]:
    asked = os.environ.get("CC", "").split()
    if asked:
        if shutil.which(asked[0]) is None:
            raise BuildError(f"the C side needs a C compiler, and CC names {asked[0]!r}: not found")
        return tuple(asked)
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return (name,)
    raise BuildError(
        "the C side needs a C compiler, and there is none: cc, gcc and clang are not on PATH. "
        "Install one (Debian: apt install gcc; Fedora: dnf install gcc) or name it in CC"
    )


def _includes() -> tuple[str, ...]:
    folders = dict.fromkeys(sysconfig.get_path(name) for name in ("include", "platinclude"))
    for folder in folders:
        if Path(folder, "Python.h").exists():
            return tuple(f"-I{name}" for name in folders)
    raise BuildError(
        f"the C side needs the headers of this Python, and {next(iter(folders))}/Python.h is not "
        "there (Debian: apt install python3-dev; Fedora: dnf install python3-devel)"
    )


def _libpython() -> tuple[tuple[str, ...], str]:
    """The link arguments for the interpreter, and the name of its shared library."""
    version = str(sysconfig.get_config_var("LDVERSION"))
    folder = str(sysconfig.get_config_var("LIBDIR"))
    shared = str(sysconfig.get_config_var("INSTSONAME") or "")
    system = [*shlex.split(str(sysconfig.get_config_var("SYSLIBS") or "")), "-ldl", "-lpthread"]
    if ".so" in shared and Path(folder, shared).exists():
        link = (str(Path(folder, shared)), f"-Wl,-rpath,{folder}", *system)
        return link, shared
    for candidate in (Path(folder), Path(str(sysconfig.get_config_var("LIBPL")))):
        archive = candidate / f"libpython{version}.a"
        if archive.exists():
            # All of it: extension modules find the interpreter's symbols here and nowhere else.
            extra = shlex.split(str(sysconfig.get_config_var("LIBS") or ""))
            whole = ("-Wl,--whole-archive", str(archive), "-Wl,--no-whole-archive")
            return (*whole, *extra, *system), ""
    raise BuildError(
        f"the C side needs the library of this Python, and neither {folder}/libpython{version}.so "
        f"nor libpython{version}.a is there (Debian: apt install libpython3-dev; pyenv: build with "
        "PYTHON_CONFIGURE_OPTS=--enable-shared)"
    )


def find_toolchain() -> Toolchain:
    """Everything but cffi; BuildError says what is missing."""
    compiler, includes = _compiler(), _includes()
    link, libpython = _libpython()
    return Toolchain(compiler, includes, link, libpython)
