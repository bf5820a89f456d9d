"""Arrays in files: .npy, .npz, raw .bin, .safetensors and .pt, read by mapping them into memory where that can be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from openaclnn.core.dtypes import BFLOAT16
from openaclnn.testing.files.sources import (
    RAW,
    SUFFIXES,
    FileError,
    Source,
    key_of,
    raw_type,
    split_name,
)
from openaclnn.testing.files.weights import (
    read_safetensors,
    read_torch,
    safetensors_bytes,
    write_torch,
)

__all__ = ["create", "read_array", "read_together", "write_array"]

Array = np.ndarray[Any, Any]


def read_array(source: str | Path | Source) -> Array:
    """An array from a file; FileError says what is wrong with it."""
    if not isinstance(source, Source):
        source = split_name(str(source))
    path, suffix = source.path, source.path.suffix.lower()
    try:
        if suffix == ".npy":
            return _typed(np.load(path, mmap_mode="r", allow_pickle=False))
        if suffix == ".npz":
            with np.load(path, allow_pickle=False) as held:
                return _typed(held[key_of(source, list(held.files))])
        if suffix == ".safetensors":
            return read_safetensors(source)
        if suffix in (".pt", ".pth"):
            return read_torch(source)
        if suffix in RAW or source.dtype is not None:
            return _read_raw(source)
    except FileError:
        raise
    except (OSError, ValueError, EOFError) as error:
        told = getattr(error, "strerror", None) or str(error).partition("\n")[0] or "cannot be read"
        if "ickle" in told or "Python objects" in told:  # NumPy's advice is to trust it
            told = "not a file of numbers"
        raise FileError(f"{path}: {told}") from error
    raise FileError(f"{path}: a file named {', '.join(SUFFIXES)} is expected")


def read_together(sources: Sequence[Source], dtype: str | None = None) -> list[Array]:
    """Arrays of one shape; a raw file without a dtype has this one, and without a shape that of another."""
    arrays, shapes = [], []
    for source in sources:
        raw = source.path.suffix.lower() in RAW
        if raw and source.dtype is None and dtype is not None:
            source = replace(source, dtype=raw_type(dtype))
        arrays.append(read_array(source))
        shapes.append(arrays[-1].shape if not raw or source.shape is not None else None)
    known = next((shape for shape in shapes if shape is not None), None)
    return [
        array.reshape(known)
        if shape is None and known and array.size == math.prod(known)
        else array
        for array, shape in zip(arrays, shapes, strict=True)
    ]


def _typed(array: Array) -> Array:
    """NumPy saves bfloat16 as two bare bytes."""
    bare = array.dtype.kind == "V" and array.dtype.itemsize == 2 and array.dtype.names is None
    return array.view(BFLOAT16.numpy) if bare else array


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


def create(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
    """A file to be filled in place, mapped; None where its kind is written as a whole."""
    suffix = path.suffix.lower()
    if 0 in shape or suffix not in (".npy", *RAW):
        return None
    if suffix == ".npy":
        own = np.dtype("V2") if dtype == BFLOAT16.numpy else dtype
        mapped: Array = np.lib.format.open_memmap(path, "w+", own, shape)
        return mapped.view(dtype)
    return np.memmap(path, dtype, "w+", shape=shape)


def write_array(path: Path, array: Array) -> None:
    """Write an array by the file's kind; what holds several holds it as "output"."""
    suffix = path.suffix.lower()
    array = np.require(array, requirements="C")
    bare = array.view(np.dtype("V2")) if array.dtype == BFLOAT16.numpy else array
    try:
        if suffix == ".npy":
            np.save(path, bare, allow_pickle=False)
        elif suffix == ".npz":
            np.savez(path, output=bare)
        elif suffix in RAW:
            array.tofile(path)
        elif suffix == ".safetensors":
            path.write_bytes(safetensors_bytes(array, "output"))
        elif suffix in (".pt", ".pth"):
            write_torch(path, array)
        else:
            raise FileError(f"{path}: a file named {', '.join(SUFFIXES)} is expected")
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from error
