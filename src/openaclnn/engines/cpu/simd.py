"""Explicit vector code for LLVM: loops of K independent float32 vectors, emitted operation by operation.

Works in any function that llvmlite builds: our own kernels (`cache.compiled`) and Numba intrinsics alike.

Two measured reasons (Neoverse-N1, 2^24 ELU gradients, two threads): a plain loop keeps one dependent
chain in flight and takes 23 ms; K chains side by side take 8 to 9 ms. LLVM keeps them side by side only
if the IR already says so, hence *op-major* emission: each `Vec` method emits its operation K times.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir
from llvmlite.ir import instructions

from openaclnn.engines.machine.words import F16, F32, I16, I32, I64, i64, stack

ELEMENT = {"f32": F32, "bf16": I16, "f16": F16}
"""How an element of each computing dtype (by `DType.short`) lies in memory."""
ITEMSIZE = {"f32": 4, "bf16": 2, "f16": 2}

Value = Any  # an llvmlite value
Values = list[Any]  # one for each stream


class Machine(NamedTuple):
    """What the emitter must know of a CPU."""

    lanes: int  # float32 lanes of one register
    registers: int  # vector registers
    neon: bool
    half: bool  # has conversions between float16 and float32
    fma: bool


@functools.cache
def machine() -> Machine:
    """This machine's vector unit."""
    features = dict(llvm.get_host_cpu_features())
    if llvm.get_process_triple().startswith(("aarch64", "arm64")):
        return Machine(4, 32, True, True, True)
    half, fma = bool(features.get("f16c")), bool(features.get("fma"))
    if features.get("avx512f"):
        return Machine(16, 32, False, half, fma)
    return Machine(8 if features.get("avx2") else 4, 16, False, half, fma)


class VolLoad(instructions.LoadInstr):  # type: ignore[misc]
    """A volatile load: LLVM neither folds nor hoists it."""

    def descr(self, buf: list[str]) -> None:
        (pointer,) = self.operands
        buf.append(
            f"load volatile {self.type}, {pointer.type} {pointer.get_reference()}, align {self.align}\n"
        )


def volatile_load(builder: Any, pointer: Value, kind: Any, align: int) -> Value:
    load = VolLoad(builder.block, pointer, "", typ=kind)
    load.align = align
    builder._insert(load)
    return load


def repeat(kind: Any, value: Any, lanes: int) -> Value:
    """A constant vector."""
    return ir.Constant(ir.VectorType(kind, lanes), [ir.Constant(kind, value)] * lanes)


def shuffle(builder: Any, first: Value, second: Value | None, lanes: Sequence[int]) -> Value:
    other = ir.Constant(first.type, ir.Undefined) if second is None else second
    mask = ir.Constant(ir.VectorType(I32, len(lanes)), [ir.Constant(I32, lane) for lane in lanes])
    return builder.shuffle_vector(first, other, mask)


def splat(builder: Any, value: Value, lanes: int) -> Value:
    """A scalar in every lane."""
    empty = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    one = builder.insert_element(empty, value, ir.Constant(I32, 0))
    return one if lanes == 1 else shuffle(builder, one, None, [0] * lanes)


class Consts:
    """Splatted constants read by volatile loads at each use.

    An FMA overwrites its addend, so an addend held in a register costs a move on the busy vector pipes;
    a load runs on idle ones (3.6 -> 3.1 cycles per element). Entries may be run-time scalars.
    """

    def __init__(self, builder: Any, values: Sequence[Any], lanes: int | None = None) -> None:
        self.builder = builder
        self.width = lanes or machine().lanes
        self.align = 4 * self.width
        self.kind = ir.VectorType(F32, self.width)
        self.table = stack(builder, self.kind, len(values), max(16, self.align))
        for index, value in enumerate(values):
            scalar = ir.Constant(F32, value) if isinstance(value, float) else value
            builder.store(splat(builder, scalar, self.width), self._at(index), align=self.align)

    def _at(self, index: int) -> Value:
        return self.builder.gep(self.table, [i64(index)], source_etype=self.kind)

    def get(self, index: int, lanes: int) -> Value:
        return volatile_load(
            self.builder, self._at(index), ir.VectorType(F32, lanes), min(self.align, 4 * lanes)
        )


class Opaque:
    """Constants whose value LLVM must not know.

    Seeing 0x10000 it turns NEON's bit test into shift and mask; seeing 0.0 it compares float16 values
    before widening them. Both are slower.
    """

    def __init__(self, builder: Any, lanes: int | None = None) -> None:
        self.builder = builder
        self.width = lanes or machine().lanes
        kind = ir.VectorType(I32, self.width)
        table = stack(builder, kind, 2)

        def hidden(index: int, value: int) -> Value:
            place = builder.gep(table, [i64(index)], source_etype=kind)
            builder.store(repeat(I32, value, self.width), place, align=4 * self.width)
            return volatile_load(builder, place, kind, 4 * self.width)

        self._bit16 = hidden(0, 0x10000)
        self._zero = builder.bitcast(hidden(1, 0), ir.VectorType(F32, self.width))

    def bit16(self, lanes: int) -> Value:
        return self._narrowed(self._bit16, lanes)

    def zero(self, lanes: int) -> Value:
        return self._narrowed(self._zero, lanes)

    def _narrowed(self, value: Value, lanes: int) -> Value:
        if lanes == self.width:
            return value
        return shuffle(self.builder, value, None, [0] * lanes)


class Vec:
    """K streams of L float32 lanes. Operations take lists (one vector a stream) or one vector for all."""

    def __init__(self, builder: Any, streams: int, lanes: int) -> None:
        self.builder = builder
        self.streams = streams
        self.lanes = lanes
        self.floats = ir.VectorType(F32, lanes)
        self.ints = ir.VectorType(I32, lanes)

    def const(self, value: float) -> Value:
        return repeat(F32, value, self.lanes)

    def iconst(self, value: int) -> Value:
        return repeat(I32, value, self.lanes)

    def splat(self, value: Value) -> Value:
        return splat(self.builder, value, self.lanes)

    def each(self, operation: Callable[..., Value], *operands: Any) -> Values:
        """One operation on every stream."""

        def of(operand: Any, k: int) -> Value:
            return operand[k] if isinstance(operand, list) else operand

        return [operation(*(of(operand, k) for operand in operands)) for k in range(self.streams)]

    def call(self, name: str, *operands: Any) -> Values:
        """An LLVM intrinsic over float32 vectors."""
        return self.each(lambda *values: self._call(name, *values), *operands)

    def _call(self, name: str, *values: Value) -> Value:
        kind = values[0].type
        full = f"llvm.{name}.v{kind.count}f32"
        function = self.builder.module.globals.get(full)
        if function is None:
            signature = ir.FunctionType(kind, [value.type for value in values])
            function = ir.Function(self.builder.module, signature, full)
        return self.builder.call(function, values)

    def fma(self, x: Any, y: Any, z: Any) -> Values:
        return self.call("fma", x, y, z)

    def fma_const(self, x: Any, y: Any, table: Consts, index: int) -> Values:
        """x * y + table[index]"""
        # Each load directly before its use: loaded all at once they would need K registers more.
        return self.each(lambda a, b: self._call("fma", a, b, table.get(index, self.lanes)), x, y)

    def max(self, x: Any, y: Any) -> Values:
        """The larger; NaN if either is."""
        return self.call("maximum", x, y)

    def min(self, x: Any, y: Any) -> Values:
        """The smaller; NaN if either is."""
        return self.call("minimum", x, y)

    def min_number(self, x: Any, y: Any) -> Values:
        """The smaller; the other one if one is a quiet NaN."""
        return self.call("minnum", x, y)

    def abs(self, x: Any) -> Values:
        return self.call("fabs", x)

    def add(self, x: Any, y: Any) -> Values:
        return self.each(self.builder.fadd, x, y)

    def sub(self, x: Any, y: Any) -> Values:
        return self.each(self.builder.fsub, x, y)

    def mul(self, x: Any, y: Any) -> Values:
        return self.each(self.builder.fmul, x, y)

    def div(self, x: Any, y: Any) -> Values:
        return self.each(self.builder.fdiv, x, y)

    def compare(self, relation: str, x: Any, y: Any) -> Values:
        """Ordered comparison: false where either is NaN."""
        return self.each(lambda a, b: self.builder.fcmp_ordered(relation, a, b), x, y)

    def select(self, condition: Any, x: Any, y: Any) -> Values:
        return self.each(self.builder.select, condition, x, y)

    def as_ints(self, x: Any) -> Values:
        return self.each(lambda value: self.builder.bitcast(value, self.ints), x)

    def as_floats(self, x: Any) -> Values:
        return self.each(lambda value: self.builder.bitcast(value, self.floats), x)

    def shl(self, x: Any, bits: int) -> Values:
        return self.each(lambda value: self.builder.shl(value, self.iconst(bits)), x)


def add_loop(
    builder: Any, start: Value, count: Value, step: int, body: Callable[[Value], None]
) -> Value:
    """`body(index)` for index = start, start + step, ... while a whole step is left; returns the rest's start."""
    before, function = builder.block, builder.function
    inside = function.append_basic_block("loop")
    after = function.append_basic_block("after")
    last = builder.sub(count, i64(step))
    builder.cbranch(builder.icmp_signed("<=", start, last), inside, after)
    builder.position_at_end(inside)
    index = builder.phi(I64)
    index.add_incoming(start, before)
    body(index)
    following = builder.add(index, i64(step), flags=("nsw",))
    index.add_incoming(following, builder.block)
    end = builder.block
    builder.cbranch(builder.icmp_signed("<=", following, last), inside, after)
    builder.position_at_end(after)
    rest = builder.phi(I64)
    rest.add_incoming(start, before)
    rest.add_incoming(following, end)
    return rest


def loops(
    builder: Any,
    count: Value,
    streams: int,
    body: Callable[[Vec, Value], None],
    lanes: int | None = None,
) -> None:
    """`body(vec, index)` over `count` elements: K streams, then one vector, then one element at a time.

    The three loops run the same operations, so an element's bits do not depend on which one reaches it.
    """
    width = lanes or machine().lanes
    index = i64(0)
    for k, wide in dict.fromkeys(((streams, width), (1, width), (1, 1))):
        vec = Vec(builder, k, wide)
        index = add_loop(builder, index, count, k * wide, functools.partial(body, vec))
