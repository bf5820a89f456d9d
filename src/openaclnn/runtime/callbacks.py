"""Callbacks: a stream hands them over in its order, and the thread that subscribed to it runs them."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from openaclnn.core.status import AclError
from openaclnn.runtime.errors import refuse
from openaclnn.runtime.lifetime import tell_of_fork
from openaclnn.runtime.stream import Stream

__all__ = ["launch", "process", "subscribe", "unsubscribe"]

_NOT_REGISTERED = AclError.ACL_ERROR_RT_STREAM_NO_CB_REG
_NOT_SUBSCRIBED = AclError.ACL_ERROR_RT_THREAD_SUBSCRIBE


class _Report:
    """One callback on its way; `done` once it ran or never will."""

    def __init__(self, function: Callable[[Any], None], data: Any) -> None:
        self._function = function
        self._data = data
        self.done = threading.Event()

    def run(self) -> None:
        try:
            self._function(self._data)
        finally:
            self.done.set()


class _Reporter:
    """What waits for one thread; closed when its last stream is unsubscribed."""

    def __init__(self) -> None:
        self.streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._queue: SimpleQueue[_Report | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False

    def put(self, report: _Report) -> None:
        with self._lock:
            if self._closed:  # nobody will run it: the stream must not wait for that
                report.done.set()
            else:
                self._queue.put(report)

    def take(self, seconds: float | None) -> _Report | None:
        """The next report, or None where the reporter was closed; Empty when the time is over."""
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
        self.start_afresh()
        tell_of_fork(self)

    def start_afresh(self) -> None:
        """Nobody subscribed: also in the child of a fork, which has none of the threads."""
        self.lock = threading.Lock()
        self.by_stream: weakref.WeakKeyDictionary[Stream, _Reporter] = weakref.WeakKeyDictionary()
        self.by_thread: dict[int, _Reporter] = {}


_known = _Subscriptions()


def subscribe(thread: int, stream: Stream) -> None:
    """Let a thread, by its system's number, run the callbacks of a stream."""
    with _known.lock:
        if stream in _known.by_stream:
            code = AclError.ACL_ERROR_RT_STREAM_SUBSCRIBE
            raise refuse(
                code, "stream", "one without a subscriber", "one that has a thread already"
            )
        reporter = _known.by_thread.setdefault(thread, _Reporter())
        reporter.streams.add(stream)
        _known.by_stream[stream] = reporter
        stream.at_end = functools.partial(_forget, thread, reporter, weakref.ref(stream))


def unsubscribe(thread: int, stream: Stream) -> None:
    """Undo `subscribe`; with a thread's last stream, callbacks still waiting for it are dropped."""
    with _known.lock:
        reporter = _known.by_stream.get(stream)
        if reporter is None:
            raise refuse(_NOT_REGISTERED, "stream", "a subscribed stream", "one without a thread")
        if _known.by_thread.get(thread) is not reporter:
            expected = "the thread that subscribed to the stream"
            raise refuse(_NOT_SUBSCRIBED, "threadId", expected, f"{thread:#x}")
        _take_off(thread, reporter, stream)


def _take_off(thread: int, reporter: _Reporter, stream: Stream) -> None:
    """With the lock held."""
    del _known.by_stream[stream]
    stream.at_end = None
    reporter.streams.discard(stream)
    if not reporter.streams:
        del _known.by_thread[thread]
        reporter.close()


def _forget(thread: int, reporter: _Reporter, ended: weakref.ref[Stream]) -> None:
    """A stream ends: a thread that the system gives the same number must not find what was this one's."""
    stream = ended()
    with _known.lock:
        if stream is not None and _known.by_stream.get(stream) is reporter:
            _take_off(thread, reporter, stream)


def launch(function: Callable[[Any], None], data: Any, stream: Stream, *, block: bool) -> None:
    """Queue a callback on a stream, whose later tasks wait for it if it is to block."""
    with _known.lock:
        reporter = _known.by_stream.get(stream)
    if reporter is None:
        raise refuse(_NOT_REGISTERED, "stream", "a subscribed stream", "one without a thread")
    report = _Report(function, data)

    def task() -> None:
        stream.drain()
        reporter.put(report)
        if block:
            report.done.wait()

    stream.submit(task)


def process(timeout_ms: int) -> None:
    """Run the next callback of the calling thread's streams; wait for one, -1 without limit."""
    thread = threading.get_ident()
    reporter = _known.by_thread.get(thread)
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
