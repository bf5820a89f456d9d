"""Row formulas: what becomes of one row of classes, written once for every engine.

A row formula is a Python function of rows (`Row`), numbers a class (`PerClass`), numbers a row (`PerRow`) and class indices
(`Target`), with the operators and words of elementwise formulas and a few of its own: `total`, `average`, `largest` and `log_sum_exp` over the classes,
`at(x, target)`, the value at the target's class, `is_target(target)`, a comparison for each class, `is_counted(target)`, and `rounded(x)`, to the dtype that
is computed in. Where a row has some of all classes, from a plan's `first_class` on, targets are told by `is_inside(target)` and `index_of(target)`. It returns a row, a number for the row, or several
of these, and says nothing of layouts, lanes, tiles or loops. What not all engines have is refused at import, with its line and what to write instead.

Calling it once with symbols gives its `Graph`: values, the same computation once, each behind those it needs. A value has a level:
how many passes over the row must end before it is known. A reduction's is one more than its operand's, except the totals
of p = exp(x - largest(x)) and of p * maximum(x - largest(x), a constant), which have the level of largest(x): one pass can keep all and rescale. Engines walk
the graph: NumPy computes value by value, the others write a loop a level, or hold the row in registers and write none.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from openaclnn.engines.formulas.language import Reader, definitions, is_of_the_package, tried
from openaclnn.engines.formulas.words import WORDS, Value, check_count

Row = PerClass = PerRow = Target = Value
"""What an operand is: a number for each row and class, for each class, for each row; the index of a row's class."""

ROLES = {"Row": "full", "PerClass": "classes", "PerRow": "positions", "Target": "positions"}
"""The role of each kind of operand in a plan."""

REDUCTIONS = ("total", "largest")
ROW_WORDS: dict[str, Callable[..., Any]] = {}


def _row_word(function: Callable[..., Any]) -> Callable[..., Any]:
    name = function.__name__

    @functools.wraps(function)
    def word(*operands: Value) -> Value:
        function(*operands)  # the number of operands
        for operand in operands:
            if isinstance(operand, Node):
                return getattr(operand.graph, name)(*operands)
        raise TypeError(f"`{name}` is a word of row formulas: it takes their values")

    ROW_WORDS[name] = word
    return word


@_row_word
def total(x: Value) -> Value:
    """The sum over the classes."""


@_row_word
def average(x: Value) -> Value:
    """The mean over the classes."""


@_row_word
def rounded(x: Value) -> Value:
    """What differs between classes, as the dtype that is computed in holds it."""


@_row_word
def largest(x: Value) -> Value:
    """The largest over the classes; NaN where one is."""


@_row_word
def log_sum_exp(x: Value) -> Value:
    """The logarithm of the sum of exp(x) over the classes, which no large x overflows; NaN where the largest is infinite."""


@_row_word
def at(x: Value, target: Value) -> Value:
    """The value at the target's class; 0 where that is none of the row's."""


@_row_word
def is_target(target: Value) -> Value:
    """For each class, whether it is the target's."""


@_row_word
def is_counted(target: Value) -> Value:
    """For each row, whether its target is one of its classes, and not the one that is ignored."""


@_row_word
def is_inside(target: Value) -> Value:
    """For each row, whether its target is one of its classes, which are counted from the plan's first one on; others are no mistake."""


@_row_word
def index_of(target: Value) -> Value:
    """For each row, which of its classes is the target's; 0 where none is."""


def _sign(sign: str, turned: bool = False) -> Callable[[Node, Any], Node]:
    """Python's operator on a value and what stands beside it, before it if they are `turned`."""

    def operator(self: Node, other: Any) -> Node:
        return self.graph.operator(sign, other, self) if turned else self.graph.operator(sign, self, other)  # fmt: skip

    return operator


@dataclass(eq=False, slots=True)
class Node:
    """One value of a graph."""

    graph: Graph
    index: int
    what: str  # "input", "number", "constant", "classes", "rounded", an operator's sign, a word, a reduction, or one of targets
    of: tuple[Node, ...]
    name: Any  # of an input or a number; a constant's value
    axes: str  # "rc": differs between rows and classes; "r", "c", ""
    level: int
    truth: bool  # a comparison
    kind: str = ""  # of an input: "Row", "PerClass", "PerRow", "Target"
    online: Node | None = None  # of totals that are rescaled when largest(a) grows: largest(a)

    __hash__ = object.__hash__
    __array_ufunc__ = None  # NumPy's functions refuse it

    @property
    def words(self) -> Graph:
        return self.graph

    @property
    def sums_powers(self) -> bool:
        """Whether it is total(exp(a - largest(a))), which lies between 1 and the number of classes, or is NaN."""
        return self.online is not None and len(self.of) == 1

    __add__, __radd__ = _sign("+"), _sign("+", turned=True)
    __sub__, __rsub__ = _sign("-"), _sign("-", turned=True)
    __mul__, __rmul__ = _sign("*"), _sign("*", turned=True)
    __truediv__, __rtruediv__ = _sign("/"), _sign("/", turned=True)
    __lt__, __le__, __gt__, __ge__ = map(_sign, ("<", "<=", ">", ">="))
    __and__, __or__ = _sign("&"), _sign("|")
    __eq__ = _sign("==")  # type: ignore[assignment]
    __ne__ = _sign("!=")  # type: ignore[assignment]

    def __neg__(self) -> Node:
        return self.graph.word("neg", self)

    def __invert__(self) -> Node:
        return self.graph.word("~", self)

    def __bool__(self) -> NoReturn:
        raise TypeError("a formula has no decision by its values (write `where`)")

    # What would pass unseen where there is no source to read.
    def __iadd__(self, other: Any) -> NoReturn:
        raise TypeError("a formula has no assignment that changes a value in place")

    __isub__ = __imul__ = __itruediv__ = __iand__ = __ior__ = __iadd__


COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


@dataclass(eq=False)
class Graph:
    """The values of a formula, in an order in which each stands behind those it needs."""

    nodes: list[Node] = field(default_factory=list)
    results: tuple[Node, ...] = ()
    _known: dict[tuple[Any, ...], Node] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Callable[..., Node]:
        if name not in WORDS:
            raise AttributeError(f"a formula's values have no `{name}`")
        return functools.partial(self.word, name)

    def node(
        self, what: str, of: tuple[Node, ...] = (), name: Any = None, kind: str = "", **more: Any
    ) -> Node:
        """The value, once for the same computation."""
        key = (what, *[each.index for each in of], repr(name), kind)
        if key not in self._known:
            seen = "".join([each.axes for each in of])
            axes, level = "r" * ("r" in seen) + "c" * ("c" in seen), max([0, *[each.level for each in of]])  # fmt: skip
            attributes = {"axes": axes, "level": level, "truth": False, "kind": kind, **more}
            self._known[key] = Node(self, len(self.nodes), what, of, name, **attributes)
            self.nodes.append(self._known[key])
        return self._known[key]

    def value(self, operand: Any, truth: bool = False) -> Node:
        """An operand as a value, which is no comparison unless that is asked for."""
        if isinstance(operand, (int, float)) and not isinstance(operand, bool):
            operand = self.node("constant", name=float(operand))
        if not isinstance(operand, Node) or operand.graph is not self:
            raise TypeError(f"a formula computes with values and numbers, not {operand!r}")
        if operand.kind == "Target":
            raise TypeError(f"{operand.name} is a class index: write `is_target` or `at`")
        if operand.truth and not truth:
            raise TypeError(
                "a formula has no number that is a comparison (write `where(x > y, 1.0, 0.0)`)"
            )
        if truth and not operand.truth:
            raise TypeError("a formula has `&`, `|` and `~` for comparisons alone, in parentheses")
        return operand

    def operator(self, sign: str, left: Any, right: Any) -> Node:
        logical = sign in "&|"
        pair = self.value(left, logical), self.value(right, logical)
        return self.node(sign, pair, truth=logical or sign in COMPARISONS)

    def word(self, name: str, *operands: Any) -> Node:
        if name in WORDS:  # "neg" and "~" are signs
            check_count(name, operands)
        if name == "~":
            return self.node(name, (self.value(operands[0], truth=True),), truth=True)
        if name == "where":
            condition, *values = operands
            if not (isinstance(condition, Node) and condition.truth):
                raise TypeError("a formula chooses by a comparison: `where(x > y, ...)`")
            return self.node(name, (condition, *map(self.value, values)))
        return self.node(name, tuple(map(self.value, operands)))

    def _reduction(self, name: str, x: Any) -> Node:
        operand = self.value(x)
        online = _rescaled_by(operand) if name == "total" else None
        of: tuple[Node, ...] = (operand,)
        if online is None and name == "total" and _is_weighted(operand):
            # Where the largest grows by d, each x - largest(x) falls by it: what was summed does by d times the powers' total.
            online = _rescaled_by(operand.of[0])
            of = operand, self.total(operand.of[0])
        level = operand.level + (online is None)
        axes = operand.axes.replace("c", "")
        return self.node(name, of, axes=axes, level=level, online=online)

    def total(self, x: Any) -> Node:
        return self._reduction("total", x)

    def average(self, x: Any) -> Node:
        return self.total(x) / self.node("classes", axes="", level=0)

    def rounded(self, x: Any) -> Node:
        operand = self.value(x)
        if "c" not in operand.axes:
            raise TypeError("`rounded` is of what differs between classes")
        return self.node("rounded", (operand,))

    def largest(self, x: Any) -> Node:
        return self._reduction("largest", x)

    def log_sum_exp(self, x: Any) -> Node:
        top = self.largest(x)
        return top + self.word("log", self.total(self.word("exp", self.value(x) - top)))

    def is_target(self, target: Any) -> Node:
        return self.node("is_target", (_target(target),), axes="rc", truth=True)

    def is_counted(self, target: Any) -> Node:
        return self.node("is_counted", (_target(target),), axes="r", truth=True)

    def is_inside(self, target: Any) -> Node:
        return self.node("is_inside", (_target(target),), axes="r", truth=True)

    def index_of(self, target: Any) -> Node:
        return self.node("index_of", (_target(target),), axes="r")

    def at(self, x: Any, target: Any) -> Node:
        """Of an operand it is loaded, at any time."""
        operand = self.value(x)
        if operand.kind in ("Row", "PerClass"):
            return self.node("at", (operand, _target(target)), axes="r")
        return self.total(self.word("where", self.is_target(target), operand, 0.0))

    @property
    def levels(self) -> int:
        return max(node.level for node in self.nodes)

    def needed(self, nodes: tuple[Node, ...], axis: str = "") -> list[Node]:
        """These values and those that they need, in order; with an axis, as far as they differ along it."""
        seen: set[int] = set()
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node.index not in seen and axis in node.axes:
                seen.add(node.index)
                waiting += node.of
        return [self.nodes[index] for index in sorted(seen)]


def _target(target: Any) -> Node:
    if not isinstance(target, Node) or target.kind != "Target":
        raise TypeError(
            "`at`, `is_target` and words like them take an operand that is declared `Target`"
        )
    return target


def _rescaled_by(operand: Node) -> Node | None:
    """Of exp(a - largest(a)): largest(a)."""
    if operand.what == "exp" and operand.of[0].what == "-":
        a, top = operand.of[0].of
        if top.what == "largest" and top.of[0] is a:
            return top
    return None


def _is_weighted(operand: Node) -> bool:
    """Whether it is exp(a - largest(a)) * maximum(a - largest(a), a constant)."""
    if operand.what != "*" or _rescaled_by(operand.of[0]) is None:
        return False
    power, factor = operand.of
    below, constant = factor.of if factor.what == "maximum" else (None, None)
    return below is power.of[0] and constant is not None and constant.what == "constant"


class RowReader(Reader):
    """The language of row formulas: that of elementwise ones, and more words."""

    words = WORDS | ROW_WORDS


class RowFormula(NamedTuple):
    """A row formula by its kernel's name, and what it takes."""

    name: str
    function: Callable[..., Any]
    operands: tuple[tuple[str, str], ...]  # name and kind of each input of the plan, in its order
    numbers: tuple[str, ...]  # FLOATs, known when the kernel runs
    switches: tuple[str, ...]  # truth values, known when its code is written

    def graph(self, plan_numbers: Mapping[str, Any]) -> Graph:
        """Its values, for the switches among a plan's numbers."""
        self.check_numbers(self.switches, plan_numbers)
        return _traced(self, tuple(bool(plan_numbers[name]) for name in self.switches))

    def check_numbers(self, names: Sequence[str], plan_numbers: Mapping[str, Any]) -> None:
        for name in names:
            if name not in plan_numbers:
                known = ", ".join(plan_numbers) or "none"
                raise TypeError(
                    f"the row formula {self.name} takes {name}: the plan's numbers are {known}"
                )

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(ROLES[kind] for _, kind in self.operands)

    @property
    def targets(self) -> tuple[str, ...]:
        """What kernels are told of class indices, if it has some: which one is ignored, or which one is a row's first."""
        if all(kind != "Target" for _, kind in self.operands):
            return ()
        graph = self.graph(dict.fromkeys(self.switches, False))
        parted = any(node.what in ("is_inside", "index_of") for node in graph.nodes)
        return ("first_class",) if parted else ("ignore_index",)


AXES = {"Row": "rc", "PerClass": "c", "PerRow": "r", "Target": "r"}


def traced(
    function: Callable[..., Any], operands: Sequence[tuple[str, str]], numbers: Sequence[str], switches: Mapping[str, bool],
) -> Graph:  # fmt: skip
    """What a function computes of operands by name and kind: elementwise formulas are such functions, too."""
    graph = Graph()
    inputs = [graph.node("input", name=name, kind=kind, axes=AXES[kind]) for name, kind in operands]
    named = {name: graph.node("number", name=name) for name in numbers}
    with tried(function):
        results = function(*inputs, **named, **switches)
        results = results if isinstance(results, tuple) else (results,)
        graph.results = tuple(graph.value(result) for result in results)
    return graph


def count_results(function: Callable[..., Any], graphs: Iterable[Graph]) -> int:
    """How many results it has, for which its switches are tried both ways."""
    counts = {len(graph.results) for graph in graphs}
    with tried(function):
        if len(counts) > 1:
            raise TypeError("a formula returns as many results, whatever its switches")
    return counts.pop()


@functools.cache
def _traced(formula: RowFormula, switches: tuple[bool, ...]) -> Graph:
    chosen = dict(zip(formula.switches, switches, strict=True))
    graph = traced(formula.function, formula.operands, formula.numbers, chosen)
    with tried(formula.function):
        if not all("r" in result.axes for result in graph.results):
            raise TypeError("a row formula returns no value that is the same for every row")
    return graph


ROW_FORMULAS: dict[str, RowFormula] = {}
"""Every row formula by the name of its kernel."""


def described(function: Callable[..., Any]) -> RowFormula:
    """What a function takes, by its annotations. Its source is read, and it is tried out both ways of each switch; of the package's functions a test does that, which
    would take 40 ms of a process's first loss, and they are tried here without any switch and with all.
    """
    operands: list[tuple[str, str]] = []
    options: dict[str, list[str]] = {"float": [], "bool": []}
    with tried(function):
        for parameter in inspect.signature(function).parameters.values():
            kind = getattr(parameter.annotation, "__name__", str(parameter.annotation))
            keyword = parameter.kind is parameter.KEYWORD_ONLY
            if keyword and kind in options:
                options[kind].append(parameter.name)
            elif not keyword and kind in ROLES:
                operands.append((parameter.name, kind))
            else:
                expected = "a float or a bool" if keyword else f"one of {', '.join(ROLES)}"
                told = f"{parameter.name}: expected {expected}, got {kind}"
                if parameter.annotation is Row:  # evaluated: all of them are one
                    told += " (its file has to begin with `from __future__ import annotations`)"
                raise TypeError(told)
        if "Row" not in dict(operands).values() and inspect.signature(function).return_annotation != "Row":  # fmt: skip
            raise TypeError("expected a Row among its operands")
    formula = RowFormula(
        function.__name__, function, tuple(operands), tuple(options["float"]), tuple(options["bool"])
    )  # fmt: skip
    if not is_of_the_package(function):
        check(formula)
        return formula
    try:
        extremes = ((each,) * len(formula.switches) for each in (False, True))
        count_results(function, (_traced(formula, switches) for switches in extremes))
    except TypeError:
        check(formula)  # which says what to write instead
        raise
    return formula


def check(formula: RowFormula) -> None:
    """TypeError says where the source leaves the language, or what is wrong on some way of the switches."""
    with contextlib.suppress(OSError):  # there is no source, as in some packed applications
        definitions(formula.function, RowReader)
    ways = itertools.product((False, True), repeat=len(formula.switches))
    count_results(formula.function, (_traced(formula, switches) for switches in ways))


def row_formula(function: Callable[..., Any]) -> RowFormula:
    """Make a function the row formula of the kernel of its name."""
    formula = described(function)
    known = ROW_FORMULAS.setdefault(formula.name, formula)
    if known.function.__module__ != function.__module__:
        raise ValueError(f"{formula.name} is a row formula of {known.function.__module__} already")
    ROW_FORMULAS[formula.name] = formula
    return formula
