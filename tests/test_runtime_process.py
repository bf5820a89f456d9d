"""Import, fork and the end of the interpreter, each in a process of its own."""

from conftest import run_python


def run(code):
    done = run_python(code, PYTHONWARNINGS="ignore::DeprecationWarning")
    assert done.stderr == ""
    return done.stdout.split()


def test_import_starts_no_thread_and_needs_numpy_only():
    heavy = "{'ml_dtypes', 'numba', 'torch', 'cffi', 'triton'}"
    code = f"""
    import sys, threading
    import openaclnn.runtime, openaclnn.acl
    print(threading.active_count(), sorted({heavy} & set(sys.modules)))
    """
    assert run(code) == ["1", "[]"]


def test_queued_work_is_done_before_the_interpreter_ends():
    code = """
    import time
    from openaclnn import acl
    acl.aclrtSetDevice(0)
    stream = acl.aclrtCreateStream()[1]
    stream.submit(lambda: time.sleep(0.1))
    stream.submit(lambda: print("done", flush=True))
    acl.aclrtCreateStream()[1].submit(lambda: None)
    """
    assert run(code) == ["done"]


def test_stuck_work_does_not_hold_up_the_end():
    code = """
    import atexit, threading
    from openaclnn import acl, runtime
    from openaclnn.runtime import stream
    stream._EXIT_SECONDS = 0.2
    acl.aclrtSetDevice(0)
    stuck = acl.aclrtCreateStream()[1]
    atexit.register(lambda: print(acl.aclrtSynchronizeStream(stuck), flush=True))
    event = acl.aclrtCreateEventWithFlag(acl.ACL_EVENT_SYNC)[1]
    stuck.submit(threading.Event().wait)
    stuck.submit(lambda: print("never", flush=True))
    acl.aclrtStreamWaitEvent(None, event)
    """
    assert run(code) == ["107017"]


def test_a_stream_is_usable_in_a_later_exit_handler():
    code = """
    import atexit, sys
    from openaclnn import runtime
    stream = runtime.current_stream(None)
    def late():
        try:
            stream.submit(lambda: print("late", flush=True))
            stream.synchronize()
        except runtime.AclFailure as failure:  # newer Pythons start no threads at the end
            assert failure.code == 207005
            print("late")
    atexit.register(late)
    stream.submit(lambda: None)
    """
    assert run(code) == ["late"]


def test_fork():
    code = """
    import os, threading
    from openaclnn import acl, runtime
    acl.aclrtSetDevice(0)
    stream = acl.aclrtCreateStream()[1]
    marker, reached = acl.aclrtCreateEvent()[1], acl.aclrtCreateEvent()[1]
    memory = acl.aclrtMalloc(64, 0)[1]
    acl.aclrtMemset(memory, 64, 5, 64)
    acl.aclrtRecordEvent(reached, stream)
    acl.aclrtSynchronizeStream(stream)
    go = threading.Event()
    stream.submit(go.wait)
    acl.aclrtRecordEvent(marker, stream)
    # A thread that takes the runtime's locks all the time, also at the moment of the fork.
    stop = threading.Event()
    def churn():
        acl.aclrtSetDevice(0)
        while not stop.is_set():
            acl.aclrtFree(acl.aclrtMalloc(64, 0)[1])
            acl.aclrtDestroyEvent(acl.aclrtCreateEvent()[1])
    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            ok = acl.aclrtSynchronizeStream(stream) == 0  # the parent's task is not the child's
            ok &= acl.aclrtSynchronizeEvent(marker) == 0
            ok &= acl.aclrtQueryEventStatus(reached) == (0, 1)
            ran = []
            stream.submit(lambda: ran.append(1))
            ok &= acl.aclrtSynchronizeStream(stream) == 0 and ran == [1]
            host = bytearray(64)
            ok &= acl.aclrtMemcpy(host, 64, memory, 64, acl.ACL_MEMCPY_DEVICE_TO_HOST) == 0
            ok &= host == bytes([5] * 64)
            ok &= acl.aclrtFree(memory) == 0
            ok &= acl.aclrtMalloc(64, 0)[0] == 0
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    for thread in threads:
        thread.join()
    print(acl.aclrtQueryEventStatus(marker))
    go.set()
    print(acl.aclrtSynchronizeStream(stream), acl.aclrtQueryEventStatus(marker)[1])
    """
    assert run(code) == ["(0,", "0)", "0", "1"]
