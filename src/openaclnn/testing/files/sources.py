"""Where an array lies: names of files, and what stands behind them."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from openaclnn.core.dtypes import DType
from openaclnn.testing.words import dtype_named

__all__ = [
    "RAW", "SUFFIXES", "FileError", "Source", "TooLargeError", "key_of", "raw_type", "read_whole", "shape_of", "split_name",
]  # fmt: skip

RAW = (".bin", ".raw", ".dat")
SUFFIXES = (".npy", ".npz", *RAW, ".safetensors", ".pt", ".pth")
"""The kinds of files, by the ends of their names."""


class FileError(ValueError):
    """A file that cannot be read or written, in one sentence."""


class TooLargeError(FileError):
    """A packed file whose content would take more memory than may be used."""


def read_whole(path: Path, largest: int = 1 << 28) -> bytes:
    """A file's bytes, or a pipe's; FileError where it is a device, cannot be read, or has more than so many."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not file.isatty()):
                raise FileError(f"{path}: a device, where a file is expected")
            data = file.read(largest + 1)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
    if len(data) > largest:
        raise FileError(f"{path}: more than {largest:,} bytes, which are not read")
    return data


@dataclass(frozen=True)
class Source:
    """Where an array lies: a file, and what else must be known to read it."""

    path: Path
    key: str = ""  # of a file that holds several arrays
    dtype: DType | None = None  # of a raw file
    shape: tuple[int, ...] | None = None


def split_name(text: str) -> Source:
    """`FILE`, `FILE:KEY` for files of several arrays, `FILE:DTYPE:2x3` (or `FILE:DTYPE`) for raw ones."""
    path = Path(text)
    if path.suffix.lower() in SUFFIXES or path.is_file():
        return Source(path)
    head, _, tail = text.rpartition(":")
    if Path(head).suffix.lower() in SUFFIXES:
        if Path(head).suffix.lower() in RAW:
            return Source(Path(head), dtype=raw_type(tail))
        if Path(head).suffix.lower() == ".npy":
            raise FileError(
                f"{text}: a .npy file holds one array, of a dtype that it says; compare --dtype says another"
            )
        return Source(Path(head), key=tail)
    name, _, dtype = head.rpartition(":")
    if Path(name).suffix.lower() in RAW:
        return Source(Path(name), dtype=raw_type(dtype), shape=shape_of(tail))
    raise FileError(f"{text}: a file named {', '.join(SUFFIXES)} is expected")


def shape_of(text: str) -> tuple[int, ...]:
    """`2x3` or `2,3`; nothing, or `()`, for one number without axes."""
    inner = text.strip("()[] ").replace("x", ",").rstrip(",")
    parts = inner.split(",") if inner else []
    try:
        shape = tuple(int(part) for part in parts)
    except ValueError:
        raise FileError(f"a shape like 2x3 is expected, not {text!r}") from None
    if any(size < 0 for size in shape):
        raise FileError(f"a shape has no negative sizes: {text!r}")
    return shape


def raw_type(name: str) -> DType:
    """A dtype by name, for a raw file; FileError where arrays cannot have it."""
    try:
        dtype = dtype_named(name)
    except ValueError as error:
        raise FileError(str(error)) from None
    if not dtype.numpy_name:
        raise FileError(f"arrays of {dtype.name} cannot be read")
    return dtype


def key_of(source: Source, keys: list[str]) -> str:
    if source.key in keys:
        return source.key
    if not source.key and len(keys) == 1:
        return keys[0]
    wanted = f"no {source.key!r}" if source.key else "several arrays"
    listed = ", ".join(key[:80] for key in keys[:20]) or "nothing"
    raise FileError(f"{source.path}: {wanted} in it; name one as FILE:KEY (it holds {listed})")
