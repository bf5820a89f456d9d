# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""Kernels of training steps of cross entropy: `StepWriter` adds to `row_source.py` what they need. A program holds all classes of its positions, so that logits are read once.

The AHEAD kernel computes the loss, and writes the gradient for the loss's gradient that is expected, that of the step before. The LATE kernel runs in the backward pass, and
writes the gradient anew only where the loss's gradient is another one.

A thread that has all classes of a position is fast if it takes few instructions and registers. So powers lack a factor of their row, by which numbers of the row are multiplied instead;
a target is compared with register numbers, which are constants; padding is -0 in sums, which the compiler leaves out; and what the gradient needs of targets and weights is
computed again after the loss, where the compiler would keep it in registers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import triton
import triton.language as tl

from openaclnn.engines.formulas.rows import Graph, Node
from openaclnn.engines.gpu.formulas.words import LOG2_E, reciprocal
from openaclnn.engines.gpu.kernels.row_source import (
    AHEAD,
    DIVISORS,
    NEUTRAL,
    OF_WEIGHTS,
    START,
    Signature,
    Traversal,
    Writer,
    is_below_largest,
)
from openaclnn.engines.gpu.kernels.sums import add_up, let_next_start

EXPECTED, SURE = tl.constexpr(0), tl.constexpr(1)
"""Indices in `expected` and in `memory`, FLOATs: the loss's gradient, and 1 if it was what had been expected."""

LARGE = tl.constexpr(65536.0)


@triton.jit
def expect(
    target, weight, sums, memory, expected,
    count, second_size, third_size, first_stride, second_stride, third_stride, weight_stride, classes, ignore_index, parts,
    OVERLAPPED: tl.constexpr, SUMS: tl.constexpr, AXES: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy what the last backward pass has left in `memory` to `expected`, and add up parts of the sums."""
    let_next_start(OVERLAPPED)
    if tl.program_id(0) == 0:
        tl.store(expected + EXPECTED, tl.load(memory + EXPECTED))
        tl.store(expected + SURE, tl.load(memory + SURE))
    if SUMS > 0:
        add_up(
            target, weight, sums, count, second_size, third_size, first_stride, second_stride, third_stride, weight_stride, classes,
            ignore_index, parts, False, SUMS, AXES, WIDE, BLOCK,
        )  # fmt: skip


@triton.jit
def bits(x):
    """The bits of a FLOAT, by which gradients are compared: -0 and 0 give different results."""
    return x.to(tl.int32, bitcast=True)


@triton.jit
def is_strange(base):
    """Whether a row's largest number is beyond LARGE, infinite or NaN, so that its powers need the difference first."""
    return (tl.abs(base) <= LARGE) == 0


@triton.jit
def origin(top):
    """From rows' largest: the base of powers (0 where all classes are minus infinity), its share of exponents, the factor that powers lack, and whether a row is strange."""
    base = tl.where(top == float("-inf"), 0.0, top)
    strange = is_strange(base)
    near = tl.where(strange, 0.0, base)
    shift = near * LOG2_E
    scale = tl.exp2(tl.fma(near, LOG2_E, shift * -1.0) * -1.0)
    return base, shift, scale, tl.max(tl.ravel(strange).to(tl.int32), 0) != 0


@triton.jit
def relative_power(x, base, shift, strange, counted):
    """exp(x - base) without the factor `scale` of its row: one rounding, where a difference and a product would have two. In strange rows the difference comes first, since
    the product's error would be no common factor there; and those that do not count get minus infinity, so that nothing is NaN."""
    if strange:
        x = tl.where(is_strange(base), x - base, x)
        x = tl.where(counted, x, float("-inf"))
    return tl.exp2(tl.fma(x, LOG2_E, shift * -1.0))


@triton.jit
def power_of(x, base, shift, scale):
    """exp(x - base) with the factor, for one number of each row."""
    near = tl.where(is_strange(base), x - base, x)
    return tl.where(x == base, 1.0, tl.exp2(tl.fma(near, LOG2_E, shift * -1.0)) * scale)


@triton.jit
def quotient(x, whole):
    """x / whole, where `whole` has one number for each row, neither tiny nor huge: a product with the reciprocal, corrected by its remainder."""
    inverse = reciprocal(whole)
    result = x * inverse
    better = tl.fma(tl.fma(result * -1.0, whole, x), inverse, result)
    return tl.where(tl.abs(result) == float("inf"), result, better)


@triton.jit
def wide_quotient(x, y):
    """x / y in float64, by a FLOAT reciprocal and one Newton step, which takes fewer registers than a division."""
    inverse = reciprocal(y.to(tl.float32)).to(tl.float64)
    better = inverse * (2.0 - y * inverse)
    return x * tl.where(better == better, better, inverse)


class StepWriter(Writer):
    """Writes the source of a step's kernel. The formula reads logits only of rows that count; the kernel reads those of all rows, and leaves out the others' results."""

    words = {
        "EXPECTED": EXPECTED, "SURE": SURE, "bits": bits, "origin": origin, "relative_power": relative_power, "power_of": power_of, "quotient": quotient,
        "wide_quotient": wide_quotient,
    }  # fmt: skip
    early = "input", "at", "is_counted"
    rows_left = "size_0 - number * POSITIONS + nothing"
    # Another label, as a compiler does not know that `nothing` is 0.
    renewed = ["nothing = (sure > 2.0).to(tl.int32)", "label = label + nothing"]

    def __init__(self, formula: Signature, graph: Graph, traversal: Traversal) -> None:
        super().__init__(formula, graph, traversal)
        self.has_edges, self.ahead = False, formula.step == AHEAD
        nodes = [node for node in graph.nodes if node.index in self.needed]
        (self.read,) = [
            node for node in nodes if node.what == "where" and node.of[2].name == -math.inf
        ]
        self.lowest.add(self.read.of[1].name)
        # Of powers, and of what is chosen of them, the largest that they are relative to.
        self.relative: dict[int, int] = {}
        for node in nodes:
            if node.what == "exp" and is_below_largest(node.of[0]):
                self.relative[node.index] = node.of[0].of[1].index
            elif node.what == "where" and node.of[1].name == 0.0 and node.of[2].index in self.relative:  # fmt: skip
                self.relative[node.index] = self.relative[node.of[2].index]

    def float64_nodes(self, nodes: Iterable[Node]) -> set[int]:
        """The nodes that are computed in float64: those that no logit has a part in, since all that follows is multiplied by them."""
        of_rows: set[int] = set()
        wide: set[int] = set()
        for node in nodes:
            weighs = node.what == "at" and node.of[0].kind == "PerClass"
            if node.kind == "Row" or "c" in node.axes or (any(each.index in of_rows for each in node.of) and not weighs):  # fmt: skip
                of_rows.add(node.index)
            elif node.of and not node.truth and not weighs:
                wide.add(node.index)
        return wide

    def is_expected(self, node: Node) -> bool:
        """Whether a node is the loss's gradient in the AHEAD kernel, which has no such operand: it is the one that is expected."""
        return self.ahead and node.kind == "PerRow"

    def name(self, node: Node) -> str:
        if node.what == "is_target":
            return "(held_lane == label - near_lane)"
        return super().name(node)

    def number(self, name: str) -> str:
        if name in DIVISORS:
            return f"read_wide_sum(totals, {DIVISORS.index(name)}, PARTS) if MEAN else tl.full([], 1.0, tl.float64)"
        return super().number(name)

    def wide_line(self, node: Node) -> str:
        if node.what == "/":
            return f"v{node.index} = wide_quotient({', '.join(map(self.wide_name, node.of))})"
        return super().wide_line(node)

    def line(self, node: Node) -> str:
        if node.index in self.wide:
            return self.wide_line(node)
        operands = [self.name(each) for each in node.of]
        if node is self.read:
            text = operands[1]
        elif node.what == "exp":
            x, top = node.of[0].of
            if node.index in self.relative:
                text = f"relative_power({self.name(x)}, base{top.index}, shift{top.index}, strange{top.index}, {self.name(self.read.of[0])})"
            else:
                text = f"power_of({self.name(x)}, base{top.index}, shift{top.index}, scale{top.index})"  # fmt: skip
        elif node.what == "/":
            text = f"quotient({', '.join(operands)})"
        elif node.what == "*" and node.of[0].index in self.relative:
            text = f"{operands[0]} * ({operands[1]} * scale{self.relative[node.of[0].index]})"
        else:
            return super().line(node)
        return f"v{node.index} = {text}"

    def lines(self, nodes: Iterable[Node], policy: str = "") -> list[str]:
        text = []
        for node in nodes:
            if not self.awaited and (self.is_expected(node) or node.name in DIVISORS + OF_WEIGHTS):
                text.append("await_sums(OVERLAPPED)")
                self.awaited = True
            if self.is_expected(node):
                text += [f"v{node.index} = tl.load(expected + EXPECTED)", "sure = tl.load(expected + SURE)", *self.renewed]  # fmt: skip
            elif node.what != "is_target":
                text += super().lines([node], policy)
            if node.kind == "Target":
                text.append(f"label = class_of(v{node.index}, classes, tl.int64).to(tl.int32)")
        return text

    def values(self, nodes: Iterable[Node]) -> list[str]:
        return self.lines(nodes)

    def reduction(self, node: Node, lanes: str = "") -> list[str]:
        lines = super().reduction(node, lanes)
        value = f"v{node.index}"
        if node.what == "largest":
            names = (f"{name}{node.index}" for name in ("base", "shift", "scale", "strange"))
            lines.append(f"{', '.join(names)} = origin({value})")
        elif node.of[0].index in self.relative:
            lines.append(f"{value} = {value} * scale{self.relative[node.of[0].index]}")
            lines += [] if self.ahead else self.renewed
        return lines

    def masked(self, node: Node) -> str:
        if node.what != "total":
            return super().masked(node)
        # -0 changes no sum: compilers know that, and leave it out.
        return f"tl.where(there, {self.name(node.of[0])}, {'-' + NEUTRAL['total']})"

    def padding_value(self, node: Node) -> str:
        return super().padding_value(node.of[1] if node is self.read else node)

    def row_place(self, name: str) -> str:
        # The second part is a constant times the step.
        return f"(first_{name} + near_lane * {self.step(name)}) + held_lane * {self.step(name)}"

    def prologue(self) -> list[str]:
        *text, _lane = super().prologue()
        results = [str(place) for place, node in enumerate(self.outputs) if "c" in node.axes]
        rows = [name for name, kind in self.formula.operands if kind == "Row"] + results
        start = text.index(START)
        if self.traversal.by_class:  # rows lie beside each other
            text[start:start] = [f"stride_{name}_0 = classes" for name in rows]
        else:  # with 64 bits, an address is one instruction
            text[start:start] = [f"step_{name} = step_{name}.to(tl.int64)" for name in rows]
        first = next(place for place, line in enumerate(text) if line.startswith("first_"))
        text[first:first] = ["if FULL:", f"    inside = tl.full({self.of_positions}, True, tl.int1)"]  # fmt: skip
        return [
            *text,
            "held_lane = tl.arange(0, HELD).to(INDEX)[:, None, None] * LANES",
            f"near_lane = tl.arange(0, LANES).to(INDEX){self.column}",
            "lane = held_lane + near_lane",
        ]

    def tile_lines(self, nodes: list[Node]) -> list[str]:
        """AHEAD: the loss, then the gradient if one is expected, for which weights are read again, so that they take no registers before."""
        if not self.ahead:
            return super().tile_lines(nodes)
        losses = tuple([node for node in self.graph.results if "c" not in node.axes])
        known = {node.index for node in self.graph.needed((*losses, *self.reductions))}
        first: list[Node] = []
        numbers: list[Node] = []
        last = [node for node in nodes if node.kind == "PerClass"]
        for node in nodes:
            is_number = node.kind == "PerRow" or node.what == "number"
            (first if node.index in known else numbers if is_number else last).append(node)
        gradient = [*self.lines(last), *self.stores(True)]
        self.awaited = False
        return [
            *self.lines([*first, *numbers]), *self.stores(False), "if sure != 0:", *(f"    {line}" for line in gradient),
        ]  # fmt: skip

    def body(self) -> list[str]:
        """LATE: the tiles whose gradient of the loss is not the one that was expected, or all if none was. The first program notes the gradient for the next step."""
        if self.ahead:
            return super().body()
        head, rest = self.prologue(), self.held_lines()
        start = head.index(START)
        gradient = "bits(tl.load(from_gradient + first_gradient, mask=inside, other=0).to(tl.float32))"  # fmt: skip
        single = "gradient" in self.formula.singles
        differs = "(sure == 0) | (tl.max(tl.ravel(other).to(tl.int32)) > 0)"
        return [
            *head[:start],
            "known, sure = tl.load(expected + EXPECTED), tl.load(expected + SURE)",
            "given = tl.load(from_gradient).to(tl.float32)",
            "same = bits(given) == bits(known)",
            "if tl.program_id(0) == 0:",
            "    tl.store(memory + EXPECTED, given)",
            "    tl.store(memory + SURE, same.to(tl.float32))",
            f"last = {'tl.where(same & (sure != 0), 0, programs)' if single else 'programs'}",
            "for turn in range(tl.program_id(0), last, tl.num_programs(0)):",
            "    rest = tl.cast(turn, INDEX)",
            *(f"    {line}" for line in head[start + 1 :]),
            *([] if single else [f"    other = inside & ({gradient} != bits(known))"]),
            f"    if {'True' if single else differs}:",
            *(f"        {line}" for line in rest),
        ]
