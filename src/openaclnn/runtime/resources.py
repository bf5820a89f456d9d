"""Streams and events as the calling thread's context hands them out and takes them back."""

from __future__ import annotations

from typing import Any

from openaclnn.core.status import AclError, shown
from openaclnn.runtime.context import default_stream, lock, required, states, working_context
from openaclnn.runtime.errors import is_null, refuse
from openaclnn.runtime.event import Event, EventKind
from openaclnn.runtime.stream import Stream

__all__ = [
    "MAX_EVENTS", "checked_event", "create_event", "create_stream", "current_stream",
    "destroy_event", "destroy_stream",
]  # fmt: skip

MAX_EVENTS = 65536
"""Per device."""


def create_stream(flags: int = 0) -> Stream:
    """A new stream in the calling thread's context."""
    context = required()
    with lock:
        context.state.check_stream_limit()
        stream = Stream(context.device, flags)
        context.streams.add(stream)
    return stream


def destroy_stream(stream: Stream, *, wait: bool) -> None:
    """End a stream of `create_stream`, with its queued tasks done or discarded."""
    if stream.is_default:
        code = AclError.ACL_ERROR_RT_PARAM_INVALID
        raise refuse(code, "stream", "a created stream", "a context's default stream")
    try:
        stream.close(wait=wait)
    finally:
        if not stream.alive:
            with lock:
                for state in states.values():
                    for context in state.contexts:
                        context.streams.discard(stream)


def create_event(kind: EventKind, flags: int | None) -> Event:
    """A new event on the calling thread's device."""
    state = required().state
    with lock:
        if len(state.events) >= MAX_EVENTS:
            code = AclError.ACL_ERROR_RT_NO_EVENT_RESOURCE
            raise refuse(code, "event", f"at most {MAX_EVENTS} per device", "one more")
        event = Event(kind, flags)
        state.events.add(event)
    return event


def destroy_event(event: Event) -> None:
    """End an event; streams that wait for its captured point go on doing so."""
    event.alive = False
    with lock:
        for state in list(states.values()):
            state.events.discard(event)


def current_stream(handle: Any) -> Stream:
    """The stream to use for a handle: null is the default stream of the thread's context.

    A thread of Python without a context is taken to work in that of device 0: plain Python needs no set-up.
    """
    if type(handle) is Stream and handle.alive and handle in working_context().streams:
        return handle
    if is_null(handle):
        return default_stream()
    if not isinstance(handle, Stream):
        code = AclError.ACL_ERROR_RT_INVALID_HANDLE
        raise refuse(code, "stream", "a stream or null", shown(handle))
    if not handle.alive:
        code = AclError.ACL_ERROR_RT_INVALID_HANDLE
        raise refuse(code, "stream", "a live stream", "a destroyed one")
    if handle not in working_context().streams:
        code = AclError.ACL_ERROR_RT_STREAM_CONTEXT
        raise refuse(code, "stream", "one of the thread's context", "one of another context")
    return handle


def checked_event(handle: Any, argument: str = "event") -> Event:
    """The event of a handle; null, foreign and destroyed ones are refused."""
    if is_null(handle):
        raise refuse(AclError.ACL_ERROR_INVALID_PARAM, argument, "an event", "null")
    code = AclError.ACL_ERROR_RT_INVALID_HANDLE
    if not isinstance(handle, Event):
        raise refuse(code, argument, "an event", shown(handle))
    if not handle.alive:
        raise refuse(code, argument, "a live event", "a destroyed one")
    return handle
