"""The second part of the short road's code: compares what was read of a call with the records, for the kind that it is of."""

from __future__ import annotations

from collections.abc import Callable

from openaclnn.engines.machine import objects
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value, Variable
from openaclnn.repeat.code.doubt import Doubt
from openaclnn.repeat.code.look import LOW_HALF, Look
from openaclnn.repeat.words import slots as at

__all__ = ["Search"]


class Search(Look):
    """The function being written, as far as it compares."""

    def __init__(self, code: Code, control: Array, given: Array) -> None:
        super().__init__(code, control, given)
        # Constants for other numbers than a record's, made while searching.
        self.moved = code.variable(False)
        self.derived = code.frame("i64", at.MAX_CONSTANTS)

    def kinds(self) -> Value:
        return self.control.read(at.KINDS)

    def record(self, index: Value) -> Array:
        return self.code.slots(self.control.read(at.TABLE)).at(index * at.RECORD_SLOTS)

    def search(self, found: Variable) -> None:
        """The first kind that the call is of."""
        code, differs = self.code, Doubt(self.code)
        with code.loop(0, self.kinds()) as kind, code.when(found.get() < 0):
            record = self.record(kind)
            differs.reset()
            self.moved.set(False)
            with code.when(record.read(at.LEAD) == self.arrays, likely=False):
                self.stretch(differs, self.view(self.arrays))
            with code.loop(0, self.arrays) as index, differs.when_none():
                self.compare(differs, record, index)
            with code.loop(0, self.options) as index, differs.when_none():
                self.compare_option(differs, record, index)
            derives = self.moved.get() & (record.read(at.DERIVE) != 0)
            with differs.when_none(), code.when(derives):
                self.derive(differs, record)
            with differs.when_none():
                found.set(kind)

    def own(self, record: Array, index: Value) -> Array:
        """What a record says of an array."""
        return record.at(index * at.ARRAY_SLOTS + at.FIRST_ARRAY)

    def compare(self, differs: Doubt, record: Array, index: Value) -> None:
        code, own, view = self.code, self.own(record, index), self.view(index)
        pattern, library = own.read(at.PATTERN), view.read(at.LIBRARY)
        with code.either(pattern == at.MISSING) as (missing, present):
            with missing:
                differs.expect(library == at.ABSENT)
            with present:
                differs.expect(library == record.read(at.OWN_LIBRARY))
                differs.expect(own.read(at.FIRST) == view.read(at.DEVICE))
                differs.expect((own.read(at.SECOND) >> 32) == view.read(at.KIND) >> 32)
                with differs.when_none():
                    ways: tuple[tuple[int, Callable[[Doubt, Array, Array, Array], None]], ...] = (
                        (at.SAME, self.compare_same), (at.DENSE, self.compare_dense),
                        (at.ONE, self.compare_one), (at.SOME, self.compare_some), (at.LAID, self.compare_laid),
                    )  # fmt: skip
                    for one, way in ways:
                        with code.when(pattern == one):
                            way(differs, record, own, view)

    def stretch(self, differs: Doubt, common: Array) -> None:
        """The shape that all inputs stretch to, of which none is, into a view of no array; no product of its lengths but the whole
        is beyond 31 bits.
        """
        code, sizes = self.code, common.at(at.SIZES)
        axes, size = code.variable(0), code.variable(1)
        with code.loop(0, self.inputs) as index:
            own = self.view(index).read(at.KIND) & LOW_HALF
            axes.set((own > axes.get()).choose(own, axes.get()))
        with code.loop(0, axes.get()) as axis:
            sizes.write(axis, 1)
        with code.loop(0, self.inputs) as index:
            view = self.view(index)
            own = view.read(at.KIND) & LOW_HALF
            into, lengths = sizes.at(axes.get() - own), code.slots(view.read(at.SHAPE_AT))
            with code.loop(0, own) as axis, code.when(lengths.read(axis) != 1):
                length, before = lengths.read(axis), into.read(axis)
                differs.expect((before == 1) | (before == length))
                into.write(axis, length)
        with code.loop(0, axes.get()) as axis:
            differs.expect(size.get().below(1 << 31) & sizes.read(axis).below(1 << 31))
            size.set(size.get() * sizes.read(axis))
        common.write(at.KIND, axes.get())
        common.write(at.SIZE, size.get())
        common.write(at.SHAPE_AT, sizes.address())

    def compare_same(self, differs: Doubt, record: Array, own: Array, view: Array) -> None:
        axes = view.read(at.KIND) & LOW_HALF
        differs.expect(axes == (own.read(at.SECOND) & LOW_HALF))
        with differs.when_none(), self.code.loop(0, axes) as axis:
            for expected, theirs in ((at.SHAPE, at.SHAPE_AT), (at.STRIDES, at.STRIDES_AT)):
                found = self.code.slots(view.read(theirs)).read(axis)
                differs.expect(own.at(expected).read(axis) == found)

    def compare_dense(self, differs: Doubt, record: Array, own: Array, view: Array) -> None:
        """Row-major, of the lead's shape, of a size that the kind serves."""
        code, lead = self.code, self.view(record.read(at.LEAD))
        axes, size = view.read(at.KIND) & LOW_HALF, view.read(at.SIZE)
        differs.expect(view.flag(at.DENSELY))
        differs.expect(axes == (lead.read(at.KIND) & LOW_HALF))
        wanted = record.read(at.LEAD_AXES)
        differs.expect((wanted == 0) | (axes == wanted))
        differs.expect(size >= record.read(at.COUNT_FROM))
        differs.expect(size < record.read(at.COUNT_BELOW))
        with differs.when_none(), code.loop(0, axes) as axis:
            mine, theirs = (code.slots(one.read(at.SHAPE_AT)).read(axis) for one in (view, lead))
            differs.expect(mine == theirs)

    def compare_one(self, differs: Doubt, record: Array, own: Array, view: Array) -> None:
        """One element, which stretches over whatever the lead is."""
        lead = self.view(record.read(at.LEAD))
        differs.expect(view.read(at.SIZE) == 1)
        differs.expect((view.read(at.KIND) & LOW_HALF) <= (lead.read(at.KIND) & LOW_HALF))

    def compare_some(self, differs: Doubt, record: Array, own: Array, view: Array) -> None:
        """Row-major over some of the lead's axes, in their order."""
        differs.expect(view.flag(at.DENSELY))
        self.compare_sides(differs, record, own, view)

    def compare_sides(self, differs: Doubt, record: Array, own: Array, view: Array) -> None:
        """The lead's lengths along the axes of the mask."""
        code, lead = self.code, self.view(record.read(at.LEAD))
        mask, axes = own.read(at.MASK), view.read(at.KIND) & LOW_HALF
        differs.expect(axes == (own.read(at.SECOND) & LOW_HALF))
        differs.expect(record.read(at.LEAD_AXES) == (lead.read(at.KIND) & LOW_HALF))
        axis = code.variable(0)
        mine, theirs = (code.slots(one.read(at.SHAPE_AT)) for one in (view, lead))
        with differs.when_none(), code.loop(0, record.read(at.LEAD_AXES)) as whole:
            has = mask.bit(whole)
            with code.when(has):
                differs.expect(mine.read(axis.get()) == theirs.read(whole))
                axis.set(axis.get() + 1)

    def compare_laid(self, differs: Doubt, record: Array, own: Array, view: Array) -> None:
        """Not row-major, with any strides, up to so many elements."""
        code, count = self.code, self.view(record.read(at.LEAD)).read(at.SIZE)
        differs.expect(count >= record.read(at.COUNT_FROM))
        differs.expect(count < record.read(at.COUNT_BELOW))
        with code.either(record.read(at.LEAD_AXES) == 0) as (elementwise, with_classes):
            with elementwise:
                self.compare_stretched(differs, record, own, view)
            with with_classes:
                differs.expect(view.read(at.DENSELY) == 0)
                self.compare_sides(differs, record, own, view)

    def compare_stretched(self, differs: Doubt, record: Array, own: Array, view: Array) -> None:
        """With the lead's length along the axes of the mask, and one along the others."""
        code, lead = self.code, self.view(record.read(at.LEAD))
        axes, count = view.read(at.KIND) & LOW_HALF, lead.read(at.SIZE)
        differs.expect(axes == (own.read(at.SECOND) & LOW_HALF))
        before = (lead.read(at.KIND) & LOW_HALF) - axes
        differs.expect(before >= 0)
        # Row-major and of one shape are another kind, whose kernel takes them as they are.
        differs.expect((view.read(at.DENSELY) == 0) | (view.read(at.SIZE) != count))
        mine, theirs = (code.slots(one.read(at.SHAPE_AT)) for one in (view, lead))
        with differs.when_none(), code.loop(0, axes) as axis:
            has = own.read(at.MASK).bit(axis)
            wanted = has.choose(theirs.read(axis + before), 1)
            differs.expect(mine.read(axis) == wanted)

    def compare_option(self, differs: Doubt, record: Array, index: Value) -> None:
        """The same object, or a float or an integer of the same bits, or another number where it is free."""
        code, control = self.code, self.control
        own = record.at(index * at.OPTION_SLOTS + at.FIRST_OPTION)
        item = self.given.read(self.arrays + index)
        with code.when(item != own.read(at.OBJECT)):
            kind = code.slots(item).read(objects.OBJECT_TYPE)
            differs.expect(kind == own.read(at.TYPE))
            is_float = kind == control.read(at.FLOAT)
            with differs.when_none(), code.either(is_float) as (floating, integer):
                with floating:
                    self.compare_float(differs, own, item)
                with integer:
                    value = control.call(at.AS_INT64, "i64", item)
                    differs.expect((value == own.read(at.BITS)) | own.flag(at.FREE))
                    with code.when(value == -1):  # or too large for 64 bits
                        differs.expect(control.call(at.ERROR, "i64") == 0)
                        control.call(at.CLEAR, None)

    def number(self, index: Value) -> Value:
        """The float or integer that an option is."""
        return self.given.read(self.arrays + index)

    def compare_float(self, differs: Doubt, own: Array, item: Value) -> None:
        """A float of the same bits, or another number where it is free."""
        bits = self.code.slots(item).read(objects.FLOAT_VALUE)
        other = bits != own.read(at.BITS)
        self.moved.set(self.moved.get() | other)
        with self.code.when(other):
            self.compare_number(differs, own, bits.bits_as("f64"))

    def compare_number(self, differs: Doubt, own: Array, number: Value) -> None:
        """Another float than a kind was remembered with; NaN is within no bounds."""
        free = own.read(at.FREE)
        least, most = (own.read(end).bits_as("f64") for end in (at.LEAST, at.MOST))
        differs.expect(free != at.FIXED)
        differs.expect((number >= least) & (number <= most))
        zero, was_zero = (
            value.to("f32") == 0.0 for value in (number, own.read(at.BITS).bits_as("f64"))
        )
        differs.expect((free != at.ANOTHER_BUT_ZERO) | ~(zero ^ was_zero))

    def derive(self, differs: Doubt, record: Array) -> None:
        """The constants of a kind for other floats than it was remembered with, if it serves them."""
        code = self.code
        numbers = code.frame("f64", at.MAX_DERIVED)
        with code.loop(0, record.read(at.DERIVED)) as index:
            numbers.write(index, self.free_number(record.at(at.SOURCE).read(index)))
        with code.loop(0, record.read(at.CONSTANTS)) as index:
            self.derived.write(index, record.at(at.CONSTANT).read(index))
        serves = code.call(record.read(at.DERIVE), "i64", numbers, self.derived)
        differs.expect(serves != 0)

    def free_number(self, index: Value) -> Value:
        """An option as a float."""
        code, control = self.code, self.control
        item, found = self.number(index), code.variable(code.double(0.0))
        is_float = code.slots(item).read(objects.OBJECT_TYPE) == control.read(at.FLOAT)
        with code.either(is_float) as (floating, integer):
            with floating:
                found.set(code.slots(item).read(objects.FLOAT_VALUE).bits_as("f64"))
            with integer:  # its value was compared
                found.set(control.call(at.AS_INT64, "i64", item).to("f64"))
        return found.get()
