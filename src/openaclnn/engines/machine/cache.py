"""Compiles machine code when it is first needed, and caches it in memory, and on disk for the next process.

A kernel's key is a hash of its LLVM IR, of the compiler's version and of the CPU, so that no stale code
is found: an edited emitter makes other IR. Writing IR takes 1 to 30 ms, compiling 5 to 400 ms. So that the next process need not even write it,
a file lists the keys of kernels by their names. There is one for each state of the package's sources, told by a digest of their contents, so that all copies of a version
share it. Reading the sources takes some 30 ms, once for each copy: after that their sizes and times tell the digest, as they tell Python whether bytecode is current.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from openaclnn.core.forks import hold_over_forks
from openaclnn.core.trust import (
    CODE_MARK,
    append_trusted,
    cache_folder,
    read_trusted,
    write_trusted,
)
from openaclnn.core.version import LOADED, __version__
from openaclnn.engines.machine.assembly import (
    I64,
    PTR,
    VOID,
    Builder,
    Function,
    FunctionType,
    Module,
)
from openaclnn.engines.machine.code import LOOKUP_512, Code
from openaclnn.engines.machine.compile_thread import run_uninterrupted
from openaclnn.engines.machine.host import Machine, machine, this_machine
from openaclnn.engines.machine.process_exit import inside_llvm
from openaclnn.engines.machine.values import Value

KERNEL = FunctionType(VOID, [PTR, I64, I64])
"""void kernel(int64_t *arguments, int64_t start, int64_t stop): what `pool.launch` runs."""

Emit = Callable[[Code, Sequence[Value]], None]
"""Writes a function, given the code object of the function and its arguments."""

Few = Callable[[Code, Sequence[Value]], Value]
"""Writes the condition, given the same, that a call has at most FEW elements."""

FEW = 512
"""Elements up to which a call has vectors of 256 bits on a CPU with 512: a CPU that has run wider ones is
slower for a while, which takes a tenth to a quarter of such a call. From some thousand elements on the wider ones gain more."""

_NARROW_LANES = 8
_NARROW = 'noinline nounwind "prefer-vector-width"="256" "min-legal-vector-width"="256"'

_PACKAGE = f"{__name__.partition('.')[0]}."

_lock = threading.Lock()
hold_over_forks(_lock)
_addresses: dict[tuple[str, Machine], int] = {}
_engines: list[Any] = []  # they own the code and are never freed


@functools.cache
def _target(opt: int = 3) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=opt,
        reloc="default",
        codemodel="jitdefault",
        jit=True,
    )


@functools.cache
def machine_key() -> str:
    """What compiled code depends on besides its source: versions of the compiler, and the CPU."""
    parts = (
        "openaclnn", __version__, llvmlite.__version__, *map(str, llvm.llvm_version_info),
        llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(),
    )  # fmt: skip
    return "|".join(parts)


def compiled(
    name: str, emit: Emit, signature: Any = KERNEL, few: Few | None = None, ours: bool = True
) -> int:
    """The address of the function that `emit(code, arguments)` writes. `name` is its key: no other function may have it. With `few`, calls
    of few elements have narrower vectors. `ours` is False if the code depends
    on more than the package's sources, Python, NumPy and the CPU: then its key is not listed by its name."""
    address = _addresses.get((name, machine()))
    if address is None:
        ours = ours and (getattr(emit, "func", emit).__module__ or "").startswith(_PACKAGE)
        build = functools.partial(_build, name, emit, signature, few, ours)
        address = run_uninterrupted(functools.partial(_found_or_built, name, build))
    return address


def _found_or_built(name: str, build: Callable[[], int]) -> int:
    with _lock:
        key = name, machine()
        if key not in _addresses:
            with inside_llvm():
                _addresses[key] = build()
        return _addresses[key]


def _build(name: str, emit: Emit, signature: Any, few: Few | None, ours: bool) -> int:
    folder = cache_folder()
    known = _KnownKeys(folder, f"{name}\n{machine()}") if folder is not None and ours else None
    if known is not None and known.key is not None:
        code = _read(known.folder / f"{known.key}.o")
        if code is not None:
            return _load(code)
    source = _source_of(name, emit, signature, few)
    key = _digest(f"{machine_key()}|{'optimised' if _is_optimised() else 'as it is'}\n{source}")
    path = None if folder is None else folder / f"{key}.o"
    code = _read(path)
    if code is None:
        code = _compile(source)
        _write(path, code)
    if known is not None:
        known.enter(key)
    return _load(code)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _source_of(name: str, emit: Emit, signature: Any, few: Few | None) -> str:
    module = Module(name, llvm.get_process_triple())
    if few is not None and machine().lanes > _NARROW_LANES:
        return _of_two_widths(module, emit, signature, few)
    _write_function(module, "kernel", emit, signature)
    return str(module)


def _of_two_widths(module: Module, emit: Emit, signature: Any, few: Few) -> str:
    """A function that calls one of two with the same operations on the same lanes, and so with the same bits: in the narrow one LLVM uses registers of
    256 bits. `_compile` copies it from the wide one after that is optimised. Where code has instructions of 512 bits, there is no narrow one."""
    wide = _write_function(module, "wide", emit, signature)
    wide.attributes.add("noinline")
    is_split = LOOKUP_512 not in module.names
    narrow = Function(module, signature, "narrow") if is_split else None

    def choose(code: Code, arguments: Sequence[Value]) -> None:
        if narrow is not None:
            with code.when(few(code, arguments)):
                code.take_place(narrow)
        code.take_place(wide)

    _write_function(module, "kernel", choose, signature)
    return str(module)


def _write_function(module: Module, name: str, emit: Emit, signature: Any) -> Function:
    function = Function(module, signature, name)
    function.attributes.add("nounwind")
    # Three parts: the frame's slots, what is done once before everything else, and the body.
    entry = function.new_block("entry", None)
    once = function.new_block("once", entry)
    body = function.new_block("body", once)
    builder = Builder(module, function, body)
    emit(Code(builder, once), [Value(builder, argument) for argument in function.arguments])
    if not builder.block.is_terminated:
        builder.ret()
    for block, following in ((entry, once), (once, body)):
        builder.block = block
        builder.branch(following)
    return function


def _is_optimised() -> bool:
    """Whether code is optimised: not if it is for another CPU, as in tests. It has the same bits, and compiles in an eighth of the time."""
    return machine() == this_machine()


def _compile(source: str) -> bytes:
    module = llvm.parse_assembly(source)
    if _is_optimised():
        builder = llvm.create_pass_builder(_target(), llvm.create_pipeline_tuning_options())
        passes = llvm.create_new_function_pass_manager()
        # Vectors are explicit, loops unrolled, functions inlined, common subexpressions merged and loop invariants hoisted (`assembly.py`). LLVM's level 2 has more passes than
        # these, which would take as long as code generation, and leave as many instructions.
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
        passes.add_loop_rotate_pass()
        passes.add_simplify_cfg_pass()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)
    if '@"narrow"' in source:
        module = llvm.parse_assembly(_with_narrow(str(module)))
    code: bytes = _target(3 if _is_optimised() else 0).emit_object(module)
    return code


_DECLARED_NARROW = re.compile(r"^declare .* @narrow\(.*\n", re.M)
_WIDE = re.compile(r"^(define .*) @wide(\(.*) #\d+ \{\n((?:.*\n)*?\}\n)", re.M)


def _with_narrow(text: str) -> str:
    """The module with the narrow function, as a copy of the wide one."""
    wide = _WIDE.search(text)
    assert wide is not None
    head, arguments, body = wide.groups()
    return f"{_DECLARED_NARROW.sub('', text)}{head} @narrow{arguments} {_NARROW} {{\n{body}"


def _load(code: bytes) -> int:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    address: int = engine.get_function_address("kernel")
    return address


def _read(path: Path | None) -> bytes | None:
    """The code in a file; None if it is missing, not trusted, or does not have the digest that is written before it."""
    data = None if path is None else read_trusted(path)
    if data is None or not data.startswith(CODE_MARK):
        return None
    held = data.removeprefix(CODE_MARK)
    digest, code = held[:32], held[32:]
    return code if hashlib.sha256(code).digest() == digest else None


def _write(path: Path | None, code: bytes) -> None:
    """Keep code for other processes; a folder that cannot be written to is no error."""
    if path is not None:
        with contextlib.suppress(OSError):
            write_trusted(path, CODE_MARK + hashlib.sha256(code).digest() + code)


# The keys of kernels by their names.

_LINE = re.compile(rb"^([0-9a-f]{40}) ([0-9a-f]{40})$", re.M)
_JUST_BEFORE = 2.0  # seconds: the resolution of some file systems' times


class _KnownKeys:
    """The key of a kernel by its name, in the list that a folder has for the current sources. A damaged line is skipped, or names no file."""

    _read: dict[Path, tuple[int, dict[bytes, bytes]]] = {}

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self._name = folder, _digest(name).encode()
        state = _state(folder)
        self._path = None if state is None else folder / f"{state}.names"
        self.key = None if self._path is None else self._find(self._path)

    def _find(self, path: Path) -> str | None:
        size, lines = self._read.get(path, (-1, {}))
        if self._name not in lines:  # another process may have entered it since
            with contextlib.suppress(OSError):
                if (now := os.stat(str(path)).st_size) != size:
                    lines = dict(_LINE.findall(read_trusted(path) or b""))
                    self._read[path] = now, lines
        key = lines.get(self._name)
        return None if key is None else key.decode()

    def enter(self, key: str) -> None:
        # Not if sources have changed since: the code may be of the new ones.
        if self._path is not None and _sources() is not None:
            with contextlib.suppress(OSError):
                append_trusted(self._path, CODE_MARK, b"%s %s\n" % (self._name, key.encode()))


@functools.cache
def _state(folder: Path) -> str | None:
    """A digest of all that IR depends on: the sources, the versions of Python and NumPy, and `machine_key`. None if a source has changed or cannot be read."""
    sources = _sources()
    if sources is None:
        return None
    path = folder / f"{_digest(sources)}.sources"
    known = _KNOWN.fullmatch(read_trusted(path) or b"")
    contents = known[1].decode() if known else _contents()
    if not known:
        if contents is None or _sources() != sources:  # changed while they were read
            return None
        with contextlib.suppress(OSError):
            write_trusted(path, CODE_MARK + contents.encode())
    return _digest(f"{machine_key()}\n{sys.version}\n{np.__version__}\n{contents}")


_TOP = Path(__file__).parents[2]
_KNOWN = re.compile(re.escape(CODE_MARK) + rb"([0-9a-f]{40})")


def _sources() -> str | None:
    """The package's files with path, size and times; None if there are none, or one may have changed since this process loaded it."""
    files = []
    for place, _, names in os.walk(_TOP):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(place, name)
                about = os.stat(path)
                if about.st_ctime > LOADED - _JUST_BEFORE:
                    return None
                files.append(f"{path} {about.st_size} {about.st_mtime_ns} {about.st_ctime_ns}")
    return "\n".join(sorted(files)) or None


def _contents() -> str | None:
    """A digest of the sources' contents; None if one cannot be read."""
    total = hashlib.sha256()
    for path in sorted(_TOP.rglob("*.py")):
        try:
            text = path.read_bytes()
        except OSError:
            return None
        total.update(f"{path.relative_to(_TOP).as_posix()} {len(text)}\n".encode())
        total.update(text)
    return total.hexdigest()[:40]
