"""The machine code of the short road: read the arrays, find the kind of call, make the output, run.

Whatever is not as a kind wants it gives NotImplemented, and the call takes the full way.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from openaclnn.engines.cpu.launcher import Launch
from openaclnn.engines.machine import objects
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value, Variable
from openaclnn.repeat import slots as at

__all__ = ["emit_road"]

HOST = 1  # DLPack's number for the CPU
LOW_HALF = 0xFFFFFFFF


def emit_road(code: Code, control: Array, given: Array, number: Value) -> None:
    """The builtin `road(*arrays, *options, product)`, the output last of the arrays."""
    _Road(code, control, given).write(number)


class _Doubt:
    """What was found so far: while nothing speaks against it, `when_none` is entered."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.found = code.variable(code.integer(0))

    def reset(self) -> None:
        self.found.set(self.code.integer(0))

    def expect(self, condition: Value) -> None:
        self.found.set(self.found.get() | (~condition).to("i64"))

    def when_none(self) -> AbstractContextManager[None]:
        return self.code.when(self.found.get().equals(0))


class _Road:
    """The function being written."""

    def __init__(self, code: Code, control: Array, given: Array) -> None:
        self.code, self.control, self.given = code, control, given
        self.arrays, self.options = control.read(at.ARRAYS), control.read(at.OPTIONS)
        self.last = self.arrays - 1
        self.views = code.frame("i64", at.MAX_ARRAYS * at.VIEW_SLOTS)
        self.doubt = _Doubt(code)
        self.result, self.keep = (code.variable(code.integer(0)) for _ in range(2))
        # Constants for other numbers than a record's, made while searching.
        self.moved = code.variable(code.integer(0))
        self.derived = code.frame("i64", at.MAX_CONSTANTS)

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

    # What the call says.

    def expect_nothing_chosen(self) -> None:
        """No `use_product` and no `use_engine` block around the call."""
        code, control, none = self.code, self.control, self.control.read(at.NONE)
        for variable in (at.PRODUCT, at.ENGINE):
            place = code.frame("i64", 1)
            place.write(0, none)
            control.call(at.GET_VARIABLE, "i32", control.read(variable), none, place)
            chosen = place.read(0)
            self.doubt.expect(chosen.equals(none))
            self.drop(chosen)

    def view(self, index: Value) -> Array:
        return self.views.at(index * at.VIEW_SLOTS)

    def look(self, item: Value, view: Array) -> None:
        """What is known of an argument into its view."""
        code, control = self.code, self.control
        view.write(at.LIBRARY, at.ABSENT)
        with code.when(item.differs(control.read(at.NONE))):
            kind = code.slots(item).read(objects.OBJECT_TYPE)
            is_torch = kind.equals(control.read(at.TENSOR)) | kind.equals(
                control.read(at.PARAMETER)
            )
            with code.either(kind.equals(control.read(at.NDARRAY))) as (numpy, other):
                with numpy:
                    self.look_at_numpy(item, view)
                with other:
                    self.doubt.expect(is_torch)
                    with self.doubt.when_none():
                        self.look_at_torch(item, view)
            with self.doubt.when_none():  # elements without memory: the full way says what that is
                self.doubt.expect(view.read(at.DATA).differs(0) | view.read(at.SIZE).equals(0))

    def look_at_numpy(self, item: Value, view: Array) -> None:
        array = self.code.slots(item)
        fields = (
            (at.DATA, objects.ARRAY_DATA), (at.DEVICE, objects.ARRAY_DTYPE),
            (at.SHAPE_AT, objects.ARRAY_SHAPE), (at.STRIDES_AT, objects.ARRAY_STRIDES),
        )  # fmt: skip
        for own, theirs in fields:
            view.write(own, array.read(theirs))
        # The number of axes has 32 bits; what is behind them is something else.
        view.write(at.KIND, array.read(objects.ARRAY_AXES) & LOW_HALF)
        view.write(at.OFFSET, 0)
        view.write(at.LIBRARY, at.NUMPY)
        flags = array.read(objects.ARRAY_FLAGS)
        view.write(at.WRITABLE, flags & objects.WRITEABLE)
        self.doubt.expect((flags & objects.ALIGNED).differs(0))
        with self.doubt.when_none():
            self.measure(view)
            view.write(at.DENSELY, flags & objects.C_CONTIGUOUS)

    def look_at_torch(self, item: Value, view: Array) -> None:
        code, control = self.code, self.control
        self.expect_success(control.call(at.FROM_PYTHON, "i32", item, view))
        with self.doubt.when_none():
            one = code.frame("i64", 1)
            one.write(0, item)
            negated = control.call(at.VECTORCALL, "i64", control.read(at.IS_NEGATED), one, 1, 0)
            self.doubt.expect(negated.equals(control.read(at.FALSE)))
            with code.when(negated.differs(0)):
                self.drop(negated)
        view.write(at.LIBRARY, at.TORCH)
        view.write(at.WRITABLE, 1)
        self.doubt.expect(view.read(at.STRIDES_AT).differs(0))
        with self.doubt.when_none():
            view.write(at.DENSELY, self.measure(view).to("i64"))

    def measure(self, view: Array) -> Value:
        """The number of elements into the view; whether they lie row-major, by strides that count elements."""
        code = self.code
        axes = view.read(at.KIND) & LOW_HALF
        self.doubt.expect(axes <= at.MAX_AXES)
        shape, strides = (code.slots(view.read(own)) for own in (at.SHAPE_AT, at.STRIDES_AT))
        size, astray = code.variable(code.integer(1)), code.variable(code.integer(0))
        with self.doubt.when_none(), code.loop(0, axes) as behind:
            axis = axes - 1 - behind
            length = shape.read(axis)
            off = length.differs(1) & strides.read(axis).differs(size.get())
            astray.set(astray.get() | off.to("i64"))
            size.set(size.get() * length)
        view.write(at.SIZE, size.get())
        return astray.get().equals(0)

    # Which kind of call it is.

    def record(self, index: Value) -> Array:
        return self.code.slots(self.control.read(at.TABLE)).at(index * at.RECORD_SLOTS)

    def search(self, found: Variable) -> None:
        """The first kind that the call is of."""
        code, differs = self.code, _Doubt(self.code)
        with code.loop(0, self.control.read(at.KINDS)) as kind, code.when(found.get() < 0):
            record = self.record(kind)
            differs.reset()
            self.moved.set(code.integer(0))
            with code.loop(0, self.arrays) as index, differs.when_none():
                self.compare(differs, record, index)
            with code.loop(0, self.options) as index, differs.when_none():
                self.compare_option(differs, record, index)
            with differs.when_none(), code.when(self.moved.get().differs(0)):
                self.derive(differs, record)
            with differs.when_none():
                found.set(kind)

    def own(self, record: Array, index: Value) -> Array:
        """What a record says of an array."""
        return record.at(index * at.ARRAY_SLOTS + at.FIRST_ARRAY)

    def compare(self, differs: _Doubt, record: Array, index: Value) -> None:
        code, own, view = self.code, self.own(record, index), self.view(index)
        pattern, library = own.read(at.PATTERN), view.read(at.LIBRARY)
        with code.either(pattern.equals(at.MISSING)) as (missing, present):
            with missing:
                differs.expect(library.equals(at.ABSENT))
            with present:
                differs.expect(library.equals(record.read(at.OWN_LIBRARY)))
                differs.expect(own.read(at.FIRST).equals(view.read(at.DEVICE)))
                differs.expect((own.read(at.SECOND) >> 32).equals(view.read(at.KIND) >> 32))
                with differs.when_none():
                    ways: tuple[tuple[int, Callable[[_Doubt, Array, Array, Array], None]], ...] = (
                        (at.SAME, self.compare_same), (at.DENSE, self.compare_dense),
                        (at.ONE, self.compare_one), (at.SOME, self.compare_some),
                    )  # fmt: skip
                    for one, way in ways:
                        with code.when(pattern.equals(one)):
                            way(differs, record, own, view)

    def compare_same(self, differs: _Doubt, record: Array, own: Array, view: Array) -> None:
        axes = view.read(at.KIND) & LOW_HALF
        differs.expect(axes.equals(own.read(at.SECOND) & LOW_HALF))
        with differs.when_none(), self.code.loop(0, axes) as axis:
            for expected, theirs in ((at.SHAPE, at.SHAPE_AT), (at.STRIDES, at.STRIDES_AT)):
                found = self.code.slots(view.read(theirs)).read(axis)
                differs.expect(own.at(expected).read(axis).equals(found))

    def compare_dense(self, differs: _Doubt, record: Array, own: Array, view: Array) -> None:
        """Row-major, of the lead's shape, of a size that the kind serves."""
        code, lead = self.code, self.view(record.read(at.LEAD))
        axes, size = view.read(at.KIND) & LOW_HALF, view.read(at.SIZE)
        differs.expect(view.read(at.DENSELY).differs(0))
        differs.expect(axes.equals(lead.read(at.KIND) & LOW_HALF))
        wanted = record.read(at.LEAD_AXES)
        differs.expect(wanted.equals(0) | axes.equals(wanted))
        differs.expect(size >= record.read(at.COUNT_FROM))
        differs.expect(size < record.read(at.COUNT_BELOW))
        with differs.when_none(), code.loop(0, axes) as axis:
            mine, theirs = (code.slots(one.read(at.SHAPE_AT)).read(axis) for one in (view, lead))
            differs.expect(mine.equals(theirs))

    def compare_one(self, differs: _Doubt, record: Array, own: Array, view: Array) -> None:
        """One element, which stretches over whatever the lead is."""
        lead = self.view(record.read(at.LEAD))
        differs.expect(view.read(at.SIZE).equals(1))
        differs.expect((view.read(at.KIND) & LOW_HALF) <= (lead.read(at.KIND) & LOW_HALF))

    def compare_some(self, differs: _Doubt, record: Array, own: Array, view: Array) -> None:
        """Row-major over some of the lead's axes, in their order."""
        code, lead = self.code, self.view(record.read(at.LEAD))
        mask, axes = own.read(at.MASK), view.read(at.KIND) & LOW_HALF
        differs.expect(view.read(at.DENSELY).differs(0))
        differs.expect(axes.equals(own.read(at.SECOND) & LOW_HALF))
        differs.expect(record.read(at.LEAD_AXES).equals(lead.read(at.KIND) & LOW_HALF))
        axis = code.variable(code.integer(0))
        mine, theirs = (code.slots(one.read(at.SHAPE_AT)) for one in (view, lead))
        with differs.when_none(), code.loop(0, record.read(at.LEAD_AXES)) as whole:
            has = (mask >> whole & 1).differs(0)
            with code.when(has):
                differs.expect(mine.read(axis.get()).equals(theirs.read(whole)))
                axis.set(axis.get() + 1)

    def compare_option(self, differs: _Doubt, record: Array, index: Value) -> None:
        """The same object, or a float or an integer of the same bits."""
        code, control = self.code, self.control
        own = record.at(index * at.OPTION_SLOTS + at.FIRST_OPTION)
        item = self.given.read(self.arrays + index)
        with code.when(item.differs(own.read(at.OBJECT))):
            kind = code.slots(item).read(objects.OBJECT_TYPE)
            differs.expect(kind.equals(own.read(at.TYPE)))
            is_float = kind.equals(control.read(at.FLOAT))
            with differs.when_none(), code.either(is_float) as (floating, integer):
                with floating:
                    bits = code.slots(item).read(objects.FLOAT_VALUE)
                    other = bits.differs(own.read(at.BITS))
                    self.moved.set(self.moved.get() | other.to("i64"))
                    differs.expect(~other | record.read(at.DERIVE).differs(0))
                with integer:
                    value = control.call(at.AS_INT64, "i64", item)
                    differs.expect(value.equals(own.read(at.BITS)))
                    with code.when(value.equals(-1)):  # or too large for 64 bits
                        control.call(at.CLEAR, None)

    def derive(self, differs: _Doubt, record: Array) -> None:
        """The constants of a kind for other floats than it was remembered with, if it serves them."""
        code, control = self.code, self.control
        numbers = code.frame("f64", at.MAX_DERIVED)
        with code.loop(0, record.read(at.DERIVED)) as index:
            item = self.given.read(self.arrays + record.at(at.SOURCE).read(index))
            is_float = code.slots(item).read(objects.OBJECT_TYPE).equals(control.read(at.FLOAT))
            with code.either(is_float) as (floating, integer):
                with floating:
                    bits = code.slots(item).read(objects.FLOAT_VALUE)
                    numbers.write(index, bits.bits_as("f64"))
                with integer:  # its value was compared
                    numbers.write(index, control.call(at.AS_INT64, "i64", item).to("f64"))
        with code.loop(0, record.read(at.CONSTANTS)) as index:
            self.derived.write(index, record.at(at.CONSTANT).read(index))
        serves = code.call(record.read(at.DERIVE), "i64", numbers, self.derived)
        differs.expect(serves.differs(0))

    # What it takes to run it.

    def run(self, record: Array) -> None:
        """Records may change while Python code runs in between: what is needed of one is read before."""
        code, control, doubt = self.code, self.control, self.doubt
        keep, kernel, runner = (record.read(own) for own in (at.KEEP, at.KERNEL, at.RUNNER))
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
            self.find_stream(device, stream)
        with doubt.when_none(), code.when(fresh.equals(0)):
            self.take_output(record)
        control.call(at.INCREF, None, keep)
        self.keep.set(keep)
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

    def take_output(self, record: Array) -> None:
        """The output given: writable, and apart from what is read, or the very elements that are read."""
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
        with self.doubt.when_none():
            item = self.given.read(self.last)
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

    # Python's objects.

    def drop(self, item: Value) -> None:
        self.control.call(at.DECREF, None, item)

    def fail_without(self, item: Value) -> None:
        """Raise what a function raised that returned no object."""
        with self.code.when(item.equals(0)):
            for held in (self.result.get(), self.keep.get()):
                with self.code.when(held.differs(0)):
                    self.drop(held)
            self.code.leave(self.code.integer(0))

    def expect_success(self, status: Value) -> None:
        """Of a function of PyTorch's: 0, or an exception that nobody is to see."""
        fine = status.equals(0)
        self.doubt.expect(fine)
        with self.code.when(~fine):
            self.control.call(at.CLEAR, None)
