"""Arrays of other libraries: they are viewed as `Tensor` without copying, and results are allocated in the caller's library.

A library is used only if the caller has imported it.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core import results
from openaclnn.core.dtypes import DType, dtype_of_dlpack, dtype_of_torch
from openaclnn.core.tensor import Tensor, array_address, contiguous_strides, extent
from openaclnn.core.torch_names import is_fake, raw_stream, recorders

PRODUCER_ERRORS = (
    ArithmeticError, AttributeError, BufferError, LookupError, ReferenceError, RuntimeError, ValueError,
)  # fmt: skip
"""Exceptions that broken arrays raise. Others, which may come from a signal handler, are not caught."""


def is_number(value: Any) -> bool:
    """Whether this is a bare real number, which takes the dtype of the tensors beside it."""
    return issubclass(type(value), (int, float, np.bool_, np.integer, np.floating))


def torch_tensor() -> Any:
    """PyTorch's class of tensors if PyTorch is imported; else `()`, of which `isinstance` finds no instances."""
    return getattr(sys.modules.get("torch"), "Tensor", ())


def _is_torch(value: Any) -> bool:
    return isinstance(value, torch_tensor())


def stream_of(value: Any) -> int:
    """The GPU stream that work on this array belongs on; 0 for CPU memory and for the default stream."""
    if isinstance(value, np.ndarray):
        return 0
    if _is_torch(value):
        if not value.is_cuda:
            return 0
        return _current_stream()(value.device.index)
    return int(sys.modules["cupy"].cuda.get_current_stream().ptr) if _is_cupy(value) else 0


def is_tracked_leaf(value: Any) -> bool:
    """Whether autograd would refuse to have this written: a leaf that requires grad, while gradients are recorded."""
    if not _is_torch(value) or not value.requires_grad:
        return False
    return bool(value.is_leaf and sys.modules["torch"].is_grad_enabled())


def mark_written(*values: Any) -> None:
    """Tell autograd that tensors are written outside it, so that a backward pass that saved one of them raises."""
    for value in values:
        if _is_torch(value):
            sys.modules["torch"].autograd.graph.increment_version(value)


class HeldStorage(NamedTuple):
    """The owner of a view of a PyTorch tensor: the storage, which stays if `.data` is replaced, and the tensor; and address and size of
    the storage's memory, which `resize_` may change."""

    storage: Any
    tensor: Any
    start: int
    size: int

    def stays(self) -> bool:
        """Whether the storage has its memory still."""
        storage = self.storage
        return bool(storage.data_ptr() == self.start and storage.nbytes() == self.size)


_new_held = tuple.__new__  # takes a third of the time of `HeldStorage(...)`


def check_recorder() -> None:
    """TypeError while `torch.jit.trace` or `make_fx` records PyTorch's operations in this thread: it would miss ours."""
    recorder, (is_tracing, modes, is_included, key) = "", _recorder_queries()
    if is_tracing():
        recorder = "torch.jit.trace"
    # The dispatcher includes a key while there is a mode before dispatch; asking for the mode itself takes 2 us.
    elif modes() or is_included(key):
        proxy = sys.modules.get("torch.fx.experimental.proxy_tensor")
        if proxy is not None and proxy.get_proxy_mode() is not None:
            recorder = "make_fx"
    if recorder:
        raise TypeError(f"a call outside graphs that record PyTorch alone, got one in {recorder}")


@functools.cache
def _current_stream() -> Callable[[int], int]:
    return raw_stream()


@functools.cache
def _recorder_queries() -> tuple[Any, Any, Any, Any]:
    """The functions that say whether somebody records, and the key to ask about."""
    return sys.modules["torch"].jit.is_tracing, *recorders()


def _is_cupy(value: Any) -> bool:
    return isinstance(value, getattr(sys.modules.get("cupy"), "ndarray", ()))


def as_tensor(value: Any) -> Tensor:
    """View an array of any supported kind; TypeError says "<expected>, got <what>" otherwise."""
    if type(value) is np.ndarray:
        return Tensor.from_numpy(value)
    if type(value) is Tensor:
        return value
    try:
        if not _is_torch(value):
            return _from_producer(value)
        viewers.setdefault(sys.modules["torch"].Tensor, view_torch)
        check_recorder()
        return view_torch(value)
    except TypeError:
        raise
    except PRODUCER_ERRORS as error:
        raise TypeError(
            f"an array that can be read, got a {type(value).__name__}: {error}"
        ) from None


viewers: dict[type, Callable[[Any], Tensor]] = {np.ndarray: Tensor.from_numpy}
"""Functions that `as_tensor` ends in for arrays of exactly these types, for quick use; PyTorch's is here once a tensor came. They do not check that
nobody records, and leave errors to `as_tensor`."""


def viewers_now() -> Mapping[type, Callable[[Any], Tensor]]:
    """The viewers that a call may use; none while somebody records, which is asked once for all its arrays, since that takes 0.4 us."""
    if len(viewers) > 1:
        try:
            check_recorder()
        except TypeError:
            return {}
    return viewers


def _from_producer(value: Any) -> Tensor:
    """View an array of another library by the interface that it has: DLPack, or NumPy's or CUDA's array interface."""
    if isinstance(value, np.ndarray):
        if hasattr(value, "_mask"):
            raise TypeError("an array without a mask (fill it first), got a masked array")
        return Tensor.from_numpy(np.asarray(value))  # a subclass may report another shape or dtype
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "__dlpack__"):
        # On a GPU the producer is told on which stream we read: CuPy's arrays on its current stream, which needs no waiting
        # (-1), others on the default stream (1), which their pending work must then precede.
        return from_dlpack(value, stream=-1 if _is_cupy(value) else 1)
    if hasattr(value, "__array_interface__"):
        return Tensor.from_numpy(np.asarray(value))
    if hasattr(value, "__cuda_array_interface__"):
        return _from_cuda_interface(value)
    kind = type(value).__name__
    raise TypeError(f"an array (NumPy, DLPack or array interface), got {kind}")


def view_torch(value: Any) -> Tensor:
    """View a PyTorch tensor. The caller has made sure that nobody records PyTorch's operations."""
    torch, dtype, on_host = sys.modules["torch"], dtype_of_torch(value.dtype), value.is_cpu
    if dtype is None:
        raise TypeError(f"a tensor of a dtype the interface has, got {value.dtype}")
    if value.layout is not torch.strided or (not on_host and value.is_meta):
        raise TypeError(f"a strided tensor with data, got {value.layout} on {value.device}")
    if value.is_neg() or (dtype.kind == "complex" and value.is_conj()):
        raise TypeError("a tensor without a pending negation or conjugation, got a lazy view")
    if type(value) is not torch.Tensor:
        if is_fake(value):
            raise TypeError("a tensor with memory of its own, got a FakeTensor")
    try:
        shape, storage, address = tuple(value.shape), value.untyped_storage(), value.data_ptr()
        start, size = value.storage_offset() * dtype.itemsize, storage.nbytes()
        # Along axes of one element, which do not matter, the row-major ones.
        strides = None if value.is_contiguous() else value.stride()
    except (RuntimeError, NotImplementedError) as error:  # wrapped by vmap or grad, nested, opaque
        reason = str(error).partition(".")[0]
        kind = type(value).__name__
        raise TypeError(f"a tensor with memory of its own, got a {kind}: {reason}") from None
    device = "cpu" if on_host else _name_of_device(value.device)
    owner = _new_held(HeldStorage, (storage, value, address - start, size))
    view = Tensor.view(shape, dtype, strides, address, owner, device)
    if 0 not in shape:
        dense = strides is None and type(value) is torch.Tensor  # a subclass may report other bytes
        low, high = (0, value.nbytes) if dense else extent(view)
        if not address or start + low < 0 or start + high > size:
            kind = type(value).__name__
            lacks = f"whose view needs {start + high} bytes of {size}" if address else "without any"
            raise TypeError(
                f"a tensor whose view lies inside memory of its own, got a {kind} {lacks}"
            )
    return view


@functools.cache
def _name_of_device(device: Any) -> str:
    return device_name(device.type, device.index or 0)


def _from_cuda_interface(value: Any) -> Tensor:
    interface = value.__cuda_array_interface__
    typed = np.dtype(interface["typestr"])
    probe = Tensor.from_numpy(np.empty(0, typed))
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    address, read_only = interface["data"]
    steps = None if strides is None else tuple(step // typed.itemsize for step in strides)
    device = device_name("cuda", 0)
    return Tensor.view(shape, probe.dtype, steps, address, value, device, not read_only)


def torch_dtype(dtype: DType) -> Any:
    """PyTorch's dtype for one of ours."""
    return getattr(sys.modules["torch"], dtype.torch_name)


def address_of(array: Any) -> int:
    """The address of the first element of an array that we allocated."""
    if isinstance(array, np.ndarray):
        return array_address(array)
    address: int = array.data_ptr() if _is_torch(array) else as_tensor(array).address
    return address


def allocate_like(value: Any, shape: tuple[int, ...], dtype: DType) -> tuple[Any, Any]:
    """A fresh array to compute a result into, beside `value`, and a function that converts it to the library's class, if it needs one."""
    if isinstance(value, np.ndarray):
        return results.empty(shape, dtype.numpy), None
    if _is_torch(value):
        torch = sys.modules["torch"]
        kind = torch_dtype(dtype)
        if value.is_cpu:
            return results.empty_tensor(shape, contiguous_strides(shape), kind), None
        with results.undisturbed():
            return torch.empty(shape, dtype=kind, device=value.device), None
    if value is not None and as_tensor(value).device != "cpu":
        return _allocate_on_device(value, shape, dtype), None
    buffer = results.empty(shape, dtype.numpy)
    if isinstance(value, Tensor) or not hasattr(value, "__array_namespace__"):
        return buffer, None
    return buffer, value.__array_namespace__().asarray


def _allocate_on_device(value: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """A fresh array of the same library on the same device. Arrays of JAX are immutable, but this one is written before the caller gets it."""
    library = _library_of(value)
    if not hasattr(library, "empty"):
        kind = type(value).__name__
        raise TypeError(f"out=, since no result can be made beside such an array, got {kind}")
    fresh = library.empty(shape, dtype=dtype.numpy)
    for array in (value, fresh):
        if hasattr(array, "block_until_ready"):  # JAX would not order its pending work before ours
            array.block_until_ready()
    return fresh


def _library_of(value: Any) -> Any:
    """The module that makes such arrays: its array namespace, or the package of its class (CuPy)."""
    if hasattr(value, "__array_namespace__"):
        return value.__array_namespace__()
    return sys.modules.get(type(value).__module__.partition(".")[0])


def to_numpy(value: Any) -> np.ndarray[Any, Any]:
    """A NumPy array of the same values and dtype; it may be a copy."""
    if isinstance(value, np.ndarray) or is_number(value):
        return np.asarray(value)
    tensor = as_tensor(value)
    if tensor.device != "cpu":
        raise TypeError(f"an array in CPU memory, got {tensor.device}")
    return view_memory(tensor).copy()  # the memory's owner may live no longer than this call


def view_memory(tensor: Tensor) -> np.ndarray[Any, Any]:
    """A NumPy view of a tensor in CPU memory; valid while the tensor's owner lives."""
    return strided_view(tensor.address, tensor.dtype, tensor.shape, tensor.strides)


def strided_view(
    address: int, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """A NumPy view of raw CPU memory; strides count elements and may be negative."""
    itemsize = dtype.itemsize
    low = high = 0
    for size, stride in zip(shape, strides, strict=True):
        if size == 0:
            return np.empty(shape, dtype.numpy)
        reach = (size - 1) * stride * itemsize
        low, high = low + min(reach, 0), high + max(reach, 0)
    memory: Any = (ctypes.c_char * (high - low + itemsize)).from_address(address + low)
    return np.ndarray(
        shape, dtype.numpy, memory, -low, tuple(stride * itemsize for stride in strides)
    )


# We read DLPack's descriptors ourselves: NumPy's reader takes neither bfloat16 nor device memory.
class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _VersionedTensor(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_DLPACK_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 10: "rocm", 13: "cuda"}
_READ_ONLY = 1
# Not `ctypes.pythonapi.PyCapsule_GetName`: another package may set other argument types there.
_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
MOST_AXES = 64  # that any library has


@functools.cache
def device_name(kind: str, index: int) -> str:
    """A device's name in `Tensor`; the same string object each time."""
    return "cpu" if kind == "cpu" else sys.intern(f"{kind}:{index}")


def from_dlpack(value: Any, stream: int) -> Tensor:
    """View an array through its descriptor; `stream` is where we read it, if it lies on a GPU."""
    try:
        return _read(value, stream)
    except PRODUCER_ERRORS as error:
        kind = type(value).__name__
        raise TypeError(f"an array that DLPack describes, got a {kind}: {error}") from None


def _read(value: Any, stream: int) -> Tensor:
    capsule = _exported(value, stream)
    view, writable = _descriptor(capsule)
    if not 0 <= view.ndim <= MOST_AXES:
        raise ValueError(f"{view.ndim} dimensions")
    dtype = dtype_of_dlpack(view.code, view.bits)
    if dtype is None or view.lanes != 1:
        raise TypeError(
            f"an array of a dtype the interface has, got DLPack type {view.code}, {view.bits} bits"
        )
    device = _DLPACK_DEVICES.get(view.device_type)
    if device is None:
        raise TypeError(f"an array in CPU or GPU memory, got DLPack device {view.device_type}")
    shape = tuple(view.shape[axis] for axis in range(view.ndim))
    strides = tuple(view.strides[axis] for axis in range(view.ndim)) if view.strides else None
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}")
    if not view.data and 0 not in shape:
        raise TypeError(f"an array with data, got a {type(value).__name__} at a null address")
    base, name = (view.data or 0) + view.byte_offset, device_name(device, view.device_id)
    return Tensor.view(shape, dtype, strides, base, (capsule, value), name, writable)


def _exported(value: Any, stream: int) -> Any:
    """The capsule with an array's DLPack descriptor."""
    device_type, _ = value.__dlpack_device__()
    options: dict[str, Any] = {} if device_type in (1, 3) else {"stream": stream}
    try:
        return value.__dlpack__(max_version=(1, 0), **options)
    except TypeError:  # a producer older than DLPack 1.0
        return value.__dlpack__(**options)


def _descriptor(capsule: Any) -> tuple[_DLTensor, bool]:
    """The descriptor in a capsule, and whether the memory may be written, which descriptors before DLPack 1.0 cannot promise."""
    name = _name_of(capsule)
    if name not in (b"dltensor", b"dltensor_versioned"):
        raise ValueError(f"a capsule called {name!r}")
    pointer = _pointer_in(capsule, name)
    if name == b"dltensor":
        return _DLTensor.from_address(pointer), False
    managed = _VersionedTensor.from_address(pointer)
    if managed.major != 1:
        raise ValueError(f"version {managed.major} of DLPack")
    return managed.tensor, not managed.flags & _READ_ONLY
