"""Recognise: read a call's arguments, and find the cache entry that was made of a call like it.

A guard is a condition that must hold; where one fails, the code goes on behind its block: with the next entry, or with the slow path.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from openaclnn.engines.machine import objects
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat.words import slots as at

__all__ = ["LOW_HALF", "Guard", "Reader", "Search", "guarded"]

LOW_HALF = 0xFFFFFFFF


class Guard:
    """A block of code that is left where an expectation fails."""

    def __init__(self, code: Code, fail: Callable[[], None]) -> None:
        self._code, self.fail = code, fail

    def expect(self, condition: Value) -> None:
        with self._code.when(~condition, likely=False):
            self.fail()


@contextmanager
def guarded(code: Code) -> Iterator[Guard]:
    """What is written inside is left by the guard's failures; what follows is reached by them, and by the end of the block."""
    with code.first_of() as fail:
        yield Guard(code, fail)


class Reader:
    """The function being written, as far as it reads arguments into views: NumPy's arrays here, PyTorch's tensors in `torch_arguments.py`."""

    guard: Guard  # of the whole call: the slow path takes it where this fails

    def __init__(self, code: Code, control: Array, given: Array) -> None:
        self.code, self.control, self.given = code, control, given
        self.arrays, self.options = control.read(at.ARRAYS), control.read(at.OPTIONS)
        self.outputs = control.read(at.OUTPUTS)
        self.inputs = self.arrays - self.outputs  # the outputs follow them
        self.absent = control.read(at.NONE)  # in the place of an array
        # Of each array, and one more: of the shape that the inputs broadcast to.
        self.views = code.frame("i64", (at.MAX_ARRAYS + 1) * at.VIEW_SLOTS)
        # What is owned: a fresh result, what the entry relies on, and what a runner is called with (so many).
        self.result, self.keep, self.prepared = (code.variable(0) for _ in range(3))
        self.items = code.frame("i64", 5)
        self.python_ran = code.variable(False)  # since arguments were read

    def is_given(self, index: Value) -> Value:
        return self.given.read(index) != self.absent

    def expect_nothing_chosen(self) -> None:
        """No `use_product` and no `use_engine` block around the call; the context is asked if there is one at all."""
        control = self.control
        references = self.code.slots(control.read(at.CHOSEN)).read(0) & LOW_HALF
        with self.code.when(references > control.read(at.CHOSEN_NOWHERE), likely=False):
            self.guard.expect(~self.is_chosen())

    def is_chosen(self) -> Value:
        """What the context says."""
        code, control, none = self.code, self.control, self.control.read(at.NONE)
        chosen = code.variable(False)
        for variable in (at.PRODUCT, at.ENGINE):
            place = code.frame("i64", 1)
            place.write(0, none)
            control.call(at.GET_VARIABLE, "i32", control.read(variable), none, place)
            chosen.set(chosen.get() | (place.read(0) != none))
            self.drop(place.read(0))
        return chosen.get()

    # Views.

    def view(self, index: Value) -> Array:
        return self.views.at(index * at.VIEW_SLOTS)

    def axes(self, view: Array) -> Value:
        return view.read(at.KIND) & LOW_HALF

    def length(self, view: Array, axis: Value) -> Value:
        return self.code.slots(view.read(at.SHAPE_AT)).read(axis)

    def look(self, index: Value, view: Array) -> None:
        """What is known of an argument into a view."""
        item = self.given.read(index)
        for slot in (at.LIBRARY, at.KIND, at.SIZE):  # without axes: nobody asks for their lengths
            view.write(slot, at.ABSENT)
        with self.code.when(item != self.absent):
            self.look_at(item, view)
            # Elements without memory: the slow path says what that is.
            self.guard.expect((view.read(at.DATA) != 0) | (view.read(at.SIZE) == 0))

    def look_at(self, item: Value, view: Array) -> None:
        kind = self.code.slots(item).read(objects.OBJECT_TYPE)
        self.guard.expect(kind == self.control.read(at.NDARRAY))
        self.look_at_numpy(item, view)

    def look_at_fresh(self, item: Value, view: Array, library: Value) -> None:
        """At an array that was just made: nothing can be strange about it but that it has no memory."""
        view.write(at.LIBRARY, library)
        self.read_fresh(item, view, library)
        self.guard.expect(view.read(at.DATA) != 0)

    def read_fresh(self, item: Value, view: Array, library: Value) -> None:
        self.look_at_numpy(item, view)

    def look_at_numpy(self, item: Value, view: Array) -> None:
        array = self.code.slots(item)
        for slot, field in (
            (at.DATA, objects.ARRAY_DATA), (at.DEVICE, objects.ARRAY_DTYPE),
            (at.SHAPE_AT, objects.ARRAY_SHAPE), (at.STRIDES_AT, objects.ARRAY_STRIDES),
        ):  # fmt: skip
            view.write(slot, array.read(field))
        # The number of axes has 32 bits; what is behind them is something else.
        view.write(at.KIND, array.read(objects.ARRAY_AXES) & LOW_HALF)
        view.write(at.OFFSET, 0)
        view.write(at.LIBRARY, at.NUMPY)
        flags = array.read(objects.ARRAY_FLAGS)
        view.write(at.WRITABLE, flags & objects.WRITEABLE)
        self.guard.expect((flags & objects.ALIGNED) != 0)
        self.measure(view)
        view.write(at.IS_CONTIGUOUS, flags & objects.C_CONTIGUOUS)

    def measure(self, view: Array) -> Value:
        """The number of elements into the view, and a copy of sizes and strides; whether elements lie row-major, by strides that count
        them.
        """
        code, sizes, steps = self.code, view.at(at.SIZES), view.at(at.STEPS)
        axes = self.axes(view)
        self.guard.expect(axes <= at.MAX_AXES)
        shape, strides = (code.slots(view.read(slot)) for slot in (at.SHAPE_AT, at.STRIDES_AT))
        size, strided = code.variable(1), code.variable(False)
        with code.loop(0, axes) as behind:
            axis = axes - 1 - behind
            length, stride = shape.read(axis), strides.read(axis)
            strided.set(strided.get() | (length != 1) & (stride != size.get()))
            size.set(size.get() * length)
            sizes.write(axis, length)
            steps.write(axis, stride)
        view.write(at.SIZE, size.get())
        view.write(at.SHAPE_AT, sizes.address())
        view.write(at.STRIDES_AT, steps.address())
        return ~strided.get()

    def note_python(self, ran: Value | bool) -> None:
        """Whether Python code may have run just now."""
        self.python_ran.set(self.python_ran.get() | ran)

    def look_again(self) -> None:
        """Read the arguments again if Python code may have run since, a finaliser's or a signal handler's say: what it changed
        the slow path has to look at.
        """
        code, again = self.code, self.code.frame("i64", at.VIEW_SLOTS)
        with (
            code.when(self.python_ran.get()),
            code.loop(0, self.arrays) as index,
            code.when(self.is_given(index)),
        ):
            seen = self.view(index)
            self.look(index, again)
            for slot in (at.DATA, at.DEVICE, at.KIND, at.OFFSET, at.WRITABLE):
                self.guard.expect(again.read(slot) == seen.read(slot))
            with code.loop(0, self.axes(seen)) as axis:
                for sides in (at.SIZES, at.STEPS):
                    self.guard.expect(again.at(sides).read(axis) == seen.at(sides).read(axis))

    # Python's objects.

    def pack(self, numbers: Array, count: Value) -> Value:
        """Integers as a tuple."""
        packed = self.new_tuple(count)
        with self.code.loop(0, count) as index:
            self.put(packed, index, self.control.call(at.FROM_INT64, "i64", numbers.read(index)))
        return packed

    def new_tuple(self, count: Value) -> Value:
        """One to be filled."""
        fresh = self.control.call(at.TUPLE_NEW, "i64", count)
        self.note_python(self.control.flag(at.COLLECTS))
        self.fail_without(fresh)
        return fresh

    def put(self, into: Value, index: Value, item: Value) -> None:
        """An object into a tuple, which has it from then on; memory may have been too short for one."""
        with self.code.when(item == 0):
            self.drop(into)
        self.fail_without(item)
        self.control.call(at.TUPLE_SET, "i32", into, index, item)

    def drop(self, item: Value) -> None:
        self.control.call(at.DECREF, None, item)

    def fail_without(self, item: Value) -> None:
        """Raise what a function raised that returned no object."""
        with self.code.when(item == 0, likely=False):
            self.fail()

    @functools.cached_property
    def fail(self) -> Callable[[], None]:
        return self.code.ending(self.write_failure)

    def write_failure(self) -> None:
        self.release()
        self.code.leave(self.code.integer(0))

    def release(self) -> None:
        """Drop what is owned where nothing is returned."""
        self.drop_items()
        for owned in (self.result.get(), self.keep.get()):
            with self.code.when(owned != 0):
                self.drop(owned)

    def drop_items(self) -> None:
        with self.code.loop(0, self.prepared.get()) as index:
            self.drop(self.items.read(index))
        self.prepared.set(self.code.integer(0))


class Search(Reader):
    """The function being written, as far as it compares what was read with cache entries."""

    def __init__(self, code: Code, control: Array, given: Array) -> None:
        super().__init__(code, control, given)
        # Constants for other numbers than an entry's, computed while searching.
        self.moved = code.variable(False)
        self.derived = code.frame("i64", at.MAX_CONSTANTS)

    def entries(self) -> Value:
        return self.control.read(at.ENTRIES)

    def entry(self, index: Value) -> Array:
        return self.code.slots(self.control.read(at.TABLE)).at(index * at.ENTRY_SLOTS)

    def array_of(self, entry: Array, index: Value) -> Array:
        """What an entry says of an array."""
        return entry.at(index * at.ARRAY_SLOTS + at.FIRST_ARRAY)

    def search(self) -> Array:
        """The first entry whose guards all hold."""
        code, place = self.code, self.code.variable(0)
        with code.first_of() as hit:
            with code.loop(0, self.entries()) as index, guarded(code) as guard:
                entry = self.entry(index)
                self.moved.set(False)
                with code.when(entry.read(at.SHAPE_SOURCE) == self.arrays, likely=False):
                    self.broadcast(guard, self.view(self.arrays))
                with code.loop(0, self.arrays) as array:
                    self.compare(guard, entry, self.array_of(entry, array), self.view(array))
                with code.loop(0, self.options) as option:
                    self.compare_option(guard, entry, option)
                with code.when(self.moved.get() & (entry.read(at.DERIVE) != 0)):
                    self.derive(guard, entry)
                place.set(index)
                hit()
            self.guard.fail()
        return self.entry(place.get())

    def compare(self, guard: Guard, entry: Array, expected: Array, view: Array) -> None:
        code, pattern, library = self.code, expected.read(at.PATTERN), view.read(at.LIBRARY)
        with code.either(pattern == at.MISSING) as (missing, present):
            with missing:
                guard.expect(library == at.ABSENT)
            with present:
                guard.expect(library == entry.read(at.ENTRY_LIBRARY))
                guard.expect(expected.read(at.FIRST) == view.read(at.DEVICE))
                guard.expect((expected.read(at.SECOND) >> 32) == view.read(at.KIND) >> 32)
                with code.either(pattern == at.SAME) as (same, follows):
                    with same:
                        self.compare_same(guard, expected, view)
                    with follows:
                        self.compare_with_source(guard, entry, expected, view)

    def compare_same(self, guard: Guard, expected: Array, view: Array) -> None:
        axes = self.axes(view)
        guard.expect(axes == (expected.read(at.SECOND) & LOW_HALF))
        with self.code.loop(0, axes) as axis:
            for known, seen in ((at.SHAPE, at.SIZES), (at.STRIDES, at.STEPS)):
                guard.expect(expected.at(known).read(axis) == view.at(seen).read(axis))

    def compare_with_source(self, guard: Guard, entry: Array, expected: Array, view: Array) -> None:
        """A shape that follows from the shape source's, of a size that the entry serves."""
        code, source, pattern = (
            self.code,
            self.view(entry.read(at.SHAPE_SOURCE)),
            expected.read(at.PATTERN),
        )
        count, rank = source.read(at.SIZE), self.axes(source)
        axes, dense, classes = (
            self.axes(view),
            view.flag(at.IS_CONTIGUOUS),
            entry.read(at.SOURCE_AXES),
        )
        guard.expect((count >= entry.read(at.COUNT_FROM)) & (count < entry.read(at.COUNT_BELOW)))
        guard.expect((classes == 0) | (classes == rank))
        known_axes = (pattern == at.DENSE).choose(rank, expected.read(at.SECOND) & LOW_HALF)
        with code.either(pattern == at.ONE) as (single, more):
            with single:
                guard.expect((view.read(at.SIZE) == 1) & (axes <= rank))
            with more:
                guard.expect((axes == known_axes) & (axes <= rank))
                # Strided arrays have an entry of their own: row-major ones are taken as they are.
                whole = (classes != 0) | (view.read(at.SIZE) == count)
                guard.expect((pattern == at.LAID).choose(~(dense & whole), dense))
                with code.either(classes == 0) as (elementwise, with_classes):
                    with elementwise:
                        self.compare_broadcast(guard, expected, view, source)
                    with with_classes:
                        self.compare_some(guard, entry, expected, view, source)

    def compare_broadcast(self, guard: Guard, expected: Array, view: Array, source: Array) -> None:
        """The source's lengths, from the last axis on; one element along axes that the mask lacks."""
        axes, mask = self.axes(view), expected.read(at.MASK)
        before, dense = self.axes(source) - axes, expected.read(at.PATTERN) == at.DENSE
        with self.code.loop(0, axes) as axis:
            wanted = (dense | mask.bit(axis)).choose(self.length(source, axis + before), 1)
            guard.expect(self.length(view, axis) == wanted)

    def compare_some(
        self, guard: Guard, entry: Array, expected: Array, view: Array, source: Array
    ) -> None:
        """The source's lengths along the axes of the mask, in their order; or half of one."""
        code, axis, mask = self.code, self.code.variable(0), expected.read(at.MASK)
        halved, along = expected.read(at.PATTERN) == at.HALF, entry.read(at.CLASS_AXIS)
        with code.loop(0, self.axes(source)) as whole, code.when(mask.bit(whole)):
            length = self.length(view, axis.get())
            length = (halved & (whole == along)).choose(length * 2, length)
            guard.expect(length == self.length(source, whole))
            axis.set(axis.get() + 1)

    def broadcast(self, guard: Guard, common: Array) -> None:
        """The shape that all inputs broadcast to, where none has it, into a view of no array; no product of its lengths but the whole
        is beyond 31 bits.
        """
        code, sizes = self.code, common.at(at.SIZES)
        axes, size = code.variable(0), code.variable(1)
        with code.loop(0, self.inputs) as index:
            rank = self.axes(self.view(index))
            axes.set((rank > axes.get()).choose(rank, axes.get()))
        with code.loop(0, axes.get()) as axis:
            sizes.write(axis, 1)
        with code.loop(0, self.inputs) as index:
            view = self.view(index)
            into = sizes.at(axes.get() - self.axes(view))
            with code.loop(0, self.axes(view)) as axis:
                length = self.length(view, axis)
                with code.when(length != 1):
                    guard.expect((into.read(axis) == 1) | (into.read(axis) == length))
                    into.write(axis, length)
        with code.loop(0, axes.get()) as axis:
            guard.expect(size.get().below(1 << 31) & sizes.read(axis).below(1 << 31))
            size.set(size.get() * sizes.read(axis))
        common.write(at.KIND, axes.get())
        common.write(at.SIZE, size.get())
        common.write(at.SHAPE_AT, sizes.address())

    # Options.

    def compare_option(self, guard: Guard, entry: Array, index: Value) -> None:
        """The same object, or a float or an integer of the same bits, or another number where it is free."""
        code, control = self.code, self.control
        expected = entry.at(index * at.OPTION_SLOTS + at.FIRST_OPTION)
        item = self.number(index)
        with code.when(item != expected.read(at.OBJECT)):
            kind = code.slots(item).read(objects.OBJECT_TYPE)
            guard.expect(kind == expected.read(at.TYPE))
            with code.either(kind == control.read(at.FLOAT)) as (floating, integer):
                with floating:
                    bits = code.slots(item).read(objects.FLOAT_VALUE)
                    with code.when(bits != expected.read(at.BITS)):
                        self.compare_number(guard, expected, bits.bits_as("f64"))
                with integer:
                    value = control.call(at.AS_INT64, "i64", item)
                    with code.when(value == -1):  # or too large for 64 bits
                        too_large = control.call(at.ERROR, "i64") != 0
                        control.call(at.CLEAR, None)
                        guard.expect(~too_large)
                    guard.expect((value == expected.read(at.BITS)) | expected.flag(at.FREE))

    def number(self, index: Value) -> Value:
        """The float or integer that an option is."""
        return self.given.read(self.arrays + index)

    def compare_number(self, guard: Guard, expected: Array, number: Value) -> None:
        """Another float than an entry was made with; NaN is within no bounds."""
        self.moved.set(True)
        free, known = expected.read(at.FREE), expected.read(at.BITS).bits_as("f64")
        least, most = (expected.read(end).bits_as("f64") for end in (at.LEAST, at.MOST))
        guard.expect(free != at.FIXED)
        guard.expect((number >= least) & (number <= most))
        zero, was_zero = (value.to("f32") == 0.0 for value in (number, known))
        guard.expect((free != at.ANOTHER_BUT_ZERO) | ~(zero ^ was_zero))

    def derive(self, guard: Guard, entry: Array) -> None:
        """The constants of an entry for other floats than it was made with, if it serves them."""
        code, numbers = self.code, self.code.frame("f64", at.MAX_DERIVED)
        with code.loop(0, entry.read(at.DERIVED)) as index:
            numbers.write(index, self.word(entry.at(at.SOURCE).read(index)).bits_as("f64"))
        with code.loop(0, entry.read(at.CONSTANTS)) as index:
            self.derived.write(index, entry.at(at.CONSTANT).read(index))
        guard.expect(code.call(entry.read(at.DERIVE), "i64", numbers, self.derived) != 0)

    def word(self, option: Value) -> Value:
        """A float's bits, or an integer."""
        code, item, word = self.code, self.number(option), self.code.variable(0)
        is_float = code.slots(item).read(objects.OBJECT_TYPE) == self.control.read(at.FLOAT)
        with code.either(is_float) as (floating, integer):
            with floating:
                word.set(code.slots(item).read(objects.FLOAT_VALUE))
            with integer:
                word.set(self.control.call(at.AS_INT64, "i64", item))
        return word.get()
