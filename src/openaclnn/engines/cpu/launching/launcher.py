"""The builtins that launch a kernel, as machine code: arguments in, `sharing` in between, the status word out."""

from __future__ import annotations

from openaclnn.engines.cpu.launching import control as at
from openaclnn.engines.cpu.launching import sharing
from openaclnn.engines.machine.builtins import integer_of
from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.objects import OBJECT_TYPE, TUPLE_ITEMS, TUPLE_LENGTH
from openaclnn.engines.machine.values import Value

__all__ = ["BRIEF", "TINY", "Launch", "emit_bound", "emit_entry"]

TINY = 64  # count <= grain / TINY is a tiny call
BRIEF = 512  # elements, of a call that has one unit


def emit_entry(code: Code, control: Array, given: Array, number: Value) -> None:
    """The builtin `launch(kernel, count, grain, *arguments)`."""
    launch = Launch(code, control)
    kernel, count, grain = (integer_of(code, given.read(index)) for index in range(3))
    with code.loop(0, number - 3) as index:
        launch.arguments.write(index, integer_of(code, given.read(index + 3)))
    launch.run(kernel, count, grain)


def emit_bound(code: Code, own: Array, given: Array, number: Value) -> None:
    """The builtin `run(addresses, stream)` of one kernel with its constants, whose block is `own`.

    What it is not made for, or before the workers run, the function in Python does.
    """
    control = code.slots(own.read(at.BOUND_CONTROL))
    kernel, count, grain, constants = (
        own.read(where)
        for where in (at.BOUND_KERNEL, at.BOUND_COUNT, at.BOUND_GRAIN, at.BOUND_CONSTANTS)
    )
    ready = control.flag(at.STARTED) | (count <= grain)
    with code.when(ready & (number == 2)):
        addresses = code.slots(given.read(0))
        with code.when(addresses.read(OBJECT_TYPE) == control.read(at.TUPLE)):
            length = addresses.read(TUPLE_LENGTH)
            with code.when(length + constants <= at.MAX_ARGUMENTS):
                launch = Launch(code, control)
                with code.loop(0, constants) as index:
                    launch.arguments.write(index, own.read(index + at.BOUND_VALUES))
                with code.loop(0, length) as index:
                    address = integer_of(code, addresses.read(index + TUPLE_ITEMS))
                    launch.arguments.write(constants + index, address)
                launch.run(kernel, count, grain)
    code.leave(control.call(at.VECTORCALL, "i64", own.read(at.BOUND_FALLBACK), given, number, 0))


class Launch:
    """A launch being written: its argument block is filled, then it runs. `locked`: the interpreter's lock is held."""

    def __init__(self, code: Code, control: Array, locked: bool = True) -> None:
        self.code, self.control, self.locked = code, control, locked
        self.block = code.frame("i64", at.FIRST_ARGUMENT + at.MAX_ARGUMENTS)
        self.block.write(at.STATUS, 0)
        self.arguments = self.block.at(at.FIRST_ARGUMENT)

    def ready(self, count: Value, grain: Value) -> Value:
        """Whether the workers run, or are not needed."""
        return self.control.flag(at.STARTED) | (count <= grain)

    def execute(self, kernel: Value, count: Value, grain: Value) -> Value:
        """Run a kernel; its status word."""
        code, control = self.code, self.control
        if not self.locked:
            sharing.run(control, kernel, self.block, count, grain)
            return self.block.read(at.STATUS)
        # A tiny call keeps the interpreter's lock: with a busy second thread, giving it away costs 5 ms.
        with code.either(count * TINY <= grain) as (tiny, longer):
            with tiny:
                code.call(kernel, None, self.block, 0, count)
            with longer:
                state = control.call(at.SAVE, "i64")
                sharing.run(control, kernel, self.block, count, grain)
                control.call(at.RESTORE, None, state)
        return self.block.read(at.STATUS)

    def run(self, kernel: Value, count: Value, grain: Value) -> None:
        """Run a kernel and return its status word."""
        status = self.execute(kernel, count, grain)
        self.code.leave(self.control.call(at.FROM_INT64, "i64", status))
