"""The site's operator pages, one an operator in English and one in Chinese, made from the declarations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import openaclnn
from openaclnn.core.declare import Operator, Sample
from openaclnn.core.interface import REQUIRED, Kind, Parameter
from openaclnn.core.products import PRODUCTS
from openaclnn.core.status import Status
from openaclnn.explorer.chinese import chinese, chinese_formula
from openaclnn.testing.programs import example_of

__all__ = ["index_page", "operator_page"]

Say = Callable[[str], str]


def operator_page(operator: Operator, zh: bool = False) -> str:
    """An operator's page: formula, prototypes, parameters, products, checks, examples."""
    say = chinese if zh else str
    formula = chinese_formula(operator) if zh else operator.formula
    prototypes = ";\n\n".join(map(_wrapped, operator.prototypes())) + ";"
    parts = [
        f"# {operator.name}\n\n{say(operator.summary)}",
        f"## {say('Formula')}\n\n{_block('text', formula)}",
        f"## {say('Prototypes')}\n\n{_block('c', prototypes)}",
        f"- {say('C header')}: `{operator.header}`\n- {say('Python')}: `openaclnn.{operator.signature()}`",
        f"## {say('Parameters')}\n\n{_parameters(operator, say)}",
        f"## {say('Products')}\n\n{_products(operator, say)}",
        f"## {say('Checks, in order')}\n\n"
        + say("The first rule that a call breaks decides the status of phase one."),
        _checks(operator, say),
        f"## {say('Examples')}",
        *(f"### {say(sample.title)}\n\n{_example(operator, sample)}" for sample in operator.samples),
        _folded(say("The same in two phases"), "python", example_of(operator, "python")),
        _folded(say("The same in C++"), "cpp", example_of(operator, "c++")),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def index_page(operators: Iterable[Operator], zh: bool = False) -> str:
    """The list of all operators."""
    say = chinese if zh else str
    lines = [
        (f"[{each.name}]({each.python_name}.md)", f"`{each.python_name}`", say(each.summary))
        for each in operators
    ]
    table = _table([say("operator"), say("in Python"), say("what it computes")], lines)
    said = (
        "All operators of the interface that are here, each with a page made from its declaration."
    )
    return f"# {say('Operators')}\n\n{say(said)}\n\n{table}\n"


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _folded(title: str, language: str, text: str) -> str:
    inside = "\n".join(f"    {line}".rstrip() for line in _block(language, text).splitlines())
    return f'??? example "{title}"\n\n{inside}'


def _wrapped(prototype: str) -> str:
    """A parameter a line."""
    head, _, rest = prototype.partition("(")
    inside = ",\n    ".join(rest.removesuffix(")").split(", "))
    return f"{head}(\n    {inside})"


def _table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [headings, ["---"] * len(headings), *lines]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows
    )


def _parameters(operator: Operator, say: Say) -> str:
    headings = ("parameter", "in Python", "C type", "in or out", "what it is", "shape", "dtypes", "default")  # fmt: skip
    lines = [
        (
            f"`{p.name}`", f"`{p.python_name}`", f"`{p.declaration.removesuffix(p.name).strip()}`",
            _direction(p, say), say(p.text), say(p.shape) if p.shape else "",
            ", ".join(dtype.name for dtype in p.dtypes),
            "" if p.default is REQUIRED or p.kind is Kind.OUTPUT else f"`{p.default!r}`",
        )
        for p in operator.parameters
    ]  # fmt: skip
    return _table([say(heading) for heading in headings], lines)


def _direction(parameter: Parameter, say: Say) -> str:
    if getattr(parameter, "in_place", False):
        return say("input and output")
    direction = say("output" if parameter.kind is Kind.OUTPUT else "input")
    return f"{direction}, {say('optional')}" if parameter.optional else direction


def _products(operator: Operator, say: Say) -> str:
    lines = [
        (
            f"`{product.tag}`",
            say(product.title),
            ", ".join(d.name for d in operator.dtypes_on(product)) or say("not supported"),
        )
        for product in PRODUCTS
    ]
    return _table([say("product"), say("name"), say("dtypes")], lines)


def _checks(operator: Operator, say: Say) -> str:
    lines = [
        (each.number, f"{int(each.status)} `{Status(each.status).name}`", say(each.rule))
        for each in operator.checks
    ]
    return _table([say("row"), say("status"), say("rule")], lines)


def _example(operator: Operator, sample: Sample) -> str:
    """The plain call of a sample and what it gives, as the interpreter shows it."""
    given = ",\n...     ".join(
        f"{name}={_literal(value)}" for name, value in sample.arguments.items()
    )
    with np.printoptions(precision=8):
        result = repr(getattr(openaclnn, operator.python_name)(**sample.arrays()))
    call = f">>> openaclnn.{operator.python_name}(\n...     {given},\n... )"
    return _block("pycon", f">>> import numpy as np, openaclnn\n{call}\n{result}")


def _literal(value: Any) -> str:
    """As a program writes it: infinities and NaN have NumPy's names."""
    if isinstance(value, tuple):
        return f"np.array({_literal(value[1])}, np.{np.dtype(value[0].numpy).name})"
    text = repr(value)
    return text if isinstance(value, str) else re.sub(r"\b(inf|nan)\b", r"np.\1", text)
