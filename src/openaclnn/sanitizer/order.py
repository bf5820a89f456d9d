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
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from openaclnn.sanitizer.shadow import Spans

__all__ = ["HOST", "Access", "Moment", "Order", "Point"]

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
