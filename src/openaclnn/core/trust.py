"""Where compiled code is kept between processes, and which files and folders are trusted. Code in them is run, so only the caller and root may be able
to write there.

A folder is trusted if it and every folder above it belong to the caller or root, and nobody else may write there. Folders above it may be writable for
all if they have the sticky bit, which keeps others from moving files, as /tmp has. Symbolic links are followed, and their targets must be trusted, too.

Functions of the system are given paths as `str`: where memory is short, Python claims that a `Path` is no path.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import warnings
from pathlib import Path

from openaclnn.core.writing import replacing

UNFINISHED = r"writing-\w{8}|\.openaclnn-[0-9a-f]{16}\.part"
"""A pattern of the names of unfinished files, including those of earlier versions."""

_MOST_LINKS = 40
_LARGEST = 1 << 28  # bytes of a file that is read
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)  # fmt: skip
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_warned: set[tuple[str, str]] = set()


def why_untrusted(folder: Path) -> str | None:
    """Which path makes a folder untrusted, and why; None for a trusted one. A path that is missing, no folder or out of reach
    is no reason, since nothing can be read in it.

    Paths are checked from the top down: nobody else can change the contents of a folder that was found trusted.
    """
    if not hasattr(os, "geteuid"):  # Windows: the user's folders are the user's
        return None
    here, ahead, links = Path("/"), list(folder.absolute().parts[1:]), 0
    while ahead:
        name = ahead.pop(0)
        if name == "..":
            here = here.parent
            continue
        here /= name
        try:
            status = os.lstat(str(here))
        except OSError:
            return None
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if not _is_own(status):
                return _foreign(here, status)
            if links > _MOST_LINKS:
                return f"{folder}: too many symbolic links"
            target = Path(os.readlink(str(here)))
            ahead[:0] = target.parts[target.is_absolute() :]
            here = Path("/") if target.is_absolute() else here.parent
            continue
        if not stat.S_ISDIR(status.st_mode):
            return None
        why = _fault(here, status, sticky=bool(ahead))
        if why is not None:
            return why
    return None


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid())


def _foreign(path: Path, status: os.stat_result) -> str:
    return f"{path} belongs to user {status.st_uid}, not to user {os.geteuid()} or root"


def _fault(path: Path, status: os.stat_result, sticky: bool = False) -> str | None:
    if not _is_own(status):
        return _foreign(path, status)
    shared = status.st_mode & _OTHERS
    if shared and not (sticky and status.st_mode & stat.S_ISVTX):
        who = "everybody" if shared & stat.S_IWOTH else f"group {status.st_gid}"
        return f"{path} can be written by {who}"
    return None


def why_untrusted_tree(folder: Path) -> str | None:
    """Why a folder or anything in it is untrusted, or None."""
    why = why_untrusted(folder)
    if why is not None or not hasattr(os, "geteuid"):
        return why
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *files)):
            status = os.lstat(path)
            # A link's own mode means nothing; its target must lie inside the folder.
            if stat.S_ISLNK(status.st_mode):
                if not path.resolve().is_relative_to(folder.resolve()):
                    return f"{path} leads out of {folder}"
                status = path.stat()
            why = _fault(path, status)
            if why is not None:
                return why
    return None


def warn_of(why: str, what: str) -> None:
    """Warn that something is ignored, and why; once for each."""
    if (why, what) not in _warned:
        _warned.add((why, what))
        warnings.warn(f"{what} is ignored: {why}", RuntimeWarning, stacklevel=3)


def make_trusted(folder: Path) -> str | None:
    """Make a folder and missing ones above it, for the caller alone; returns why the folder is not trusted, or None."""
    missing = []
    place = folder.absolute()
    while not os.path.lexists(str(place)):
        missing.append(place)
        place = place.parent
    why = why_untrusted(folder)
    if why is None:
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.mkdir(str(each), 0o700)
        why = why_untrusted(folder)
    return why


def read_trusted(path: Path) -> bytes | None:
    """A file's bytes. None where it is missing, or, with a warning, where it is not trusted. The open file itself is checked, so it cannot be exchanged."""
    what = f"compiled code in {path.parent}"
    why = why_untrusted(path.parent)
    if why is not None:
        warn_of(why, what)
        return None
    try:
        handle = os.open(str(path), os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_BINARY", 0))
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            return None
        why = _fault(path, status) if hasattr(os, "geteuid") else None
        if why is not None:
            warn_of(why, str(path))
            return None
        return file.read(_LARGEST)


def write_trusted(path: Path, data: bytes) -> None:
    """Write a file for the caller alone, whole or not at all; OSError where that fails.

    Nothing is written into a folder that is not trusted; there is a warning instead.
    """
    why = make_trusted(path.parent)
    if why is not None:
        warn_of(why, f"compiled code in {path.parent}")
        return
    with replacing(str(path), private=True) as file:
        file.write(data)


def append_trusted(path: Path, head: bytes, line: bytes) -> None:
    """Add a line to a file that begins with `head`, in a single write, since other processes may add lines, too. A file that is missing or not trusted is
    written anew by `write_trusted`."""
    if read_trusted(path) is None:
        write_trusted(path, head + line)
        return
    handle = os.open(str(path), os.O_WRONLY | os.O_APPEND | _NO_FOLLOW | getattr(os, "O_BINARY", 0))
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


NO_FOLDER = "no home folder is known; set OPENACLNN_CACHE_DIR"

CODE_MARK = b"openaclnn compiled code\n"
"""The first bytes of a file with machine code; the code's digest and the code follow."""


def cache_folder() -> Path | None:
    """The folder `OPENACLNN_CACHE_DIR`, else openaclnn in the user's cache folder; it need not exist yet. None where no home folder is known."""
    asked = os.environ.get("OPENACLNN_CACHE_DIR")
    if asked:
        return Path(asked).absolute()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", ""), "AppData/Local"
    elif sys.platform == "darwin":
        base = "", "Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME", ""), ".cache"
    named, below = base
    if os.path.isabs(named):  # the XDG specification says that relative paths are to be ignored
        return Path(named, "openaclnn")
    home = _home()
    return None if home is None else home / below / "openaclnn"


def _home() -> Path | None:
    home = os.path.expanduser("~")
    return Path(home) if os.path.isabs(home) and os.environ.get("HOME") != "" else None


def why_ignored(folder: Path | None) -> str | None:
    """Why nothing of a cache folder is used, or None."""
    return NO_FOLDER if folder is None else why_untrusted(folder)


def why_unwritable(folder: Path | None) -> str | None:
    """Why nothing can be kept in a folder, or None; it need not exist yet."""
    if folder is None:
        return NO_FOLDER
    place = folder
    while not os.path.lexists(place):
        place = place.parent
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return why_untrusted(folder)
    return f"{place} cannot be written; set OPENACLNN_CACHE_DIR"
