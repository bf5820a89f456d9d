"""The machine code of `express`: a function in CPython's fast calling convention, written through llvmlite."""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir

from openaclnn.engines.machine import objects
from openaclnn.engines.machine.builtins import as_int64, call_slot
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
from openaclnn.repeat import slots as at

__all__ = ["EMITTERS"]

HOST = 1  # DLPack's number for the CPU
NULL = ir.Constant(PTR, None)
VOID = ir.VoidType()


class _Writer:
    """The function being written: its control block, its frame, and what its parts have in common."""

    def __init__(self, builder: Any, control: Any, given: Any) -> None:
        self.builder, self.control, self.given = builder, control, given
        self.count = self.read(control, at.COUNT)  # of arguments, the output's place included
        self.last = builder.sub(self.count, i64(1))
        self.view = stack(builder, I64, at.VIEW_SLOTS)
        self.data = stack(builder, I64, at.MAX_ARRAYS)
        self.differs, self.stream, self.result = (stack(builder, I64, 1) for _ in range(3))
        for word in (self.differs, self.stream, self.result):
            self.write(word, 0, 0)

    def read(self, base: Any, index: Any) -> Any:
        return read_slot(self.builder, base, index)

    def write(self, base: Any, index: Any, value: Any) -> None:
        write_slot(self.builder, base, index, value)

    def call(self, where: int, result: Any, *values: Any) -> Any:
        return call_slot(self.builder, self.control, where, result, *values)

    def equal(self, first: Any, second: Any) -> Any:
        return self.builder.icmp_signed("==", first, second)

    def pointer(self, word: Any) -> Any:
        return self.builder.inttoptr(word, PTR)

    def held(self, where: int) -> Any:
        """An object of the control block."""
        return self.pointer(self.read(self.control, where))

    def item(self, index: Any) -> Any:
        """An argument's address."""
        return self.builder.load(slot(self.builder, self.given, index), typ=I64, align=8)

    def block(self, index: Any) -> Any:
        """What is expected of an argument."""
        start = self.builder.add(self.builder.mul(index, i64(at.STRIDE)), i64(at.HEADER))
        return slot(self.builder, self.control, start)

    def expect(self, condition: Any) -> None:
        other = self.builder.zext(self.builder.not_(condition), I64)
        self.write(self.differs, 0, self.builder.or_(self.read(self.differs, 0), other))

    def if_same(self) -> Any:
        """A block that is entered while all was as expected."""
        return self.builder.if_then(self.equal(self.read(self.differs, 0), i64(0)))

    def expect_success(self, code: Any) -> None:
        """Of a function of PyTorch's: 0, or an exception that nobody is to see."""
        fine = self.equal(code, ir.Constant(I32, 0))
        self.expect(fine)
        with self.builder.if_then(self.builder.not_(fine)):
            self.call(at.CLEAR, VOID)

    def drop(self, value: Any) -> None:
        self.call(at.DECREF, VOID, value)

    def examine(self, index: Any) -> None:
        """One argument: None where None was, an array of the same layout where one was."""
        with self.if_same():
            block, value = self.block(index), self.item(index)
            absent = self.equal(self.read(block, at.GIVEN), i64(0))
            with self.builder.if_else(absent) as (then, otherwise):
                with then:
                    self.expect(self.equal(value, self.read(self.control, at.NONE)))
                with otherwise:
                    kind = self.read(self.pointer(value), objects.OBJECT_TYPE)
                    one, other = (
                        self.equal(kind, self.read(self.control, own))
                        for own in (at.CLASS, at.OTHER_CLASS)
                    )
                    self.expect(self.builder.or_(one, other))
                    with self.if_same():
                        self.compare(self.pointer(value), block)
                    self.write(self.data, index, self.address())

    def compare(self, value: Any, block: Any) -> None:
        self.describe(value)
        with self.if_same():
            for own, theirs in ((at.FIRST, at.DEVICE), (at.SECOND, at.KIND)):
                self.expect(self.equal(self.read(block, own), self.read(self.view, theirs)))
        with self.if_same():
            axes = self.builder.and_(self.read(self.view, at.KIND), i64(0xFFFFFFFF))
            lists = [
                (own, self.pointer(self.read(self.view, theirs)))
                for own, theirs in ((at.SHAPE, at.SHAPE_AT), (at.STRIDES, at.STRIDES_AT))
            ]

            def axis(number: Any) -> None:
                for own, theirs in lists:
                    expected = self.read(block, self.builder.add(number, i64(own)))
                    self.expect(self.equal(expected, self.read(theirs, number)))

            for_range(self.builder, axes, axis)

    def describe(self, value: Any) -> None:
        """What is known of a tensor into the view."""
        self.expect_success(self.call(at.FROM_PYTHON, I32, value, self.view))

    def address(self) -> Any:
        """Where the data of the array described last begin."""
        return self.builder.add(self.read(self.view, at.DATA), self.read(self.view, at.OFFSET))

    def make_output(self) -> None:
        made = self.call(at.CALL, PTR, self.held(at.MAKE), self.held(at.MAKE_ARGUMENTS), NULL)
        with self.builder.if_then(self.builder.icmp_unsigned("==", made, NULL)):
            self.builder.ret(NULL)
        self.write(self.result, 0, self.builder.ptrtoint(made, I64))
        self.describe(made)
        self.write(self.data, self.last, self.address())

    def take_output(self) -> None:
        """The output given must lie apart from what is read: whether it may be the same, others decide."""
        builder, output = self.builder, self.block(self.last)
        self.call(at.INCREF, VOID, self.pointer(self.item(self.last)))
        self.write(self.result, 0, self.item(self.last))
        start = self.read(self.data, self.last)
        low, high = (builder.add(start, self.read(output, end)) for end in (at.LOW, at.HIGH))

        def apart(index: Any) -> None:
            block, where = self.block(index), self.read(self.data, index)
            first, beyond = (builder.add(where, self.read(block, end)) for end in (at.LOW, at.HIGH))
            before = builder.icmp_unsigned("<=", beyond, low)
            after = builder.icmp_unsigned(">=", first, high)
            unread = builder.icmp_signed("<", self.read(block, at.PLACE), i64(0))
            self.expect(builder.or_(unread, builder.or_(before, after)))

        for_range(builder, self.last, apart)

    def find_stream(self) -> None:
        builder, place = self.builder, self.read(self.block(self.last), at.FIRST)
        device, which = (builder.trunc(word, I32) for word in (place, builder.lshr(place, i64(32))))
        with builder.if_then(builder.icmp_signed("!=", device, ir.Constant(I32, HOST))):
            code = self.call(at.CURRENT_STREAM, I32, device, which, self.stream)
            self.expect_success(code)

    def run(self, read_integer: Any) -> None:
        """`runner(addresses, stream)`; what it raises is raised."""
        builder = self.builder
        addresses = self.call(at.TUPLE_NEW, PTR, self.read(self.control, at.ADDRESSES))
        with builder.if_then(builder.icmp_unsigned("==", addresses, NULL)):
            self.drop(self.pointer(self.read(self.result, 0)))
            builder.ret(NULL)

        def fill(index: Any) -> None:
            place = self.read(self.block(index), at.PLACE)
            with builder.if_then(builder.icmp_signed(">=", place, i64(0))):
                value = self.call(at.FROM_INT64, PTR, self.read(self.data, index))
                self.call(at.TUPLE_SET, I32, addresses, place, value)

        for_range(builder, self.count, fill)
        stream = self.call(at.FROM_INT64, PTR, self.read(self.stream, 0))
        pair = stack(builder, I64, 2)
        for number, value in enumerate((addresses, stream)):
            self.write(pair, number, builder.ptrtoint(value, I64))
        code = self.call(at.VECTORCALL, PTR, self.held(at.RUNNER), pair, i64(2), NULL)
        self.drop(addresses)
        self.drop(stream)
        with builder.if_then(builder.icmp_unsigned("==", code, NULL)):
            self.drop(self.pointer(self.read(self.result, 0)))
            builder.ret(NULL)
        # Not 0: a target out of range. The longer way says which.
        self.expect(self.equal(builder.call(read_integer, [code]), i64(0)))
        self.drop(code)


class _NumpyWriter(_Writer):
    """The same for arrays of NumPy, which are read without asking anybody."""

    def describe(self, value: Any) -> None:
        fields = (
            (at.DATA, objects.ARRAY_DATA), (at.DEVICE, objects.ARRAY_DTYPE), (at.KIND, objects.ARRAY_AXES),
            (at.SHAPE_AT, objects.ARRAY_SHAPE), (at.STRIDES_AT, objects.ARRAY_STRIDES),
        )  # fmt: skip
        for own, theirs in fields:
            word = self.read(value, theirs)
            if own == at.KIND:  # 32 bits, and what is behind them
                word = self.builder.and_(word, i64(0xFFFFFFFF))
            self.write(self.view, own, word)
        self.write(self.view, at.OFFSET, 0)

    def take_output(self) -> None:
        value = self.pointer(self.item(self.last))
        flags = self.read(value, objects.ARRAY_FLAGS)
        writable = self.builder.and_(flags, i64(objects.WRITEABLE))
        self.expect(self.builder.icmp_signed("!=", writable, i64(0)))
        super().take_output()

    def find_stream(self) -> None: ...


def _emit(kind: type[_Writer], builder: Any, arguments: Any) -> None:
    """`call(*arrays, out)`: the result, or NotImplemented."""
    self, given, number = arguments
    read_integer = as_int64(builder)
    control = builder.inttoptr(builder.call(read_integer, [self]), PTR)
    writer = kind(builder, control, given)
    writer.expect(writer.equal(number, writer.count))
    for_range(builder, writer.count, writer.examine)
    is_fresh = writer.equal(writer.read(writer.block(writer.last), at.GIVEN), i64(0))
    with writer.if_same(), builder.if_else(is_fresh) as (then, otherwise):
        with then:
            writer.make_output()
        with otherwise:
            writer.take_output()
    with writer.if_same():
        writer.find_stream()
    with writer.if_same():
        writer.run(read_integer)
    result = writer.read(writer.result, 0)
    with writer.if_same():
        builder.ret(writer.pointer(result))
    with builder.if_then(builder.icmp_signed("!=", result, i64(0))):
        writer.drop(writer.pointer(result))
    writer.call(at.INCREF, VOID, writer.held(at.NOT_IMPLEMENTED))
    builder.ret(writer.held(at.NOT_IMPLEMENTED))


EMITTERS = {
    at.TORCH: partial(_emit, _Writer),
    at.NUMPY: partial(_emit, _NumpyWriter),
}
