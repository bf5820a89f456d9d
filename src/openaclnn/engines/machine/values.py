"""Values of a function being written, with Python's operators: one language for scalars and for vectors.

A scalar is one LLVM number. A vector is K streams of L lanes, each operation written K times: a plain loop keeps one
dependent chain in flight (2^24 ELU gradients on two Neoverse-N1 cores: 23 ms), K chains side by side take 8 to 9 ms,
and LLVM keeps them side by side only if the code already says so. Beside a vector, a scalar or a Python number
stands in every lane, and one stream stands for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self, TypeVar

from llvmlite import ir

from openaclnn.engines.machine.kinds import F16, F32, F64, I1, I32, PTR, SIZE, STORED, constant

__all__ = ["Shape", "Value", "Variable", "fma", "intrinsic", "maximum", "minimum"]


V = TypeVar("V", bound="Value")


class Shape(NamedTuple):
    """How a vector is laid out: streams, and lanes of each."""

    streams: int
    lanes: int

    @property
    def elements(self) -> int:
        return self.streams * self.lanes


class Value:
    """A scalar or a vector. Integers are signed, divide only by positive numbers and then round down from 0 up."""

    __slots__ = ("builder", "parts")

    def __init__(self, builder: Any, *parts: Any) -> None:
        self.builder = builder
        self.parts = parts

    @property
    def value(self) -> Any:
        """The LLVM value of a scalar, or of a vector's only stream."""
        (one,) = self.parts
        return one

    @property
    def lanes(self) -> int:
        """Of each stream; 0 for a scalar."""
        kind = self.parts[0].type
        return kind.count if isinstance(kind, ir.VectorType) else 0

    @property
    def shape(self) -> Shape:
        return Shape(len(self.parts), self.lanes)

    @property
    def element(self) -> Any:
        """The LLVM type of one element."""
        kind = self.parts[0].type
        return kind.element if isinstance(kind, ir.VectorType) else kind

    @property
    def floating(self) -> bool:
        return isinstance(self.element, (ir.HalfType, ir.FloatType, ir.DoubleType))

    def each(self, operation: Callable[..., Any], *others: Any) -> Self:
        """One operation on every stream, with those of other values."""
        operands = aligned(self, *others)
        return type(self)(self.builder, *(operation(*own) for own in zip(*operands, strict=True)))

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
        """A scalar in every lane."""
        if not lanes:
            return self
        empty = ir.Constant(ir.VectorType(self.element, lanes), ir.Undefined)
        one = self.builder.insert_element(empty, self.value, ir.Constant(I32, 0))
        made = type(self)(self.builder, one)
        return made if lanes == 1 else made.pick([0] * lanes)

    def fill(self, shape: Shape) -> Self:
        """A scalar in every lane of every stream."""
        return type(self)(self.builder, *self.splat(shape.lanes).parts * shape.streams)

    # Arithmetic.

    def _binary(self, floating: str, integer: str, other: Any, turned: bool = False) -> Self:
        operation = getattr(self.builder, floating if self.floating else integer)
        if turned:
            return self.each(lambda own, first: operation(first, own), other)
        return self.each(operation, other)

    def __add__(self, other: Any) -> Self:
        return self._binary("fadd", "add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        return self._binary("fsub", "sub", other)

    def __rsub__(self, other: Any) -> Self:
        return self._binary("fsub", "sub", other, turned=True)

    def __mul__(self, other: Any) -> Self:
        return self._binary("fmul", "mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        return self.each(self.builder.fdiv, other)

    def __rtruediv__(self, other: Any) -> Self:
        return self._binary("fdiv", "udiv", other, turned=True)

    def __floordiv__(self, other: Any) -> Self:
        return self.each(self.builder.udiv, other)

    def __mod__(self, other: Any) -> Self:
        """The remainder of a non-negative integer."""
        return self.each(self.builder.urem, other)

    def __neg__(self) -> Self:
        return self.each(self.builder.fneg if self.floating else self.builder.neg)

    # Bits.

    def __and__(self, other: Any) -> Self:
        return self.each(self.builder.and_, other)

    def __or__(self, other: Any) -> Self:
        return self.each(self.builder.or_, other)

    def __xor__(self, other: Any) -> Self:
        return self.each(self.builder.xor, other)

    def __invert__(self) -> Self:
        return self.each(self.builder.not_)

    def __lshift__(self, other: Any) -> Self:
        return self.each(self.builder.shl, other)

    def __rshift__(self, other: Any) -> Self:
        """Zeros come in from the left."""
        return self.each(self.builder.lshr, other)

    def shifted_down(self, bits: int) -> Self:
        """To the right, the sign coming in from the left."""
        return self.each(self.builder.ashr, bits)

    # Comparisons; those with NaN are false, but for `differs`.

    def _compare(self, relation: str, other: Any) -> Self:
        builder = self.builder
        if self.floating:
            compare = builder.fcmp_unordered if relation == "!=" else builder.fcmp_ordered
        else:
            compare = builder.icmp_signed
        return self.each(lambda a, b: compare(relation, a, b), other)

    def __lt__(self, other: Any) -> Self:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Self:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Self:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Self:
        return self._compare(">=", other)

    def equals(self, other: Any) -> Self:
        return self._compare("==", other)

    def differs(self, other: Any) -> Self:
        return self._compare("!=", other)

    def below(self, limit: Any) -> Self:
        """self < limit of unsigned numbers: with one comparison also 0 <= self < limit of signed ones."""
        return self.each(lambda a, b: self.builder.icmp_unsigned("<", a, b), limit)

    def is_nan(self) -> Self:
        return self.each(lambda one: self.builder.fcmp_unordered("uno", one, one))

    def choose(self, yes: Any, no: Any) -> Self:
        """One of two by this truth value; at least one of them is a value."""
        kind: Value = yes if isinstance(yes, Value) else no
        conditions, first, second = aligned(self, kind.as_value(yes), kind.as_value(no))
        chosen = (self.builder.select(*own) for own in zip(conditions, first, second, strict=True))
        return type(self)(self.builder, *chosen)

    def as_value(self, number: Any) -> Value:
        """A Python number as a scalar of this value's kind."""
        if isinstance(number, Value):
            return number
        return Value(self.builder, constant(self.element, number))

    def least(self, other: Any) -> Self:
        smaller: Self = (self < other).choose(self, other)
        return smaller

    def size(self) -> Self:
        """The absolute value of a scalar; NaN stays."""
        return (self < 0).choose(-self, self)

    # Other kinds.

    def _as(self, kind: Any) -> Any:
        return ir.VectorType(kind, self.lanes) if self.lanes else kind

    def _cast(self, operation: str, kind: Any) -> Self:
        cast, wanted = getattr(self.builder, operation), self._as(kind)
        return self.each(lambda one: cast(one, wanted))

    def to(self, kind: str) -> Self:
        """Converted: floats are widened or rounded, integers extended by their sign or cut, truth values 0 and 1."""
        wanted, own = STORED[kind], self.element
        if wanted == own:
            return self
        if self.floating:
            wider = _width(wanted) > _width(own)
            return self._cast("fpext" if wider else "fptrunc", wanted)
        if isinstance(wanted, ir.IntType):
            extend = "zext" if own == I1 else "sext"
            return self._cast(extend if wanted.width > own.width else "trunc", wanted)
        return self._cast("uitofp" if own == I1 else "sitofp", wanted)

    def unsigned(self, kind: str) -> Self:
        """An integer extended by zeros."""
        return self._cast("zext", STORED[kind])

    def signed(self, kind: str) -> Self:
        """Extended by its sign: a truth value becomes 0 or -1, all bits set."""
        return self._cast("sext", STORED[kind])

    def bits_as(self, kind: str) -> Self:
        """The same bits as another kind of the same size."""
        return self._cast("bitcast", STORED[kind])

    def bits_as_lanes(self, kind: str) -> Self:
        """The same bits as lanes of another size."""
        size = self.lanes * _width(self.element) // (8 * SIZE[kind])
        wanted = ir.VectorType(STORED[kind], size)
        return self.each(lambda one: self.builder.bitcast(one, wanted))

    @property
    def pointer(self) -> Any:
        """This address, as LLVM wants it."""
        given = self.value
        return given if given.type == PTR else self.builder.inttoptr(given, PTR)

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
        return type(self)(
            self.builder, self.builder.extract_element(self.value, ir.Constant(I32, index))
        )

    def reduce(self, name: str) -> Self:
        """All lanes of a vector's only stream in one: smax, umax, or, and."""
        return intrinsic(f"vector.reduce.{name}", self, result=self.element)


_FLOAT_WIDTH = {str(F16): 16, str(F32): 32, str(F64): 64}


def _width(kind: Any) -> int:
    """Bits of an element."""
    return kind.width if isinstance(kind, ir.IntType) else _FLOAT_WIDTH[str(kind)]


def shuffled(builder: Any, first: Any, second: Any, lanes: Sequence[int]) -> Any:
    other = ir.Constant(first.type, ir.Undefined) if second is None else second
    mask = ir.Constant(ir.VectorType(I32, len(lanes)), [ir.Constant(I32, lane) for lane in lanes])
    return builder.shuffle_vector(first, other, mask)


def aligned(lead: Value, *others: Any) -> list[tuple[Any, ...]]:
    """The streams of values that are used together, as many of each and of equal lanes."""
    values = [lead, *(lead.as_value(other) for other in others)]
    lanes = max(value.lanes for value in values)
    streams = max(len(value.parts) for value in values)
    wide = [_spread(value, lanes) for value in values]
    return [value.parts * (streams if len(value.parts) == 1 else 1) for value in wide]


def _spread(value: Value, lanes: int) -> Value:
    if value.lanes or not lanes:
        return value
    one = value.value
    if isinstance(one, ir.Constant):
        return Value(value.builder, constant(one.type, one.constant, lanes))
    return value.splat(lanes)


def intrinsic(name: str, lead: V, *others: Any, result: Any = None) -> V:
    """An LLVM intrinsic on each stream, named by the first operand's kind."""
    builder, kind = lead.builder, lead.parts[0].type
    letter = "f" if lead.floating else "i"
    full = f"llvm.{name}.{f'v{lead.lanes}' if lead.lanes else ''}{letter}{_width(lead.element)}"

    def call(*values: Any) -> Any:
        function = builder.module.globals.get(full)
        if function is None:
            signature = ir.FunctionType(result or kind, [value.type for value in values])
            function = ir.Function(builder.module, signature, full)
        return builder.call(function, values)

    return lead.each(call, *others)


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
    """A scalar that changes; LLVM keeps it in a register."""

    def __init__(self, builder: Any, start: Value) -> None:
        self.builder = builder
        with builder.goto_entry_block():
            self.place = builder.alloca(start.value.type)
        self.set(start)

    def get(self) -> Value:
        return Value(self.builder, self.builder.load(self.place))

    def set(self, value: Value) -> None:
        self.builder.store(value.value, self.place)
