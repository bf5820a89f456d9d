"""A tensor of PyTorch's that machine code has a handle of, asked through PyTorch's stable C interface."""

from __future__ import annotations

from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.values import Value
from openaclnn.repeat.words import native as at

__all__ = ["NativeTensor"]


class NativeTensor:
    """What the functions of a kernel's block say of a tensor; `known` becomes false where one of them fails."""

    def __init__(self, code: Code, handle: Value, block: Array) -> None:
        self.code, self.handle, self.block = code, handle, block
        self.known = code.variable(True)

    def ask(self, function: int) -> Value:
        """A word, or the low half of one."""
        answer = self.code.frame("i64", 1)
        answer.write(0, 0)
        status = self.block.call(function, "i32", self.handle, answer)
        self.known.set(self.known.get() & (status == 0))
        return answer.read(0)

    @property
    def axes(self) -> Value:
        return self.ask(at.GET_DIM)

    @property
    def dtype(self) -> Value:
        return self.ask(at.GET_DTYPE)

    @property
    def index(self) -> Value:
        """Which device of its kind it is on; there is one CPU, whatever it is said to be."""
        index = self.code.variable(0)
        with self.code.when(self.block.read(at.DEVICE_KIND) != 0):
            index.set(self.ask(at.GET_INDEX))
        return index.get()
