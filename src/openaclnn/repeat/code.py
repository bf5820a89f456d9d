"""The machine code of the short road: read the arrays, find the kind of call, make the output, run.

Whatever is not as a kind wants it gives NotImplemented, and the call takes the full way.
"""

from __future__ import annotations

from openaclnn.engines.cpu.launcher import Launch
from openaclnn.engines.machine import objects
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat import slots as at
from openaclnn.repeat.look import LOW_HALF
from openaclnn.repeat.search import Search

__all__ = ["emit_road"]

HOST = 1  # DLPack's number for the CPU


def emit_road(code: Code, control: Array, given: Array, number: Value) -> None:
    """The builtin `road(*arrays, *options, product)`, the output last of the arrays."""
    _Road(code, control, given).write(number)


class _Road(Search):
    """The function being written."""

    def write(self, number: Value) -> None:
        code, control, doubt = self.code, self.control, self.doubt
        doubt.expect(number.equals(self.arrays + self.options + 1))
        with doubt.when_none():
            # Another product or engine than the process's own: the full way knows what that means.
            doubt.expect(self.given.read(number - 1).equals(control.read(at.NONE)))
            self.expect_nothing_chosen()
        with code.loop(0, self.arrays) as index, doubt.when_none():
            self.look(self.given.read(index), self.view(index))
        found = code.variable(code.integer(-1))
        with doubt.when_none():
            self.search(found)
        doubt.expect(found.get() >= 0)
        with doubt.when_none():
            self.run(self.record(found.get()))
        with doubt.when_none():
            code.leave(self.result.get())
        with code.when(self.result.get().differs(0)):
            self.drop(self.result.get())
        control.call(at.INCREF, None, control.read(at.NOT_IMPLEMENTED))
        code.leave(control.read(at.NOT_IMPLEMENTED))

    def run(self, record: Array) -> None:
        """Records may change while Python code runs in between: what is needed of one is read before."""
        code, control, doubt = self.code, self.control, self.doubt
        keep, kernel, runner = (record.read(own) for own in (at.KEEP, at.KERNEL, at.RUNNER))
        control.call(at.INCREF, None, keep)
        self.keep.set(keep)
        fresh, library = record.read(at.FRESH), record.read(at.OWN_LIBRARY)
        grain, constants = record.read(at.GRAIN), record.read(at.CONSTANTS)
        addresses, sized = record.read(at.ADDRESSES), record.read(at.SIZED)
        lead = self.view(record.read(at.LEAD))
        count = lead.read(at.SIZE)
        output = self.own(record, self.last).read(at.PLACE)
        launch = Launch(code, code.slots(control.read(at.POOL)))
        moved = self.moved.get().differs(0)
        with code.loop(0, constants) as index:
            own, other = record.at(at.CONSTANT).read(index), self.derived.read(index)
            launch.arguments.write(index, moved.choose(other, own))
        with code.when(record.read(at.RECIPROCAL) >= 0):
            share = (code.double(1.0) / count.to("f64")).to("f32").bits_as("i32").unsigned("i64")
            launch.arguments.write(record.read(at.RECIPROCAL), share)
        operands = launch.arguments.at(constants)
        with code.loop(0, self.last) as index:
            place = self.own(record, index).read(at.PLACE)
            with code.when(place >= 0):
                operands.write(place, self.address(self.view(index)))
        stream = code.frame("i64", 1)
        stream.write(0, 0)
        device = self.own(record, self.last).read(at.FIRST)
        with code.when(library.equals(at.TORCH)):
            self.expect_no_graph()
            self.find_stream(device, stream)
        with doubt.when_none(), code.when(fresh.equals(0)):
            self.take_output(record, library)
        with doubt.when_none(), code.when(fresh.differs(0)):
            self.make_output(record, lead, library)
        with doubt.when_none():
            operands.write(output, self.address(self.view(self.last)))
            with code.either(kernel.differs(0)) as (native, called):
                with native:
                    # Before the workers run, the full way starts them.
                    doubt.expect(launch.ready(count, grain))
                    with doubt.when_none():
                        launch.execute(kernel, count, grain)
                with called:
                    self.call(runner, operands, addresses, stream, sized, lead)
        self.drop(keep)

    def address(self, view: Array) -> Value:
        return view.read(at.DATA) + view.read(at.OFFSET)

    def find_stream(self, place: Value, stream: Array) -> None:
        device, which = place.to("i32"), (place >> 32).to("i32")
        with self.code.when(device.differs(HOST)):
            status = self.control.call(at.CURRENT_STREAM, "i32", device, which, stream)
            self.expect_success(status)

    def take_output(self, record: Array, library: Value) -> None:
        """The output given: writable, and apart from what is read, or the very elements that are read.

        Autograd is told that it is written; what it would not let be written is left to the full way.
        """
        code, view, own = self.code, self.view(self.last), self.own(record, self.last)
        self.doubt.expect(view.read(at.WRITABLE).differs(0))
        low, high = self.span(own, view)
        with self.doubt.when_none(), code.loop(0, self.last) as index:
            theirs, seen = self.own(record, index), self.view(index)
            with code.when(theirs.read(at.PLACE) >= 0):
                first, beyond = self.span(theirs, seen)
                apart = ~(first.below(high) & low.below(beyond))
                same = theirs.read(at.COINCIDES).differs(0) & first.equals(low)
                self.doubt.expect(apart | same)
        item = self.given.read(self.last)
        with self.doubt.when_none(), code.when(library.equals(at.TORCH)):
            self.expect_false(at.REQUIRES_GRAD, item)
            with self.doubt.when_none():
                told = self.ask(at.WRITTEN, item)
                self.fail_without(told)
                self.drop(told)
        with self.doubt.when_none():
            self.control.call(at.INCREF, None, item)
            self.result.set(item)

    def span(self, own: Array, view: Array) -> tuple[Value, Value]:
        """Where an argument's memory begins and ends."""
        start, size = self.address(view), view.read(at.SIZE) * own.read(at.ITEM)
        fixed = own.read(at.PATTERN).equals(at.SAME)
        low, high = (own.read(end) for end in (at.LOW, at.HIGH))
        return start + fixed.choose(low, 0), start + fixed.choose(high, size)

    def make_output(self, record: Array, lead: Array, library: Value) -> None:
        """`make(shape, dtype)` of NumPy's, `make(shape, strides, dtype)` of PyTorch's, both like the lead's."""
        code, control = self.code, self.control
        dtype, own = record.read(at.MAKE_DTYPE), self.own(record, self.last)
        large = lead.read(at.SIZE) * own.read(at.ITEM) >= record.read(at.LARGE_FROM)
        make = large.choose(record.read(at.MAKE_LARGE), record.read(at.MAKE))
        items = code.frame("i64", 3)
        with code.either(record.read(at.LEAD).equals(self.last)) as (alone, beside):
            with alone:  # the kind has one shape only: its arguments lie ready
                arguments = code.slots(dtype)
                count = arguments.read(objects.TUPLE_LENGTH)
                with code.loop(0, count) as index:
                    items.write(index, arguments.read(index + objects.TUPLE_ITEMS))
                self.result.set(control.call(at.VECTORCALL, "i64", make, items, count, 0))
            with beside:
                shape = self.tuple_of(lead, at.SHAPE_AT)
                items.write(0, shape)
                with code.either(library.equals(at.NUMPY)) as (numpy, torch):
                    with numpy:
                        items.write(1, dtype)
                        self.result.set(control.call(at.VECTORCALL, "i64", make, items, 2, 0))
                    with torch:
                        strides = self.tuple_of(lead, at.STRIDES_AT)
                        items.write(1, strides)
                        items.write(2, dtype)
                        self.result.set(control.call(at.VECTORCALL, "i64", make, items, 3, 0))
                        self.drop(strides)
                self.drop(shape)
        self.fail_without(self.result.get())
        self.look(self.result.get(), self.view(self.last))

    def tuple_of(self, view: Array, numbers: int) -> Value:
        """An array's sizes or strides as Python has them."""
        axes = view.read(at.KIND) & LOW_HALF
        return self.pack(self.code.slots(view.read(numbers)), axes)

    def pack(self, numbers: Array, count: Value) -> Value:
        """Integers as a tuple."""
        made = self.control.call(at.TUPLE_NEW, "i64", count)
        self.fail_without(made)
        with self.code.loop(0, count) as index:
            number = self.control.call(at.FROM_INT64, "i64", numbers.read(index))
            self.control.call(at.TUPLE_SET, "i32", made, index, number)
        return made

    def call(
        self, runner: Value, operands: Array, addresses: Value, stream: Array, sized: Value, lead: Array
    ) -> None:  # fmt: skip
        """`runner(addresses, stream)`, and the lead's shape if it serves any; what it raises is raised."""
        code, control = self.code, self.control
        pack = self.pack(operands, addresses)
        handle = control.call(at.FROM_INT64, "i64", stream.read(0))
        items, shape = code.frame("i64", 3), code.variable(code.integer(0))
        for number, item in enumerate((pack, handle)):
            items.write(number, item)
        with code.when(sized.differs(0)):
            shape.set(self.tuple_of(lead, at.SHAPE_AT))
            items.write(2, shape.get())
        count = sized.differs(0).choose(code.integer(3), 2)
        status = control.call(at.VECTORCALL, "i64", runner, items, count, 0)
        with code.when(sized.differs(0)):
            self.drop(shape.get())
        self.drop(pack)
        self.drop(handle)
        self.fail_without(status)
        # Not 0: a target out of range. The full way says which.
        self.doubt.expect(control.call(at.AS_INT64, "i64", status).equals(0))
        self.drop(status)
