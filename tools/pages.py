"""The site's operator pages, one an operator in English and one in Chinese, made from the declarations."""

from __future__ import annotations

import functools
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
    prototypes = ";\n\n".join(map(_wrapped, operator.prototypes())) + ";"
    parts = [
        f"# {operator.name}\n\n{say(operator.summary)}",
        f"## {say('Formula')}\n\n{_typeset(operator, zh)}",
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
    """Which function a reader needs, who has its C name, PyTorch's name or a formula: a table of all with a field that filters it."""
    say = chinese if zh else str
    lines = [
        (
            f"[{each.name}]({each.python_name}.md)<br>`{each.python_name}`",
            _peer(each),
            f"{say(each.summary)}{_typeset(each, zh)}",
        )
        for each in operators
    ]
    label = say("aclnn or PyTorch name, words or part of a formula")
    field = f'<p><input class="filter" type="search" placeholder="{say("name, words, formula")}" aria-label="{label}" hidden> <output></output></p>'
    told = [
        say("All functions that are here: the name in C and in Python, PyTorch's operator of the same arguments with its function and module, and the formula."),
        say("Where PyTorch's has ≈, special values (NaN, infinities, -0) or what overflows may differ from the documents of aclnn."),
    ]  # fmt: skip
    table = _table([say("function"), "PyTorch", say("what it computes")], lines)
    return f"# {say('Which function do I need')}\n\n{' '.join(told)}\n\n{field}\n\n{table}\n"


def _peer(operator: Operator) -> str:
    """PyTorch's operator of the same arguments, that which computes the very same or else nearly; then the function and the module that
    users know, of a gradient too."""
    peer = getattr(operator, "peer", None)
    nearly = f"≈&nbsp;`{peer}`" if isinstance(peer, str) else ""
    names = [f"`{operator.aten}`" if operator.aten else nearly]
    stem = _FORMS.sub("", operator.python_name)
    functions = _functions()
    for name in (stem, _FUNCTIONS.get(stem, "")):
        names += [f"`{shown}`" for shown in functions.get(name, ())]
    return "<br>".join(filter(None, names))


_FORMS = re.compile("^inplace_|(_target)?_(backward|grad)(_v2)?$|_v[23]$|_out$")
_FUNCTIONS = {
    "cross_entropy_loss": "cross_entropy", "nll_loss2d": "nll_loss", "log_sigmoid": "logsigmoid", "log_sigmoid_forward": "logsigmoid",
}  # fmt: skip
"""PyTorch's functions whose operators have other names."""


@functools.cache
def _functions() -> dict[str, list[str]]:
    """The functions of PyTorch's modules, each as users call it, and the modules."""
    try:
        import torch
    except ImportError:
        return {}
    found: dict[str, list[str]] = {}
    for name, module in vars(torch.nn).items():
        used = getattr(getattr(module, "forward", None), "__code__", None)
        if (
            used is not None
            and used.co_names[:1] in (("F",), ("torch",))
            and len(used.co_names) > 1
        ):
            place = used.co_names[0]
            found.setdefault(used.co_names[1], [f"{place}.{used.co_names[1]}"]).append(f"nn.{name}")
    return found


_SIGNS = {"<=": "≤", ">=": "≥", "==": "=", "*": "·", "-": "\N{MINUS SIGN}", "sqrt": "√", "pi": "π"}
_TOKEN = re.compile(
    r"(?P<sign><=|>=|==|(?<= )\*(?= )|(?<= )-(?= )|(?<!\w)-(?=[\w(|])|\b(?:sqrt|pi)\b)"
    r"|\^(?P<power>\w+)|(?P<name>[A-Za-z][A-Za-z0-9]*)(?:_(?P<index>[a-z]+))?(?![\w(-])"
)


def _typeset(operator: Operator, zh: bool) -> str:
    """The formula, a line each, which a narrow page breaks: names of values in italics, powers raised, indices lowered, signs of
    mathematics; what stands apart at the end of a line is the case that it holds for."""
    names = {p.name.removesuffix("Optional") for p in operator.parameters}

    def token(found: re.Match[str]) -> str:
        if found["sign"]:
            return _SIGNS[found["sign"]]
        if found["power"]:
            return f"<sup>{found['power']}</sup>"
        name, index = found["name"], found["index"]
        article = name == "a" and re.match(r" [a-z]{2}", found.string[found.end() :])
        value = name in names or re.match(r"[a-z]+[A-Z]", name) or (len(name) == 1 and not article)
        if not (value or index) or name.startswith("aclnn"):
            return name
        return f"<var>{name}</var>" + (f"<sub>{index}</sub>" if index else "")

    def part(text: str) -> str:
        # Apart from tokens nothing of these is special in HTML but < and >.
        signs = re.sub(r"[<>](?!=)", lambda sign: f"&{'lg'[sign[0] == '>']}t;", text)
        return _TOKEN.sub(token, signs).replace("|", "&#124;")

    lines = (chinese_formula(operator) if zh else operator.formula).splitlines()
    typeset = (
        part(text)
        + "".join(f' <span class="case">{part("; ".join(case))}</span>' for _ in case[:1])
        for text, *case in (re.split(r";? {3,}", line.strip()) for line in lines)
    )
    return "".join(f'<span class="formula">{line}</span>' for line in typeset)


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
    headings = ("parameter", "in Python", "C type", "in or out", "what it is", "shape", "dtypes")
    lines = [
        (
            f"`{p.name}`", f"`{p.python_name}{_default(p)}`", p.declaration.removesuffix(p.name).strip().replace(" *", "&nbsp;\\*"),
            _direction(p, say), say(p.text), say(p.shape) if p.shape else "",
            ", ".join(dtype.name for dtype in p.dtypes),
        )
        for p in operator.parameters
    ]  # fmt: skip
    return _table([say(heading) for heading in headings], lines)


def _default(parameter: Parameter) -> str:
    if parameter.default is REQUIRED or parameter.kind is Kind.OUTPUT:
        return ""
    return f"={parameter.default!r}"


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
    return _table([say("number"), say("status"), say("rule")], lines)


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
