"""Streams and events. A stream runs tasks in order on its own worker thread, which starts with the first task. An event is a point in a
stream that other streams and the host can wait for, and measure time between.

Threads survive neither a fork nor the end of the interpreter, so streams and events are reset in the child, and streams ended at exit.
"""

from __future__ import annotations

import _thread
import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from queue import SimpleQueue
from typing import Protocol

from openaclnn.core.forks import acquire_in_turns, stacks_of
from openaclnn.core.status import AclError
from openaclnn.runtime.device import Device
from openaclnn.runtime.enums import EventFlag
from openaclnn.runtime.errors import AclFailure, refuse

_EXIT_SECONDS = 5.0
"""How long the end of the interpreter waits for work that nobody synchronised."""


class _Forked(Protocol):
    def reset_after_fork(self) -> None: ...


_forked: weakref.WeakSet[_Forked] = weakref.WeakSet()
_ending: weakref.WeakSet[Stream] = weakref.WeakSet()
"""All streams. If one had work (`_register_exit`), the `end` of each is called when the interpreter ends."""
_exit_registered = False


def reset_in_child(holder: _Forked) -> None:
    """Have `reset_after_fork` called in the child of a fork, which has none of the parent's threads, and leaves their work to the parent."""
    _forked.add(holder)


def _register_exit() -> None:
    """Called when there is work for the first time: registers `_end_all`. Exit handlers that the program registered before run after it."""
    global _exit_registered
    if not _exit_registered:
        _exit_registered = True
        atexit.register(_end_all)


def _end_all() -> None:
    deadline = time.monotonic() + _EXIT_SECONDS
    for holder in list(_ending):
        holder.end(deadline)


def _reset_all() -> None:
    for holder in list(_forked):
        holder.reset_after_fork()


os.register_at_fork(after_in_child=_reset_all)

_STACK = 8 << 20
_LONGEST = threading.TIMEOUT_MAX
_GET, _RUN, _RUNNING, _COUNT, _TELL = range(5)
"""The steps of a worker with a task."""

Task = Callable[[], None]
Launcher = Callable[[Sequence[int], int], int]  # of addresses and the device's own stream


class Marker:
    """A task that tells others that the stream has come to this point. It runs even where other tasks are
    discarded, so that nobody waits for ever on a stream that failed or was destroyed."""

    __slots__ = ("action",)

    def __init__(self, action: Task) -> None:
        self.action = action


class EndMarker(Marker):
    """The last task of a stream, after which its worker ends."""

    __slots__ = ()


class _Worker:
    """The thread of a stream. The lock `turn` is taken once the thread has begun, and `ended` is free once it has ended. `threading.Thread` is not used:
    where memory is short, its `start` may wait for ever for a thread that has ended.
    """

    __slots__ = ("begun", "ended", "ident", "turn")

    def __init__(self) -> None:
        self.ident = 0
        self.turn, self.begun, self.ended = (_thread.allocate_lock() for _ in range(3))
        self.begun.acquire()
        self.ended.acquire()

    def start(self, work: Callable[[], None]) -> None:
        """Start the thread, and return when it has begun or seems not to begin; RuntimeError where there can be no more threads."""

        def run() -> None:
            self.ident = _thread.get_ident()
            if not self.turn.acquire(False):
                return
            self.begun.release()
            while self.ended.locked():
                try:
                    work()
                    self.ended.release()
                except MemoryError:  # before its first step
                    time.sleep(0.001)

        with stacks_of(_STACK):
            _thread.start_new_thread(run, ())
        acquire_in_turns(self.begun)

    def give_up(self) -> bool:
        """Prevent a thread that has not begun from beginning; False where it has begun."""
        return self.turn.acquire(False)

    @property
    def is_current(self) -> bool:
        return self.ident == _thread.get_ident() and self.ended.locked()

    def join(self, seconds: float) -> bool:
        """Wait so long at most for the thread's end; whether it has ended."""
        if not self.ended.acquire(timeout=seconds):
            return False
        self.ended.release()
        return True


class Stream:
    """A queue of tasks, run one after the other, asynchronously to the threads that submit them."""

    c_name = "aclrtStream"

    def __init__(self, device: Device, flags: int = 0, *, is_default: bool = False) -> None:
        self.device = device
        self.flags = flags
        self.is_default = is_default
        self.alive = True
        self.stop_on_failure = False
        self.overflow_switch = 0
        self._error: tuple[int, str] | None = None
        self._failures = 0
        self._discarding = False  # tasks are skipped: stopped by a failure, or aborted
        self._aborted = False
        self._native = -1
        self.at_end: Task | None = None  # called once it is closed
        self.reset_after_fork()
        reset_in_child(self)
        _ending.add(self)

    def reset_after_fork(self) -> None:
        """Set the state of a stream without work, which every stream has in the child of a fork."""
        self._lock = threading.RLock()  # re-entrant, since a finaliser may run while it is held
        self._queue: SimpleQueue[Task | Marker | None] = SimpleQueue()
        self._worker: _Worker | None = None
        self._submitted = 0  # changed under the lock
        self._completed = 0  # changed by the worker only

    @property
    def native(self) -> int:
        """The handle of the device's stream that does this one's work; it is opened when it is first used."""
        if self._native < 0:
            self._native = self.device.open_stream()
        return self._native

    def launch(self, runner: Launcher, addresses: Sequence[int]) -> None:
        """Run a kernel of this stream's device; on a GPU this only queues it."""
        if self._native:  # 0: the host, which has no context to enter
            self.device.enter()
        runner(addresses, self._native if self._native >= 0 else self.native)

    def drain(self) -> None:
        """Wait until the device has done what earlier tasks queued there. Called from tasks."""
        if self._native > 0:
            self.device.drain(self._native)

    def _drain_or_fail(self) -> None:
        try:
            self.drain()
        except AclFailure as error:
            self._fail(error)

    def _close_native(self) -> None:
        if self._native > 0:
            self.device.close_stream(self._native)
            self._native = -1

    @property
    def idle(self) -> bool:
        """Whether everything submitted so far is done."""
        if self._completed != self._submitted:
            return False
        return self._native <= 0 or self.device.is_done(self._native)

    def submit(self, task: Task | Marker) -> None:
        """Queue a task behind all earlier ones and return at once."""
        with self._lock:
            if not self.alive:
                raise _destroyed()
            if self._worker is None:
                self._start_worker()
            self._put(task)

    def _put(self, task: Task | Marker) -> None:
        """Count a task and queue it, or do neither where memory is short. An interrupt is raised after both."""
        before = self._submitted
        self._submitted = before + 1
        try:
            self._queue.put(task)
        except MemoryError:
            self._submitted = before
            raise

    def launch_now(self, runner: Launcher, addresses: Sequence[int]) -> bool:
        """Launch a kernel on the calling thread if no task is queued before it; False otherwise."""
        with self._lock:  # other threads that submit tasks wait, which keeps the order
            if self._completed != self._submitted or self._discarding or not self.alive:
                return False
            try:
                self.launch(runner, addresses)
            except BaseException as error:
                self._fail(error)
                if not isinstance(error, Exception):  # an interrupt, which the caller gets
                    raise
        return True

    def synchronize(self, timeout_ms: int = -1) -> None:
        """Wait for everything submitted so far; raises the failure of a task, if one failed.

        -1 waits without limit, 0 only looks; a timeout is a failure with code 507046.
        """
        if self._error is None and timeout_ms == -1 and self._completed == self._submitted:
            # Asking the device whether it is busy takes as long as waiting for a short task.
            if self._native > 0:
                self._drain_or_fail()
                self.raise_failure()
            return
        if timeout_ms < -1:
            code = AclError.ACL_ERROR_RT_PARAM_INVALID
            raise refuse(code, "timeout", "-1, 0 or milliseconds", timeout_ms)
        self.wait(-1 if timeout_ms < 0 else timeout_ms / 1000)
        self.raise_failure()

    def wait(self, seconds: float = -1) -> None:
        """Like `synchronize`, but failures of tasks stay for the next synchronisation."""
        if self.idle:
            return
        if self._completed == self._submitted and seconds < 0:  # only the device is busy
            self._drain_or_fail()
            return
        if self._is_inside():
            raise _from_inside()
        if seconds == 0:
            raise _timed_out(seconds)
        gate = threading.Lock()
        gate.acquire()
        try:
            self.submit(Marker(gate.release))
        except AclFailure:
            raise _aborted() from None
        if not gate.acquire(timeout=seconds):
            raise _timed_out(seconds)
        if self._aborted:
            raise _aborted()

    def raise_failure(self) -> None:
        """Raise the first failure since the last report; a stopped stream reports it every time."""
        if self._error is None:
            return
        with self._lock:
            error, failures = self._error, self._failures
            if not self._discarding:
                self._error, self._failures = None, 0
        if error is not None:
            got = f"{failures} failed, the first with {error[1]}"
            raise refuse(error[0], "stream", "tasks that succeed", got)

    def close(self, *, wait: bool) -> None:
        """Take no more tasks; run those queued and wait for them, or discard them."""
        if wait and self._is_inside():
            raise _from_inside()
        gate = threading.Lock()
        gate.acquire()
        with self._lock:
            if not self.alive:
                raise _destroyed()
            before = self._discarding, self._aborted
            self.alive = False
            if not wait:
                self._discarding = self._aborted = True
            if self._worker is None:
                if wait:
                    self._drain_or_fail()
                self._close_native()
                gate.release()
            else:
                try:
                    self._put(EndMarker(gate.release))
                except MemoryError:  # the stream stays open, and can be closed later
                    self.alive, self._discarding, self._aborted = True, *before
                    raise
        if wait:
            gate.acquire()
        at_end = self.at_end
        if at_end is not None:
            at_end()
        if wait:
            self.raise_failure()

    def _is_inside(self) -> bool:
        worker = self._worker
        return worker is not None and worker.is_current

    def _start_worker(self) -> None:
        _register_exit()
        worker, why = _Worker(), "one that did not begin"
        try:
            worker.start(partial(self._work, self._queue))
        except RuntimeError as error:  # no more threads, or the interpreter is ending
            why = str(error)
        finally:  # an interrupt may be raised here after the thread has begun
            if not worker.give_up():
                self._worker = worker
        if self._worker is None:
            code = AclError.ACL_ERROR_RT_RESOURCE_ALLOC_FAIL
            raise refuse(code, "stream", "a worker thread", why)

    def _work(self, queue: SimpleQueue[Task | Marker | None]) -> None:
        """Run the queued tasks until the stream ends. Others wait for the worker, so where memory is short it tries the same step again: no step is left
        out or done twice."""
        item: Task | Marker | None = None
        failure: BaseException | None = None
        step = _GET
        while True:
            try:
                if step == _GET:
                    item = queue.get()
                    step = _RUN
                if item is None:
                    break
                if step == _RUN:
                    step = _RUNNING
                    if isinstance(item, Marker):
                        self._drain_or_fail()
                    elif not self._discarding:
                        item()
                    step = _COUNT
                if failure is not None:
                    self._fail(failure)
                    failure = None
                if step == _COUNT:
                    # Counted before the marker's action: a thread that it wakes must see the stream as idle.
                    self._completed += 1
                    step = _TELL
                if isinstance(item, Marker):
                    item.action()
                    if isinstance(item, EndMarker):
                        break
                # The task's buffers must not live on while the worker waits for the next one.
                item, step = None, _GET
            except BaseException as error:
                if step == _RUNNING:
                    failure, step = error, _COUNT
                else:
                    time.sleep(0.001)
        self._close_native()

    def _fail(self, error: BaseException) -> None:
        code = getattr(error, "code", None)
        if not isinstance(code, int) or code == 0 or isinstance(error, SystemExit):
            code = AclError.ACL_ERROR_RT_AICORE_EXCEPTION
        # The text, not the exception: its traceback would keep the task's buffers alive.
        error_text = int(code), f"{type(error).__name__}: {error}"
        with self._lock:
            self._error = self._error or error_text
            self._failures += 1
            if self.stop_on_failure:
                self._discarding = True

    def end(self, deadline: float) -> None:
        """End the worker before the interpreter ends, if it is done before the deadline."""
        worker = self._worker
        if worker is None:
            self._drain_or_fail()
        if worker is None or worker.is_current:
            return
        self._queue.put(None)
        over = worker.join(max(deadline - time.monotonic(), 0))
        with self._lock:
            if not over:
                self.alive = False
                self._discarding = self._aborted = True
            else:  # an exit handler that runs later may still use the stream
                self._worker = None


def _from_inside() -> AclFailure:
    code = AclError.ACL_ERROR_RT_PARAM_INVALID
    return refuse(code, "stream", "a call from outside the stream's tasks", "one of them")


def _destroyed() -> AclFailure:
    code = AclError.ACL_ERROR_RT_INVALID_HANDLE
    return refuse(code, "stream", "a live stream", "a destroyed one")


def _aborted() -> AclFailure:
    code = AclError.ACL_ERROR_RT_STREAM_ABORT
    return refuse(code, "stream", "a live stream", "one destroyed while waiting for it")


def _timed_out(seconds: float) -> AclFailure:
    code = AclError.ACL_ERROR_RT_STREAM_SYNC_TIMEOUT
    return refuse(code, "stream", f"completion within {seconds} s", "tasks still queued")


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


class Gate:
    """A gate that opens once. It is made of a plain lock: where memory is short, a `threading.Event` may stay locked for ever."""

    __slots__ = ("_lock", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def open(self) -> None:
        self.is_open = True
        with suppress(RuntimeError):
            self._lock.release()  # RuntimeError: another thread that waited has released it already

    def wait(self, seconds: float | None) -> bool:
        """Wait so long at most for the gate to open; whether it is open."""
        if self.is_open:
            return True
        try:
            self._lock.acquire(timeout=-1 if seconds is None else min(seconds, _LONGEST))
        finally:
            if self.is_open:  # lets others that wait through, even if an interrupt is raised
                self.open()
        return self.is_open


class Capture:
    """One point in a stream: `reached_ns` is the time at which the stream came there."""

    __slots__ = ("gate", "reached_ns", "recorded")

    def __init__(self) -> None:
        self.gate = Gate()
        self.reached_ns = 0
        self.recorded = False

    @property
    def reached(self) -> bool:
        return self.gate.is_open

    def reach(self) -> None:
        self.reached_ns = time.perf_counter_ns()
        self.gate.open()

    def wait(self, seconds: float | None = None) -> None:
        """A stream's task, which fails when the time is over."""
        if not self.gate.wait(seconds):
            code = AclError.ACL_ERROR_RT_WAIT_TIMEOUT
            raise refuse(code, "event", f"completion within {seconds} s", "not reached yet")


class Event:
    """A handle whose captured point is replaced by each record; earlier waits keep theirs."""

    c_name = "aclrtEvent"

    def __init__(self, kind: EventKind, flags: int | None) -> None:
        self.kind = kind
        self.flags = flags  # None: made without flags, usable for everything
        self.alive = True
        self._capture = self._unrecorded()
        reset_in_child(self)

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
        if capture is not None and not capture.gate.wait(seconds):
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

    def reset_after_fork(self) -> None:
        old, self._capture = self._capture, self._unrecorded()
        # A point that the parent's worker has yet to reach is never reached in the child.
        if old is not None and old.reached:
            self._capture = Capture()
            self._capture.recorded = True
            self._capture.reached_ns = old.reached_ns
            self._capture.gate.open()


def elapsed_ms(start: Event, end: Event) -> float:
    """The milliseconds between two reached points."""
    began, ended = start.timestamp("startEvent"), end.timestamp("endEvent")
    if ended < began:
        code = AclError.ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL
        raise refuse(code, "endEvent", "an event behind startEvent", f"{began - ended} ns before")
    return (ended - began) / 1e6
