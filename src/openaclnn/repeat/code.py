"""The machine code of `express`: a remembered call as a builtin function."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

from openaclnn.engines.machine import objects
from openaclnn.engines.machine.builtins import integer_of
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat import slots as at

__all__ = ["EMITTERS"]

HOST = 1  # DLPack's number for the CPU
LOW_HALF = 0xFFFFFFFF


class _Writer:
    """The function being written: its control block, its frame, and what its parts have in common."""

    def __init__(self, code: Code, control: Array, given: Array) -> None:
        self.code, self.control, self.given = code, control, given
        self.count = control.read(at.COUNT)  # of arguments, the output's place included
        self.last = self.count - 1
        self.view = code.frame("i64", at.VIEW_SLOTS)
        self.data = code.frame("i64", at.MAX_ARRAYS)
        self.stream = code.frame("i64", 1)
        self.stream.write(0, 0)
        self.differs, self.result = (code.variable(code.integer(0)) for _ in range(2))

    def write(self, number: Value) -> None:
        """`call(*arrays, out)`: the result, or NotImplemented."""
        code = self.code
        self.expect(number.equals(self.count))
        with code.loop(0, self.count) as index:
            self.examine(index)
        is_fresh = self.block(self.last).read(at.GIVEN).equals(0)
        with self.when_same(), code.either(is_fresh) as (fresh, given):
            with fresh:
                self.make_output()
            with given:
                self.take_output()
        with self.when_same():
            self.find_stream()
        with self.when_same():
            self.run()
        result = self.result.get()
        with self.when_same():
            code.leave(result)
        with code.when(result.differs(0)):
            self.drop(result)
        self.control.call(at.INCREF, None, self.control.read(at.NOT_IMPLEMENTED))
        code.leave(self.control.read(at.NOT_IMPLEMENTED))

    def block(self, index: Value) -> Array:
        """What is expected of an argument."""
        return self.control.at(index * at.STRIDE + at.HEADER)

    def expect(self, condition: Value) -> None:
        self.differs.set(self.differs.get() | (~condition).to("i64"))

    def when_same(self) -> AbstractContextManager[None]:
        """A block that is entered while all was as expected."""
        return self.code.when(self.differs.get().equals(0))

    def expect_success(self, status: Value) -> None:
        """Of a function of PyTorch's: 0, or an exception that nobody is to see."""
        fine = status.equals(0)
        self.expect(fine)
        with self.code.when(~fine):
            self.control.call(at.CLEAR, None)

    def drop(self, item: Value) -> None:
        self.control.call(at.DECREF, None, item)

    def fail_without(self, item: Value) -> None:
        """Raise what a function raised that returned no object."""
        with self.code.when(item.equals(0)):
            self.drop(self.result.get())
            self.code.leave(item)

    def examine(self, index: Value) -> None:
        """One argument: None where None was, an array of the same layout where one was."""
        control = self.control
        with self.when_same():
            block, item = self.block(index), self.given.read(index)
            with self.code.either(block.read(at.GIVEN).equals(0)) as (absent, present):
                with absent:
                    self.expect(item.equals(control.read(at.NONE)))
                with present:
                    kind = self.code.slots(item).read(objects.OBJECT_TYPE)
                    known = kind.equals(control.read(at.CLASS))
                    self.expect(known | kind.equals(control.read(at.OTHER_CLASS)))
                    with self.when_same():
                        self.compare(item, block)
                    self.data.write(index, self.address())

    def compare(self, item: Value, block: Array) -> None:
        view = self.view
        self.describe(item)
        with self.when_same():
            for own, theirs in ((at.FIRST, at.DEVICE), (at.SECOND, at.KIND)):
                self.expect(block.read(own).equals(view.read(theirs)))
        with self.when_same():
            axes = view.read(at.KIND) & LOW_HALF
            lists = [
                (block.at(own), self.code.slots(view.read(theirs)))
                for own, theirs in ((at.SHAPE, at.SHAPE_AT), (at.STRIDES, at.STRIDES_AT))
            ]
            with self.code.loop(0, axes) as axis:
                for expected, found in lists:
                    self.expect(expected.read(axis).equals(found.read(axis)))

    def describe(self, item: Value) -> None:
        """What is known of a tensor into the view."""
        self.expect_success(self.control.call(at.FROM_PYTHON, "i32", item, self.view))

    def address(self) -> Value:
        """Where the data of the array described last begin."""
        return self.view.read(at.DATA) + self.view.read(at.OFFSET)

    def make_output(self) -> None:
        make, arguments = self.control.read(at.MAKE), self.control.read(at.MAKE_ARGUMENTS)
        made = self.control.call(at.CALL, "i64", make, arguments, 0)
        with self.code.when(made.equals(0)):
            self.code.leave(made)
        self.result.set(made)
        self.describe(made)
        self.data.write(self.last, self.address())

    def take_output(self) -> None:
        """The output given must lie apart from what is read: whether it may be the same, others decide."""
        item = self.given.read(self.last)
        self.control.call(at.INCREF, None, item)
        self.result.set(item)
        low, high = self.span(self.last)
        with self.code.loop(0, self.last) as index:
            first, beyond = self.span(index)
            meets = first.below(high) & low.below(beyond)
            unread = self.block(index).read(at.PLACE) < 0
            self.expect(unread | ~meets)

    def span(self, index: Value) -> tuple[Value, Value]:
        """Where an argument's memory begins and ends."""
        block, start = self.block(index), self.data.read(index)
        return start + block.read(at.LOW), start + block.read(at.HIGH)

    def find_stream(self) -> None:
        place = self.block(self.last).read(at.FIRST)
        device, which = place.to("i32"), (place >> 32).to("i32")
        with self.code.when(device.differs(HOST)):
            status = self.control.call(at.CURRENT_STREAM, "i32", device, which, self.stream)
            self.expect_success(status)

    def run(self) -> None:
        """`runner(addresses, stream)`; what it raises is raised."""
        code, control = self.code, self.control
        addresses = control.call(at.TUPLE_NEW, "i64", control.read(at.ADDRESSES))
        self.fail_without(addresses)
        with code.loop(0, self.count) as index:
            place = self.block(index).read(at.PLACE)
            with code.when(place >= 0):
                address = control.call(at.FROM_INT64, "i64", self.data.read(index))
                control.call(at.TUPLE_SET, "i32", addresses, place, address)
        stream = control.call(at.FROM_INT64, "i64", self.stream.read(0))
        pair = code.frame("i64", 2)
        for number, item in enumerate((addresses, stream)):
            pair.write(number, item)
        status = control.call(at.VECTORCALL, "i64", control.read(at.RUNNER), pair, 2, 0)
        self.drop(addresses)
        self.drop(stream)
        self.fail_without(status)
        # Not 0: a target out of range. The longer way says which.
        self.expect(integer_of(code, status).equals(0))
        self.drop(status)


class _NumpyWriter(_Writer):
    """The same for arrays of NumPy, which are read without asking anybody."""

    def describe(self, item: Value) -> None:
        fields = (
            (at.DATA, objects.ARRAY_DATA), (at.DEVICE, objects.ARRAY_DTYPE), (at.KIND, objects.ARRAY_AXES),
            (at.SHAPE_AT, objects.ARRAY_SHAPE), (at.STRIDES_AT, objects.ARRAY_STRIDES),
        )  # fmt: skip
        array = self.code.slots(item)
        for own, theirs in fields:
            word = array.read(theirs)
            # The number of axes has 32 bits; what is behind them is something else.
            self.view.write(own, word & LOW_HALF if own == at.KIND else word)
        self.view.write(at.OFFSET, 0)

    def take_output(self) -> None:
        flags = self.code.slots(self.given.read(self.last)).read(objects.ARRAY_FLAGS)
        self.expect((flags & objects.WRITEABLE).differs(0))
        super().take_output()

    def find_stream(self) -> None: ...


def _emit(writer: type[_Writer], code: Code, control: Array, given: Array, number: Value) -> None:
    writer(code, control, given).write(number)


EMITTERS = {
    at.TORCH: partial(_emit, _Writer),
    at.NUMPY: partial(_emit, _NumpyWriter),
}
