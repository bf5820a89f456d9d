"""Interrupts while code is being compiled: they wait, and nothing is left half done."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from conftest import run_python
from openaclnn.core import forks
from openaclnn.engines.machine import compile_thread


def script(body: str, folder: Path) -> str:
    """Run a script in a process of its own, with nothing compiled yet; it must end by itself, with status 0."""
    done = run_python(body, PYTHONWARNINGS="ignore", OPENACLNN_CACHE_DIR=str(folder))
    return done.stdout.strip()


def test_an_interrupt_waits_for_the_compiler(tmp_path: Path) -> None:
    body = """
        import signal, time
        import numpy as np
        import openaclnn
        from openaclnn.engines.machine import cache

        steps = []
        real = cache._compile

        def slow(source):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            steps.append("begins")
            time.sleep(0.3)
            code = real(source)
            steps.append("ends")
            return code

        def handler(*_):
            steps.append("signal")
            openaclnn.l1_loss_backward(x, x, x)  # a handler may compile too
            raise KeyboardInterrupt

        x = np.ones(4, np.float32)
        openaclnn.l1_loss_backward(x, x, x)
        cache._compile = slow
        signal.signal(signal.SIGALRM, handler)
        try:
            openaclnn.elu_backward(x, x)
        except KeyboardInterrupt:
            print(*steps)
        cache._compile = real
        print(openaclnn.elu_backward(x, x).tolist())
    """
    assert script(body, tmp_path) == "begins signal ends\n[1.0, 1.0, 1.0, 1.0]"


def test_a_storm_of_interrupts(tmp_path: Path) -> None:
    body = """
        import signal
        import numpy as np
        import openaclnn
        from openaclnn.engines import cpu

        class Alarm(Exception): pass
        def handler(*_): raise Alarm
        x = np.ones(1000, np.float32)
        openaclnn.l1_loss_backward(x, x, x)
        signal.signal(signal.SIGALRM, handler)
        plans, came = list(cpu.variants())[::60], 0
        for plan in plans:
            done, calm = False, 0.002
            while not done:
                try:
                    signal.setitimer(signal.ITIMER_REAL, calm, 0.003)
                    try:
                        cpu.prepare(plan)
                        done = True
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except Alarm:
                    came, calm = came + 1, calm * 1.25  # on a slow machine nothing would ever be written in 2 ms
        print(came > 0, openaclnn.elu_backward(x, x).sum())
    """
    assert script(body, tmp_path) == "True 1000.0"


def test_work_apart() -> None:
    """Its result and its failure come back, from a thread with a stack of its own."""
    here = threading.get_ident()
    before = threading.stack_size()
    assert compile_thread.run_uninterrupted(threading.get_ident) != here
    with pytest.raises(ZeroDivisionError):
        compile_thread.run_uninterrupted(lambda: 1 // 0)
    assert threading.stack_size() == before


def test_without_threads_it_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*arguments: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(compile_thread._thread, "start_new_thread", no_thread)
    assert compile_thread.run_uninterrupted(threading.get_ident) == threading.get_ident()


def test_a_thread_that_never_begins_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory a thread ends before its first line, and nobody tells who started it."""
    late = []
    monkeypatch.setattr(forks, "_ATTEMPTS", 1)
    monkeypatch.setattr(
        compile_thread._thread, "start_new_thread", lambda run, arguments: late.append(run)
    )
    done: list[int] = []
    with pytest.raises(MemoryError, match="no memory for a thread"):
        compile_thread.run_uninterrupted(lambda: done.append(1))
    late[0]()  # if it begins after all, it finds nothing to do
    assert done == []


def test_without_room_for_a_thread_none_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*arguments: object) -> object:
        raise OSError("Cannot allocate memory")

    monkeypatch.setattr(compile_thread.mmap, "mmap", no_memory)
    with pytest.raises(MemoryError, match="no memory for a thread"):
        compile_thread.run_uninterrupted(threading.get_ident)


def test_without_memory_for_a_lock_none_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_lock() -> object:
        raise RuntimeError("can't allocate lock")

    monkeypatch.setattr(compile_thread._thread, "allocate_lock", no_lock)
    with pytest.raises(MemoryError, match="no memory for a thread"):
        compile_thread.run_uninterrupted(threading.get_ident)
