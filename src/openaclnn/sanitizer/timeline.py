"""Streams, events and callbacks of a program: what they say of the order of all that it does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from openaclnn.core.status import AclError
from openaclnn.runtime import AclFailure, Stream, current_stream
from openaclnn.runtime.context import current
from openaclnn.runtime.enums import (
    CallbackBlockType,
    EventRecordedStatus,
    EventStatus,
    StreamStatus,
)
from openaclnn.runtime.stream import Event, EventKind
from openaclnn.sanitizer.events import Call, Rules
from openaclnn.sanitizer.order import Order, Point
from openaclnn.sanitizer.session import queue_look

__all__ = ["ENDS", "Handlers", "Timeline", "number_of", "waited"]

ENDS = (
    "aclrtDestroyStream", "aclrtDestroyStreamForce", "aclrtDestroyContext", "aclrtResetDevice", "aclrtResetDeviceForce",
    "aclFinalize", "aclFinalizeReference", "aclnnFinalize",
)  # fmt: skip
"""They take streams away, and memory with them."""

_TIMEOUTS = (
    AclError.ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
    AclError.ACL_ERROR_RT_EVENT_SYNC_TIMEOUT,
)


@dataclass(eq=False)
class _Callback:
    """A callback on its way: from a point of the stream to the one that lets the stream go on."""

    begin: Point | None = None
    end: Point = field(default_factory=Point)


def waited(call: Call) -> bool:
    """Whether a call that waits has done so; it may have met the failure of a task then."""
    status = call.status or 0
    return status == 0 or (507000 <= status < 508000 and status not in _TIMEOUTS)


def number_of(value: Any) -> int | None:
    """An argument that is an integer or an address; None where it is neither."""
    try:
        return int(getattr(value, "value", value))
    except (TypeError, ValueError):
        return None


class Handlers(Rules):
    """Rules by the names of calls; those of operators are called "phase 1" and "phase 2". What a handler of `before` returns that of `after` gets."""

    BEFORE: ClassVar[dict[str, Callable[..., Any]]] = {}
    AFTER: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __init__(self) -> None:
        self._left: dict[Call, Any] = {}

    def before(self, call: Call) -> None:
        handler = self.BEFORE.get(f"phase {call.phase}" if call.phase else call.name)
        left = None if handler is None else handler(self, call)
        if left is not None:
            self._left[call] = left

    def after(self, call: Call) -> None:
        left = self._left.pop(call, None)
        handler = self.AFTER.get(f"phase {call.phase}" if call.phase else call.name)
        if handler is not None:
            handler(self, call, left)


class Timeline(Handlers):
    """The calls that say what waits for what, told to an `Order`."""

    def __init__(self) -> None:
        super().__init__()
        self.order = Order()
        self.names: dict[Stream, str] = {}
        self._streams = 0  # that got a number
        self._events: dict[Event, Point | None] = {}
        self._subscribers: dict[Stream, int] = {}
        self._callbacks: dict[Stream, list[_Callback]] = {}
        self._ready: dict[int, deque[_Callback]] = {}
        self._reporting: dict[int, _Callback | None] = {}

    def before(self, call: Call) -> None:
        if call.thread in self._reporting:
            self._take_callback(call.thread)
        super().before(call)

    def stream(self, call: Call) -> Stream | None:
        """The stream that a call is for; it has a name from now on."""
        try:
            stream = current_stream(call.arguments.get("stream"))
        except AclFailure:
            return None
        if stream not in self.names:
            self._streams += not stream.is_default
            name = f"stream {self._streams}"
            self.names[stream] = "the default stream" if stream.is_default else name
        return stream

    def points(self, streams: Iterable[Stream] | None = None) -> list[Point]:
        """Points behind all that the streams have, those of the current context if none are named."""
        if streams is None:
            context = current()
            streams = [] if context is None else list(context.streams)
        return [self.order.record(stream) for stream in streams if stream in self.names]

    def join(self, points: list[Point]) -> None:
        """The host has waited for points."""
        for point in points:
            self.order.join(point)

    def _before_stream_wait(self, call: Call) -> Any:
        stream = self.stream(call)
        return None if stream is None else self.points([stream])

    def _after_wait(self, call: Call, left: Any) -> None:
        if left and waited(call):
            self.join(left)

    def _after_stream_query(self, call: Call, left: Any) -> None:
        if left is not None and call.status == 0:
            if call.result == StreamStatus.ACL_STREAM_STATUS_COMPLETE:
                self.join(left)

    def _before_device_wait(self, call: Call) -> Any:
        return self.points()

    def _before_event(self, call: Call) -> Any:
        """The points that the events of a call have now."""
        names = ("event", "startEvent", "endEvent")
        events = [
            call.arguments[name] for name in names if isinstance(call.arguments.get(name), Event)
        ]
        points = [self._point(event) for event in events]
        return [point for point in points if point is not None]

    def _point(self, event: Event) -> Point | None:
        if event not in self._events:
            self._events[event] = Point() if event.kind is EventKind.FLAG else None
        return self._events[event]

    def _after_event_query(self, call: Call, left: Any) -> None:
        done = (
            EventStatus.ACL_EVENT_STATUS_COMPLETE
            if call.name == "aclrtQueryEvent"
            else EventRecordedStatus.ACL_EVENT_RECORDED_STATUS_COMPLETE
        )
        if left and call.status == 0 and call.result == done:
            self.join(left)

    def _after_elapsed(self, call: Call, left: Any) -> None:
        if left and call.status == 0:
            self.join(left)

    def _after_stream_wait_event(self, call: Call, left: Any) -> None:
        stream = self.stream(call)
        if call.status == 0 and stream is not None:
            for point in left or ():
                self.order.wait(stream, point)

    def _after_record(self, call: Call, left: Any) -> None:
        stream, event = self.stream(call), call.arguments.get("event")
        if call.status == 0 and stream is not None and isinstance(event, Event):
            point = self._point(event)
            reused = None if point is None or point.recorded else point
            self._events[event] = self.order.record(stream, reused)

    def _after_reset_event(self, call: Call, left: Any) -> None:
        if call.status == 0:
            self._events[call.arguments["event"]] = Point()

    def _after_destroy_event(self, call: Call, left: Any) -> None:
        if call.status == 0:
            self._events.pop(call.arguments["event"], None)

    def _after_end(self, call: Call, left: Any) -> None:
        """Streams may be gone: also those that a context, a device or the runtime had."""
        for stream in list(self.names):
            if not stream.alive:
                self._drop_callbacks(stream)
                self.order.end(stream)
                del self.names[stream]

    # Callbacks run in the thread that subscribed, between the calls that it makes.

    def _after_subscribe(self, call: Call, left: Any) -> None:
        stream = self.stream(call)
        if call.status == 0 and stream is not None:
            if call.name == "aclrtSubscribeReport":
                self._subscribers[stream] = int(call.arguments["threadId"])
            else:
                self._drop_callbacks(stream)

    def _drop_callbacks(self, stream: Stream) -> None:
        self._subscribers.pop(stream, None)
        for callback in self._callbacks.pop(stream, []):
            self.order.reach(callback.end)

    def _before_callback(self, call: Call) -> Any:
        stream = self.stream(call)
        if stream is None or stream not in self._subscribers:
            return None
        callback = _Callback()
        ready = self._ready.setdefault(self._subscribers[stream], deque())
        # A thread gets callbacks as the streams come to them.
        queue_look(stream, lambda: ready.append(callback))
        return stream, callback

    def _after_callback(self, call: Call, left: Any) -> None:
        if left is None or call.status != 0:
            return
        stream, callback = left
        callback.begin = self.order.record(stream)
        if number_of(call.arguments["blockType"]) == CallbackBlockType.ACL_CALLBACK_BLOCK:
            self.order.wait(stream, callback.end)
            waiting = [each for each in self._callbacks.get(stream, []) if not each.end.recorded]
            self._callbacks[stream] = [*waiting, callback]

    def _before_report(self, call: Call) -> None:
        self._reporting[call.thread] = None

    def _take_callback(self, thread: int) -> None:
        """The program is in a callback: what the stream did before is done."""
        if self._reporting[thread] is None and self._ready.get(thread):
            callback = self._reporting[thread] = self._ready[thread].popleft()
            if callback.begin is not None:
                self.order.join(callback.begin)

    def _after_report(self, call: Call, left: Any) -> None:
        if call.status == 0:
            self._take_callback(call.thread)
        callback = self._reporting.pop(call.thread, None)
        if callback is not None:
            self.order.reach(callback.end)

    BEFORE: ClassVar[dict[str, Callable[..., Any]]] = {
        **dict.fromkeys(
            ("aclrtSynchronizeStream", "aclrtSynchronizeStreamWithTimeout", "aclrtStreamQuery"), _before_stream_wait
        ),
        **dict.fromkeys(("aclrtSynchronizeDevice", "aclrtSynchronizeDeviceWithTimeout"), _before_device_wait),
        **dict.fromkeys(
            (
                "aclrtStreamWaitEvent", "aclrtSynchronizeEvent", "aclrtSynchronizeEventWithTimeout", "aclrtQueryEvent",
                "aclrtQueryEventStatus", "aclrtEventElapsedTime",
            ),
            _before_event,
        ),
        "aclrtLaunchCallback": _before_callback,
        "aclrtProcessReport": _before_report,
    }  # fmt: skip
    AFTER: ClassVar[dict[str, Callable[..., Any]]] = {
        **dict.fromkeys(
            (
                "aclrtSynchronizeStream", "aclrtSynchronizeStreamWithTimeout", "aclrtSynchronizeDevice",
                "aclrtSynchronizeDeviceWithTimeout", "aclrtSynchronizeEvent", "aclrtSynchronizeEventWithTimeout",
            ),
            _after_wait,
        ),
        "aclrtStreamQuery": _after_stream_query,
        **dict.fromkeys(("aclrtQueryEvent", "aclrtQueryEventStatus"), _after_event_query),
        "aclrtEventElapsedTime": _after_elapsed,
        "aclrtStreamWaitEvent": _after_stream_wait_event,
        "aclrtRecordEvent": _after_record,
        "aclrtResetEvent": _after_reset_event,
        "aclrtDestroyEvent": _after_destroy_event,
        **dict.fromkeys(ENDS, _after_end),
        **dict.fromkeys(("aclrtSubscribeReport", "aclrtUnSubscribeReport"), _after_subscribe),
        "aclrtLaunchCallback": _after_callback,
        "aclrtProcessReport": _after_report,
    }  # fmt: skip
