"""Values of a function being written, with Python's operators: one language for scalars and for vectors.

A scalar is one LLVM number. A vector is K streams of L lanes, each operation written K times: a plain loop keeps one
dependent chain in flight (2^24 ELU gradients on two Neoverse-N1 cores: 23 ms), K chains side by side take 8 to 9 ms,
and LLVM keeps them side by side only if the code already says so. Beside a vector, a scalar or a Python number
stands in every lane, and one stream stands for all.

Integers are signed and wrap around; operators mean what they mean in Python, and comparisons give truth values. What
has no meaning (a float beside an integer, vectors of different lanes, a branch on a vector) raises TypeError or
ValueError where it is written, since LLVM would only notice later, or end the process.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, Self, TypeVar

from openaclnn.engines.machine import assembly
from openaclnn.engines.machine.assembly import (
    I1,
    I32,
    I64,
    PTR,
    Builder,
    FloatType,
    Function,
    FunctionType,
    IntType,
    Operand,
    VectorType,
    undefined,
    vector_type,
)
from openaclnn.engines.machine.kinds import SIZE, STORED, constant, in_lanes

V = TypeVar("V", bound="Value")


class Shape(NamedTuple):
    """How a vector is laid out: streams, and lanes of each."""

    streams: int
    lanes: int

    @property
    def elements(self) -> int:
        return self.streams * self.lanes


class Value:
    """A scalar or a vector: floats, integers, or truth values, which are what comparisons give."""

    __slots__ = ("builder", "parts")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, builder: Any, *parts: Any) -> None:
        self.builder = builder
        self.parts = parts

    def __repr__(self) -> str:
        lanes = f"{len(self.parts)} x {self.lanes} " if self.lanes else ""
        return f"{type(self).__name__}({lanes}{self.element})"

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"whether {self!r} holds is known only when the code runs: write code.when, code.either or choose in "
            "place of `if`, and &, | and ~ in place of `and`, `or` and `not`"
        )

    @property
    def value(self) -> Any:
        """The LLVM value of a scalar, or of a vector's only stream."""
        if len(self.parts) != 1:
            raise ValueError(f"{self!r} has {len(self.parts)} streams where one is wanted")
        return self.parts[0]

    @property
    def condition(self) -> Any:
        """The LLVM value of a truth value that code branches on."""
        if self.lanes or not self.is_truth:
            raise TypeError(f"code branches on one truth value, not on {self!r}")
        return self.value

    @property
    def lanes(self) -> int:
        """Of each stream; 0 for a scalar."""
        kind = self.parts[0].type
        return kind.count if isinstance(kind, VectorType) else 0

    @property
    def shape(self) -> Shape:
        return Shape(len(self.parts), self.lanes)

    @property
    def element(self) -> Any:
        """The LLVM type of one element."""
        kind = self.parts[0].type
        return kind.element if isinstance(kind, VectorType) else kind

    @property
    def floating(self) -> bool:
        return isinstance(self.element, FloatType)

    @property
    def is_truth(self) -> bool:
        return bool(self.element == I1)

    def each(self, operation: Callable[..., Any], *others: Any) -> Self:
        """One operation on every stream, with those of other values."""
        operands = aligned(self, *others)
        return type(self)(
            self.builder, *(operation(*parts) for parts in zip(*operands, strict=True))
        )

    def become(self, kind: type[V]) -> V:
        """The same as another class of values."""
        return kind(self.builder, *self.parts)

    def streams(self) -> list[Self]:
        """Each stream as a vector of its own."""
        return [type(self)(self.builder, part) for part in self.parts]

    def streams_with(self, other: Any) -> Iterator[tuple[Self, Self]]:
        """Pairs of streams of two values."""
        for pair in zip(*aligned(self, other), strict=True):
            first, second = (type(self)(self.builder, part) for part in pair)
            yield first, second

    def join(self, streams: Iterable[Value]) -> Self:
        """Vectors of one stream each as one of many."""
        return type(self)(self.builder, *(part for one in streams for part in one.parts))

    def splat(self, lanes: int) -> Self:
        """A scalar in every lane; of several, each in those of its own stream."""
        if not lanes:
            return self
        if self.lanes:
            raise TypeError(f"a scalar stands in every lane, not {self!r}")
        empty = undefined(vector_type(self.element, lanes))
        vector = self.each(
            lambda one: self.builder.insert_element(empty, one, assembly.constant(I32, 0))
        )
        return vector if lanes == 1 else vector.pick([0] * lanes)

    def fill(self, shape: Shape) -> Self:
        """A scalar in every lane of every stream."""
        return type(self)(self.builder, *self.splat(shape.lanes).parts * shape.streams)

    # Arithmetic.

    def _number(self, what: str) -> None:
        if self.is_truth or self.element == PTR:
            raise TypeError(f"{what} takes numbers, not {self!r}")

    def _integer(self, what: str) -> None:
        if self.floating or self.is_truth or self.element == PTR:
            raise TypeError(f"{what} takes integers, not {self!r}")

    def _arithmetic(self, sign: str, name: str, other: Any) -> Self:
        self._number(sign)
        return self.each(getattr(self.builder, f"f{name}" if self.floating else name), other)

    def _before(self, number: Any) -> Self:
        """A Python number on an operator's left, as a value like this one."""
        return self.as_value(number).become(type(self))

    def __add__(self, other: Any) -> Self:
        return self._arithmetic("+", "add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        return self._arithmetic("-", "sub", other)

    def __rsub__(self, other: Any) -> Self:
        return self._before(other) - self

    def __mul__(self, other: Any) -> Self:
        return self._arithmetic("*", "mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        if not self.floating:
            raise TypeError(f"/ takes floats, not {self!r}: write //, or convert it first")
        return self.each(self.builder.fdiv, other)

    def __rtruediv__(self, other: Any) -> Self:
        return self._before(other) / self

    def __floordiv__(self, other: Any) -> Self:
        """Rounded down, as in Python. The divisor is not 0; the lowest integer by -1 wraps around to itself."""
        self._divisible("//", other)
        if _is_power_of_two(other):
            return self.shifted_down(other.bit_length() - 1)
        quotient, _, lower, negates = self._divided(other)
        return negates.choose(-self, lower.choose(quotient - 1, quotient))

    def __rfloordiv__(self, other: Any) -> Self:
        return self._before(other) // self

    def __mod__(self, other: Any) -> Self:
        """What `//` leaves: 0, or of the divisor's sign."""
        self._divisible("%", other)
        if _is_power_of_two(other):
            return self & (int(other) - 1)
        _, rest, lower, _ = self._divided(other)
        return lower.choose(rest + other, rest)

    def __rmod__(self, other: Any) -> Self:
        return self._before(other) % self

    def _divided(self, other: Any) -> tuple[Self, Self, Self, Self]:
        """Towards 0: quotient and rest, whether the quotient rounded down is one less, and whether the divisor is -1,
        by which nothing is divided: processors trap where a quotient does not fit."""
        divisor = self._before(other)
        negates = divisor._compare("==", -1)
        divisor = negates.choose(1, divisor)
        quotient, rest = (
            self.each(divide, divisor) for divide in (self.builder.sdiv, self.builder.srem)
        )
        return quotient, rest, rest._compare("!=", 0) & ((rest ^ divisor) < 0), negates

    def _divisible(self, what: str, other: Any) -> None:
        self._integer(what)
        if isinstance(other, int) and other == 0:
            raise ZeroDivisionError(f"{what} by 0")

    def unsigned_div(self, other: Any) -> Self:
        """`//` where neither is negative, by one instruction."""
        self._divisible("unsigned_div", other)
        return self.each(self.builder.udiv, other)

    def unsigned_rem(self, other: Any) -> Self:
        """`%` where neither is negative, by one instruction."""
        self._divisible("unsigned_rem", other)
        return self.each(self.builder.urem, other)

    def __neg__(self) -> Self:
        self._number("-")
        return self.each(self.builder.fneg if self.floating else self.builder.neg)

    def negative_of(self) -> Self | None:
        """The float whose negative this was written as, if it was."""
        negated = [part.negated for part in self.parts]
        return None if None in negated else type(self)(self.builder, *negated)

    def __abs__(self) -> Self:
        """NaN stays."""
        return (self < 0).choose(-self, self)

    # Bits, and truth values.

    def _bitwise(self, sign: str, name: str, *other: Any) -> Self:
        if not isinstance(self.element, IntType):
            raise TypeError(f"{sign} takes integers or truth values, not {self!r}")
        return self.each(getattr(self.builder, name), *other)

    def __and__(self, other: Any) -> Self:
        return self._bitwise("&", "and_", other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Self:
        return self._bitwise("|", "or_", other)

    __ror__ = __or__

    def __xor__(self, other: Any) -> Self:
        return self._bitwise("^", "xor", other)

    __rxor__ = __xor__

    def __invert__(self) -> Self:
        return self._bitwise("~", "not_")

    def _shifted(self, sign: str, name: str, other: Any) -> Self:
        self._integer(sign)
        if isinstance(other, int) and not 0 <= other < self.element.width:
            raise ValueError(f"{sign} by {other} of {self!r}, which has {self.element.width} bits")
        return self.each(getattr(self.builder, name), other)

    def __lshift__(self, other: Any) -> Self:
        return self._shifted("<<", "shl", other)

    def __rlshift__(self, other: Any) -> Self:
        return self._before(other) << self

    def __rshift__(self, other: Any) -> Self:
        """Zeros come in from the left, unlike in Python: of bits, not of a negative number (`shifted_down`)."""
        return self._shifted(">>", "lshr", other)

    def __rrshift__(self, other: Any) -> Self:
        return self._before(other) >> self

    def shifted_down(self, bits: Any) -> Self:
        """To the right, the sign coming in from the left."""
        return self._shifted("shifted_down", "ashr", bits)

    def bit(self, place: Any) -> Self:
        """Whether a bit is set."""
        moved: Self = self >> place
        return (moved & 1)._compare("!=", 0)

    # Comparisons; those with NaN are false, but for `!=`.

    def _compare(self, relation: str, other: Any) -> Self:
        builder = self.builder
        if relation not in ("==", "!="):
            self._number(relation)
        if self.floating:
            if relation == "!=":
                return self.each(builder.fcmp_unequal, other)
            return self.each(functools.partial(builder.fcmp_ordered, relation), other)
        return self.each(functools.partial(builder.icmp_signed, relation), other)

    def __lt__(self, other: Any) -> Self:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Self:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Self:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Self:
        return self._compare(">=", other)

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        return self._compare("!=", other)

    def below(self, limit: Any) -> Self:
        """self < limit of unsigned numbers: with one comparison also 0 <= self < limit of signed ones."""
        self._integer("below")
        return self.each(functools.partial(self.builder.icmp_unsigned, "<"), limit)

    def is_nan(self) -> Self:
        if not self.floating:
            raise TypeError(f"is_nan takes floats, not {self!r}")
        return self.unordered(self)

    def unordered(self, other: Any) -> Self:
        """Whether either is NaN."""
        return self.each(self.builder.fcmp_unordered, other)

    def choose(self, yes: Any, no: Any) -> Self:
        """One of two by this truth value. Of two Python numbers, integers are int64 and `bool`s truth values."""
        if not self.is_truth:
            raise TypeError(f"choose asks a truth value, not {self!r}: compare it, as in `!= 0`")
        kind = next((arm for arm in (yes, no) if isinstance(arm, Value)), None)
        kind = Value(self.builder, zero_of(yes, no)) if kind is None else kind
        first, second = kind.as_value(yes), kind.as_value(no)
        _check_alike(first, second)
        chosen = zip(*_spread_alike([self, first, second]), strict=True)
        return type(self)(self.builder, *(self.builder.select(*arm) for arm in chosen))

    def as_value(self, number: Any) -> Value:
        """A Python number as a scalar of this value's kind."""
        if isinstance(number, Value):
            return number
        return Value(self.builder, constant(self.element, number))

    def least(self, other: Any) -> Self:
        smaller: Self = (self < other).choose(self, other)
        return smaller

    # Other kinds.

    def _as(self, kind: Any) -> Any:
        return vector_type(kind, self.lanes) if self.lanes else kind

    def _cast(self, operation: str, kind: Any) -> Self:
        cast, wanted = getattr(self.builder, operation), self._as(kind)
        return self.each(lambda one: cast(one, wanted))

    def to(self, kind: str) -> Self:
        """Converted: floats are widened or rounded, integers extended by their sign or cut, truth values 0 and 1."""
        wanted, element = STORED[kind], self.element
        if wanted == element:
            return self
        if self.floating and not isinstance(wanted, FloatType):
            raise TypeError(f"{self!r} is not converted to {kind}: only floats are, to floats")
        if self.floating:
            wider = wanted.width > element.width
            return self._cast("fpext" if wider else "fptrunc", wanted)
        if isinstance(wanted, IntType):
            extend = "zext" if element == I1 else "sext"
            return self._cast(extend if wanted.width > element.width else "trunc", wanted)
        return self._cast("uitofp" if element == I1 else "sitofp", wanted)

    def unsigned(self, kind: str) -> Self:
        """An integer extended by zeros."""
        return self._extended("zext", kind)

    def signed(self, kind: str) -> Self:
        """Extended by its sign: a truth value becomes 0 or -1, all bits set."""
        return self._extended("sext", kind)

    def _extended(self, operation: str, kind: str) -> Self:
        element, wanted = self.element, STORED[kind]
        both = isinstance(element, IntType) and isinstance(wanted, IntType)
        if not both or wanted.width <= element.width:
            raise TypeError(f"{self!r} is not extended to {kind}: an integer is, to a longer one")
        return self._cast(operation, wanted)

    def bits_as(self, kind: str) -> Self:
        """The same bits as another kind of the same size."""
        if STORED[kind].width != self.element.width:
            raise TypeError(f"{self!r} has not as many bits as {kind}")
        return self._cast("bitcast", STORED[kind])

    def bits_as_lanes(self, kind: str) -> Self:
        """The same bits as lanes of another size."""
        size = self.lanes * self.element.width // (8 * SIZE[kind])
        wanted = vector_type(STORED[kind], size)
        return self.each(lambda one: self.builder.bitcast(one, wanted))

    @property
    def pointer(self) -> Any:
        """This address, as LLVM wants it."""
        place = self.value
        if place.type != PTR and place.type != I64:
            raise TypeError(f"an address is one int64, not {self!r}")
        return place if place.type == PTR else self.builder.inttoptr(place, PTR)

    # Lanes.

    def pick(self, order: Sequence[int]) -> Self:
        """Lanes of each stream in another order."""
        return self.each(lambda one: shuffled(self.builder, one, None, order))

    def interleave(self, other: Value, order: Sequence[int]) -> Self:
        """Lanes of each stream and of another value's, which count on from this one's."""
        return self.each(lambda a, b: shuffled(self.builder, a, b, order), other)

    def joined(self) -> Self:
        """Each two neighbouring streams as one of twice the lanes."""
        order = range(2 * self.lanes)
        pairs = zip(self.parts[::2], self.parts[1::2], strict=True)
        return type(self)(
            self.builder, *(shuffled(self.builder, low, high, order) for low, high in pairs)
        )

    def split(self, lanes: int) -> Self:
        """Each stream as several of fewer lanes."""
        starts = range(0, self.lanes, lanes)
        return type(self)(
            self.builder,
            *(
                shuffled(self.builder, one, None, range(at, at + lanes))
                for one in self.parts
                for at in starts
            ),
        )

    def lane(self, index: int) -> Self:
        """One lane of a vector's only stream, as a scalar."""
        if not 0 <= index < self.lanes:
            raise ValueError(f"{self!r} has no lane {index}")
        return type(self)(
            self.builder, self.builder.extract_element(self.value, assembly.constant(I32, index))
        )

    def reduce(self, name: str) -> Self:
        """All lanes of a vector's only stream in one: and, or, xor; of integers also add, mul, smax, smin, umax, umin.

        Floats have none: LLVM's differ in their order, or end the process; `split` and `pick` say one.
        """
        if not self.lanes or len(self.parts) != 1:
            raise ValueError(f"reduce takes a vector of one stream, not {self!r}")
        if self.floating:
            raise TypeError(f"floats have no reduction {name!r} ({self!r}): write the order out")
        if name not in (_OF_BITS if self.is_truth else _OF_BITS + _OF_INTEGERS):
            raise ValueError(f"there is no reduction {name!r} of {self!r}")
        return _called(f"vector.reduce.{name}", self, result=self.element)


_OF_BITS, _OF_INTEGERS = ("and", "or", "xor"), ("add", "mul", "smax", "smin", "umax", "umin")


def _is_power_of_two(number: Any) -> bool:
    return isinstance(number, int) and number > 0 and not number & (number - 1)


def shuffled(builder: Any, first: Any, second: Any, lanes: Sequence[int]) -> Any:
    if not isinstance(first.type, VectorType):
        raise TypeError(f"lanes are those of a vector, not of a scalar {first.type}")
    many = first.type.count * (1 if second is None else 2)
    if not all(0 <= lane < many for lane in lanes):
        raise ValueError(f"there are {many} lanes to take from, so not {[*lanes]}")
    other = undefined(first.type) if second is None else second
    return builder.shuffle_vector(first, other, _mask(tuple(lanes)))


@functools.cache
def _mask(lanes: tuple[int, ...]) -> Any:
    """The same for all code, as in `in_lanes`: writing it out takes long."""
    numbers = [assembly.constant(I32, lane) for lane in lanes]
    return assembly.constant(vector_type(I32, len(lanes)), numbers)


def zero_of(*numbers: Any) -> Any:
    """0 of the kind that Python numbers have without a value beside them."""
    if all(isinstance(number, bool) for number in numbers):
        return constant(I1, 0)
    if all(isinstance(number, int) for number in numbers):
        return constant(I64, 0)
    raise TypeError(f"of which kind are {numbers}? Write one as code.single or code.double")


def _check_alike(*values: Value) -> None:
    if any(value.element != values[0].element for value in values):
        raise TypeError(f"{', '.join(map(repr, values))} differ in kind: convert one with `to`")


def aligned(lead: Value, *others: Any) -> list[tuple[Any, ...]]:
    """The streams of values that are used together, as many of each and of equal lanes."""
    values = [lead, *(lead.as_value(other) for other in others)]
    kind, streams = lead.parts[0].type, len(lead.parts)
    if all(value.parts[0].type is kind and len(value.parts) == streams for value in values):
        return [value.parts for value in values]  # as most are
    _check_alike(*values)
    return _spread_alike(values)


def _spread_alike(values: Sequence[Value]) -> list[tuple[Any, ...]]:
    lanes = max(value.lanes for value in values)
    streams = max(len(value.parts) for value in values)
    if any(
        value.lanes not in (0, lanes) or len(value.parts) not in (1, streams) for value in values
    ):
        raise ValueError(f"{', '.join(map(repr, values))} differ in lanes or streams")
    wide = [_spread(value, lanes) for value in values]
    return [value.parts * (streams if len(value.parts) == 1 else 1) for value in wide]


def _spread(value: Value, lanes: int) -> Value:
    if value.lanes or not lanes:
        return value
    if all(one.is_constant for one in value.parts):
        return Value(value.builder, *(in_lanes(one, lanes) for one in value.parts))
    return value.splat(lanes)


_FLOAT_INTRINSICS = ("fabs", "fma", "maximum", "minimum", "minnum", "sqrt")
_INTEGER_INTRINSICS = ("smax", "umax", "umin")


def intrinsic(name: str, lead: V, *others: Any) -> V:
    """An LLVM intrinsic on each stream, of operands of one kind."""
    fitting = _FLOAT_INTRINSICS if lead.floating else _INTEGER_INTRINSICS
    if name not in fitting or lead.is_truth:
        raise TypeError(f"there is no intrinsic {name!r} of {lead!r}")
    return _called(name, lead, *others)


def _called(name: str, lead: V, *others: Any, result: Any = None) -> V:
    """An intrinsic, named by the operands' kind."""
    builder, operands = lead.builder, aligned(lead, *others)
    kind = operands[0][0].type
    lanes = f"v{kind.count}" if isinstance(kind, VectorType) else ""
    full = f"llvm.{name}.{lanes}{'f' if lead.floating else 'i'}{lead.element.width}"

    results = (
        call_declared(builder, full, result or kind, *parts, pure=True)
        for parts in zip(*operands, strict=True)
    )
    return type(lead)(builder, *results)


def call_declared(
    builder: Builder, name: str, result: Any, *values: Operand, pure: bool = False
) -> Any:
    """Call a function by its name, which its module declares once; all are LLVM's values. A `pure` one depends on them alone."""
    function = builder.module.names.get(name)
    if function is None:
        kind = FunctionType(result, [value.type for value in values])
        function = Function(builder.module, kind, name)
    return builder.call(function, result, values, pure)


def fma(x: V, y: Any, z: Any) -> V:
    """x * y + z, rounded once."""
    return intrinsic("fma", x, y, z)


def maximum(x: V, y: Any) -> V:
    """The larger; NaN if either is."""
    return intrinsic("maximum", x, y)


def minimum(x: V, y: Any) -> V:
    """The smaller; NaN if either is."""
    return intrinsic("minimum", x, y)


class Variable:
    """A number or truth value that changes; LLVM keeps it in a register."""

    def __init__(self, builder: Any, start: Value) -> None:
        self.builder = builder
        self._like = start
        self.places = [builder.alloca(part.type) for part in start.parts]
        self.set(start)

    def get(self) -> Value:
        like = self._like.parts
        return Value(
            self.builder,
            *(
                self.builder.load(place, part.type)
                for place, part in zip(self.places, like, strict=True)
            ),
        )

    def set(self, value: Value | float) -> None:
        new = self._like.as_value(value)
        if [part.type for part in new.parts] != [part.type for part in self._like.parts]:
            raise TypeError(f"a variable of {self._like!r} cannot become {new!r}")
        for part, place in zip(new.parts, self.places, strict=True):
            self.builder.store(part, place)
