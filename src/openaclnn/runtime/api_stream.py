"""Streams and events under their C names."""

from __future__ import annotations

from typing import Any

from openaclnn.core.status import AclError
from openaclnn.runtime.enums import (
    EventFlag,
    EventRecordedStatus,
    EventStatus,
    FailureMode,
    StreamStatus,
)
from openaclnn.runtime.errors import (
    INT32,
    UINT32,
    integer,
    is_null,
    refuse,
    returns_status,
    returns_value,
)
from openaclnn.runtime.event import EventKind, elapsed_ms
from openaclnn.runtime.resources import (
    checked_event,
    create_event,
    create_stream,
    current_stream,
    destroy_event,
    destroy_stream,
)
from openaclnn.runtime.stream import Stream

__all__ = [
    "aclrtCreateEvent", "aclrtCreateEventExWithFlag", "aclrtCreateEventWithFlag",
    "aclrtCreateStream", "aclrtCreateStreamWithConfig", "aclrtDestroyEvent",
    "aclrtDestroyStream", "aclrtDestroyStreamForce", "aclrtEventElapsedTime",
    "aclrtQueryEvent", "aclrtQueryEventStatus", "aclrtRecordEvent", "aclrtResetEvent",
    "aclrtSetStreamFailureMode", "aclrtStreamQuery", "aclrtStreamWaitEvent",
    "aclrtSynchronizeEvent", "aclrtSynchronizeEventWithTimeout", "aclrtSynchronizeStream",
    "aclrtSynchronizeStreamWithTimeout",
]  # fmt: skip

_PARAM = AclError.ACL_ERROR_RT_PARAM_INVALID


@returns_value(None)
def aclrtCreateStream() -> Any:
    """A new stream in the current context."""
    return create_stream()


@returns_value(None)
def aclrtCreateStreamWithConfig(priority: Any, flag: Any) -> Any:
    """A new stream; priority is reserved, flags make no difference to what it does."""
    integer(priority, "priority", UINT32)
    return create_stream(integer(flag, "flag", UINT32))


def _created(stream: Any) -> Stream:
    if is_null(stream):
        raise refuse(AclError.ACL_ERROR_INVALID_PARAM, "stream", "a stream", "null")
    return current_stream(stream)


@returns_status
def aclrtDestroyStream(stream: Any) -> None:
    """Wait for the stream's tasks and destroy it; a failure not reported yet is reported here."""
    destroy_stream(_created(stream), wait=True)


@returns_status
def aclrtDestroyStreamForce(stream: Any) -> None:
    """Destroy the stream without waiting; queued tasks are discarded."""
    destroy_stream(_created(stream), wait=False)


@returns_status
def aclrtSetStreamFailureMode(stream: Any, mode: Any) -> None:
    """Whether the tasks behind a failed one still run (they do by default)."""
    value = integer(mode, "mode", (0, max(FailureMode)), _PARAM)
    current_stream(stream).stop_on_failure = value == FailureMode.ACL_STOP_ON_FAILURE


@returns_status
def aclrtSynchronizeStream(stream: Any = None) -> None:
    """Wait for the stream's tasks; the failure of one is reported here."""
    current_stream(stream).synchronize()


@returns_status
def aclrtSynchronizeStreamWithTimeout(stream: Any, timeout: Any) -> None:
    """Wait for so many milliseconds at most; -1 without limit, 0 only looks."""
    milliseconds = integer(timeout, "timeout", INT32, _PARAM)
    current_stream(stream).synchronize(milliseconds)


@returns_value(0)
def aclrtStreamQuery(stream: Any = None) -> int:
    """Whether the stream has tasks left."""
    if current_stream(stream).idle:
        return int(StreamStatus.ACL_STREAM_STATUS_COMPLETE)
    return int(StreamStatus.ACL_STREAM_STATUS_NOT_READY)


@returns_status
def aclrtStreamWaitEvent(stream: Any, event: Any) -> None:
    """Make the stream's later tasks wait for the event's captured point; returns at once."""
    checked = checked_event(event)
    checked.make_wait(current_stream(stream))


@returns_value(None)
def aclrtCreateEvent() -> Any:
    """A new event, usable for waiting and for measuring time."""
    return create_event(EventKind.PLAIN, None)


@returns_value(None)
def aclrtCreateEventWithFlag(flag: Any) -> Any:
    """A new event for the uses that its flags name; a wait may come before the record."""
    return create_event(EventKind.FLAG, _checked_flags(flag))


@returns_value(None)
def aclrtCreateEventExWithFlag(flag: Any) -> Any:
    """A new event for the uses that its flags name; each record replaces the captured point."""
    return create_event(EventKind.EX, _checked_flags(flag))


def _checked_flags(flag: Any) -> int:
    known = sum(EventFlag)
    flags = integer(flag, "flag", UINT32, _PARAM)
    if flags == 0 or flags & ~known:
        raise refuse(_PARAM, "flag", f"a combination of the bits {known:#x}", f"{flags:#x}")
    return flags


@returns_status
def aclrtDestroyEvent(event: Any) -> None:
    """Destroy an event, complete or not; does not block."""
    destroy_event(checked_event(event))


@returns_status
def aclrtRecordEvent(event: Any, stream: Any = None) -> None:
    """The event completes when everything queued on the stream so far is done."""
    checked = checked_event(event)
    checked.record(current_stream(stream))


@returns_status
def aclrtResetEvent(event: Any, stream: Any = None) -> None:
    """Back to never recorded; only for events of `aclrtCreateEventWithFlag` with ACL_EVENT_SYNC."""
    checked = checked_event(event)
    current_stream(stream)
    checked.reset()


@returns_value(0)
def aclrtQueryEventStatus(event: Any) -> int:
    """Whether the recorded point is reached: 1 complete, 0 not."""
    if checked_event(event).complete:
        return int(EventRecordedStatus.ACL_EVENT_RECORDED_STATUS_COMPLETE)
    return int(EventRecordedStatus.ACL_EVENT_RECORDED_STATUS_NOT_READY)


@returns_value(0)
def aclrtQueryEvent(event: Any) -> int:
    """The deprecated query: 0 complete, 1 not."""
    if checked_event(event).complete:
        return int(EventStatus.ACL_EVENT_STATUS_COMPLETE)
    return int(EventStatus.ACL_EVENT_STATUS_NOT_READY)


@returns_status
def aclrtSynchronizeEvent(event: Any) -> None:
    """Wait until the event completes."""
    checked_event(event).synchronize()


@returns_status
def aclrtSynchronizeEventWithTimeout(event: Any, timeout: Any) -> None:
    """Wait for so many milliseconds at most; -1 without limit, 0 only looks."""
    checked = checked_event(event)
    checked.synchronize(integer(timeout, "timeout", INT32, _PARAM))


@returns_value(0.0)
def aclrtEventElapsedTime(startEvent: Any, endEvent: Any) -> float:
    """The milliseconds between two complete events."""
    return elapsed_ms(checked_event(startEvent, "startEvent"), checked_event(endEvent, "endEvent"))
