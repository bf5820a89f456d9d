"""The third part of the short road's code: where the elements of arrays that are not row-major lie.

Sizes and strides are read from the arrays; axes are put in the output's order and merged where all operands allow it. A
class axis stands for itself, behind the others.
"""

from __future__ import annotations

from openaclnn.engines.cpu.layouts import gathered
from openaclnn.engines.machine.code import Array
from openaclnn.engines.machine.values import Value
from openaclnn.repeat.code.look import LOW_HALF
from openaclnn.repeat.code.search import Search
from openaclnn.repeat.words import slots as at

__all__ = ["Geometry"]


class Geometry(Search):
    """The function being written, as far as it knows where elements lie."""

    def step(self, own: Array, view: Array, axis: Value) -> Value:
        """Bytes from one element to the next along an axis; NumPy's strides count bytes, PyTorch's elements."""
        stride = self.code.slots(view.read(at.STRIDES_AT)).read(axis)
        in_bytes = view.read(at.LIBRARY) == at.NUMPY
        return in_bytes.choose(stride, stride * own.read(at.ITEM))

    def length(self, view: Array, axis: Value) -> Value:
        return self.code.slots(view.read(at.SHAPE_AT)).read(axis)

    def axes(self, view: Array) -> Value:
        return view.read(at.KIND) & LOW_HALF

    def address(self, view: Array) -> Value:
        return view.read(at.DATA) + view.read(at.OFFSET)

    def span(self, own: Array, view: Array) -> tuple[Value, Value]:
        """Where an argument's memory begins and ends."""
        code, start, item = self.code, self.address(view), own.read(at.ITEM)
        low, high = code.variable(start), code.variable(start)
        with code.either(own.read(at.PATTERN) == at.SAME) as (known, measured):
            with known:
                low.set(start + own.read(at.LOW))
                high.set(start + own.read(at.HIGH))
            with measured:
                high.set(start + item)
                with code.loop(0, self.axes(view)) as axis:
                    reach = (self.length(view, axis) - 1) * self.step(own, view, axis)
                    backwards = reach < 0
                    low.set(low.get() + backwards.choose(reach, 0))
                    high.set(high.get() + backwards.choose(0, reach))
        return low.get(), high.get()

    def coincides(self, record: Array, index: Value) -> Value:
        """Whether an input has its elements where the first output has them, given that both begin at one address."""
        code, own, view = self.code, self.own(record, index), self.view(index)
        target, output = self.own(record, self.inputs), self.view(self.inputs)
        answer = code.variable(own.flag(at.COINCIDES))
        laid = (own.read(at.PATTERN) == at.LAID) | (target.read(at.PATTERN) == at.LAID)
        with code.when(laid):
            axes = self.axes(output)
            alike = (self.axes(view) == axes) & (own.read(at.ITEM) == target.read(at.ITEM))
            answer.set(alike)
            with code.when(alike), code.loop(0, axes) as axis:
                length = self.length(output, axis)
                here, there = self.step(own, view, axis), self.step(target, output, axis)
                same = length == self.length(view, axis)
                same = same & ((here == there) | (length == 1))
                answer.set(answer.get() & same)
        return answer.get()

    def expect_scattered(self, own: Array, view: Array) -> None:
        """That no two elements of an output with gaps share memory: each axis steps over all that shorter steps reach."""
        code, axes = self.code, self.axes(view)
        reach, above = code.variable(own.read(at.ITEM)), code.variable(-1)
        with code.loop(0, axes):
            least, room = code.variable(-1), code.variable(0)
            with code.loop(0, axes) as axis:
                step, length = abs(self.step(own, view, axis)), self.length(view, axis)
                better = (least.get() < 0) | (step < least.get())
                with code.when((length != 1) & (step > above.get()) & better):
                    least.set(step)
                    room.set((length - 1) * step)
            with code.when(least.get() >= 0):
                self.doubt.expect(least.get() >= reach.get())
                reach.set(reach.get() + room.get())
                above.set(least.get())
        # Steps that are the same were counted once: then two axes lie over each other.
        total = code.variable(own.read(at.ITEM))
        with code.loop(0, axes) as axis:
            step = abs(self.step(own, view, axis))
            total.set(total.get() + (self.length(view, axis) - 1) * step)
        self.doubt.expect(total.get() == reach.get())

    def lay(self, record: Array, lead: Array, geometry: Array) -> None:
        """The call's axes and every operand's steps along them: the output's longest step first, merged."""
        code = self.code
        axes, sizes = code.variable(0), geometry.at(gathered.SIZES)
        with code.loop(0, self.arrays) as index:
            own = self.own(record, index)
            with code.when(own.read(at.PLACE) >= 0):
                geometry.at(gathered.ITEMS).write(own.read(at.PLACE), own.read(at.ITEM))
        of_classes = record.read(at.CLASS_AXIS)
        with code.loop(0, self.axes(lead)) as axis:
            length = self.length(lead, axis)
            with code.when((length != 1) & (axis != of_classes)):
                self.insert(record, lead, geometry, axis, axes.get())
                axes.set(axes.get() + 1)
        merged = code.variable(0)
        with code.loop(1, axes.get()) as axis:
            follows = code.variable(True)
            with code.loop(0, record.read(at.ADDRESSES)) as place:
                steps = self.steps(geometry, place)
                whole = steps.read(axis) * sizes.read(axis)
                fits = steps.read(merged.get()) == whole
                follows.set(follows.get() & fits)
            with code.either(follows.get()) as (one, two):
                with one:
                    sizes.write(merged.get(), sizes.read(merged.get()) * sizes.read(axis))
                with two:
                    merged.set(merged.get() + 1)
                    sizes.write(merged.get(), sizes.read(axis))
            with code.loop(0, record.read(at.ADDRESSES)) as place:
                steps = self.steps(geometry, place)
                steps.write(merged.get(), steps.read(axis))
        with code.when(axes.get() == 0):  # one element: kernels always have an axis to walk
            sizes.write(0, 1)
            with code.loop(0, record.read(at.ADDRESSES)) as place:
                self.steps(geometry, place).write(0, 0)
        with code.when(of_classes >= 0):
            merged.set(merged.get() + 1)
            self.enter(record, lead, geometry, of_classes, merged.get())
        geometry.write(gathered.AXES, merged.get() + 1)

    def expect_forwards(self, record: Array) -> None:
        """No step of an output goes backwards: positions are summed in the order of its memory."""
        with self.code.loop(self.inputs, self.arrays) as index:
            own, view = self.own(record, index), self.view(index)
            with self.code.loop(0, self.axes(view)) as axis:
                self.doubt.expect(self.step(own, view, axis) >= 0)

    def steps(self, geometry: Array, place: Value) -> Array:
        return geometry.at(place * gathered.MAX_AXES + gathered.STEPS)

    def insert(
        self, record: Array, lead: Array, geometry: Array, axis: Value, count: Value
    ) -> None:
        """Put an axis of the lead among those that were found before, which are sorted: the longest step first."""
        code, sizes = self.code, geometry.at(gathered.SIZES)
        self.enter(record, lead, geometry, axis, count)
        where = code.variable(count)

        def shorter() -> Value:
            before = (where.get() > 0).choose(where.get() - 1, 0)
            return (where.get() > 0) & self.is_shorter(record, geometry, before)

        with code.repeat_while(shorter):
            before = where.get() - 1
            _swap(sizes, before)
            with code.loop(0, record.read(at.ADDRESSES)) as place:
                _swap(self.steps(geometry, place), before)
            where.set(before)

    def is_shorter(self, record: Array, geometry: Array, axis: Value) -> Value:
        """Whether an axis has shorter steps than the next: by the output's, or where they are the same the last input's, and
        so on, as a plan sorts them.
        """
        code, places = self.code, record.read(at.ADDRESSES)
        shorter, decided = code.variable(False), code.variable(False)
        with code.loop(0, places) as behind, code.when(~decided.get()):
            steps = self.steps(geometry, places - 1 - behind)
            own, following = abs(steps.read(axis)), abs(steps.read(axis + 1))
            shorter.set(own < following)
            decided.set(own != following)
        return shorter.get()

    def enter(self, record: Array, lead: Array, geometry: Array, axis: Value, where: Value) -> None:
        """Write an axis of the lead down at a place: its length, and every operand's step along it."""
        code = self.code
        geometry.at(gathered.SIZES).write(where, self.length(lead, axis))
        with code.loop(0, self.arrays) as index:
            own, view = self.own(record, index), self.view(index)
            with code.when(own.read(at.PLACE) >= 0):
                steps = self.steps(geometry, own.read(at.PLACE))
                steps.write(where, 0)
                mine = self.own_axis(record, own, self.axes(lead) - self.axes(view), axis)
                with code.when(mine >= 0), code.when(self.length(view, mine) != 1):
                    steps.write(where, self.step(own, view, mine))

    def own_axis(self, record: Array, own: Array, fewer: Value, axis: Value) -> Value:
        """Which of an array's own axes corresponds to an axis of the lead; negative where none does."""
        code, mask = self.code, own.read(at.MASK)
        before = code.variable(0)
        with code.loop(0, axis) as other:
            before.set(before.get() + (mask >> other & 1))
        among = mask.bit(axis).choose(before.get(), -1)
        return (record.read(at.CLASS_AXIS) < 0).choose(axis - fewer, among)


def _swap(words: Array, index: Value) -> None:
    """Swap a word with the next."""
    first, second = words.read(index), words.read(index + 1)
    words.write(index, second)
    words.write(index + 1, first)
