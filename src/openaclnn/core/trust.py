"""Where compiled code is kept between processes, and which files and folders are trusted: code in them is run, so nobody but
the caller and root may be able to write there.

A folder is trusted if it and every folder above it belong to the caller or root, and nobody else may write there. Folders above it may be open to
all where their sticky bit keeps others from moving what is in them, as in /tmp; symbolic links are followed, and what they name is held to the same.

The system gets paths as texts: without memory, Python says that a `Path` is no path.
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
"""A pattern of the names that files have until they are whole, today's and those of earlier versions."""

_MOST_LINKS = 40
_LARGEST = 1 << 28  # bytes of a file that is read
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)  # fmt: skip
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_told: set[tuple[str, str]] = set()


def why_untrusted(folder: Path) -> str | None:
    """Which path makes a folder untrusted, and why; None for a trusted one. What is not there, is no folder or cannot be
    reached is no reason: nothing can be read in it.

    From the top down: nobody else can change what stands in a folder that was found trusted, so that it stays so.
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
            about = os.lstat(str(here))
        except OSError:
            return None
        if stat.S_ISLNK(about.st_mode):
            links += 1
            if not _is_ours(about):
                return _of_another(here, about)
            if links > _MOST_LINKS:
                return f"{folder}: too many symbolic links"
            target = Path(os.readlink(str(here)))
            ahead[:0] = target.parts[target.is_absolute() :]
            here = Path("/") if target.is_absolute() else here.parent
            continue
        if not stat.S_ISDIR(about.st_mode):
            return None
        why = _why(here, about, sticky=bool(ahead))
        if why is not None:
            return why
    return None


def _is_ours(about: os.stat_result) -> bool:
    return about.st_uid in (0, os.geteuid())


def _of_another(path: Path, about: os.stat_result) -> str:
    return f"{path} belongs to user {about.st_uid}, not to user {os.geteuid()} or root"


def _why(path: Path, about: os.stat_result, sticky: bool = False) -> str | None:
    if not _is_ours(about):
        return _of_another(path, about)
    shared = about.st_mode & _OTHERS
    if shared and not (sticky and about.st_mode & stat.S_ISVTX):
        who = "everybody" if shared & stat.S_IWOTH else f"group {about.st_gid}"
        return f"{path} can be written by {who}"
    return None


def why_untrusted_tree(folder: Path) -> str | None:
    """The same of a folder and everything in it."""
    why = why_untrusted(folder)
    if why is not None or not hasattr(os, "geteuid"):
        return why
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *files)):
            about = os.lstat(path)
            # A link's mode says nothing, and what it names must be inside.
            if stat.S_ISLNK(about.st_mode):
                if not path.resolve().is_relative_to(folder.resolve()):
                    return f"{path} leads out of {folder}"
                about = path.stat()
            why = _why(path, about)
            if why is not None:
                return why
    return None


def warn_of(why: str, what: str) -> None:
    """Say once what is ignored, and why."""
    if (why, what) not in _told:
        _told.add((why, what))
        warnings.warn(f"{what} is ignored: {why}", RuntimeWarning, stacklevel=3)


def make_trusted(folder: Path) -> str | None:
    """Make a folder and those above it that are missing, for the caller alone; why it is not trusted, or None."""
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
    """A file's bytes; None where it is missing, or not trusted, of which there is a warning. The file that is read is the one that is checked."""
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
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _LARGEST:
            return None
        why = _why(path, about) if hasattr(os, "geteuid") else None
        if why is not None:
            warn_of(why, str(path))
            return None
        return file.read(_LARGEST)


def write_trusted(path: Path, data: bytes) -> None:
    """Write a file for the caller alone, whole or not at all.

    OSError where that cannot be; nothing is written into a folder that is not trusted, of which there is a warning.
    """
    why = make_trusted(path.parent)
    if why is not None:
        warn_of(why, f"compiled code in {path.parent}")
        return
    with replacing(str(path), private=True) as file:
        file.write(data)


def append_trusted(path: Path, head: bytes, line: bytes) -> None:
    """Add a line to a file that begins with `head`, in one step, as other processes may be adding theirs. What is not trusted is replaced;
    else as `write_trusted`."""
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
"""What a file with machine code begins with; the code's digest and the code follow."""


def cache_folder() -> Path | None:
    """`OPENACLNN_CACHE_DIR`, else openaclnn in the user's cache folder; it need not exist yet. None where there is no such folder."""
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
    if os.path.isabs(named):  # what is relative is to be ignored, says the XDG specification
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
