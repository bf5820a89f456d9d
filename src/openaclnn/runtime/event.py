"""Events: points in a stream that other streams and the host can wait for, and measure between."""

from __future__ import annotations

import threading
import time
from enum import Enum
from functools import partial

from openaclnn.core.status import AclError
from openaclnn.runtime.enums import EventFlag
from openaclnn.runtime.errors import AclFailure, refuse
from openaclnn.runtime.lifetime import tell_of_fork
from openaclnn.runtime.stream import Marker, Stream

__all__ = ["Capture", "Event", "EventKind", "elapsed_ms", "limit_waits"]


_wait_limit: float | None = None


def limit_waits(seconds: float) -> None:
    """How long streams wait for events, for all waits queued from now on; 0 is without limit."""
    global _wait_limit
    _wait_limit = seconds or None


class EventKind(Enum):
    """How an event was created, which decides what waiting for it means before a record."""

    PLAIN = "aclrtCreateEvent"
    FLAG = "aclrtCreateEventWithFlag"  # a flag in hardware: a wait may come before the record
    EX = "aclrtCreateEventExWithFlag"


class Capture:
    """One point in a stream: `reached_ns` is the time at which the stream came there."""

    __slots__ = ("_gate", "reached_ns", "recorded")

    def __init__(self) -> None:
        self._gate = threading.Event()
        self.reached_ns = 0
        self.recorded = False

    @property
    def reached(self) -> bool:
        return self._gate.is_set()

    def reach(self) -> None:
        self.reached_ns = time.perf_counter_ns()
        self._gate.set()

    def wait(self, seconds: float | None = None) -> None:
        """A stream's task, which fails when the time is over."""
        if not self._gate.wait(seconds):
            code = AclError.ACL_ERROR_RT_WAIT_TIMEOUT
            raise refuse(code, "event", f"completion within {seconds} s", "not reached yet")

    def wait_for(self, seconds: float | None) -> bool:
        return self._gate.wait(seconds)


class Event:
    """A handle whose captured point is replaced by each record; earlier waits keep theirs."""

    c_name = "aclrtEvent"

    def __init__(self, kind: EventKind, flags: int | None) -> None:
        self.kind = kind
        self.flags = flags  # None: made without flags, usable for everything
        self.alive = True
        self._capture = self._unrecorded()
        tell_of_fork(self)

    def _unrecorded(self) -> Capture | None:
        return Capture() if self.kind is EventKind.FLAG else None

    @property
    def complete(self) -> bool:
        """Whether the recorded point is reached; true where waiting would wait for nothing."""
        return self._capture is None or self._capture.reached

    def record(self, stream: Stream) -> None:
        """Capture the point behind everything queued on the stream so far."""
        capture = self._capture
        if capture is None or capture.recorded:
            capture = Capture()
        stream.submit(Marker(capture.reach))
        capture.recorded = True
        self._capture = capture

    def make_wait(self, stream: Stream) -> None:
        """Hold up the later tasks of the stream until the captured point is reached."""
        if not self._has(EventFlag.ACL_EVENT_SYNC):
            raise self._lacks("ACL_EVENT_SYNC")
        if self._capture is not None and not self._capture.reached:
            stream.submit(partial(self._capture.wait, _wait_limit))

    def reset(self) -> None:
        """Back to never recorded, for the calls that follow; waits already queued keep theirs."""
        if self.kind is not EventKind.FLAG or not self._has(EventFlag.ACL_EVENT_SYNC):
            raise self._lacks("ACL_EVENT_SYNC, made with aclrtCreateEventWithFlag")
        self._capture = self._unrecorded()

    def synchronize(self, timeout_ms: int = -1) -> None:
        """Wait on the host; -1 without limit, 0 only looks, a timeout fails with 507047."""
        if timeout_ms < -1:
            code = AclError.ACL_ERROR_RT_PARAM_INVALID
            raise refuse(code, "timeout", "-1, 0 or milliseconds", timeout_ms)
        capture = self._capture
        seconds = None if timeout_ms < 0 else timeout_ms / 1000
        if capture is not None and not capture.wait_for(seconds):
            code = AclError.ACL_ERROR_RT_EVENT_SYNC_TIMEOUT
            raise refuse(code, "event", f"completion within {timeout_ms} ms", "not reached yet")

    def timestamp(self, argument: str) -> int:
        """The nanosecond at which the recorded point was reached."""
        capture = self._capture
        if not self._has(EventFlag.ACL_EVENT_TIME_LINE):
            code = AclError.ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID
            got = f"flags {self.flags:#x}"
            raise refuse(code, argument, "an event with the flag ACL_EVENT_TIME_LINE", got)
        if capture is None or not capture.recorded:
            code = AclError.ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID
            raise refuse(code, argument, "a recorded event", "one never recorded")
        if not capture.reached:
            code = AclError.ACL_ERROR_RT_EVENT_NOT_COMPLETE
            raise refuse(code, argument, "a complete event", "one not reached yet")
        return capture.reached_ns

    def _has(self, flag: EventFlag) -> bool:
        return self.flags is None or bool(self.flags & flag)

    def _lacks(self, wanted: str) -> AclFailure:
        code = AclError.ACL_ERROR_RT_PARAM_INVALID
        flags = "no flags" if self.flags is None else f"flags {self.flags:#x}"
        got = f"one of {self.kind.value} with {flags}"
        return refuse(code, "event", f"an event with the flag {wanted}", got)

    def start_afresh(self) -> None:
        old, self._capture = self._capture, self._unrecorded()
        # A point that the parent's worker has yet to reach is never reached in the child.
        if old is not None and old.reached:
            self._capture = Capture()
            self._capture.recorded = True
            self._capture.reached_ns = old.reached_ns
            self._capture._gate.set()


def elapsed_ms(start: Event, end: Event) -> float:
    """The milliseconds between two reached points."""
    began, ended = start.timestamp("startEvent"), end.timestamp("endEvent")
    if ended < began:
        code = AclError.ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL
        raise refuse(code, "endEvent", "an event behind startEvent", f"{began - ended} ns before")
    return (ended - began) / 1e6
