"""The machine code of `native`: reads a control block, puts addresses in, and calls the CUDA driver."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from openaclnn.engines.machine.builtins import as_int64, call_slot
from openaclnn.engines.machine.objects import OBJECT_TYPE, TUPLE_ITEMS, TUPLE_LENGTH
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

# The control block, one int64 a slot: functions by address, then a block for each launch.
LAUNCH, COUNT, ADDRESSES, FALLBACK, TUPLE, SAVE, RESTORE, VECTORCALL, FROM_INT64 = range(9)
HEADER = 16
FUNCTION, CONFIG, POINTERS, PARAMETERS, PLACES = 0, 1, 8, 9, 10
MAX_POINTERS, MAX_PARAMETERS, MAX_LAUNCHES = 16, 128, 4
SHIFTS, MASKS, VALUES = PLACES + MAX_POINTERS, PLACES + 2 * MAX_POINTERS, PLACES + 3 * MAX_POINTERS
STRIDE = VALUES + MAX_PARAMETERS

# CUlaunchConfig: grid, block and shared memory as seven 32-bit numbers, then the rest by slots.
CONFIG_SLOTS, CONFIG_STREAM, CONFIG_ATTRIBUTES, CONFIG_ATTRIBUTE_COUNT = 7, 4, 5, 6


def emit_entry(builder: Any, arguments: Any) -> None:
    """`launch(addresses, stream)`: all launches, or the fallback where an address is off a vector's bounds."""
    self, given, number = arguments
    read_integer = as_int64(builder)
    control = builder.inttoptr(builder.call(read_integer, [self]), PTR)
    launches = read_slot(builder, control, COUNT)
    pointers = stack(builder, I64, MAX_LAUNCHES * MAX_POINTERS)
    state = stack(builder, I64, 1)
    write_slot(builder, state, 0, 0)  # not 0: nothing was launched, or not all of it

    def block_of(index: Any) -> Any:
        return slot(builder, control, builder.add(builder.mul(index, i64(STRIDE)), i64(HEADER)))

    def mark(bits: Any) -> None:
        write_slot(builder, state, 0, builder.or_(read_slot(builder, state, 0), bits))

    def fits(condition: Any) -> None:
        mark(builder.zext(builder.not_(condition), I64))

    def if_fit() -> Any:
        return builder.if_then(builder.icmp_signed("==", read_slot(builder, state, 0), i64(0)))

    def gather(addresses: Any, index: Any) -> None:
        block = block_of(index)
        fits(builder.icmp_signed("!=", read_slot(builder, block, FUNCTION), i64(0)))
        first = builder.mul(index, i64(MAX_POINTERS))

        def one(number: Any) -> None:
            place = read_slot(builder, block, builder.add(number, i64(PLACES)))
            item = read_slot(builder, addresses, builder.add(place, i64(TUPLE_ITEMS)))
            value = builder.call(read_integer, [builder.inttoptr(item, PTR)])
            shift = read_slot(builder, block, builder.add(number, i64(SHIFTS)))
            value = builder.add(value, shift)
            write_slot(builder, pointers, builder.add(first, number), value)
            mark(builder.and_(value, read_slot(builder, block, builder.add(number, i64(MASKS)))))

        for_range(builder, read_slot(builder, block, POINTERS), one)

    # Whoever calls differently from a runner's protocol meets the fallback.
    fits(builder.icmp_signed("==", number, i64(2)))
    with if_fit():
        addresses = builder.load(given, typ=PTR, align=8)
        kind = read_slot(builder, addresses, OBJECT_TYPE)
        fits(builder.icmp_signed("==", kind, read_slot(builder, control, TUPLE)))
        with if_fit():
            length = read_slot(builder, addresses, TUPLE_LENGTH)
            fits(builder.icmp_signed(">=", length, read_slot(builder, control, ADDRESSES)))
        with if_fit():
            for_range(builder, launches, lambda index: gather(addresses, index))
    with if_fit():
        stream = builder.call(
            read_integer, [builder.load(slot(builder, given, 1), typ=PTR, align=8)]
        )
        # A full queue makes the driver wait, perhaps for a host function that needs the interpreter.
        saved = call_slot(builder, control, SAVE, PTR)

        def start(index: Any) -> None:
            mark(_start(builder, control, block_of(index), pointers, index, stream))

        for_range(builder, launches, start)
        call_slot(builder, control, RESTORE, ir.VoidType(), saved)
        with if_fit():
            builder.ret(call_slot(builder, control, FROM_INT64, PTR, i64(0)))
    fallback = builder.inttoptr(read_slot(builder, control, FALLBACK), PTR)
    nothing = ir.Constant(PTR, None)
    builder.ret(call_slot(builder, control, VECTORCALL, PTR, fallback, given, number, nothing))


def _start(builder: Any, control: Any, block: Any, pointers: Any, index: Any, stream: Any) -> Any:
    """One launch; the driver's code as an int64."""
    config = stack(builder, I64, CONFIG_SLOTS)
    values, places = stack(builder, I64, MAX_PARAMETERS), stack(builder, I64, MAX_PARAMETERS)
    for number in range(CONFIG_SLOTS):
        write_slot(builder, config, number, read_slot(builder, block, CONFIG + number))
    write_slot(builder, config, CONFIG_STREAM, stream)
    count = read_slot(builder, block, POINTERS)
    first = builder.mul(index, i64(MAX_POINTERS))

    def place(number: Any) -> None:
        value = read_slot(builder, block, builder.add(number, i64(VALUES)))
        write_slot(builder, values, number, value)
        where = builder.ptrtoint(slot(builder, values, number), I64)
        write_slot(builder, places, number, where)

    def put(number: Any) -> None:
        value = read_slot(builder, pointers, builder.add(first, number))
        write_slot(builder, values, number, value)

    for_range(builder, read_slot(builder, block, PARAMETERS), place)
    for_range(builder, count, put)
    function = builder.inttoptr(read_slot(builder, block, FUNCTION), PTR)
    code = call_slot(
        builder, control, LAUNCH, I32, config, function, places, ir.Constant(PTR, None)
    )
    return builder.zext(code, I64)
