"""A C++ tensor of PyTorch's, read by machine code."""

from __future__ import annotations

from typing import Any

from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat.code.recognise import Guard
from openaclnn.repeat.words.tensors import INLINE_AXES

__all__ = ["NativeTensor"]


class NativeTensor:
    """A C++ tensor, read from its words, which lie where a `TensorWords` says: one of integers, or of values read at run time.
    Until `expect_plain`, only the first word may be relied on.
    """

    def __init__(self, code: Code, handle: Value, where: Any) -> None:
        self.code, self.where = code, where
        self.slots = code.slots(code.slots(handle).read(0))
        self.storage = code.slots(self.slots.read(where.storage))

    @property
    def axes(self) -> Value:
        return self.slots.read(self.where.axes)

    def sides(self) -> tuple[Value, Value]:
        """Addresses of the sizes and of the strides."""
        slots, where, apart = self.slots, self.where, self.axes > INLINE_AXES
        first = slots.read(where.sizes)
        sizes = apart.choose(first, slots.address(where.sizes))
        return sizes, apart.choose(first + self.axes * 8, slots.address(where.strides))

    @property
    def dtype(self) -> Value:
        return self.slots.read(self.where.device_and_dtype) & 0xFFFF

    @property
    def device(self) -> Value:
        return self.slots.read(self.where.device_and_dtype) >> 16 & 0xFF

    @property
    def index(self) -> Value:
        """Which device of its kind it is on; there is one CPU, whatever it is said to be."""
        found = self.slots.read(self.where.device_and_dtype) >> 24 & 0xFF
        return (self.device == 0).choose(0, found)

    def expect_plain(self, guard: Guard, table: Value, storage_table: Value) -> None:
        """That it is memory and nothing else."""
        where = self.where
        guard.expect(self.slots.read(0) == table)
        guard.expect((self.slots.read(where.keys) & where.strange_keys) == 0)
        guard.expect(self.slots.read(where.storage) != 0)
        guard.expect(self.storage.read(0) == storage_table)
        guard.expect((self.storage.read(where.flags) & where.strange_flags) == 0)
        guard.expect(self.storage.read(where.data) != 0)

    def data(self, item: Value) -> Value:
        """The address of its first element; elements have `item` bytes."""
        return self.storage.read(self.where.data) + self.offset * item

    @property
    def offset(self) -> Value:
        return self.slots.read(self.where.offset)

    @property
    def storage_bytes(self) -> Value:
        return self.storage.read(self.where.size)
