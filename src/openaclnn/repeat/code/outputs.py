"""The fourth part of the short road's code: the outputs, those that a caller gave and those that the road makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from openaclnn.engines.machine import objects
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat.code.geometry import Geometry
from openaclnn.repeat.words import slots as at

__all__ = ["Outputs"]


class _Making(NamedTuple):
    """What makes outputs, read from a record before any is made: making one runs Python code, which may change the record."""

    make: Value  # the function for small outputs
    large: Value  # and for those
    large_from: Value  # of so many bytes and more
    item: Value  # bytes of an element
    lead: Array
    library: Value
    known: Value  # whether sizes are part of the kind, so that outputs have one shape only


class Outputs(Geometry):
    """The function being written, as far as it is about outputs."""

    def __init__(self, code: Code, control: Array, given: Array) -> None:
        super().__init__(code, control, given)
        self.out = code.variable(0)  # the output, or what stands for several

    def spread(self, places: Array) -> None:
        """Take the outputs out of the tuple that has them all, if there is one."""
        code, control, doubt = self.code, self.control, self.doubt
        out = code.slots(self.out.get())
        with code.when(self.out.get() != self.absent):
            kind = out.read(objects.OBJECT_TYPE)
            one, other = (kind == control.read(own) for own in (at.TUPLE, at.RESULT_TYPE))
            doubt.expect(one | other)
            with doubt.when_none():
                doubt.expect(out.read(objects.TUPLE_LENGTH) == self.outputs)
            with doubt.when_none(), code.loop(0, self.outputs) as index:
                places.write(index, out.read(index + objects.TUPLE_ITEMS))

    def each_given(self, visit: Callable[[Value], None]) -> None:
        """Write code that visits each of the outputs that the caller gave."""
        code = self.code
        with (
            code.loop(self.inputs, self.arrays) as index,
            self.doubt.when_none(),
            code.when(self.is_given(index)),
        ):
            visit(index)

    def expect_free(self, record: Array) -> None:
        """That given outputs are writable, and share no memory with what is read or with each other; the first may be
        exactly the elements of an input.
        """

        def visit(index: Value) -> None:
            own, view = self.own(record, index), self.view(index)
            self.doubt.expect(view.flag(at.WRITABLE))
            with self.code.when(own.read(at.PATTERN) == at.LAID):
                self.expect_scattered(own, view)
            with self.code.when(own.read(at.PLACE) >= 0):
                self.expect_apart(record, index)

        self.each_given(visit)

    def expect_apart(self, record: Array, index: Value) -> None:
        """That an output shares no memory with an operand before it."""
        code, view = self.code, self.view(index)
        low, high = self.span(self.own(record, index), view)
        with self.doubt.when_none(), code.loop(0, index) as before:
            theirs, seen = self.own(record, before), self.view(before)
            with code.when((theirs.read(at.PLACE) >= 0) & self.is_given(before)):
                first, beyond = self.span(theirs, seen)
                apart = ~(first.below(high) & low.below(beyond))
                begin = (self.address(seen) == self.address(view)) & (index == self.inputs)
                self.doubt.expect(apart | begin & self.coincides(record, before))

    def expect_untracked(self, library: Value) -> None:
        """What autograd would not let be written is left to the full way."""
        with self.code.when(library == at.TORCH):
            self.each_given(lambda index: self.expect_no_leaf(self.given.read(index)))

    def take_outputs(self, fresh: Value, library: Value) -> None:
        """Autograd is told what is written; where nothing was made, what was given for outputs is the result."""
        self.count_writes(library)
        with self.code.when(fresh == 0):
            self.control.call(at.INCREF, None, self.out.get())
            self.result.set(self.out.get())

    def count_writes(self, library: Value) -> None:
        """Tell autograd of given outputs that they are written."""
        with self.code.when(library == at.TORCH):
            self.each_given(lambda index: self.count_write(self.given.read(index)))

    def count_write(self, item: Value) -> None:
        """Tell autograd that a tensor is written."""
        told = self.ask(at.COUNT_WRITE, item)
        self.note_python(True)
        self.fail_without(told)
        self.drop(told)

    def expect_ordered(self, record: Array) -> None:
        """Where results lie as inputs do, that these lie as row-major arrays do, whatever lies between their elements."""
        code, axes_made = self.code, record.read(at.SHAPES) & (1 << at.MADE_BIT) - 1
        wanted = self.control.flag(at.ORDERED) & (axes_made != 0)
        with (
            code.when(wanted),
            code.loop(0, self.inputs) as index,
            code.when(self.own(record, index).read(at.PATTERN) == at.LAID),
        ):
            self.expect_descending(self.view(index))

    def expect_descending(self, view: Array) -> None:
        """That an array's strides grow from the last axis to the first, but for those of one element and of 0."""
        code, least = self.code, self.code.variable(0)
        axes = self.axes(view)
        sizes, strides = (code.slots(view.read(own)) for own in (at.SHAPE_AT, at.STRIDES_AT))
        with code.loop(0, axes) as behind:
            stride = strides.read(axes - 1 - behind)
            moves = (sizes.read(axes - 1 - behind) != 1) & (stride != 0)
            with code.when(moves):
                self.doubt.expect(stride > least.get())
                least.set(stride)

    def make_outputs(self, record: Array, lead: Array, library: Value, operands: Array) -> None:
        """Make fresh outputs, and enter their addresses among the operands. Several are a tuple, which has those that were given too,
        and None for one that is neither given nor written.
        """
        code, control, doubt = self.code, self.control, self.doubt
        many, how = record.read(at.RESULTS), record.read(at.MAKE_DTYPE)
        known, shapes = record.read(at.LEAD) == self.inputs, record.read(at.SHAPES)
        make, large, large_from = (
            record.read(own) for own in (at.MAKE, at.MAKE_LARGE, at.LARGE_FROM)
        )
        item = self.own(record, self.inputs).read(at.ITEM)
        places = code.frame("i64", at.MAX_RESULTS)
        with code.loop(0, many) as index:
            places.write(index, self.own(record, self.inputs + index).read(at.PLACE))
        making = _Making(make, large, large_from, item, lead, library, known)
        with code.either(many == 1) as (one, several):
            with one:
                self.result.set(self.made(making, how, shapes))
                self.fail_without(self.result.get())
                operand = operands.at(places.read(0))
                self.place(self.result.get(), self.view(self.inputs), library, operand)
            with several:
                self.result.set(self.new_tuple(many))
                with code.loop(0, many) as index, doubt.when_none():
                    mask = shapes >> index * at.RESULT_BITS
                    own = code.variable(self.given.read(self.inputs + index))
                    with code.either(mask.bit(at.MADE_BIT)) as (made, left):
                        with made:
                            each = code.slots(how).read(index + objects.TUPLE_ITEMS)
                            own.set(self.made(making, each, mask))
                            self.fail_without(own.get())
                            operand = operands.at(places.read(index))
                            self.place(own.get(), self.view(self.inputs + index), library, operand)
                        with left:
                            control.call(at.INCREF, None, own.get())
                    control.call(at.TUPLE_SET, "i32", self.result.get(), index, own.get())

    def made(self, making: _Making, how: Value, mask: Value) -> Value:
        """A fresh output, of the one shape that the kind has, or with some of the lead's axes."""
        found = self.code.variable(0)
        with self.code.either(making.known) as (alone, beside):
            with alone:
                found.set(self.made_again(self.code.slots(how)))
            with beside:
                found.set(self.made_like(making, how, mask))
        return found.get()

    def place(self, made: Value, view: Array, library: Value, operands: Array) -> None:
        """Enter the address of a fresh output as an operand."""
        self.look_at_fresh(made, view, library)
        with self.doubt.when_none():
            operands.write(0, self.address(view))

    def made_again(self, call: Array) -> Value:
        """An output of the one shape that the kind has: `call` is a tuple of the function that makes it and its arguments."""
        count = call.read(objects.TUPLE_LENGTH) - 1
        make, arguments = call.read(objects.TUPLE_ITEMS), call.at(objects.TUPLE_ITEMS + 1)
        self.note_python(True)
        return self.control.call(at.VECTORCALL, "i64", make, arguments, count, 0)

    def made_like(self, making: _Making, dtype: Value, mask: Value) -> Value:
        """A row-major output with some of the lead's axes."""
        sizes, strides, axes, count = self.row_major(making.lead, mask)
        large = count * making.item >= making.large_from
        make = large.choose(making.large, making.make)
        # On the host small ones are made by a function of C.
        self.note_python(large | (making.large == making.make))
        shape = self.pack(sizes, axes)
        found = self.made_of(making.library, make, shape, (strides, axes), dtype)
        self.drop(shape)
        return found

    def made_of(
        self, library: Value, make: Value, shape: Value, strides: tuple[Array, Value], dtype: Value
    ) -> Value:
        """An output of a shape, by `make(shape, dtype)` of NumPy or `make(shape, strides, dtype)` of PyTorch."""
        found = self.code.variable(0)
        with self.code.either(library == at.NUMPY) as (numpy, torch):
            with numpy:
                found.set(self.made_by(make, shape, dtype))
            with torch:
                steps = self.pack(*strides)
                found.set(self.made_by(make, shape, steps, dtype))
                self.drop(steps)
        return found.get()

    def made_by(self, make: Value, *arguments: Value) -> Value:
        items = self.code.frame("i64", len(arguments))
        for place, own in enumerate(arguments):
            items.write(place, own)
        return self.control.call(at.VECTORCALL, "i64", make, items, len(arguments), 0)

    def row_major(self, lead: Array, mask: Value) -> tuple[Array, Array, Value, Value]:
        """Sizes and strides of a fresh array that has some of the lead's axes, how many axes and how many elements."""
        code = self.code
        sizes, strides = (code.frame("i64", at.MAX_AXES) for _ in range(2))
        axes, count = code.variable(0), code.variable(1)
        with code.loop(0, self.axes(lead)) as axis, code.when(mask.bit(axis)):
            sizes.write(axes.get(), self.length(lead, axis))
            axes.set(axes.get() + 1)
        with code.loop(0, axes.get()) as behind:
            axis = axes.get() - 1 - behind
            strides.write(axis, count.get())
            count.set(count.get() * sizes.read(axis))
        return sizes, strides, axes.get(), count.get()
