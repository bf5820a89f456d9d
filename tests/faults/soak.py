"""Load: small calls of every kind from many threads for as long as is asked, with thousands of streams and events in between. Every result has the
bits that one thread of another process computed before: the first calls of all threads come together; memory, handles and threads of the process do not grow.

python -m faults soak --seconds 3600 --threads 8
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import threading
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import numpy as np

import openaclnn
from faults.bits import SMALL, Problem, digest, problems
from openaclnn import acl, aclnn
from openaclnn.runtime.memory import used_bytes

__all__ = ["Soak", "main"]

STREAMS, EVENTS = 1500, 4000
GROWTH = 16 << 20  # bytes that the allocator of a long run may hold more
SAMPLES = 20


def _digests(names: list[str]) -> dict[str, tuple[bytes, ...]]:
    known = problems(SMALL, [openaclnn.find_operator(name) for name in names])
    return {str(problem): digest(problem.call()) for problem in known}


class Soak:
    """Threads that call, and what the process holds meanwhile."""

    def __init__(self, threads: int, operators: list[Any] | None = None) -> None:
        operators = operators or list(openaclnn.registry())
        self.problems = list(problems(SMALL, operators))
        with get_context("fork").Pool(1) as alone:  # nothing has been called here yet
            self.expected = alone.apply(_digests, [[operator.name for operator in operators]])
        self.threads, self.stop = threads, threading.Event()
        self.together = threading.Barrier(threads)
        self.counts = [0] * threads
        self.faults: list[str] = []
        self.samples: list[tuple[int, int, int, int]] = []

    def first(self, index: int) -> None:
        """The first calls, of all threads at the same time."""
        try:
            for problem in self.problems:
                self.together.wait()
                self.plain(problem)
            self.together.wait()
            self.two_phases()
        except BaseException as error:
            self.together.abort()
            self.faults.append(f"thread {index}: {error!r}")

    def caller(self, index: int) -> None:
        rng = random.Random(index)
        while not self.stop.is_set() and not self.faults:
            try:
                for problem in rng.sample(self.problems, min(40, len(self.problems))):
                    self.plain(problem)
                    self.counts[index] += 1
                self.two_phases()
                self.counts[index] += 12
            except BaseException as error:
                self.faults.append(f"thread {index}: {error!r}")

    def plain(self, problem: Problem) -> None:
        if digest(problem.call()) != self.expected[str(problem)]:
            raise AssertionError(f"other bits: {problem}")

    def two_phases(self) -> None:
        """A program with a stream, an event and memory of its own."""
        x = np.linspace(-3, 3, 50, dtype=np.float32)
        out = np.zeros_like(x)
        statuses = [acl.aclrtSetDevice(0)]
        (status, stream), (more, event) = acl.aclrtCreateStream(), acl.aclrtCreateEvent()
        last, address = acl.aclrtMalloc(x.nbytes, 0)
        phase_one = aclnn.aclnnEluGetWorkspaceSize(x, 1.0, 1.0, 1.0, out)
        statuses += [
            status,
            more,
            last,
            phase_one[0],
            aclnn.aclnnElu(None, phase_one[1], phase_one[2], stream),
        ]
        statuses += [acl.aclrtRecordEvent(event, stream), acl.aclrtSynchronizeStream(stream)]
        statuses += [acl.aclrtFree(address), acl.aclrtDestroyEvent(event), acl.aclrtDestroyStream(stream)]  # fmt: skip
        if any(statuses) or out.tobytes() != openaclnn.elu(x).tobytes():
            raise AssertionError(f"statuses {statuses}")

    def many_handles(self) -> None:
        """Thousands of streams and events at once, each with work."""
        streams = [acl.aclrtCreateStream() for _ in range(STREAMS)]
        events = [acl.aclrtCreateEvent() for _ in range(EVENTS)]
        wrong = [status for status, _ in (*streams, *events) if status]
        last = None
        for number, (_, stream) in enumerate(
            streams[:64]
        ):  # a chain: each waits for the one before
            if last is not None:
                wrong.append(acl.aclrtStreamWaitEvent(stream, last))
            last = events[number][1]
            wrong.append(acl.aclrtRecordEvent(last, stream))
        for number, (_, event) in enumerate(events[64:]):
            wrong.append(acl.aclrtRecordEvent(event, streams[number % 64][1]))
        for _, stream in streams:
            wrong += [acl.aclrtSynchronizeStream(stream), acl.aclrtDestroyStream(stream)]
        for _, event in events:
            wrong += [acl.aclrtSynchronizeEvent(event), acl.aclrtDestroyEvent(event)]
        if any(wrong):
            self.faults.append(f"statuses {sorted({*wrong} - {0})} with thousands of handles")

    def sample(self) -> None:
        gc.collect()
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        threads = len(os.listdir("/proc/self/task"))
        self.samples.append(
            (resident, len(os.listdir("/proc/self/fd")), threads, used_bytes("cpu"))
        )

    def run(self, seconds: float) -> None:
        acl.aclrtSetDevice(0)
        for worker in self.start(self.first):
            worker.join()
        end = time.monotonic() + seconds
        workers = self.start(self.caller)
        while time.monotonic() < end and not self.faults:
            self.many_handles()
            # Of work that others have in hand nothing is counted.
            time.sleep(max(min(seconds / SAMPLES, end - time.monotonic()), 0))
            self.sample()
        self.stop.set()
        for worker in workers:
            worker.join(60)
            if worker.is_alive():
                self.faults.append("a thread did not end")
        self.sample()
        self.judge()
        acl.aclrtResetDeviceForce(0)  # which every thread has set, time and again

    def start(self, function: Callable[[int], None]) -> list[threading.Thread]:
        workers = [threading.Thread(target=function, args=(n,)) for n in range(self.threads)]
        for worker in workers:
            worker.start()
        return workers

    def judge(self) -> None:
        """Against the samples of the first third."""
        early = self.samples[: max(len(self.samples) // 3, 1)]
        resident, files, threads, _ = (max(column) for column in zip(*early, strict=True))
        last = self.samples[-1]
        if last[0] > resident + GROWTH:
            self.faults.append(f"{(last[0] - resident) >> 20} MiB more than at first")
        if last[1] > files or last[2] > threads:
            self.faults.append(f"files {files} to {last[1]}, threads {threads} to {last[2]}")
        if last[3]:
            self.faults.append(f"{last[3]} bytes of device memory are left")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="faults soak")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args(arguments)
    soak = Soak(options.threads)
    soak.run(options.seconds)
    for number, (resident, files, threads, used) in enumerate(soak.samples):
        print(
            f"sample {number}: {resident / 2**20:.1f} MiB, {files} files, {threads} threads, {used} bytes in use"
        )
    for fault in soak.faults:
        print(fault)
    print(
        f"soak: {options.seconds:.0f} s, {options.threads} threads, {sum(soak.counts)} calls, {len(soak.faults)} findings"
    )
    return 1 if soak.faults else 0
