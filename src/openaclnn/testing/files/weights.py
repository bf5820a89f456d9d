"""Tensors of models: .safetensors and .pt files."""

from __future__ import annotations

import io
import json
import math
import operator
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from openaclnn.core.dtypes import BFLOAT16, dtype_of_name, dtype_of_numpy
from openaclnn.core.interop import to_numpy
from openaclnn.testing.extras import need
from openaclnn.testing.files.npy import within
from openaclnn.testing.files.sources import FileError, Source, key_of

__all__ = ["read_safetensors", "read_torch", "safetensors_header", "write_torch"]

Array = np.ndarray[Any, Any]
_MAXIMUM_HEADER = 100 << 20  # the format's own bound
_SAFE_TYPES = {
    "F64": "DOUBLE", "F32": "FLOAT", "F16": "FLOAT16", "BF16": "BFLOAT16", "I64": "INT64", "I32": "INT32",
    "I16": "INT16", "I8": "INT8", "U8": "UINT8", "U16": "UINT16", "U32": "UINT32", "U64": "UINT64", "BOOL": "BOOL",
}  # fmt: skip


def read_safetensors(source: Source) -> Array:
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
    key = key_of(source, list(header))
    try:
        entry = header[key]
        dtype = dtype_of_name(_SAFE_TYPES[entry["dtype"]])
        shape = tuple(operator.index(each) for each in entry["shape"])
        start, end = (operator.index(each) for each in entry["data_offsets"])
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


def read_torch(source: Source, most: int) -> Array:
    """A tensor of a .pt file, of at most so many bytes; nothing but weights is unpickled."""
    torch = need("torch", f"{source.path}: PyTorch reads it")
    if zipfile.is_zipfile(source.path):
        with zipfile.ZipFile(source.path) as packed:
            within(source.path, sum(each.file_size for each in packed.infolist()), most)
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
        held = named[key_of(source, list(named))]
    within(source.path, held.numel() * held.element_size(), most)  # one number may stand for many
    return to_numpy(held.detach())


def safetensors_header(array: Array, key: str) -> bytes:
    """What a file of one tensor begins with; the tensor's bytes follow."""
    dtype = dtype_of_numpy(array.dtype)
    names = {long: short for short, long in _SAFE_TYPES.items()}
    if dtype is None or dtype.name not in names:
        raise FileError(f"safetensors files hold no {array.dtype}")
    entry = {"dtype": names[dtype.name], "shape": array.shape, "data_offsets": [0, array.nbytes]}
    header = json.dumps({key: entry}).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header


def write_torch(file: BinaryIO, path: Path, array: Array) -> None:
    """A .pt file of one tensor."""
    torch = need("torch", f"{path}: PyTorch writes it")
    if array.dtype == BFLOAT16.numpy:
        tensor = torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(array.copy())
    held = io.BytesIO()  # where it writes itself, a full disk is some RuntimeError
    torch.save(tensor, held)
    file.write(held.getbuffer())
