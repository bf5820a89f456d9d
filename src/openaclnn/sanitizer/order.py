"""Happens-before: which work is done when other work begins, whatever the timing was in this run.

Every stream has a clock, its count of tasks, and knows some of the others': what it waited for by events, and what the host knew when
it queued the task. The host is one: how threads of a program agree among themselves cannot be seen from here, so that a call counts as
behind all that returned before it began. What the host knows is therefore known to everything queued later, and only work that it
does not know of is kept: work in flight.

A stream may wait for a point that nobody has recorded yet. What is queued behind it waits here as well, so that work is looked at in an
order that the streams could have run it in; it is the host that lets it go on in the end, and all that the host did before is done then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
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
from openaclnn.sanitizer.events import Call, Handler, Rules
from openaclnn.sanitizer.session import queue_look
from openaclnn.sanitizer.shadow import Spans

HOST = 0
"""The line of the host; streams have other numbers."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the host knows at some time: how far each stream has come."""

    version: int
    tasks: dict[int, int]


@dataclass(frozen=True, slots=True)
class Moment:
    """When a piece of work runs: the number of its task on its line, and what is surely done then."""

    line: int
    task: int
    known: Known
    events: dict[int, int] = field(default_factory=dict)

    def is_behind(self, other: Moment) -> bool:
        """Whether the other piece of work is done when this one begins."""
        if other.line == self.line:
            return other.task <= self.task
        done = max(self.known.tasks.get(other.line, 0), self.events.get(other.line, 0))
        return other.task <= done


@dataclass(slots=True, eq=False)
class Point:
    """A place in a stream that others wait for; it has a moment once the stream has come there."""

    moment: Moment | None = None
    line: int = HOST  # the stream that it is queued on
    waiting: list[int] = field(default_factory=list)  # lines that wait for it

    @property
    def recorded(self) -> bool:
        return self.line != HOST or self.moment is not None


@dataclass(frozen=True, eq=False, slots=True)
class Access:
    """Bytes that a piece of work reads or writes; `what` is whatever the finder wants to say of it."""

    moment: Moment
    spans: Spans
    write: bool
    what: Any = None


Work = Callable[[Moment], None]


class _Line:
    def __init__(self, number: int, known: Known) -> None:
        self.number = number
        self.task = 0
        self.known = known
        self.events: dict[int, int] = {}
        # Work, points to record and points to wait for (True), each with what the host knew when it queued them.
        self.queue: deque[tuple[Known, Work | Point, bool]] = deque()

    @property
    def moment(self) -> Moment:
        return Moment(self.number, self.task, self.known, self.events)

    def learn(self, moment: Moment) -> None:
        self.events = _later(self.events, moment)
        self.catch_up(moment.known)

    def catch_up(self, known: Known) -> None:
        if known.version > self.known.version:
            self.known = known


def _later(tasks: dict[int, int], moment: Moment) -> dict[int, int]:
    """Counts of tasks, with what is done at a moment."""
    merged = dict(tasks)
    for number, task in (*moment.events.items(), (moment.line, moment.task)):
        if number != HOST and task > merged.get(number, 0):
            merged[number] = task
    return merged


class Order:
    """The lines of a program, and the accesses in flight in each block of memory."""

    def __init__(self) -> None:
        self._known = Known(1, {})
        self._lines: dict[Hashable, _Line] = {}
        self._by_number: dict[int, _Line] = {}
        self._last = HOST
        self._flying: dict[Hashable, list[Access]] = {}

    def _line(self, stream: Hashable) -> _Line:
        line = self._lines.get(stream)
        if line is None:
            self._last += 1
            line = self._lines[stream] = _Line(self._last, self._known)
            self._by_number[self._last] = line
        return line

    def run(self, stream: Hashable, work: Work) -> None:
        """Queue work on a stream; it is called with its moment, at once unless the stream waits."""
        self._queue(self._line(stream), work, False)

    def record(self, stream: Hashable, point: Point | None = None) -> Point:
        """A point behind everything that the stream has so far."""
        line = self._line(stream)
        point = Point() if point is None else point
        point.line = line.number
        self._queue(line, point, False)
        return point

    def wait(self, stream: Hashable, point: Point) -> None:
        """Let what the stream gets from now on wait for a point."""
        self._queue(self._line(stream), point, True)

    def _queue(self, line: _Line, item: Work | Point, waits: bool) -> None:
        line.queue.append((self._known, item, waits))
        if len(line.queue) == 1:
            self._advance([line])

    def _advance(self, free: list[_Line]) -> None:
        """Take streams as far as they come, and those that they set free after them."""
        while free:
            line = free.pop()
            while line.queue:
                known, item, waits = line.queue[0]
                if waits and isinstance(item, Point) and item.moment is None:
                    item.waiting.append(line.number)
                    break
                line.catch_up(known)
                if not isinstance(item, Point):
                    line.task += 1
                    item(line.moment)
                elif not waits:
                    free += self._set_free(item, line.moment)
                elif item.moment is not None:
                    line.learn(item.moment)
                line.queue.popleft()

    def _set_free(self, point: Point, moment: Moment) -> list[_Line]:
        """A point is reached: the lines that waited for it."""
        point.moment = moment
        waiting, point.waiting = point.waiting, []
        return [self._by_number[number] for number in waiting if number in self._by_number]

    def reach(self, point: Point) -> None:
        """The host lets those go on who wait for a point."""
        if point.moment is None:
            self._advance(self._set_free(point, self.host_moment()))

    def settle(self, point: Point) -> None:
        """A point was reached, as the program has seen: all that this needs has happened, though not all of it was told yet."""
        while point.moment is None:
            needed, asked = point, {point}
            while (line := self._by_number.get(needed.line)) is not None and line.queue:
                item = line.queue[0][1]  # a stream that does not go on waits for a point
                if not isinstance(item, Point) or item in asked:
                    break
                needed = item
                asked.add(item)
            self.reach(needed)

    def join(self, point: Point) -> None:
        """The host has waited for a point: everything from now on is behind it."""
        self.settle(point)
        assert point.moment is not None
        tasks = _later(self._known.tasks, point.moment)
        self._known = Known(self._known.version + 1, tasks)

    def end(self, stream: Hashable) -> None:
        """A stream is gone, with all its work done or dropped; who waits for it goes on."""
        line = self._lines.get(stream)
        if line is None:
            return
        self.join(self.record(stream))
        for block, accesses in list(self._flying.items()):
            self._flying[block] = [each for each in accesses if each.moment.line != line.number]
        del self._lines[stream], self._by_number[line.number]
        tasks = {
            number: task for number, task in self._known.tasks.items() if number != line.number
        }
        self._known = Known(self._known.version + 1, tasks)

    def host_moment(self) -> Moment:
        """When the host does something itself, now."""
        return Moment(HOST, 0, self._known)

    def enter(self, block: Hashable, access: Access) -> list[Access]:
        """The accesses in flight that touch the same bytes without an order, one of both writing; and keep this one."""
        moment, clashes, kept = access.moment, [], []
        now = self.host_moment()
        for other in self._flying.get(block, ()):
            behind = moment.is_behind(other.moment)
            if (access.write or other.write) and not behind and access.spans & other.spans:
                clashes.append(other)
            if now.is_behind(other.moment):
                continue  # and so is all that comes
            # Whoever meets the older one without an order meets this one, too.
            replaced = behind and (access.write or not other.write)
            if not (replaced and not other.spans - access.spans):
                kept.append(other)
        if moment.line != HOST:
            kept.append(access)
        self._flying[block] = kept
        return clashes

    def forget(self, block: Hashable) -> None:
        """The memory is gone."""
        self._flying.pop(block, None)


# Streams, events and callbacks of a program: what they say of the order of all that it does.


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


_COMPLETE: dict[str, int] = {
    "aclrtStreamQuery": StreamStatus.ACL_STREAM_STATUS_COMPLETE, "aclrtQueryEvent": EventStatus.ACL_EVENT_STATUS_COMPLETE,
    "aclrtQueryEventStatus": EventRecordedStatus.ACL_EVENT_RECORDED_STATUS_COMPLETE,
}  # fmt: skip
"""What queries answer where nothing is left to wait for."""


class Timeline(Rules):
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

    def name(self, stream: Stream | None) -> str:
        """What findings call it; "" for the host."""
        return "" if stream is None else self.names.get(stream, "")

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

    def run(self, stream: Stream | None, work: Work) -> None:
        """Queue work on a stream; without one the host does it now."""
        if stream is None:
            work(self.order.host_moment())
        else:
            self.order.run(stream, work)

    def _wait_for_streams(self, call: Call) -> Iterator[None]:
        """For a stream, or for those of the device."""
        if "Device" in call.name:
            points = self.points()
        else:
            stream = self.stream(call)
            points = [] if stream is None else self.points([stream])
        yield from self._wait_for(points, call)

    def _wait_for_events(self, call: Call) -> Iterator[None]:
        yield from self._wait_for(self._event_points(call), call)

    def _wait_for(self, points: list[Point], call: Call) -> Iterator[None]:
        """What a call waits for, or asks whether it is done, once it returns."""
        yield
        if call.name.startswith("aclrtSynchronize"):
            done = waited(call)
        else:
            done = call.status == 0 and call.result == _COMPLETE.get(call.name, call.result)
        if done:
            self.join(points)

    def _event_points(self, call: Call) -> list[Point]:
        """The points that the events of a call have now."""
        events = [call.arguments.get(name) for name in ("event", "startEvent", "endEvent")]
        points = [self._point(event) for event in events if isinstance(event, Event)]
        return [point for point in points if point is not None]

    def _point(self, event: Event) -> Point | None:
        if event not in self._events:
            self._events[event] = Point() if event.kind is EventKind.FLAG else None
        return self._events[event]

    def _stream_waits(self, call: Call) -> Iterator[None]:
        points = self._event_points(call)
        yield
        stream = self.stream(call)
        if call.status == 0 and stream is not None:
            for point in points:
                self.order.wait(stream, point)

    def _record(self, call: Call) -> Iterator[None]:
        yield
        stream, event = self.stream(call), call.arguments.get("event")
        if call.status == 0 and stream is not None and isinstance(event, Event):
            point = self._point(event)
            reused = None if point is None or point.recorded else point
            self._events[event] = self.order.record(stream, reused)

    def _reset_event(self, call: Call) -> Iterator[None]:
        yield
        if call.status == 0:
            self._events[call.arguments["event"]] = Point()

    def _destroy_event(self, call: Call) -> Iterator[None]:
        yield
        if call.status == 0:
            self._events.pop(call.arguments["event"], None)

    def _end(self, call: Call) -> Iterator[None]:
        """Streams may be gone: also those that a context, a device or the runtime had."""
        yield
        for stream in list(self.names):
            if not stream.alive:
                self._drop_callbacks(stream)
                self.order.end(stream)
                del self.names[stream]

    # Callbacks run in the thread that subscribed, between the calls that it makes.

    def _subscribe(self, call: Call) -> Iterator[None]:
        yield
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

    def _launch_callback(self, call: Call) -> Iterator[None]:
        stream = self.stream(call)
        if stream is None or stream not in self._subscribers:
            return
        callback = _Callback()
        ready = self._ready.setdefault(self._subscribers[stream], deque())
        # A thread gets callbacks as the streams come to them.
        queue_look(stream, lambda: ready.append(callback), self.report)
        yield
        if call.status != 0:
            return
        callback.begin = self.order.record(stream)
        if number_of(call.arguments["blockType"]) == CallbackBlockType.ACL_CALLBACK_BLOCK:
            self.order.wait(stream, callback.end)
            waiting = [each for each in self._callbacks.get(stream, []) if not each.end.recorded]
            self._callbacks[stream] = [*waiting, callback]

    def _process_report(self, call: Call) -> Iterator[None]:
        self._reporting[call.thread] = None
        yield
        if call.status == 0:
            self._take_callback(call.thread)
        callback = self._reporting.pop(call.thread, None)
        if callback is not None:
            self.order.reach(callback.end)

    def _take_callback(self, thread: int) -> None:
        """The program is in a callback: what the stream did before is done."""
        if self._reporting[thread] is None and self._ready.get(thread):
            callback = self._reporting[thread] = self._ready[thread].popleft()
            if callback.begin is not None:
                self.order.join(callback.begin)

    HANDLERS: ClassVar[dict[str, Handler]] = {
        **dict.fromkeys(
            (
                "aclrtSynchronizeStream", "aclrtSynchronizeStreamWithTimeout", "aclrtStreamQuery", "aclrtSynchronizeDevice",
                "aclrtSynchronizeDeviceWithTimeout",
            ),
            _wait_for_streams,
        ),
        **dict.fromkeys(
            (
                "aclrtSynchronizeEvent", "aclrtSynchronizeEventWithTimeout", "aclrtQueryEvent", "aclrtQueryEventStatus",
                "aclrtEventElapsedTime",
            ),
            _wait_for_events,
        ),
        "aclrtStreamWaitEvent": _stream_waits,
        "aclrtRecordEvent": _record,
        "aclrtResetEvent": _reset_event,
        "aclrtDestroyEvent": _destroy_event,
        **dict.fromkeys(ENDS, _end),
        **dict.fromkeys(("aclrtSubscribeReport", "aclrtUnSubscribeReport"), _subscribe),
        "aclrtLaunchCallback": _launch_callback,
        "aclrtProcessReport": _process_report,
    }  # fmt: skip
