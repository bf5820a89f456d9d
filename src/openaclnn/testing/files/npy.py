"""NumPy's files: .npy, which is mapped, and .npz, which says before it is unpacked how large it will be.

Headers are checked before anything is allocated or mapped, and objects are never unpickled.
"""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np

from openaclnn.core.dtypes import BFLOAT16
from openaclnn.testing.files.sources import FileError, Source, TooLargeError, key_of

__all__ = ["read_npy", "read_npz", "saved_type", "within", "write_header"]

Array = np.ndarray[Any, Any]
_SUFFIX = ".npy"
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


def read_npy(path: Path) -> Array:
    """The array of a file, mapped."""
    with path.open("rb") as file:
        header = _read_header(path, file)
        size = file.seek(0, 2)
    if header.end > size:
        raise FileError(
            f"{path}: its shape {header.shape} ends at byte {header.end}; it has {size}"
        )
    if header.end == header.start:
        return np.empty(header.shape, _own_type(header.dtype))
    mapped: Array = np.memmap(path, header.dtype, "r", header.start, header.shape, header.order)
    return mapped.view(_own_type(header.dtype))


def read_npz(source: Source, most: int) -> Array:
    """One array of an archive, of at most so many bytes."""
    path = source.path
    if not zipfile.is_zipfile(path):
        raise FileError(f"{path}: not an .npz file")
    with zipfile.ZipFile(path) as packed:
        held = {each.filename.removesuffix(_SUFFIX): each for each in packed.infolist()}
        entry = held[key_of(source, list(held))]
        within(path, entry.file_size, most)
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
    return flat.reshape(header.shape, order=header.order).view(_own_type(header.dtype))


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


def within(path: Path, size: int, most: int) -> None:
    """TooLargeError where a file's content is larger than may be read."""
    if size > most:
        raise TooLargeError(f"{path}: {size:,} bytes unpacked; at most {most:,} are read")


def _own_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """NumPy saves bfloat16 as two bare bytes."""
    return BFLOAT16.numpy if dtype == np.dtype("V2") else dtype


def saved_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """As NumPy's files name it."""
    return np.dtype("V2") if dtype == BFLOAT16.numpy else dtype


def write_header(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """What an .npy file begins with."""
    described = np.lib.format.dtype_to_descr(saved_type(dtype))
    held = {"descr": described, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, held)
