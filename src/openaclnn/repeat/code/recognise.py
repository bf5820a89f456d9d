"""Recognise: read a call's arguments, NumPy's arrays and PyTorch's tensors, into views, and find the cache entry that was made of a call like this one.

A guard is a condition that must hold; where one fails, the code goes on behind its block: with the next entry, or with the slow path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from openaclnn.engines.machine import objects
from openaclnn.engines.machine.callers import Interpreter
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat import slots as at

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


class Reader(Interpreter):
    """The function being written, as far as it reads arguments into views."""

    guard: Guard  # of the whole call: the slow path takes it where this fails
    asks = True  # whether what is being written reads an argument for the first time

    def __init__(self, code: Code, control: Array, arguments: Array) -> None:
        self.code, self.control, self.arguments = code, control, arguments
        self.arrays, self.options = control.read(at.ARRAYS), control.read(at.OPTIONS)
        self.outputs = control.read(at.OUTPUTS)
        self.inputs = self.arrays - self.outputs  # the outputs follow them
        self.absent = self.object("None")  # in the place of an array
        # Of each array, and one more: of the shape that the inputs broadcast to.
        self.views = code.frame("i64", (at.MAX_ARRAYS + 1) * at.VIEW_SLOTS)
        # What is owned: a fresh result, and what the entry relies on.
        self.result, self.keep = (code.variable(0) for _ in range(2))
        self.python_ran = code.variable(False)  # since arguments were read
        self.undisturbed = code.variable(False)  # nobody's Python code hears what tensors are asked
        self.below = code.variable(False)  # a kernel of PyTorch's dispatcher is calling

    def is_given(self, index: Value) -> Value:
        return self.arguments.read(index) != self.absent

    def expect_nothing_chosen(self) -> None:
        """No `use_product` and no `use_engine` block around the call; the context is asked if there is one at all."""
        control = self.control
        references = self.code.slots(control.read(at.CHOSEN)).read(0) & LOW_HALF
        with self.code.when(references > control.read(at.CHOSEN_NOWHERE), likely=False):
            self.guard.expect(~self.is_chosen())

    def is_chosen(self) -> Value:
        """What the context says."""
        code, control, none = self.code, self.control, self.object("None")
        chosen = code.variable(False)
        for variable in (at.PRODUCT, at.ENGINE):
            place = code.frame("i64", 1)
            place.write(0, none)
            self.python("PyContextVar_Get", "i32", control.read(variable), none, place)
            chosen.set(chosen.get() | (place.read(0) != none))
            self.drop(place.read(0))
        return chosen.get()

    # Views.

    def view(self, index: Value) -> Array:
        return self.views.at(index * at.VIEW_SLOTS)

    def axes(self, view: Array) -> Value:
        return view.read(at.KIND) & LOW_HALF

    def length(self, view: Array, axis: Value) -> Value:
        return view.at(at.SIZES).read(axis)

    def look(self, index: Value, view: Array) -> None:
        """What is known of an argument into a view."""
        item = self.arguments.read(index)
        for slot in (at.LIBRARY, at.KIND, at.SIZE):  # without axes: nobody asks for their lengths
            view.write(slot, at.ABSENT)
        with self.code.when(item != self.absent):
            self.look_at(item, view)
            # Elements without memory: the slow path says what that is.
            self.guard.expect((view.read(at.DATA) != 0) | (view.read(at.SIZE) == 0))

    def look_at(self, item: Value, view: Array) -> None:
        code, control = self.code, self.control
        kind = code.slots(item).read(objects.OBJECT_TYPE)
        with code.either(kind == control.read(at.NDARRAY)) as (numpy, other):
            with numpy:
                self.look_at_numpy(item, view)
            with other:
                types = (control.read(slot) for slot in (at.TENSOR, at.PARAMETER))
                tensor, parameter = (kind == known for known in types)
                self.guard.expect(tensor | parameter)
                self.look_at_torch(item, view)

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
        return ~strided.get()

    def look_at_torch(self, item: Value, view: Array) -> None:
        storage = self.code.frame("i64", 2)
        if self.asks:
            with self.code.when(~self.below.get()):
                self.expect_plain(item)
            self.measure_storage(item, storage)
        self.describe(item, view)
        self.guard.expect(view.read(at.STRIDES_AT) != 0)
        view.write(at.LIBRARY, at.TORCH)
        view.write(at.WRITABLE, 1)
        view.write(at.IS_CONTIGUOUS, self.measure(view).to("i64"))
        if self.asks:
            self.expect_in_storage(view, storage.read(0), storage.read(1))

    def describe(self, item: Value, view: Array) -> None:
        """What DLPack tells of a tensor."""
        self.expect_success(self.control.call(at.FROM_PYTHON, "i32", item, view))

    def expect_plain(self, item: Value) -> None:
        """That a tensor's memory says what its elements are. Where a mode's Python code would hear what is asked, and might
        change what was read, nothing is asked.
        """
        with self.code.when(~self.undisturbed.get()):
            self.expect_false(at.HAS_MODE, item)
            self.undisturbed.set(True)
        self.expect_false(at.IS_NEGATED, item)

    def measure_storage(self, item: Value, words: Array) -> None:
        """Where in its storage a tensor begins, and how many bytes that has: it may have been made shorter."""
        words.write(0, self.number_of(self.ask(at.STORAGE_OFFSET, item)))
        storage = self.ask(at.STORAGE, item)
        self.note_python(self.control.flag(at.COLLECTS))
        size = self.python("PyObject_Size", "i64", storage)
        self.leave_storage(item, storage)
        self.expect_success((size < 0).to("i64"))
        words.write(1, size)

    def leave_storage(self, item: Value, storage: Value) -> None:
        """A tensor's storage was asked for what is wanted of it."""
        self.drop(storage)

    def expect_in_storage(self, view: Array, offset: Value, size: Value) -> None:
        """A tensor lies inside its storage, by where it begins there and how many bytes that has, and the storage in memory."""
        code, beyond = self.code, self.code.variable(view.read(at.SIZE))
        with code.when(view.read(at.IS_CONTIGUOUS) == 0):
            beyond.set(code.integer(1))  # elements from the first to beyond the last
            with code.loop(0, self.axes(view)) as axis:
                reach = (view.at(at.SIZES).read(axis) - 1) * view.at(at.STEPS).read(axis)
                beyond.set(beyond.get() + reach)
        item = self.item_size(view.read(at.KIND))
        inside = (offset + beyond.get()) * item <= size
        inside = inside & (view.read(at.DATA) + view.read(at.OFFSET) != offset * item)
        self.guard.expect(inside | (view.read(at.SIZE) == 0))

    def fresh_address(self, item: Value, library: Value) -> Value:
        """Where the elements of an array lie that was just made: nothing else can be strange about it."""
        code, address = self.code, self.code.variable(0)
        with code.either(library == at.NUMPY) as (numpy, torch):
            with numpy:
                address.set(code.slots(item).read(objects.ARRAY_DATA))
            with torch:
                words = code.frame("i64", at.LIBRARY)
                self.describe(item, words)
                address.set(words.read(at.DATA) + words.read(at.OFFSET))
        return address.get()

    def note_python(self, ran: Value | bool) -> None:
        """Whether Python code may have run just now."""
        self.python_ran.set(self.python_ran.get() | ran)

    def look_again(self) -> None:
        """Read the arguments again if Python code may have run since, a finaliser's or a signal handler's say: what it changed
        the slow path has to look at. Of a tensor, what DLPack tells is enough: a storage that was resized has other memory.
        """
        code, again = self.code, self.code.frame("i64", at.VIEW_SLOTS)
        with (
            code.when(self.python_ran.get()),
            code.loop(0, self.arrays) as index,
            code.when(self.is_given(index)),
        ):
            seen = self.view(index)
            self.asks = False
            self.look(index, again)
            self.asks = True
            for slot in (at.DATA, at.DEVICE, at.KIND, at.OFFSET, at.WRITABLE):
                self.guard.expect(again.read(slot) == seen.read(slot))
            with code.loop(0, self.axes(seen)) as axis:
                for sides in (at.SIZES, at.STEPS):
                    self.guard.expect(again.at(sides).read(axis) == seen.at(sides).read(axis))

    # Python's objects.

    def new_tuple(self, count: Value) -> Value:
        self.note_python(self.control.flag(at.COLLECTS))
        return super().new_tuple(count)

    def write_failure(self) -> None:
        self.release()
        self.code.leave(self.code.integer(0))

    def release(self) -> None:
        """Drop what is owned where nothing is returned."""
        for owned in (self.result.get(), self.keep.get()):
            with self.code.when(owned != 0):
                self.drop(owned)

    def ask(self, function: int, *items: Value) -> Value:
        """What one of them answers, owned."""
        return self.answer(self.call_object(self.control.read(function), *items))

    def answer(self, item: Value) -> Value:
        """An object; what was raised instead nobody is to see."""
        with self.code.when(item == 0, likely=False):
            self.python("PyErr_Clear", None)
            self.guard.fail()
        return item

    def expect_false(self, function: int, *items: Value) -> None:
        answer = self.ask(function, *items)
        self.drop(answer)
        self.guard.expect(answer == self.object("False"))

    def number_of(self, answer: Value) -> Value:
        """The integer that an answer is."""
        number = self.python("PyLong_AsLongLong", "i64", answer)
        self.drop(answer)
        return number

    def item_size(self, kind: Value) -> Value:
        """By DLPack's number of bits."""
        return (kind >> 40 & 0xFF) >> 3

    def expect_success(self, status: Value) -> None:
        """Of a function of PyTorch's: 0, or an exception that nobody is to see."""
        with self.code.when(status != 0, likely=False):
            self.python("PyErr_Clear", None)
            self.guard.fail()


class Search(Reader):
    """The function being written, as far as it compares what was read with cache entries."""

    def __init__(self, code: Code, control: Array, arguments: Array) -> None:
        super().__init__(code, control, arguments)
        self.option_types, self.option_words = (code.frame("i64", at.MAX_OPTIONS) for _ in range(2))
        self.moved = code.variable(False)  # whether options are other numbers than an entry's
        self.numbers = code.frame("i64", at.MAX_CONSTANTS)  # that the runner takes

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
                    self.write_common_shape(guard, entry, self.view(self.arrays))
                with code.loop(0, self.arrays) as array:
                    self.compare(guard, entry, self.array_of(entry, array), self.view(array))
                with code.loop(0, self.options) as option:
                    self.compare_option(guard, entry, option)
                self.take_numbers(guard, entry)
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
            length, stride = (expected.at(slot).read(axis) for slot in (at.SHAPE, at.STRIDES))
            guard.expect(length == view.at(at.SIZES).read(axis))
            guard.expect((length == 1) | (stride == view.at(at.STEPS).read(axis)))

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
        classes = entry.read(at.SOURCE_CLASSES)
        with code.when(classes != 0):
            guard.expect(self.length(source, entry.read(at.CLASS_AXIS)) == classes)
        known_axes = (pattern == at.DENSE).choose(rank, expected.read(at.SECOND) & LOW_HALF)
        guard.expect(axes == known_axes)
        # Strided arrays have an entry of their own: row-major ones are taken as they are.
        unstretched = (expected.read(at.FOLLOWS) & at.ANY_STRETCHED) == 0
        of_role = (entry.read(at.CLASS_AXIS) >= 0) & unstretched
        whole = of_role | (view.read(at.SIZE) == count)
        guard.expect((pattern == at.LAID).choose(~(dense & whole), dense))
        with code.loop(0, axes) as axis:
            length = self.followed_length(expected, source, axis)
            guard.expect(self.length(view, axis) == length)

    def followed_length(self, array: Array, source: Array, axis: Value) -> Value:
        """The length of an array along an axis, as it follows from the source's."""
        follows = array.read(at.FOLLOWS) >> axis * 8
        length = self.length(source, follows & (at.MAX_AXES - 1))
        length = ((follows & at.DOUBLED) != 0).choose(length << 1, length)
        return ((follows & at.STRETCHED) != 0).choose(1, length)

    def write_common_shape(self, guard: Guard, entry: Array, common: Array) -> None:
        """The shape that a kernel runs over, where no input has it, into a view of no array."""
        with self.code.either(entry.read(at.HALVED) < 0) as (stretched, halved):
            with stretched:
                self.broadcast(guard, common)
            with halved:
                self.halve(guard, entry, common)

    def broadcast(self, guard: Guard, common: Array) -> None:
        """The shape that all inputs broadcast to; no product of its lengths but the whole
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

    def halve(self, guard: Guard, entry: Array, half: Array) -> None:
        """The shape of half an array along an axis."""
        whole, along, sizes = (
            self.view(entry.read(at.HALVED)),
            entry.read(at.HALF_AXIS),
            half.at(at.SIZES),
        )
        guard.expect(self.axes(whole) == entry.read(at.SOURCE_AXES))
        with self.code.loop(0, self.axes(whole)) as axis:
            sizes.write(axis, self.length(whole, axis))
        guard.expect((sizes.read(along) & 1) == 0)
        sizes.write(along, sizes.read(along) >> 1)
        half.write(at.KIND, self.axes(whole))
        half.write(at.SIZE, whole.read(at.SIZE) >> 1)

    # Options.

    def read_options(self) -> None:
        """Of each option its type and the bits of a number, or 0 and the object."""
        code = self.code
        with code.loop(0, self.options) as index:
            item = self.option(index)
            kind, word, known = (
                code.slots(item).read(objects.OBJECT_TYPE),
                code.variable(item),
                code.variable(False),
            )
            with code.when(kind == self.object("float")):
                word.set(code.slots(item).read(objects.FLOAT_VALUE))
                known.set(True)
            with code.when(kind == self.object("int")):
                value = self.python("PyLong_AsLongLong", "i64", item)
                known.set((value != -1) | (self.python("PyErr_Occurred", "i64") == 0))
                self.python("PyErr_Clear", None)  # too large for 64 bits
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
            free = expected.read(at.FREE)
            guard.expect(free != at.FIXED)
            with code.when(free != at.INTEGER):
                self.compare_number(guard, expected, word)

    def number(self, expected: Array, word: Value) -> Value:
        """An option's word as a float."""
        is_integer = expected.read(at.TYPE) == self.object("int")
        return is_integer.choose(word.to("f64"), word.bits_as("f64"))

    def compare_number(self, guard: Guard, expected: Array, word: Value) -> None:
        """Another number than an entry was made with; NaN is within no bounds."""
        self.moved.set(True)
        free, number, known = expected.read(at.FREE), self.number(expected, word), self.number(expected, expected.read(at.BITS))  # fmt: skip
        least, most = (expected.read(end).bits_as("f64") for end in (at.LEAST, at.MOST))
        guard.expect((number >= least) & (number <= most))
        zero, was_zero = (self.held(expected, each).to("f32") == 0.0 for each in (number, known))
        guard.expect((free != at.ANOTHER_BUT_ZERO) | ~(zero ^ was_zero))

    def take_numbers(self, guard: Guard, entry: Array) -> None:
        """The numbers that a runner takes; where constants derive from other options than an entry's, if the entry serves those."""
        code, constants, derived = self.code, entry.read(at.CONSTANTS), entry.read(at.DERIVED)
        with code.loop(0, constants) as index:
            self.numbers.write(index, entry.at(at.CONSTANT).read(index))
        with code.either(constants == 0) as (options, known):
            with options, code.loop(0, derived) as index:
                self.numbers.write(index, self.derived_from(entry, index))
            with known, code.when(self.moved.get() & (entry.read(at.DERIVE) != 0)):
                others = code.frame("i64", at.MAX_DERIVED)
                with code.loop(0, derived) as index:
                    others.write(index, self.derived_from(entry, index))
                served = code.call(entry.read(at.DERIVE), "i64", others, self.numbers)
                guard.expect(served != 0)

    def number_count(self, entry: Array) -> Value:
        constants = entry.read(at.CONSTANTS)
        return (constants == 0).choose(entry.read(at.DERIVED), constants)

    def derived_from(self, entry: Array, index: Value) -> Value:
        """A number that constants derive from, or that a sized runner takes: an integer, or a float's bits."""
        source = entry.at(at.SOURCE).read(index)
        option = entry.at(source * at.OPTION_SLOTS + at.FIRST_OPTION)
        word = self.option_words.read(source)
        number = self.held(option, self.number(option, word)).bits_as("i64")
        return (option.read(at.FREE) == at.INTEGER).choose(word, number)

    def held(self, option: Array, number: Value) -> Value:
        """A number as the option's dtype holds it. FLOAT's bits are rounded; but what is subnormal in FLOAT16 is added to a number whose last
        place is 2^-24, and subtracted again."""
        code, dropped, result = self.code, option.read(at.DROPPED_BITS), self.code.variable(number)
        with code.when(dropped != 0):
            rounded = number.to("f32")
            bits, unit = rounded.bits_as("i32").unsigned("i64"), code.integer(1) << dropped
            bits = (bits + (unit >> 1) - 1 + ((bits >> dropped) & 1)) & -unit
            result.set(bits.to("i32").bits_as("f32").to("f64"))
            small = abs(rounded.to("f64"))
            with code.when((dropped == at.FLOAT16_DROPS) & (small < 2.0**-14)):
                sign = number.bits_as("i64") & -(1 << 63)
                small = (small + 1.5 * 2.0**28) - 1.5 * 2.0**28
                result.set((small.bits_as("i64") | sign).bits_as("f64"))
        return result.get()
