"""`aclInit`, `aclFinalize` and relatives; error messages; the name of the chip."""

from __future__ import annotations

import threading
from typing import Any

from openaclnn.core.forks import hold_over_forks
from openaclnn.core.products import current_product
from openaclnn.core.status import AclError, take_message
from openaclnn.runtime import config, context
from openaclnn.runtime.enums import LastErrorLevel
from openaclnn.runtime.errors import (
    AclFailure,
    integer,
    last_error,
    null_on_failure,
    refuse,
    report,
    returns_status,
    returns_value,
)

__all__ = [
    "aclFinalize", "aclFinalizeReference", "aclGetRecentErrMsg", "aclInit", "aclnnFinalize",
    "aclnnInit", "aclrtGetLastError", "aclrtGetSocName", "aclrtPeekAtLastError",
]  # fmt: skip


class _Process:
    """How often `aclInit` was called, and whether `aclFinalize` came after it."""

    references = 0
    finalized = False
    aclnn_only = False
    lock = threading.Lock()


hold_over_forks(_Process.lock)


@returns_status
def aclInit(configPath: Any = None) -> None:
    """Start the runtime with a JSON file or null; a repeat is counted and gives 100002."""
    settings = config.load(configPath)
    with _Process.lock:
        if _Process.references == 0:
            config.install(settings)
            _Process.references, _Process.finalized = 1, False
            return
        if settings != config.current():
            raise refuse(
                AclError.ACL_ERROR_INVALID_PARAM,
                "configPath",
                "the configuration of the first aclInit",
                "a different one",
            )
        _Process.references += 1
    code = AclError.ACL_ERROR_REPEAT_INITIALIZE
    raise refuse(code, "configPath", "one aclInit per process", "a repeated call, counted")


@returns_status
def aclFinalize() -> None:
    """Release everything, whatever the number of `aclInit` calls; a second call gives 100037."""
    with _Process.lock:
        if _Process.finalized:
            raise _repeated()
        _Process.references, _Process.finalized = 0, True
    _release()


@returns_value(0)
def aclFinalizeReference() -> int:
    """Undo one `aclInit`, and finalise with the last one; the value is the count left."""
    with _Process.lock:
        if _Process.references == 0:
            raise _repeated()
        _Process.references -= 1
        left = _Process.references
        _Process.finalized = left == 0
    if left == 0:
        _release()
    return left


def _repeated() -> AclFailure:
    code = AclError.ACL_ERROR_REPEAT_FINALIZE
    return refuse(code, "runtime", "aclInit before", "a runtime finalised already")


def _release() -> None:
    try:
        context.reset_all()
    finally:
        config.install({})


@returns_status
def aclnnInit(configPath: Any = None) -> None:
    """The light variant for programs that only use operators; goes together with `aclInit`."""
    settings = config.load(configPath)
    with _Process.lock:
        if _Process.references == 0 and not _Process.aclnn_only:
            config.install(settings)
        _Process.aclnn_only = True


@returns_status
def aclnnFinalize() -> None:
    """The end of `aclnnInit`; what `aclInit` set up stays."""
    with _Process.lock:
        _Process.aclnn_only = False
        if _Process.references == 0:
            config.install({})


def aclGetRecentErrMsg() -> str | None:
    """The messages since the last call, newest first, which are then forgotten; or None."""
    return take_message()


def aclrtPeekAtLastError(level: Any = 0) -> int:
    """The code of the thread's last failed call."""
    return _last(level, "aclrtPeekAtLastError", clear=False)


def aclrtGetLastError(level: Any = 0) -> int:
    """The code of the thread's last failed call, which is then forgotten."""
    return _last(level, "aclrtGetLastError", clear=True)


def _last(level: Any, function: str, *, clear: bool) -> int:
    known = int(LastErrorLevel.ACL_RT_THREAD_LEVEL)
    try:
        integer(level, "level", (known, known))
    except AclFailure as failure:
        failure.function = function
        return report(failure.code, str(failure))
    return last_error(clear=clear)


@null_on_failure
def aclrtGetSocName() -> str:
    """The chip of the product in force."""
    return current_product().soc
