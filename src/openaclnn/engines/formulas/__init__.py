"""Elementwise formulas, each written once: the NumPy engine calls it, the CPU engine calls it with vectors that
write code, the GPU engine compiles its source.

A formula is a Python function of values and numbers, with one result or a tuple of several. It computes in FLOAT, with ordinary operators and the words
of `words.py`, and says nothing of dtypes, strides, lanes or blocks: those belong to the engines.
Operators import their formula from here; that import makes it known to the engines, and refuses what not all of them have:
`language.py` reads the source. `rows.py` has row formulas, which reduce over a class axis, and calls formulas of both kinds with symbols. `special.py` has
what NumPy lacks for the words. The other files are the formulas.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from openaclnn.engines.formulas.language import (
    Reader,
    definitions,
    functions_of,
    is_of_the_package,
    tried,
)
from openaclnn.engines.formulas.rows import ROW_WORDS, Graph, count_results, traced
from openaclnn.engines.formulas.words import WORDS

__all__ = ["FORMULAS", "Formula", "formula", "without"]


class Formula(NamedTuple):
    """A formula by its kernel's name, and what it takes."""

    name: str
    function: Callable[..., Any]
    values: tuple[str, ...]  # one for each input of the plan, in its order
    numbers: tuple[str, ...]  # FLOATs, known when the kernel runs
    switches: tuple[str, ...]  # truth values, known when its code is written
    results: int = 1  # one for each output of the plan

    def numbers_of(self, plan_numbers: Mapping[str, Any]) -> dict[str, float]:
        """Of a plan's numbers, those that the formula takes."""
        return {name: float(self._given(name, plan_numbers)) for name in self.numbers}

    def switches_of(self, plan_numbers: Mapping[str, Any]) -> dict[str, bool]:
        """Of a plan's numbers, those that select code."""
        return {name: bool(self._given(name, plan_numbers)) for name in self.switches}

    def _given(self, name: str, plan_numbers: Mapping[str, Any]) -> Any:
        if name not in plan_numbers:
            known = ", ".join(plan_numbers) or "none"
            raise TypeError(f"the formula {self.name} takes {name}: the plan's numbers are {known}")
        return plan_numbers[name]

    def words(self, switches: Mapping[str, bool]) -> frozenset[str]:
        """The words on the way that these switches choose: engines choose their loops by them."""
        graph = _traced(self.function, self.values, self.numbers, switches)
        return frozenset(node.what for node in graph.nodes if node.what in WORDS)


FORMULAS: dict[str, Formula] = {}
"""Every formula by the name of its kernel."""


def read(function: Callable[..., Any]) -> None:
    """TypeError says where the source leaves the language."""
    with contextlib.suppress(OSError):  # there is no source, as in some packed applications
        definitions(function, Reader)


def _traced(
    function: Callable[..., Any], values: Sequence[str], numbers: Sequence[str], switches: Mapping[str, bool]
) -> Graph:  # fmt: skip
    """Its values on the way that these switches choose; TypeError where it says what no formula may."""
    graph = traced(function, [(value, "Row") for value in values], numbers, switches)
    with tried(function):
        for node in graph.nodes:
            if node.what in ROW_WORDS:
                raise TypeError(f"this is no row formula: it has no `{node.what}`")
        if not all(result.axes for result in graph.results):
            raise TypeError("a formula returns no number that is the same for every element")
    return graph


def described(function: Callable[..., Any]) -> Formula:
    """What a function takes, by its signature: positional values; keywords `float` or `bool`. Its source is read, and it is tried
    out both ways of each switch.
    """
    kinds: dict[str, list[str]] = {"values": [], "float": [], "bool": []}
    with tried(function):
        for parameter in inspect.signature(function).parameters.values():
            keyword = parameter.kind is parameter.KEYWORD_ONLY
            kind = getattr(parameter.annotation, "__name__", str(parameter.annotation))
            if keyword and kind not in ("float", "bool"):
                raise TypeError(f"{parameter.name} must be a float or a bool")
            if not keyword and kind in kinds:
                raise TypeError(f"{parameter.name}, a {kind}, must stand behind `*`")
            kinds[kind if keyword else "values"].append(parameter.name)
    values, numbers, switches = (tuple(names) for names in kinds.values())
    if not is_of_the_package(function):
        read(function)  # a test reads the others, which would take 50 ms of an import
    try:
        ways = itertools.product((False, True), repeat=len(switches))
        chosen = [dict(zip(switches, way, strict=True)) for way in ways]
        graphs = (_traced(function, values, numbers, each) for each in chosen)
        results = count_results(function, graphs)
    except TypeError:
        read(function)  # which says what to write instead
        raise
    return Formula(function.__name__, function, values, numbers, switches, results)


def formula(function: Callable[..., Any]) -> Formula:
    """Make a function the formula of the kernel of its name."""
    new = described(function)
    known = FORMULAS.setdefault(new.name, new)
    if known.function.__module__ != function.__module__:
        raise ValueError(f"{new.name} is a formula of {known.function.__module__} already")
    FORMULAS[new.name] = new
    return new


def without(complete: Formula, *absent: str) -> Formula:
    """The formula of a call that leaves some values out, each of which is 1 then."""
    if not absent:
        return complete
    name = f"{complete.name}_without_{'_'.join(absent)}"
    if name not in FORMULAS:
        values = [value for value in complete.values if value not in absent]
        options = [f"{name}: float" for name in complete.numbers]
        options += [f"{name}: bool" for name in complete.switches]
        taken = ["1.0" if value in absent else value for value in complete.values]
        taken += [f"{name}={name}" for name in (*complete.numbers, *complete.switches)]
        head = ", ".join([*values, *(["*", *options] if options else [])])
        text = f"def {name}({head}):\n    return {complete.name}({', '.join(taken)})\n"
        home = complete.function.__module__
        scope = {"__name__": home, "float": float, "bool": bool, complete.name: complete.function}
        (function,) = functions_of(text, scope)
        formula(function)
    return FORMULAS[name]
