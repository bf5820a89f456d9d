"""What runs inside the embedded Python: the wrappers, connected to the core library's functions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openaclnn import acl, aclnn
from openaclnn.calls.executor import Executor, fail, fail_inside
from openaclnn.capi import glue
from openaclnn.capi.handles import table
from openaclnn.capi.prototypes import Prototype, all_prototypes
from openaclnn.core.call import bind_leniently
from openaclnn.core.dtypes import BOOL, dtype_of_code
from openaclnn.core.products import current_product
from openaclnn.core.status import AclnnError, Status
from openaclnn.engines.machine import process_exit
from openaclnn.operators import find_operator, registry
from openaclnn.runtime import context as contexts
from openaclnn.runtime.errors import AclFailure, refuse, report

_LARGEST_COUNT = 1 << 16
_LARGEST_TEXT = 4096
_LOWEST_ADDRESS = 65536  # Linux maps nothing below: a smaller address is a number that strayed in

_NULL = Status.ACLNN_ERR_PARAM_NULLPTR
_INVALID = Status.ACLNN_ERR_PARAM_INVALID


class _Texts(threading.local):
    """The text last handed to this thread, which stays readable until its next call."""

    message: Any = None


class Conversions:
    """C arguments to Python ones and back, with cffi's help."""

    def __init__(self, ffi: Any, lib: Any) -> None:
        self.ffi = ffi
        self.lib = lib
        self._texts = _Texts()
        # Phase one knows words that it has seen by the object.
        parameters = (parameter for operator in registry() for parameter in operator.parameters)
        words = {choice.encode() for parameter in parameters for choice in parameter.choices}
        self._words = {word: word for word in words}
        self._constants: dict[str, Any] = {}

    def values(self, pointer: Any, count: int, argument: str) -> Any:
        """An array with its count."""
        if count > _LARGEST_COUNT:
            raise refuse(_INVALID, argument, f"at most {_LARGEST_COUNT} values", count)
        if pointer:
            return self.ffi.unpack(pointer, count)
        if count:
            raise refuse(_NULL, argument, f"{count} values", "null")
        return ()

    def optional_values(self, pointer: Any, count: int, argument: str) -> Any:
        """An array that may be null, whatever the count of the one before it."""
        return self.values(pointer, count, argument) if pointer else None

    def members(self, pointer: Any, count: int, argument: str) -> list[Any]:
        """An array of handles."""
        return [table.find(handle) for handle in self.values(pointer, count, argument)]

    def text(self, pointer: Any) -> bytes | None:
        """A string; null is None."""
        if not pointer:
            return None
        text: bytes = self.ffi.string(pointer, _LARGEST_TEXT)
        return self._words.get(text, text)

    def number(self, address: int, data_type: int) -> Any:
        """The value that a pointer to void points to, by its type."""
        if not address:
            return None
        dtype = dtype_of_code(data_type)
        if not dtype.numpy_name:
            return 0  # whatever it is, the type is refused
        if address < _LOWEST_ADDRESS:
            raise refuse(_INVALID, "value", "an address", f"{address:#x}, where no memory can be")
        data = self.ffi.buffer(self.ffi.cast("char *", address), dtype.itemsize)
        if dtype is BOOL:
            return any(bytes(data))
        return np.frombuffer(data, dtype.numpy)[0]

    def write_text(self, pointer: Any, text: str) -> None:
        """Fill a caller's array, which the interface says is large enough."""
        data = text.encode() + b"\0"
        self.ffi.memmove(pointer, data, len(data))

    def callback(self, address: int) -> Callable[[int], None] | None:
        """A C function of a pointer; null is None. The GIL is free while it runs."""
        if not address:
            return None
        function = self.ffi.cast("void (*)(void *)", address)
        return lambda data: function(self.ffi.cast("void *", data))

    def new_array(self, numbers: Sequence[int]) -> Any:
        """A copy that the caller owns, from its own `new[]` where it has one."""
        array = self.ffi.cast("int64_t *", self.lib.openaclnn_new(8 * max(len(numbers), 1)))
        array[0 : len(numbers)] = numbers
        return array

    def recent_message(self) -> int:
        """`aclGetRecentErrMsg`: the pointer is good until the thread's next call of it."""
        message = acl.aclGetRecentErrMsg()
        if message is None:
            self._texts.message = None
            return 0
        # A path may be no UTF-8.
        data = message.encode(errors="backslashreplace")
        self._texts.message = self.ffi.new("char[]", data)
        return self._address(self._texts.message)

    def soc_name(self) -> int:
        """`aclrtGetSocName`: the text stays for good, as in a C library."""
        name = acl.aclrtGetSocName()
        if name is None:
            return 0
        return self._address(
            self._constants.setdefault(name, self.ffi.new("char[]", name.encode()))
        )

    def _address(self, data: Any) -> int:
        return int(self.ffi.cast("uintptr_t", data))


_KINDS = {"aclTensor": "a live tensor", "aclScalar": "a live scalar"}


def _names(prototype: Prototype, conversions: Conversions) -> dict[str, Any]:
    """What the text of a wrapper refers to."""
    name = prototype.name
    operator_name = name.removesuffix("GetWorkspaceSize") if prototype.phase == 1 else name
    has_status = glue.failure_of(prototype) != 0

    def missing(handle: int, argument: str, kind: str) -> None:
        if handle:  # null is an operand that was not given
            got = f"{handle:#x}, which is unknown or already destroyed"
            raise AclnnError(
                _INVALID, operator_name, argument, _KINDS.get(kind, "a live handle"), got
            )

    def null_first(error: BaseException, *values: Any) -> BaseException:
        if not isinstance(error, AclnnError):
            return error
        *arguments, size, place = values
        operator = find_operator(operator_name)
        call = bind_leniently(
            operator, arguments, current_product(), size is not None, place is not None
        )
        return operator.null_violation(call) or error

    def null_result(code: int, argument: str) -> int:
        return report(code, f"{name}: {argument}: expected a place for the result, got null")

    def failed(error: BaseException) -> int:
        if isinstance(error, AclnnError):
            code = fail(error)
        elif isinstance(error, AclFailure):
            error.function = error.function or name
            code = report(error.code, str(error))
        else:  # a fault of ours must not take the caller down
            code = fail_inside(name, error)
        if isinstance(error, KeyboardInterrupt):  # C has its status; Python has yet to hear
            conversions.lib.openaclnn_interrupt_later()
        return code if has_status else 0

    # The capital spellings are the same functions; everything else has its own name in Python.
    function = getattr(acl, name, None) or getattr(aclnn, name)
    return {
        "_Executor": Executor, "_add": table.add, "_add_list": table.add_list,
        "_callback": conversions.callback, "_failed": failed,
        "_find": table.find, "_forget": table.forget, "_function": function,
        "_handle_of": table.handle_of, "_live": table.objects.get, "_members": conversions.members,
        "_new_array": conversions.new_array, "_null_first": null_first, "_null_result": null_result,
        "_missing": missing, "_number": conversions.number,
        "_optional_values": conversions.optional_values, "_retire": table.retire,
        "_sweep": table.sweep, "_text": conversions.text, "_unpack": conversions.ffi.unpack,
        "_values": conversions.values, "_was_retired": table.was_retired,
        "_write_text": conversions.write_text,
    }  # fmt: skip


def make_wrapper(
    prototype: Prototype, conversions: Conversions, names: dict[str, Any]
) -> Callable[..., Any]:
    """The Python function that a C function calls."""
    special = {
        "aclGetRecentErrMsg": conversions.recent_message,
        "aclrtGetSocName": conversions.soc_name,
    }
    if prototype.name in special:
        return special[prototype.name]
    code = compile(glue.wrapper_source(prototype), f"<{prototype.name}>", "exec")
    exec(code, names)  # as dataclasses do: a call through prepared closures costs 2 us more
    wrapper: Callable[..., Any] = names["wrapper"]
    wrapper.__name__ = wrapper.__qualname__ = prototype.name
    return wrapper


@dataclass
class Connection:
    """A function of the core library and its wrapper, which `attach` replaces; `names` is what the first one refers to."""

    prototype: Prototype
    wrapper: Callable[..., Any]
    names: dict[str, Any]
    define: Callable[[Callable[..., Any]], Any]

    def attach(self, wrapper: Callable[..., Any]) -> None:
        self.define(wrapper)
        self.wrapper = wrapper


connections: dict[str, Connection] = {}
"""By name, once the core library is there."""

on_connect: list[Callable[[], None]] = []
"""Called when it is there."""

_last_calls: list[Callable[[Callable[[], None]], None]] = []


def call_last(function: Callable[[], None]) -> None:
    """Have the core library call a function at the very end of the process, which in a C program Python's end does not come before."""
    for tell in _last_calls:
        tell(function)


def connect(ffi: Any, lib: Any, digest: str) -> None:
    """Give every function of the core library its wrapper."""
    if digest != glue.digest():
        raise ImportError(
            "openaclnn: this library was built for another version of the package; "
            "relink the program with what `openaclnn-config --libs` prints now"
        )
    words = int(ffi.cast("uintptr_t", lib.openaclnn_ending_words()))
    process_exit.watch_exit(words, lib.openaclnn_watch_exit)
    if lib.openaclnn_in_c_program():
        contexts.require_contexts()
    conversions = Conversions(ffi, lib)
    for prototype in all_prototypes():
        names = _names(prototype, conversions)
        wrapper = make_wrapper(prototype, conversions, names)
        # What a wrapper cannot catch, before its first line or while it fails, is a failure too.
        define = ffi.def_extern(
            name=f"openaclnn_{prototype.name}", error=glue.failure_of(prototype),
            onerror=_late(names["_failed"]),
        )  # fmt: skip
        define(wrapper)
        connections[prototype.name] = Connection(prototype, wrapper, names, define)
    kept: list[Any] = []  # C knows it to the end

    def tell(function: Callable[[], None]) -> None:
        kept.append(ffi.callback("void(void)", function))
        lib.openaclnn_call_last(kept[-1])

    _last_calls.append(tell)
    for listener in on_connect:
        listener()


def _late(failed: Callable[[BaseException], int]) -> Callable[[Any, BaseException, Any], None]:
    def handle(kind: Any, error: BaseException, traceback: Any) -> None:
        failed(error)

    return handle
