"""What speaks against a call's being as expected, while machine code looks at it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Value

__all__ = ["Doubt"]


class Doubt:
    """What was found so far: while nothing speaks against it, `when_none` is entered."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.found = code.variable(False)

    def reset(self) -> None:
        self.found.set(False)

    def expect(self, condition: Value) -> None:
        self.found.set(self.found.get() | ~condition)

    def when_none(self) -> AbstractContextManager[None]:
        return self.code.when(~self.found.get())
