"""The sweep: for every n, a process that is a fork of a warm one suffers its n-th fault in the middle of a scene.

Wanted of each: the right bits, or the right exception or status; nothing written but outputs; an end within seconds; and the same scene right
afterwards, in the same process.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import gc
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from openaclnn.engines.machine import compile_thread

__all__ = ["FAULTS", "PATIENCE", "available", "run_driver"]

MEMORY, PAGES, THREADS, DISK, SIGNALS = 1, 2, 4, 8, 16
FAULTS = {
    "allocation": (MEMORY | PAGES, False, 0),
    "forty allocations": (MEMORY | PAGES, True, 0),
    "thread": (THREADS, False, 0),
    "forty threads": (THREADS, True, 0),
    "disk": (DISK, False, 0),
    "full disk": (DISK, True, 0),
    "interrupt": (SIGNALS, False, signal.SIGINT),
    "termination": (SIGNALS, False, signal.SIGTERM),
    "kill": (SIGNALS, False, signal.SIGKILL),
}
"""Kinds of events, whether forty from the n-th on fail, and which signal comes."""
SURROUNDINGS: dict[str, tuple[float, ...]] = {
    "clock": (-1e9, -3600, 3600, 1e9),
    "starvation": (1e-6, 0.002),
}
"""Seconds by which the clock of the day jumps in the middle; how long each of three other threads keeps the interpreter and the only CPU."""
PATIENCE = 8  # seconds that a scene may take before it counts as stuck


def available() -> bool:
    """Whether the C library and the interpreter are those that faults.c knows."""
    return sys.platform == "linux" and hasattr(ctypes.CDLL(None), "__libc_malloc") and sys.version_info < (3, 12)  # fmt: skip


def run_driver(arguments: list[str], timeout: float, capture: bool = True) -> tuple[int, str]:
    """`python -m faults` with faults.c before the C library: its status, and what it said if that is captured."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "faults.so")
        source = Path(__file__).with_name("faults.c")
        command = ["cc", "-shared", "-fPIC", "-O1", str(source), "-o", str(library), "-ldl"]
        subprocess.run(command, check=True)
        places = [str(Path(__file__).resolve().parents[1]), *sys.path]
        environment = {
            **os.environ, "LD_PRELOAD": str(library), "FAULTS_LIBRARY": str(library), "PYTHONMALLOC": "malloc",
            "PYTHONPATH": os.pathsep.join(filter(None, places)),
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "faults", *arguments], env=environment, timeout=timeout, check=False, text=True,
            stdout=subprocess.PIPE if capture else None, stderr=subprocess.STDOUT if capture else None,
        )  # fmt: skip
        return done.returncode, done.stdout


_LIBRARIES = ("faults.so", "libc.so", "libffi", "_ctypes.", "bin/python")


def _whose(text: str, lasting: bool) -> str:
    """Whose crash it is by its stack, where that is another's: NumPy does not stand a lack of memory everywhere, nor does the interpreter a
    lasting one: it leaves objects half made, and jumps where their types should be."""
    frames = [line for line in text.splitlines() if line.endswith("]") and "[0x" in line]
    others = [line for line in frames if not any(name in line for name in _LIBRARIES)]
    first = next((line for line in others if "libpython" not in line and line[0] != "["), "")
    if "numpy" in first:
        return "crash in NumPy"
    return "crash in the interpreter" if lasting and not first and "Timeout" not in text else ""


class Terminated(BaseException):
    """Raised by the handler of SIGTERM."""


def _burn() -> None:
    while True:
        sum(range(1000))


def _terminate(*_: Any) -> None:
    raise Terminated


class Injector:
    """One scene in this process, warm, and its faults in forks."""

    def __init__(self, scene: str) -> None:
        from faults.scenes import SCENES, Refused
        from openaclnn.core.status import AclError, Status

        self.refused = Refused
        self.statuses = {int(status) for status in (*Status, *AclError)} - {0}
        library = ctypes.PyDLL(os.environ["FAULTS_LIBRARY"])
        self.call = library.faults_call
        self.call.restype = ctypes.py_object
        self.call.argtypes = (ctypes.py_object, ctypes.c_int, ctypes.c_long, ctypes.c_int, ctypes.c_int)  # fmt: skip
        self.events = library.faults_events
        self.events.restype = ctypes.c_long
        self.set_clock = library.faults_clock
        self.set_clock.argtypes, self.set_clock.restype = (ctypes.c_long,), None
        self.tell_crashes = library.faults_tell_crashes
        self.scene = SCENES[scene]()
        for _ in range(3):
            self.expected = self.scene.work()
            self.scene.close()
        gc.collect()
        gc.freeze()

    def count(self, fault: str) -> int:
        """The events of a sound run."""
        if fault in SURROUNDINGS:
            return len(SURROUNDINGS[fault])
        kinds, _, number = FAULTS[fault]
        reading, writing = os.pipe()
        self.scene.start()
        child = os.fork()
        if child == 0:
            self.stay_here(number)
            result = self.call(self.scene.work, kinds, -1, 0, number)
            os.write(writing, f"{self.events() if result == self.expected else -1}".encode())
            os._exit(0)
        os.waitpid(child, 0)
        counted = int(os.read(reading, 64) or -1)
        os.close(reading), os.close(writing)
        return counted

    def at(self, fault: str, number: int) -> str:
        """What came of the n-th fault: an outcome's name, or a text of several lines for one that must not be."""
        self.scene.start()
        outcome = self.forked(fault, number)
        if fault != "kill":
            return outcome
        # The next process finds what the killed one left.
        after = self.forked("", 0)
        return (
            "killed"
            if outcome.startswith("ended with 0x9\n") and after == "right"
            else f"fault\n{outcome}, then {after}"
        )

    def stay_here(self, sent: int) -> None:
        """Work that is done on another thread is done on this one, whose instructions are counted, where it is to end in the middle."""
        if sent == signal.SIGKILL:
            compile_thread._started = lambda run: False

    def surround(self, fault: str, number: int) -> None:
        """Another clock, or others that take the time."""
        if fault == "clock":
            offset = int(SURROUNDINGS[fault][number])
            threading.Timer(0.001, self.set_clock, (offset,)).start()
        elif fault == "starvation":
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            sys.setswitchinterval(SURROUNDINGS[fault][number])
            for _ in range(3):
                threading.Thread(target=_burn, daemon=True).start()

    def forked(self, fault: str, number: int) -> str:
        """The same of a child, which is made for it."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.dup2(writing, 2)
            try:
                text = self.suffer(fault, number)
            except BaseException:
                text = f"fault\n{traceback.format_exc()}"
            os.write(writing, f"\0{text}".encode())
            os._exit(0)
        os.close(writing)
        said, deadline = b"", time.monotonic() + PATIENCE + 10
        while select.select([reading], [], [], max(deadline - time.monotonic(), 0))[0]:
            piece = os.read(reading, 1 << 16)
            if not piece:
                break
            said += piece
        else:
            os.kill(child, signal.SIGKILL)
        os.close(reading)
        _, status = os.waitpid(child, 0)
        before, _, told = said.decode(errors="replace").rpartition("\0")
        if status:
            text = said.decode(errors="replace")
            crash = status & 0x7F == signal.SIGSEGV and _whose(text, fault.startswith("forty"))
            return crash or f"ended with {status:#x}\n{text}"
        return told if "\n" not in told else f"{told}\n{before}"

    def suffer(self, fault: str, number: int) -> str:
        kinds, lasting, sent = FAULTS.get(fault, (0, False, 0))
        faulthandler.dump_traceback_later(PATIENCE)
        self.tell_crashes()
        signal.alarm(PATIENCE + 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, _terminate)
        self.stay_here(sent)
        self.surround(fault, number)
        scene = self.scene
        try:
            result = self.call(scene.work, kinds, number, lasting, sent)
            outcome = "right" if result == self.expected else "fault\nother bits, and no word of it"
        except self.refused as error:
            # 500000 is a fault of ours.
            ours = error.status == 500000 and "SystemError" not in str(error.args[2])
            known = error.status in self.statuses and not ours and (lasting or bool(error.args[2]))
            outcome = f"status {error.status}" if known else f"fault\n{traceback.format_exc()}"
        except (MemoryError, KeyboardInterrupt, Terminated) as error:
            outcome = type(error).__name__
        except ctypes.ArgumentError as error:
            outcome = (
                "ArgumentError"
                if "MemoryError" in str(error)
                else f"fault\n{traceback.format_exc()}"
            )
        except (
            SystemError
        ) as error:  # the interpreter's own, where it forgets to say that there is no memory
            of_python = kinds & MEMORY and "exception set" in str(error).replace(
                "setting an exception", "exception set"
            )
            outcome = "SystemError" if of_python else f"fault\n{traceback.format_exc()}"
        except BaseException:
            outcome = f"fault\n{traceback.format_exc()}"
        del_error = None
        for _ in range(2):
            try:
                scene.close()
                break
            except KeyboardInterrupt:  # one that came with the last instruction
                continue
            except Terminated:
                continue
            except self.refused as error:
                del_error = error
        else:
            if del_error is not None and "\n" not in outcome:
                return f"fault\nafter {outcome}: {del_error!r} at the end"
        if scene.stray(scene.outputs):
            return f"fault\nafter {outcome}: bytes written that are no output's"
        again = scene.work()
        scene.close()
        if again != self.expected:
            return f"fault\nafter {outcome}: other bits in the next call"
        return outcome


def sweep(scene: str, fault: str, most: int, start: int = 0) -> tuple[Counter[str], list[str]]:
    """At most so many points, evenly over a scene; 0 is all of them."""
    injector = Injector(scene)
    counted = injector.count(fault)
    counts: Counter[str] = Counter(points=counted)
    if counted < 0:
        return counts, [f"{scene}, {fault}: the sound run failed"]
    step = max(counted / most, 1) if most else 1
    faults = []
    place = float(start)
    while place < counted:
        outcome = injector.at(fault, int(place))
        counts[outcome.split("\n")[0]] += 1
        if "\n" in outcome:
            faults.append(f"{scene}, {fault} {int(place)} of {counted}: {outcome}")
        place += step
    return counts, faults


SCENES = ("fast", "slow", "first", "out", "phases", "life", "large", "cache")
ON_DISK = ("disk", "full disk", "kill")
"""Where there is nothing but a cache to damage."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="faults")
    parser.add_argument("--scene", choices=SCENES, action="append")
    parser.add_argument("--fault", choices=[*FAULTS, *SURROUNDINGS], action="append")
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--start", type=int, default=0)
    options = parser.parse_args(arguments)
    if not available():
        print("faults: the C library and the interpreter are not those that faults.c knows")
        return 2
    if "FAULTS_LIBRARY" not in os.environ:
        return run_driver(arguments, 24 * 3600, capture=False)[0]
    bad = 0
    for scene in options.scene or SCENES:
        kept = scene == "cache"
        for fault in options.fault or [
            name for name in (*FAULTS, *SURROUNDINGS) if kept or name not in ON_DISK
        ]:
            if kept and "allocation" in fault:
                continue  # LLVM ends the process where it has no memory
            counts, faults = sweep(scene, fault, options.most, options.start)
            told = ", ".join(f"{name}: {count}" for name, count in counts.items())
            print(f"{scene} / {fault}: {told}", flush=True)
            for text in faults:
                print(text, flush=True)
            bad += len(faults)
    print(f"faults: {bad} findings", flush=True)
    return 1 if bad else 0
