"""LLVM's assembly language, written as text: types, operands, blocks and functions. `values.py` and `code.py` write with its `Builder`.

An instruction whose result depends on its operands alone is written once (common subexpressions), and before loops that change none of its operands. So
LLVM has less to read, and the passes that do the same are not run (`cache.py`). llvmlite has objects for this language, too: making and printing those took
three times as long, up to a third of the time until a kernel was ready.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

# Types. There is one object of each, so that they are compared by identity.


class Type:
    """An LLVM type of values, memory or functions; `text` is how LLVM writes it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


class IntType(Type):
    """A type of integers, or of truth values, which have one bit."""

    def __init__(self, text: str, width: int) -> None:
        super().__init__(text)
        self.width = width  # bits


class FloatType(Type):
    """A type of floats; `packing` is its format character in `struct`."""

    def __init__(self, text: str, width: int, packing: str) -> None:
        super().__init__(text)
        self.width, self.packing = width, packing


class VectorType(Type):
    def __init__(self, element: Type, count: int) -> None:
        super().__init__(f"<{count} x {element}>")
        self.element, self.count = element, count


class FunctionType(Type):
    def __init__(self, result: Type, arguments: Sequence[Type]) -> None:
        super().__init__(f"{result} ({', '.join(map(str, arguments))})")
        self.result, self.arguments = result, tuple(arguments)


vector_type = functools.cache(VectorType)

I1, I8, I16, I32, I64 = (IntType(f"i{bits}", bits) for bits in (1, 8, 16, 32, 64))
F16, F32, F64 = FloatType("half", 16, "e"), FloatType("float", 32, "f"), FloatType("double", 64, "d")  # fmt: skip
PTR, VOID = Type("ptr"), Type("void")


class Loop:
    """A loop being written: instructions whose operands do not change in it go to the end of the block `before`."""

    def __init__(self, before: Block) -> None:
        self.before = before
        self.depth: int = before.depth + 1


class Block:
    """A basic block. Its dominator is a block that every path to it goes through."""

    __slots__ = ("depth", "dominator", "end", "label", "level", "lines", "loop")

    def __init__(self, label: str, dominator: Block | None, loop: Loop | None) -> None:
        self.label, self.dominator, self.loop = label, dominator, loop
        self.level: int = 0 if dominator is None else dominator.level + 1
        self.depth: int = 0 if loop is None else loop.depth  # of loops around it
        self.lines: list[str] = []
        self.end: str | None = None  # the branch, once it is written

    @property
    def is_terminated(self) -> bool:
        return self.end is not None

    def precedes(self, other: Block) -> bool:
        """Whether this block dominates another, so that values computed here are known there."""
        block: Block | None = other
        while block is not None and block.level > self.level:
            block = block.dominator
        return block is self


class Operand:
    """A value of LLVM: a constant, a function, an argument, or the result of an instruction."""

    __slots__ = ("block", "depth", "negated", "text", "type")

    def __init__(self, kind: Any, text: str, block: Block | None = None) -> None:
        self.type, self.text, self.block = kind, text, block
        self.depth = 0 if block is None else block.depth
        self.negated: Operand | None = None  # the float that this is the negative of

    def __str__(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def is_constant(self) -> bool:
        return self.block is None and self.text[0] not in "%@"


def constant(kind: Any, number: Any) -> Operand:
    """A number, rounded to its type; of a vector's type, of constants for its lanes. Floats are written as the bits of a float64."""
    if isinstance(kind, VectorType):
        return Operand(kind, f"<{', '.join(map(str, number))}>")
    if isinstance(kind, FloatType):
        (rounded,) = struct.unpack(kind.packing, struct.pack(kind.packing, number))
        (bits,) = struct.unpack("Q", struct.pack("d", rounded))
        return Operand(kind, f"{bits:#018x}")
    return Operand(kind, str(int(number)))


def undefined(kind: Any) -> Operand:
    return Operand(kind, "undef")


class Function(Operand):
    """A function: declared, or defined by its blocks."""

    __slots__ = ("arguments", "attributes", "blocks", "count", "kind", "known", "name")

    def __init__(self, module: Module, kind: FunctionType, name: str) -> None:
        super().__init__(PTR, f'@"{name}"')
        self.kind, self.name = kind, name
        self.arguments = [Operand(each, f"%a{k}") for k, each in enumerate(kind.arguments)]
        self.attributes: set[str] = set()
        self.blocks: list[Block] = []
        self.count = 0  # of the names in it
        self.known: dict[str, Operand] = {}  # what was computed, by its text
        module.names[name] = self

    def new_block(self, name: str, dominator: Block | None, loop: Loop | None = None) -> Block:
        self.count += 1
        block = Block(f"{name}{self.count}", dominator, loop)
        self.blocks.append(block)
        return block

    def written(self) -> str:
        if not self.blocks:
            taken = ", ".join(map(str, self.kind.arguments))
            return f"declare {self.kind.result} {self.text}({taken})"
        taken = ", ".join(map(str, self.arguments))
        lines = [f"define {self.kind.result} {self.text}({taken}) {' '.join(sorted(self.attributes))} {{"]  # fmt: skip
        for block in self.blocks:
            assert block.end is not None, f"{self.name}: {block.label} leads nowhere"
            lines += [f"{block.label}:", *block.lines, block.end]
        return "\n".join((*lines, "}"))


class Module:
    def __init__(self, name: str, triple: str) -> None:
        self.name, self.triple = name, triple
        self.names: dict[str, Operand] = {}  # functions, and words of other modules
        self.metadata: list[str] = []

    def external(self, name: str) -> Operand:
        """A global symbol of the process."""
        return self.names.setdefault(name, Operand(PTR, f'@"{name}"'))

    def noted(self, text: str) -> str:
        if text not in self.metadata:
            self.metadata.append(text)
        return f"!{self.metadata.index(text)}"

    def __str__(self) -> str:
        parts = [f'; ModuleID = "{self.name}"', f'target triple = "{self.triple}"']
        for each in self.names.values():
            parts.append(each.written() if isinstance(each, Function) else f"{each.text} = external global i64")  # fmt: skip
        parts += [f"!{number} = {text}" for number, text in enumerate(self.metadata)]
        return "\n".join((*parts, ""))


def _computing(name: str, hoisted: bool = True) -> Callable[[Builder, Operand, Operand], Operand]:
    """A method that writes an instruction of two operands of one type; the result has that type."""

    def instruction(self: Builder, first: Operand, second: Operand) -> Operand:
        return self.computed(first.type, f"{name} {first}, {second.text}", (first, second), hoisted)

    return instruction


def _converting(name: str) -> Callable[[Builder, Operand, Any], Operand]:
    def instruction(self: Builder, value: Operand, kind: Any) -> Operand:
        if value.type is kind:
            return value
        return self.computed(kind, f"{name} {value} to {kind}", (value,))

    return instruction


_SIGNED = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}
_ORDERED = {"==": "oeq", "!=": "one", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}
_LIKELY = {True: (99, 1), False: (1, 99)}


class Builder:
    """Writes instructions to the end of a block of a function."""

    def __init__(self, module: Module, function: Function, block: Block) -> None:
        self.module, self.function, self.block = module, function, block

    # Where to write.

    def new_block(self, name: str, dominator: Block | None = None, loop: Loop | None = None) -> Block:  # fmt: skip
        """A block in the loop that is being written, or in `loop`, dominated by the block that is being written, or by `dominator`."""
        here = self.block
        return self.function.new_block(name, dominator or here, loop or here.loop)

    @contextmanager
    def in_block(self, block: Block) -> Iterator[None]:
        before, self.block = self.block, block
        yield
        self.block = before

    def in_first_block(self) -> Any:
        return self.in_block(self.function.blocks[0])

    def _name(self) -> str:
        self.function.count += 1
        return f"%v{self.function.count}"

    def effect(self, text: str) -> None:
        """Write an instruction without a result."""
        assert self.block.end is None, f"{self.block.label} is left already"
        self.block.lines.append(f"  {text}")

    def result(self, kind: Any, text: str) -> Operand:
        """Write an instruction here, and return its result."""
        assert self.block.end is None, f"{self.block.label} is left already"
        result = Operand(kind, self._name(), self.block)
        self.block.lines.append(f"  {result.text} = {text}")
        return result

    def computed(self, kind: Any, text: str, of: Sequence[Operand], hoisted: bool = True) -> Operand:  # fmt: skip
        """The result of an instruction that depends on its operands alone: that of an equal instruction before, or of a new one, written before all loops
        that do not change its operands. With `hoisted` False, as for a division, which may trap, it is written here."""
        known, block = self.function.known.get(text), self.block
        if known is not None and known.block is not None and known.block.precedes(block):
            return known
        if hoisted and block.depth:
            depth = max([operand.depth for operand in of])
            while block.depth > depth and block.loop is not None:
                block = block.loop.before
        result = Operand(kind, self._name(), block)
        block.lines.append(f"  {result.text} = {text}")
        self.function.known[text] = result
        return result

    # Arithmetic.

    fadd, fsub, fmul, fdiv = map(_computing, ("fadd", "fsub", "fmul", "fdiv"))
    and_, or_, xor = map(_computing, ("and", "or", "xor"))
    shl, lshr, ashr = map(_computing, ("shl", "lshr", "ashr"))
    _add, sub, _mul = map(_computing, ("add", "sub", "mul"))
    sdiv, srem, udiv, urem = (_computing(name, hoisted=False) for name in ("sdiv", "srem", "udiv", "urem"))  # fmt: skip
    zext, sext, trunc, fpext, fptrunc = map(_converting, ("zext", "sext", "trunc", "fpext", "fptrunc"))  # fmt: skip
    uitofp, sitofp, bitcast = map(_converting, ("uitofp", "sitofp", "bitcast"))
    inttoptr, ptrtoint = map(_converting, ("inttoptr", "ptrtoint"))

    def add(self, first: Operand, second: Operand) -> Operand:
        if second.text == "0":
            return first
        return second if first.text == "0" else self._add(first, second)

    def mul(self, first: Operand, second: Operand) -> Operand:
        return first if second.text == "1" else self._mul(first, second)

    def count_on(self, index: Operand, step: int) -> Operand:
        """The index that follows in a loop, which never wraps around."""
        return self.result(index.type, f"add nsw {index}, {step}")

    def fneg(self, value: Operand) -> Operand:
        result = self.computed(value.type, f"fneg {value}", (value,))
        result.negated = value
        return result

    def neg(self, value: Operand) -> Operand:
        return self.computed(value.type, f"sub {value.type} zeroinitializer, {value.text}", (value,))  # fmt: skip

    def not_(self, value: Operand) -> Operand:
        kind = value.type
        ones = f"<{', '.join([f'{kind.element} -1'] * kind.count)}>" if isinstance(kind, VectorType) else "-1"  # fmt: skip
        return self.computed(kind, f"xor {value}, {ones}", (value,))

    def _compared(self, text: str, first: Operand, second: Operand) -> Operand:
        kind = first.type
        truths = vector_type(I1, kind.count) if isinstance(kind, VectorType) else I1
        return self.computed(truths, f"{text} {first}, {second.text}", (first, second))

    def icmp_signed(self, relation: str, first: Operand, second: Operand) -> Operand:
        return self._compared(f"icmp {_SIGNED[relation]}", first, second)

    def icmp_unsigned(self, relation: str, first: Operand, second: Operand) -> Operand:
        return self._compared(f"icmp {_SIGNED[relation].replace('s', 'u')}", first, second)

    def fcmp_ordered(self, relation: str, first: Operand, second: Operand) -> Operand:
        return self._compared(f"fcmp {_ORDERED[relation]}", first, second)

    def fcmp_unequal(self, first: Operand, second: Operand) -> Operand:
        return self._compared("fcmp une", first, second)

    def fcmp_unordered(self, first: Operand, second: Operand) -> Operand:
        return self._compared("fcmp uno", first, second)

    def select(self, truth: Operand, yes: Operand, no: Operand) -> Operand:
        return self.computed(yes.type, f"select {truth}, {yes}, {no}", (truth, yes, no))

    # Lanes.

    def extract_element(self, vector: Operand, lane: Operand) -> Operand:
        return self.computed(vector.type.element, f"extractelement {vector}, {lane}", (vector, lane))  # fmt: skip

    def insert_element(self, vector: Operand, value: Operand, lane: Operand) -> Operand:
        return self.computed(vector.type, f"insertelement {vector}, {value}, {lane}", (vector, value, lane))  # fmt: skip

    def shuffle_vector(self, first: Operand, second: Operand, mask: Operand) -> Operand:
        kind = vector_type(first.type.element, mask.type.count)
        return self.computed(kind, f"shufflevector {first}, {second}, {mask}", (first, second))

    # Memory.

    def alloca(self, kind: Any, align: int | None = None) -> Operand:
        with self.in_first_block():
            return self.result(PTR, f"alloca {kind}{_aligned(align)}")

    def gep(self, pointer: Operand, index: Operand, element: Any) -> Operand:
        if index.text == "0":
            return pointer
        return self.computed(PTR, f"getelementptr {element}, {pointer}, {index}", (pointer, index))

    def load(self, place: Operand, kind: Any, align: int | None = None, volatile: bool = False) -> Operand:  # fmt: skip
        """Load from memory. A volatile load is neither folded nor hoisted nor moved past another by LLVM."""
        return self.result(kind, f"load {'volatile ' * volatile}{kind}, {place}{_aligned(align)}")

    def load_atomic(self, place: Operand, ordering: str, align: int, kind: Any) -> Operand:
        return self.result(kind, f"load atomic {kind}, {place} {ordering}{_aligned(align)}")

    def store(self, value: Operand, place: Operand, align: int | None = None, past_caches: bool = False) -> None:  # fmt: skip
        note = f", !nontemporal {self.module.noted('!{ i32 1 }')}" if past_caches else ""
        self.effect(f"store {value}, {place}{_aligned(align)}{note}")

    def atomic_rmw(self, name: str, place: Operand, value: Operand, ordering: str) -> Operand:
        return self.result(value.type, f"atomicrmw {name} {place}, {value} {ordering}")

    def cmpxchg(self, place: Operand, old: Operand, new: Operand, orderings: str) -> Operand:
        """Compare and exchange. Returns whether memory had `old` and now has `new`."""
        both = self.result(Type(f"{{ {old.type}, i1 }}"), f"cmpxchg {place}, {old}, {new} {orderings}")  # fmt: skip
        return self.result(I1, f"extractvalue {both}, 1")

    def fence(self, ordering: str) -> None:
        self.effect(f"fence {ordering}")

    # Calls.

    def call(self, function: Operand, result: Any, values: Sequence[Operand], pure: bool = False, how: str = "") -> Operand | None:  # fmt: skip
        """Call a function. The result of a `pure` one depends on its operands alone."""
        text = f"{how}call {result} {function.text}({', '.join(map(str, values))})"
        if pure:
            return self.computed(result, text, values)
        if result is VOID:
            self.effect(text)
            return None
        return self.result(result, text)

    def held(self, vector: Operand, after: Sequence[Operand]) -> Operand:
        """A vector of x86 that LLVM takes for another one, made of these others: what is made of it stays behind them."""
        operands = [vector, *after]
        places = ", ".join(map(str, operands))
        kinds = ",".join(["=x", "0", *["x"] * len(after)])
        return self.computed(vector.type, f'call {vector.type} asm "", "{kinds}"({places})', operands, hoisted=False)  # fmt: skip

    # Branches.

    def _end(self, text: str) -> None:
        assert self.block.end is None, f"{self.block.label} goes on already"
        self.block.end = f"  {text}"

    def branch(self, block: Block) -> None:
        self._end(f"br label %{block.label}")

    def cbranch(self, condition: Operand, yes: Block, no: Block, likely: bool | None = None) -> None:  # fmt: skip
        note = ""
        if likely is not None:
            weights = ", ".join(f"i32 {weight}" for weight in _LIKELY[likely])
            told = self.module.noted(f'!{{ !"branch_weights", {weights} }}')
            note = f", !prof {told}"
        self._end(f"br {condition}, label %{yes.label}, label %{no.label}{note}")

    def ret(self, value: Operand | None = None) -> None:
        self._end("ret void" if value is None else f"ret {value}")

    def unreachable(self) -> None:
        self._end("unreachable")

    def phi(self, kind: Any) -> Phi:
        return Phi(self, kind)

    @contextmanager
    def if_then(self, condition: Operand, likely: bool | None = None) -> Iterator[None]:
        then, after = (self.new_block(name) for name in ("then", "after"))
        self.cbranch(condition, then, after, likely)
        self.block = then
        yield
        self._go_on(after)

    @contextmanager
    def if_else(self, condition: Operand, likely: bool | None = None) -> Iterator[tuple[Any, Any]]:
        then, otherwise, after = (self.new_block(name) for name in ("then", "else", "after"))
        self.cbranch(condition, then, otherwise, likely)
        yield self._way(then, after), self._way(otherwise, after)
        self.block = after

    @contextmanager
    def _way(self, block: Block, after: Block) -> Iterator[None]:
        self.block = block
        yield
        self._go_on(after)

    def _go_on(self, after: Block) -> None:
        if not self.block.is_terminated:
            self.branch(after)
        self.block = after


class Phi(Operand):
    """A phi node: its value depends on the block that control came from. Its line is written again with each of these."""

    __slots__ = ("_line", "_lines", "_ways")

    def __init__(self, builder: Builder, kind: Any) -> None:
        super().__init__(kind, builder._name(), builder.block)
        self._lines, self._line = builder.block.lines, len(builder.block.lines)
        self._ways: list[str] = []
        self._lines.append("")

    def add_incoming(self, value: Operand, block: Block) -> None:
        self._ways.append(f"[ {value.text}, %{block.label} ]")
        self._lines[self._line] = f"  {self.text} = phi {self.type} {', '.join(self._ways)}"


def _aligned(align: int | None) -> str:
    return "" if align is None else f", align {align}"
