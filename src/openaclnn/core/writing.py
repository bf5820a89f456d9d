"""Files that are written whole or not at all: until they are complete they have a name beside the target that nobody can guess. And
text from unknown sources, made harmless for a terminal or a spreadsheet.
"""

from __future__ import annotations

import errno
import io
import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO

HIDDEN = ".openaclnn-"
"""The prefix of the names of unfinished files and folders."""

_NEW = (
    os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
)
_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # of a file that is open already
_unfinished: set[str] = set()


@contextmanager
def replacing(path: str | os.PathLike[str], *, private: bool = False) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `path` when the block ends, and is removed where it fails.

    A link is followed to the file that it names, as `open` does; that file's mode stays. Pipes, devices and the
    process's own output are written as they are. A private file is the caller's alone, and takes the place of whatever
    is there, a link too. OSError names `path`.
    """
    name = os.fspath(path)
    held = None if private else _held(name)
    if held is not None and (not stat.S_ISREG(held.st_mode) or _is_stream(held)):
        with open(name, "wb") as stream:
            yield stream
        return
    target = name if private else os.path.realpath(name)
    part = beside(target) + ".part"
    _unfinished.add(part)
    try:
        file = _create(part, held, 0o600 if private else 0o666)
        try:
            yield file
            file.flush()
            if held is not None:  # else a machine that stops could have lost both
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):  # what is still buffered does not matter any more
                file.close()
            raise
        file.close()
        os.replace(part, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(part)
        if isinstance(error, OSError) and (
            error.filename == part or (error.filename is None and error.errno in _WRITING)
        ):
            raise OSError(error.errno, error.strerror, name) from error
        raise
    finally:
        _unfinished.discard(part)


def _held(name: str) -> os.stat_result | None:
    """The status of the file that is there, or None. OSError if it may not be written, or a link to it may not be followed."""
    try:
        held = os.stat(name)
        if stat.S_ISREG(held.st_mode):
            os.close(os.open(name, os.O_WRONLY))
    except FileNotFoundError:
        with suppress(FileNotFoundError):  # a link to nothing may be one that must not be followed
            os.close(os.open(name, os.O_WRONLY))
        return None
    return held


def _is_stream(held: os.stat_result) -> bool:
    """Whether it is a file to which this process prints, such as /dev/stdout: replacing it would lose what is printed later."""
    for number in (1, 2):
        with suppress(OSError):
            if os.path.samestat(held, os.fstat(number)):
                return True
    return False


def beside(target: str) -> str:
    """An unguessable name in the same folder, with the prefix HIDDEN."""
    return os.path.join(os.path.dirname(target), f"{HIDDEN}{secrets.token_hex(8)}")


def _create(part: str, held: os.stat_result | None, mode: int) -> BinaryIO:
    """Create the unfinished file, with a new file's mode, or with mode and owner of the file that it will replace."""
    try:
        number = os.open(part, _NEW, mode if held is None else stat.S_IMODE(held.st_mode) & 0o777)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.path.dirname(part)) from error
    if held is not None:
        with suppress(OSError, AttributeError):  # another's file, and we are not root
            os.fchown(number, held.st_uid, held.st_gid)
        with suppress(OSError, AttributeError):
            os.fchmod(number, stat.S_IMODE(held.st_mode))
    return os.fdopen(number, "w+b")


def reserve(file: BinaryIO, size: int) -> None:
    """Allocate so many bytes on the disk: if the disk is full, writing to a mapped file would end the process (SIGBUS)."""
    try:
        os.posix_fallocate(file.fileno(), 0, size)
        return
    except AttributeError:  # not on this system
        pass
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
    place, piece = file.tell(), bytes(1 << 20)
    for start in range(file.seek(0, os.SEEK_END), size, len(piece)):
        file.write(piece[: size - start])
    file.flush()
    file.seek(place)


@contextmanager
def replacing_text(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """`replacing` for text in UTF-8; ends of lines are as they are written."""
    with replacing(path) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        yield text
        text.detach()


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file as a whole."""
    with replacing(path) as file:
        file.write(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file of text in UTF-8 as a whole."""
    write_bytes(path, text.encode("utf-8"))


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """A folder beside `target` that is removed when the block ends, if it is still there."""
    folder = Path(beside(os.path.realpath(target)))
    _unfinished.add(str(folder))
    try:
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _unfinished.discard(str(folder))


def remove_unfinished() -> None:
    """Remove all unfinished files and folders, in a process that is about to be ended by a signal."""
    for part in tuple(_unfinished):
        shutil.rmtree(part, ignore_errors=True)
        with suppress(OSError):
            os.unlink(part)


_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
"""Characters that terminals act on: control characters of both sets except tab and line feed, and those that change the direction of text."""


def neutral(text: str) -> str:
    r"""The text with control characters as `\u001b`, which inside JSON's strings is the same character."""
    return _CONTROLS.sub(lambda control: f"\\u{ord(control[0]):04x}", text)


def without_nan(value: Any) -> Any:
    """A value for JSON, with NaN, infinities and objects of other types as text, since JSON lacks them."""
    if isinstance(value, dict):
        return {str(key): without_nan(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def cell_of(value: object) -> str:
    """A cell of a CSV file; text that a spreadsheet would take for a formula has an apostrophe before it."""
    text = str(value)
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
