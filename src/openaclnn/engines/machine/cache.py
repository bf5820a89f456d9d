"""Machine code: compiled when first needed, kept in memory, and on disk for the next process.

A kernel's key is a hash of its LLVM IR, of the compiler's version and of the CPU, so that nothing stale
can be found: an edited emitter makes other IR. Emitting takes about 5 ms, compiling 20 to 80 ms.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
from llvmlite import ir

from openaclnn.core.forks import hold_over_forks
from openaclnn.core.trust import CODE_MARK, cache_folder, read_trusted, write_trusted
from openaclnn.core.version import __version__
from openaclnn.engines.machine.apart import run_apart
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.ending import inside_llvm
from openaclnn.engines.machine.host import Machine, machine
from openaclnn.engines.machine.kinds import I64, PTR, VOID
from openaclnn.engines.machine.values import Value

__all__ = ["FEW", "KERNEL", "Emit", "Few", "compiled", "machine_key"]

KERNEL = ir.FunctionType(VOID, [PTR, I64, I64])
"""void kernel(int64_t *arguments, int64_t start, int64_t stop): what `pool.launch` runs."""

Emit = Callable[[Code, Sequence[Value]], None]
"""Of the function under construction, and its arguments."""

Few = Callable[[Code, Sequence[Value]], Value]
"""Whether a call of it is one of few elements."""

FEW = 512
"""Elements of a call that is better off with vectors of 256 bits where 512 can be had: a processor that was given wider ones runs
slower for a while, which takes a tenth to a quarter of such a call. From some thousand elements on the wider ones gain more."""

_NARROW_LANES = 8
_NARROW = 'noinline "prefer-vector-width"="256" "min-legal-vector-width"="256"'

_lock = threading.Lock()
hold_over_forks(_lock)
_addresses: dict[tuple[str, Machine], int] = {}
_engines: list[Any] = []  # they own the code and are never freed


@functools.cache
def _target() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
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


def compiled(name: str, emit: Emit, signature: Any = KERNEL, few: Few | None = None) -> int:
    """The address of the function that `emit(code, arguments)` writes; `name` must tell it from all others. `few` tells calls
    of few elements."""
    address = _addresses.get((name, machine()))
    if address is None:
        address = run_apart(functools.partial(_found_or_built, name, emit, signature, few))
    return address


def _found_or_built(name: str, emit: Emit, signature: Any, few: Few | None) -> int:
    with _lock:
        key = name, machine()
        if key not in _addresses:
            with inside_llvm():
                _addresses[key] = _build(name, emit, signature, few)
        return _addresses[key]


def _build(name: str, emit: Emit, signature: Any, few: Few | None) -> int:
    module = ir.Module(name)
    module.triple = llvm.get_process_triple()
    if few is None or machine().lanes <= _NARROW_LANES:
        _write_function(module, "kernel", emit, signature)
        source = str(module)
    else:
        source = _of_two_widths(module, emit, signature, few)
    key = hashlib.sha256(f"{machine_key()}\n{source}".encode()).hexdigest()
    folder = cache_folder()
    path = None if folder is None else folder / f"{key[:40]}.o"
    code = _read(path)
    if code is None:
        code = _compile(source)
        _write(path, code)
    return _load(code)


def _of_two_widths(module: Any, emit: Emit, signature: Any, few: Few) -> str:
    """The function twice, with the same operations on the same lanes, and so the same bits: LLVM is told that registers have 256
    bits in one of them."""
    wide = _write_function(module, "wide", emit, signature)
    narrow = ir.Function(module, signature, "narrow")

    def choose(code: Code, arguments: Sequence[Value]) -> None:
        with code.when(few(code, arguments)):
            code.take_place(narrow)
        code.take_place(wide)

    _write_function(module, "kernel", choose, signature)
    text = str(wide)
    wide.attributes.add("noinline")
    same = text.replace('@"wide"', '@"narrow"').replace("nounwind", f"nounwind {_NARROW}", 1)
    return str(module).replace(str(narrow), same)


def _write_function(module: Any, name: str, emit: Emit, signature: Any) -> Any:
    function = ir.Function(module, signature, name)
    function.attributes.add("nounwind")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    # Three parts: the frame's slots, what is done once before everything else, and the body.
    once, body = (function.append_basic_block(name) for name in ("once", "body"))
    builder.branch(once)
    builder.position_at_end(body)
    emit(Code(builder, once), [Value(builder, argument) for argument in function.args])
    if not builder.block.is_terminated:
        builder.ret_void()
    builder.position_at_end(once)
    builder.branch(body)
    return function


def _compile(source: str) -> bytes:
    module = llvm.parse_assembly(source)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    # The vectors are written out and the loops unrolled already; again only costs time and registers.
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    passes = llvm.create_pass_builder(_target(), options)
    passes.getModulePassManager().run(module, passes)
    code: bytes = _target().emit_object(module)
    return code


def _load(code: bytes) -> int:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    address: int = engine.get_function_address("kernel")
    return address


def _read(path: Path | None) -> bytes | None:
    """A file's code, or None where it is missing, damaged or not trusted: its digest stands before it."""
    data = None if path is None else read_trusted(path)
    if data is None or not data.startswith(CODE_MARK):
        return None
    held = data.removeprefix(CODE_MARK)
    digest, code = held[:32], held[32:]
    return code if hashlib.sha256(code).digest() == digest else None


def _write(path: Path | None, code: bytes) -> None:
    """Keep code for other processes; a folder that cannot be written is no fault."""
    if path is not None:
        with contextlib.suppress(OSError):
            write_trusted(path, CODE_MARK + hashlib.sha256(code).digest() + code)
