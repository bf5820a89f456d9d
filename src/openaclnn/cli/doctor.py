"""`openaclnn doctor`, `openaclnn cache` and `openaclnn warmup`: what is there, what is missing, what is kept."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import stat
import time
from pathlib import Path
from typing import Any

import click

from openaclnn.cli.say import command_options, say, say_json, say_rows
from openaclnn.core.trust import (
    CODE_MARK,
    NO_FOLDER,
    UNFINISHED,
    cache_folder,
    read_trusted,
    why_ignored,
    why_unwritable,
)
from openaclnn.core.version import __version__

_LIBRARIES = {
    "numpy": "", "ml_dtypes": "", "rich": "", "click": "", "cffi": "", "llvmlite": "", "triton": "",
    "torch": "torch", "matplotlib": "tools", "markdown-it-py": "tools", "openpyxl": "tools", "pyyaml": "tools",
}  # fmt: skip


@click.command(short_help="Tell what is there and what is missing.")
@command_options
def doctor(as_json: bool) -> int:
    """Tell engines, compilers, GPUs, libraries and the cache: what is there, what is missing, how to get it.

    The status is 1 if no engine but NumPy's can be used.

    \b
    Example:
      openaclnn doctor
    """
    rows = [*_engines(), *_compilers(), *_gpus(), *_libraries(), _cache_row()]
    if not as_json:
        say(f"openaclnn {__version__}, Python {platform.python_version()}, {platform.platform()}")
    say_rows(("part", "name", "state", "about"), rows, as_json)
    usable = [name for part, name, state, _ in rows if part == "engine" and state == "there"]
    return 0 if any(name != "numpy" for name in usable) else 1


_LINKED = (
    "programs that openaclnn-config linked do not start until openaclnn-config --prefix is run"
)
_FOLDERS = re.compile(r"building-\w{8}|\d+\.\d+\S*-cpython-\d+-[0-9a-f]{16}")
_FILES = re.compile(rf"[0-9a-f]{{40}}\.(?:o|names|sources)|{UNFINISHED}")
Line = tuple[str, str, str, str]


def _line(part: str, name: str, missing: str | None, about: str = "") -> Line:
    return part, name, "there" if missing is None else "missing", missing or about


def _engines() -> list[Line]:
    from openaclnn.engines.dispatch import ENGINES

    rows = []
    for name, module in ENGINES.items():
        engine = importlib.import_module(module)
        reason = engine.unavailable()
        why = None if reason is None else str(reason).partition("\n")[0]
        rows.append(_line("engine", name, why, f"serves {', '.join(engine.DEVICES)} memory"))
    return rows


def _compilers() -> list[Line]:
    from openaclnn.capi.build import BuildError, find_toolchain

    try:
        chain = find_toolchain()
        rows = [_line("compiler", "C", None, " ".join(chain.compiler))]
    except BuildError as error:
        rows = [_line("compiler", "C", str(error).partition("\n")[0])]
    plus = next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)
    why = None if plus else "c++, g++ and clang++ are not on PATH; only C++ programs need one"
    return [*rows, _line("compiler", "C++", why, plus or "")]


def _gpus() -> list[Line]:
    """By the driver's own files: nothing is loaded for it."""
    cards = Path("/proc/driver/nvidia/gpus")
    rows = []
    for card in sorted(cards.iterdir()) if cards.is_dir() else []:
        text = (card / "information").read_text(encoding="utf-8", errors="replace")
        model = next((line for line in text.splitlines() if line.startswith("Model")), card.name)
        rows.append(_line("GPU", model.partition(":")[2].strip() or card.name, None))
    missing = "no driver is loaded; calls on CPU memory need none"
    return rows or [_line("GPU", "NVIDIA", missing)]


def _libraries() -> list[Line]:
    rows = []
    for name, extra in _LIBRARIES.items():
        try:
            version = importlib.metadata.version(name)
            rows.append(_line("library", name, None, _told_of(name, version)))
        except importlib.metadata.PackageNotFoundError:
            wanted = f"'openaclnn[{extra}]'" if extra else name
            rows.append(_line("library", name, f"pip install {wanted}"))
    return rows


def _told_of(name: str, version: str) -> str:
    """A version; of PyTorch also what its interfaces lack, which came with 2.10."""
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    if name != "torch" or numbers >= [2, 10]:
        return version
    return f"{version}: tensors take the slow path, and kernels under enable are Python's; 2.10 has the interfaces for the fast path"


def _cache_row() -> Line:
    folder = cache_folder()
    ignored = why_ignored(folder)
    if folder is None or ignored is not None:
        return "cache", str(folder or "none"), "ignored" if folder else "missing", str(ignored)
    size, count = _size(folder)
    about = f"trusted: {count} files, {size / 1e6:.1f} MB"
    return _line("cache", str(folder), why_unwritable(folder), about)


def _size(folder: Path) -> tuple[int, int]:
    """Bytes and files below a folder; what vanishes meanwhile counts for nothing."""
    size = count = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(place, name)).st_size
                count += 1
            except OSError:
                continue
    return size, count


@click.command(short_help="Tell where compiled things lie, or clear them.")
@click.argument("action", required=False, type=click.Choice(["clear"]))
@command_options
def cache(action: str | None, as_json: bool) -> None:
    """Tell where compiled things lie and how much there is; `clear` removes them.

    Among them are the C libraries: after `clear`, programs that were linked by openaclnn-config do not start until
    `openaclnn-config --prefix` has built those again.

    \b
    Example:
      openaclnn cache
      openaclnn cache clear
    """
    folder = cache_folder()
    if folder is None:
        raise click.ClickException(NO_FOLDER)
    ignored = why_ignored(folder)
    size, count = _clear(folder) if action == "clear" else _size(folder)
    answer: dict[str, Any] = {
        "folder": str(folder), "files": count, "bytes": size, "cleared": action == "clear", "ignored": ignored,
    }  # fmt: skip
    if as_json:
        say_json(answer)
    else:
        told = "removed from" if action == "clear" else "in"
        say(f"{count} files, {size / 1e6:.1f} MB {told} {folder}")
        if ignored is not None:
            say(f"it is ignored: {ignored}")
        if action == "clear":
            say(_LINKED)


def _clear(folder: Path) -> tuple[int, int]:
    """Remove what was compiled, by the names and marks that we give; anything else in the folder is somebody else's.

    Bytes and files that were removed; nothing in a folder that is not trusted.
    """
    from openaclnn.capi.build import is_installation

    size = count = 0
    if not folder.is_dir() or why_ignored(folder) is not None:
        return size, count
    for path in folder.iterdir():
        about = os.lstat(path)
        if stat.S_ISDIR(about.st_mode) and _FOLDERS.fullmatch(path.name) and is_installation(path):
            length, files = _size(path)
            shutil.rmtree(path, ignore_errors=True)
        elif stat.S_ISREG(about.st_mode) and _FILES.fullmatch(path.name) and _is_code(path):
            length, files = about.st_size, 1
            path.unlink(missing_ok=True)
        else:
            continue
        size, count = size + length, count + files
    return size, count


def _is_code(path: Path) -> bool:
    """Files of earlier versions have a digest alone."""
    data = read_trusted(path) or b""
    return data.startswith(CODE_MARK) or hashlib.sha256(data[32:]).digest() == data[:32]


@click.command()
@command_options
def warmup(as_json: bool) -> int:
    """Compile every CPU kernel, so that no later call waits.

    This takes minutes on few cores; kernels that are kept already take no time.

    \b
    Example:
      openaclnn warmup
    """
    from rich.console import Console
    from rich.progress import Progress

    from openaclnn.engines import cpu

    reason, full = cpu.unavailable(), why_unwritable(cache_folder())
    if reason is not None or full is not None:
        unusable = f"the CPU engine cannot be used: {reason}"
        say(f"openaclnn: {unusable if reason else f'nothing can be kept: {full}'}", error=True)
        return 1
    started = time.perf_counter()
    console = Console(stderr=True)
    if not console.is_terminal:
        say(f"compiling every CPU kernel into {cache_folder()}: this takes minutes", error=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("compiling")

        def show(done: int, total: int, kernel: str) -> None:
            progress.update(bar, completed=done, total=total, description=kernel)

        count = cpu.warmup(show)
    took, folder = time.perf_counter() - started, str(cache_folder())
    if as_json:
        say_json({"plans": count, "seconds": took, "folder": folder})
    else:
        say(f"{count} plans ready in {took:.1f} s; kept in {folder}")
    return 0
