"""Arrays in files: .npy, .npz, raw .bin, .safetensors and .pt, read by mapping them into memory where that can be."""

from __future__ import annotations

import math
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from openaclnn.core.results import usable_memory
from openaclnn.core.writing import replacing, reserve
from openaclnn.testing.extras import MissingLibraryError
from openaclnn.testing.files.npy import read_npy, read_npz, saved_type, write_header
from openaclnn.testing.files.sources import (
    RAW,
    SUFFIXES,
    FileError,
    Source,
    raw_type,
    split_name,
)
from openaclnn.testing.files.weights import (
    read_safetensors,
    read_torch,
    safetensors_header,
    write_torch,
)

__all__ = ["create", "read_array", "read_together", "write_array", "write_into"]

Array = np.ndarray[Any, Any]


def read_array(source: str | Path | Source, most: int | None = None) -> Array:
    """An array from a file, of at most so many bytes where it is packed; FileError says what is wrong with it."""
    if not isinstance(source, Source):
        source = split_name(str(source))
    path = source.path
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise FileError(f"{path}: a regular file is expected")
        return _read(source, usable_memory() // 4 if most is None else most)
    except (FileError, MissingLibraryError):
        raise
    except MemoryError as error:
        raise FileError(f"{path}: reading it takes more memory than there is") from error
    except Exception as error:  # parsers raise what they like where a file is damaged
        raise FileError(f"{path}: {_told(error)}") from error


def _read(source: Source, most: int) -> Array:
    path, suffix = source.path, source.path.suffix.lower()
    if suffix == ".npy":
        return read_npy(path)
    if suffix == ".npz":
        return read_npz(source, most)
    if suffix == ".safetensors":
        return read_safetensors(source)
    if suffix in (".pt", ".pth"):
        return read_torch(source, most)
    if suffix in RAW or source.dtype is not None:
        return _read_raw(source)
    raise FileError(f"{path}: a file named {', '.join(SUFFIXES)} is expected")


def _told(error: Exception) -> str:
    """A parser's complaint in a line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    told = str(error).partition("\n")[0][:200] or type(error).__name__
    return f"damaged, or not what its name says: {told}"


def read_together(
    sources: Sequence[Source], dtype: str | None = None, most: int | None = None
) -> list[Array]:
    """Arrays of one shape; a raw file without a dtype has this one, and without a shape that of another."""
    arrays, shapes = [], []
    for source in sources:
        raw = source.path.suffix.lower() in RAW
        if raw and source.dtype is None and dtype is not None:
            source = replace(source, dtype=raw_type(dtype))
        arrays.append(read_array(source, most))
        shapes.append(arrays[-1].shape if not raw or source.shape is not None else None)
    known = next((shape for shape in shapes if shape is not None), None)
    return [
        array.reshape(known)
        if shape is None and known and array.size == math.prod(known)
        else array
        for array, shape in zip(arrays, shapes, strict=True)
    ]


def _read_raw(source: Source) -> Array:
    if source.dtype is None:
        raise FileError(f"{source.path}: a raw file needs a dtype, as FILE:float16:2x3")
    size, itemsize = source.path.stat().st_size, source.dtype.itemsize
    shape = source.shape if source.shape is not None else (size // itemsize,)
    if math.prod(shape) * itemsize != size:
        raise FileError(
            f"{source.path}: {size} bytes are not shape {shape} of {source.dtype.name}, "
            f"which takes {math.prod(shape) * itemsize}"
        )
    if size == 0:
        return np.empty(shape, source.dtype.numpy)
    return np.memmap(source.path, source.dtype.numpy, "r", shape=shape)


def create(file: BinaryIO, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:  # fmt: skip
    """A file's array, mapped to be filled in place; None where its kind, by `path`, is written as a whole."""
    suffix = path.suffix.lower()
    if 0 in shape or suffix not in (".npy", *RAW) or not file.readable():
        return None
    if suffix == ".npy":
        write_header(file, shape, dtype)
    start = file.tell()
    reserve(file, start + math.prod(shape) * dtype.itemsize)
    return np.memmap(file, dtype, "r+", start, shape)


def write_array(path: Path, array: Array) -> None:
    """Write an array by the file's kind; what holds several holds it as "output"."""
    with replacing(path) as file:
        write_into(file, path, array)


def write_into(file: BinaryIO, path: Path, array: Array) -> None:
    """`write_array` into a file that is open and will be named `path`."""
    suffix = path.suffix.lower()
    array = np.require(array, requirements="C")
    data = array.reshape(-1).view(np.uint8).data
    if suffix == ".npy":
        write_header(file, array.shape, array.dtype)
        file.write(data)
    elif suffix == ".npz":
        np.savez(file, output=array.view(saved_type(array.dtype)))
    elif suffix in RAW:
        file.write(data)
    elif suffix == ".safetensors":
        file.write(safetensors_header(array, "output"))
        file.write(data)
    elif suffix in (".pt", ".pth"):
        write_torch(file, path, array)
    else:
        raise FileError(f"{path}: a file named {', '.join(SUFFIXES)} is expected")
