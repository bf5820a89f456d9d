"""A fuzzer that coverage guides: inputs that reach lines or orders of lines which none before them reached are kept, and changed further.

Targets are the readers of files (`targets.py`), programs over the runtime and the two-phase interface (`programs.py`), and the C functions (`surface.py`). An input is good if it is
read, or refused with the exception that is promised; anything else, or one that takes seconds, is a finding.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import openaclnn

__all__ = ["Finding", "Fuzzer", "Target", "main"]

PACKAGE = str(Path(openaclnn.__file__).parent)
SECONDS = 10
NUMBERS = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip
TEXTS = (
    b"-1", b"0", b"1e999", b"nan", b"inf", b"null", b"None", b"true", b"[]", b"{}", b"()", b'""', b"9223372036854775808", b"1" * 400, b"[" * 300, b"{" * 90,
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b"\n", b",", b";", b"'", b'"', b"\\", b"../", b"/dev/zero", b"float16", b"bfloat16", b"complex64",
    b"<f8", b"|O", b"V2", b"1.5", b"-0", b"(1,)", b"1_0", b"0x1", b"__import__('os')", b"lambda: 0", b"*" * 40, b"9" * 19 + b"**9", b"\xed\xa0\x80",
)  # fmt: skip


class Slow(BaseException):
    """An input took too long."""


def _slow(*_: Any) -> None:
    raise Slow


@dataclass
class Target:
    """What reads an input: `read(data)`; `refusals` are what it may raise, `traced` the folders (or code without a file) whose lines count."""

    name: str
    seeds: list[bytes]
    read: Callable[[bytes], object]
    refusals: tuple[type[BaseException], ...]
    traced: tuple[str, ...]
    words: tuple[bytes, ...] = ()
    edges: Callable[[], list[int]] = list  # of C code, that the last input reached


@dataclass
class Finding:
    """An input that did what none may."""

    target: str
    data: bytes
    told: str

    def __str__(self) -> str:
        return f"{self.target}: {self.data[:400]!r}\n{self.told[-3000:]}"


@dataclass
class Fuzzer:
    """One target, its corpus, and what its inputs have reached."""

    target: Target
    rng: np.random.Generator
    corpus: list[bytes] = field(default_factory=list)
    reached: set[tuple[Any, int, int]] = field(default_factory=set)
    refused: int = 0
    calls: int = 0
    extra: int = 0  # calls beyond one an input, where an input is a program of many

    def __post_init__(self) -> None:
        self.folders = tuple(
            name if name[0] == "<" else f"{PACKAGE}/{name}" for name in self.target.traced
        )
        self.known: dict[Any, bool] = {}

    def run(self, calls: int, end: float = float("inf")) -> Iterator[Finding]:
        """So many inputs, the seeds first."""
        before = signal.signal(signal.SIGALRM, _slow)
        try:
            for seed in self.target.seeds:
                yield from self.try_one(seed)
                self.corpus.append(seed)
            while self.calls < calls and time.monotonic() < end:
                yield from self.try_one(self.changed())
        finally:
            signal.signal(signal.SIGALRM, before)

    def try_one(self, data: bytes) -> Iterator[Finding]:
        self.calls += 1
        fresh: set[tuple[Any, int, int]] = set()
        told = ""
        signal.alarm(SECONDS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.trace(fresh)
                try:
                    counted = self.target.read(data)
                    self.extra += counted - 1 if type(counted) is int else 0
                finally:
                    sys.settrace(None)
        except self.target.refusals as error:
            self.refused += 1
            if not str(error):
                told = f"refused without a word: {error!r}"
        except BaseException:
            told = traceback.format_exc()
        finally:
            signal.alarm(0)
        fresh |= {("C", 0, edge) for edge in self.target.edges()}
        if not fresh <= self.reached:
            self.reached |= fresh
            self.corpus.append(data)
        if told:
            yield Finding(self.target.name, data, told)

    def trace(self, fresh: set[tuple[Any, int, int]]) -> None:
        known, folders = self.known, self.folders

        def enter(frame: Any, event: str, argument: Any) -> Any:
            code = frame.f_code
            wanted = known.get(code)
            if wanted is None:
                wanted = known[code] = code.co_filename.startswith(folders)
            if not wanted:
                return None
            last = 0

            def step(frame: Any, event: str, argument: Any) -> Any:
                nonlocal last
                if event == "line":
                    fresh.add((code, last, frame.f_lineno))
                    last = frame.f_lineno
                return step

            return step

        sys.settrace(enter)

    # Other inputs from those that there are.

    def changed(self) -> bytes:
        rng, corpus = self.rng, self.corpus
        # What came last reached something new.
        place = len(corpus) - 1 - int(len(corpus) * rng.random() ** 2)
        data = corpus[max(place, 0)]
        if data[:2] == b"PK" and rng.random() < 0.7:
            with contextlib.suppress(Exception):
                return self.repacked(data)
        if data[:1] in (b"{", b"[") and rng.random() < 0.6:
            with contextlib.suppress(ValueError, RecursionError):
                return json.dumps(self.other_value(json.loads(data))).encode()
        return self.other_bytes(data)

    def repacked(self, data: bytes) -> bytes:
        """An archive whose checksums are right, with another member."""
        held = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as packed, zipfile.ZipFile(held, "w") as again:
            members = packed.namelist()
            chosen = members[int(self.rng.integers(len(members)))]
            for name in members:
                content = packed.read(name)
                again.writestr(name, self.other_bytes(content) if name == chosen else content)
        return held.getvalue()

    def other_value(self, value: Any) -> Any:
        """A JSON value with a change somewhere in it."""
        rng = self.rng
        if isinstance(value, dict) and value and rng.random() < 0.85:
            keys = list(value)
            key = keys[int(rng.integers(len(keys)))]
            draw = rng.random()
            if draw < 0.1:
                return {name: member for name, member in value.items() if name != key}
            if draw < 0.15:
                return {
                    (f"{name}x" if name == key else name): member for name, member in value.items()
                }
            return {
                name: self.other_value(member) if name == key else member
                for name, member in value.items()
            }
        if isinstance(value, list) and value and rng.random() < 0.85:
            place, draw = int(rng.integers(len(value))), rng.random()
            if draw < 0.15:
                return value[:place] + value[place + 1 :]
            if draw < 0.3:
                return [*value, value[place]]
            return [
                self.other_value(member) if member is value[place] else member for member in value
            ]
        words = [word.decode("latin-1") for word in (*TEXTS, *self.target.words)]
        odd = [None, True, -1, 0, 2**63, 1e308, 0.5, [], {}, [[]], "", [value], {"a": value}, str(value), *words]  # fmt: skip
        return odd[int(rng.integers(len(odd)))]

    def other_bytes(self, data: bytes) -> bytes:
        rng = self.rng
        held = bytearray(data)
        for _ in range(1 + int(rng.integers(4))):
            place = int(rng.integers(len(held) + 1))
            draw = int(rng.integers(9))
            length = int(rng.integers(1, 9))
            if draw == 0 and place < len(held):
                held[place] ^= 1 << int(rng.integers(8))
            elif draw == 1 and place < len(held):
                held[place] = int(rng.integers(256))
            elif draw == 2:
                number = NUMBERS[int(rng.integers(len(NUMBERS)))]
                size = (1, 2, 4, 8)[int(rng.integers(4))]
                order = "little" if rng.random() < 0.8 else "big"
                held[place : place + size] = (number & ((1 << 8 * size) - 1)).to_bytes(size, order)
            elif draw == 3:
                del held[place : place + length]
            elif draw == 4:
                held[place:place] = held[place : place + 4 * length]
            elif draw in (5, 6):
                words = (*TEXTS, *self.target.words)
                word = words[int(rng.integers(len(words)))]
                held[place : place + (len(word) if draw == 5 else 0)] = word
            elif draw == 7:
                other = self.corpus[int(rng.integers(len(self.corpus)))]
                cut = int(rng.integers(len(other) + 1))
                held[place:] = other[cut:]
            else:
                del held[place:]
        return bytes(held[: 1 << 16])


def main(arguments: list[str]) -> int:
    from faults.surface import covered_libraries
    from faults.targets import all_targets, c_functions

    parser = argparse.ArgumentParser(prog="faults fuzz")
    parser.add_argument(
        "--calls", type=int, default=100_000, help="inputs, the same number for each target"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.gettempdir(), f"openaclnn-covered-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    targets = [*all_targets(), c_functions(covered_libraries(folder), folder)]
    targets = [target for target in targets if not options.target or target.name in options.target]
    share = options.calls // len(targets)
    findings, total = 0, 0
    for target in targets:
        start = time.monotonic()
        fuzzer = Fuzzer(target, np.random.default_rng(options.seed))
        told: set[str] = set()
        for finding in fuzzer.run(share, start + options.seconds / len(targets)):
            findings += 1
            where = "".join(
                line for line in finding.told.splitlines() if line.startswith("  File ")
            )
            if where not in told:
                told.add(where)
                print(finding, flush=True)
        total += fuzzer.calls + fuzzer.extra
        print(
            f"{target.name}: {fuzzer.calls} inputs, {fuzzer.calls + fuzzer.extra} calls, {fuzzer.refused} refused, {len(fuzzer.corpus)} kept, "
            f"{len(fuzzer.reached)} steps reached, {sum(step[0] == 'C' for step in fuzzer.reached)} of them in C, {time.monotonic() - start:.0f} s",
            flush=True,
        )
    print(f"fuzz: seed {options.seed}, {total} calls, {findings} findings", flush=True)
    return 1 if findings else 0


def shared_folder() -> str | None:
    """Where files are in memory, if there is such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
