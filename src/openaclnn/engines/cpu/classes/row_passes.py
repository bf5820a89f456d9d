"""The passes of a row formula over a *line*: one row with its classes in the lanes, or some vectors of positions, class after class.

`Schedule` orders a formula's graph into phases, each a loop over the classes. A level of reductions has one phase, and another for sums of powers relative to its largest.
These two run block by block: a block's largest is known before its powers are computed, and the sum so far is rescaled where the largest has grown (online softmax), so
that memory is read once. The last phase writes results. `Passes` writes the code; a `Line` (`row_formulas.py`) loads and stores elements and has the loops.
Elements are FLOAT. Numbers of a row are FLOAT64, so that sums of long rows and logarithms near 1 lose no digits.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from openaclnn.engines.cpu.arithmetic.functions import (
    Exp,
    ShiftedExp,
    log1p_32,
    log1p_short,
    power64,
)
from openaclnn.engines.cpu.arithmetic.numerics import any_lane, paired
from openaclnn.engines.cpu.formulas.words import HEAVY, Words, Words64
from openaclnn.engines.formulas.rows import REDUCTIONS, Graph, Node
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.host import machine
from openaclnn.engines.machine.values import Shape, Value, Variable, fma

OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "neg": operator.neg,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "&": operator.and_, "|": operator.or_, "~": operator.invert,
}  # fmt: skip


def is_power_of_largest(node: Node) -> bool:
    """Whether a value is exp(a - largest(a)), which is 1 at the most."""
    if node.what != "exp" or node.of[0].what != "-":
        return False
    a, top = node.of[0].of
    return top.what == "largest" and top.of[0] is a


def is_never_above_0(node: Node) -> bool:
    """Whether a value is minimum(a, 0)."""
    return node.what == "minimum" and node.of[1].what == "constant" and node.of[1].name == 0.0


def is_power_times_number(node: Node) -> bool:
    """Whether a value is exp(a) * b, where b is the same for all classes, and a is an operand, so that exp(a) may overflow."""
    power = node.of[0] if node.what == "*" else node
    return power.what == "exp" and power is not node and power.of[0].kind == "Row" and "c" not in node.of[1].axes  # fmt: skip


def is_of_one_class(node: Node) -> bool:
    """Whether a number is computed from the element at a target and from the call's numbers alone."""
    if node.what == "at":
        return node.of[0].kind == "Row"
    plain = [one for one in node.of if not is_number(one)]
    return (
        node.what in ("+", "-", "*", "/", "neg") and len(plain) == 1 and is_of_one_class(plain[0])
    )


def is_chosen_or_0(node: Node) -> bool:
    """Whether a value is where(condition, x, 0) with a condition that differs between classes."""
    return node.what == "where" and node.of[2].what == "constant" and node.of[2].name == 0.0 and "c" in node.of[0].axes  # fmt: skip


def is_number(node: Node) -> bool:
    """Whether a value is computed of the call's numbers alone."""
    return node.what in ("number", "constant") or (node.what in OPERATORS and all(map(is_number, node.of)))  # fmt: skip


def is_count(node: Node) -> bool:
    """Whether a total counts: it adds up 1 and 0, which FLOAT does exactly."""
    chosen = node.of[0]
    return node.what == "total" and chosen.what == "where" and {one.name for one in chosen.of[1:]} == {0.0, 1.0}  # fmt: skip


def others_of(node: Node) -> Node | None:
    """The node exp(a - largest(a)), if this one is its sum over all classes but one of the largest, as `engines/formulas/cross_entropy.py` writes it; else None."""
    if node.what != "+" or node.of[0].what != "total" or node.of[1].what != "-":
        return None
    powers, (ties, one) = node.of[0].of[0], node.of[1].of
    if powers.what != "where" or not (ties.what == "total" and is_count(ties)) or one.name != 1.0:
        return None
    tie, zero, power = powers.of
    if not is_power_of_largest(power) or zero.name != 0.0 or ties.of[0].of[0] is not tie:
        return None
    return power if tie.what == "==" and tie.of == power.of[0].of else None


def spread_of(node: Node) -> tuple[Node, Node, Node | None, float] | None:
    """Of a total of weight * (a - largest(a)) * part, which label smoothing needs: a, its largest, the weight (None: there is none), the part; None for other nodes."""
    if node.what != "total" or node.level < 2:
        return None
    below, weight = node.of[0], None
    if below.what == "*" and below.of[0].kind == "PerClass":
        weight, below = below.of
    if below.what != "fma" or below.of[1].what != "constant" or below.of[2].what != "neg":
        return None
    (a, part, _), product = below.of, below.of[2].of[0]
    if product.what != "*" or product.of[1].name != part.name:
        return None
    top = product.of[0]
    return (a, top, weight, part.name) if top.what == "largest" and top.of[0] is a else None


def is_reciprocal(node: Node) -> bool:
    """Whether a division may be a product with the divisor's reciprocal: the divisor is a sum of powers, from 1 to the number of classes."""
    return node.what == "/" and "c" in node.axes and node.of[1].sums_powers


class Peeled(NamedTuple):
    """A result of the form where(guard, where(is_target(target), hit, value), fill), where only `value` differs between classes; None for a part that is missing."""

    result: int
    guard: Node | None
    fill: float
    target: Node | None
    hit: Node | None
    value: Node


def _peeled(result: int, node: Node) -> Peeled:
    guard, fill, target, hit = None, 0.0, None, None
    if node.what == "where" and "c" not in node.of[0].axes and node.of[2].what == "constant" and "c" in node.of[1].axes:  # fmt: skip
        guard, fill, node = node.of[0], node.of[2].name, node.of[1]
    if node.what == "where" and node.of[0].what == "is_target" and "c" not in node.of[1].axes and "c" in node.of[2].axes:  # fmt: skip
        target, hit, node = node.of[0].of[0], node.of[1], node.of[2]
    return Peeled(result, guard, fill, target, hit, node)


@dataclass
class Phase:
    """One loop over the classes."""

    level: int  # of the numbers of the row that are known after it
    reductions: tuple[Node, ...] = ()
    online: bool = False  # whether these are sums relative to this level's largest
    writes: tuple[tuple[int, Node], ...] = ()  # results, by their number
    saves: tuple[Node, ...] = ()  # heavy nodes that later phases need, kept in the frame
    uses: tuple[Node, ...] = ()  # nodes that an earlier phase has saved
    asks: set[str] = field(default_factory=set)
    """The operands that it prefetches: the first phase to read an operand does, and before all others one with `others`, which takes longest."""

    @property
    def others(self) -> bool:
        """Whether it sums powers without the largest one's, which takes long."""
        return any(node.what == OTHERS for node in self.reductions)

    @property
    def roots(self) -> tuple[Node, ...]:
        return (*(node.of[0] for node in self.reductions), *(node for _, node in self.writes))


OTHERS = "others"
ROOM = 1 << 14  # FLOATs in the frame for copied operands and saved values
TOGETHER = 4  # vectors or rows of a line: with one, computing numbers of a row would wait for its own latency
GROUPED = 256  # classes up to which rows are better together, with 8 lanes and more
# What is beside the largest term of a sum of FLOAT64 has too few digits, if it is a smaller part of it.
FEW_DIGITS = 2.0**-20
READ = "input", "number", "at", "is_counted", "is_inside", "index_of"


def _needed(graph: Graph) -> list[Node]:
    """The nodes that results need, in order; sums of `others_of` are single reductions."""
    seen: dict[int, Node] = {}
    waiting = list(graph.results)
    while waiting:
        node = waiting.pop()
        if node.index not in seen:
            power = others_of(node)
            new = node if power is None else dataclasses.replace(node, what=OTHERS, of=(power,))
            seen[node.index] = new
            waiting += new.of
    return [seen[index] for index in sorted(seen)]


class Schedule:
    """A formula's phases in order, its nodes that are numbers of a row (`rows`), and those of them that elements are computed with (`numbers`)."""

    def __init__(self, graph: Graph) -> None:
        self.graph, needed = graph, _needed(graph)
        self.rows = [node for node in needed if "c" not in node.axes]
        # Whether each class takes longer than its memory does.
        self.computes_long = any(node.what in HEAVY and "c" in node.axes for node in needed)
        self.reductions = reductions = [
            node for node in needed if node.what in (*REDUCTIONS, OTHERS)
        ]
        self.others = {node.index for node in reductions if node.what == OTHERS}
        # Powers of which the largest is left out of a sum, by their largest.
        self.shifted = {node.of[0].index: node.of[0].of[0].of[1] for node in reductions if node.what == OTHERS}  # fmt: skip
        self.levels = max((node.level for node in reductions), default=0)
        self.phases: list[Phase] = []
        self.early: set[int] = set()  # reductions of a level that are known with the one before
        for level in range(1, self.levels + 1):
            # What follows a largest as it rises is known with it, unless that would be one more pass beside what cannot.
            mine = [n for n in reductions if n.level == level and n.index not in self.early]
            later = [n for n in reductions if n.level == level + 1 and n.online is None]
            if all(n.what == OTHERS or spread_of(n) is not None for n in later):
                self.early |= {n.index for n in later}
            for online in (False, True):
                chosen = [n for n in mine if (n.online is not None) == online]
                chosen += [n for n in later if online and n.index in self.early]
                if chosen:
                    self.phases.append(Phase(level, tuple(chosen), online))
        writes = tuple((k, node) for k, node in enumerate(graph.results) if "c" in node.axes)
        if writes:
            early = max(node.level for _, node in writes) < self.levels
            if not early or self.phases[-1].online:
                self.phases.append(Phase(self.levels + 1))
            self.phases[-1].writes = writes
        asked: set[str] = set()
        for phase in sorted(self.phases, key=lambda one: not one.others):
            phase.asks = {node.name for node in self.inputs([phase])} - asked
            asked |= phase.asks
        self._save()
        self.peeled = self._peel()
        of_elements = [node for node in needed if "c" in node.axes]
        self.numbers = {each.index: each for node in of_elements for each in node.of if "c" not in each.axes}  # fmt: skip
        self.numbers |= {node.of[0].index: node.of[0] for node in reductions if "c" not in node.of[0].axes}  # fmt: skip

    def reached(self, roots: Iterable[Node], stops: Iterable[Node] = ()) -> list[Node]:
        """The nodes with a class axis that must be computed for `roots`, if `stops` are known."""
        seen: dict[int, Node] = {}
        known = {node.index for node in stops}
        waiting = list(roots)
        while waiting:
            node = waiting.pop()
            if "c" in node.axes and node.index not in seen:
                seen[node.index] = node
                waiting += () if node.index in known else node.of
        return [seen[index] for index in sorted(seen)]

    def _save(self) -> None:
        """Heavy nodes are saved by the first phase that computes them for those that follow."""
        saved: dict[int, Node] = {}
        for place, phase in enumerate(self.phases):
            mine = self.reached(phase.roots, saved.values())
            phase.uses = tuple(node for node in mine if node.index in saved)
            behind = {
                node.index for later in self.phases[place + 1 :] for node in self.reached(later.roots, saved.values())
            } - saved.keys()  # fmt: skip
            phase.saves = tuple(
                node for node in mine
                if node.what in HEAVY and "r" in node.axes and node.index in behind
            )  # fmt: skip
            saved |= {node.index: node for node in phase.saves}
        self.saved = saved

    def _peel(self) -> list[Peeled]:
        """The results of the last phase as `Peeled`, if all have the same guard: then a row decides once, and writes its target's element separately."""
        last = self.phases[-1] if self.phases else Phase(0)
        peeled = [_peeled(*write) for write in last.writes]
        shared = all(one.guard is peeled[0].guard for one in peeled)
        return peeled if shared and not (last.reductions or last.saves) else []

    def numbers_behind(self, one_row: bool) -> set[int]:
        """The numbers of a row that no element is computed with, so that they can be computed after the loops. Not among them are those that are read, since a result may
        overwrite them."""
        writes = [node for phase in self.phases for _, node in phase.writes]
        guards = []
        if one_row and self.peeled:
            writes = [one.value for one in self.peeled]
            guards = [one.guard for one in self.peeled if one.guard is not None]
        roots = [*writes, *(node.of[0] for node in self.reductions)]
        behind = {node.index: node for node in self.rows if node.what not in (*READ, *REDUCTIONS, OTHERS)}  # fmt: skip
        waiting = [*roots, *guards, *(each for node in self.reached(roots) for each in node.of)]
        while waiting:
            node = behind.pop(waiting.pop().index, None)
            waiting += node.of if node is not None else ()
        return {*behind}

    def read_behind(self, phase: Phase) -> set[str]:
        """The operands that phases after this one read. Phases of the same level read again what was saved, as rows of several blocks keep nothing."""
        nodes = []
        for each in self.phases:
            if each.level > phase.level:
                nodes += self.reached(each.roots, each.uses)
            elif each.level == phase.level and each.online and not phase.online:
                nodes += self.reached(each.roots)
        return {node.name for node in nodes if node.what == "input"}

    @property
    def squares(self) -> bool:
        """Whether a number of a row is squared, which doubles its error, while powers without their largest are summed alone, not written or saved."""
        written = self.reached(node for _, node in self.phases[-1].writes)
        return any(node.what == "*" and node.of[0] is node.of[1] for node in self.rows) and not any(
            node.index in self.shifted for node in (*written, *self.saved.values())
        )

    @property
    def takes_runs(self) -> bool:
        """Whether lines may be long runs of positions: plain totals of one level are all that is reduced."""
        plain = all(node.what == "total" and node.online is None for node in self.reductions)
        rows = all(node.kind == "Row" for node in self.graph.nodes if node.what == "input")
        whole = all("c" in node.axes for node in self.graph.results) and not any(node.truth for node in self.numbers.values())  # fmt: skip
        return plain and rows and whole and self.levels == 1 and not self.saved

    @property
    def short(self) -> int:
        """Up to how many vectors of classes positions are better in the lanes: numbers of a row, computed for one row alone, would take longest."""
        heavy = any(node.what in HEAVY for node in self.rows)
        several = self.levels > 1 or any(phase.online for phase in self.phases)
        return 4 + 3 * heavy if several else 1 + 2 * heavy

    @property
    def grouped(self) -> tuple[int, int]:
        """From how many vectors of classes up to how many TOGETHER rows are better in one line (`RowGroups`), if classes are contiguous.

        The time as a share of that with positions in the lanes, or of one row alone, 16 lanes: softmax of 21 to 100 classes 0.5 to 0.8, its gradient of 21 to 256 0.6 to 0.95, log-softmax 0.5 to 0.9, cross
        entropy of 64 to 256 0.7 to 0.9, its gradient of 50 to 256 0.75 to 0.95, steps of 200 0.75; 8 lanes: steps of 80 to 256 0.7 to 0.9, softmax and log-softmax of 150 to 256 0.75 to 0.9. From 512
        on it is the same; with 4 lanes, of which lines of one row have twice as many vectors at once, it was not measured beyond these.
        """
        first, lanes = 1 if self.levels else self.short, machine().lanes
        last = (8 if self.saved else 16) if lanes < 8 else GROUPED // lanes
        # What is kept of all rows has its place in the frame.
        in_frame = ROOM // (TOGETHER * max(len(self.saved), 1)) // lanes
        return 4 if self.others else first, min(last, in_frame)

    def slots(self) -> tuple[dict[Any, int], int]:
        """The slots in the frame of copied operands, by their names, and of saved nodes, by their indices; and the number of slots. A saved node takes the slot of an operand
        that no later phase reads, if there is one.
        """
        rows = [node.name for node in self.graph.nodes if node.kind == "Row"]
        places: dict[Any, int] = {name: place for place, name in enumerate(rows)}
        many = len(rows)
        for phase in self.phases:
            used = self.read_behind(phase)
            taken = {places[index] for index in self.saved if index in places}
            spare = [
                places[name] for name in rows if name not in used and places[name] not in taken
            ]
            for node in phase.saves:
                places[node.index] = spare.pop(0) if spare else many
                many = max(many, places[node.index] + 1)
        written = sum("c" in node.axes for node in self.graph.results)
        return places, max(many, written)

    def inputs(self, phases: list[Phase]) -> list[Node]:
        """The operands with classes that some phases read, where nothing is kept."""
        roots = tuple(root for phase in phases for root in phase.roots)
        return [node for node in self.reached(roots) if node.what == "input"]


class Line(Protocol):
    """What `Passes` needs of a line: loops over its classes, loads and stores, and operations that differ between lanes of classes and of positions."""

    one_block: bool  # whether a block has all classes
    chooses: bool  # between values as they lie in memory
    one_row: bool  # a line is a row, not vectors of positions
    subtracts: bool
    """Whether sums without a largest power are made of those with it: in lines of rows."""

    streams: int  # vectors of a row that are taken together
    several: Value
    """Whether a line is walked in several blocks, so that nothing is kept between phases."""

    classes: Value
    start: Value  # the class that a block begins with

    def blocks(self, phases: list[Phase], body: Callable[[Value, Value], None]) -> None:
        """`body(number, count)` for each block of classes, which lies ready meanwhile."""

    def each(self, count: Value, phase: Phase, body: Callable[..., None], leaves: Callable[..., Any]) -> None:  # fmt: skip
        """`body(shape, index, mask, loaded)` over a block's classes; without a mask, each of them counts."""

    def load(self, node: Node, index: Value, shape: Shape) -> Value:
        """Elements of an operand that differs between classes."""

    def is_target(self, node: Node, index: Value, shape: Shape) -> Value: ...

    def keep(self, slot: int, index: Value, values: Value) -> None:
        """Save elements for later phases."""

    def kept(self, slot: int, index: Value, shape: Shape) -> Value: ...

    def write(self, result: int, index: Value, values: Value) -> None: ...

    def write_where(self, result: int, index: Value, truths: Value, values: Value) -> None:
        """Values where something holds, and 0 elsewhere; of lines that choose alone."""

    def write_at_target(self, result: int, target: Node, holds: Value | None, value: Value) -> None:
        """The element of a row's target, where it has one and that holds."""

    def fill(self, result: int, number: float, count: Value) -> None:
        """All elements of a row's block."""

    def number(self, node: Node) -> Value:
        """What is known of the line before it is walked: FLOAT64, or a truth value."""

    def filled(self, kind: str, number: float) -> Value:
        """A number in all lanes of what is reduced."""

    def running(self, kind: str, number: float) -> Any:
        """What is reduced, which begins with a number."""

    def settled(self, settle: Callable[[], None]) -> None:
        """Have numbers of the line computed, once its reductions are known."""

    def held(self, node: int, number: Value) -> Any:
        """A number of the line for its elements, which they get by `spread`."""

    def folded(self, values: Value, join: Callable[[Value, Value], Value]) -> Value:
        """Some classes, as such lanes."""

    def reduced(self, vector: Value, join: Callable[[Value, Value], Value]) -> Value:
        """The line's number of a vector of them."""

    def of_rows(self, numbers: list[Value]) -> Value:
        """A number of the line of one of each row; of lines that subtract alone."""

    def spread(self, number: Any) -> Value:
        """A number of the line beside its elements."""

    def any(self, truths: Value) -> Value: ...

    def rounded(self, values: Value) -> Value:
        """To the dtype that is computed in."""

    def put(self, result: int, value: Value) -> None:
        """A result that does not differ between classes, FLOAT64."""


def larger(first: Value, second: Value) -> Value:
    """The larger of two; `first` if `second` is NaN."""
    return (second > first).choose(second, first)


class _Largest:
    """A running maximum, and whether there was NaN."""

    def __init__(self, code: Code, line: Line) -> None:
        self.line, self.lowest = line, line.filled("f32", -math.inf)
        self.top = code.variable(self.lowest)  # of a block
        self.so_far = code.variable(line.reduced(self.lowest, larger))
        self.nan = code.variable(line.filled("f32", 0.0).is_nan())

    def take(self, values: Value) -> None:
        self.top.set(larger(self.top.get(), self.line.folded(values, larger)))
        if not self.line.one_row:
            self.nan.set(self.nan.get() | values.is_nan())
            return
        streams = values.streams()
        pairs = zip(streams[::2], streams[1::2] or streams, strict=True)
        unordered = [first.unordered(second) for first, second in pairs]
        self.nan.set(self.nan.get() | paired(unordered, operator.or_))

    def fold(self) -> None:
        """After a block."""
        self.so_far.set(larger(self.so_far.get(), self.line.reduced(self.top.get(), larger)))
        self.top.set(self.lowest)

    def get(self, line: Line) -> Value:
        return line.any(self.nan.get()).choose(math.nan, self.so_far.get()).to("f64")


class _Total:
    """A running sum of elements as FLOAT64: small ones keep their digits beside large ones, and rounded to FLOAT a row's sum is the same in all
    kinds of lines, but where sums cancel."""

    def __init__(self, code: Code, line: Line) -> None:
        self.code, self.line = code, line
        self.sum = line.running("f64", 0.0)
        self.halves = code.frame("f32", line.streams * code.lanes)

    def take(self, values: Value) -> None:
        self.sum.set(self.sum.get() + self.line.folded(self.wide(values), operator.add))

    def wide(self, values: Value) -> Value:
        """Elements as FLOAT64. What is computed leaves the processor's ports for memory idle: a half of a vector is converted as it is loaded by one instruction, where
        one that lies in a register takes three (x86-64: softmax, log-softmax and steps of 1,000 classes 4 to 7%, gradients in BFLOAT16 8 to 15% with the narrowing)."""
        if not self.line.one_row or values.lanes < 8 or values.element != self.halves.element:
            return values.to("f64")
        start, half = self.code.integer(0), values.lanes // 2
        self.halves.store(values, start, 4 * values.lanes)
        shape = Shape(2 * len(values.parts), half)
        return self.halves.load(start, shape, True, 4 * half).to("f64").joined()

    def fold(self) -> None:
        """After a block."""

    def lower(self, factor: Value) -> None:
        self.sum.set(self.sum.get() * factor)

    def add(self, other: _Total, factor: Value) -> None:
        self.sum.set(self.sum.get() + other.sum.get() * factor)

    def get(self, line: Line) -> Value:
        return line.reduced(self.sum.get(), operator.add)


class _Spread(_Total):
    """The sum of weight * (a - largest(a)) * part, and that of the weights."""

    def __init__(self, code: Code, line: Line) -> None:
        super().__init__(code, line)
        self.weights = _Total(code, line)

    def lower_by(self, rise: Value, weights: Value) -> None:
        """Correct the sum after the largest has grown: each term changes by its weight times `rise`."""
        self.sum.set(self.sum.get() + weights * rise)


class _Others(_Total):
    """The sum of powers relative to a largest, without the largest's own 1, beside which small ones would lose their digits: a loss near 0 is made of these. Classes
    that are as large are counted instead.

    In lines of rows all powers are added up first, and one of the largest is subtracted: FLOAT64 has digits enough for both, as a rule. It takes 0.85 of the time, or 1 where
    each row is added up once more. Lines of positions have so many that one of them would often lack digits, and gain nothing (0.95 to 1.05; 1.2 where digits lack).
    """

    def __init__(self, code: Code, line: Line) -> None:
        super().__init__(code, line)
        self.zero = line.filled("f32", 0.0)
        self.tied = code.variable(self.zero)
        self.ties = code.variable(line.filled("f64", 0.0))
        # What is beside the largest, without the factor of powers, and what has none.
        none = line.reduced(self.sum.get(), operator.add)
        self.beside, self.more, self.power = (code.variable(none) for _ in range(3))

    def begin(self) -> None:
        for each in (self.sum, self.ties):
            each.set(self.line.filled("f64", 0.0))

    def take_others(self, powers: Value, tie: Value) -> None:
        self.take(tie.choose(0.0, powers))
        tied = self.tied.get()
        if self.line.one_row:
            for each in tie.streams():
                tied = each.choose(tied + 1.0, tied)
        else:
            tied = tie.choose(tied + 1.0, tied)
        self.tied.set(tied)

    def fold(self) -> None:
        self.ties.set(self.ties.get() + self.tied.get().to("f64"))
        self.tied.set(self.zero)

    def lower_others(self, factor: Value, before: Value, raised: Value) -> None:
        """Where the largest has grown: multiply by a factor the sum so far, which includes the former largest's ties and its own factor `before`."""
        old = self.sum.get() * before + self.ties.get()
        self.sum.set(raised.choose(old * factor, self.sum.get()))
        self.ties.set(raised.choose(0.0, self.ties.get()))

    def take_out(self) -> None:
        """The sum has the largest's power, too."""
        self.beside.set(self.get(self.line) - self.power.get())

    def leave_out(self) -> None:
        """The sum has none of the largest's."""
        self.beside.set(self.get(self.line))
        self.more.set(self.line.reduced(self.ties.get(), operator.add) - 1.0)

    def others(self, factor: Value) -> Value:
        return self.beside.get() * factor + self.more.get()


class Passes:
    """Writes the passes of a schedule over lines."""

    def __init__(self, code: Code, schedule: Schedule) -> None:
        self.code, self.schedule = code, schedule
        self.words, self.words64 = (kind(code, lambda lanes: 0.0) for kind in (Words, Words64))
        self._powers: dict[str, Exp] = {}
        self._shifted: ShiftedExp | None = None

    def over(self, line: Line) -> None:
        """Write all passes over a line."""
        self.known: dict[int, Value] = {}  # FLOAT64, and truth values
        self.numbers: dict[int, Value] = {}  # the same for elements, FLOAT
        self.reciprocals: dict[int, Value] = {}
        # For each largest: what `ShiftedExp` computes powers with, and their factor.
        self.shifts: dict[int, tuple[tuple[Value, Value, Value], Value]] = {}
        self.reduced: dict[int, Value] = {}
        self.finite: dict[int, Value] = {}  # what is subtracted instead of a largest so far
        self.apart = True  # whether classes may be as large as the largest, which sums leave out
        behind = self.schedule.numbers_behind(line.one_row)
        numbers = [node for node in self.schedule.rows if node.index not in behind]
        self._settle(line, [node for node in numbers if node.level == 0], {})
        phases = self.schedule.phases
        for level in range(1, self.schedule.levels + 2):
            mine = [phase for phase in phases if phase.level == level]
            running = self._reduce(line, mine)
            known = [node for node in numbers if node.level == level]
            line.settled(functools.partial(self._settle, line, known, running))
        self._settle(line, [node for node in self.schedule.rows if node.index in behind], {})
        for one in self.schedule.peeled if line.one_row else ():
            if one.target is not None and one.hit is not None:
                holds = None if one.guard is None else self.known[one.guard.index]
                line.write_at_target(one.result, one.target, holds, self.numbers[one.hit.index])
        for number, node in enumerate(self.schedule.graph.results):
            if "c" not in node.axes:
                line.put(number, self.known[node.index])

    def _settle(self, line: Line, numbers: list[Node], running: Mapping[int, Any]) -> None:
        """Compute numbers of the line, once reductions are known."""
        for node in self.schedule.reductions:
            if node.index in running:
                self.reduced[node.index] = self._line_total(line, node, running)
        for node in numbers:
            if node.index in self.reduced:
                value = self.reduced[node.index]
            elif node.what in READ:
                if node.kind == "Target":
                    continue
                value = line.number(node)
            elif node.what == "constant":
                value = self.code.double(node.name)
            elif node.what == "classes":
                value = line.classes.to("f64")
            else:
                value = self._number(node)
            self.known[node.index] = value
            if node.index in self.schedule.numbers:
                self.numbers[node.index] = line.held(
                    node.index, value if node.truth else value.to("f32")
                )
                if node.sums_powers:
                    self.reciprocals[node.index] = (1.0 / value).to("f32")
            tops = {top.index for top in self.schedule.shifted.values()}
            if node.index in tops - self.shifts.keys():
                self.shifts[node.index] = self._shifted_exp().shift(value)

    def _shifted_exp(self) -> ShiftedExp:
        if self._shifted is None:
            with self.code.once():
                self._shifted = ShiftedExp(self.code, self.schedule.squares)
        return self._shifted

    def _number(self, node: Node) -> Value:
        """A number of the row, computed from others in FLOAT64, or where it is a class's, in FLOAT."""
        operands = [self.known[one.index] for one in node.of]
        if node.what == "log1p" and node.of[0].index in self.schedule.others:
            # As exact as FLOAT shows, in a third of the time.
            return log1p_short(self.code, operands[0])
        if node.what == "log" and node.of[0].sums_powers:
            # The logarithm of 1 or more, as log1p of the rest: as exact as FLOAT shows, in a third of the time.
            return log1p_32(self.code, (operands[0] - 1.0).to("f32")).to("f64")
        # The value of a class is rounded to FLOAT as all elements are, so that the largest one equals `largest`.
        if (node.what in OPERATORS or node.what in Words64.WIDE) and not is_of_one_class(node):
            return self._computed(self.words64, node, operands)
        return self._computed(self.words, node, [one.to("f32") for one in operands]).to("f64")

    def _computed(self, words: Words, node: Node, operands: list[Value]) -> Value:
        terms = [words.term(operand) for operand in operands]
        operation = OPERATORS.get(node.what) or getattr(words, node.what)
        value: Value = operation(*terms)
        return value

    def _reduce(self, line: Line, phases: list[Phase]) -> Mapping[int, Any]:
        """Write the phases of a level, block after block. Returns their reductions."""
        code = self.code
        running: dict[int, Any] = {}
        before: dict[int, Variable] = {}
        shifts: dict[int, list[Variable]] = {}
        for phase in phases:
            for node in phase.reductions:
                running[node.index] = self._kind(phase, node)(code, line)
                if phase.online:
                    top = self._top_of(node)
                    lowest = running[top].so_far.get()
                    before[top] = code.variable(lowest)
                    if node.what == OTHERS:
                        shift, factor = self._shifted_exp().shift(lowest.to("f64"))
                        shifts[top] = [code.variable(one) for one in (*shift, factor)]

        def block(number: Value, count: Value) -> None:
            for phase in phases:
                for top in before if phase.online else ():
                    if line.one_block:
                        self._set_shift(shifts.get(top), running[top].so_far.get())
                    else:
                        self._rescale_to(
                            line, phase, number, top, running, before[top], shifts.get(top)
                        )
                    self._set_top(line, top, running[top].so_far.get(), shifts.get(top))
                self.apart = not (line.subtracts and phase.online)
                for node in phase.reductions:
                    if node.what == OTHERS and not self.apart:
                        # Here it is ready when the loop over the classes is.
                        running[node.index].power.set(self._power_of_largest(line, self._top_of(node)))  # fmt: skip
                self._phase(line, phase, count, running)
                for node in phase.reductions:
                    running[node.index].fold()

        if phases:
            line.blocks(phases, block)
        for top, variables in shifts.items():
            self.shifts[top] = _shift_of(variables)
        for phase in phases:
            for node in phase.reductions:
                if node.what == OTHERS and line.subtracts and phase.online:
                    self._take_largest_out(line, phase, node, running)
                elif node.what == OTHERS:
                    running[node.index].leave_out()
        return running

    def _take_largest_out(
        self, line: Line, phase: Phase, node: Node, running: Mapping[int, Any]
    ) -> None:  # fmt: skip
        """Subtract the largest's own power from a row's sum of all, where enough digits are left; where not, or where it is infinite, add up the others once more."""
        total, top = running[node.index], self._top_of(node)
        self.numbers[top] = running[top].so_far.get()
        total.take_out()
        enough = total.beside.get() > total.power.get() * FEW_DIGITS
        with self.code.when(any_lane(~enough), likely=False):
            again = dataclasses.replace(
                phase, reductions=(node,), writes=(), saves=(), uses=phase.saves, asks=set()
            )

            def block(number: Value, count: Value) -> None:
                self._phase(line, again, count, running)
                total.fold()

            total.begin()
            self.apart = True
            line.blocks([again], block)
            total.leave_out()

    def _power_of_largest(self, line: Line, top: int) -> Value:
        """The power of a row's largest so far, without its factor, as its element has it."""
        largest, (shift, _) = line.spread(self.numbers[top]), self.shifts[top]
        base, lowest, rounder = map(line.spread, shift)
        power = self._shifted_exp().power(largest.splat(self.code.lanes), (base, lowest, rounder))
        return line.of_rows([one.lane(0) for one in power.streams()]).to("f64")

    def _kind(self, phase: Phase, node: Node) -> type[_Largest | _Total]:
        if node.what in ("largest", OTHERS):
            return _Others if node.what == OTHERS else _Largest
        return _Spread if phase.online and spread_of(node) is not None else _Total

    def _top_of(self, node: Node) -> int:
        """The index of the largest that a total is relative to."""
        spread = spread_of(node)
        if node.what == OTHERS:
            return self.schedule.shifted[node.of[0].index].index
        top = node.online if spread is None else spread[1]
        assert top is not None
        return top.index

    def _line_total(self, line: Line, node: Node, running: Mapping[int, Any]) -> Value:
        """The value of a reduction over the whole line."""
        value: Value
        if node.what == OTHERS:
            top = self._top_of(node)
            value = running[node.index].others(self.shifts[top][1])
            largest = self.reduced[top] if top in running else self.known[top]
            return largest.is_nan().choose(math.nan, value)
        value = running[node.index].get(line)
        if node.online is not None:
            # Powers relative to an infinite largest are not defined.
            largest = self.reduced[node.online.index]
            value = value + (largest - largest)
        return value

    def _raw_power(self, line: Line, node: Node, known: dict[int, Value], index: Value, shape: Shape) -> Value:  # fmt: skip
        """A power relative to a largest, without its factor."""
        key = -1 - node.index
        if key not in known:
            operand = self._element(line, node.of[0].of[0], known, index, shape)
            shift, _ = self.shifts[self.schedule.shifted[node.index].index]
            base, lowest, rounder = map(line.spread, shift)
            known[key] = self._shifted_exp().power(operand, (base, lowest, rounder))
        return known[key]

    def _rescale_to(
        self, line: Line, phase: Phase, number: Value, top: int, running: Mapping[int, Any], before: Variable,
        shift: list[Variable] | None,
    ) -> None:  # fmt: skip
        """Rescale the sums so far to a block's largest, where that is larger."""
        code, highest = self.code, running[top].so_far.get()
        raised = highest > before.get()
        with code.when(any_lane(raised)):
            known, old = highest.to("f64"), before.get().to("f64")
            new = None if shift is None else self._shifted_exp().shift(known)
            with code.when(number > 0, likely=False):
                factor = power64(code, old - known)
                factor = (old == -math.inf).choose(0.0, factor)
                rescaled = [node for node in phase.reductions if self._top_of(node) == top]
                for node in rescaled:
                    if node.online is not None and not node.sums_powers:
                        # Such a total takes the powers' total times the growth, before that is rescaled.
                        fall = (old == -math.inf).choose(0.0, old - known)
                        running[node.index].add(running[node.of[1].index], fall)
                for node in rescaled:
                    total = running[node.index]
                    self._rescale(line, node, total, factor, old - known, raised, new, shift)
            if shift is not None and new is not None:
                for variable, value in zip(shift, (*new[0], new[1]), strict=True):
                    variable.set(value)
            before.set(highest)

    def _set_shift(self, shift: list[Variable] | None, highest: Value) -> None:
        """Set the shift of a largest that is final, as a line has one block."""
        if shift is not None:
            new, factor = self._shifted_exp().shift(highest.to("f64"))
            for variable, value in zip(shift, (*new, factor), strict=True):
                variable.set(value)

    def _set_top(self, line: Line, top: int, highest: Value, shift: list[Variable] | None) -> None:
        """Set the largest so far, and the shift, with which elements are computed."""
        # With several blocks, one of minus infinity alone must add nothing.
        self.finite[top] = (line.several & (highest == -math.inf)).choose(0.0, highest)
        self.numbers[top] = self.finite[top] if shift is None else highest
        if shift is not None:
            self.shifts[top] = _shift_of(shift)

    def _rescale(
        self, line: Line, node: Node, total: Any, factor: Value, rise: Value, raised: Value, new: Any, shift: Any
    ) -> None:  # fmt: skip
        """Rescale one sum after its largest has grown."""
        spread = spread_of(node)
        if node.what == OTHERS:
            total.lower_others(factor / new[1], shift[-1].get(), raised)
        elif spread is None:
            total.lower(factor)
        else:
            _, _, weight, part = spread
            # Before the first finite element nothing has been added up.
            rise = (rise > -math.inf).choose(rise * part, 0.0)
            count = line.start.to("f64") * (1 / self.code.lanes if line.one_row else 1.0)
            total.lower_by(rise, count if weight is None else total.weights.sum.get())

    def _phase(self, line: Line, phase: Phase, count: Value, running: Mapping[int, Any]) -> None:
        if not phase.uses:
            self._written(line, phase, count, running, ())
            return
        with self.code.either(line.several) as (several, alone):
            with several:
                self._written(line, phase, count, running, ())
            with alone:
                self._written(line, phase, count, running, phase.uses)

    def _written(
        self, line: Line, phase: Phase, count: Value, running: Mapping[int, Any], uses: tuple[Node, ...]
    ) -> None:  # fmt: skip
        """Write a loop over the classes; for one row, the guard of peeled results is decided before it."""
        peeled = self.schedule.peeled if line.one_row and phase.writes else []
        if peeled:
            phase = dataclasses.replace(
                phase, writes=tuple((one.result, one.value) for one in peeled)
            )
        if not peeled or peeled[0].guard is None:
            self._loop(line, phase, count, running, uses)
            return
        with self.code.either(self.known[peeled[0].guard.index]) as (here, elsewhere):
            with here:
                self._loop(line, phase, count, running, uses)
            with elsewhere:
                for one in peeled:
                    line.fill(one.result, one.fill, count)

    def _loads(
        self, line: Line, phase: Phase, uses: tuple[Node, ...], index: Value, shape: Shape
    ) -> dict[int, Value]:
        """The saved nodes and inputs that a step of the loop loads."""
        known = {self._key(node): line.kept(node.index, index, shape) for node in uses}
        compared = [_operand(node) for node in phase.reductions if node.what == OTHERS]
        for node in self.schedule.reached((*phase.roots, *compared), uses):
            if node.what == "input" and node.index not in known:
                known[node.index] = line.load(node, index, shape)
        return known

    def _loop(
        self, line: Line, phase: Phase, count: Value, running: Mapping[int, Any], uses: tuple[Node, ...]
    ) -> None:  # fmt: skip
        def leaves(index: Value, shape: Shape) -> dict[int, Value]:
            return self._loads(line, phase, uses, index, shape)

        def body(
            shape: Shape, index: Value, mask: Value | None, loaded: dict[int, Value] | None
        ) -> None:
            known = dict(leaves(index, shape) if loaded is None else loaded)
            for node in phase.reductions:
                if node.what == OTHERS:
                    operand = self._element(line, _operand(node), known, index, shape)
                    powers = self._raw_power(line, node.of[0], known, index, shape)
                    tie = operand == line.spread(self.numbers[self._top_of(node)])
                    if mask is not None:
                        tie, powers = tie & mask, mask.choose(powers, 0.0)
                    if self.apart:
                        running[node.index].take_others(powers, tie)
                    else:
                        running[node.index].take(powers)
                    continue
                spread = spread_of(node) if phase.online else None
                if spread is not None:
                    a, top, weight, part = spread
                    shift = -(line.spread(self.finite[top.index]) * part)
                    values = fma(self._element(line, a, known, index, shape), part, shift)
                    if weight is not None:
                        weights = self._element(line, weight, known, index, shape)
                        counted = weights if mask is None else mask.choose(weights, 0.0)
                        running[node.index].weights.take(counted)
                        values = values * weights
                    running[node.index].take(values if mask is None else mask.choose(values, 0.0))
                    continue
                values = _filled(self._element(line, node.of[0], known, index, shape), shape)
                if mask is not None and node.what != "largest":
                    values = mask.choose(values, 0.0)
                running[node.index].take(values)
            chosen = [one for one in phase.writes if line.chooses and is_chosen_or_0(one[1])]
            for number, node in chosen:
                truths, values = (self._element(line, one, known, index, shape) for one in node.of[:2])  # fmt: skip
                line.write_where(number, index, truths, _filled(values, shape))
            results = [(k, self._element(line, node, known, index, shape)) for k, node in phase.writes if (k, node) not in chosen]  # fmt: skip
            for node in phase.saves:
                line.keep(node.index, index, known[self._key(node)])
            for number, values in results:
                line.write(number, index, _filled(values, shape))

        line.each(count, phase, body, leaves)

    def _key(self, node: Node) -> int:
        return -1 - node.index if node.index in self.schedule.shifted else node.index

    def _power(self, span: str) -> Exp:
        if span not in self._powers:
            with self.code.once():  # its constants are set before the loops
                self._powers[span] = Exp(self.code, None, span)
        return self._powers[span]

    def _exp(self, node: Node, x: Value) -> Value:
        if is_never_above_0(node.of[0]):
            return self._power("negative")((x > 0.0).choose(0.0, x))
        return self._power("negative" if is_power_of_largest(node) else "full")(x)

    def _element(
        self, line: Line, node: Node, known: dict[int, Value], index: Value, shape: Shape
    ) -> Value:
        """The elements of a node for some classes."""
        if "c" not in node.axes:
            return line.spread(self.numbers[node.index])
        if node.index not in known:
            if node.index in self.schedule.shifted:
                factor = self.shifts[self.schedule.shifted[node.index].index][1]
                value = self._raw_power(line, node, known, index, shape) * line.spread(
                    factor.to("f32")
                )
            elif is_power_times_number(node) and node.of[0].index not in self.schedule.saved:
                x, factor = (self._element(line, one, known, index, shape) for one in (node.of[0].of[0], node.of[1]))  # fmt: skip
                value = self._power("full").times(x, factor)
            elif node.what == "is_target":
                value = line.is_target(node.of[0], index, shape)
            else:
                of = (
                    node.of[0].of[:1]
                    if node.what == "exp" and is_never_above_0(node.of[0])
                    else node.of
                )
                operands = [self._element(line, one, known, index, shape) for one in of]
                if node.what == "rounded":
                    value = line.rounded(operands[0])
                elif is_reciprocal(node):
                    value = operands[0] * line.spread(self.reciprocals[node.of[1].index])
                elif node.what == "exp" and len(operands) == 1:
                    value = self._exp(node, operands[0])
                else:
                    value = self._computed(self.words, node, operands)
            known[node.index] = value
        return known[node.index]


def _operand(node: Node) -> Node:
    """The values whose powers, relative to their largest, a node of OTHERS adds up."""
    return node.of[0].of[0].of[0]


def _shift_of(variables: list[Variable]) -> tuple[tuple[Value, Value, Value], Value]:
    base, lowest, rounder, factor = (variable.get() for variable in variables)
    return (base, lowest, rounder), factor


def _filled(values: Value, shape: Shape) -> Value:
    """A value that is the same for all classes, in a shape."""
    wide = values if values.lanes else values.splat(shape.lanes)
    return wide if len(wide.parts) == shape.streams else wide.join([wide] * shape.streams)
