"""How the runtime fails: inside it raises `AclFailure`; decorators turn that into a status and a message for callers."""

from __future__ import annotations

import ctypes
import functools
import operator
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from openaclnn.core.status import AclError, record_message, shown

P = ParamSpec("P")
T = TypeVar("T")

_NO_MEMORY = "no memory for the call itself"

INT32 = (-(2**31), 2**31 - 1)
UINT32 = (0, 2**32 - 1)
INT64 = (-(2**63), 2**63 - 1)
UINT64 = (0, 2**64 - 1)


class AclFailure(Exception):  # noqa: N818 - a status, not an error class
    """A refused runtime call: `code` is its status; the rest says which argument and why."""

    def __init__(self, code: int, function: str, argument: str, expected: str, got: str) -> None:
        self.code = int(code)
        self.function = function
        self.argument = argument
        self.expected = expected
        self.got = got
        super().__init__(code, function, argument, expected, got)

    def __str__(self) -> str:
        where = f"{self.function}: {self.argument}" if self.function else self.argument
        return f"{where}: expected {self.expected}, got {self.got}"


def refuse(code: int, argument: str, expected: str, got: object) -> AclFailure:
    """A failure without the C name of the function, which the decorators below fill in."""
    return AclFailure(code, "", argument, expected, str(got))


def integer(
    value: Any,
    argument: str,
    bounds: tuple[int, int],
    code: int = AclError.ACL_ERROR_INVALID_PARAM,
) -> int:
    """`value` as an int within `bounds`, refused with `code` where it is not one."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or not bounds[0] <= number <= bounds[1]:
        raise refuse(code, argument, f"an integer in [{bounds[0]}, {bounds[1]}]", repr(value))
    return number


def is_null(handle: object) -> bool:
    """Whether a pointer or handle is null: None, or the integer 0."""
    return handle is None or (type(handle) is int and handle == 0)


def live(handle: Any, kind: type[T], what: str, argument: str, code: int, null: int = 0) -> T:
    """The handle, typed as a live one of a kind, which messages call `what`. Foreign and destroyed handles are refused with `code`, and null with
    the code `null`, if there is one."""
    if not isinstance(handle, kind):
        article = "an" if what[0] in "ae" else "a"
        if null and is_null(handle):
            raise refuse(null, argument, f"{article} {what}", "null")
        raise refuse(code, argument, f"{article} {what}", shown(handle))
    if not handle.alive:  # type: ignore[attr-defined]
        raise refuse(code, argument, f"a live {what}", "a destroyed one")
    return handle


class _LastError(threading.local):
    code = 0


_last = _LastError()


def last_error(*, clear: bool = False) -> int:
    """The code of this thread's last failed call; 0 where none failed since it was cleared."""
    code = _last.code
    if clear:
        _last.code = 0
    return code


def report(code: int, text: str) -> int:
    """Keep a failure as this thread's last error and recent message; returns the code."""
    _last.code = int(code)
    with suppress(MemoryError):  # the status must be returned even without a message
        record_message(code, text)
    return int(code)


def lacks_memory(error: BaseException) -> bool:
    """Whether a lack of memory caused an exception, which ctypes and locks report by exceptions of other types."""
    if isinstance(error, (ctypes.ArgumentError, RuntimeError)):
        return "MemoryError" in str(error) or "can't allocate" in str(error)
    return isinstance(error, MemoryError)


def _report_exception(function: str, error: Exception) -> int:
    if lacks_memory(error):
        text = _NO_MEMORY
        with suppress(MemoryError):
            text = f"{function}: {error}" if error.args else f"{function}: {_NO_MEMORY}"
        return report(AclError.ACL_ERROR_BAD_ALLOC, text)
    if isinstance(error, AclFailure):
        error.function = error.function or function
        return report(error.code, str(error))
    traceback = error.__traceback__
    # Only a call with the wrong number of arguments fails before it enters the function's own
    # frame. C has no such call: it is a mistake in the Python program and is shown as one.
    if isinstance(error, TypeError) and traceback is not None and traceback.tb_next is None:
        raise error
    code = AclError.ACL_ERROR_INTERNAL_ERROR
    return report(code, f"{function}: unexpected {type(error).__name__}: {error}")


def returns_status(function: Callable[P, None]) -> Callable[P, int]:
    """Decorates a function of the runtime so that it returns its status alone."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            function(*args, **kwargs)
        except Exception as error:
            return _report_exception(function.__name__, error)
        return 0

    return call


def returns_value(default: T) -> Callable[[Callable[P, T]], Callable[P, tuple[int, T]]]:
    """Decorates a function of the runtime so that it returns `(status, value)`; the value is `default` where it failed."""

    def decorate(function: Callable[P, T]) -> Callable[P, tuple[int, T]]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> tuple[int, T]:
            try:
                return 0, function(*args, **kwargs)
            except Exception as error:
                return _report_exception(function.__name__, error), default

        return call

    return decorate


def null_on_failure(function: Callable[P, T]) -> Callable[P, T | None]:
    """Decorates a function of the runtime so that it returns its object, or None where it failed (a null pointer in C)."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            _report_exception(function.__name__, error)
            return None

    return call
