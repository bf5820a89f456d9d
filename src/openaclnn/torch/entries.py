"""Machine code that PyTorch's dispatcher calls in the place of one of its own kernels, as C++ calls it.

What the short road serves is computed by `repeat.native`, without Python; what it does not, a function in Python is asked
for; and what that does not serve either, PyTorch's own kernel is handed, as if nothing had been in between.
"""

from __future__ import annotations

from collections.abc import Sequence

from openaclnn.core.interface import REDUCTIONS
from openaclnn.engines.machine import objects
from openaclnn.engines.machine.cache import compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.foreign import entry, hand_on
from openaclnn.engines.machine.kinds import signature
from openaclnn.engines.machine.values import Value, Variable
from openaclnn.repeat.code.tensors import NativeTensor
from openaclnn.repeat.words import native as at
from openaclnn.repeat.words.readers import HANDLE
from openaclnn.repeat.words.tensors import TensorWords
from openaclnn.torch.signatures import (
    BOOL,
    FLOAT,
    INTEGER,
    REDUCTION,
    SCALAR,
    SYMBOL,
    TENSOR,
    WEIGHT,
    Signature,
)

__all__ = ["boxed_entry", "native_entry"]

ENGAGED = 1  # slot of an optional tensor that says whether there is one
SCALAR_VALUE = 2  # slot of a number of any kind, behind the word that says which
IS_DOUBLE, IS_INTEGER = 0, 1
LEAST_NUMBER = -(1 << 62)
EXPONENT_AT, INFINITE = 52, 0x7FF  # of a double: its exponent, and that of what is not finite


def native_entry(name: str, own: Signature, where: TensorWords) -> int:
    """`result kernel(self, keys, arguments)`, self being a block of `native`."""
    kinds = ["i64", "i64", *["f64" if kind == FLOAT else "i64" for kind in own.kinds]]

    def in_place(code: Code, arguments: Sequence[Value]) -> None:
        _Entry(code, None, own, where, arguments).write()

    def emit(code: Code, room: Array, arguments: Sequence[Value]) -> None:
        _Entry(code, room, own, where, arguments).write()

    full = f"{name}.{own.kinds}.native"
    if not own.results:
        return compiled(full, in_place, signature("i64", *kinds))
    return entry(full, kinds, emit)


def boxed_entry() -> int:
    """`kernel(self, operator, keys, stack)`: the one in Python serves."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block = code.slots(arguments[0])
        hand_on(code, block.read(at.BOXED), [block.read(at.BOXED_SELF), *arguments[1:]])

    return compiled("boxed.native", emit, signature(None, *["i64"] * 4))


class _Entry:
    """The function being written."""

    def __init__(
        self, code: Code, room: Array | None, own: Signature, where: TensorWords, arguments: Sequence[Value]
    ) -> None:  # fmt: skip
        self.code, self.room, self.own, self.where = code, room, own, where
        self.block, self.keys, self.given = code.slots(arguments[0]), arguments[1], arguments[2:]
        self.results = code.frame("i64", at.MAX_RESULTS)

    def write(self) -> None:
        code, block = self.code, self.block
        for index in range(at.MAX_RESULTS):
            self.results.write(index, 0)
        status, plain = code.variable(1), code.variable(True)
        words = code.frame("i64", sum(self.own.words))
        self.write_words(words, plain)
        alone = self.each_for_itself(plain) if self.own.results > 1 else None
        with code.when(plain.get()):
            status.set(block.call(at.CORE, "i64", block, words, self.results))
        if alone is not None:
            with code.when(alone & (status.get() == 0)):
                self.clear_second(status)
        with code.when(status.get() != 0):
            state = block.call(at.ENSURE, "i32")
            self.ask(status)
            block.call(at.RELEASE, None, state)
        with code.when(status.get() == 0):
            if self.room is None:
                code.leave(self.given[0])
            else:
                self.move_results(self.room)
                code.leave()
        original = [block.read(at.ORIGINAL_SELF), self.keys, *self.given]
        hand_on(code, block.read(at.ORIGINAL), original)

    def write_words(self, words: Array, plain: Variable) -> None:
        """The road's arguments: its arrays, the output if one is given, its options."""
        inputs, outputs, _ = self.own.words
        for place in range(outputs):
            words.write(inputs + place, 0 if self.own.results else self.given[0])
        for place, source in enumerate(self.own.order):
            where = place + outputs * (place >= inputs)
            words.write(where, self.word(self.own.kinds[source], self.given[source], plain))

    def word(self, kind: str, value: Value, plain: Variable) -> Value:
        code = self.code
        if kind == FLOAT:
            return self.finite(value.bits_as("i64"), plain)
        if kind == BOOL:
            truth = (value & 0xFF) != 0
            return truth.choose(self.block.read(at.TRUE), self.block.read(at.FALSE))
        if kind == REDUCTION:
            known = value.below(len(REDUCTIONS))
            self.expect(plain, known)
            return self.block.at(at.REDUCTIONS).read(known.choose(value, 0))
        if kind == SCALAR:
            tag, bits = self.tag(value), self.payload(value)
            self.expect(plain, tag.below(IS_INTEGER + 1))
            number = (tag == IS_DOUBLE).choose(bits, bits.to("f64").bits_as("i64"))
            return self.finite(number, plain)
        if kind == SYMBOL:
            self.expect(plain, ~self.symbolic(value))
            return code.slots(value).read(0)
        if kind == WEIGHT:
            found = code.variable(value)
            with code.when(~self.engaged(value)):
                found.set(self.ones())
                self.expect(plain, found.get() != 0)
            return found.get()
        return value

    def finite(self, bits: Value, plain: Variable) -> Value:
        """A number with which our formulas are PyTorch's; others Python declines."""
        self.expect(plain, (bits >> EXPONENT_AT & INFINITE) != INFINITE)
        return bits

    def expect(self, plain: Variable, condition: Value) -> None:
        plain.set(plain.get() & condition)

    def tag(self, scalar: Value) -> Value:
        return self.code.slots(scalar).read(0) & 0xFFFFFFFF

    def payload(self, scalar: Value) -> Value:
        return self.code.slots(scalar).read(SCALAR_VALUE)

    def engaged(self, optional: Value) -> Value:
        """Whether there is a tensor, and more than a tensor that is none."""
        tensor = self.code.slots(optional)
        some = (tensor.read(ENGAGED) & 0xFF) != 0
        return some & (tensor.read(0) != self.block.read(at.UNDEFINED))

    def symbolic(self, symbol: Value) -> Value:
        """An integer that may be a symbol is one if it is below all that PyTorch takes for numbers."""
        return self.code.slots(symbol).read(0) < LEAST_NUMBER

    def ones(self) -> Value:
        """The handle of a weight for each class that changes nothing, if Python has made one; else 0."""
        code, block = self.code, self.block
        # It comes before the target and this.
        tensor = self.tensor(self.own.kinds.index(WEIGHT) - 2)
        ones, axes = code.variable(0), tensor.axes
        with code.when(axes > 0):
            classes = code.slots(tensor.sides()[0]).read((axes > 1).to("i64"))
            with code.loop(0, block.read(at.MANY_ONES)) as index, code.when(ones.get() == 0):
                kept = block.at(index * at.ONES_SLOTS + at.ONES)
                same = (kept.read(0) == classes) & (kept.read(1) == tensor.dtype)
                with code.when(same & (kept.read(2) == tensor.index)):
                    ones.set(kept.read(3))
        return ones.get()

    def each_for_itself(self, plain: Variable) -> Value:
        """Whether each position has a loss of its own: then the second result is 0, unless there is no axis of positions. Of pixels on
        a GPU PyTorch leaves it as it was allocated.
        """
        kinds = self.own.kinds
        alone, axes = (
            self.given[kinds.index(REDUCTION)] == 0,
            self.tensor(kinds.index(WEIGHT) - 1).axes,
        )
        self.expect(plain, (axes != 0) | ~alone)
        return alone & ((axes == 1) | (self.block.read(at.DEVICE_KIND) == 0))

    def clear_second(self, status: Variable) -> None:
        """A fresh tensor of one element; on a GPU by PyTorch, in its turn on the stream."""
        code, block = self.code, self.block
        with code.either(block.read(at.DEVICE_KIND) == 0) as (host, other):
            with host:
                second = NativeTensor(code, self.results.read(1), self.where)
                bits = block.at(at.DTYPES).read(second.dtype) >> 40 & 0xFF  # DLPack's
                code.clear(second.data(bits >> 3), bits >> 3)
            with other:
                failed = block.call(at.ZERO, "i32", self.results.read(1)).to("i64")
                with code.when(failed != 0, likely=False):
                    status.set(failed)
                    for index in range(self.own.results):
                        block.call(at.DELETE, "i32", self.results.read(index))
                        self.results.write(index, 0)

    def tensor(self, place: int) -> NativeTensor:
        return NativeTensor(self.code, self.given[place], self.where)

    # By way of Python.

    def ask(self, status: Variable) -> None:
        """The function in Python, if there is memory for its arguments."""
        code, block, own = self.code, self.block, self.own
        items, missing = code.frame("i64", len(own.kinds)), code.integer(0)
        for place, (kind, value) in enumerate(zip(own.kinds, self.given, strict=True)):
            items.write(place, self.made(kind, value))
            missing = missing | (items.read(place) == 0).to("i64")
        found = code.variable(0)
        with code.when(missing == 0):
            asked = block.read(at.ASKED)
            found.set(block.call(at.VECTORCALL, "i64", asked, items, len(own.kinds), 0))
        for place in range(len(own.kinds)):
            block.call(at.DECREF, None, items.read(place))
        with code.either(found.get() == 0) as (raised, answered):
            with raised:
                self.raise_later()
                if not own.results:  # what may have been written over is not computed again
                    status.set(missing)
            with answered:
                self.take(found.get(), status)

    def take(self, found: Value, status: Variable) -> None:
        """What Python answered, if it is more than that it does not serve the call."""
        code, block, own = self.code, self.block, self.own
        with code.when(found != block.read(at.NOT_IMPLEMENTED)):
            status.set(code.integer(0))
            for index in range(own.results):
                item = code.slots(found).read(objects.TUPLE_ITEMS + index) if own.results > 1 else found  # fmt: skip
                copied = block.call(at.COPY, "i32", item + HANDLE, self.results.at(index))
                status.set(status.get() | copied.to("i64"))
        block.call(at.DECREF, None, found)

    def raise_later(self) -> None:
        """What Python raised is raised where Python runs next in this thread: no exception passes through C++'s frames."""
        code, block, error = self.code, self.block, self.code.frame("i64", 3)
        for function in (at.FETCH, at.NORMALIZE):
            block.call(function, None, *[error.at(place) for place in range(3)])
        later = block.call(at.VECTORCALL, "i64", block.read(at.LATER), error.at(1), 1, 0)
        # Another signal, or no memory: an instance without arguments has to do.
        with code.when(later == 0):
            block.call(at.CLEAR, None)
        kind = (later == 0).choose(error.read(0), later)
        block.call(at.SET_LATER, "i32", block.call(at.THREAD, "i64"), kind)
        for own in (later, *[error.read(place) for place in range(3)]):
            block.call(at.DECREF, None, own)

    def made(self, kind: str, value: Value) -> Value:
        """An argument as Python has it, owned."""
        code, block = self.code, self.block
        if kind == TENSOR:
            return block.call(at.WRAP, "i64", value)
        if kind == FLOAT:
            return block.call(at.FROM_DOUBLE, "i64", value)
        if kind == BOOL:
            return block.call(at.FROM_BOOL, "i64", value & 0xFF)
        if kind in (INTEGER, REDUCTION):
            return block.call(at.FROM_INT64, "i64", value)
        found = code.variable(block.read(at.NONE))
        block.call(at.INCREF, None, found.get())
        if kind == WEIGHT:
            with code.when(self.engaged(value)):
                found.set(block.call(at.WRAP, "i64", value))
            return found.get()
        if kind == SYMBOL:
            with code.when(~self.symbolic(value)):
                found.set(block.call(at.FROM_INT64, "i64", code.slots(value).read(0)))
            return found.get()
        tag, bits = self.tag(value), self.payload(value)
        with code.when(tag == IS_DOUBLE):
            found.set(block.call(at.FROM_DOUBLE, "i64", bits.bits_as("f64")))
        with code.when(tag == IS_INTEGER):
            found.set(block.call(at.FROM_INT64, "i64", bits))
        return found.get()

    def move_results(self, room: Array) -> None:
        """Tensors from handles of their own into the caller's room; of a tuple C++ has the last in front."""
        code, block, count = self.code, self.block, self.own.results
        for index in range(count):
            handle = self.results.read(index)
            tensor = code.slots(handle)
            room.write(count - 1 - index, tensor.read(0))
            tensor.write(0, block.read(at.UNDEFINED))
            block.call(at.DELETE, "i32", handle)
