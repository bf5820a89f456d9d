"""Scalar code for LLVM with Python's operators: what surrounds the vector loops of kernels with a class axis.

Addresses and indices are 64-bit integers; a `Number` is one of them, a float, or a truth value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from openaclnn.engines.cpu.simd import machine
from openaclnn.engines.machine.words import F16, F32, F64, I8, I16, I32, I64, PTR, stack

I1 = ir.IntType(1)
STORED = {
    "f32": F32, "f64": F64, "f16": F16, "bf16": I16, "i64": I64, "i32": I32, "u8": I8, "i16": I16,
}  # fmt: skip
"""How an element lies in memory, by its short name."""
SIZE = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "u8": 1, "i16": 2}


class Number:
    """An LLVM scalar. Integers are signed, divide only by positive numbers and then round down from 0 up."""

    __slots__ = ("builder", "value")

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder = builder
        self.value = value

    @property
    def floating(self) -> bool:
        return isinstance(self.value.type, (ir.FloatType, ir.DoubleType))

    def _other(self, other: Any) -> Any:
        return other.value if isinstance(other, Number) else ir.Constant(self.value.type, other)

    def _make(self, floating: str, integer: str, left: Any, right: Any) -> Number:
        operation = getattr(self.builder, floating if self.floating else integer)
        return Number(self.builder, operation(left, right))

    def __add__(self, other: Any) -> Number:
        return self._make("fadd", "add", self.value, self._other(other))

    def __sub__(self, other: Any) -> Number:
        return self._make("fsub", "sub", self.value, self._other(other))

    def __rsub__(self, other: Any) -> Number:
        return self._make("fsub", "sub", self._other(other), self.value)

    def __mul__(self, other: Any) -> Number:
        return self._make("fmul", "mul", self.value, self._other(other))

    def __truediv__(self, other: Any) -> Number:
        return Number(self.builder, self.builder.fdiv(self.value, self._other(other)))

    def __floordiv__(self, other: Any) -> Number:
        return Number(self.builder, self.builder.udiv(self.value, self._other(other)))

    def rest(self, divisor: int) -> Number:
        """The remainder of a non-negative integer."""
        constant = ir.Constant(self.value.type, divisor)
        return Number(self.builder, self.builder.urem(self.value, constant))

    def __neg__(self) -> Number:
        if self.floating:
            return Number(self.builder, self.builder.fneg(self.value))
        return Number(self.builder, self.builder.neg(self.value))

    def __and__(self, other: Any) -> Number:
        return Number(self.builder, self.builder.and_(self.value, self._other(other)))

    def __or__(self, other: Any) -> Number:
        return Number(self.builder, self.builder.or_(self.value, self._other(other)))

    def __invert__(self) -> Number:
        return Number(self.builder, self.builder.not_(self.value))

    def _compare(self, relation: str, other: Any) -> Number:
        builder = self.builder
        if self.floating:
            # "!=" must hold for NaN, all others must not.
            compare = builder.fcmp_unordered if relation == "!=" else builder.fcmp_ordered
        else:
            compare = builder.icmp_signed
        return Number(builder, compare(relation, self.value, self._other(other)))

    def __lt__(self, other: Any) -> Number:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Number:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Number:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Number:
        return self._compare(">=", other)

    def equals(self, other: Any) -> Number:
        return self._compare("==", other)

    def differs(self, other: Any) -> Number:
        return self._compare("!=", other)

    def within(self, limit: Number) -> Number:
        """0 <= self < limit, in one comparison."""
        return Number(self.builder, self.builder.icmp_unsigned("<", self.value, limit.value))

    def choose(self, yes: Any, no: Any) -> Number:
        """One of two numbers by this truth value; at least one of them is a Number."""
        kind: Number = yes if isinstance(yes, Number) else no
        chosen = self.builder.select(self.value, kind._other(yes), kind._other(no))
        return Number(self.builder, chosen)

    def least(self, other: Any) -> Number:
        return self._compare("<", other).choose(self, other)

    def size(self) -> Number:
        """The absolute value; NaN stays."""
        return self._compare("<", 0).choose(-self, self)

    def to_f64(self) -> Number:
        if self.floating:
            widened = self.value.type == F32
            return Number(self.builder, self.builder.fpext(self.value, F64)) if widened else self
        if self.value.type == I1:
            return Number(self.builder, self.builder.uitofp(self.value, F64))
        return Number(self.builder, self.builder.sitofp(self.value, F64))

    def to_f32(self) -> Number:
        return Number(self.builder, self.builder.fptrunc(self.value, F32))

    def to_i64(self) -> Number:
        return Number(self.builder, self.builder.zext(self.value, I64))

    @property
    def pointer(self) -> Any:
        """This address, for the vector emitters."""
        return self.builder.inttoptr(self.value, PTR)


class Variable:
    """A number that changes; LLVM keeps it in a register."""

    def __init__(self, builder: Any, start: Number) -> None:
        self.builder = builder
        with builder.goto_entry_block():
            self.place = builder.alloca(start.value.type)
        self.set(start)

    def get(self) -> Number:
        return Number(self.builder, self.builder.load(self.place))

    def set(self, value: Number) -> None:
        self.builder.store(value.value, self.place)


class Code:
    """Emits statements into an LLVM function under construction."""

    def __init__(self, builder: Any, lanes: int = 0) -> None:
        self.builder = builder
        self.lanes = lanes or machine().lanes  # FLOAT lanes of a vector

    def number(self, value: Any) -> Number:
        return Number(self.builder, value)

    def integer(self, value: int) -> Number:
        return self.number(ir.Constant(I64, value))

    def double(self, value: float) -> Number:
        return self.number(ir.Constant(F64, value))

    def variable(self, start: Number) -> Variable:
        return Variable(self.builder, start)

    def buffer(self, kind: str, count: int) -> Number:
        """The address of scratch space in this function's frame."""
        return self.number(self.builder.ptrtoint(stack(self.builder, STORED[kind], count), I64))

    def load(self, address: Number, kind: str) -> Number:
        """An element: integers as int64, float16 and bfloat16 as float32."""
        builder = self.builder
        value = builder.load(address.pointer, typ=STORED[kind], align=SIZE[kind])
        if kind == "i32":
            value = builder.sext(value, I64)
        elif kind == "u8":
            value = builder.zext(value, I64)
        elif kind == "f16":
            value = builder.fpext(value, F32)
        elif kind == "bf16":
            bits = builder.shl(builder.zext(value, I32), ir.Constant(I32, 16))
            value = builder.bitcast(bits, F32)
        return self.number(value)

    def store(self, value: Number, address: Number, kind: str) -> None:
        """A number into an element; float32 is rounded to nearest-even, and NaN stays NaN."""
        builder, stored = self.builder, value.value
        if kind == "f16":
            stored = builder.fptrunc(stored, F16)
        elif kind == "bf16":
            bits = builder.bitcast(stored, I32)
            odd = builder.and_(builder.lshr(bits, ir.Constant(I32, 16)), ir.Constant(I32, 1))
            rounded = builder.add(builder.add(bits, odd), ir.Constant(I32, 0x7FFF))
            quiet = builder.or_(bits, ir.Constant(I32, 0x400000))
            chosen = builder.select(value.differs(value).value, quiet, rounded)
            stored = builder.trunc(builder.lshr(chosen, ir.Constant(I32, 16)), I16)
        builder.store(stored, address.pointer, align=SIZE[kind])

    def copy(
        self, source: Number, source_step: Number, target: Number, target_step: Number,
        count: Number, kind: str,
    ) -> None:  # fmt: skip
        """Elements one by one; steps count bytes."""
        builder, element = self.builder, STORED[kind]
        start = self.integer(0)
        for unrolled in (8, 1):
            stop = count - count.rest(unrolled)
            with self.loop(start, stop, unrolled) as index:
                read, written = source + index * source_step, target + index * target_step
                values = []
                for _ in range(unrolled):
                    values.append(builder.load(read.pointer, typ=element, align=SIZE[kind]))
                    read = read + source_step
                for value in values:
                    builder.store(value, written.pointer, align=SIZE[kind])
                    written = written + target_step
            start = stop

    def clear(self, address: Number, size: Number) -> None:
        """Zero bytes: the C library's memset, which knows the fastest way for a size."""
        builder, name = self.builder, "llvm.memset.p0.i64"
        function = builder.module.globals.get(name)
        if function is None:
            signature = ir.FunctionType(ir.VoidType(), [PTR, I8, I64, I1])
            function = ir.Function(builder.module, signature, name)
        zero, plain = ir.Constant(I8, 0), ir.Constant(I1, 0)
        builder.call(function, [address.pointer, zero, size.value, plain])

    @contextmanager
    def when(self, condition: Number, likely: bool | None = None) -> Iterator[None]:
        with self.builder.if_then(condition.value, likely=likely):
            yield

    @contextmanager
    def repeat_while(self, condition: Callable[[], Number]) -> Iterator[None]:
        builder = self.builder
        test, inside, after = (builder.append_basic_block(name) for name in ("while", "do", "end"))
        builder.branch(test)
        builder.position_at_end(test)
        builder.cbranch(condition().value, inside, after)
        builder.position_at_end(inside)
        yield
        builder.branch(test)
        builder.position_at_end(after)

    @contextmanager
    def loop(self, start: Number, stop: Number, step: int = 1) -> Iterator[Number]:
        """index = start, start + step, ... below stop"""
        builder = self.builder
        before = builder.block
        test, inside, after = (builder.append_basic_block(name) for name in ("test", "do", "end"))
        builder.branch(test)
        builder.position_at_end(test)
        index = builder.phi(I64)
        index.add_incoming(start.value, before)
        builder.cbranch(builder.icmp_signed("<", index, stop.value), inside, after)
        builder.position_at_end(inside)
        yield self.number(index)
        following = builder.add(index, ir.Constant(I64, step), flags=("nsw",))
        index.add_incoming(following, builder.block)
        builder.branch(test)
        builder.position_at_end(after)
