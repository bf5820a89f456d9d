"""Descriptors of ours, read by machine code: where they have what, and what is compared of them.

A `Tensor` or a `Scalar` is an object with slots. A probe finds where each slot lies; where that cannot be told, descriptors
are not read this way.
"""

from __future__ import annotations

import functools

from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.engines.machine import objects
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat.code.doubt import Doubt
from openaclnn.repeat.code.road import RoadCode
from openaclnn.repeat.words import slots as at
from openaclnn.runtime.memory import Allocation

__all__ = ["DescriptorCode", "descriptors_are_readable"]

slots_of = functools.cache(objects.slots_of)


def descriptors_are_readable() -> bool:
    """Whether a probe found the slots of descriptors."""
    return all(slots_of(kind) is not None for kind in (Tensor, Scalar, Allocation))


class DescriptorCode(RoadCode):
    """The function being written, as far as it reads descriptors."""

    def __init__(self, code: Code, control: Array, given: Array) -> None:
        super().__init__(code, control, given)
        # There is no road where one of them is None.
        self.of_tensor, self.of_scalar, self.of_block = (
            slots_of(kind) or {} for kind in (Tensor, Scalar, Allocation)
        )

    def whole(self, differs: Doubt, item: Value) -> Value:
        """A Python integer as a word; one of more than 64 bits makes a difference."""
        control, value = self.control, self.control.call(at.AS_INT64, "i64", item)
        with self.code.when(value == -1):
            differs.expect(control.call(at.ERROR, "i64") == 0)
            control.call(at.CLEAR, None)
        return value

    def is_true(self, item: Value) -> Value:
        return item == self.control.read(at.TRUE)

    def is_tuple(self, item: Value) -> Value:
        kind = self.code.slots(item).read(objects.OBJECT_TYPE)
        return kind == self.control.read(at.TUPLE)

    def expect_memory(self, view: Array) -> None:
        """As for arrays; but a descriptor may get its address later."""
        with self.code.when(view.read(at.LIBRARY) != at.OURS):
            super().expect_memory(view)

    def look_further(self, item: Value, view: Array, kind: Value, first: bool) -> None:
        with self.code.either(kind == self.control.read(at.DESCRIPTOR)) as (ours, other):
            with ours:
                self.look_at_descriptor(item, view)
            with other:
                super().look_further(item, view, kind, first)

    def look_at_descriptor(self, item: Value, view: Array) -> None:
        code, doubt, own, at_name = self.code, self.doubt, self.code.slots(item), self.of_tensor
        shape = own.read(at_name["shape"])
        doubt.expect(self.is_true(own.read(at_name["alive"])))
        with doubt.when_none():
            doubt.expect(self.is_tuple(shape))
        axes = code.variable(0)
        with doubt.when_none():
            axes.set(code.slots(shape).read(objects.TUPLE_LENGTH))
            doubt.expect(axes.get() <= at.MAX_AXES)
            form = self.whole(doubt, own.read(at_name["format"])) & at.FORMATS
            writable = self.is_true(own.read(at_name["writable"])).to("i64")
            view.write(
                at.KIND, axes.get() | (form << at.FORMAT_BIT) | (writable << at.WRITABLE_BIT)
            )
            for slot, name in ((at.DATA, "base"), (at.OFFSET, "offset")):
                view.write(slot, self.whole(doubt, own.read(at_name[name])))
            for slot, name in ((at.DEVICE, "dtype"), (at.DEVICE_NAME, "device")):
                view.write(slot, own.read(at_name[name]))
            view.write(at.LIBRARY, at.OURS)
            view.write(at.WRITABLE, writable)
        with doubt.when_none():
            view.write(at.SHAPE_AT, view.address(at.SIZES))
            view.write(at.STRIDES_AT, view.address(at.STEPS))
            self.unpack(shape, view.at(at.SIZES), axes.get())
            self.read_strides(own.read(at_name["_strides"]), view, axes.get())
        with doubt.when_none():
            view.write(at.DENSELY, self.measure(view).to("i64"))

    def read_strides(self, strides: Value, view: Array, axes: Value) -> None:
        """Row-major ones are made where somebody asks; until then there are none."""
        code, sizes, own = self.code, view.at(at.SIZES), view.at(at.STEPS)
        with code.either(strides == self.control.read(at.NONE)) as (row_major, given):
            with row_major:
                step = code.variable(1)
                with code.loop(0, axes) as behind:
                    axis = axes - 1 - behind
                    own.write(axis, step.get())
                    length = sizes.read(axis)
                    step.set(step.get() * (length == 0).choose(1, length))
            with given:
                self.doubt.expect(self.is_tuple(strides))
                with self.doubt.when_none():
                    length = code.slots(strides).read(objects.TUPLE_LENGTH)
                    self.doubt.expect(length == axes)
                with self.doubt.when_none():
                    self.unpack(strides, own, axes)

    def unpack(self, numbers: Value, into: Array, count: Value) -> None:
        """The integers of a tuple."""
        items = self.code.slots(numbers).at(objects.TUPLE_ITEMS)
        with self.code.loop(0, count) as index:
            into.write(index, self.whole(self.doubt, items.read(index)))

    def compare(self, differs: Doubt, record: Array, index: Value) -> None:
        super().compare(differs, record, index)
        view = self.view(index)
        with self.code.when(view.read(at.LIBRARY) == at.OURS):
            differs.expect(view.read(at.DEVICE_NAME) == record.read(at.HOME))

    def compare_option(self, differs: Doubt, record: Array, index: Value) -> None:
        code, item = self.code, self.given.read(self.arrays + index)
        own = record.at(index * at.OPTION_SLOTS + at.FIRST_OPTION)
        scalar = self.control.read(at.SCALAR)
        is_scalar = code.slots(item).read(objects.OBJECT_TYPE) == scalar
        with code.either(is_scalar) as (ours, other):
            with ours:
                found, at_name = code.slots(item), self.of_scalar
                differs.expect(own.read(at.TYPE) == scalar)
                differs.expect(self.is_true(found.read(at_name["alive"])))
                differs.expect(found.read(at_name["dtype"]) == own.read(at.SCALAR_DTYPE))
                with differs.when_none():
                    self.compare_float(differs, own, found.read(at_name["number"]))
            with other:
                super().compare_option(differs, record, index)

    def number(self, index: Value) -> Value:
        """The float or integer that an option is; of a scalar its float."""
        item = self.code.variable(super().number(index))
        own = self.code.slots(item.get())
        with self.code.when(own.read(objects.OBJECT_TYPE) == self.control.read(at.SCALAR)):
            item.set(own.read(self.of_scalar["number"]))
        return item.get()

    def expect_allocated(self, record: Array, index: Value, owner: Array) -> None:
        """Write down what owns an operand's memory. One that is known by its address alone must lie in an allocation."""
        code, doubt, at_name = self.code, self.doubt, self.of_tensor
        tensor, none = code.slots(self.given.read(index)), self.control.read(at.NONE)
        owner.write(0, tensor.read(at_name["owner"]))
        with code.when(self.is_true(tensor.read(at_name["raw"]))):
            reference = tensor.read(at_name["block"])
            doubt.expect(reference != none)
            with doubt.when_none():
                block = code.slots(reference).read(objects.REFERENT)
                doubt.expect(block != none)
                owner.write(0, block)
                with doubt.when_none():
                    self.expect_within(record, index, code.slots(block))

    def expect_within(self, record: Array, index: Value, block: Array) -> None:
        """That an operand lies in this allocation, which was not freed."""
        doubt, at_name = self.doubt, self.of_block
        doubt.expect(self.is_true(block.read(at_name["alive"])))
        with doubt.when_none():
            start, size = (
                self.whole(doubt, block.read(at_name[name])) for name in ("address", "size")
            )
            low, high = self.span(self.own(record, index), self.view(index))
            doubt.expect((start <= low) & (high <= start + size))
