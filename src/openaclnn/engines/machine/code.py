"""`Code`, the function being written: its constants and variables, calls, conditions and loops, and memory. `values.py` has the expressions.

Addresses and indices are 64-bit integers. Every part of the package that makes machine code writes it in this
language; only the modules of this folder use the builder of `assembly.py`.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from openaclnn.engines.machine import assembly
from openaclnn.engines.machine.assembly import (
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    PTR,
    VOID,
    Block,
    Builder,
    Function,
    Loop,
    undefined,
    vector_type,
)
from openaclnn.engines.machine.host import machine, on_arm, this_machine
from openaclnn.engines.machine.kinds import SIZE, STORED, constant
from openaclnn.engines.machine.values import (
    Shape,
    Value,
    Variable,
    call_declared,
    shuffled,
    zero_of,
)

FRAME_ALIGNMENT = 64
LOOKUP_512 = "llvm.x86.avx512.permvar.sf.512"


class Array:
    """Contiguous elements of one kind from an address on; bfloat16 elements are 16-bit integers."""

    def __init__(self, code: Code, address: Value | Any, kind: str) -> None:
        self.code, self.kind = code, kind
        self.element, self.align = STORED[kind], SIZE[kind]
        self.pointer = address.pointer if isinstance(address, Value) else address

    def place(self, index: Value | int) -> Any:
        """The address of an element as an LLVM pointer."""
        where = self.code.as_integer(index)
        return self.code.builder.gep(self.pointer, where.value, self.element)

    def address(self, index: Value | int = 0) -> Value:
        return Value(self.code.builder, self.code.builder.ptrtoint(self.place(index), I64))

    def at(self, index: Value | int) -> Array:
        """The array from an element on."""
        return Array(self.code, self.place(index), self.kind)

    def read(self, index: Value | int, align: int | None = None) -> Value:
        """One element, not converted."""
        load = self.code.builder.load(self.place(index), self.element, align or self.align)
        return Value(self.code.builder, load)

    def write(self, index: Value | int, value: Value | float) -> None:
        """Write one element: a value of the array's kind, or a Python number."""
        stored = value.value if isinstance(value, Value) else constant(self.element, value)
        self._check(stored.type)
        self.code.builder.store(stored, self.place(index), self.align)

    def swap(self, index: Value) -> None:
        """Swap an element with the next."""
        first, second = self.read(index), self.read(index + 1)
        self.write(index, second)
        self.write(index + 1, first)

    def flag(self, index: Value | int) -> Value:
        """Whether an element is not 0."""
        return self.read(index) != 0

    def _check(self, kind: Any) -> None:
        if kind != self.element:
            raise TypeError(f"an array of {self.kind} ({self.element}) does not take {kind}")

    def call(self, index: int, result: str | None, *values: Value | Array | int) -> Value:
        """Call the function whose address is an element."""
        return self.code.call(self.read(index), result, *values)

    def load(
        self, index: Value, shape: Shape, volatile: bool = False, align: int | None = None
    ) -> Value:
        """Consecutive elements, not converted, stream after stream. `volatile` loads stay in the order in which they are written."""
        builder, kind = self.code.builder, vector_type(self.element, shape.lanes)
        places = [self.place(index + shape.lanes * k) for k in range(shape.streams)]
        loads = [builder.load(place, kind, align or self.align, volatile) for place in places]
        return Value(builder, *loads)

    def store(self, value: Value, index: Value, align: int | None = None) -> None:
        """Store consecutive elements of the array's kind."""
        self._check(value.element)
        for k, part in enumerate(value.parts):
            place = self.place(index + value.lanes * k)
            self.code.builder.store(part, place, align or self.align)

    def stream(self, value: Value, index: Value) -> None:
        """`store` with non-temporal stores, past the caches; `Code.settle` waits for them. The address of each part must be a multiple of its size."""
        self._check(value.element)
        for k, part in enumerate(value.parts):
            place = self.place(index + value.lanes * k)
            self.code.builder.store(part, place, self.align * value.lanes, past_caches=True)


class BytesLookup:
    """`Code.lookups` of four streams of AVX2 at a time. The first bytes of all 32 elements are looked up by one instruction, so are the second, third and fourth, and put
    together. One table waits for what is computed of the one before: LLVM would look up all at once, and have registers for a third of it."""

    def __init__(self, builder: Builder, places: Value) -> None:
        self.builder = builder
        self.shorts, self.bytes = vector_type(I16, 16), vector_type(I8, 32)
        self.places = [
            self._call("packuswb", self.bytes, *(self._call("packssdw", self.shorts, *both) for both in (four[:2], four[2:])))
            for four in _by_four(places.parts)
        ]  # fmt: skip

    def __call__(self, table: Sequence[float], after: Value | None = None) -> Value:
        if after is not None:
            both = zip(self.places, _by_four(after.parts), strict=True)
            self.places = [self.builder.held(where, four) for where, four in both]
        packed = struct.pack("<16f", *table)
        quarters = [
            assembly.constant(self.bytes, [assembly.constant(I8, byte) for byte in packed[at::4] * 2])
            for at in range(4)
        ]  # fmt: skip
        found = []
        for where in self.places:
            first, second, third, fourth = (self._call("pshuf.b", self.bytes, quarter, where) for quarter in quarters)  # fmt: skip
            for low, high in zip(self._pairs(first, second), self._pairs(third, fourth), strict=True):  # fmt: skip
                found += self._pairs(*(self.builder.bitcast(one, self.shorts) for one in (low, high)))  # fmt: skip
        floats = vector_type(F32, 8)
        return Value(self.builder, *(self.builder.bitcast(one, floats) for one in found))

    def _call(self, name: str, result: Any, *values: Any) -> Any:
        return call_declared(self.builder, f"llvm.x86.avx2.{name}", result, *values, pure=True)

    def _pairs(self, first: Any, second: Any) -> list[Any]:
        """Elements of one beside those of the other: of the first and of the second half of each 16 bytes."""
        count = first.type.count
        quarter = range(count // 4)
        return [
            shuffled(self.builder, first, second, [at + begin + of for begin in (start, start + count // 2) for at in quarter for of in (0, count)])
            for start in (0, count // 4)
        ]  # fmt: skip


def _by_four(parts: Sequence[Any]) -> list[Sequence[Any]]:
    return [parts[at : at + 4] for at in range(0, len(parts), 4)]


class Code:
    """A function under construction. `lanes` is how many FLOATs its vectors have."""

    def __init__(self, builder: Builder, once: Block) -> None:
        self.builder, self._once = builder, once
        self.lanes = machine().lanes

    # Expressions without operands.

    def value(self, *parts: Any) -> Value:
        return Value(self.builder, *parts)

    def integer(self, number: int) -> Value:
        return self.value(constant(I64, number))

    def single(self, number: float) -> Value:
        return self.value(assembly.constant(F32, number))

    def double(self, number: float) -> Value:
        return self.value(assembly.constant(F64, number))

    def constant(self, kind: str, number: float, lanes: int) -> Value:
        """A number in every lane of one stream."""
        return self.value(constant(STORED[kind], number, lanes))

    def joined(self, streams: Sequence[Value]) -> Value:
        """One vector of many streams, from vectors of one stream each."""
        return streams[0].join(streams)

    def variable(self, start: Value | int) -> Variable:
        """A variable with a start value; an int gives an int64, a `bool` a truth value."""
        if isinstance(start, int):
            start = self.value(constant(zero_of(start).type, start))
        return Variable(self.builder, start)

    def as_integer(self, number: Value | int) -> Value:
        return self.integer(number) if isinstance(number, int) else number

    # Calls.

    def call(self, function: Value, result: str | None, *values: Value | Array | int) -> Value:
        """Call the function at an address; `result` is the kind it returns, None for nothing."""
        passed = [self._passed(one) for one in values]
        at = self.builder.inttoptr(function.value, PTR)
        return self.value(self.builder.call(at, STORED[result] if result else VOID, passed))

    def _passed(self, one: Value | Array | int) -> Any:
        """An argument of a call as LLVM's value; an array is passed by its address."""
        if isinstance(one, int):
            return self.integer(one).value
        return (one if isinstance(one, Value) else one.address()).value

    def call_symbol(self, name: str, result: str | None, *values: Value | Array | int) -> Value:
        """Call a function by its symbol."""
        passed = [self._passed(one) for one in values]
        kind = STORED[result] if result else VOID
        return self.value(call_declared(self.builder, name, kind, *passed))

    def call_self(self, *values: Value) -> Value:
        """Call the function being written."""
        function = self.builder.function
        passed = [one.value for one in values]
        return self.value(self.builder.call(function, function.kind.result, passed))

    def take_place(self, function: Function) -> None:
        """Return by a tail call of another function of the same type, which returns nothing."""
        self.builder.call(function, VOID, self.builder.function.arguments, how="musttail ")
        self.builder.ret()

    def leave(self, result: Value | None = None) -> None:
        """Return from the function."""
        wanted = self.builder.function.kind.result
        if wanted != (VOID if result is None else result.value.type):
            raise TypeError(f"the function returns {wanted}, not {result!r}")
        self.builder.ret(None if result is None else result.value)

    # Control.

    def ending(self, write: Callable[[], None]) -> Callable[[], None]:
        """Write code once that leaves the function. Returns what writes a jump to it."""
        block = self.builder.function.new_block("ending", self._once)
        with self.builder.in_block(block):
            write()
        return lambda: self.builder.branch(block)

    @contextmanager
    def when(self, condition: Value, likely: bool | None = None) -> Iterator[None]:
        with self.builder.if_then(condition.condition, likely=likely):
            yield

    @contextmanager
    def either(self, condition: Value, likely: bool | None = None) -> Iterator[Any]:
        """`with code.either(c) as (yes, no):`, then `with yes:` and `with no:`."""
        with self.builder.if_else(condition.condition, likely=likely) as branches:
            yield branches

    @contextmanager
    def first_of(self) -> Iterator[Callable[[], None]]:
        """A block that what it yields leaves, when called inside: of several cases, the first that holds skips the others."""
        done = self.builder.new_block("done")

        def taken() -> None:
            self.builder.branch(done)

        yield taken
        if not self.builder.block.is_terminated:
            self.builder.branch(done)
        self.builder.block = done

    @contextmanager
    def forever(self) -> Iterator[Callable[[], None]]:
        """An endless loop, which what it yields leaves, when called inside."""
        builder, stopped = self.builder, False
        again = builder.new_block("again", loop=Loop(builder.block))
        after = builder.new_block("after", again)

        def stop() -> None:
            nonlocal stopped
            stopped = True
            builder.branch(after)

        builder.branch(again)
        builder.block = again
        yield stop
        builder.branch(again)
        builder.block = after
        if not stopped:
            builder.unreachable()

    @contextmanager
    def repeat_while(self, condition: Callable[[], Value]) -> Iterator[None]:
        builder = self.builder
        outside = builder.block.loop
        test = builder.new_block("while", loop=Loop(builder.block))
        builder.branch(test)
        builder.block = test
        asked = condition().condition
        inside, after = (
            builder.new_block("do"),
            builder.function.new_block("end", builder.block, outside),
        )
        builder.cbranch(asked, inside, after)
        builder.block = inside
        yield
        if not builder.block.is_terminated:
            builder.branch(test)
        builder.block = after

    @contextmanager
    def loop(self, start: Value | int, stop: Value | int, step: int = 1) -> Iterator[Value]:
        """index = start, start + step, ... below stop"""
        builder = self.builder
        first, last = self.as_integer(start), self.as_integer(stop)
        if step < 1 or any(bound.value.type != I64 for bound in (first, last)):
            raise TypeError(f"a loop counts up in int64, not from {first!r} to {last!r} by {step}")
        before = builder.block
        test = builder.new_block("test", loop=Loop(before))
        inside = builder.new_block("do", test, test.loop)
        after = builder.new_block("end", test)
        builder.branch(test)
        builder.block = test
        index = builder.phi(I64)
        index.add_incoming(first.value, before)
        builder.cbranch(builder.icmp_signed("<", index, last.value), inside, after)
        builder.block = inside
        yield self.value(index)
        following = builder.count_on(index, step)
        index.add_incoming(following, builder.block)
        builder.branch(test)
        builder.block = after

    def strides(
        self, start: Value, count: Value, step: int, body: Callable[[Value], None]
    ) -> Value:
        """`body(index)` for index = start, start + step, ... while a whole step is left; returns the rest's start.

        The condition stands at the loop's end, which the fastest loops want.
        """
        builder = self.builder
        before, last = builder.block, count - step
        enter, after = builder.new_block("enter"), builder.new_block("after")
        builder.cbranch((start <= last).value, enter, after)
        builder.block = enter
        inside = builder.new_block("loop", loop=Loop(enter))
        builder.branch(inside)
        builder.block = inside
        index = builder.phi(I64)
        index.add_incoming(start.value, enter)
        body(self.value(index))
        following = builder.count_on(index, step)
        index.add_incoming(following, builder.block)
        end = builder.block
        builder.cbranch(builder.icmp_signed("<=", following, last.value), inside, after)
        builder.block = after
        rest = builder.phi(I64)
        rest.add_incoming(start.value, before)
        rest.add_incoming(following, end)
        return self.value(rest)

    # Memory.

    def array(self, address: Value | Any, kind: str) -> Array:
        return Array(self, address, kind)

    def slots(self, address: Value) -> Array:
        """An array of int64: arguments, a control block, or a Python object."""
        return Array(self, address, "i64")

    def frame(self, kind: str, count: int, lanes: int = 0, align: int = FRAME_ALIGNMENT) -> Array:
        """An array in this function's stack frame. Its address goes through an integer, so that LLVM does not replace its elements by registers."""
        element = vector_type(STORED[kind], lanes) if lanes else STORED[kind]
        with self.builder.in_first_block():
            place = self.builder.alloca(f"[{count} x {element}]", align)
            address = self.builder.ptrtoint(place, I64)
            return Array(self, self.builder.inttoptr(address, PTR), kind)

    def buffer(self, kind: str, count: int) -> Value:
        """The address of scratch space in this function's frame."""
        return self.frame(kind, count).address()

    @contextmanager
    def once(self) -> Iterator[None]:
        """Code that runs once at the function's start, in whatever loop it is written."""
        with self.builder.in_block(self._once):
            yield

    def load(self, address: Value, kind: str) -> Value:
        """An element: integers as int64, float16 and bfloat16 as float32."""
        loaded = self.builder.load(address.pointer, STORED[kind], SIZE[kind])
        value = self.value(loaded)
        if kind == "i32":
            return value.signed("i64")
        if kind == "u8":
            return value.unsigned("i64")
        if kind == "f16":
            return value.to("f32")
        if kind == "bf16":
            return (value.unsigned("i32") << 16).bits_as("f32")
        return value

    def store(self, value: Value, address: Value, kind: str) -> None:
        """A scalar into an element; float32 is rounded to nearest-even, and NaN stays NaN."""
        stored = value
        if kind == "f16":
            stored = value.to("f16")
        elif kind == "bf16":
            bits = value.bits_as("i32")
            odd = (bits >> 16) & 1
            rounded = bits + odd + 0x7FFF
            quiet = bits | 0x400000
            stored = (value.is_nan().choose(quiet, rounded) >> 16).to("i16")
        if stored.value.type != STORED[kind]:
            raise TypeError(f"an element of kind {kind} does not take {value!r}")
        self.builder.store(stored.value, address.pointer, SIZE[kind])

    def gathered(self, table: Array, indices: Sequence[Value]) -> Value:
        """One stream whose lanes are elements of a table."""
        return self.lanes_of([table.read(where) for where in indices])

    def lookups(self, places: Value) -> Callable[..., Value]:
        """What looks up tables of 16 FLOATs, by the last four bits of each integer, one table after the other: `look(table, after)`, where `after` is computed of the
        tables before. One instruction of AVX-512 or NEON, three of AVX2 or, of four streams, twelve for all."""
        lanes = this_machine().lanes
        if not places.lanes:
            look_up = self.lookups(places.splat(lanes))
            return lambda table, after=None: look_up(table).lane(0)
        if places.lanes > lanes:
            of_parts, wide = self.lookups(places.split(lanes)), places.lanes

            def look_up_all(table: Sequence[float], after: Any = None) -> Value:
                result = of_parts(table, None if after is None else after.split(lanes))
                while result.lanes < wide:
                    result = result.joined()
                return result

            return look_up_all
        if places.lanes < lanes:
            few = range(places.lanes)
            padded = self.lookups(places.pick([*few, *[0] * (lanes - places.lanes)]))
            return lambda table, after=None: padded(table).pick(few)
        if lanes == 8 and this_machine().picks_bytes and len(places.parts) % 4 == 0:
            return BytesLookup(self.builder, places & 15)
        return lambda table, after=None: self._lookup(table, places)

    def _lookup(self, table: Sequence[float], places: Value) -> Value:
        """Elements of a table, where a stream has as many lanes as the CPU."""
        lanes = places.lanes

        def parts(size: int) -> list[Any]:
            numbers = [assembly.constant(F32, number) for number in table]
            kind = vector_type(F32, size)
            return [assembly.constant(kind, numbers[at : at + size]) for at in range(0, 16, size)]

        def call(name: str, *values: Any) -> Any:
            return call_declared(self.builder, name, values[0].type, *values, pure=True)

        if on_arm():
            as_bytes = vector_type(I8, 16)
            tables = [self.builder.bitcast(part, as_bytes) for part in parts(4)]
            at = ((places & 15) * 0x04040404 + 0x03020100).each(
                lambda one: self.builder.bitcast(one, as_bytes)
            )
            result = at.each(lambda one: call("llvm.aarch64.neon.tbl4.v16i8", *tables, one))
            return result.bits_as_lanes("f32")
        if lanes == 16:
            (whole,) = parts(16)
            return places.each(lambda one: call(LOOKUP_512, whole, one))
        if lanes == 8:
            low, high = (
                places.each(functools.partial(call, "llvm.x86.avx2.permps", half))
                for half in parts(8)
            )
            return places.bit(3).choose(high, low)
        (whole,), near = parts(16), places & 15
        pick = self.builder.extract_element
        each = [
            self.lanes_of([self.value(pick(whole, one.lane(lane).value)) for lane in range(lanes)])
            for one in near.streams()
        ]
        return self.joined(each)

    def lanes_of(self, scalars: Sequence[Value]) -> Value:
        """One stream of scalars of one kind."""
        if len({str(one.value.type) for one in scalars}) != 1 or scalars[0].lanes:
            raise TypeError(f"lanes are made of scalars of one kind, not of {[*scalars]}")
        vector = undefined(vector_type(scalars[0].element, len(scalars)))
        for lane, one in enumerate(scalars):
            vector = self.builder.insert_element(vector, one.value, assembly.constant(I32, lane))
        return self.value(vector)

    def copy(
        self, source: Value, source_step: Value, target: Value, target_step: Value, count: Value,
        kind: str,
    ) -> None:  # fmt: skip
        """Copy elements one by one; steps are in bytes."""
        builder, element = self.builder, STORED[kind]
        start = self.integer(0)
        for unrolled in (8, 1):
            stop = count - count.unsigned_rem(unrolled)
            with self.loop(start, stop, unrolled) as index:
                read, written = source + index * source_step, target + index * target_step
                values = []
                for _ in range(unrolled):
                    values.append(builder.load(read.pointer, element, SIZE[kind]))
                    read = read + source_step
                for value in values:
                    builder.store(value, written.pointer, SIZE[kind])
                    written = written + target_step
            start = stop

    def repeat(self, source: Value, target: Value, count: Value, kind: str) -> None:
        """Copy one element to `count` contiguous ones."""
        builder, size, start = self.builder, SIZE[kind], self.integer(0)
        value = builder.load(source.pointer, STORED[kind], size)
        for unrolled in (16, 1):
            stop = count - count.unsigned_rem(unrolled)
            with self.loop(start, stop, unrolled) as index:
                for place in range(unrolled):
                    written = target + (index + place) * size
                    builder.store(value, written.pointer, size)
            start = stop

    def clear(self, address: Value, size: Value) -> None:
        """Set bytes to zero, by the C library's memset."""
        self._of_bytes("memset.p0.i64", address, assembly.constant(I8, 0), size)

    def move(self, source: Value, target: Value, size: Value) -> None:
        """Copy bytes, as a few vectors or by the C library's memcpy."""
        self._of_bytes("memcpy.p0.p0.i64", target, source.pointer, size)

    def _of_bytes(self, name: str, target: Value, what: Any, size: Value) -> None:
        last = assembly.constant(I1, 0)
        call_declared(self.builder, f"llvm.{name}", VOID, target.pointer, what, size.value, last)

    def prefetch(self, address: Value, written: bool = False, level: int = 1) -> None:
        """Prefetch a cache line that is read or written soon, into this level of caches. Any address is allowed."""
        # LLVM's arguments: read or write, locality, and data cache.
        hints = (assembly.constant(I32, hint) for hint in (int(written), 4 - level, 1))
        call_declared(self.builder, "llvm.prefetch.p0", VOID, address.pointer, *hints)

    def settle(self) -> None:
        """A full barrier: non-temporal stores are visible to all threads before anything that follows."""
        self.builder.fence("seq_cst")

    def take_flag(self, array: Array, index: int) -> Value:
        """Try to set an element from 0 to 1, as a lock. Returns whether this thread has; then it sees all that the last holder wrote."""
        zero, one = (assembly.constant(I64, number) for number in (0, 1))
        return self.value(self.builder.cmpxchg(array.place(index), zero, one, "acquire monotonic"))

    def leave_flag(self, array: Array, index: int) -> None:
        self.builder.atomic_rmw("xchg", array.place(index), assembly.constant(I64, 0), "release")

    def add_shared(self, array: Array, index: int, value: Value) -> Value:
        """Add to an element atomically, and return what it was. Later reads come after it."""
        return self.value(
            self.builder.atomic_rmw("add", array.place(index), value.value, "seq_cst")
        )

    def read_shared(self, array: Array, index: Value | int) -> Value:
        """Read an element that another thread may write: all that it wrote before is visible, too. The read comes after atomic additions before it."""
        place = array.place(index)
        return self.value(self.builder.load_atomic(place, "seq_cst", array.align, array.element))

    def elements(
        self,
        count: Value,
        streams: int,
        body: Callable[[Shape, Value], None],
        lanes: int | None = None,
    ) -> None:
        """`body(shape, index)` over `count` elements: K streams, then one vector, then one element at a time.

        The three loops run the same operations, so an element's bits do not depend on which one reaches it.
        """
        wide = lanes or self.lanes
        index = self.integer(0)
        for shape in dict.fromkeys((Shape(streams, wide), Shape(1, wide), Shape(1, 1))):
            index = self.strides(index, count, shape.elements, functools.partial(body, shape))
