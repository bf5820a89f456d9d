"""The passes of a row formula over a line: one row with its classes in the lanes, or as many positions as a vector has lanes.

`Schedule` orders a formula's graph into phases, each a loop over the classes. A level has one for its reductions, and another one for totals of
powers of its largest; the last one writes. `Passes` writes the code. Elements are FLOAT; what is computed once a row is FLOAT64, so that the
numbers of a row lose nothing: sums neither by the length of a row nor by narrow vectors, logarithms not near 1. How a line lies, what is loaded
and stored, and which loop walks it, a `Line` says.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from openaclnn.engines.cpu.arithmetic.functions import Exp, log1p_32, power64
from openaclnn.engines.cpu.arithmetic.numerics import paired
from openaclnn.engines.cpu.formulas.words import HEAVY, Words, Words64
from openaclnn.engines.formulas.rows import REDUCTIONS, Graph, Node
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.values import Shape, Value, Variable

__all__ = ["Line", "Passes", "Phase", "Schedule"]

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


def is_reciprocal(node: Node) -> bool:
    """Whether a division is as good as multiplying by its divisor's reciprocal: that lies between 1 and the number of classes."""
    return node.what == "/" and "c" in node.axes and node.of[1].sums_powers


@dataclass
class Phase:
    """One loop over the classes."""

    level: int  # of the numbers that it makes known
    reductions: tuple[Node, ...] = ()
    online: bool = False  # whether these are totals of powers of this level's largest
    writes: tuple[tuple[int, Node], ...] = ()  # results, by their number
    saves: tuple[Node, ...] = ()  # what later phases want, and would take long to compute again
    uses: tuple[Node, ...] = ()  # what was saved before

    @property
    def roots(self) -> tuple[Node, ...]:
        return (*(node.of[0] for node in self.reductions), *(node for _, node in self.writes))


class Schedule:
    """A formula's phases, in order; its numbers a row, and which of them elements are computed with."""

    def __init__(self, graph: Graph) -> None:
        self.graph, needed = graph, graph.needed(graph.results)
        self.rows = [node for node in needed if "c" not in node.axes]
        reductions = [node for node in needed if node.what in REDUCTIONS]
        self.levels = max((node.level for node in reductions), default=0)
        self.phases: list[Phase] = []
        for level in range(1, self.levels + 1):
            for online in (False, True):
                mine = [n for n in reductions if n.level == level and (n.online is not None) == online]  # fmt: skip
                if mine:
                    self.phases.append(Phase(level, tuple(mine), online))
        writes = tuple((k, node) for k, node in enumerate(graph.results) if "c" in node.axes)
        if writes:
            early = max(node.level for _, node in writes) < self.levels
            if not early or self.phases[-1].online:
                self.phases.append(Phase(self.levels + 1))
            self.phases[-1].writes = writes
        self._save()
        of_elements = [node for node in needed if "c" in node.axes]
        self.numbers = {each.index: each for node in of_elements for each in node.of if "c" not in each.axes}  # fmt: skip
        self.numbers |= {node.of[0].index: node.of[0] for node in reductions if "c" not in node.of[0].axes}  # fmt: skip

    def reached(self, roots: Iterable[Node], stops: Iterable[Node] = ()) -> list[Node]:
        """What differs between classes and is computed for some values, where others are known."""
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
        """What takes long is kept by the first phase that computes it for those behind."""
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

    def place(self, phase: Phase) -> int:
        return next(place for place, each in enumerate(self.phases) if each is phase)

    @property
    def short(self) -> int:
        """Vectors of classes up to which rows are better off beside others: what is computed once a row would take longest."""
        heavy = any(node.what in HEAVY for node in self.rows)
        return 4 + 3 * heavy if any(phase.online for phase in self.phases) else 1

    def slots(self) -> tuple[dict[Any, int], int]:
        """Where operands with classes lie if all of them are copied, by their names, and saved values, by their indices; and how many places that
        takes. A saved value takes the place of an operand that no later phase reads, where there is one, results those of operands.
        """
        rows = [node.name for node in self.graph.nodes if node.kind == "Row"]
        places: dict[Any, int] = {name: place for place, name in enumerate(rows)}
        many = len(rows)
        for number, phase in enumerate(self.phases):
            roots = [root for later in self.phases[number + 1 :] for root in later.roots]
            used = {node.name for node in self.reached(roots, self.saved.values())}
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
    """One row, or a vector of positions, being walked."""

    several: (
        Value  # whether a line is walked in several blocks, so that nothing is kept between phases
    )

    classes: Value

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

    def number(self, node: Node) -> Value:
        """What is known of the line before it is walked: FLOAT64, or a truth value."""

    def reduced(self, vector: Value, join: Callable[[Value, Value], Value]) -> Value:
        """The line's number of a vector of them."""

    def any(self, truths: Value) -> Value: ...

    def rounded(self, values: Value) -> Value:
        """To the dtype that is computed in."""

    def put(self, result: int, value: Value) -> None:
        """A result that does not differ between classes, FLOAT64."""


def larger(first: Value, second: Value) -> Value:
    """The larger of two, NaN left out."""
    return (second > first).choose(second, first)


class _Largest:
    """A running maximum, and whether there was NaN."""

    def __init__(self, code: Code) -> None:
        self.top = code.variable(code.constant("f32", -math.inf, code.lanes))
        self.nan = code.variable(code.constant("f32", 0.0, code.lanes).is_nan())

    def take(self, values: Value) -> None:
        streams = values.streams()
        self.top.set(larger(self.top.get(), paired(streams, larger)))
        pairs = zip(streams[::2], streams[1::2] or streams, strict=True)
        found = [first.unordered(second) for first, second in pairs]
        self.nan.set(self.nan.get() | paired(found, operator.or_))

    def so_far(self, line: Line) -> Value:
        return line.reduced(self.top.get(), larger)

    def get(self, line: Line) -> Value:
        top = self.so_far(line)
        return line.any(self.nan.get()).choose(math.nan, top).to("f64")


class _Total:
    """A running sum in FLOAT64, of numbers that are FLOAT64 before they are added: so small ones keep their digits beside large ones, and a row has
    the same bits in either way that it is walked, but where sums cancel."""

    def __init__(self, code: Code) -> None:
        self.sum = code.variable(code.constant("f64", 0.0, code.lanes))

    def take(self, values: Value) -> None:
        self.sum.set(self.sum.get() + paired(values.to("f64").streams(), operator.add))

    def scale(self, factor: Value) -> None:
        self.sum.set(self.sum.get() * factor)

    def add(self, other: _Total, factor: Value) -> None:
        self.sum.set(self.sum.get() + other.sum.get() * factor)

    def get(self, line: Line) -> Value:
        return line.reduced(self.sum.get(), operator.add)


class Passes:
    """The passes over lines, being written."""

    def __init__(self, code: Code, schedule: Schedule) -> None:
        self.code, self.schedule = code, schedule
        self.words, self.words64 = (kind(code, lambda lanes: 0.0) for kind in (Words, Words64))
        self._powers: dict[str, Exp] = {}

    def over(self, line: Line) -> None:
        """All of a line."""
        self.known: dict[int, Value] = {}  # FLOAT64, and truth values
        self.numbers: dict[int, Value] = {}  # the same for elements, FLOAT
        self.reciprocals: dict[int, Value] = {}
        self._settle(line, 0, {})
        phases = self.schedule.phases
        for level in sorted({phase.level for phase in phases}):
            self._level(line, level, [phase for phase in phases if phase.level == level])
        for number, node in enumerate(self.schedule.graph.results):
            if "c" not in node.axes:
                line.put(number, self.known[node.index])

    def _settle(self, line: Line, level: int, reduced: Mapping[int, Value]) -> None:
        """Compute what is known of the line after a level."""
        for node in self.schedule.rows:
            if node.level != level:
                continue
            if node.what in REDUCTIONS:
                value = reduced[node.index]
            elif node.what in ("input", "number", "at", "is_counted", "is_inside", "index_of"):
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
                self.numbers[node.index] = value if node.truth else value.to("f32")
                self.reciprocals[node.index] = value
                if node.sums_powers:
                    self.reciprocals[node.index] = (1.0 / value).to("f32")

    def _number(self, node: Node) -> Value:
        """What is computed once a row."""
        operands = [self.known[one.index] for one in node.of]
        if node.what == "log" and node.of[0].sums_powers:
            # Of 1 and more: what is more than 1 has all digits that FLOAT shows, for a third of the time.
            return log1p_32(self.code, (operands[0] - 1.0).to("f32")).to("f64")
        if node.what in OPERATORS or node.what in Words64.WIDE:
            return self._computed(self.words64, node, operands)
        return self._computed(self.words, node, [one.to("f32") for one in operands]).to("f64")

    def _computed(self, words: Words, node: Node, operands: list[Value]) -> Value:
        terms = [words.term(operand) for operand in operands]
        operation = OPERATORS.get(node.what) or getattr(words, node.what)
        value: Value = operation(*terms)
        return value

    def _level(self, line: Line, level: int, phases: list[Phase]) -> None:
        code = self.code
        running: dict[int, _Largest | _Total] = {}
        for phase in phases:
            for node in phase.reductions:
                running[node.index] = (_Total if node.what == "total" else _Largest)(code)
        tops = {n.online.index: n.online for p in phases if p.online for n in p.reductions if n.online is not None}  # fmt: skip
        before: dict[int, Variable] = {}
        for index in tops:
            lowest = running[index].so_far(line)  # type: ignore[union-attr]
            before[index] = code.variable(lowest)

        def block(number: Value, count: Value) -> None:
            for phase in phases:
                if phase.online:
                    self._raise(line, phase, number, running, before)
                self._phase(line, phase, count, running)

        line.blocks(phases, block)
        reduced = {index: each.get(line) for index, each in running.items()}
        for phase in phases:
            for node in phase.reductions:
                if node.online is not None:
                    # Powers of an infinite largest are none.
                    top = reduced[node.online.index]
                    reduced[node.index] = reduced[node.index] + (top - top)
        self._settle(line, level, reduced)

    def _raise(
        self, line: Line, phase: Phase, number: Value, running: Mapping[int, Any], before: Mapping[int, Variable]
    ) -> None:  # fmt: skip
        """Have the largest so far for the powers of a block, and what was summed before as if it had been that."""
        code = self.code
        for index, variable in before.items():
            top = running[index].so_far(line)
            with code.when(number > 0):
                old = variable.get().to("f64")
                factor = power64(code, old - top.to("f64"))
                factor = (old == -math.inf).choose(0.0, factor)
                rescaled = [n for n in phase.reductions if n.online is not None and n.online.index == index]  # fmt: skip
                for node in rescaled:
                    if (
                        not node.sums_powers
                    ):  # those that the powers' total has not been rescaled for
                        fall = (old == -math.inf).choose(0.0, old - top.to("f64"))
                        running[node.index].add(running[node.of[1].index], fall)
                for node in rescaled:
                    running[node.index].scale(factor)
            variable.set(top)
            # A block of minus infinity alone adds nothing, if there are others.
            self.numbers[index] = (line.several & (top == -math.inf)).choose(0.0, top)

    def _phase(self, line: Line, phase: Phase, count: Value, running: Mapping[int, Any]) -> None:
        if not phase.uses:
            self._loop(line, phase, count, running, ())
            return
        with self.code.either(line.several) as (several, alone):
            with several:
                self._loop(line, phase, count, running, ())
            with alone:
                self._loop(line, phase, count, running, phase.uses)

    def _loop(
        self, line: Line, phase: Phase, count: Value, running: Mapping[int, Any], uses: tuple[Node, ...]
    ) -> None:  # fmt: skip
        def leaves(index: Value, shape: Shape) -> dict[int, Value]:
            """What is loaded."""
            known = {node.index: line.kept(node.index, index, shape) for node in uses}
            for node in self.schedule.reached(phase.roots, uses):
                if node.what == "input" and node.index not in known:
                    known[node.index] = line.load(node, index, shape)
            return known

        def body(
            shape: Shape, index: Value, mask: Value | None, loaded: dict[int, Value] | None
        ) -> None:
            known = dict(leaves(index, shape) if loaded is None else loaded)
            for node in phase.reductions:
                values = _filled(self._element(line, node.of[0], known, index, shape), shape)
                if mask is not None and node.what == "total":
                    values = mask.choose(values, 0.0)
                running[node.index].take(values)
            results = [(k, self._element(line, node, known, index, shape)) for k, node in phase.writes]  # fmt: skip
            for node in phase.saves:
                line.keep(node.index, index, known[node.index])
            for number, values in results:
                line.write(number, index, _filled(values, shape))

        line.each(count, phase, body, leaves)

    def _power(self, span: str) -> Exp:
        if span not in self._powers:
            with self.code.once():  # its constants lie ready before the loops
                self._powers[span] = Exp(self.code, None, span)
        return self._powers[span]

    def _element(
        self, line: Line, node: Node, known: dict[int, Value], index: Value, shape: Shape
    ) -> Value:
        """A value of some classes."""
        if "c" not in node.axes:
            return self.numbers[node.index]
        if node.index not in known:
            if node.what == "is_target":
                value = line.is_target(node.of[0], index, shape)
            else:
                operands = [self._element(line, one, known, index, shape) for one in node.of]
                if node.what == "rounded":
                    value = line.rounded(operands[0])
                elif is_reciprocal(node):
                    value = operands[0] * self.reciprocals[node.of[1].index]
                elif node.what == "exp" and len(operands) == 1:
                    value = self._power("negative" if is_power_of_largest(node) else "full")(operands[0])  # fmt: skip
                else:
                    value = self._computed(self.words, node, operands)
            known[node.index] = value
        return known[node.index]


def _filled(values: Value, shape: Shape) -> Value:
    """Of what is the same for some classes: one for each."""
    wide = values if values.lanes else values.splat(shape.lanes)
    return wide if len(wide.parts) == shape.streams else wide.join([wide] * shape.streams)
