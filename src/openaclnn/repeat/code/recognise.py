"""Recognise: find the cache entry that was made of a call like this one."""

from __future__ import annotations

from openaclnn.engines.machine import objects
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat.code.arguments import LOW_HALF, Guard, Reader, guarded
from openaclnn.repeat.words import slots as at


class Search(Reader):
    """The function being written, as far as it compares what was read with cache entries."""

    def __init__(self, code: Code, control: Array, arguments: Array) -> None:
        super().__init__(code, control, arguments)
        self.option_types, self.option_words = (code.frame("i64", at.MAX_OPTIONS) for _ in range(2))
        # Constants for other numbers than an entry's, computed while searching.
        self.moved = code.variable(False)
        self.derived = code.frame("i64", at.MAX_CONSTANTS)

    def array_of(self, entry: Array, index: Value) -> Array:
        """What an entry says of an array."""
        return entry.at(index * at.ARRAY_SLOTS + at.FIRST_ARRAY)

    def search(self) -> Array:
        """The first entry whose guards all hold. It does not change, and is there while whoever reads it is counted or holds it."""
        code, place = self.code, self.code.variable(0)
        entries = code.slots(code.read_shared(code.slots(self.control.read(at.ENTRY_LIST)), 0))
        with code.first_of() as hit:
            with code.loop(0, entries.read(0)) as index, guarded(code) as guard:
                entry = code.slots(entries.read(index + 1))
                self.moved.set(False)
                with code.when(entry.read(at.SHAPE_SOURCE) == self.arrays, likely=False):
                    self.broadcast(guard, self.view(self.arrays))
                with code.loop(0, self.arrays) as array:
                    self.compare(guard, entry, self.array_of(entry, array), self.view(array))
                with code.loop(0, self.options) as option:
                    self.compare_option(guard, entry, option)
                with code.when(self.moved.get() & (entry.read(at.DERIVE) != 0)):
                    self.derive(guard, entry)
                place.set(entry.address())
                hit()
            self.guard.fail()
        return code.slots(place.get())

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
        axes, dense, fixed_rank = (
            self.axes(view),
            view.flag(at.IS_CONTIGUOUS),
            entry.read(at.SOURCE_AXES),
        )
        guard.expect((count >= entry.read(at.COUNT_FROM)) & (count < entry.read(at.COUNT_BELOW)))
        guard.expect((fixed_rank == 0) | (fixed_rank == rank))
        known_axes = (pattern == at.DENSE).choose(rank, expected.read(at.SECOND) & LOW_HALF)
        with code.either(pattern == at.ONE) as (single, more):
            with single:
                guard.expect((view.read(at.SIZE) == 1) & (axes <= rank))
            with more:
                guard.expect(axes == known_axes)
                # Strided arrays have an entry of their own: row-major ones are taken as they are.
                whole = (entry.read(at.CLASS_AXIS) >= 0) | (view.read(at.SIZE) == count)
                guard.expect((pattern == at.LAID).choose(~(dense & whole), dense))
                with code.loop(0, axes) as axis:
                    length = self.followed_length(guard, expected, source, axis)
                    guard.expect(self.length(view, axis) == length)

    def followed_length(self, guard: Guard, array: Array, source: Array, axis: Value) -> Value:
        """The length of an array along an axis, as it follows from the source's."""
        follows = array.read(at.FOLLOWS) >> axis * 8
        length, halved = self.length(source, follows & (at.MAX_AXES - 1)), (follows & at.HALF) != 0
        guard.expect(~halved | ((length & 1) == 0))
        length = halved.choose(length >> 1, length)
        return ((follows & at.STRETCHED) != 0).choose(1, length)

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

    def read_options(self) -> None:
        """Of each option its type and the bits of a number, or 0 and the object."""
        code, control = self.code, self.control
        with code.loop(0, self.options) as index:
            item = self.option(index)
            kind, word, known = (
                code.slots(item).read(objects.OBJECT_TYPE),
                code.variable(item),
                code.variable(False),
            )
            with code.when(kind == control.read(at.FLOAT)):
                word.set(code.slots(item).read(objects.FLOAT_VALUE))
                known.set(True)
            with code.when(kind == control.read(at.INT)):
                value = control.call(at.AS_INT64, "i64", item)
                known.set((value != -1) | (control.call(at.ERROR, "i64") == 0))
                control.call(at.CLEAR, None)  # too large for 64 bits
                word.set(known.get().choose(value, item))
            self.option_types.write(index, known.get().choose(kind, 0))
            self.option_words.write(index, word.get())

    def option(self, index: Value) -> Value:
        """What was passed for an option."""
        return self.arguments.read(self.arrays + index)

    def compare_option(self, guard: Guard, entry: Array, index: Value) -> None:
        """The same object, or a float or an integer of the same bits, or another number where it is free."""
        code, expected = self.code, entry.at(index * at.OPTION_SLOTS + at.FIRST_OPTION)
        kind, word = self.option_types.read(index), self.option_words.read(index)
        guard.expect(kind == expected.read(at.TYPE))
        with code.when(word != expected.read(at.BITS)):
            guard.expect(expected.flag(at.FREE))
            with code.when(kind == self.control.read(at.FLOAT)):
                self.compare_number(guard, expected, word.bits_as("f64"))

    def compare_number(self, guard: Guard, expected: Array, number: Value) -> None:
        """Another float than an entry was made with; NaN is within no bounds."""
        self.moved.set(True)
        free, known = expected.read(at.FREE), expected.read(at.BITS).bits_as("f64")
        least, most = (expected.read(end).bits_as("f64") for end in (at.LEAST, at.MOST))
        guard.expect((number >= least) & (number <= most))
        zero, was_zero = (value.to("f32") == 0.0 for value in (number, known))
        guard.expect((free != at.ANOTHER_BUT_ZERO) | ~(zero ^ was_zero))

    def derive(self, guard: Guard, entry: Array) -> None:
        """The constants of an entry for other floats than it was made with, if it serves them."""
        code, numbers = self.code, self.code.frame("f64", at.MAX_DERIVED)
        with code.loop(0, entry.read(at.DERIVED)) as index:
            numbers.write(index, self.derived_from(entry, index).bits_as("f64"))
        with code.loop(0, entry.read(at.CONSTANTS)) as index:
            self.derived.write(index, entry.at(at.CONSTANT).read(index))
        guard.expect(code.call(entry.read(at.DERIVE), "i64", numbers, self.derived) != 0)

    def derived_from(self, entry: Array, index: Value) -> Value:
        """A number that constants derive from, or that a sized runner takes: an integer, or a float's bits."""
        return self.option_words.read(entry.at(at.SOURCE).read(index))
