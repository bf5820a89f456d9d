"""Phase two on PyTorch's tensors: a builtin that sees whether their storages are as in phase one, and tells autograd of writes.

Asking each storage for its address and size, and autograd by its functions in Python, takes five times as long.
"""

from __future__ import annotations

from openaclnn.engines.machine import objects
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat.code.outputs import Outputs
from openaclnn.repeat.words import slots as at
from openaclnn.repeat.words.readers import HANDLE

__all__ = ["emit_announcing", "storage_of"]


def storage_of(code: Code, control: Array, item: Value) -> Value:
    """Where a tensor's storage is."""
    return code.slots(code.slots(item + HANDLE).read(0)).read(control.read(at.STORAGE_AT))


def emit_announcing(code: Code, control: Array, given: Array, number: Value) -> None:
    """The builtin `announce(words, *operands, *outputs)`: None, or NotImplemented where somebody has to look closer."""
    _Announcing(code, control, given).write(number)


class _Announcing(Outputs):
    """The function being written."""

    def write(self, number: Value) -> None:
        code, doubt = self.code, self.doubt
        words = code.slots(self.given.read(0))
        first = words.read(objects.TUPLE_LENGTH).unsigned_div(3) + 1  # of the outputs
        doubt.expect(first <= number)
        with doubt.when_none(), code.loop(1, first) as index:
            self.expect_unchanged(
                self.given.read(index), words.at((index - 1) * 3 + objects.TUPLE_ITEMS)
            )
        self.expect_no_graph()
        for told in (self.expect_no_leaf, self.count_write):
            with (
                doubt.when_none(),
                code.loop(first, number) as index,
                code.when(self.is_given(index)),
            ):
                told(self.given.read(index))
        with doubt.when_none():
            self.answer(at.NONE)
        self.answer(at.NOT_IMPLEMENTED)

    def answer(self, what: int) -> None:
        self.control.call(at.INCREF, None, self.control.read(what))
        self.code.leave(self.control.read(what))

    def expect_unchanged(self, item: Value, words: Array) -> None:
        """That a tensor still has the storage of phase one, and that storage its memory, for itself alone: a copy of it may be yet
        to be made.
        """
        code, control, doubt, where = self.code, self.control, self.doubt, self.tensor(item).where
        known = [control.call(at.AS_INT64, "i64", words.read(place)) for place in range(3)]
        storage = storage_of(code, control, item)
        doubt.expect(storage == known[0])
        with doubt.when_none():
            own = code.slots(storage)
            for was, place in zip(known[1:], (at.STORAGE_DATA, at.STORAGE_BYTES), strict=True):
                doubt.expect(own.read(control.read(place)) == was)
            doubt.expect((own.read(where.flags) & where.strange_flags) == 0)
