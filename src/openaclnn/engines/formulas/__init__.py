"""Elementwise formulas, each written once: the NumPy engine calls it, the CPU engine calls it with vectors that
write code, the GPU engine compiles its source.

A formula is a Python function of values and numbers. It computes in FLOAT, with ordinary operators and the words
of `words.py`, and says nothing of dtypes, strides, lanes or blocks: those belong to the engines.
Operators import their formula from here; that import is what makes it known to the engines.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = ["FORMULAS", "Formula", "formula"]


class Formula(NamedTuple):
    """A formula by its kernel's name, and what it takes."""

    name: str
    function: Callable[..., Any]
    values: tuple[str, ...]  # one for each input of the plan, in its order
    numbers: tuple[str, ...]  # FLOATs, known when the kernel runs
    switches: tuple[str, ...]  # truth values, known when its code is written

    def numbers_of(self, plan_numbers: Mapping[str, Any]) -> dict[str, float]:
        """Of a plan's numbers, those that the formula takes."""
        return {name: float(plan_numbers[name]) for name in self.numbers}

    def switches_of(self, plan_numbers: Mapping[str, Any]) -> dict[str, bool]:
        """Of a plan's numbers, those that select code."""
        return {name: bool(plan_numbers[name]) for name in self.switches}


FORMULAS: dict[str, Formula] = {}
"""Every formula by the name of its kernel."""


def described(function: Callable[..., Any]) -> Formula:
    """What a function takes, by its signature: positional values; keywords `float` or `bool`."""
    kinds: dict[str, list[str]] = {"values": [], "float": [], "bool": []}
    for parameter in inspect.signature(function).parameters.values():
        keyword = parameter.kind is parameter.KEYWORD_ONLY
        kind = str(parameter.annotation) if keyword else "values"
        if kind not in kinds:
            raise TypeError(f"{function.__name__}: {parameter.name} must be a float or a bool")
        kinds[kind].append(parameter.name)
    return Formula(function.__name__, function, *(tuple(own) for own in kinds.values()))


def formula(function: Callable[..., Any]) -> Formula:
    """Make a function the formula of the kernel of its name."""
    made = described(function)
    known = FORMULAS.setdefault(made.name, made)
    if known.function.__module__ != function.__module__:
        raise ValueError(f"{made.name} is a formula of {known.function.__module__} already")
    FORMULAS[made.name] = made
    return made
