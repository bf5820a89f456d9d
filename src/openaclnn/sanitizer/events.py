"""The calls of a program, as rule sets hear of them: `Call` is one of them, with the `Site` where the program called, `Rules` what listens.

A site is Python frames outside this package, or return addresses of C, resolved when somebody reads them.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, ClassVar

from openaclnn.capi.build import LIBRARIES
from openaclnn.operators import find_operator
from openaclnn.runtime.errors import last_error

_DEEPEST = 6
"""Frames that a site keeps, from the innermost."""
_LONGEST = 96
"""Frames from here to the program: those of Python and cffi lie between."""

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_OUTSIDE = ("__libc_start", "_start", "start_thread", "clone", "__clone")


@dataclass(frozen=True)
class Frame:
    """A function of the program, and the line in it; or the module and the offset where nobody wrote lines down."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{self.function or '??'} ({where})"


class Site:
    """A place in the program: `frames` from the innermost to the outermost."""

    __slots__ = ("_addresses", "_code")

    def __init__(
        self, code: tuple[tuple[CodeType, int], ...] = (), addresses: tuple[int, ...] = ()
    ) -> None:
        self._code, self._addresses = code, addresses

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for the same place."""
        return self._addresses or self._code

    @property
    def frames(self) -> list[Frame]:
        if self._addresses:
            return list(_c_frames(self._addresses))
        return [Frame(code.co_qualname, code.co_filename, line) for code, line in self._code]

    def __str__(self) -> str:
        frames = self.frames
        return ", called from ".join(map(str, frames)) if frames else "an unknown place"


def python_site() -> Site:
    """Where the Python program is that called into this package."""
    frame = sys._getframe(1)
    places: list[tuple[CodeType, int]] = []
    while frame is not None and len(places) < _DEEPEST:
        code = frame.f_code
        name = code.co_filename
        if not name.startswith((_PACKAGE, "<acl", "<Acl", "<frozen")):
            places.append((code, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    return Site(tuple(places))


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.backtrace.argtypes = (ctypes.c_void_p, ctypes.c_int)
    libc.backtrace.restype = ctypes.c_int
    return libc


class _Stubs:
    """Where the code of the libraries lies that programs link."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def read(cls) -> None:
        names = tuple(f"lib{name}.so" for name in LIBRARIES)
        ranges = []
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                if "x" in line.split(" ", 2)[1] and line.rstrip().endswith(names):
                    start, _, end = line.partition(" ")[0].partition("-")
                    ranges.append((int(start, 16), int(end, 16)))
        cls.ranges = tuple(ranges)

    @classmethod
    def last_in(cls, addresses: Iterable[int]) -> int:
        """The place of the first address in a stub, which the program called; -1 where there is none."""
        ranges = cls.ranges
        for place, address in enumerate(addresses):
            for start, end in ranges:
                if start <= address < end:
                    return place
        return -1


def c_site() -> Site:
    """Where the program is that called a function of the C libraries: its own Python frames, or else return addresses."""
    python = python_site()
    if python.key:
        return python
    buffer = (ctypes.c_void_p * _LONGEST)()
    count = _libc().backtrace(buffer, _LONGEST)
    addresses = [address or 0 for address in buffer[:count]]
    place = _Stubs.last_in(addresses)
    if place < 0:
        _Stubs.read()
        place = _Stubs.last_in(addresses)
    return Site(addresses=tuple(addresses[place + 1 : place + 1 + _DEEPEST]))


class _Info(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("base", ctypes.c_void_p), ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p),
    )  # fmt: skip


_resolved: dict[int, tuple[Frame, ...]] = {}
"""The functions of return addresses; several where functions were inlined."""


def _c_frames(addresses: tuple[int, ...]) -> Iterator[Frame]:
    unknown = [address for address in addresses if address not in _resolved]
    if unknown:
        _resolved.update(_resolve(unknown))
    frames = [frame for address in addresses for frame in _resolved[address]]
    yield from _of_program(frames)


def _of_program(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Without what called the program or its thread, which where its names are stripped goes by another of the C library's."""
    outside = (place for place, frame in enumerate(frames) if frame.function.startswith(_OUTSIDE))
    end = next(outside, len(frames))
    while end and os.path.basename(frames[end - 1].file).startswith("libc.so."):
        end -= 1
    return frames[:end]


def _resolve(addresses: list[int]) -> Iterator[tuple[int, tuple[Frame, ...]]]:
    """By debug information where there is some, else by symbols, else the module and the offset in it."""
    modules: dict[str, dict[int, tuple[int, str]]] = {}
    for address in addresses:
        info = _Info()
        before = address - 1  # the call itself, not what comes behind it
        if not _libc().dladdr(ctypes.c_void_p(before), ctypes.byref(info)) or not info.name:
            yield address, (Frame("", hex(address), 0),)
            continue
        symbol = info.symbol.decode(errors="replace") if info.symbol else ""
        module = os.fsdecode(info.name)
        if not os.path.isabs(module):  # the program itself, as it was started
            module = os.path.realpath("/proc/self/exe")
        offsets = modules.setdefault(module, {})
        offsets[address] = (before - (info.base or 0), symbol)
    for module, offsets in modules.items():
        # A program that is not position-independent knows its addresses themselves.
        fixed = _is_fixed(module)
        wanted = {a: (a - 1 if fixed else offset) for a, (offset, _) in offsets.items()}
        known = _from_debug_information(module, list(wanted.values()))
        for address, (offset, symbol) in offsets.items():
            frames = known.get(wanted[address], ())
            if not frames or not frames[0].line:
                name = symbol or (frames[0].function if frames else "")
                frames = (Frame(name, f"{module}+{offset:#x}", 0),)
            yield address, frames


def _is_fixed(module: str) -> bool:
    """Whether it is an ELF file of type ET_EXEC."""
    try:
        with open(module, "rb") as file:
            return file.read(18)[16:] == (2).to_bytes(2, sys.byteorder)
    except OSError:
        return False


def _from_debug_information(module: str, offsets: list[int]) -> dict[int, tuple[Frame, ...]]:
    tool = shutil.which("addr2line")
    if tool is None or not os.path.exists(module):
        return {}
    try:
        done = subprocess.run(
            [tool, "-aCfi", "-e", module, *map(hex, offsets)], capture_output=True, text=True, timeout=20, check=False,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return {}
    frames: dict[int, tuple[Frame, ...]] = {}
    lines = iter(done.stdout.splitlines())
    for line in lines:
        if line.startswith("0x"):
            offset = int(line, 16)
            frames[offset] = ()
            continue
        file, _, number = next(lines, "").partition(" (")[0].rpartition(":")
        function = "" if line == "??" else line
        if function or number.isdigit():
            frame = Frame(function, file, int(number) if number.isdigit() else 0)
            frames[offset] = (*frames[offset], frame)
    return frames


# Calls.


_VALUES = frozenset({
    "aclDataTypeSize", "aclFloat16ToFloat", "aclFloatToFloat16", "aclGetRecentErrMsg", "aclrtGetLastError", "aclrtGetSocName",
    "aclrtPeekAtLastError",
})  # fmt: skip
"""They return a value and no status."""


class Call:
    """A call of the program: what it passed, and in `after` what it got.

    `arguments` are by the names of C parameters, as the Python function gets them: handles are objects (one that is unknown or
    destroyed is a `capi.handles.Unknown` where C passed it), addresses are ints, null is None or 0; the pointers by which C gets results
    are not among them. `status` is 0 where the call succeeded; `result` is what C gets through its pointers or as a returned object: an address, an object, a tuple of both (phase one:
    workspace size and executor). `handle` is what C sees of the created object.
    """

    __slots__ = ("arguments", "handle", "name", "result", "site", "status", "thread")

    def __init__(self, name: str, arguments: dict[str, Any], site: Site) -> None:
        self.name = name
        self.arguments = arguments
        self.site = site
        self.thread = threading.get_ident()
        self.status: int | None = None
        self.result: Any = None
        self.handle = 0

    @property
    def operator(self) -> Any:
        """The operator whose phase this is, or None."""
        return operator_of(self.name)

    @property
    def phase(self) -> int:
        """1 and 2 for those of an operator, else 0."""
        if operator_of(self.name) is None:
            return 0
        return 1 if self.name.endswith("GetWorkspaceSize") else 2

    def finish(self, answer: Any) -> None:
        """Take over what the Python function returned."""
        if self.name in _VALUES:
            self.status, self.result = 0, answer
        elif isinstance(answer, tuple):
            self.status, *results = answer
            self.result = results[0] if len(results) == 1 else tuple(results)
        elif self.name.startswith("aclCreate"):
            self.status, self.result = (last_error() if answer is None else 0), answer
        else:
            self.status = answer

    def without_arguments(self) -> Call:
        """What says which call it was, and keeps nothing of the program's alive."""
        return Call(self.name, {}, self.site)

    def __repr__(self) -> str:
        return f"<{self.name}, status {self.status}>"


@functools.cache
def operator_of(name: str) -> Any:
    """The operator whose phase a function is, or None."""
    if not name.startswith("aclnn") or name in ("aclnnInit", "aclnnFinalize"):
        return None
    return find_operator(name.removesuffix("GetWorkspaceSize"))


Handler = Callable[[Any, Call], Iterator[None]]


class Rules:
    """A set of rules: it hears of each call, before and after, one at a time, and of the end.

    `HANDLERS` are by the names of calls; those of operators are called "phase 1" and "phase 2". A handler is a generator: it comes to its
    `yield` before the call, and goes on when that returns.
    """

    HANDLERS: ClassVar[dict[str, Handler]] = {}
    report: Callable[[Any], None]  # where findings go

    def __init__(self) -> None:
        self._running: dict[Call, Iterator[None]] = {}

    def listen(self, report: Callable[[Any], None]) -> None:
        """Begin, and tell findings there."""
        self.report = report

    def before(self, call: Call) -> None:
        """The program called; nothing has happened yet."""
        handler = self.HANDLERS.get(f"phase {call.phase}" if call.phase else call.name)
        if handler is not None:
            running = handler(self, call)
            if next(running, running) is None:
                self._running[call] = running

    def after(self, call: Call) -> None:
        """The call returns."""
        next(self._running.pop(call, iter(())), None)

    def at_exit(self) -> None:
        """The program, or the part of it that is watched, is over."""
