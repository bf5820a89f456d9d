"""The first part of the short road's code: what a call says, read from its arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable

from openaclnn.engines.machine import objects
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat.code.doubt import Doubt
from openaclnn.repeat.words import slots as at

__all__ = ["LOW_HALF", "Look"]

LOW_HALF = 0xFFFFFFFF


class Look:
    """The function being written, as far as it reads."""

    def __init__(self, code: Code, control: Array, given: Array) -> None:
        self.code, self.control, self.given = code, control, given
        self.arrays, self.options = control.read(at.ARRAYS), control.read(at.OPTIONS)
        self.outputs = control.read(at.OUTPUTS)
        self.inputs = self.arrays - self.outputs  # the outputs follow them
        self.absent = control.read(at.NONE)  # in the place of an array
        # Of each array, and one more: of the shape that the inputs have together.
        self.views = code.frame("i64", (at.MAX_ARRAYS + 1) * at.VIEW_SLOTS)
        self.wide = code.frame("i64", at.MAX_ARRAYS + at.MAX_OPTIONS)
        self.doubt = Doubt(code)
        self.result, self.keep = (code.variable(0) for _ in range(2))
        self.python_ran = code.variable(False)  # since arguments were read
        self.undisturbed = code.variable(False)  # nobody's Python code hears what tensors are asked

    def widen(self, wanted: Value) -> Array:
        """Where it is wanted, arguments in which each output has a place of its own, instead of one for several; the places."""
        code, given, wide = self.code, self.given, self.wide
        with code.when(wanted):
            with code.loop(0, self.inputs) as index:
                wide.write(index, given.read(index))
            with code.loop(self.inputs, self.arrays) as index:
                wide.write(index, self.absent)
            with code.loop(0, self.options) as index:
                wide.write(self.arrays + index, given.read(self.inputs + 1 + index))
        self.given = code.slots(wanted.choose(wide.address(), given.address()))
        return self.given.at(self.inputs)

    def is_given(self, index: Value) -> Value:
        return self.given.read(index) != self.absent

    def expect_nothing_chosen(self) -> None:
        """No `use_product` and no `use_engine` block around the call; the context is asked if there is one at all."""
        control = self.control
        references = self.code.slots(control.read(at.CHOSEN)).read(0) & LOW_HALF
        with self.code.when(references > control.read(at.CHOSEN_NOWHERE), likely=False):
            self.ask_context()

    def ask_context(self) -> None:
        code, control, none = self.code, self.control, self.control.read(at.NONE)
        for variable in (at.PRODUCT, at.ENGINE):
            place = code.frame("i64", 1)
            place.write(0, none)
            control.call(at.GET_VARIABLE, "i32", control.read(variable), none, place)
            chosen = place.read(0)
            self.doubt.expect(chosen == none)
            self.drop(chosen)

    def expect_no_graph(self) -> None:
        """Nobody records PyTorch's operations in this thread: tracers and modes would not see ours."""
        control = self.control
        self.expect_answer(at.FALSE, self.ask(at.IS_TRACING))
        self.expect_answer(at.FALSE, self.ask(at.KEY_IS_INCLUDED, control.read(at.BEFORE_DISPATCH)))
        self.doubt.expect(self.number_told(self.ask(at.MODES)) == 0)

    def view(self, index: Value) -> Array:
        return self.views.at(index * at.VIEW_SLOTS)

    def look(self, index: Value, view: Array, first: bool = True) -> None:
        """What is known of an argument into a view; if not for the first time, only what tells that it is as before."""
        code, control, item = self.code, self.control, self.given.read(index)
        for own in (at.LIBRARY, at.KIND, at.SIZE):  # without axes: nobody asks for their lengths
            view.write(own, at.ABSENT)
        with code.when(item != self.absent):
            kind = code.slots(item).read(objects.OBJECT_TYPE)
            with code.either(kind == control.read(at.NDARRAY)) as (numpy, other):
                with numpy:
                    self.look_at_numpy(item, view)
                with other:
                    self.look_further(item, view, kind, first)
            with self.doubt.when_none():
                self.expect_memory(view)

    def note_python(self, ran: Value | bool) -> None:
        """Whether Python code may have run just now."""
        self.python_ran.set(self.python_ran.get() | ran)

    def look_again(self) -> None:
        """Read the arguments again if Python code may have run since, a finaliser's or a signal handler's say: what it changed
        the full way has to look at.
        """
        code, doubt, again = self.code, self.doubt, self.code.frame("i64", at.VIEW_SLOTS)
        with (
            code.when(self.python_ran.get()),
            code.loop(0, self.arrays) as index,
            doubt.when_none(),
            code.when(self.is_given(index)),
        ):
            seen = self.view(index)
            self.look(index, again, first=False)
            for own in (at.DATA, at.DEVICE, at.KIND, at.OFFSET, at.WRITABLE):
                doubt.expect(again.read(own) == seen.read(own))
            with doubt.when_none(), code.loop(0, seen.read(at.KIND) & LOW_HALF) as axis:
                for sides in (at.SIZES, at.STEPS):
                    doubt.expect(again.at(sides).read(axis) == seen.at(sides).read(axis))

    def expect_memory(self, view: Array) -> None:
        """Elements without memory: the full way says what that is."""
        self.doubt.expect((view.read(at.DATA) != 0) | (view.read(at.SIZE) == 0))

    def look_further(self, item: Value, view: Array, kind: Value, first: bool) -> None:
        """At what is no NumPy array, by its type."""
        control = self.control
        types = (control.read(own) for own in (at.TENSOR, at.PARAMETER))
        one, other = (kind == own for own in types)
        self.doubt.expect(one | other)
        with self.doubt.when_none():
            self.look_at_torch(item, view, first)

    def look_at_fresh(self, item: Value, view: Array, library: Value) -> None:
        """The same for an array that was just made: nothing can be strange about it but that it has no memory."""
        view.write(at.LIBRARY, library)
        self.read_fresh(item, view, library)
        with self.doubt.when_none():
            self.doubt.expect(view.read(at.DATA) != 0)

    def read_fresh(self, item: Value, view: Array, library: Value) -> None:
        with self.code.either(library == at.NUMPY) as (numpy, torch):
            with numpy:
                self.look_at_numpy(item, view)
            with torch:
                self.describe(item, view)

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
        self.doubt.expect((flags & objects.ALIGNED) != 0)
        with self.doubt.when_none():
            self.measure(view)
            view.write(at.DENSELY, flags & objects.C_CONTIGUOUS)

    def look_at_torch(self, item: Value, view: Array, first: bool) -> None:
        doubt, words = self.doubt, self.code.frame("i64", 2)
        if first:
            self.expect_plain(item)
            with doubt.when_none():
                self.measure_storage(item, words)
        with doubt.when_none():
            self.describe(item, view)
            doubt.expect(view.read(at.STRIDES_AT) != 0)
        view.write(at.LIBRARY, at.TORCH)
        view.write(at.WRITABLE, 1)
        with doubt.when_none():
            view.write(at.DENSELY, self.measure(view).to("i64"))
        if first:
            with doubt.when_none():
                self.expect_in_storage(view, words.read(0), words.read(1))

    def describe(self, item: Value, view: Array) -> None:
        """What DLPack tells of a tensor."""
        self.expect_success(self.control.call(at.FROM_PYTHON, "i32", item, view))

    def expect_plain(self, item: Value) -> None:
        """That a tensor's memory says what its elements are. Where a mode's Python code would hear of what is asked, which may
        change what was read, nothing is.
        """
        with self.code.when(~self.undisturbed.get()):
            self.expect_answer(at.FALSE, self.ask(at.HAS_MODE, item))
            self.undisturbed.set(True)
        with self.doubt.when_none():
            self.expect_answer(at.FALSE, self.ask(at.IS_NEGATED, item))

    def measure_storage(self, item: Value, words: Array) -> None:
        """Where in its storage a tensor begins, and how many bytes that has, which may have been made shorter."""
        words.write(0, self.number_told(self.ask(at.STORAGE_OFFSET, item)))
        storage = self.ask(at.STORAGE, item)
        self.note_python(self.control.flag(at.COLLECTS))
        with self.code.either(storage != 0) as (there, missing):
            with there:
                words.write(1, self.number_told(self.ask(at.STORAGE_BYTES, storage)))
                self.drop(storage)
            with missing:
                self.expect_no_error(storage)

    def expect_in_storage(self, view: Array, offset: Value, size: Value) -> None:
        """A tensor lies inside its storage, by where it begins there and how many bytes that has, and the storage in memory."""
        beyond, item = self.code.variable(view.read(at.SIZE)), self.item_size(view.read(at.KIND))
        with self.code.when(view.read(at.DENSELY) == 0):
            beyond.set(self.reach(view))
        inside = (offset + beyond.get()) * item <= size
        inside = inside & (view.read(at.DATA) + view.read(at.OFFSET) != offset * item)
        self.doubt.expect(inside | (view.read(at.SIZE) == 0))

    def item_size(self, kind: Value) -> Value:
        """By DLPack's number of bits."""
        return (kind >> 40 & 0xFF) >> 3

    def reach(self, view: Array) -> Value:
        """Elements from a tensor's first to beyond its last, by strides that count elements."""
        code, beyond = self.code, self.code.variable(1)
        shape, strides = (code.slots(view.read(own)) for own in (at.SHAPE_AT, at.STRIDES_AT))
        with code.loop(0, view.read(at.KIND) & LOW_HALF) as axis:
            beyond.set(beyond.get() + (shape.read(axis) - 1) * strides.read(axis))
        return beyond.get()

    def expect_no_leaf(self, item: Value) -> None:
        """Autograd would not let a tensor be written that it tracks."""
        control = self.control
        name = control.read(at.REQUIRES_GRAD)
        self.expect_answer(at.FALSE, control.call(at.GET_ATTRIBUTE, "i64", item, name))

    def ask(self, function: int, *items: Value) -> Value:
        """What one of PyTorch's functions answers: an object, or 0 where it raised."""
        given = self.code.frame("i64", len(items) or 1)
        for place, item in enumerate(items):
            given.write(place, item)
        asked = self.control.read(function)
        return self.control.call(at.VECTORCALL, "i64", asked, given, len(items), 0)

    def expect_answer(self, expected: int, answer: Value) -> None:
        """That an answer is one of Python's objects that there is once."""
        self.doubt.expect(answer == self.control.read(expected))
        self.expect_no_error(answer)
        self.control.call(at.DECREF, None, answer)

    def number_told(self, answer: Value) -> Value:
        """The integer that an answer is."""
        number = self.code.variable(0)
        self.expect_no_error(answer)
        with self.code.when(answer != 0):
            number.set(self.control.call(at.AS_INT64, "i64", answer))
            self.drop(answer)
        return number.get()

    def expect_no_error(self, answer: Value) -> None:
        """That there is an answer; what was raised instead nobody is to see."""
        self.doubt.expect(answer != 0)
        with self.code.when(answer == 0, likely=False):
            self.control.call(at.CLEAR, None)

    def measure(self, view: Array) -> Value:
        """The number of elements into the view, and a copy of sizes and strides; whether elements lie row-major, by strides that count
        them.
        """
        code, sizes, steps = self.code, view.at(at.SIZES), view.at(at.STEPS)
        axes = view.read(at.KIND) & LOW_HALF
        self.doubt.expect(axes <= at.MAX_AXES)
        shape, strides = (code.slots(view.read(own)) for own in (at.SHAPE_AT, at.STRIDES_AT))
        size, astray = code.variable(1), code.variable(False)
        with self.doubt.when_none(), code.loop(0, axes) as behind:
            axis = axes - 1 - behind
            length, stride = shape.read(axis), strides.read(axis)
            off = (length != 1) & (stride != size.get())
            astray.set(astray.get() | off)
            size.set(size.get() * length)
            sizes.write(axis, length)
            steps.write(axis, stride)
        view.write(at.SIZE, size.get())
        view.write(at.SHAPE_AT, sizes.address())
        view.write(at.STRIDES_AT, steps.address())
        return ~astray.get()

    # Python's objects.

    def tuple_of(self, view: Array, numbers: int) -> Value:
        """An array's sizes or strides as Python has them."""
        axes = view.read(at.KIND) & LOW_HALF
        return self.pack(self.code.slots(view.read(numbers)), axes)

    def pack(self, numbers: Array, count: Value) -> Value:
        """Integers as a tuple."""
        made = self.new_tuple(count)
        with self.code.loop(0, count) as index:
            self.put(made, index, self.control.call(at.FROM_INT64, "i64", numbers.read(index)))
        return made

    def new_tuple(self, count: Value) -> Value:
        """One to be filled."""
        made = self.control.call(at.TUPLE_NEW, "i64", count)
        self.note_python(self.control.flag(at.COLLECTS))
        self.fail_without(made)
        return made

    def put(self, made: Value, index: Value, item: Value) -> None:
        """An object into a tuple, which has it from then on; memory may have been too short for one."""
        with self.code.when(item == 0):
            self.drop(made)
        self.fail_without(item)
        self.control.call(at.TUPLE_SET, "i32", made, index, item)

    def hold(self, items: Array, count: Value) -> Value:
        """Objects as a tuple."""
        made = self.new_tuple(count)
        with self.code.loop(0, count) as index:
            self.control.call(at.INCREF, None, items.read(index))
            self.control.call(at.TUPLE_SET, "i32", made, index, items.read(index))
        return made

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
        for held in (self.result.get(), self.keep.get()):
            with self.code.when(held != 0):
                self.drop(held)
        self.code.leave(self.code.integer(0))

    def expect_success(self, status: Value) -> None:
        """Of a function of PyTorch's: 0, or an exception that nobody is to see."""
        fine = status == 0
        self.doubt.expect(fine)
        with self.code.when(~fine):
            self.control.call(at.CLEAR, None)
