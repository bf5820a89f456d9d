"""Data types: one table, and the two relations between types that the interface documents.

Every dtype of the interface has one `DType` object; compare them by identity.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class DType:
    """One row of the table: the document's name, the C enumerator and its code, and equivalents elsewhere."""

    name: str
    code: int
    c_name: str
    itemsize: int  # bytes; 0 where elements are smaller than a byte or have no fixed size
    kind: str  # "floating", "integer", "complex", "bool" or "other"
    short: str = ""  # the promotion table's name
    numpy_name: str = ""
    torch_name: str = ""

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bfloat16 comes from ml_dtypes, which is imported here, on first use."""
        if not self.numpy_name:
            raise TypeError(f"{self.name} has no NumPy equivalent")
        if self.numpy_name == "bfloat16":
            import ml_dtypes

            name: Any = ml_dtypes.bfloat16
        else:
            name = self.numpy_name
        dtype: np.dtype[Any] = np.dtype(name)
        return dtype

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, tuple[int]]:
        return dtype_of_code, (self.code,)


UNDEFINED = DType("UNDEFINED", -1, "ACL_DT_UNDEFINED", 0, "other")
FLOAT = DType("FLOAT", 0, "ACL_FLOAT", 4, "floating", "f32", "float32", "float32")
FLOAT16 = DType("FLOAT16", 1, "ACL_FLOAT16", 2, "floating", "f16", "float16", "float16")
INT8 = DType("INT8", 2, "ACL_INT8", 1, "integer", "s8", "int8", "int8")
INT32 = DType("INT32", 3, "ACL_INT32", 4, "integer", "s32", "int32", "int32")
UINT8 = DType("UINT8", 4, "ACL_UINT8", 1, "integer", "u8", "uint8", "uint8")
INT16 = DType("INT16", 6, "ACL_INT16", 2, "integer", "s16", "int16", "int16")
UINT16 = DType("UINT16", 7, "ACL_UINT16", 2, "integer", "u16", "uint16", "uint16")
UINT32 = DType("UINT32", 8, "ACL_UINT32", 4, "integer", "u32", "uint32", "uint32")
INT64 = DType("INT64", 9, "ACL_INT64", 8, "integer", "s64", "int64", "int64")
UINT64 = DType("UINT64", 10, "ACL_UINT64", 8, "integer", "u64", "uint64", "uint64")
DOUBLE = DType("DOUBLE", 11, "ACL_DOUBLE", 8, "floating", "f64", "float64", "float64")
BOOL = DType("BOOL", 12, "ACL_BOOL", 1, "bool", "bool", "bool", "bool")
STRING = DType("STRING", 13, "ACL_STRING", 0, "other")
COMPLEX64 = DType("COMPLEX64", 16, "ACL_COMPLEX64", 8, "complex", "c64", "complex64", "complex64")
COMPLEX128 = DType(
    "COMPLEX128", 17, "ACL_COMPLEX128", 16, "complex", "c128", "complex128", "complex128"
)
BFLOAT16 = DType("BFLOAT16", 27, "ACL_BF16", 2, "floating", "bf16", "bfloat16", "bfloat16")
INT4 = DType("INT4", 29, "ACL_INT4", 0, "other")
UINT1 = DType("UINT1", 30, "ACL_UINT1", 0, "other")
COMPLEX32 = DType("COMPLEX32", 33, "ACL_COMPLEX32", 4, "complex", "c32", "", "complex32")
_SMALL_FLOATS = (
    DType("HIFLOAT8", 34, "ACL_HIFLOAT8", 1, "other"),
    DType("FLOAT8_E5M2", 35, "ACL_FLOAT8_E5M2", 1, "other"),
    DType("FLOAT8_E4M3FN", 36, "ACL_FLOAT8_E4M3FN", 1, "other"),
    DType("FLOAT8_E8M0", 37, "ACL_FLOAT8_E8M0", 1, "other"),
    DType("FLOAT6_E3M2", 38, "ACL_FLOAT6_E3M2", 0, "other"),
    DType("FLOAT6_E2M3", 39, "ACL_FLOAT6_E2M3", 0, "other"),
    DType("FLOAT4_E2M1", 40, "ACL_FLOAT4_E2M1", 0, "other"),
    DType("FLOAT4_E1M2", 41, "ACL_FLOAT4_E1M2", 0, "other"),
    DType("HIFLOAT4", 42, "ACL_HIFLOAT4", 0, "other"),
    DType("HIFLOAT4_SCALE", 43, "ACL_HIFLOAT4_SCALE", 0, "other"),
)

DTYPES: tuple[DType, ...] = (
    UNDEFINED, FLOAT, FLOAT16, INT8, INT32, UINT8, INT16, UINT16, UINT32, INT64, UINT64, DOUBLE,
    BOOL, STRING, COMPLEX64, COMPLEX128, BFLOAT16, INT4, UINT1, COMPLEX32, *_SMALL_FLOATS,
)  # fmt: skip

FLOATS: tuple[DType, ...] = (FLOAT, FLOAT16, BFLOAT16)
"""The three types that the operators compute with."""

INTEGERS: tuple[DType, ...] = (INT8, INT16, INT32, INT64, UINT8)
"""What some of them take beside those."""

_BY_CODE = {dtype.code: dtype for dtype in DTYPES}
_BY_SHORT = {dtype.short: dtype for dtype in DTYPES if dtype.short}
_BY_NUMPY_NAME = {dtype.numpy_name: dtype for dtype in DTYPES if dtype.numpy_name}
_BY_TORCH_NAME = {f"torch.{dtype.torch_name}": dtype for dtype in DTYPES if dtype.torch_name}
_BY_NAME = {dtype.name: dtype for dtype in DTYPES} | {
    dtype.c_name: dtype for dtype in DTYPES
} | {"FLOAT32": FLOAT, "FLOAT64": DOUBLE, "BF16": BFLOAT16}  # fmt: skip
_DLPACK_CODES = {"s": 0, "u": 1, "f": 2, "bf": 4, "c": 5, "bool": 6}  # by the short name's letters
_BY_DLPACK = {
    (_DLPACK_CODES[dtype.short.rstrip("0123456789")], 8 * dtype.itemsize): dtype
    for dtype in DTYPES
    if dtype.numpy_name
}
_BY_NUMPY: dict[np.dtype[Any], DType] = {}
_BY_TORCH: dict[Any, DType] = {}


def dtype_of_code(code: int) -> DType:
    """The dtype of an `aclDataType` value; UNDEFINED for a value the enumeration does not have."""
    return _BY_CODE.get(int(code), UNDEFINED)


def dtype_of_name(name: str) -> DType:
    """The dtype by a name that the documents use, in any case: FLOAT32, BF16, ACL_INT64, ..."""
    try:
        return _BY_NAME[name.upper()]
    except KeyError:
        from difflib import get_close_matches

        near = get_close_matches(name.upper(), _BY_NAME)
        known = near or [dtype.name for dtype in DTYPES if dtype.numpy_name]
        kind = "nearest" if near else "known"
        raise KeyError(f"unknown dtype {name!r}; {kind}: {', '.join(known)}") from None


def dtype_of_numpy(dtype: np.dtype[Any]) -> DType | None:
    """The dtype of a NumPy (or ml_dtypes) dtype in native byte order, or None."""
    known = _BY_NUMPY.get(dtype)
    if known is None and dtype.isnative and dtype.names is None and dtype.subdtype is None:
        known = _BY_NUMPY_NAME.get(dtype.name)
        if known is not None:
            _BY_NUMPY[dtype] = known
    return known


def dtype_of_torch(dtype: Any) -> DType | None:
    """The dtype of a torch dtype, or None; torch itself is not needed."""
    known = _BY_TORCH.get(dtype)
    if known is None:
        known = _BY_TORCH_NAME.get(str(dtype))
        if known is not None:
            _BY_TORCH[dtype] = known
    return known


def dtype_of_dlpack(code: int, bits: int) -> DType | None:
    """The dtype of DLPack's type code and bits, or None."""
    return _BY_DLPACK.get((code, bits))


def is_int64(number: int) -> bool:
    """Whether 64 bits have room for an integer, with its sign."""
    return -(1 << 63) <= number < 1 << 63


def float_of(number: float) -> float:
    """A number as FLOAT holds it; what is too large is infinite."""
    return ctypes.c_float(number).value


# The documented tensor-tensor promotion, row with column; "-" where the pair has no common type.
_PROMOTION = """
.     f32  f16  f64  bf16 s8   u8   s16  u16  s32  u32  s64  u64  bool c32  c64  c128
f32   f32  f32  f64  f32  f32  f32  f32  -    f32  -    f32  -    f32  c64  c64  c128
f16   f32  f16  f64  f32  f16  f16  f16  -    f16  -    f16  -    f16  c32  c64  c128
f64   f64  f64  f64  f64  f64  f64  f64  -    f64  -    f64  -    f64  c128 c128 c128
bf16  f32  f32  f64  bf16 bf16 bf16 bf16 -    bf16 -    bf16 -    bf16 c32  c64  c128
s8    f32  f16  f64  bf16 s8   s16  s16  -    s32  -    s64  -    s8   c32  c64  c128
u8    f32  f16  f64  bf16 s16  u8   s16  -    s32  -    s64  -    u8   c32  c64  c128
s16   f32  f16  f64  bf16 s16  s16  s16  -    s32  -    s64  -    s16  c32  c64  c128
u16   -    -    -    -    -    -    -    u16  -    -    -    -    -    -    -    -
s32   f32  f16  f64  bf16 s32  s32  s32  -    s32  -    s64  -    s32  c32  c64  c128
u32   -    -    -    -    -    -    -    -    -    u32  -    -    -    -    -    -
s64   f32  f16  f64  bf16 s64  s64  s64  -    s64  -    s64  -    s64  c32  c64  c128
u64   -    -    -    -    -    -    -    -    -    -    -    u64  -    -    -    -
bool  f32  f16  f64  bf16 s8   u8   s16  -    s32  -    s64  -    bool c32  c64  c128
c32   c64  c32  c128 c32  c32  c32  c32  -    c32  -    c32  -    c32  c32  c64  c128
c64   c64  c64  c128 c64  c64  c64  c64  -    c64  -    c64  -    c64  c64  c64  c128
c128  c128 c128 c128 c128 c128 c128 c128 -    c128 -    c128 -    c128 c128 c128 c128
"""


def _read_promotion() -> dict[tuple[DType, DType], DType]:
    header, *rows = (line.split() for line in _PROMOTION.strip().splitlines())
    return {
        (_BY_SHORT[row[0]], _BY_SHORT[column]): _BY_SHORT[cell]
        for row in rows
        for column, cell in zip(header[1:], row[1:], strict=True)
        if cell != "-"
    }


_promotion = _read_promotion()


def promote(first: DType, second: DType) -> DType | None:
    """The common type of two tensors, or None where the documented table has none."""
    return first if first is second else _promotion.get((first, second))


def can_cast(source: DType, target: DType) -> bool:
    """Whether a computed `source` may be written to a `target` output (range is not considered)."""
    if source is target:
        return True
    if target is COMPLEX32:  # not in the documented relation
        return False
    if source.kind == "complex":
        return target.kind == "complex"
    if source.kind == "floating":
        return target.kind in ("floating", "complex")
    if source.kind in ("integer", "bool"):
        return target.kind in ("integer", "floating", "complex")
    return False
