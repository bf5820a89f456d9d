"""The machine code of the short road: read the arrays, find the kind of call, make the output, run.

Whatever is not as a kind wants it gives NotImplemented, and the call takes the full way.
"""

from __future__ import annotations

from typing import NamedTuple

from openaclnn.engines.cpu import gathered
from openaclnn.engines.cpu.launcher import Launch
from openaclnn.engines.machine import objects
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat import slots as at
from openaclnn.repeat.geometry import Geometry
from openaclnn.repeat.look import LOW_HALF

__all__ = ["RoadCode", "emit_road"]

HOST = 1  # DLPack's number for the CPU


def emit_road(code: Code, control: Array, given: Array, number: Value) -> None:
    """The builtin `road(*arrays, *options, product)`, the output last of the arrays."""
    RoadCode(code, control, given).write(number)


class _Making(NamedTuple):
    """What makes outputs, read of a record before any is made: functions for small and for large ones, from how many bytes on,
    an element's size, the lead and its library, and whether outputs have one shape only.
    """

    make: Value
    large: Value
    large_from: Value
    item: Value
    lead: Array
    library: Value
    known: Value


class RoadCode(Geometry):
    """The function being written."""

    def write(self, number: Value) -> None:
        code, control, doubt = self.code, self.control, self.doubt
        doubt.expect(number.equals(self.arrays + self.options + 1))
        with doubt.when_none():
            # Another product or engine than the process's own: the full way knows what that means.
            doubt.expect(self.given.read(number - 1).equals(control.read(at.NONE)))
            self.expect_nothing_chosen()
        self.serve()
        with doubt.when_none():
            code.leave(self.result.get())
        with code.when(self.result.get().differs(0)):
            self.drop(self.result.get())
        control.call(at.INCREF, None, control.read(at.NOT_IMPLEMENTED))
        code.leave(control.read(at.NOT_IMPLEMENTED))

    def serve(self) -> None:
        """Read the arrays, find the kind of call, run."""
        code, doubt = self.code, self.doubt
        with code.loop(0, self.arrays) as index, doubt.when_none():
            self.look(index)
        found = code.variable(code.integer(-1))
        with doubt.when_none():
            self.search(found)
        doubt.expect(found.get() >= 0)
        with doubt.when_none():
            self.run(self.record(found.get()))

    def run(self, record: Array) -> None:
        """Records may change while Python code runs in between: what is needed of one is read before."""
        code, control, doubt = self.code, self.control, self.doubt
        keep, kernel, runner = (record.read(own) for own in (at.KEEP, at.KERNEL, at.RUNNER))
        control.call(at.INCREF, None, keep)
        self.keep.set(keep)
        fresh, library = record.read(at.FRESH), record.read(at.OWN_LIBRARY)
        grain, constants = record.read(at.GRAIN), record.read(at.CONSTANTS)
        addresses, sized = record.read(at.ADDRESSES), record.read(at.SIZED)
        lead, numbers = self.view(record.read(at.LEAD)), self.numbers(record)
        units, elements = record.read(at.UNITS), lead.read(at.SIZE)
        count = units.equals(0).choose(elements, units)
        output = self.own(record, self.last).read(at.PLACE)
        launch = Launch(code, code.slots(control.read(at.POOL)))
        moved = self.moved.get().differs(0)
        # What gathers elements takes their geometry first, then what the kernel takes.
        gathering = record.read(at.GATHERING)
        laid = gathering.differs(0) | sized.equals(at.BY_LAYOUT) | sized.equals(at.BY_CLASSES)
        own_record = code.frame("i64", at.FIRST_OPTION)
        with code.when(laid), code.loop(0, self.all * at.ARRAY_SLOTS + at.FIRST_ARRAY) as index:
            own_record.write(index, record.read(index))
        arguments = launch.arguments.at(gathering.differs(0).to("i64"))
        with code.loop(0, constants) as index:
            own, other = record.at(at.CONSTANT).read(index), self.derived.read(index)
            arguments.write(index, moved.choose(other, own))
        with code.when(record.read(at.RECIPROCAL) >= 0):
            share = (code.double(1.0) / elements.to("f64")).to("f32").bits_as("i32").unsigned("i64")
            arguments.write(record.read(at.RECIPROCAL), share)
        operands = arguments.at(constants)
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
            self.make_outputs(record, lead, library, operands.at(output))
        with doubt.when_none():
            with code.when(fresh.equals(0)):
                operands.write(output, self.address(self.view(self.last)))
            entry = code.variable(kernel)
            geometry = code.frame("i64", gathered.GEOMETRY_SLOTS)
            with code.when(laid):
                self.lay(own_record, lead, geometry)
            with code.when(sized.equals(at.BY_CLASSES)):
                self.expect_forwards(own_record)
            with code.when(gathering.differs(0)):
                for where, word in enumerate((kernel, constants, addresses), gathered.KERNEL):
                    geometry.write(where, word)
                launch.arguments.write(0, geometry.address())
                entry.set(gathering)
            with doubt.when_none(), code.either(kernel.differs(0)) as (native, called):
                with native:
                    # Before the workers run, the full way starts them.
                    doubt.expect(launch.ready(count, grain))
                    with doubt.when_none():
                        # Not 0: a target out of range. The full way says which.
                        status = launch.execute(entry.get(), count, grain)
                        doubt.expect(status.equals(0))
                with called:
                    self.call(runner, operands, addresses, stream, sized, lead, geometry, numbers)
        self.drop(keep)

    def numbers(self, record: Array) -> tuple[Array, Value]:
        """The options that a sized runner takes, and how many."""
        found, count = self.code.frame("i64", at.MAX_DERIVED), record.read(at.DERIVED)
        with self.code.loop(0, count) as index:
            found.write(index, self.number(record.at(at.SOURCE).read(index)))
        return found, count

    def find_stream(self, place: Value, stream: Array) -> None:
        device, which = place.to("i32"), (place >> 32).to("i32")
        with self.code.when(device.differs(HOST)):
            status = self.control.call(at.CURRENT_STREAM, "i32", device, which, stream)
            self.expect_success(status)

    def expect_free(self, record: Array) -> None:
        """That the output given is writable, and apart from what is read, or the very elements that are read."""
        code, view, own = self.code, self.view(self.last), self.own(record, self.last)
        self.doubt.expect(view.read(at.WRITABLE).differs(0))
        with code.when(own.read(at.PATTERN).equals(at.LAID)):
            self.expect_apart(record)
        low, high = self.span(own, view)
        with self.doubt.when_none(), code.loop(0, self.last) as index:
            theirs, seen = self.own(record, index), self.view(index)
            with code.when(theirs.read(at.PLACE) >= 0):
                first, beyond = self.span(theirs, seen)
                apart = ~(first.below(high) & low.below(beyond))
                begin = self.address(seen).equals(self.address(view))
                self.doubt.expect(apart | begin & self.coincides(record, index))

    def take_output(self, record: Array, library: Value) -> None:
        """The output given. Autograd is told that it is written; what it would not let be written is left to the full way."""
        code = self.code
        self.expect_free(record)
        item = self.given.read(self.last)
        with self.doubt.when_none(), code.when(library.equals(at.TORCH)):
            self.expect_no_leaf(item)
            with self.doubt.when_none():
                told = self.ask(at.WRITTEN, item)
                self.fail_without(told)
                self.drop(told)
        with self.doubt.when_none():
            self.control.call(at.INCREF, None, item)
            self.result.set(item)

    def make_outputs(self, record: Array, lead: Array, library: Value, operands: Array) -> None:
        """Fresh outputs, and their addresses among the operands; several are a tuple, None where one is not written."""
        code, control, doubt = self.code, self.control, self.doubt
        many, how = record.read(at.RESULTS), record.read(at.MAKE_DTYPE)
        known, shapes = record.read(at.LEAD).equals(self.last), record.read(at.SHAPES)
        make, large, large_from = (
            record.read(own) for own in (at.MAKE, at.MAKE_LARGE, at.LARGE_FROM)
        )
        item = self.own(record, self.last).read(at.ITEM)
        making = _Making(make, large, large_from, item, lead, library, known)
        with code.either(many.equals(1)) as (one, several):
            with one:
                self.result.set(self.made(making, how, shapes))
                self.fail_without(self.result.get())
                self.place(self.result.get(), self.view(self.last), library, operands)
            with several:
                self.result.set(control.call(at.TUPLE_NEW, "i64", many))
                self.fail_without(self.result.get())
                written = code.variable(code.integer(0))
                with code.loop(0, many) as index, doubt.when_none():
                    mask = shapes >> index * at.RESULT_BITS
                    own = code.variable(control.read(at.NONE))
                    with code.either((mask >> at.WRITTEN_BIT & 1).differs(0)) as (made, left):
                        with made:
                            each = code.slots(how).read(index + objects.TUPLE_ITEMS)
                            own.set(self.made(making, each, mask))
                            self.fail_without(own.get())
                            view, operand = self.view(self.last + index), operands.at(written.get())
                            self.place(own.get(), view, library, operand)
                            written.set(written.get() + 1)
                        with left:
                            control.call(at.INCREF, None, own.get())
                    control.call(at.TUPLE_SET, "i32", self.result.get(), index, own.get())

    def made(self, making: _Making, how: Value, mask: Value) -> Value:
        """An output: of a kind that has one shape only, or of some of the lead's axes."""
        found = self.code.variable(self.code.integer(0))
        with self.code.either(making.known) as (alone, beside):
            with alone:
                found.set(self.made_again(self.code.slots(how)))
            with beside:
                found.set(self.made_like(making, how, mask))
        return found.get()

    def place(self, made: Value, view: Array, library: Value, operands: Array) -> None:
        """The address of a fresh output as an operand."""
        self.look_at_fresh(made, view, library)
        with self.doubt.when_none():
            operands.write(0, self.address(view))

    def made_again(self, call: Array) -> Value:
        """An output of a kind that has one shape only: a tuple has the function that makes it, and its arguments."""
        count = call.read(objects.TUPLE_LENGTH) - 1
        make, arguments = call.read(objects.TUPLE_ITEMS), call.at(objects.TUPLE_ITEMS + 1)
        return self.control.call(at.VECTORCALL, "i64", make, arguments, count, 0)

    def made_like(self, making: _Making, dtype: Value, mask: Value) -> Value:
        """`make(shape, dtype)` of NumPy's, `make(shape, strides, dtype)` of PyTorch's, row-major over axes of the lead's."""
        code, control = self.code, self.control
        sizes, strides, axes, count = self.row_major(making.lead, mask)
        make = (count * making.item >= making.large_from).choose(making.large, making.make)
        items, found = code.frame("i64", 3), code.variable(code.integer(0))
        shape = self.pack(sizes, axes)
        items.write(0, shape)
        with code.either(making.library.equals(at.NUMPY)) as (numpy, torch):
            with numpy:
                items.write(1, dtype)
                found.set(control.call(at.VECTORCALL, "i64", make, items, 2, 0))
            with torch:
                steps = self.pack(strides, axes)
                items.write(1, steps)
                items.write(2, dtype)
                found.set(control.call(at.VECTORCALL, "i64", make, items, 3, 0))
                self.drop(steps)
        self.drop(shape)
        return found.get()

    def row_major(self, lead: Array, mask: Value) -> tuple[Array, Array, Value, Value]:
        """Sizes and strides of a fresh array that has some of the lead's axes, how many axes and how many elements."""
        code = self.code
        sizes, strides = (code.frame("i64", at.MAX_AXES) for _ in range(2))
        axes, count = code.variable(code.integer(0)), code.variable(code.integer(1))
        with code.loop(0, self.axes(lead)) as axis, code.when((mask >> axis & 1).differs(0)):
            sizes.write(axes.get(), self.length(lead, axis))
            axes.set(axes.get() + 1)
        with code.loop(0, axes.get()) as behind:
            axis = axes.get() - 1 - behind
            strides.write(axis, count.get())
            count.set(count.get() * sizes.read(axis))
        return sizes, strides, axes.get(), count.get()

    def tuple_of(self, view: Array, numbers: int) -> Value:
        """An array's sizes or strides as Python has them."""
        axes = view.read(at.KIND) & LOW_HALF
        return self.pack(self.code.slots(view.read(numbers)), axes)

    def pack(self, numbers: Array, count: Value) -> Value:
        """Integers as a tuple."""
        made = self.control.call(at.TUPLE_NEW, "i64", count)
        self.fail_without(made)
        with self.code.loop(0, count) as index:
            self.put(made, index, self.control.call(at.FROM_INT64, "i64", numbers.read(index)))
        return made

    def put(self, made: Value, index: Value, item: Value) -> None:
        """An object into a tuple, which has it from then on; memory may have been too short for one."""
        with self.code.when(item.equals(0)):
            self.drop(made)
        self.fail_without(item)
        self.control.call(at.TUPLE_SET, "i32", made, index, item)

    def hold(self, items: Array, count: Value) -> Value:
        """Objects as a tuple."""
        made = self.control.call(at.TUPLE_NEW, "i64", count)
        self.fail_without(made)
        with self.code.loop(0, count) as index:
            self.control.call(at.INCREF, None, items.read(index))
            self.control.call(at.TUPLE_SET, "i32", made, index, items.read(index))
        return made

    def call(
        self, runner: Value, operands: Array, addresses: Value, stream: Array, sized: Value, lead: Array,
        geometry: Array, numbers: tuple[Array, Value],
    ) -> None:  # fmt: skip
        """`runner(addresses, stream)`, with what it takes besides if it serves any size; what it raises is raised."""
        code, control = self.code, self.control
        items, count = code.frame("i64", 5), code.variable(code.integer(2))
        items.write(0, self.pack(operands, addresses))
        items.write(1, control.call(at.FROM_INT64, "i64", stream.read(0)))
        self.fail_without(items.read(1))
        with code.when(sized.equals(at.BY_SHAPE)):
            items.write(2, self.tuple_of(lead, at.SHAPE_AT))
            items.write(3, self.hold(*numbers))
        with code.when(sized.equals(at.BY_LAYOUT) | sized.equals(at.BY_CLASSES)):
            axes = geometry.read(gathered.AXES)
            items.write(2, self.pack(geometry.at(gathered.SIZES), axes))
            items.write(3, self.pack_steps(geometry, addresses, axes))
        with code.when(sized.differs(0)):
            count.set(code.integer(4))
        with code.when(sized.equals(at.BY_CLASSES)):
            items.write(4, self.hold(*numbers))
            count.set(code.integer(5))
        status = control.call(at.VECTORCALL, "i64", runner, items, count.get(), 0)
        with code.loop(0, count.get()) as index:
            self.drop(items.read(index))
        self.fail_without(status)
        # Not 0: a target out of range. The full way says which.
        self.doubt.expect(control.call(at.AS_INT64, "i64", status).equals(0))
        self.drop(status)

    def pack_steps(self, geometry: Array, operands: Value, axes: Value) -> Value:
        """Every operand's strides along the axes, in elements, one after the other."""
        code, items = self.code, geometry.at(gathered.ITEMS)
        flat = code.frame("i64", gathered.MAX_OPERANDS * gathered.MAX_AXES)
        with code.loop(0, operands) as place, code.loop(0, axes) as axis:
            stride = self.steps(geometry, place).read(axis) // items.read(place)
            flat.write(place * axes + axis, stride)
        return self.pack(flat, operands * axes)
