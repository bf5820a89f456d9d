"""Phase one of a two-phase call as a builtin: it recognises the call, and tells what runs it. Beside arrays it reads descriptors, by their attributes."""

from __future__ import annotations

from openaclnn.engines.machine import objects
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat import slots as at
from openaclnn.repeat.code.fast_path import FastPath

EXTENT_SLOTS = 3


def emit_phase_one(code: Code, control: Array, arguments: Array, number: Value) -> None:
    """The builtin `locate(*arrays, *options)`, which runs nothing.

    It gives a tuple: what holds the memory of each array, which for NumPy's is a weak reference, for PyTorch's the four of a `HeldStorage`, for descriptors nothing;
    what the entry relies on; how many elements its kernel runs over; where arrays begin, by operands, unless they are descriptors; how far behind that halves do; what
    `phases.Extent` says of each operand, as bytes; then what a runner takes behind addresses and a stream.
    """
    PhaseOne(code, control, arguments).write(number)


class PhaseOne(FastPath):
    """The function being written."""

    def __init__(self, code: Code, control: Array, arguments: Array) -> None:
        super().__init__(code, control, arguments)
        self.items, self.prepared = code.frame("i64", 4 * at.MAX_ARRAYS + 12), code.variable(0)
        self.shifts = code.frame("i64", at.MAX_ARRAYS)

    def take_arguments(self, number: Value) -> None:
        self.guard.expect(number == self.arrays + self.options)

    def serve(self) -> None:
        code, entry = self.code, self.recognise()
        library, source = entry.read(at.ENTRY_LIBRARY), self.view(entry.read(at.SHAPE_SOURCE))
        operands, addresses = entry.read(at.ADDRESSES), self.enter_operands(entry)
        self.expect_free(entry)
        with code.when(library == at.TORCH):
            self.expect_no_graph()
        self.expect_untracked(library)
        extents, owners = self.extents_of(entry), self.new_tuple(self.prepared.get())
        self.move_items(owners)
        self.push(owners)
        self.push_again(self.keep.get())
        self.push(self.python("PyLong_FromLongLong", "i64", source.read(at.SIZE)))
        self.push(self.pack(addresses, (library <= at.TORCH).choose(operands, 0)))
        self.push(self.pack(self.shifts, (entry.read(at.HALF_AXIS) >= 0).choose(operands, 0)))
        self.push(
            self.python("PyBytes_FromStringAndSize", "i64", extents, operands * (EXTENT_SLOTS * 8))
        )
        self.push_told(entry)
        self.result.set(self.new_tuple(self.prepared.get()))
        with code.when(library <= at.TORCH):  # a descriptor may say something else by now
            self.look_again()
        self.move_items(self.result.get())

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

    def move_items(self, into: Value) -> None:
        """All that was pushed into a tuple."""
        with self.code.loop(0, self.prepared.get()) as index:
            self.put(into, index, self.items.read(index))
        self.prepared.set(self.code.integer(0))

    def push_again(self, item: Value) -> None:
        """An object that somebody else has, too."""
        self.python("Py_IncRef", None, item)
        self.push(item)

    def extents_of(self, entry: Array) -> Array:
        """What `phases.Extent` says of each operand."""
        code, extents = self.code, self.code.frame("i64", EXTENT_SLOTS * at.MAX_ARRAYS)
        with code.loop(0, self.arrays) as index, code.when(self.is_given(index)):
            array, view = self.array_of(entry, index), self.view(index)
            low, high = self.span(array, view)
            alike = (index < self.inputs) & self.coincides(entry, index)
            for slot in (at.PLACE, at.OTHER_PLACE):
                with code.when(array.read(slot) >= 0):
                    extent = extents.at(array.read(slot) * EXTENT_SLOTS)
                    start = self.address(view)
                    for place, word in enumerate((low - start, high - start, alike.to("i64"))):
                        extent.write(place, word)
        return extents

    def enter_operand(self, entry: Array, array: Array, view: Array, operands: Array) -> None:
        """Halves begin with their array, which may get another address yet."""
        for slot, shift in ((at.PLACE, 0), (at.OTHER_PLACE, self.half(entry, array, view))):
            with self.code.when(array.read(slot) >= 0):
                operands.write(array.read(slot), self.address(view))
                self.shifts.write(array.read(slot), shift)

    def expect_apart(self, entry: Array, index: Value) -> None:
        """Where descriptors lie is looked at when their memory is."""
        with self.code.when(entry.read(at.ENTRY_LIBRARY) <= at.TORCH):
            super().expect_apart(entry, index)

    # Arrays: what holds their memory.

    def look_at_numpy(self, item: Value, view: Array) -> None:
        """NumPy gives no other memory to an array that has a weak reference."""
        super().look_at_numpy(item, view)
        if self.asks:
            self.note_python(self.control.flag(at.COLLECTS))
            self.push(self.call_object(self.control.read(at.PIN), item))

    def leave_storage(self, item: Value, storage: Value) -> None:
        self.push(storage)
        self.push_again(item)

    def expect_in_storage(self, view: Array, offset: Value, size: Value) -> None:
        super().expect_in_storage(view, offset, size)
        self.guard.expect(view.read(at.DATA) != 0)  # else nothing says where the storage is
        start = self.address(view) - offset * self.item_size(view.read(at.KIND))
        for word in (start, size):
            self.push(self.python("PyLong_FromLongLong", "i64", word))

    # Descriptors.

    def look_at(self, item: Value, view: Array) -> None:
        if not self.asks:
            return super().look_at(item, view)
        kind = self.code.slots(item).read(objects.OBJECT_TYPE)
        with self.code.either(kind == self.control.read(at.DESCRIPTOR)) as (descriptor, array):
            with descriptor:
                self.look_at_descriptor(item, view)
            with array:
                super().look_at(item, view)

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
