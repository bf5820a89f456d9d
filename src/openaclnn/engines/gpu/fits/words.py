"""The machine code of `code.py` for callers that have no Python objects, and do not hold the interpreter's lock."""

from __future__ import annotations

from collections.abc import Sequence

from openaclnn.engines.gpu.fits.code import ADDRESSES, MAX_NUMBERS, NUMBERS, OWN_NUMBERS, Fit
from openaclnn.engines.machine.cache import compiled
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.kinds import signature
from openaclnn.engines.machine.values import Value

__all__ = ["words_of"]


def words_of(fit: type[Fit]) -> int:
    """`run(block, addresses, how many, shape, axes, numbers, how many, stream)`: 0, or -1 where the builtin has to be called;
    0 in place of a function for fits that take more than that. Numbers are integers, or the bits of floats.
    """
    if fit.more != Fit.more:
        return 0
    own: type[_OfWords] = type(f"{fit.__name__}OfWords", (_OfWords, fit), {})

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        block, addresses, operands, shape, axes, numbers, count, stream = arguments
        written = own(code, code.slots(block))
        written.take(code.slots(addresses), operands, code.slots(numbers), count)
        written.write_words(code.slots(shape), axes, stream)

    return compiled(f"gpu.{fit.name}.words", emit, signature("i64", *["i64"] * 8))


class _OfWords(Fit):
    """The function being written."""

    def size(self, shape: Array, axis: Value | int) -> Value:
        return shape.read(axis)

    def take(self, addresses: Array, operands: Value, numbers: Array, count: Value) -> None:
        code, control, own = self.code, self.control, self.control.read(NUMBERS)
        self.expect(operands.equals(control.read(ADDRESSES)))
        self.expect(count.equals(0) | count.equals(own))
        for place in range(MAX_NUMBERS):
            self.numbers.write(place, control.read(OWN_NUMBERS + place))
        with self.when_fit():
            with code.loop(0, count) as index:
                self.numbers.write(index, numbers.read(index))
            with code.loop(0, operands) as index:
                self.addresses.write(index, addresses.read(index))

    def write_words(self, shape: Array, axes: Value, stream: Value) -> None:
        if self.axes:
            self.expect(axes.equals(self.axes))
        with self.when_fit():
            self.fit_all(shape, axes)
        self.expect(self.summed.get().equals(0))  # memory is taken with Python's functions
        with self.when_fit():
            self.start(stream)
            with self.when_fit():
                self.code.leave(self.code.integer(0))
        self.code.leave(self.code.integer(-1))
