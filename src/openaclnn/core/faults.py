"""What is wrong with a declaration, told when it is registered: each fault says where it stands, what is expected, what is there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

from openaclnn.core.interface import REQUIRED, Interface, Kind, Parameter
from openaclnn.core.outcome import Check
from openaclnn.core.products import FAMILIES

__all__ = ["faults"]

_FORMULAS = ".engines.formulas."
TAGS = frozenset(family.tag for family in FAMILIES)


def faults(
    operator: Interface,
    checks: Any,
    reference: Callable[..., Any],
    samples: Sequence[Any],
    plan: Callable[..., Any],
) -> list[str]:
    """All that is wrong, in the declaration's order; but of what says names only where the names are known to be right."""
    if wrong := [*_of_parts(operator, checks)]:
        return wrong
    if wrong := [*_of_names(operator, reference), *_of_parameters(operator)]:
        return wrong
    named = _of_checks(operator, checks), _of_reference(operator, reference)
    return [*itertools.chain(*named, _of_samples(operator, samples), _of_plan(plan))]


def _of_parts(operator: Interface, checks: Any) -> Iterator[str]:
    for what, parts, kind in (
        ("parameters", operator.parameters, Parameter),
        ("checks", checks, Check),
    ):
        if not isinstance(parts, tuple):
            yield f"{what}: expected a tuple, got {type(parts).__name__}"
            continue
        for number, part in enumerate(parts):
            if not isinstance(part, kind):
                yield f"{what}[{number}]: expected a {kind.__name__}, got {part!r}"


def _of_names(operator: Interface, reference: Callable[..., Any]) -> Iterator[str]:
    if not operator.name.startswith("aclnn"):
        yield f"name: expected aclnn in front, got {operator.name}"
    file = reference.__module__.rpartition(".")[2]
    if file != operator.python_name:  # by which its workloads are found
        yield f"file: expected {operator.python_name}.py, which has its reference, got {file}.py"
    if operator.families - TAGS:
        strange = ", ".join(sorted(operator.families - TAGS))
        yield f"families: expected some of {', '.join(sorted(TAGS))}, got {strange}"


def _of_parameters(operator: Interface) -> Iterator[str]:
    seen: set[str] = set()
    for own in operator.parameters:
        where = f"parameter {own.name}"
        if own.name in seen:
            yield f"{where}: expected once, got twice"
        seen.add(own.name)
        if not isinstance(own.kind, Kind):
            yield f"{where}: kind: expected a Kind, got {own.kind!r}"
        elif own.is_tensor and not own.dtypes:
            yield f"{where}: dtypes: expected those that its document lists, got none"
        if own.choices and own.default is not REQUIRED and own.default not in own.choices:
            yield f"{where}: default: expected one of {', '.join(own.choices)}, got {own.default!r}"
    if not any(own.kind is Kind.OUTPUT for own in operator.parameters):
        yield "parameters: expected a Kind.OUTPUT among them, got none"


def _of_checks(operator: Interface, checks: tuple[Check, ...]) -> Iterator[str]:
    known = {"workspaceSize", "executor", *operator.places}
    for check in checks:
        for name in check.names:
            if name not in known:
                places = ", ".join(operator.places)
                yield f"check {check.row} ({check.rule}): expected one of {places}, got {name}"


def _of_plan(plan: Any) -> Iterator[str]:
    """What a plan takes of the formulas' room gives the kernel its name: a function that was left as it is has none."""
    for name in plan.__code__.co_names if isinstance(plan, FunctionType) else ():
        own = plan.__globals__.get(name)
        if isinstance(own, FunctionType) and _FORMULAS in own.__module__:
            yield f"plan: {name} is no formula: @formula is missing"


def _plain_names(operator: Interface) -> dict[str, Any]:
    """The plain call's arguments but `out`, with their defaults."""
    return {name: own for name, own in operator.plain_defaults.items() if name != "out"}


def _of_reference(operator: Interface, reference: Any) -> Iterator[str]:
    code = reference.__code__
    taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    wanted = (*_plain_names(operator), "work")
    if {*taken} != {*wanted}:
        yield f"reference: expected the arguments {', '.join(wanted)}, got {', '.join(taken)}"


def _of_samples(operator: Interface, samples: Any) -> Iterator[str]:
    if not isinstance(samples, tuple) or not samples:
        yield f"samples: expected a tuple of at least one, the document's own first, got {samples!r}"
        return
    names = _plain_names(operator)
    required = {name for name, default in names.items() if default is REQUIRED}
    for sample in samples:
        given = sample.arguments.keys()
        for name in given - names.keys():
            yield f"sample {sample.title!r}: expected some of {', '.join(names)}, got {name}"
        for name in sorted(required - given):
            yield f"sample {sample.title!r}: expected {name}, got {', '.join(given)}"
