"""Words of a function being written for LLVM: types, integers, its frame, arrays of int64, loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
PTR = ir.PointerType()

Value = Any  # an llvmlite value


def i64(value: int) -> Value:
    return ir.Constant(I64, value)


def stack(builder: Any, kind: Any, count: int, align: int = 64) -> Value:
    """An address in this function's frame, laundered so that LLVM does not see through it."""
    with builder.goto_entry_block():
        place = builder.alloca(ir.ArrayType(kind, count))
        place.align = align
        return builder.inttoptr(builder.ptrtoint(place, I64), PTR)


def slot(builder: Any, base: Value, index: Any) -> Value:
    """Where an int64 of an array lies."""
    where = i64(index) if isinstance(index, int) else index
    return builder.gep(base, [where], source_etype=I64)


def read_slot(builder: Any, base: Value, index: Any) -> Value:
    return builder.load(slot(builder, base, index), typ=I64, align=8)


def write_slot(builder: Any, base: Value, index: Any, value: Any) -> None:
    word = i64(value) if isinstance(value, int) else value
    builder.store(word, slot(builder, base, index), align=8)


def for_range(builder: Any, limit: Value, body: Callable[[Value], None], step: int = 1) -> None:
    """`body(index)` for index = 0, step, ... below the limit."""
    before = builder.block
    test, inside, after = (builder.append_basic_block(name) for name in ("test", "do", "done"))
    builder.branch(test)
    builder.position_at_end(test)
    index = builder.phi(I64)
    index.add_incoming(i64(0), before)
    builder.cbranch(builder.icmp_signed("<", index, limit), inside, after)
    builder.position_at_end(inside)
    body(index)
    index.add_incoming(builder.add(index, i64(step)), builder.block)
    builder.branch(test)
    builder.position_at_end(after)
