"""Callbacks on streams under their C names; a thread is named by what `pthread_self` gives in it."""

from __future__ import annotations

from typing import Any

from openaclnn.core.status import AclError
from openaclnn.runtime import callbacks
from openaclnn.runtime.enums import CallbackBlockType
from openaclnn.runtime.errors import INT32, UINT64, integer, is_null, refuse, returns_status
from openaclnn.runtime.resources import current_stream

__all__ = [
    "aclrtLaunchCallback", "aclrtProcessReport", "aclrtSubscribeReport", "aclrtUnSubscribeReport",
]  # fmt: skip

_PARAM = AclError.ACL_ERROR_RT_PARAM_INVALID


@returns_status
def aclrtSubscribeReport(threadId: Any, stream: Any) -> None:
    """Let a thread (`threading.get_ident()` in it) run the stream's callbacks."""
    callbacks.subscribe(integer(threadId, "threadId", UINT64, _PARAM), current_stream(stream))


@returns_status
def aclrtUnSubscribeReport(threadId: Any, stream: Any) -> None:
    """Take a thread's subscription to the stream back."""
    callbacks.unsubscribe(integer(threadId, "threadId", UINT64, _PARAM), current_stream(stream))


@returns_status
def aclrtLaunchCallback(fn: Any, userData: Any, blockType: Any, stream: Any) -> None:
    """Queue `fn(userData)` on the stream for its thread; blocking holds up the tasks behind it."""
    if is_null(fn) or not callable(fn):
        got = "null" if is_null(fn) else repr(fn)
        raise refuse(AclError.ACL_ERROR_INVALID_PARAM, "fn", "a function", got)
    kind = integer(blockType, "blockType", (0, max(CallbackBlockType)), _PARAM)
    block = kind == CallbackBlockType.ACL_CALLBACK_BLOCK
    callbacks.launch(fn, userData, current_stream(stream), block=block)


@returns_status
def aclrtProcessReport(timeout: Any) -> None:
    """Run the calling thread's next callback, waiting so many milliseconds at most; -1 for ever."""
    callbacks.process(integer(timeout, "timeout", (-1, INT32[1]), _PARAM))
