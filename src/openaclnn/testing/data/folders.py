"""Folders that are written as a whole: whoever looks, and whenever the process is ended, finds the old or the new."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from openaclnn.core.writing import HIDDEN, beside, temporary_folder
from openaclnn.testing.files import FileError

__all__ = ["adding_to", "replacing_folder"]

_HERE = -100  # AT_FDCWD
_EXCHANGE = 2  # RENAME_EXCHANGE


@contextmanager
def adding_to(folder: Path, last: str) -> Iterator[Path]:
    """A folder to fill, whose entries are moved below `folder` when the block ends, the one named `last` as the last."""
    there = folder.is_dir()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _told_of(folder), temporary_folder(folder / last) as part:
            yield part
            for name in sorted(os.listdir(part), key=lambda name: (name == last, name)):
                os.rename(part / name, folder / name)
    except BaseException:
        if not there:
            with suppress(OSError):  # it is not empty
                folder.rmdir()
        raise


@contextmanager
def replacing_folder(folder: Path, ours: Collection[str]) -> Iterator[Path]:
    """A folder to fill that takes the place of `folder`, all at once, when the block ends.

    There may be none yet. What the old one holds beside `ours` (files, relative to it) is kept, in the new one. The old folder goes last: where
    the process is killed before, it stays beside the new one under a name of `temporary_folder`.
    """
    place = Path(os.path.realpath(folder))
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with _told_of(folder), temporary_folder(place) as part:
            yield part
            os.rename(part, place)
        return
    if Path.cwd().is_relative_to(place):
        raise FileError(f"{folder}: the current folder cannot be replaced as a whole; call this from outside it")  # fmt: skip
    with _told_of(folder), temporary_folder(place) as part:
        yield part
        _keep(place, part, ours)
        shutil.copymode(place, part)
        _exchange(part, place)
        _keep(part, place, ours)  # what has come since


@contextmanager
def _told_of(folder: Path) -> Iterator[None]:
    """Errors name the folder, not what stands in its place meanwhile."""
    try:
        yield
    except OSError as error:
        if HIDDEN not in f"{error.filename} {error.filename2}":
            raise
        raise FileError(f"{folder}: it cannot be written as a whole: {error.strerror}") from error


def _keep(old: Path, new: Path, ours: Collection[str]) -> None:
    """Give the new folder what is not ours of the old one: the same files, under a second name each."""
    for place, folders, files in os.walk(old, onerror=_fail):
        folders[:] = [name for name in folders if not name.startswith(HIDDEN)]
        inside = os.path.relpath(place, old)
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in (*files, *links):
            path = os.path.normpath(os.path.join(inside, name))
            if path in ours or os.path.lexists(new / path):
                continue
            (new / inside).mkdir(parents=True, exist_ok=True)
            try:
                os.link(old / path, new / path, follow_symlinks=False)
            except OSError:  # not on every disk
                shutil.copy2(old / path, new / path, follow_symlinks=False)
        if not folders and not files:
            (new / inside).mkdir(parents=True, exist_ok=True)


def _fail(error: OSError) -> None:
    """A folder that cannot be looked into may hold what must be kept."""
    raise error


def _exchange(one: Path, other: Path) -> None:
    """Let two folders have each other's names: in one step where the system has it, else in three."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    if rename is not None and not rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE):  # fmt: skip
        return
    aside = beside(str(other))
    os.rename(other, aside)
    try:
        os.rename(one, other)
    except BaseException:
        os.rename(aside, other)
        raise
    os.rename(aside, one)
