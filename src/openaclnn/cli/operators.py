"""`openaclnn list` and `openaclnn describe`: the operators, from their declarations."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from openaclnn.cli.say import command_options, say, say_json, table
from openaclnn.core.declare import Operator
from openaclnn.core.products import PRODUCTS
from openaclnn.operators import find_operator, registry

__all__ = [
    "describe",
    "file_names",
    "list_operators",
    "operator_argument",
    "operator_names",
    "product_names",
]


def _find(context: Any, parameter: Any, name: str) -> Operator:
    try:
        return find_operator(name)
    except KeyError as error:
        raise click.UsageError(str(error.args[0])) from None


def operator_names(context: Any, parameter: Any, incomplete: str) -> list[str]:
    """What a shell offers in an operator's place."""
    names = (name for each in registry() for name in (each.python_name, each.name))
    return [name for name in names if name.startswith(incomplete)]


def product_names(context: Any, parameter: Any, incomplete: str) -> list[str]:
    """What a shell offers in a product's place."""
    return [product.tag for product in PRODUCTS if product.tag.startswith(incomplete)]


def file_names(context: Any, parameter: Any, incomplete: str) -> list[CompletionItem]:
    """Where a name may have a key or a dtype behind it, the shell still offers its files."""
    return [CompletionItem(incomplete, type="file")]


operator_argument = click.argument("operator", callback=_find, shell_complete=operator_names)
"""An operator by its C or Python name."""


@click.command("list")
@command_options
def list_operators(as_json: bool) -> None:
    """List the operators.

    \b
    Example:
      openaclnn list
    """
    if as_json:
        names = [(o.name, o.python_name, o.summary) for o in registry()]
        say_json([dict(zip(("name", "python", "summary"), row, strict=True)) for row in names])
    else:
        rows = [(o.name, o.python_name, o.summary) for o in registry()]
        say(table(("C name", "Python name", "what it computes"), rows))


@click.command(short_help="Show an operator's page.")
@operator_argument
@command_options
def describe(operator: Operator, as_json: bool) -> None:
    """Show an operator's page: prototypes, parameters, dtypes by product, checks, formula, samples.

    \b
    Example:
      openaclnn describe aclnnEluBackward
    """
    if as_json:
        say_json(_page(operator))
        return
    say(operator.describe())
    say("\nDtypes by product:")
    for product in PRODUCTS:
        dtypes = ", ".join(dtype.name for dtype in operator.dtypes_on(product)) or "not supported"
        say(f"  {product.tag:<8} {product.title}: {dtypes}")
    say("\nSamples:")
    for sample in operator.samples:
        say(f"  {sample.title}: {_sample(sample.arguments)}")
        say(f"    gives {sample.expected}")


def _sample(arguments: Any) -> str:
    shown = {n: v[1] if isinstance(v, tuple) else v for n, v in arguments.items()}
    return ", ".join(f"{name}={value!r}" for name, value in shown.items())


def _page(operator: Operator) -> dict[str, Any]:
    return {
        "name": operator.name,
        "python": operator.python_name,
        "summary": operator.summary,
        "prototypes": operator.prototypes(),
        "signature": operator.signature(),
        "header": operator.header,
        "formula": operator.formula,
        "parameters": [
            {
                "name": p.name, "python": p.python_name, "type": p.declaration.removesuffix(p.name).strip(),
                "text": p.text, "shape": p.shape, "dtypes": [d.name for d in p.dtypes],
                "optional": p.optional, "choices": p.choices,
            }
            for p in operator.parameters
        ],
        "checks": [{"row": c.row, "status": int(c.status), "rule": c.rule} for c in operator.checks],
        "products": {p.tag: [d.name for d in operator.dtypes_on(p)] for p in PRODUCTS},
        "samples": [
            {"title": s.title, "arguments": {n: v[1] if isinstance(v, tuple) else v for n, v in s.arguments.items()},
             "expected": s.expected}
            for s in operator.samples
        ],
    }  # fmt: skip
