"""The functions of C's names for streams, events and callbacks.

A stream queues callbacks in its order, and the thread that subscribed to the stream runs them. A thread's number is what
`pthread_self` returns in it.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from openaclnn.core.status import AclError
from openaclnn.runtime.context import current_stream, lock, required_context, states
from openaclnn.runtime.enums import (
    CallbackBlockType,
    EventFlag,
    EventRecordedStatus,
    EventStatus,
    FailureMode,
    StreamStatus,
)
from openaclnn.runtime.errors import (
    INT32,
    UINT32,
    UINT64,
    integer,
    is_null,
    live,
    refuse,
    returns_status,
    returns_value,
)
from openaclnn.runtime.stream import Event, EventKind, Stream, elapsed_ms, reset_in_child

__all__ = [
    "aclrtCreateEvent", "aclrtCreateEventExWithFlag", "aclrtCreateEventWithFlag", "aclrtCreateStream", "aclrtCreateStreamWithConfig",
    "aclrtDestroyEvent", "aclrtDestroyStream", "aclrtDestroyStreamForce", "aclrtEventElapsedTime", "aclrtLaunchCallback",
    "aclrtProcessReport", "aclrtQueryEvent", "aclrtQueryEventStatus", "aclrtRecordEvent", "aclrtResetEvent",
    "aclrtSetStreamFailureMode", "aclrtStreamQuery", "aclrtStreamWaitEvent", "aclrtSubscribeReport", "aclrtSynchronizeEvent",
    "aclrtSynchronizeEventWithTimeout", "aclrtSynchronizeStream", "aclrtSynchronizeStreamWithTimeout", "aclrtUnSubscribeReport",
]  # fmt: skip

MAX_EVENTS = 65536
"""Per device."""

_PARAM = AclError.ACL_ERROR_RT_PARAM_INVALID


def _create_stream(flags: int = 0) -> Stream:
    context = required_context()
    with lock:
        context.state.check_stream_limit()
        stream = Stream(context.device, flags)
        context.streams.add(stream)
    return stream


@returns_value(None)
def aclrtCreateStream() -> Any:
    """A new stream in the current context."""
    return _create_stream()


@returns_value(None)
def aclrtCreateStreamWithConfig(priority: Any, flag: Any) -> Any:
    """A new stream; priority is reserved, flags make no difference to what it does."""
    integer(priority, "priority", UINT32)
    return _create_stream(integer(flag, "flag", UINT32))


def _destroy_stream(handle: Any, *, wait: bool) -> None:
    if is_null(handle):
        raise refuse(AclError.ACL_ERROR_INVALID_PARAM, "stream", "a stream", "null")
    stream = current_stream(handle)
    if stream.is_default:
        raise refuse(_PARAM, "stream", "a created stream", "a context's default stream")
    try:
        stream.close(wait=wait)
    finally:
        if not stream.alive:
            with lock:
                for state in states.values():
                    for context in state.contexts:
                        context.streams.discard(stream)


@returns_status
def aclrtDestroyStream(stream: Any) -> None:
    """Wait for the stream's tasks and destroy it; a failure not reported yet is reported here."""
    _destroy_stream(stream, wait=True)


@returns_status
def aclrtDestroyStreamForce(stream: Any) -> None:
    """Destroy the stream without waiting; queued tasks are discarded."""
    _destroy_stream(stream, wait=False)


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
    """Wait for so many milliseconds at most; -1 waits without limit, 0 does not wait."""
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
    checked = _checked(event)
    checked.make_wait(current_stream(stream))


def _create_event(kind: EventKind, flags: int | None) -> Event:
    state = required_context().state
    with lock:
        if len(state.events) >= MAX_EVENTS:
            code = AclError.ACL_ERROR_RT_NO_EVENT_RESOURCE
            raise refuse(code, "event", f"at most {MAX_EVENTS} per device", "one more")
        event = Event(kind, flags)
        state.events.add(event)
    return event


def _checked(handle: Any, argument: str = "event") -> Event:
    dead, null = AclError.ACL_ERROR_RT_INVALID_HANDLE, AclError.ACL_ERROR_INVALID_PARAM
    return live(handle, Event, "event", argument, dead, null)


@returns_value(None)
def aclrtCreateEvent() -> Any:
    """A new event, usable for waiting and for measuring time."""
    return _create_event(EventKind.PLAIN, None)


@returns_value(None)
def aclrtCreateEventWithFlag(flag: Any) -> Any:
    """A new event for the uses that its flags name; a wait may come before the record."""
    return _create_event(EventKind.FLAG, _checked_flags(flag))


@returns_value(None)
def aclrtCreateEventExWithFlag(flag: Any) -> Any:
    """A new event for the uses that its flags name; each record replaces the captured point."""
    return _create_event(EventKind.EX, _checked_flags(flag))


def _checked_flags(flag: Any) -> int:
    known = sum(EventFlag)
    flags = integer(flag, "flag", UINT32, _PARAM)
    if flags == 0 or flags & ~known:
        raise refuse(_PARAM, "flag", f"a combination of the bits {known:#x}", f"{flags:#x}")
    return flags


@returns_status
def aclrtDestroyEvent(event: Any) -> None:
    """Destroy an event, complete or not; does not block. Streams that wait for its captured point go on doing so."""
    checked = _checked(event)
    checked.alive = False
    with lock:
        for state in list(states.values()):
            state.events.discard(checked)


@returns_status
def aclrtRecordEvent(event: Any, stream: Any = None) -> None:
    """The event completes when everything queued on the stream so far is done."""
    checked = _checked(event)
    checked.record(current_stream(stream))


@returns_status
def aclrtResetEvent(event: Any, stream: Any = None) -> None:
    """Back to never recorded; only for events of `aclrtCreateEventWithFlag` with ACL_EVENT_SYNC."""
    checked = _checked(event)
    current_stream(stream)
    checked.reset()


@returns_value(0)
def aclrtQueryEventStatus(event: Any) -> int:
    """Whether the recorded point is reached: 1 complete, 0 not."""
    if _checked(event).complete:
        return int(EventRecordedStatus.ACL_EVENT_RECORDED_STATUS_COMPLETE)
    return int(EventRecordedStatus.ACL_EVENT_RECORDED_STATUS_NOT_READY)


@returns_value(0)
def aclrtQueryEvent(event: Any) -> int:
    """The deprecated query: 0 complete, 1 not."""
    if _checked(event).complete:
        return int(EventStatus.ACL_EVENT_STATUS_COMPLETE)
    return int(EventStatus.ACL_EVENT_STATUS_NOT_READY)


@returns_status
def aclrtSynchronizeEvent(event: Any) -> None:
    """Wait until the event completes."""
    _checked(event).synchronize()


@returns_status
def aclrtSynchronizeEventWithTimeout(event: Any, timeout: Any) -> None:
    """Wait for so many milliseconds at most; -1 waits without limit, 0 does not wait."""
    checked = _checked(event)
    checked.synchronize(integer(timeout, "timeout", INT32, _PARAM))


@returns_value(0.0)
def aclrtEventElapsedTime(startEvent: Any, endEvent: Any) -> float:
    """The milliseconds between two complete events."""
    return elapsed_ms(_checked(startEvent, "startEvent"), _checked(endEvent, "endEvent"))


_NOT_REGISTERED = AclError.ACL_ERROR_RT_STREAM_NO_CB_REG
_NOT_SUBSCRIBED = AclError.ACL_ERROR_RT_THREAD_SUBSCRIBE


class _Callback:
    """A queued callback; `done` is set once it has run or was dropped."""

    def __init__(self, function: Callable[[Any], None], data: Any) -> None:
        self._function = function
        self._data = data
        self.done = threading.Event()

    def run(self) -> None:
        try:
            self._function(self._data)
        finally:
            self.done.set()


class _Callbacks:
    """The callbacks that wait for one thread; closed when the thread's last stream is unsubscribed."""

    def __init__(self) -> None:
        self.streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._queue: SimpleQueue[_Callback | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False

    def put(self, report: _Callback) -> None:
        with self._lock:
            if self._closed:  # no thread will run it, and the stream must not wait for it
                report.done.set()
            else:
                self._queue.put(report)

    def take(self, seconds: float | None) -> _Callback | None:
        """The next callback, or None where the queue was closed; raises Empty when the time is over."""
        return self._queue.get(timeout=seconds)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            while not self._queue.empty():
                report = self._queue.get()
                if report is not None:
                    report.done.set()
            self._queue.put(None)


class _Subscriptions:
    def __init__(self) -> None:
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Set the state without subscriptions, also in the child of a fork, which has none of the threads."""
        self.lock = threading.Lock()
        self.by_stream: weakref.WeakKeyDictionary[Stream, _Callbacks] = weakref.WeakKeyDictionary()
        self.by_thread: dict[int, _Callbacks] = {}


_subscriptions = _Subscriptions()


@returns_status
def aclrtSubscribeReport(threadId: Any, stream: Any) -> None:
    """Let a thread (`threading.get_ident()` in it) run the stream's callbacks."""
    thread, stream = integer(threadId, "threadId", UINT64, _PARAM), current_stream(stream)
    with _subscriptions.lock:
        if stream in _subscriptions.by_stream:
            code = AclError.ACL_ERROR_RT_STREAM_SUBSCRIBE
            raise refuse(
                code, "stream", "one without a subscriber", "one that has a thread already"
            )
        reporter = _subscriptions.by_thread.setdefault(thread, _Callbacks())
        reporter.streams.add(stream)
        _subscriptions.by_stream[stream] = reporter
        stream.at_end = functools.partial(_unsubscribe_ended, thread, reporter, weakref.ref(stream))


@returns_status
def aclrtUnSubscribeReport(threadId: Any, stream: Any) -> None:
    """Take a thread's subscription to the stream back; with its last one, callbacks still waiting for it are dropped."""
    thread, stream = integer(threadId, "threadId", UINT64, _PARAM), current_stream(stream)
    with _subscriptions.lock:
        reporter = _subscriptions.by_stream.get(stream)
        if reporter is None:
            raise refuse(_NOT_REGISTERED, "stream", "a subscribed stream", "one without a thread")
        if _subscriptions.by_thread.get(thread) is not reporter:
            expected = "the thread that subscribed to the stream"
            raise refuse(_NOT_SUBSCRIBED, "threadId", expected, f"{thread:#x}")
        _unsubscribe(thread, reporter, stream)


def _unsubscribe(thread: int, reporter: _Callbacks, stream: Stream) -> None:
    """Remove a stream's subscription. The caller holds the lock."""
    del _subscriptions.by_stream[stream]
    stream.at_end = None
    reporter.streams.discard(stream)
    if not reporter.streams:
        del _subscriptions.by_thread[thread]
        reporter.close()


def _unsubscribe_ended(thread: int, reporter: _Callbacks, ended: weakref.ref[Stream]) -> None:
    """Remove the subscription of a stream that ends, since the system may give the thread's number to another thread later."""
    stream = ended()
    with _subscriptions.lock:
        if stream is not None and _subscriptions.by_stream.get(stream) is reporter:
            _unsubscribe(thread, reporter, stream)


@returns_status
def aclrtLaunchCallback(fn: Any, userData: Any, blockType: Any, stream: Any) -> None:
    """Queue `fn(userData)` on the stream for its thread; a blocking callback delays the tasks behind it."""
    if is_null(fn) or not callable(fn):
        got = "null" if is_null(fn) else repr(fn)
        raise refuse(AclError.ACL_ERROR_INVALID_PARAM, "fn", "a function", got)
    kind = integer(blockType, "blockType", (0, max(CallbackBlockType)), _PARAM)
    target = current_stream(stream)
    with _subscriptions.lock:
        reporter = _subscriptions.by_stream.get(target)
    if reporter is None:
        raise refuse(_NOT_REGISTERED, "stream", "a subscribed stream", "one without a thread")
    report = _Callback(fn, userData)

    def task() -> None:
        target.drain()
        reporter.put(report)
        if kind == CallbackBlockType.ACL_CALLBACK_BLOCK:
            report.done.wait()

    target.submit(task)


@returns_status
def aclrtProcessReport(timeout: Any) -> None:
    """Run the calling thread's next callback, waiting so many milliseconds at most; -1 for ever."""
    timeout_ms = integer(timeout, "timeout", (-1, INT32[1]), _PARAM)
    thread = threading.get_ident()
    reporter = _subscriptions.by_thread.get(thread)
    report = None
    if reporter is not None:
        try:
            report = reporter.take(None if timeout_ms < 0 else timeout_ms / 1000)
        except Empty:
            code = AclError.ACL_ERROR_RT_REPORT_TIMEOUT
            raise refuse(code, "timeout", f"a callback within {timeout_ms} ms", "none") from None
    if report is None:
        expected = "a thread that is subscribed to a stream"
        raise refuse(_NOT_SUBSCRIBED, "thread", expected, f"{thread:#x}, which is not")
    report.run()
