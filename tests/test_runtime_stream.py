"""Streams and events: order, asynchrony, failures, timeouts, misuse of handles."""

import gc
import threading
import weakref

import pytest

from openaclnn import acl, runtime
from openaclnn.runtime import api_stream, context

pytestmark = pytest.mark.usefixtures("fresh_device")


@pytest.fixture
def go():
    """Lets blocked tasks go on; set at the end of the test in any case."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def stream():
    status, handle = acl.aclrtCreateStream()
    assert status == 0
    return handle


def event(flag=None, ex=False):
    if flag is None:
        status, handle = acl.aclrtCreateEvent()
    else:
        make = acl.aclrtCreateEventExWithFlag if ex else acl.aclrtCreateEventWithFlag
        status, handle = make(flag)
    assert status == 0
    return handle


def test_tasks_run_in_order_and_asynchronously(stream, go):
    ran = []
    stream.submit(lambda: (go.wait(), ran.append("first")))
    stream.submit(lambda: ran.append("second"))
    assert ran == []
    assert acl.aclrtStreamQuery(stream) == (0, acl.ACL_STREAM_STATUS_NOT_READY)
    go.set()
    assert acl.aclrtSynchronizeStream(stream) == 0
    assert ran == ["first", "second"]
    assert acl.aclrtStreamQuery(stream) == (0, acl.ACL_STREAM_STATUS_COMPLETE)


def test_many_submitters_keep_their_own_order(stream):
    ran = []

    def submit(name):
        for i in range(200):
            stream.submit(lambda i=i: ran.append((name, i)))

    threads = [threading.Thread(target=submit, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stream.synchronize()
    assert len(ran) == 800
    for name in range(4):
        assert [i for n, i in ran if n == name] == list(range(200))


def test_streams_do_not_wait_for_each_other(stream, go):
    _, other = acl.aclrtCreateStream()
    ran = []
    stream.submit(go.wait)
    other.submit(lambda: ran.append(1))
    assert acl.aclrtSynchronizeStream(other) == 0
    assert ran == [1]
    assert acl.aclrtStreamQuery(stream)[1] == acl.ACL_STREAM_STATUS_NOT_READY


def test_timeouts(stream, go):
    assert acl.aclrtSynchronizeStreamWithTimeout(stream, 0) == 0
    stream.submit(go.wait)
    assert acl.aclrtSynchronizeStreamWithTimeout(stream, 0) == 507046
    assert acl.aclrtSynchronizeStreamWithTimeout(stream, 10) == 507046
    for bad in (-2, 2**31, None, "1"):
        assert acl.aclrtSynchronizeStreamWithTimeout(stream, bad) == 107000
    go.set()
    assert acl.aclrtSynchronizeStreamWithTimeout(stream, 60000) == 0
    assert acl.aclrtSynchronizeStreamWithTimeout(None, -1) == 0


class CodedError(Exception):
    code = 507035


def fail_with(error):
    def task():
        raise error

    return task


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("bad value"), 507015),
        (CodedError("coded"), 507035),
        (runtime.AclFailure(207001, "kernel", "buffer", "memory", "none"), 207001),
        (SystemExit(3), 507015),
        (KeyboardInterrupt(), 507015),
    ],
)
def test_a_failed_task_is_reported_once_and_the_stream_goes_on(stream, error, code):
    ran = []
    stream.submit(fail_with(error))
    stream.submit(lambda: ran.append(1))
    assert acl.aclrtSynchronizeStream(stream) == code
    assert ran == [1]
    message = acl.aclGetRecentErrMsg()
    assert type(error).__name__ in message
    assert str(error) in message
    assert acl.aclrtSynchronizeStream(stream) == 0
    assert acl.aclrtDestroyStream(stream) == 0


def test_the_first_of_several_failures_is_reported(stream):
    stream.submit(fail_with(ValueError("one")))
    stream.submit(fail_with(CodedError("two")))
    assert acl.aclrtSynchronizeStream(stream) == 507015
    assert "2 failed, the first with ValueError: one" in acl.aclGetRecentErrMsg()


def test_stop_on_failure(stream):
    assert acl.aclrtSetStreamFailureMode(stream, 2) == 107000
    assert acl.aclrtSetStreamFailureMode(stream, acl.ACL_STOP_ON_FAILURE) == 0
    ran, marker = [], event()
    stream.submit(lambda: ran.append(1))
    stream.submit(fail_with(ValueError("stop")))
    stream.submit(lambda: ran.append(2))
    assert acl.aclrtRecordEvent(marker, stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 507015
    assert acl.aclrtSynchronizeEvent(marker) == 0, "nobody waits for ever on a stopped stream"
    stream.submit(lambda: ran.append(3))
    assert acl.aclrtSynchronizeStream(stream) == 507015
    assert ran == [1]


def test_destroy_waits_and_force_does_not(stream, go):
    ran, held = [], threading.Event()
    stream.submit(lambda: (go.wait(), ran.append(1)))
    threading.Timer(0.05, go.set).start()
    assert acl.aclrtDestroyStream(stream) == 0
    assert ran == [1]
    _, forced = acl.aclrtCreateStream()
    marker = event()
    forced.submit(held.wait)
    forced.submit(lambda: ran.append(2))
    acl.aclrtRecordEvent(marker, forced)
    assert acl.aclrtDestroyStreamForce(forced) == 0
    held.set()
    assert acl.aclrtSynchronizeEvent(marker) == 0
    assert ran == [1], "what was queued is discarded"


def test_force_releases_who_waits(stream, go):
    codes, waiting = [], threading.Event()
    stream.submit(go.wait)

    def wait():
        acl.aclrtSetDevice(0)
        waiting.set()
        codes.append(acl.aclrtSynchronizeStream(stream))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    while stream._submitted < 2:  # until it really waits
        pass
    assert acl.aclrtDestroyStreamForce(stream) == 0
    go.set()
    thread.join()
    assert codes == [107023]


def test_destroy_reports_a_failure_nobody_saw(stream):
    stream.submit(fail_with(ValueError("unseen")))
    assert acl.aclrtDestroyStream(stream) == 507015
    assert "unseen" in acl.aclGetRecentErrMsg()
    assert acl.aclrtDestroyStream(stream) == 107017


def test_a_task_cannot_wait_for_its_own_stream(stream):
    codes = []

    def task():
        acl.aclrtSetDevice(0)
        codes.append(acl.aclrtSynchronizeStream(stream))
        codes.append(acl.aclrtDestroyStream(stream))

    stream.submit(task)
    assert acl.aclrtSynchronizeStream(stream) == 0
    assert codes == [107000, 107000]


def test_a_task_may_submit_more(stream):
    ran = []
    stream.submit(lambda: stream.submit(lambda: ran.append(1)))
    stream.synchronize()
    stream.synchronize()
    assert ran == [1]


def test_finished_tasks_are_let_go(stream):
    class Buffer:
        pass

    buffer = Buffer()
    gone = weakref.ref(buffer)
    stream.submit(lambda buffer=buffer: None)
    stream.submit(fail_with(ValueError(buffer)))
    del buffer
    acl.aclrtSynchronizeStream(stream)
    stream.submit(lambda: None)
    stream.synchronize()
    gc.collect()
    assert gone() is None


def test_stream_handles(stream):
    assert acl.aclrtDestroyStream(None) == 100000
    assert acl.aclrtDestroyStreamForce(None) == 100000
    for garbage in (1234, "stream", object(), event()):
        assert acl.aclrtSynchronizeStream(garbage) == 107017
        assert acl.aclrtSynchronizeStreamWithTimeout(garbage, 0) == 107017
        assert acl.aclrtStreamQuery(garbage) == (107017, 0)
        assert acl.aclrtDestroyStream(garbage) == 107017
        assert acl.aclrtDestroyStreamForce(garbage) == 107017
        assert acl.aclrtSetStreamFailureMode(garbage, 0) == 107017
        assert acl.aclrtRecordEvent(event(), garbage) == 107017
    assert acl.aclrtDestroyStream(runtime.current_stream(None)) == 107000
    assert acl.aclrtDestroyStream(stream) == 0
    for call in (acl.aclrtSynchronizeStream, acl.aclrtDestroyStream, acl.aclrtDestroyStreamForce):
        assert call(stream) == 107017
    with pytest.raises(runtime.AclFailure) as failure:
        runtime.current_stream(stream)
    assert failure.value.code == 107017
    with pytest.raises(runtime.AclFailure):
        stream.submit(lambda: None)


def test_config_flags():
    for priority, flag in ((0, 0), (7, acl.ACL_STREAM_FAST_LAUNCH), (99, 0xFFFF)):
        status, handle = acl.aclrtCreateStreamWithConfig(priority, flag)
        assert status == 0
        assert acl.aclrtDestroyStream(handle) == 0
    assert acl.aclrtCreateStreamWithConfig(-1, 0) == (100000, None)
    assert acl.aclrtCreateStreamWithConfig(0, "x") == (100000, None)


def test_the_number_of_streams_is_limited():
    handles = [acl.aclrtCreateStream() for _ in range(context.MAX_STREAMS - 1)]
    assert context.MAX_STREAMS == 1984
    assert {status for status, _ in handles} == {0}
    assert acl.aclrtCreateStream() == (207008, None)
    assert acl.aclrtCreateContext(0) == (207008, None)
    assert acl.aclrtDestroyStream(handles.pop()[1]) == 0
    assert acl.aclrtCreateStream()[0] == 0


def test_the_number_of_events_is_limited():
    handles = [acl.aclrtCreateEvent() for _ in range(api_stream.MAX_EVENTS)]
    assert api_stream.MAX_EVENTS == 65536
    assert {status for status, _ in handles} == {0}
    assert acl.aclrtCreateEvent() == (207007, None)
    assert acl.aclrtCreateEventWithFlag(1) == (207007, None)
    assert acl.aclrtDestroyEvent(handles.pop()[1]) == 0
    assert acl.aclrtCreateEvent()[0] == 0


def test_no_thread_before_the_first_task(stream):
    before = threading.active_count()
    _, other = acl.aclrtCreateStream()
    assert acl.aclrtSynchronizeStream(other) == 0
    assert acl.aclrtDestroyStream(other) == 0
    assert threading.active_count() == before


def test_events_link_streams(stream, go):
    _, other = acl.aclrtCreateStream()
    ran, marker = [], event()
    stream.submit(lambda: (go.wait(), ran.append("first")))
    assert acl.aclrtRecordEvent(marker, stream) == 0
    assert acl.aclrtStreamWaitEvent(other, marker) == 0
    other.submit(lambda: ran.append("second"))
    assert acl.aclrtQueryEventStatus(marker) == (0, 0)
    assert acl.aclrtQueryEvent(marker) == (0, 1)
    assert acl.aclrtSynchronizeEventWithTimeout(marker, 0) == 507047
    assert acl.aclrtSynchronizeEventWithTimeout(marker, 10) == 507047
    assert acl.aclrtSynchronizeEventWithTimeout(marker, -2) == 107000
    assert acl.aclrtSynchronizeStreamWithTimeout(other, 10) == 507046
    go.set()
    assert acl.aclrtSynchronizeStream(other) == 0
    assert ran == ["first", "second"]
    assert acl.aclrtQueryEventStatus(marker) == (0, acl.ACL_EVENT_RECORDED_STATUS_COMPLETE)
    assert acl.aclrtQueryEvent(marker) == (0, acl.ACL_EVENT_STATUS_COMPLETE)
    assert acl.aclrtSynchronizeEvent(marker) == 0
    assert acl.aclrtSynchronizeEventWithTimeout(marker, 0) == 0
    assert acl.aclrtDestroyEvent(marker) == 0


def test_a_wait_keeps_the_point_it_saw(stream, go):
    _, other = acl.aclrtCreateStream()
    marker = event(acl.ACL_EVENT_SYNC, ex=True)
    acl.aclrtRecordEvent(marker, stream)
    acl.aclrtSynchronizeStream(stream)
    assert acl.aclrtStreamWaitEvent(other, marker) == 0
    stream.submit(go.wait)
    acl.aclrtRecordEvent(marker, stream)  # replaces the point for later waits only
    assert acl.aclrtSynchronizeStreamWithTimeout(other, 60000) == 0
    assert acl.aclrtQueryEventStatus(marker) == (0, 0)
    assert acl.aclrtStreamWaitEvent(other, marker) == 0
    assert acl.aclrtSynchronizeStreamWithTimeout(other, 0) == 507046
    assert acl.aclrtDestroyEvent(marker) == 0, "allowed before it completes"
    go.set()
    assert acl.aclrtSynchronizeStream(other) == 0


@pytest.mark.parametrize("make", [event, lambda: event(acl.ACL_EVENT_SYNC, ex=True)])
def test_an_event_never_recorded_is_complete(stream, make):
    marker = make()
    assert acl.aclrtQueryEventStatus(marker) == (0, 1)
    assert acl.aclrtSynchronizeEvent(marker) == 0
    assert acl.aclrtStreamWaitEvent(stream, marker) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0


def test_events_with_flags_are_flags(stream):
    _, other = acl.aclrtCreateStream()
    marker, ran = event(acl.ACL_EVENT_SYNC), []
    assert acl.aclrtQueryEventStatus(marker) == (0, 0)
    assert acl.aclrtSynchronizeEventWithTimeout(marker, 0) == 507047
    assert acl.aclrtStreamWaitEvent(other, marker) == 0  # before the record
    other.submit(lambda: ran.append("other"))
    stream.submit(lambda: ran.append("stream"))
    assert acl.aclrtRecordEvent(marker, stream) == 0
    assert acl.aclrtSynchronizeStream(other) == 0
    assert ran == ["stream", "other"]
    assert acl.aclrtResetEvent(marker, stream) == 0
    assert acl.aclrtQueryEventStatus(marker) == (0, 0)
    assert acl.aclrtRecordEvent(marker, stream) == 0
    assert acl.aclrtSynchronizeEvent(marker) == 0


def test_uses_that_the_flags_do_not_name(stream):
    timed = event(acl.ACL_EVENT_TIME_LINE)
    assert acl.aclrtStreamWaitEvent(stream, timed) == 107000
    assert "ACL_EVENT_SYNC" in acl.aclGetRecentErrMsg()
    for other in (timed, event(), event(acl.ACL_EVENT_SYNC, ex=True)):
        assert acl.aclrtResetEvent(other, stream) == 107000
    for flag in (0, 4, 0x80, -1, None):
        assert acl.aclrtCreateEventWithFlag(flag) == (107000, None)
        assert acl.aclrtCreateEventExWithFlag(flag) == (107000, None)


def test_elapsed_time(stream, go):
    start, end = event(), event(acl.ACL_EVENT_TIME_LINE)
    assert acl.aclrtEventElapsedTime(start, end) == (107006, 0.0)
    acl.aclrtRecordEvent(start, stream)
    stream.submit(go.wait)
    acl.aclrtRecordEvent(end, stream)
    acl.aclrtSynchronizeEvent(start)
    assert acl.aclrtEventElapsedTime(start, end) == (507006, 0.0)
    go.set()
    acl.aclrtSynchronizeStream(stream)
    status, milliseconds = acl.aclrtEventElapsedTime(start, end)
    assert status == 0
    assert milliseconds > 0
    assert acl.aclrtEventElapsedTime(end, start) == (107007, 0.0)
    assert acl.aclrtEventElapsedTime(start, start) == (0, 0.0)
    untimed = event(acl.ACL_EVENT_SYNC)
    acl.aclrtRecordEvent(untimed, stream)
    acl.aclrtSynchronizeStream(stream)
    assert acl.aclrtEventElapsedTime(start, untimed) == (107006, 0.0)


def test_event_handles(stream):
    calls = (
        acl.aclrtDestroyEvent,
        acl.aclrtRecordEvent,
        acl.aclrtResetEvent,
        lambda handle: acl.aclrtQueryEventStatus(handle)[0],
        lambda handle: acl.aclrtQueryEvent(handle)[0],
        acl.aclrtSynchronizeEvent,
        lambda handle: acl.aclrtSynchronizeEventWithTimeout(handle, 0),
        lambda handle: acl.aclrtStreamWaitEvent(stream, handle),
        lambda handle: acl.aclrtEventElapsedTime(handle, event())[0],
        lambda handle: acl.aclrtEventElapsedTime(event(), handle)[0],
    )
    dead = event()
    assert acl.aclrtDestroyEvent(dead) == 0
    for call in calls:
        assert call(None) == 100000
        for bad in (1234, "event", stream, dead):
            assert call(bad) == 107017
    assert acl.aclrtRecordEvent(event(), None) == 0
    assert acl.aclrtStreamWaitEvent(None, event()) == 0
