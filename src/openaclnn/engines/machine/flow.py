"""Statements that steer a function being written: its constants and variables, calls, conditions and loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from llvmlite import ir

from openaclnn.engines.machine.kinds import F32, F64, I64, STORED, VOID, constant
from openaclnn.engines.machine.values import Value, Variable, zero_of

__all__ = ["Flow"]


class Addressed(Protocol):
    """What lies at an address."""

    def address(self) -> Value: ...


class Flow:
    """What does not touch memory; `Code` has the rest."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    # Expressions without operands.

    def value(self, *parts: Any) -> Value:
        return Value(self.builder, *parts)

    def integer(self, number: int) -> Value:
        return self.value(constant(I64, number))

    def single(self, number: float) -> Value:
        return self.value(ir.Constant(F32, number))

    def double(self, number: float) -> Value:
        return self.value(ir.Constant(F64, number))

    def constant(self, kind: str, number: float, lanes: int) -> Value:
        """A number in every lane of one stream."""
        return self.value(constant(STORED[kind], number, lanes))

    def joined(self, streams: Sequence[Value]) -> Value:
        """Vectors of one stream each as one of many."""
        return streams[0].join(streams)

    def variable(self, start: Value | int) -> Variable:
        """One that starts as a value, as an int64, or by a `bool` as a truth value."""
        if isinstance(start, int):
            start = self.value(constant(zero_of(start).type, start))
        return Variable(self.builder, start)

    def as_integer(self, number: Value | int) -> Value:
        return self.integer(number) if isinstance(number, int) else number

    # Calls.

    def call(self, function: Value, result: str | None, *values: Value | Addressed | int) -> Value:
        """Call the function at an address; `result` is the kind it returns, None for nothing."""
        given = [self._given(one) for one in values]
        kind = ir.FunctionType(STORED[result] if result else VOID, [one.type for one in given])
        at = self.builder.inttoptr(function.value, kind.as_pointer())
        return self.value(self.builder.call(at, given))

    def _given(self, one: Value | Addressed | int) -> Any:
        """What a call passes: an array goes by its address."""
        if isinstance(one, int):
            return self.integer(one).value
        return (one if isinstance(one, Value) else one.address()).value

    def call_symbol(self, name: str, result: str, *values: Value) -> Value:
        """Call a function that the process knows by name."""
        given = [one.value for one in values]
        function = self.builder.module.globals.get(name)
        if function is None:
            signature = ir.FunctionType(STORED[result], [one.type for one in given])
            function = ir.Function(self.builder.module, signature, name)
        return self.value(self.builder.call(function, given))

    def call_self(self, *values: Value) -> Value:
        """Call the function being written."""
        return self.value(self.builder.call(self.builder.function, [one.value for one in values]))

    def take_place(self, function: Any) -> None:
        """Let another function of this one's kind, which returns nothing, do its work."""
        self.builder.call(function, self.builder.function.args, tail="musttail")
        self.builder.ret_void()

    def leave(self, result: Value | None = None) -> None:
        """Return from the function."""
        wanted = self.builder.function.function_type.return_type
        if wanted != (VOID if result is None else result.value.type):
            raise TypeError(f"the function returns {wanted}, not {result!r}")
        if result is None:
            self.builder.ret_void()
        else:
            self.builder.ret(result.value)

    # Control.

    def ending(self, write: Callable[[], None]) -> Callable[[], None]:
        """What goes from wherever it is called to code that is written once, and leaves the function."""
        block = self.builder.append_basic_block("ending")
        with self.builder.goto_block(block):
            write()
        return lambda: self.builder.branch(block)

    @contextmanager
    def when(self, condition: Value, likely: bool | None = None) -> Iterator[None]:
        with self.builder.if_then(condition.condition, likely=likely):
            yield

    @contextmanager
    def either(self, condition: Value) -> Iterator[Any]:
        """`with code.either(c) as (yes, no):`, then `with yes:` and `with no:`."""
        with self.builder.if_else(condition.condition) as branches:
            yield branches

    @contextmanager
    def first_of(self) -> Iterator[Callable[[], None]]:
        """What is called inside to say that one of several ways was taken, and skips the others."""
        done = self.builder.append_basic_block("done")

        def taken() -> None:
            self.builder.branch(done)

        yield taken
        if not self.builder.block.is_terminated:
            self.builder.branch(done)
        self.builder.position_at_end(done)

    @contextmanager
    def forever(self) -> Iterator[Callable[[], None]]:
        """Again and again, until what it gives is called inside; nothing can follow where it never is."""
        builder, stopped = self.builder, False
        again, after = (builder.append_basic_block(name) for name in ("again", "after"))

        def stop() -> None:
            nonlocal stopped
            stopped = True
            builder.branch(after)

        builder.branch(again)
        builder.position_at_end(again)
        yield stop
        builder.branch(again)
        builder.position_at_end(after)
        if not stopped:
            builder.unreachable()

    @contextmanager
    def repeat_while(self, condition: Callable[[], Value]) -> Iterator[None]:
        builder = self.builder
        test, inside, after = (builder.append_basic_block(name) for name in ("while", "do", "end"))
        builder.branch(test)
        builder.position_at_end(test)
        builder.cbranch(condition().condition, inside, after)
        builder.position_at_end(inside)
        yield
        if not builder.block.is_terminated:
            builder.branch(test)
        builder.position_at_end(after)

    @contextmanager
    def loop(self, start: Value | int, stop: Value | int, step: int = 1) -> Iterator[Value]:
        """index = start, start + step, ... below stop"""
        builder = self.builder
        first, last = self.as_integer(start), self.as_integer(stop)
        if step < 1 or any(own.value.type != I64 for own in (first, last)):
            raise TypeError(f"a loop counts up in int64, not from {first!r} to {last!r} by {step}")
        before = builder.block
        test, inside, after = (builder.append_basic_block(name) for name in ("test", "do", "end"))
        builder.branch(test)
        builder.position_at_end(test)
        index = builder.phi(I64)
        index.add_incoming(first.value, before)
        builder.cbranch(builder.icmp_signed("<", index, last.value), inside, after)
        builder.position_at_end(inside)
        yield self.value(index)
        following = builder.add(index, ir.Constant(I64, step), flags=("nsw",))
        index.add_incoming(following, builder.block)
        builder.branch(test)
        builder.position_at_end(after)

    def strides(
        self, start: Value, count: Value, step: int, body: Callable[[Value], None]
    ) -> Value:
        """`body(index)` for index = start, start + step, ... while a whole step is left; returns the rest's start.

        The condition stands at the loop's end, which the fastest loops want.
        """
        builder = self.builder
        before, function = builder.block, builder.function
        inside = function.append_basic_block("loop")
        after = function.append_basic_block("after")
        last = count - step
        builder.cbranch((start <= last).value, inside, after)
        builder.position_at_end(inside)
        index = builder.phi(I64)
        index.add_incoming(start.value, before)
        body(self.value(index))
        following = builder.add(index, ir.Constant(I64, step), flags=("nsw",))
        index.add_incoming(following, builder.block)
        end = builder.block
        builder.cbranch(builder.icmp_signed("<=", following, last.value), inside, after)
        builder.position_at_end(after)
        rest = builder.phi(I64)
        rest.add_incoming(start.value, before)
        rest.add_incoming(following, end)
        return self.value(rest)
