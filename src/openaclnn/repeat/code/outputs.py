"""Allocate: where elements of arrays that are not row-major lie, the outputs that a caller gave, and those that are made.

Sizes and strides are read from the arrays; axes are put in the output's order and merged where all operands allow it. A
class axis stands for itself, behind the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from openaclnn.engines.machine import objects
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat import slots as at
from openaclnn.repeat.code.recognise import LOW_HALF, Search


class Geometry(Search):
    """The function being written, as far as it knows where elements lie. An array is what an entry says of it, and its view."""

    def __init__(self, code: Code, control: Array, arguments: Array) -> None:
        super().__init__(code, control, arguments)
        self.sizes = code.frame("i64", at.MAX_AXES)
        self.all_steps = code.frame("i64", at.MAX_OPERANDS * at.MAX_AXES)

    def step(self, array: Array, view: Array, axis: Value) -> Value:
        """Bytes from one element to the next along an axis; NumPy's strides count bytes, PyTorch's elements."""
        stride = view.at(at.STEPS).read(axis)
        in_bytes = view.read(at.LIBRARY) == at.NUMPY
        return in_bytes.choose(stride, stride * array.read(at.ITEM))

    def address(self, view: Array) -> Value:
        return view.read(at.DATA) + view.read(at.OFFSET)

    def enter_operand(self, entry: Array, array: Array, view: Array, operands: Array) -> None:
        """Where an array begins among the operands; a kernel may take the array twice, or its halves as two."""
        operands.write(array.read(at.PLACE), self.address(view))
        with self.code.when(array.read(at.OTHER_PLACE) >= 0, likely=False):
            other = self.address(view) + self.half(entry, array, view)
            operands.write(array.read(at.OTHER_PLACE), other)

    def half(self, entry: Array, array: Array, view: Array) -> Value:
        """How far behind an array's begin its second half is; 0 where it has none."""
        along, behind = entry.read(at.HALF_AXIS), self.code.variable(0)
        with self.code.when(along >= 0):
            behind.set((self.length(view, along) >> 1) * self.step(array, view, along))
        return behind.get()

    def span(self, array: Array, view: Array) -> tuple[Value, Value]:
        """Where an argument's memory begins and ends."""
        code, start = self.code, self.address(view)
        low, high = code.variable(start), code.variable(start + array.read(at.ITEM))
        with code.loop(0, self.axes(view)) as axis:
            reach = (self.length(view, axis) - 1) * self.step(array, view, axis)
            low.set(low.get() + (reach < 0).choose(reach, 0))
            high.set(high.get() + (reach < 0).choose(0, reach))
        return low.get(), high.get()

    def coincides(self, entry: Array, index: Value) -> Value:
        """Whether an input has its elements where the first output has them, given that both begin at one address."""
        code, array, view = self.code, self.array_of(entry, index), self.view(index)
        target, output = self.array_of(entry, self.inputs), self.view(self.inputs)
        answer = code.variable(array.flag(at.COINCIDES))
        strided = (array.read(at.PATTERN) == at.LAID) | (target.read(at.PATTERN) == at.LAID)
        with code.when(strided & (entry.read(at.HALF_AXIS) < 0)):
            axes = self.axes(output)
            alike = (self.axes(view) == axes) & (array.read(at.ITEM) == target.read(at.ITEM))
            answer.set(alike)
            with code.when(alike), code.loop(0, axes) as axis:
                length = self.length(output, axis)
                here, there = self.step(array, view, axis), self.step(target, output, axis)
                same = (length == self.length(view, axis)) & ((here == there) | (length == 1))
                answer.set(answer.get() & same)
        return answer.get()

    def expect_scattered(self, array: Array, view: Array) -> None:
        """That no two elements of an output with gaps share memory: each axis steps over all that those with shorter steps, or the same, reach."""
        code, axes = self.code, self.axes(view)
        with code.loop(0, axes) as axis, code.when(self.length(view, axis) != 1):
            reach, step = code.variable(array.read(at.ITEM)), abs(self.step(array, view, axis))
            with code.loop(0, axes) as other, code.when(other != axis):
                below = abs(self.step(array, view, other))
                room = (self.length(view, other) - 1) * below
                reach.set(reach.get() + (below <= step).choose(room, 0))
            self.guard.expect(step >= reach.get())

    def lay(self, entry: Array, source: Array) -> Value:
        """The call's axes and every operand's steps along them: the output's longest step first, merged; how many axes that leaves."""
        code, operands, sizes = self.code, entry.read(at.ADDRESSES), self.sizes
        axes, steps_of = code.variable(0), self.steps
        # Every operand's steps along the source's axes, in their order.
        along = code.frame("i64", at.MAX_OPERANDS * at.MAX_AXES)
        with code.loop(0, self.arrays) as index:
            array, view = self.array_of(entry, index), self.view(index)
            for slot in (at.PLACE, at.OTHER_PLACE):
                place = array.read(slot)
                with code.when(place >= 0):
                    self.follow(array, view, along.at(place * at.MAX_AXES))
        class_axis = entry.read(at.CLASS_AXIS)

        def enter(axis: Value, where: Value) -> None:
            """Write an axis of the source down at a place: its length, and every operand's step along it."""
            sizes.write(where, self.length(source, axis))
            with code.loop(0, operands) as place:
                steps_of(place).write(where, along.read(place * at.MAX_AXES + axis))

        with code.loop(0, self.axes(source)) as axis:
            walked = (self.length(source, axis) != 1) & (axis != class_axis)
            with code.when(walked):
                enter(axis, axes.get())
                self.sort(entry, axes.get())
                axes.set(axes.get() + 1)
        merged = code.variable(0)
        with code.loop(1, axes.get()) as axis:
            follows = code.variable(True)
            with code.loop(0, operands) as place:
                steps = steps_of(place)
                fits = steps.read(merged.get()) == steps.read(axis) * sizes.read(axis)
                follows.set(follows.get() & fits)
            with code.either(follows.get()) as (joined, apart):
                with joined:
                    sizes.write(merged.get(), sizes.read(merged.get()) * sizes.read(axis))
                with apart:
                    merged.set(merged.get() + 1)
                    sizes.write(merged.get(), sizes.read(axis))
            with code.loop(0, operands) as place:
                steps = steps_of(place)
                steps.write(merged.get(), steps.read(axis))
        with code.when(axes.get() == 0):  # one element: kernels always have an axis to walk
            sizes.write(0, 1)
            with code.loop(0, operands) as place:
                steps_of(place).write(0, 0)
        with code.when(class_axis >= 0):
            merged.set(merged.get() + 1)
            enter(class_axis, merged.get())
        return merged.get() + 1

    def expect_forwards(self, entry: Array) -> None:
        """No step of an output goes backwards: positions are summed in the order of its memory. Nor does one of an input where axes are added up: by them a plan sorts axes, too."""
        sums = entry.read(at.CLASS_AXIS) == at.SUMMED_AXES
        with self.code.loop(sums.choose(0, self.inputs), self.arrays) as index:
            array, view = self.array_of(entry, index), self.view(index)
            with self.code.loop(0, self.axes(view)) as axis:
                self.guard.expect(self.step(array, view, axis) >= 0)

    def steps(self, place: Value) -> Array:
        """An operand's, in bytes."""
        return self.all_steps.at(place * at.MAX_AXES)

    def follow(self, array: Array, view: Array, along: Array) -> None:
        """An array's steps along the axes of the source that its own follow; 0 along the others, and where it has one element."""
        with self.code.loop(0, at.MAX_AXES) as axis:
            along.write(axis, 0)
        with (
            self.code.loop(0, self.axes(view)) as axis,
            self.code.when(self.length(view, axis) != 1),
        ):
            followed = array.read(at.FOLLOWS) >> axis * 8 & (at.MAX_AXES - 1)
            along.write(followed, self.step(array, view, axis))

    def sort(self, entry: Array, last: Value) -> None:
        """Put the last axis among those before it, which are sorted: the longest step first."""
        code, sizes = self.code, self.sizes
        where = code.variable(last)

        def shorter() -> Value:
            before = (where.get() > 0).choose(where.get() - 1, 0)
            return (where.get() > 0) & self.is_shorter(entry, before)

        with code.repeat_while(shorter):
            before = where.get() - 1
            sizes.swap(before)
            with code.loop(0, entry.read(at.ADDRESSES)) as place:
                self.steps(place).swap(before)
            where.set(before)

    def is_shorter(self, entry: Array, axis: Value) -> Value:
        """Whether an axis has shorter steps than the next: by the output's, or where they are the same the last input's, and
        so on, as a plan sorts them.
        """
        code, places = self.code, entry.read(at.ADDRESSES)
        shorter, decided = code.variable(False), code.variable(False)
        with code.loop(0, places) as behind, code.when(~decided.get()):
            steps = self.steps(places - 1 - behind)
            here, following = abs(steps.read(axis)), abs(steps.read(axis + 1))
            shorter.set(here < following)
            decided.set(here != following)
        return shorter.get()


class Outputs(Geometry):
    """The function being written, as far as it is about outputs."""

    # Outputs that the caller gave.

    @contextmanager
    def each_given(self) -> Iterator[Value]:
        """Code for each of the outputs that the caller gave."""
        with (
            self.code.loop(self.inputs, self.arrays) as index,
            self.code.when(self.is_given(index)),
        ):
            yield index

    def expect_free(self, entry: Array) -> None:
        """That given outputs are writable, and share no memory with what is read or with each other; the first may be
        exactly the elements of an input.
        """
        with self.each_given() as index:
            array, view = self.array_of(entry, index), self.view(index)
            self.guard.expect(view.flag(at.WRITABLE))
            with self.code.when(array.read(at.PATTERN) == at.LAID):
                self.expect_scattered(array, view)
            with self.code.when(array.read(at.PLACE) >= 0):
                self.expect_apart(entry, index)

    def expect_apart(self, entry: Array, index: Value) -> None:
        """That an output shares no memory with an operand before it."""
        code, view = self.code, self.view(index)
        low, high = self.span(self.array_of(entry, index), view)
        with code.loop(0, index) as before:
            other, seen = self.array_of(entry, before), self.view(before)
            with code.when((other.read(at.PLACE) >= 0) & self.is_given(before)):
                first, beyond = self.span(other, seen)
                apart = ~(first.below(high) & low.below(beyond))
                begin = (self.address(seen) == self.address(view)) & (index == self.inputs)
                self.guard.expect(apart | begin & self.coincides(entry, before))

    def expect_untracked(self, library: Value) -> None:
        """What autograd would not let be written is left to the slow path."""
        with self.code.when((library == at.TORCH) & ~self.below.get()), self.each_given() as index:
            item, name = self.arguments.read(index), self.control.read(at.REQUIRES_GRAD)
            tracked = self.answer(self.python("PyObject_GetAttr", "i64", item, name))
            self.drop(tracked)
            self.guard.expect(tracked == self.object("False"))

    def count_writes(self, library: Value) -> None:
        """Autograd is told which tensors are written."""
        with self.code.when((library == at.TORCH) & ~self.below.get()), self.each_given() as index:
            self.note_python(True)
            told = self.call_object(self.control.read(at.COUNT_WRITE), self.arguments.read(index))
            self.fail_without(told)
            self.drop(told)

    # Outputs that are made.

    def expect_ordered(self, entry: Array) -> None:
        """Where results lie as inputs do, that these lie as row-major arrays do, whatever lies between their elements."""
        code, first = self.code, self.array_of(entry, self.inputs)
        wanted = self.control.flag(at.ORDERED) & (first.read(at.MADE) != at.SAME)
        with (
            code.when(wanted),
            code.loop(0, self.inputs) as index,
            code.when(self.array_of(entry, index).read(at.PATTERN) == at.LAID),
        ):
            # Strides grow from the last axis to the first, but for those of one element and of 0.
            view, least = self.view(index), code.variable(0)
            axes, strides = self.axes(view), view.at(at.STEPS)
            with code.loop(0, axes) as behind:
                axis = axes - 1 - behind
                stride = strides.read(axis)
                with code.when((self.length(view, axis) != 1) & (stride != 0)):
                    self.guard.expect(stride > least.get())
                    least.set(stride)

    def make_outputs(self, entry: Array, operands: Array) -> None:
        """Make fresh outputs, and enter their addresses among the operands. The result is what was made or given; of several a tuple, with
        None for one that is neither given nor written.
        """
        code, many = self.code, entry.read(at.RESULTS)
        dtypes = code.slots(entry.read(at.MAKE_DTYPE))
        self.begin_results(many)
        with code.loop(0, many) as index:
            array, view = self.array_of(entry, self.inputs + index), self.view(self.inputs + index)
            with code.either(array.flag(at.MADE)) as (fresh, left):
                with fresh:
                    self.lay_fresh(entry, array, view)
                    dtype = dtypes.read(index + objects.TUPLE_ITEMS)
                    address = self.make_output(entry, array, view, dtype, index)
                    self.guard.expect(address != 0)  # memory may be lacking
                    view.write(at.DATA, address)
                    view.write(at.OFFSET, 0)
                    self.enter_operand(entry, array, view, operands)
                with left:
                    self.pass_output(entry, index)

    def begin_results(self, many: Value) -> None:
        with self.code.when(many != 1):
            self.result.set(self.new_tuple(many))

    def make_output(
        self, entry: Array, array: Array, view: Array, dtype: Value, index: Value
    ) -> Value:
        """A fresh output, the result of this number; where its elements lie."""
        item = self.allocated(entry, array, view, dtype)
        self.fail_without(item)
        self.keep_result(entry, index, item)
        return self.fresh_address(item, entry.read(at.ENTRY_LIBRARY))

    def pass_output(self, entry: Array, index: Value) -> None:
        """What the caller gave is the result of this number."""
        item = self.arguments.read(self.inputs + index)
        self.python("Py_IncRef", None, item)
        self.keep_result(entry, index, item)

    def keep_result(self, entry: Array, index: Value, item: Value) -> None:
        with self.code.either(entry.read(at.RESULTS) == 1) as (alone, among):
            with alone:
                self.result.set(item)
            with among:
                self.python("PyTuple_SetItem", "i32", self.result.get(), index, item)

    def lay_fresh(self, entry: Array, array: Array, view: Array) -> None:
        """The view of a fresh output, but for its memory: its axes follow the source's, or it has the shape that stands there, row-major."""
        code, source = self.code, self.view(entry.read(at.SHAPE_SOURCE))
        library, sizes, steps = entry.read(at.ENTRY_LIBRARY), view.at(at.SIZES), view.at(at.STEPS)
        count, pattern = code.variable(1), array.read(at.MADE)
        axes = (pattern == at.DENSE).choose(self.axes(source), array.read(at.SECOND) & LOW_HALF)
        with code.loop(0, axes) as axis, code.either(pattern == at.SAME) as (fixed, follows):
            with fixed:
                sizes.write(axis, array.at(at.SHAPE).read(axis))
            with follows:
                sizes.write(axis, self.followed_length(array, source, axis))
        unit = (library == at.NUMPY).choose(array.read(at.ITEM), 1)
        with code.loop(0, axes) as behind:
            axis = axes - 1 - behind
            steps.write(axis, count.get() * unit)
            count.set(count.get() * sizes.read(axis))
        for slot, value in (
            (at.KIND, axes), (at.SIZE, count.get()), (at.LIBRARY, library),
        ):  # fmt: skip
            view.write(slot, value)

    def is_large(self, entry: Array, array: Array, view: Array) -> Value:
        return view.read(at.SIZE) * array.read(at.ITEM) >= entry.read(at.LARGE_FROM)

    def allocated(self, entry: Array, array: Array, view: Array, dtype: Value) -> Value:
        """A fresh output by `make(shape, dtype)` of NumPy or `make(shape, strides, dtype)` of PyTorch; the object, or 0 where Python raised."""
        code, fresh, axes = self.code, self.code.variable(0), self.axes(view)
        make, make_large = entry.read(at.MAKE), entry.read(at.MAKE_LARGE)
        large = self.is_large(entry, array, view)
        # On the host small ones are made by a function of C.
        self.note_python(large | (make_large == make))
        shape, chosen = self.pack(view.at(at.SIZES), axes), large.choose(make_large, make)
        with code.either(entry.read(at.ENTRY_LIBRARY) == at.NUMPY) as (numpy, torch):
            with numpy:
                fresh.set(self.call_object(chosen, shape, dtype))
            with torch:
                steps = self.pack(view.at(at.STEPS), axes)
                fresh.set(self.call_object(chosen, shape, steps, dtype))
                self.drop(steps)
        self.drop(shape)
        return fresh.get()
