"""Phase one of a two-phase call as a builtin: it recognises the call, and tells what runs it. It reads descriptors, by their attributes."""

from __future__ import annotations

from openaclnn.engines.machine import objects
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat import slots as at
from openaclnn.repeat.code.fast_path import FastPath

EXTENT_SLOTS = 3


def emit_phase_one(code: Code, control: Array, arguments: Array, number: Value) -> None:
    """The builtin `locate(*descriptors, *options)`, which runs nothing.

    It gives a tuple: what the entry relies on; how many elements its kernel runs over; how far behind their tensor's begin operands do, where some are halves; what
    `phases.Extent` says of each operand, as bytes; then what a runner takes behind addresses and a stream.
    """
    PhaseOne(code, control, arguments).write(number)


class PhaseOne(FastPath):
    """The function being written."""

    def __init__(self, code: Code, control: Array, arguments: Array) -> None:
        super().__init__(code, control, arguments)
        self.items, self.prepared = code.frame("i64", 8), code.variable(0)
        self.shifts = code.frame("i64", at.MAX_OPERANDS)

    def take_arguments(self, number: Value) -> None:
        self.guard.expect(number == self.arrays + self.options)

    def serve(self) -> None:
        entry = self.recognise()
        source, operands = self.view(entry.read(at.SHAPE_SOURCE)), entry.read(at.ADDRESSES)
        self.expect_free(entry)
        extents = self.extents_of(entry)
        self.python("Py_IncRef", None, self.keep.get())
        self.push(self.keep.get())
        self.push(self.python("PyLong_FromLongLong", "i64", source.read(at.SIZE)))
        self.push(self.pack(self.shifts, (entry.read(at.HALF_AXIS) >= 0).choose(operands, 0)))
        size = operands * (EXTENT_SLOTS * 8)
        self.push(self.python("PyBytes_FromStringAndSize", "i64", extents, size))
        self.push_told(entry)
        self.result.set(self.new_tuple(self.prepared.get()))
        with self.code.loop(0, self.prepared.get()) as index:
            self.put(self.result.get(), index, self.items.read(index))
        self.prepared.set(self.code.integer(0))

    def push_told(self, entry: Array) -> None:
        """What a runner takes behind addresses and a stream."""
        code, takes = self.code, entry.read(at.TAKES)
        sizes, axes, strides, stride_count = self.told_layout(entry)
        with code.when((takes & at.TAKES_SIZES) != 0):
            self.push(self.pack(sizes, axes))
        with code.when((takes & at.TAKES_STRIDES) != 0):
            self.push(self.pack(strides, stride_count))
        many, wanted = entry.read(at.DERIVED), (takes & at.TAKES_NUMBERS) != 0
        constants = entry.read(at.CONSTANTS)
        with code.when(wanted), code.either(constants != 0) as (words, options):
            with words:
                self.push(self.pack(self.numbers, constants))
            with options:
                numbers = self.new_tuple(many)
                with code.loop(0, many) as index:
                    option = self.option(entry.at(at.SOURCE).read(index))
                    self.python("Py_IncRef", None, option)
                    self.put(numbers, index, option)
                self.push(numbers)

    def push(self, item: Value) -> None:
        """One more of what is told, which is owned."""
        self.fail_without(item)
        self.items.write(self.prepared.get(), item)
        self.prepared.set(self.prepared.get() + 1)

    def release(self) -> None:
        super().release()
        with self.code.loop(0, self.prepared.get()) as index:
            self.drop(self.items.read(index))

    def extents_of(self, entry: Array) -> Array:
        """What `phases.Extent` says of each operand. Halves begin with their tensor, behind which they are shifted."""
        code, extents = self.code, self.code.frame("i64", EXTENT_SLOTS * at.MAX_OPERANDS)
        with code.loop(0, self.arrays) as index, code.when(self.is_given(index)):
            array, view = self.array_of(entry, index), self.view(index)
            low, high = self.span(array, view)
            alike = (index < self.inputs) & self.coincides(entry, index)
            start = self.address(view)
            for slot, shift in ((at.PLACE, 0), (at.OTHER_PLACE, self.half(entry, array, view))):
                place = array.read(slot)
                with code.when(place >= 0):
                    self.shifts.write(place, shift)
                    extent = extents.at(place * EXTENT_SLOTS)
                    for number, word in enumerate((low - start, high - start, alike.to("i64"))):
                        extent.write(number, word)
        return extents

    def expect_apart(self, entry: Array, index: Value) -> None:
        """Where tensors lie is looked at when their memory is."""

    # Descriptors.

    def look_at(self, item: Value, view: Array) -> None:
        kind = self.code.slots(item).read(objects.OBJECT_TYPE)
        self.guard.expect(kind == self.control.read(at.DESCRIPTOR))
        self.look_at_descriptor(item, view)

    def look_at_descriptor(self, item: Value, view: Array) -> None:
        code = self.code
        self.expect_alive(item)
        sizes, steps = (code.frame("i64", at.MAX_AXES) for _ in range(2))
        axes = self.unpack(self.attribute(item, "shape"), sizes)
        given = self.attribute(item, "given_strides")
        with code.either(given == self.object("None")) as (row_major, strided):
            with row_major:
                step = code.variable(1)
                with code.loop(0, axes) as behind:
                    size = sizes.read(axes - 1 - behind)
                    steps.write(axes - 1 - behind, step.get())
                    step.set(step.get() * (size == 0).choose(1, size))
            with strided:
                self.guard.expect(self.unpack(given, steps) == axes)
        layout = self.integer(self.attribute(item, "format"))
        for slot, word in (
            (at.DATA, code.integer(1)), (at.OFFSET, code.integer(0)), (at.DEVICE, self.attribute(item, "dtype")),
            (at.KIND, (layout << 32) | axes), (at.SHAPE_AT, sizes.address()), (at.STRIDES_AT, steps.address()),
            (at.LIBRARY, self.attribute(item, "device")),
        ):  # fmt: skip
            view.write(slot, word)
        writable = self.attribute(item, "writable") == self.object("True")
        view.write(at.WRITABLE, writable.to("i64"))
        view.write(at.IS_CONTIGUOUS, self.measure(view).to("i64"))

    def read_options(self) -> None:
        """Scalars are their dtype and the bits of their value."""
        super().read_options()
        with self.code.loop(0, self.options) as index:
            item = self.option(index)
            kind = self.code.slots(item).read(objects.OBJECT_TYPE)
            with self.code.when(kind == self.control.read(at.SCALAR)):
                self.expect_alive(item)
                self.option_types.write(index, self.attribute(item, "dtype"))
                self.option_words.write(index, self.integer(self.attribute(item, "bits")))

    def expect_alive(self, item: Value) -> None:
        self.guard.expect(self.attribute(item, "alive") == self.object("True"))

    def attribute(self, item: Value, name: str) -> Value:
        """An object that a descriptor has, and so holds: no Python code runs while it is read."""
        control, place = self.control, at.ATTRIBUTES + at.ATTRIBUTE_NAMES.index(name)
        held = self.answer(self.python("PyObject_GetAttr", "i64", item, control.read(place)))
        self.drop(held)
        return held

    def unpack(self, item: Value, words: Array) -> Value:
        """A tuple of integers, and how many it has."""
        code, items = self.code, self.code.slots(item)
        self.guard.expect(items.read(objects.OBJECT_TYPE) == self.object("tuple"))
        count = items.read(objects.TUPLE_LENGTH)
        self.guard.expect(count <= at.MAX_AXES)
        with code.loop(0, count) as index:
            words.write(index, self.integer(items.read(index + objects.TUPLE_ITEMS)))
        return count

    def integer(self, item: Value) -> Value:
        """An integer of 64 bits."""
        number = self.python("PyLong_AsLongLong", "i64", item)
        with self.code.when(number == -1, likely=False):
            raised = self.python("PyErr_Occurred", "i64") != 0
            self.python("PyErr_Clear", None)
            self.guard.expect(~raised)
        return number
