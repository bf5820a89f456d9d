"""Arrays in files: .npy, .npz, raw .bin, .safetensors and .pt, read by mapping them into memory where that can be."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from openaclnn.core.dtypes import BFLOAT16, DType, dtype_of_name, dtype_of_numpy

__all__ = ["RAW", "SUFFIXES", "FileError", "Source", "create", "read_array", "split_name", "write_array"]  # fmt: skip

Array = np.ndarray[Any, Any]
RAW = (".bin", ".raw", ".dat")
SUFFIXES = (".npy", ".npz", *RAW, ".safetensors", ".pt", ".pth")
"""The kinds of files, by the ends of their names."""

_MAXIMUM_HEADER = 100 << 20  # the format's own bound
_SAFE_TYPES = {
    "F64": "DOUBLE", "F32": "FLOAT", "F16": "FLOAT16", "BF16": "BFLOAT16", "I64": "INT64", "I32": "INT32",
    "I16": "INT16", "I8": "INT8", "U8": "UINT8", "U16": "UINT16", "U32": "UINT32", "U64": "UINT64", "BOOL": "BOOL",
}  # fmt: skip


class FileError(ValueError):
    """A file that cannot be read or written, in one sentence."""


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
            return Source(Path(head), dtype=_type_named(tail))
        return Source(Path(head), key=tail)
    name, _, dtype = head.rpartition(":")
    if Path(name).suffix.lower() in RAW:
        return Source(Path(name), dtype=_type_named(dtype), shape=shape_of(tail))
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


def _type_named(name: str) -> DType:
    try:
        dtype = dtype_of_name({"fp16": "float16", "fp32": "float32"}.get(name.lower(), name))
    except KeyError:
        raise FileError(f"unknown dtype {name!r}") from None
    if not dtype.numpy_name:
        raise FileError(f"arrays of {dtype.name} cannot be read")
    return dtype


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
                return _typed(held[_key_of(source, list(held.files))])
        if suffix == ".safetensors":
            return _read_safetensors(source)
        if suffix in (".pt", ".pth"):
            return _read_torch(source)
        if suffix in RAW:
            return _read_raw(source)
    except FileError:
        raise
    except (OSError, ValueError, EOFError) as error:
        told = getattr(error, "strerror", None) or str(error).partition("\n")[0] or "cannot be read"
        raise FileError(f"{path}: {told}") from error
    raise FileError(f"{path}: a file named {', '.join(SUFFIXES)} is expected")


def _typed(array: Array) -> Array:
    """NumPy saves bfloat16 as two bare bytes."""
    bare = array.dtype.kind == "V" and array.dtype.itemsize == 2 and array.dtype.names is None
    return array.view(BFLOAT16.numpy) if bare else array


def _key_of(source: Source, keys: list[str]) -> str:
    if source.key in keys:
        return source.key
    if not source.key and len(keys) == 1:
        return keys[0]
    wanted = f"no {source.key!r}" if source.key else "several arrays"
    listed = ", ".join(keys[:20]) or "nothing"
    raise FileError(f"{source.path}: {wanted} in it; name one as FILE:KEY (it holds {listed})")


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


def _read_safetensors(source: Source) -> Array:
    """The format is a length, a JSON header, and the tensors' bytes: mapped, so that only what is asked for is read."""
    size = source.path.stat().st_size
    with source.path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MAXIMUM_HEADER):
            raise FileError(f"{source.path}: not a safetensors file")
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise FileError(f"{source.path}: not a safetensors file")
    header.pop("__metadata__", None)
    key = _key_of(source, list(header))
    try:
        entry = header[key]
        dtype = dtype_of_name(_SAFE_TYPES[entry["dtype"]])
        shape = tuple(int(each) for each in entry["shape"])
        start, end = (int(each) for each in entry["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise FileError(f"{source.path}: {key!r} is of no type that can be read") from None
    bytes_ = math.prod(shape) * dtype.itemsize
    if (
        not (0 <= start <= end <= size - 8 - length)
        or end - start != bytes_
        or min(shape, default=0) < 0
    ):
        raise FileError(f"{source.path}: the place of {key!r} is not inside the file")
    if not bytes_:
        return np.empty(shape, dtype.numpy)
    return np.memmap(source.path, dtype.numpy, "r", 8 + length + start, shape)


def _read_torch(source: Source) -> Array:
    from openaclnn.core.interop import to_numpy
    from openaclnn.testing.extras import need

    torch = need("torch", f"{source.path}: PyTorch reads it")
    try:
        held = torch.load(source.path, map_location="cpu", weights_only=True)
    except Exception as error:  # unpicklers raise what they like
        told = str(error).partition("\n")[0]
        raise FileError(f"{source.path}: PyTorch does not read it as weights: {told}") from error
    if not isinstance(held, torch.Tensor):
        named = {str(k): v for k, v in dict(held).items() if isinstance(v, torch.Tensor)}
        held = named[_key_of(source, list(named))]
    return to_numpy(held.detach())


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


def write_array(path: Path, array: Array, key: str = "output") -> None:
    """Write an array by the file's kind; what holds several holds it under `key`."""
    suffix = path.suffix.lower()
    array = np.require(array, requirements="C")
    bare = array.view(np.dtype("V2")) if array.dtype == BFLOAT16.numpy else array
    try:
        if suffix == ".npy":
            np.save(path, bare, allow_pickle=False)
        elif suffix == ".npz":
            np.savez(path, **{key: bare})  # type: ignore[arg-type]
        elif suffix in RAW:
            array.tofile(path)
        elif suffix == ".safetensors":
            path.write_bytes(_safetensors(array, key))
        elif suffix in (".pt", ".pth"):
            _write_torch(path, array)
        else:
            raise FileError(f"{path}: a file named {', '.join(SUFFIXES)} is expected")
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from error


def _safetensors(array: Array, key: str) -> bytes:
    dtype = dtype_of_numpy(array.dtype)
    names = {long: short for short, long in _SAFE_TYPES.items()}
    if dtype is None or dtype.name not in names:
        raise FileError(f"safetensors files hold no {array.dtype}")
    entry = {"dtype": names[dtype.name], "shape": array.shape, "data_offsets": [0, array.nbytes]}
    header = json.dumps({key: entry}).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + array.tobytes()


def _write_torch(path: Path, array: Array) -> None:
    from openaclnn.testing.extras import need

    torch = need("torch", f"{path}: PyTorch writes it")
    if array.dtype == BFLOAT16.numpy:
        tensor = torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(array.copy())
    torch.save(tensor, path)
