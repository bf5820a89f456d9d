"""Arrays in files: .npy, .npz, raw .bin, .safetensors and .pt, read by mapping them into memory where that can be.

Headers are checked before anything is allocated or mapped, and objects are never unpickled. Nothing is known here of operators or cases.
"""

from __future__ import annotations

import io
import json
import math
import operator
import os
import stat
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, NamedTuple

import numpy as np

from openaclnn.core.dtypes import BFLOAT16, DType, dtype_of_name, dtype_of_numpy
from openaclnn.core.interop import to_numpy
from openaclnn.core.results import usable_memory
from openaclnn.core.writing import replacing, reserve
from openaclnn.testing.extras import MissingLibraryError, dtype_named, need, shape_of

RAW = (".bin", ".raw", ".dat")
SUFFIXES = (".npy", ".npz", *RAW, ".safetensors", ".pt", ".pth")
"""The kinds of files, by the ends of their names."""

Array = np.ndarray[Any, Any]


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


def read_json(path: Path) -> Any:
    """What a JSON file holds: in UTF-8, -16 or -32, or as Chinese editors write it."""
    data = read_whole(path)
    try:
        try:
            return json.loads(data)
        except UnicodeDecodeError:
            return json.loads(data.decode("gb18030"))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not a JSON file: {error}") from None


@dataclass(frozen=True)
class Source:
    """Where an array lies: a file, and what else must be known to read it."""

    path: Path
    key: str = ""  # of a file that holds several arrays
    dtype: DType | None = None  # of a raw file
    shape: tuple[int, ...] | None = None


def split_name(text: str) -> Source:
    """`FILE`, `FILE:KEY` for files of several arrays, `FILE:DTYPE:2x3` (or `FILE:DTYPE`, and `FILE:DTYPE:` without axes) for raw ones."""
    path = Path(text)
    if path.suffix.lower() in SUFFIXES or os.path.isfile(path):  # a name may be too long to be one
        return Source(path)
    head, _, tail = text.rpartition(":")
    name, _, dtype = head.rpartition(":")
    suffix = Path(head).suffix.lower()
    if suffix in RAW:
        return Source(Path(head), dtype=raw_type(tail))
    if suffix == ".npy":
        why = "a .npy file holds one array, of a dtype that it says; compare --dtype says another"
        raise FileError(f"{text}: {why}")
    if suffix in SUFFIXES:
        return Source(Path(head), key=tail)
    if Path(name).suffix.lower() in RAW:
        try:
            return Source(Path(name), dtype=raw_type(dtype), shape=shape_of(tail) if tail else ())
        except ValueError as error:
            raise FileError(f"{name}: {error}") from None
    raise _unknown_kind(text)


def _unknown_kind(name: object) -> FileError:
    return FileError(f"{name}: a file named {', '.join(SUFFIXES)} is expected")


def raw_type(name: str) -> DType:
    """A dtype by name, for a raw file; FileError where arrays cannot have it."""
    try:
        dtype = dtype_named(name)
    except ValueError as error:
        raise FileError(str(error)) from None
    if not dtype.numpy_name:
        raise FileError(f"arrays of {dtype.name} cannot be read")
    return dtype


def _key_of(source: Source, keys: list[str]) -> str:
    if source.key in keys:
        return source.key
    if not source.key and len(keys) == 1:
        return keys[0]
    wanted = f"no {source.key!r}" if source.key else "several arrays"
    listed = ", ".join(key[:80] for key in keys[:20]) or "nothing"
    raise FileError(f"{source.path}: {wanted} in it; name one as FILE:KEY (it holds {listed})")


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
        why = error.strerror if isinstance(error, OSError) else None
        if not why:
            line = str(error).partition("\n")[0][:200] or type(error).__name__
            why = f"damaged, or not what its name says: {line}"
        raise FileError(f"{path}: {why}") from error


def _read(source: Source, most: int) -> Array:
    suffix = source.path.suffix.lower()
    if suffix == ".npy":
        return _read_npy(source.path)
    if suffix == ".npz":
        return _read_npz(source, most)
    if suffix == ".safetensors":
        return _read_safetensors(source)
    if suffix in (".pt", ".pth"):
        return _read_torch(source, most)
    if suffix in RAW or source.dtype is not None:
        return _read_raw(source)
    raise _unknown_kind(source.path)


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
    for number, (array, shape) in enumerate(zip(arrays, shapes, strict=True)):
        if shape is None and known and array.size == math.prod(known):
            arrays[number] = array.reshape(known)
    return arrays


def _read_raw(source: Source) -> Array:
    if source.dtype is None:
        raise FileError(f"{source.path}: a raw file needs a dtype, as FILE:float16:2x3")
    size, itemsize = source.path.stat().st_size, source.dtype.itemsize
    shape = source.shape if source.shape is not None else (size // itemsize,)
    if math.prod(shape) * itemsize != size:
        told = f"{size} bytes are not shape {shape} of {source.dtype.name}"
        raise FileError(f"{source.path}: {told}, which takes {math.prod(shape) * itemsize}")
    return _mapped(source.path, source.dtype.numpy, 0, shape)


def _mapped(path: Path, dtype: np.dtype[Any], start: int, shape: tuple[int, ...], order: Literal["C", "F"] = "C") -> Array:  # fmt: skip
    """A part of a file; of nothing there is no map."""
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", start, shape, order)


def create(file: BinaryIO, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:  # fmt: skip
    """A file's array, mapped to be filled in place; None where its kind, by `path`, is written as a whole."""
    suffix = path.suffix.lower()
    if 0 in shape or suffix not in (".npy", *RAW) or not file.readable():
        return None
    if suffix == ".npy":
        _write_header(file, shape, dtype)
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
    if suffix not in SUFFIXES:
        raise _unknown_kind(path)
    array = np.require(array, requirements="C")
    if suffix == ".npz":
        np.savez(file, output=array.view(_saved_type(array.dtype)))
    elif suffix in (".pt", ".pth"):
        _write_torch(file, path, array)
    else:
        if suffix == ".npy":
            _write_header(file, array.shape, array.dtype)
        elif suffix == ".safetensors":
            file.write(_safetensors_header(array, "output"))
        file.write(array.reshape(-1).view(np.uint8).data)


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,  # the same, but for names of fields
}


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]
    start: int  # of the data

    @property
    def order(self) -> Literal["C", "F"]:
        return "F" if self.fortran_order else "C"

    @property
    def end(self) -> int:
        return self.start + math.prod(self.shape) * self.dtype.itemsize


def _read_npy(path: Path) -> Array:
    """The array of a file, mapped."""
    with path.open("rb") as file:
        header = _read_header(path, file)
        size = file.seek(0, 2)
    if header.end > size:
        told = f"its shape {header.shape} ends at byte {header.end}; it has {size}"
        raise FileError(f"{path}: {told}")
    mapped = _mapped(path, header.dtype, header.start, header.shape, header.order)
    return mapped.view(_held_type(header.dtype))


def _read_npz(source: Source, most: int) -> Array:
    """One array of an archive, of at most so many bytes."""
    path = source.path
    if not zipfile.is_zipfile(path):
        raise FileError(f"{path}: not an .npz file")
    with zipfile.ZipFile(path) as packed:
        held = {each.filename.removesuffix(".npy"): each for each in packed.infolist()}
        entry = held[_key_of(source, list(held))]
        _check_size(path, entry.file_size, most)
        with packed.open(entry) as file:
            header = _read_header(path, file)
            if header.end != entry.file_size:
                raise FileError(f"{path}: its shape {header.shape} needs {header.end} bytes; {entry.file_size} are there")  # fmt: skip
            data = bytearray(header.end - header.start)
            place = memoryview(data)
            while place:
                count = file.readinto(place)  # type: ignore[attr-defined]
                if not count:
                    raise FileError(f"{path}: it ends too early")
                place = place[count:]
            file.read(1)  # at its end the archive's checksum is compared
    flat = np.frombuffer(data, header.dtype)
    return flat.reshape(header.shape, order=header.order).view(_held_type(header.dtype))


def _read_header(path: Path, file: IO[bytes]) -> _Header:
    try:
        read = _HEADERS[np.lib.format.read_magic(file)]
    except (KeyError, ValueError):
        raise FileError(f"{path}: not a file of numbers") from None
    shape, fortran_order, dtype = read(file)
    if dtype.hasobject or not dtype.itemsize:
        raise FileError(f"{path}: not a file of numbers")
    if any(size < 0 for size in shape):
        raise FileError(f"{path}: a shape has no negative sizes: {shape}")
    return _Header(shape, fortran_order, dtype, file.tell())


def _check_size(path: Path, size: int, most: int) -> None:
    """TooLargeError where a file's content is larger than may be read."""
    if size > most:
        raise TooLargeError(f"{path}: {size:,} bytes unpacked; at most {most:,} are read")


def _held_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """NumPy saves bfloat16 as two bare bytes."""
    return BFLOAT16.numpy if dtype == np.dtype("V2") else dtype


def _saved_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """As NumPy's files name it."""
    return np.dtype("V2") if dtype == BFLOAT16.numpy else dtype


def _write_header(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """What an .npy file begins with."""
    described = np.lib.format.dtype_to_descr(_saved_type(dtype))
    held = {"descr": described, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, held)


_MAXIMUM_HEADER = 100 << 20  # the format's own bound
_SAFE_TYPES = {
    "F64": "DOUBLE", "F32": "FLOAT", "F16": "FLOAT16", "BF16": "BFLOAT16", "I64": "INT64", "I32": "INT32",
    "I16": "INT16", "I8": "INT8", "U8": "UINT8", "U16": "UINT16", "U32": "UINT32", "U64": "UINT64", "BOOL": "BOOL",
}  # fmt: skip


def _read_safetensors(source: Source) -> Array:
    """The format is a length, a JSON header, and the tensors' bytes: mapped, so that only what is asked for is read."""
    size = source.path.stat().st_size
    with source.path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MAXIMUM_HEADER):
            raise FileError(f"{source.path}: not a safetensors file")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError):
            header = None
    if not isinstance(header, dict):
        raise FileError(f"{source.path}: not a safetensors file")
    header.pop("__metadata__", None)
    key = _key_of(source, list(header))
    try:
        entry = header[key]
        dtype = dtype_of_name(_SAFE_TYPES[entry["dtype"]])
        shape = tuple(operator.index(each) for each in entry["shape"])
        start, end = (operator.index(each) for each in entry["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise FileError(f"{source.path}: {key!r} is of no type that can be read") from None
    inside = 0 <= start <= end <= size - 8 - length and min(shape, default=0) >= 0
    if not inside or end - start != math.prod(shape) * dtype.itemsize:
        raise FileError(f"{source.path}: the place of {key!r} is not inside the file")
    return _mapped(source.path, dtype.numpy, 8 + length + start, shape)


def _read_torch(source: Source, most: int) -> Array:
    """A tensor of a .pt file, of at most so many bytes; nothing but weights is unpickled."""
    torch = need("torch", f"{source.path}: PyTorch reads it")
    if zipfile.is_zipfile(source.path):
        with zipfile.ZipFile(source.path) as packed:
            _check_size(source.path, sum(each.file_size for each in packed.infolist()), most)
    try:
        held = torch.load(source.path, map_location="cpu", weights_only=True)
    except Exception as error:  # unpicklers raise what they like
        told = str(error).partition("\n")[0][:200] or "it is empty or ends too early"
        if told.startswith("Weights only"):  # PyTorch's advice is to trust it
            told = "it holds more than tensors"
        raise FileError(f"{source.path}: PyTorch does not read it as weights: {told}") from error
    if not isinstance(held, torch.Tensor):
        if not isinstance(held, Mapping):
            raise FileError(f"{source.path}: a tensor, or tensors by name, are expected in it")
        named = {str(k): v for k, v in held.items() if isinstance(v, torch.Tensor)}
        held = named[_key_of(source, list(named))]
    # One number may stand for many.
    _check_size(source.path, held.numel() * held.element_size(), most)
    return to_numpy(held.detach())


def _safetensors_header(array: Array, key: str) -> bytes:
    """What a file of one tensor begins with; the tensor's bytes follow."""
    dtype = dtype_of_numpy(array.dtype)
    names = {long: short for short, long in _SAFE_TYPES.items()}
    if dtype is None or dtype.name not in names:
        raise FileError(f"safetensors files hold no {array.dtype}")
    entry = {"dtype": names[dtype.name], "shape": array.shape, "data_offsets": [0, array.nbytes]}
    header = json.dumps({key: entry}).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header


def _write_torch(file: BinaryIO, path: Path, array: Array) -> None:
    """A .pt file of one tensor."""
    torch = need("torch", f"{path}: PyTorch writes it")
    if array.dtype == BFLOAT16.numpy:
        tensor = torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(array.copy())
    held = io.BytesIO()  # where it writes itself, a full disk is some RuntimeError
    torch.save(tensor, held)
    file.write(held.getbuffer())
