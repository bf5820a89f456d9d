"""The native half of `pool`: the builtin that launches a kernel and the workers' loop, as LLVM code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from openaclnn.engines.machine import cache
from openaclnn.engines.machine.builtins import as_int64, call_slot
from openaclnn.engines.machine.objects import ARRAY_DATA, OBJECT_TYPE, TUPLE_ITEMS, TUPLE_LENGTH
from openaclnn.engines.machine.words import (
    I32,
    I64,
    PTR,
    for_range,
    i64,
    read_slot,
    slot,
    stack,
    write_slot,
)

MAX_ARGUMENTS = 30
MAX_WORKERS = 255
TINY = 64  # count <= grain / TINY is a tiny call
CHUNKS = 8  # pieces for each thread: who wakes late, or shares its CPU, takes fewer
FEW_CHUNKS, MANY = (
    3,
    1 << 20,
)  # of long loops: each new piece costs the prefetchers their streams, 5 % in all

# The control block: one int64 a slot. Functions come in by address, so the code has no symbols to resolve.
BUSY, ACTIVE, AVOID, CPUS = range(4)
FROM_INT64, SAVE, RESTORE, SEM_WAIT, SEM_POST, GETCPU, SET_AFFINITY = range(4, 11)
NDARRAY = 11  # NumPy's array type, whose instances stand for their data
STARTED, TUPLE, VECTORCALL = 12, 13, 14
KERNEL, ARGUMENTS, COUNT, STEP, NEXT = range(16, 21)  # the task
MASK, MASK_SLOTS = 24, 16  # the CPUs we may use
WORKERS, WORKER_SLOTS = 40, 24  # one block for each worker:
# A bound kernel's own block:
BOUND_CONTROL, BOUND_FALLBACK, BOUND_KERNEL, BOUND_COUNT, BOUND_GRAIN, BOUND_CONSTANTS = range(6)
BOUND_VALUES = 6
HANDLE, CONTROL, GO, DONE = 0, 1, 8, 16  # its pthread, where the control block lies, two semaphores


def _wait(builder: Any, control: Any, semaphore: Any) -> None:
    """sem_wait until it succeeds: signals interrupt it."""
    again, after = builder.append_basic_block("wait"), builder.append_basic_block("woken")
    builder.branch(again)
    builder.position_at_end(again)
    failed = call_slot(builder, control, SEM_WAIT, I32, semaphore)
    builder.cbranch(builder.icmp_signed("!=", failed, ir.Constant(I32, 0)), again, after)
    builder.position_at_end(after)


def _worker_at(builder: Any, control: Any, index: Any) -> Any:
    return slot(builder, control, builder.add(builder.mul(index, i64(WORKER_SLOTS)), i64(WORKERS)))


def _take_chunks(builder: Any, control: Any) -> None:
    """Run the task's chunks until none is left."""
    count, step = read_slot(builder, control, COUNT), read_slot(builder, control, STEP)
    arguments = builder.inttoptr(read_slot(builder, control, ARGUMENTS), PTR)
    again, inside, after = (builder.append_basic_block(name) for name in ("take", "run", "empty"))
    builder.branch(again)
    builder.position_at_end(again)
    start = builder.atomic_rmw("add", slot(builder, control, NEXT), step, "monotonic")
    builder.cbranch(builder.icmp_signed("<", start, count), inside, after)
    builder.position_at_end(inside)
    stop = builder.add(start, step)
    stop = builder.select(builder.icmp_signed("<", stop, count), stop, count)
    call_slot(builder, control, KERNEL, ir.VoidType(), arguments, start, stop)
    builder.branch(again)
    builder.position_at_end(after)


WORKER = ir.FunctionType(PTR, [PTR])


def emit_worker(builder: Any, arguments: Any) -> None:
    """A thread's whole life: wait for go, take chunks, say done."""
    (worker,) = arguments
    control = builder.inttoptr(read_slot(builder, worker, CONTROL), PTR)
    forever = builder.append_basic_block("forever")
    builder.branch(forever)
    builder.position_at_end(forever)
    _wait(builder, control, slot(builder, worker, GO))
    _take_chunks(builder, control)
    call_slot(builder, control, SEM_POST, I32, slot(builder, worker, DONE))
    builder.branch(forever)


def _reader(builder: Any, control: Any) -> Callable[[Any], Any]:
    """What reads an argument: an integer, or the address of an array's data, which costs Python 2 us to ask for."""
    read_integer = as_int64(builder)
    ndarray = read_slot(builder, control, NDARRAY)
    value = stack(builder, I64, 1)

    def read(one: Any) -> Any:
        is_array = builder.icmp_unsigned("==", read_slot(builder, one, OBJECT_TYPE), ndarray)
        with builder.if_else(is_array) as (then, otherwise):
            with then:
                write_slot(builder, value, 0, read_slot(builder, one, ARRAY_DATA))
            with otherwise:
                write_slot(builder, value, 0, builder.call(read_integer, [one]))
        return read_slot(builder, value, 0)

    return read


def emit_entry(builder: Any, arguments: Any) -> None:
    """The builtin `launch(kernel, count, grain, *arguments)` in CPython's fast calling convention."""
    self, given, number = arguments
    control = builder.inttoptr(builder.call(as_int64(builder), [self]), PTR)
    read = _reader(builder, control)

    def argument(index: Any) -> Any:
        return read(builder.load(slot(builder, given, index), typ=PTR, align=8))

    kernel, count, grain = (argument(index) for index in range(3))
    block = stack(builder, I64, MAX_ARGUMENTS + 1)
    write_slot(builder, block, 0, 0)

    def copy(index: Any) -> None:
        value = argument(builder.add(index, i64(3)))
        write_slot(builder, block, builder.add(index, i64(1)), value)

    for_range(builder, builder.sub(number, i64(3)), copy)
    _launch(builder, control, kernel, block, count, grain)


def emit_bound(builder: Any, arguments: Any) -> None:
    """The builtin `run(addresses, stream)` of one kernel with its constants, which `self` points to.

    What it is not made for, or before the workers run, the function in Python does.
    """
    self, given, number = arguments
    own = builder.inttoptr(builder.call(as_int64(builder), [self]), PTR)
    control = builder.inttoptr(read_slot(builder, own, BOUND_CONTROL), PTR)
    kernel, count, grain, constants = (
        read_slot(builder, own, where)
        for where in (BOUND_KERNEL, BOUND_COUNT, BOUND_GRAIN, BOUND_CONSTANTS)
    )
    started = builder.icmp_signed("!=", read_slot(builder, control, STARTED), i64(0))
    ready = builder.or_(started, builder.icmp_signed("<=", count, grain))
    ready = builder.and_(ready, builder.icmp_signed("==", number, i64(2)))
    with builder.if_then(ready):
        addresses = builder.load(given, typ=PTR, align=8)
        kind = read_slot(builder, addresses, OBJECT_TYPE)
        with builder.if_then(builder.icmp_signed("==", kind, read_slot(builder, control, TUPLE))):
            length = read_slot(builder, addresses, TUPLE_LENGTH)
            total = builder.add(length, constants)
            with builder.if_then(builder.icmp_signed("<=", total, i64(MAX_ARGUMENTS))):
                read = _reader(builder, control)
                block = stack(builder, I64, MAX_ARGUMENTS + 1)
                write_slot(builder, block, 0, 0)

                def constant(index: Any) -> None:
                    value = read_slot(builder, own, builder.add(index, i64(BOUND_VALUES)))
                    write_slot(builder, block, builder.add(index, i64(1)), value)

                def address(index: Any) -> None:
                    item = read_slot(builder, addresses, builder.add(index, i64(TUPLE_ITEMS)))
                    value = read(builder.inttoptr(item, PTR))
                    place = builder.add(builder.add(index, constants), i64(1))
                    write_slot(builder, block, place, value)

                for_range(builder, constants, constant)
                for_range(builder, length, address)
                _launch(builder, control, kernel, block, count, grain)
    other = builder.inttoptr(read_slot(builder, own, BOUND_FALLBACK), PTR)
    nothing = ir.Constant(PTR, None)
    builder.ret(call_slot(builder, control, VECTORCALL, PTR, other, given, number, nothing))


def _launch(builder: Any, control: Any, kernel: Any, block: Any, count: Any, grain: Any) -> None:
    """Run a kernel and return its status word."""
    function = builder.inttoptr(kernel, cache.KERNEL.as_pointer())
    # A tiny call keeps the interpreter's lock: with a busy second thread, giving it away costs 5 ms.
    tiny = builder.icmp_signed("<=", builder.mul(count, i64(TINY)), grain)
    with builder.if_else(tiny) as (then, otherwise):
        with then:
            builder.call(function, [block, i64(0), count])
        with otherwise:
            state = call_slot(builder, control, SAVE, PTR)
            _run(builder, control, function, block, count, grain)
            call_slot(builder, control, RESTORE, ir.VoidType(), state)
    builder.ret(call_slot(builder, control, FROM_INT64, PTR, read_slot(builder, block, 0)))


def _run(builder: Any, control: Any, function: Any, block: Any, count: Any, grain: Any) -> None:
    """Share the work if it is large, there are workers and nobody else uses them; else do it here."""
    taken = stack(builder, I64, 1)
    builder.store(i64(0), taken, align=8)
    active = read_slot(builder, control, ACTIVE)
    worthwhile = builder.and_(
        builder.icmp_signed(">", count, grain), builder.icmp_signed(">", active, i64(0))
    )
    with builder.if_then(worthwhile):
        busy = slot(builder, control, BUSY)
        outcome = builder.cmpxchg(busy, i64(0), i64(1), "acquire", "monotonic")
        builder.store(builder.zext(builder.extract_value(outcome, 1), I64), taken, align=8)
    shared = builder.icmp_signed("!=", read_slot(builder, taken, 0), i64(0))
    with builder.if_else(shared) as (then, otherwise):
        with then:
            _share(builder, control, function, block, count, grain, active)
            builder.atomic_rmw("xchg", slot(builder, control, BUSY), i64(0), "release")
        with otherwise:
            builder.call(function, [block, i64(0), count])


def _share(
    builder: Any, control: Any, function: Any, block: Any, count: Any, grain: Any, active: Any
) -> None:
    wanted = builder.add(builder.sdiv(count, grain), i64(1))
    helpers = builder.select(builder.icmp_signed("<", wanted, active), wanted, active)
    many = builder.icmp_signed(">=", count, i64(MANY))
    chunks = builder.select(many, i64(FEW_CHUNKS), i64(CHUNKS))
    pieces = builder.mul(builder.add(helpers, i64(1)), chunks)
    step = builder.sdiv(builder.sub(builder.add(count, pieces), i64(1)), pieces)
    aligned = builder.and_(builder.add(step, i64(63)), i64(-64))
    step = builder.select(builder.icmp_signed(">=", step, i64(512)), aligned, step)
    task = (
        (KERNEL, builder.ptrtoint(function, I64)), (ARGUMENTS, builder.ptrtoint(block, I64)),
        (COUNT, count), (STEP, step), (NEXT, i64(0)),
    )  # fmt: skip
    for where, value in task:
        write_slot(builder, control, where, value)
    with builder.if_then(builder.icmp_signed(">", read_slot(builder, control, CPUS), i64(1))):
        _keep_off_this_cpu(builder, control)

    def go(index: Any) -> None:
        worker = _worker_at(builder, control, index)
        call_slot(builder, control, SEM_POST, I32, slot(builder, worker, GO))

    def done(index: Any) -> None:
        worker = _worker_at(builder, control, index)
        _wait(builder, control, slot(builder, worker, DONE))

    for_range(builder, helpers, go)
    _take_chunks(builder, control)
    for_range(builder, helpers, done)


def _keep_off_this_cpu(builder: Any, control: Any) -> None:
    """Exclude the caller's CPU from the workers' affinity, if it is not already."""
    cpu = builder.sext(call_slot(builder, control, GETCPU, I32), I64)
    moved = builder.icmp_signed("!=", cpu, read_slot(builder, control, AVOID))
    known = builder.icmp_unsigned("<", cpu, i64(64 * MASK_SLOTS))
    with builder.if_then(builder.and_(moved, known)):
        write_slot(builder, control, AVOID, cpu)
        mask = stack(builder, I64, MASK_SLOTS)
        for index in range(MASK_SLOTS):
            write_slot(builder, mask, index, read_slot(builder, control, MASK + index))
        word = slot(builder, mask, builder.lshr(cpu, i64(6)))
        bit = builder.shl(i64(1), builder.and_(cpu, i64(63)))
        left = builder.and_(builder.load(word, typ=I64, align=8), builder.not_(bit))
        builder.store(left, word, align=8)

        def move(index: Any) -> None:
            handle = read_slot(builder, _worker_at(builder, control, index), HANDLE)
            call_slot(builder, control, SET_AFFINITY, I32, handle, i64(8 * MASK_SLOTS), mask)

        for_range(builder, read_slot(builder, control, ACTIVE), move)
