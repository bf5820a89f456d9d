"""The commands about operators: `list`, `describe`, `support`, `completion`; and for other commands, subcommands of each operator, whose
options are its parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from openaclnn.cli.say import (
    WIDEST,
    HelpContext,
    coloured,
    columns,
    command_options,
    say,
    say_json,
    say_rows,
    say_text,
    table,
)  # fmt: skip
from openaclnn.core.declare import Operator, Sample, SupportTable
from openaclnn.core.interface import Kind, Parameter, snake_case
from openaclnn.core.products import PRODUCTS
from openaclnn.operators import find_operator, grouped, registry


def _find(context: Any, parameter: Any, name: str) -> Operator:
    try:
        return find_operator(name)
    except KeyError as error:
        raise click.UsageError(str(error.args[0])) from None


def operator_names(context: Any, parameter: Any, incomplete: str) -> list[CompletionItem]:
    """What a shell offers in an operator's place, with its family: C names where one was begun; what has the text inside where no name begins
    with it."""
    every = [(family, each) for family, members in grouped().items() for each in members]
    names = {each.python_name: family for family, each in every}
    if incomplete:
        names |= {each.name: family for family, each in every}
    begun = [name for name in names if name.startswith(incomplete)]
    inside = [name for name in names if incomplete.lower() in name.lower()]
    return [CompletionItem(name, help=names[name]) for name in begun or inside]


def product_names(context: Any, parameter: Any, incomplete: str) -> list[str]:
    """What a shell offers in a product's place."""
    return [product.tag for product in PRODUCTS if product.tag.startswith(incomplete)]


def file_names(context: Any, parameter: Any, incomplete: str) -> list[CompletionItem]:
    """Where a name may have a key or a dtype behind it, the shell still offers its files."""
    return [CompletionItem(incomplete, type="file")]


operator_argument = click.argument("operator", callback=_find, shell_complete=operator_names)
"""An operator by its C or Python name."""


texts_argument = click.argument("texts", nargs=-1, metavar="[TEXT]...")


_AROUND = re.compile(r"^((torch|nn|functional|f|ops|aten|openaclnn)\.)+|getworkspacesize$")


def _matching(texts: Sequence[str]) -> list[tuple[str, Operator]]:
    """The operators with all of these texts in their names, family or summary, family by family; names may come as PyTorch and C write them."""
    words = [_AROUND.sub("", text.lower()) for text in texts]
    operators = []
    for family, members in grouped().items():
        for each in members:
            said = f"{each.name} {each.python_name} {family} {each.summary}".lower()
            if all(word in said for word in words):
                operators.append((family, each))
    if not operators:
        raise click.UsageError(f"no operator has {' and '.join(map(repr, texts))} in its name, family or summary")  # fmt: skip
    return operators


@click.command("list", short_help="List the operators, or those with some words in them.")
@texts_argument
@command_options
def list_operators(texts: tuple[str, ...], as_json: bool) -> None:
    """List the operators, family by family; those with every TEXT in their name, family or summary.

    \b
    Example:
      openaclnn list
      openaclnn list softmax gradient
      openaclnn list torch.nn.functional.softmax
    """
    rows = [
        (operator.name, operator.python_name, family, operator.summary)
        for family, operator in _matching(texts)
    ]
    header = ("C name", "Python name", "family", "what it computes")
    if as_json or columns(WIDEST) >= _LIST_COLUMNS:
        say_rows(header, rows, as_json, keys=("name", "python", "family", "summary"))
        return
    said = ""
    for name, python, family, summary in rows:
        if family != said:
            say(coloured(family, "bold"))
        said = family
        say(
            f"  {name}, {python}"
            if len(name) + len(python) < columns(WIDEST) - 4
            else f"  {name},\n  {python}"
        )
        say_text(f"      {summary}")


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
    say_text(operator.describe())
    say("\nDtypes by product:")
    for product in PRODUCTS:
        dtypes = ", ".join(dtype.name for dtype in operator.dtypes_on(product)) or "not supported"
        say_text(f"  {product.tag:<8} {product.title}: {dtypes}")
    say("\nSamples:")
    for sample in operator.samples:
        shown = ", ".join(f"{name}={value!r}" for name, value in _sample(sample).items())
        say_text(f"  {sample.title}: {shown}")
        say_text(f"    gives {sample.expected}")


def _sample(sample: Sample) -> dict[str, Any]:
    """A sample's arguments, tensors as their numbers."""
    return {n: v[1] if isinstance(v, tuple) else v for n, v in sample.arguments.items()}


def _page(operator: Operator) -> dict[str, Any]:
    return {
        "name": operator.name, "python": operator.python_name, "summary": operator.summary,
        "prototypes": operator.prototypes(), "signature": operator.signature(), "header": operator.header,
        "formula": operator.formula,
        "parameters": [
            {
                "name": p.name, "python": p.python_name, "type": p.declaration.removesuffix(p.name).strip(),
                "text": p.text, "shape": p.shape, "dtypes": [d.name for d in p.dtypes],
                "optional": p.optional, "choices": p.choices,
            }
            for p in operator.parameters
        ],
        "checks": [{"row": c.number, "status": int(c.status), "rule": c.rule} for c in operator.checks],
        "products": {p.tag: [d.name for d in operator.dtypes_on(p)] for p in PRODUCTS},
        "samples": [{"title": s.title, "arguments": _sample(s), "expected": s.expected} for s in operator.samples],
    }  # fmt: skip


class PerOperator(click.Group):
    """A group whose subcommands are made from the registry; C names serve too."""

    def __init__(self, *args: Any, make: Callable[[Operator], click.Command], **kwargs: Any) -> None:  # fmt: skip
        super().__init__(*args, **{"subcommand_metavar": "OPERATOR [OPTIONS]...", **kwargs})
        self.make = make

    def list_commands(self, context: click.Context) -> list[str]:
        return [operator.python_name for operator in registry()]

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Operators"):
            formatter.write_dl([
                (family, ", ".join(operator.python_name for operator in members))
                for family, members in grouped().items()
            ])  # fmt: skip

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return self.make(_find(context, None, name))

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(context, incomplete)
        return operator_names(context, None, incomplete)


def operator_command(
    operator: Operator, call: Callable[..., Any], options: list[click.Parameter], text: str
) -> click.Command:
    """An operator's subcommand: its options, and those that all commands have."""
    params = [*options, *getattr(call, "__click_params__", [])]
    command = click.Command(operator.python_name, callback=call, params=params, short_help=operator.summary, help=text)  # fmt: skip
    command.context_class = HelpContext
    return command


class Choices(click.Choice[str]):
    """A parameter's choices; one that is a number in C may be given as one."""

    def __init__(self, parameter: Parameter) -> None:
        super().__init__(parameter.choices)
        self.numbers = parameter.kind is Kind.INT64

    def convert(self, value: Any, parameter: Any, context: Any) -> Any:
        if self.numbers and value in map(str, range(len(self.choices))):
            return self.choices[int(value)]
        return super().convert(value, parameter, context)


def word_of(operator: Operator, parameter: Parameter) -> str:
    """A parameter's name on the line: the plain call's, but for several outputs, which that gives one name."""
    several = parameter.kind is Kind.OUTPUT and operator.result_type is not None
    name = snake_case(parameter.name) if several else parameter.python_name
    return f"--{name.replace('_', '-')}"


def option_of(
    operator: Operator, parameter: Parameter, metavar: str, kind: Any = None
) -> click.Option:
    """A parameter as an option: `--grad-output`, with the C name beside it."""
    names = [word_of(operator, parameter), f"--{parameter.name}"]
    offered = file_names if metavar == "FILE" else None
    return click.Option(
        [*dict.fromkeys(names), f"given_{parameter.name}"], metavar=metavar,
        help="; ".join(part for part in (parameter.text, parameter.shape) if part), type=kind,
        shell_complete=offered,
    )  # fmt: skip


@click.command(short_help="Show what each product supports.")
@texts_argument
@click.option("--markdown", is_flag=True, help="Print a Markdown table.")
@command_options
def support(texts: tuple[str, ...], markdown: bool, as_json: bool) -> None:
    """Show operator x product x dtype, family by family; of operators with every TEXT in their name, family or summary.

    Where the table has no room, operators that agree stand together.

    \b
    Example:
      openaclnn support --markdown
      openaclnn support gelu
    """
    support = SupportTable.of([operator for _, operator in _matching(texts)])
    if as_json:
        say_json([dict(zip(support.header, row, strict=True)) for row in support.rows])
    else:
        roomy = markdown or columns(WIDEST) >= _SUPPORT_COLUMNS
        shown = support.markdown() if markdown else table(support.header, support.rows)
        say(shown) if roomy else _say_alike(support)


_LIST_COLUMNS = 150
_SUPPORT_COLUMNS = 160
"""What the tables of all operators need, to the longest name and sentence."""


def _say_alike(support: SupportTable) -> None:
    """The table for a narrow terminal: the operators that have the same dtypes on every product, and below them the products by dtypes."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, *row in support.rows:
        names.setdefault(tuple(row), []).append(name)
    for cells, members in names.items():
        products: dict[str, list[str]] = {}
        for tag, cell in zip(support.header[1:], cells, strict=True):
            products.setdefault(cell, []).append(tag)
        say_text(", ".join(members))
        lacking = products.pop("-", [])
        for cell, tags in products.items():
            say(f"    {cell}: {', '.join(tags)}")
        if lacking:
            say(coloured(f"    not supported: {', '.join(lacking)}", "yellow"))


@click.command(short_help="Print what makes a shell complete words.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@command_options
def completion(shell: str, as_json: bool) -> None:
    """Print what makes a shell complete commands, operators and options.

    \b
    Example:
      eval "$(openaclnn completion bash)"
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    context = click.get_current_context().find_root()
    script = kind(context.command, {}, "openaclnn", "_OPENACLNN_COMPLETE").source()
    if as_json:
        say_json({"shell": shell, "script": script})
    else:
        say(script)
