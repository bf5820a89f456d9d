"""Our kernels for PyTorch's operators as machine code: the block of each, with what it calls and knows, and its fallback.

A kernel in Python takes 2 to 3 us before its first line runs, as long as PyTorch's operators take in all.
"""

from __future__ import annotations

import contextlib
import ctypes
import dis
import functools
import inspect
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.autograd import forward_ad

from openaclnn.core import results
from openaclnn.core.interface import REDUCTIONS
from openaclnn.engines.machine import unusable
from openaclnn.repeat import native_slots as at, slots
from openaclnn.repeat.cache import CallCache
from openaclnn.repeat.readers import described, torch_functions
from openaclnn.torch.private import OPERATORS_MODULE, schema_of
from openaclnn.torch.signatures import (
    AXIS,
    FLOAT,
    INTEGER,
    MOST_CLASSES,
    Signature,
)

# PyTorch's stable C interface, by its functions' names: what puts machine code into the dispatcher, and what such a kernel calls.
#
# It is there since 2.10, with a promise for later versions (torch/csrc/stable/c/shim.h). Where it is not, kernels are functions in Python.


_FILE = b"openaclnn"  # what PyTorch says of who entered a kernel; it keeps the address


class StableInterface:
    """The functions of `libtorch_cpu` that kernels need."""

    def __init__(self, library: Any) -> None:
        self.library = library
        # In the order of their slots, from GET_DEVICE to CHECK.
        self.functions = (
            library.aoti_torch_get_device_type, library.aoti_torch_get_device_index, library.aoti_torch_get_dtype,
            library.aoti_torch_get_dim, library.aoti_torch_get_sizes, library.aoti_torch_get_strides,
            library.aoti_torch_get_data_ptr, library.aoti_torch_get_storage_offset, library.aoti_torch_get_storage_size,
            library.aoti_torch_is_defined,
            library.aoti_torch_empty_strided, library.aoti_torch_zero_, library.aoti_torch_delete_tensor_object,
            _freeing(library), library.torch_call_dispatcher, library.aoti_torch_check,
        )  # fmt: skip
        self._open, self._close = (
            library.aoti_torch_library_init_impl, library.aoti_torch_delete_library_object,
        )  # fmt: skip
        self._put, version = library.torch_library_impl, library.aoti_torch_abi_version
        text, pointer = ctypes.c_char_p, ctypes.c_void_p
        self._open.argtypes = text, text, text, ctypes.c_uint32, pointer
        self._put.argtypes, self._close.argtypes = (
            (pointer, text, pointer, ctypes.c_uint64),
            (pointer,),
        )
        version.restype = ctypes.c_uint64
        self.version = version()
        """That of PyTorch, whose ways with arguments kernels follow."""
        self._from_memory = library.aoti_torch_create_tensor_from_blob
        self._from_memory.argtypes = (
            pointer, ctypes.c_int64, pointer, pointer, ctypes.c_int64, *[ctypes.c_int32] * 3, pointer
        )  # fmt: skip

    def enter(self, name: str, device: str, kernel: int) -> Any:
        """Into the dispatcher, above what is there; what it returns leaves it."""
        library = ctypes.c_void_p()
        _succeed(self._open(b"aten", device.encode(), _FILE, 0, ctypes.byref(library)))
        _succeed(self._put(library, name.encode(), kernel, self.version))
        return functools.partial(self._close, library)

    def dtype_number(self, name: str) -> int:
        return int(getattr(self.library, f"aoti_torch_dtype_{name}")())

    def device_kind(self, device: str) -> int:
        return int(getattr(self.library, f"aoti_torch_device_type_{device.lower()}")())

    def handle_of(self, tensor: Any) -> int:
        """A handle, never given back, of the memory of a row that the caller keeps."""
        handle, device = ctypes.c_void_p(), tensor.device
        sides = [(ctypes.c_int64 * 1)(length) for length in (len(tensor), 1)]
        number = self.dtype_number(str(tensor.dtype).removeprefix("torch."))
        place = number, self.device_kind(device.type), device.index or 0
        _succeed(self._from_memory(tensor.data_ptr(), 1, *sides, 0, *place, ctypes.byref(handle)))
        return handle.value or 0


def _freeing(library: Any) -> Any:
    """What frees the word behind an optional argument. Before 2.13 the interface has it allocated by the kernel's C++ `new`, which
    is the C library's malloc."""
    return getattr(library, "torch_delete_stable_ivalue", None) or ctypes.CDLL(None).free


def _succeed(status: int) -> None:
    if status:
        raise RuntimeError("PyTorch's stable C interface refused a kernel")


@functools.cache
def stable_interface() -> StableInterface | None:
    """None where machine code cannot be a kernel here."""
    if sys.platform != "linux" or unusable() is not None:
        return None
    try:
        return StableInterface(
            ctypes.CDLL(str(Path(torch.__path__[0]) / "lib" / "libtorch_cpu.so"))
        )
    except (AttributeError, OSError):
        return None


@functools.cache
def stream_function(device: str) -> int | None:
    """What names a device's current stream, and raises nothing: 0 where there are no streams, None where it is missing."""
    if device == "CPU":
        return 0
    try:
        library = ctypes.CDLL(str(Path(torch.__path__[0]) / "lib" / "libtorch_cuda.so"))
        return address(library.aoti_torch_get_current_cuda_stream)
    except (AttributeError, OSError):
        return None


def address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


_TYPES: dict[str, type] = {FLOAT: float, INTEGER: int, AXIS: int}
_FALLBACKS = "openaclnn_fallback"  # the namespace of operators in PyTorch's dispatcher


def native_for(
    name: str, device: str, cache: CallCache | None, signature: Signature, original: Any
) -> Native | None:  # fmt: skip
    """None where a kernel in Python has to do."""
    stable = stable_interface()
    if stable is None or cache is None or not signature.is_stable or torch_functions() is None:
        return None
    if stream_function(device) is None:
        return None
    return Native(stable, name, device, cache, signature, original)


class _Raised(threading.local):
    """What the last fallback of this thread raised."""

    text: bytes | None = None  # for C++
    later: type[BaseException] | None = None  # for Python
    error: BaseException | None = None  # what C++ raises by its text


_raised = _Raised()


class Native:
    """The machine code of one of PyTorch's operators on a device. It enters the dispatcher and leaves it; its block stays."""

    def __init__(
        self, stable: StableInterface, name: str, device: str, cache: CallCache, signature: Signature, original: Any
    ) -> None:  # fmt: skip
        from openaclnn.engines.machine.builtins import name_block
        from openaclnn.repeat.code.native import Arguments, native_fast_path
        from openaclnn.repeat.code.read_copy_update import Readers
        from openaclnn.torch.entries import stable_kernel

        self._stable, self._name, self._device, self._cache = stable, name, device, cache
        self._original, self._overload = original, getattr(torch.ops.aten, name).default
        self._block = block = (ctypes.c_int64 * at.BLOCK_SLOTS)()
        # C++ may hold it to the very end.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(block))
        self._ones: list[Any] = []
        block[at.ONES :: at.ONES_SLOTS] = [-1] * at.MAX_ONES
        self._readers = Readers(self._slot(at.COUNT))
        cache.admit(self._readers)
        block[at.CORE] = native_fast_path(Arguments(*signature.words))
        self._write_functions()
        self._write_dtypes()
        for place, source in enumerate(signature.order[signature.arrays :]):
            kind = _TYPES.get(signature.kinds[source])
            block[at.OPTION_TYPES + place] = 0 if kind is None else id(kind)
        block[at.REDUCTIONS : at.REDUCTIONS + len(REDUCTIONS)] = [id(each) for each in REDUCTIONS]
        block[at.MOST_CLASSES] = MOST_CLASSES if device == "CUDA" else sys.maxsize
        self._define_fallback()
        block_name = f"openaclnn_block_{name}_{device}"
        name_block(block_name, ctypes.addressof(block))
        self._kernel = stable_kernel(block_name, signature)

    def _write_functions(self) -> None:
        block = self._block
        block[at.GET_DEVICE : at.CHECK + 1] = [address(each) for each in self._stable.functions]
        self._names = sys.intern("text"), sys.intern("later")
        for where, held in (
            (at.KEPT, results.empty_tensor), (at.RAISED, _raised), (at.TEXT, self._names[0]), (at.LATER, self._names[1]),
        ):  # fmt: skip
            block[where] = id(held)
        block[at.VERSION] = ctypes.c_int64(self._stable.version).value
        block[at.STREAM] = stream_function(self._device) or 0
        texts = f"{_FALLBACKS}::{self._name}", "", "openaclnn"
        self._texts = [ctypes.create_string_buffer(each.encode()) for each in texts]
        block[at.FALLBACK : at.PLACE + 1] = [ctypes.addressof(each) for each in self._texts]

    def _write_dtypes(self) -> None:
        """DLPack's words for the device and for the dtypes that kernels read."""
        block, stable = self._block, self._stable
        block[at.DEVICE_KIND] = stable.device_kind(self._device)
        for place, name in enumerate(at.DTYPE_NAMES):
            dtype, number = getattr(torch, name), stable.dtype_number(name)
            probe = torch.empty((), dtype=dtype, device=self._device.lower())
            words = described(probe)
            block[at.DTYPES + number] = words[slots.KIND]
            block[at.DEVICE_WORD] = words[slots.DEVICE] & 0xFFFFFFFF
            pair = at.DTYPE_OBJECTS + 2 * place
            block[pair : pair + 2] = [id(dtype), number]

    def _define_fallback(self) -> None:
        """An operator with the arguments of PyTorch's, for what machine code does not serve."""
        library = _fallbacks()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not hasattr(getattr(torch.ops, _FALLBACKS), self._name):
                library.define(str(schema_of(self._overload)).partition("::")[2])
            library.impl(self._name, self._fall_back, self._device, with_keyset=True)

    def _fall_back(self, keys: Any, *arguments: Any, **named: Any) -> Any:
        """Our kernel by any means, or else PyTorch's. What either raises cannot pass the C interface."""
        _raised.text = _raised.later = _raised.error = None
        try:
            result = self._asked(*arguments, **named)
            if result is NotImplemented:
                result = as_raised(self._original.call_boxed, keys, *arguments, **named)
        except BaseException as error:
            return self._raise(error, arguments, named, sys._getframe().f_back)
        return result

    def _raise(
        self, error: BaseException, arguments: tuple[Any, ...], named: dict[str, Any], waiting: Any
    ) -> Any:
        """Leave an error to be raised, and give results that nobody will see. The interface has RuntimeErrors alone, which C++ raises at once.
        Others Python raises as soon as its code that waits for the results runs on, if it called this operator and nothing else: C++ in
        between might raise something first.
        """
        at_once = isinstance(error, Exception) and (
            not self._is_called_by(waiting) or any(map(_is_dual, arguments))
        )
        if waiting is not None and type(error) is not RuntimeError and not at_once:
            _raised.later = _class_of(error)
            return self._blank(arguments, named)
        _raised.text, _raised.error = str(error).encode(), error.with_traceback(None)
        blank = torch.empty(())
        return (blank, blank.clone()) if len(schema_of(self._overload).returns) > 1 else blank

    def _is_called_by(self, frame: Any) -> bool:
        """Whether this is code that calls the operator, or the function of its name, and nothing around it."""
        if frame is None:
            return False
        module, names = frame.f_globals.get("__name__"), _called_by(frame)
        if module == OPERATORS_MODULE:
            called = frame.f_locals.get("self")
            return called is not None and called in (self._overload, self._overload.overloadpacket)
        if module == "torch.nn.functional":
            names.append(frame.f_code.co_name)
        operator = self._name.replace("_", "")
        return any(name and operator.startswith(name.replace("_", "")) for name in names)

    def _blank(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Results of the right shapes, of FLOAT, which derivatives know; where no shape is right they have the first argument's."""
        first, several = arguments[0], len(schema_of(self._overload).returns) > 1

        def bare(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return value.to("meta", torch.float32 if value.dtype is first.dtype else value.dtype)

        try:
            shapes = self._overload(*map(bare, arguments), **named)
        except Exception:
            shapes = (first, first) if several else first
        blank = tuple([
            torch.zeros(each.shape, device=first.device) for each in (shapes if several else (shapes,))
        ])  # fmt: skip
        return blank if several else blank[0]

    def enter(self, asked: Callable[..., Any]) -> None:
        """Into the dispatcher; `asked` is our kernel by any means, which says NotImplemented of what is PyTorch's."""
        self._asked, self._served_before = asked, self._readers.served
        self.learn(None)
        self.leave = self._stable.enter(self._name, self._device, self._kernel)

    def learn(self, ones: Any) -> None:
        """What may have come with a call: the fast path, which opens with its first, and ones for so many classes."""
        from openaclnn.engines.machine.builtins import publish

        publish(self._slot(at.CACHE), self._cache.control_for_tensors())
        full = len(self._ones) >= at.MAX_ONES
        if ones is None or full or any(kept is ones for kept in self._ones):
            return
        self._ones.append(ones)  # for good: a call may be using them
        # Several threads may be here, each with a place of its own, which is of no number of classes until all else of it is written.
        room = next(place for place, kept in enumerate(self._ones) if kept is ones)
        if room < at.MAX_ONES:
            number = self._stable.dtype_number(str(ones.dtype).removeprefix("torch."))
            first, handle = at.ONES + room * at.ONES_SLOTS, self._stable.handle_of(ones)
            self._block[first + 1 : first + at.ONES_SLOTS] = [
                number,
                ones.device.index or 0,
                handle,
            ]
            publish(self._slot(first), len(ones))

    def _slot(self, place: int) -> int:
        return ctypes.addressof(self._block) + ctypes.sizeof(ctypes.c_int64) * place

    @property
    def served(self) -> int:
        """Calls since it entered that took the fast path."""
        return self._readers.served - self._served_before


def _fallbacks() -> Any:
    """The library of fallbacks. PyTorch warns once in a process that a kernel takes another's place, on stderr where a C interface
    was called. Here it warns Python, unheard, of a kernel that only its own tests call; that comes back at once.
    """
    global _library
    if _library is None:
        _library = torch.library.Library(_FALLBACKS, "FRAGMENT")  # type: ignore[no-untyped-call]
        with warnings.catch_warnings(), contextlib.suppress(RuntimeError):
            warnings.simplefilter("ignore")
            passing = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
            passing.impl("_test_optional_intlist", lambda *arguments: None, "CPU")  # type: ignore[no-untyped-call]
            del passing
    return _library


_library: Any = None


def as_raised(function: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """Call what may come to fallbacks: an error that C++ raises by its text is raised as it was."""
    _raised.error = None
    try:
        return function(*arguments, **more)
    except RuntimeError as told:
        error, _raised.error = _raised.error, None
        if error is None or str(error) != str(told):
            raise
        raise error from None


def _is_dual(value: Any) -> bool:
    """Whether C++ computes a forward derivative with the results, and may refuse what the operator did."""
    if not isinstance(value, torch.Tensor):
        return False
    try:
        return forward_ad.unpack_dual(value).tangent is not None  # type: ignore[no-untyped-call]
    except (
        RuntimeError
    ):  # while there are such derivatives a kernel, which is below them, may not ask
        return True


def _called_by(frame: Any) -> list[str]:
    """The name by which code calls what it waits for, and the function's own, where that lies under it; none where Python keeps no columns of the source."""
    instructions = list(dis.get_instructions(frame.f_code))
    last = next((each for each in instructions if each.offset == frame.f_lasti), None)
    if last is None or last.positions is None or last.positions.col_offset is None:
        return []
    # A call begins where the name begins that is called, as do the names that this is an attribute of.
    begin = last.positions[0], last.positions[2]
    names = [
        each.argval for each in instructions
        if each.positions is not None and (each.positions[0], each.positions[2]) == begin
        and each.offset < last.offset and each.opname.startswith("LOAD_") and isinstance(each.argval, str)
    ]  # fmt: skip
    if not names:
        return []
    called = (frame.f_globals | frame.f_locals).get(names[0])
    for name in names[1:]:
        called = inspect.getattr_static(called, name, None)  # no code of the caller's runs
    return [names[-1], getattr(called, "__name__", "")]


def _class_of(error: BaseException) -> type[BaseException]:
    """A class that has this one instance: what a thread is told to raise is a class. Where an exception is being handled, Python 3.11
    calls it once more, with the instance.
    """
    return type(type(error).__name__, (BaseException,), {"__new__": lambda kind, *again: error})
