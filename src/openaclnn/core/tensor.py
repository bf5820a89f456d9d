"""`Tensor`: a typed, strided view of memory that another object owns. `Scalar`: one number with a dtype."""

from __future__ import annotations

import ctypes
import math
import sys
import weakref
from enum import IntEnum
from typing import Any

import numpy as np

from openaclnn.core.dtypes import BFLOAT16, DOUBLE, FLOAT, FLOAT16, DType, dtype_of_numpy, float_of


class Format(IntEnum):
    """`aclFormat`."""

    ACL_FORMAT_UNDEFINED = -1
    ACL_FORMAT_NCHW = 0
    ACL_FORMAT_NHWC = 1
    ACL_FORMAT_ND = 2
    ACL_FORMAT_NC1HWC0 = 3
    ACL_FORMAT_FRACTAL_Z = 4
    ACL_FORMAT_NC1HWC0_C04 = 12
    ACL_FORMAT_HWCN = 16
    ACL_FORMAT_NDHWC = 27
    ACL_FORMAT_FRACTAL_NZ = 29
    ACL_FORMAT_NCDHW = 30
    ACL_FORMAT_NDC1HWC0 = 32
    ACL_FRACTAL_Z_3D = 33
    ACL_FORMAT_NC = 35
    ACL_FORMAT_NCL = 47
    ACL_FORMAT_FRACTAL_NZ_C0_16 = 50
    ACL_FORMAT_FRACTAL_NZ_C0_32 = 51
    ACL_FORMAT_FRACTAL_NZ_C0_2 = 52
    ACL_FORMAT_FRACTAL_NZ_C0_4 = 53
    ACL_FORMAT_FRACTAL_NZ_C0_8 = 54


PRIVATE_FORMATS = frozenset(
    each for each in Format if "C0" in each.name or "C1" in each.name or "FRACTAL" in each.name
)
"""The formats in which products lay out data internally."""


def element_count(shape: tuple[int, ...]) -> int:
    """How many elements a shape has; 1 for a 0-d shape."""
    return math.prod(shape)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    if len(shape) == 1:
        return (1,)
    if len(shape) == 2:
        return shape[1] or 1, 1
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size or 1
    return tuple(reversed(strides))


def is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether strides are the row-major ones; axes of one element do not matter."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 0:
            return True
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


_ND = int(Format.ACL_FORMAT_ND)  # a plain int: hashing an enum's member takes ten times as long
_new = object.__new__


class Tensor:
    """A view: element (i0, i1, ...) lies at `base + (offset + sum(ik * strides[k])) * itemsize`.

    Strides and offset count elements. The tensor never owns the memory; `owner` only keeps a Python
    object alive while the view is in use. `raw` marks memory known by its address alone, which the
    runtime checks against its allocations before a kernel may touch it; `block` is a weak reference to the one
    where it was last found. `pin` is what keeps a NumPy array where it is.
    """

    __slots__ = (
        "alive", "base", "block", "contiguous", "device", "dtype", "format", "given_strides", "offset", "owner", "pin", "raw",
        "shape", "storage_shape", "writable",
    )  # fmt: skip
    c_name = "aclTensor"

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
        format: int = _ND,
        storage_shape: tuple[int, ...] | None = None,
        base: int = 0,
        *,
        owner: Any = None,
        device: str = "cpu",
        raw: bool = False,
        writable: bool = True,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        # Whether the strides are the row-major ones, where they matter.
        self.contiguous = strides is None or is_row_major(shape, strides)
        self.given_strides = strides  # None for row-major ones that were not computed yet
        self.offset = offset
        self.format = format
        self.storage_shape = shape if storage_shape is None else storage_shape
        self.base = base
        self.owner = owner
        self.device = device
        self.raw = raw
        self.block: Any = None
        self.pin: Any = None
        self.writable = writable
        self.alive = True

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any]) -> Tensor:
        """View a NumPy array without copying; TypeError where its dtype or strides cannot be described."""
        dtype = dtype_of_numpy(array.dtype)
        if dtype is None:
            raise TypeError(
                f"an array of a dtype the interface has{_hint(array)}, got {array.dtype}"
            )
        shape, flags = array.shape, array.flags
        strides = None  # along axes of one element, which do not matter, the row-major ones
        if not flags.c_contiguous:
            itemsize, steps = dtype.itemsize, array.strides
            for size, step in zip(shape, steps, strict=True):
                if step % itemsize and size > 1:
                    raise TypeError(
                        f"strides that are whole elements of {itemsize} bytes, got {steps} bytes"
                    )
            strides = tuple([step // itemsize for step in steps])
        if _readable and type(array) is np.ndarray:  # `pinned` and `array_address`, inlined
            owner, pin = array, weakref.ref(array)
            base = _pointer_at(id(array) + _HEADER).value or 0
        else:
            owner, pin = pinned(array)
            base = array_address(array)
        return cls.view(shape, dtype, strides, base, owner, "cpu", flags.writeable, pin)

    @classmethod
    def view(
        cls,
        shape: tuple[int, ...],
        dtype: DType,
        strides: tuple[int, ...] | None,
        base: int,
        owner: Any,
        device: str,
        writable: bool = True,
        pin: Any = None,
    ) -> Tensor:
        """A view of an array, as `__init__` makes it, in less time: passing the arguments to `__init__` takes longer than all else."""
        tensor = _new(cls)
        tensor.shape = tensor.storage_shape = shape
        tensor.dtype = dtype
        tensor.given_strides = strides
        tensor.contiguous = strides is None or is_row_major(shape, strides)
        tensor.base = base
        tensor.owner = owner
        tensor.pin = pin
        tensor.block = None
        tensor.device = device
        tensor.format = _ND
        tensor.offset = 0
        tensor.raw = False
        tensor.writable = writable
        tensor.alive = True
        return tensor

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides in elements. Row-major ones are computed when they are first read."""
        strides = self.given_strides
        if strides is None:
            strides = self.given_strides = contiguous_strides(self.shape)
        return strides

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def empty(self) -> bool:
        return 0 in self.shape

    @property
    def address(self) -> int:
        """The address of element (0, 0, ...)."""
        return self.base + self.offset * self.dtype.itemsize

    def __repr__(self) -> str:
        return (
            f"Tensor({self.dtype}, shape={self.shape}, strides={self.strides}, offset={self.offset}, "
            f"device={self.device!r}, address={self.address:#x})"
        )


def pinned(array: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], Any]:
    """An array, and a weak reference to it: NumPy does not move the memory of an array that has one (`resize`)."""
    try:
        return array, weakref.ref(array)
    except TypeError:  # a weak proxy, which has no weak references and keeps nothing alive
        return array.view(), None


def array_address(array: np.ndarray[Any, Any]) -> int:
    """The address of a NumPy array's first element."""
    # A weak proxy's class says that it is an array, but its object has another layout.
    if _readable and type(array) is np.ndarray:
        return _pointer_at(id(array) + _HEADER).value or 0
    return _asked_address(array)


def _asked_address(array: np.ndarray[Any, Any]) -> int:
    address: int = array.ctypes.data
    return address


_pointer_at = ctypes.c_void_p.from_address
_HEADER = object.__basicsize__
_probe = np.zeros(2)[1:]
# NumPy's C interface has the address right after the object's header: 0.2 us to read it, 1.7 to ask for it.
_readable = sys.implementation.name == "cpython" and _pointer_at(
    id(_probe) + _HEADER
).value == _asked_address(_probe)


def extent(tensor: Tensor) -> tuple[int, int]:
    """The range of bytes that a view covers, relative to its first element: the lowest, and the one after the highest."""
    if tensor.contiguous:
        return 0, math.prod(tensor.shape) * tensor.dtype.itemsize
    low = high = 0
    for size, stride in zip(tensor.shape, tensor.strides, strict=True):
        if size == 0:
            return 0, 0
        reach = (size - 1) * stride
        if reach < 0:
            low += reach
        else:
            high += reach
    itemsize = tensor.dtype.itemsize
    return low * itemsize, (high + 1) * itemsize


def _hint(array: np.ndarray[Any, Any]) -> str:
    """A hint for an array of two-byte voids, as which NumPy saves bfloat16."""
    bare = array.dtype.kind == "V" and array.dtype.itemsize == 2 and array.dtype.names is None
    return " (bfloat16 read from a .npy file: array.view(ml_dtypes.bfloat16))" if bare else ""


_REAL = ("floating", "integer", "bool")


class Scalar:
    """One number with a dtype; operators compute with `float32()`. `bits` has the value's bits as an integer, or None, where it has more than 64 or was made of a float."""

    __slots__ = ("alive", "bits", "dtype", "number", "value")
    c_name = "aclScalar"

    def __init__(self, value: Any, dtype: DType) -> None:
        # Rounding to the declared type happens here, once, as a C program's own variable would.
        self.value = dtype.numpy.type(value)
        self.dtype = dtype
        # The value converted to FLOAT; None where there is no such number.
        self.number = self._converted() if dtype.kind in _REAL else None
        bits = self.value.tobytes()
        self.bits = int.from_bytes(bits, sys.byteorder, signed=True) if len(bits) <= 8 else None
        self.alive = True

    @classmethod
    def of(cls, value: Any) -> Scalar:
        """The scalar for a Python or NumPy number; TypeError for anything else."""
        if type(value) is float:
            scalar = _new(cls)
            scalar.value, scalar.dtype, scalar.alive = np.float64(value), DOUBLE, True
            scalar.number, scalar.bits = float_of(value), None
            return scalar
        if isinstance(value, Scalar):
            return value
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise TypeError(f"a number of 64 bits (or a float), got {value}")
        dtype = dtype_of_numpy(np.asarray(value).dtype) if np.isscalar(value) else None
        if dtype is None or isinstance(value, (str, bytes)):
            got = repr(value) if isinstance(value, (str, bytes)) else type(value).__name__
            raise TypeError(f"a number, got {got}")
        return cls(value, dtype)

    def float32(self) -> float:
        """The value converted to FLOAT, as a Python float."""
        return self._converted() if self.number is None else self.number

    def held_by(self, dtype: DType) -> int | float:
        """The value converted to a tensor's dtype, whatever the scalar's own dtype. Integer dtypes truncate and wrap around: in UINT8 both -1 and
        -1.0 are 255, as in PyTorch and C. A floating value beyond INT64 becomes the dtype's nearest, and NaN 0.
        """
        if dtype.kind != "integer":
            with np.errstate(over="ignore"):
                return float(np.asarray(self.float32()).astype(dtype.numpy))
        number = self.float32() if self.dtype.kind == "floating" else self.value
        if self.dtype.kind == "floating" and not abs(number) < 2**63:
            bounds = np.iinfo(dtype.numpy)
            return 0 if math.isnan(number) else int(bounds.max if number > 0 else bounds.min)
        return int(np.asarray(int(number)).astype(dtype.numpy))

    def _converted(self) -> float:
        if self.dtype is DOUBLE:
            return float_of(self.value)
        if self.dtype in (FLOAT, FLOAT16, BFLOAT16):
            return float(self.value)
        return float(np.float32(self.value))

    def __repr__(self) -> str:
        return f"Scalar({self.value}, {self.dtype})"
