"""Commands with a subcommand for every operator, whose options are the operator's parameters."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from openaclnn.cli.operators import file_names, operator_names
from openaclnn.core.declare import Operator
from openaclnn.core.interface import Kind, Parameter, snake_case
from openaclnn.operators import find_operator, registry

__all__ = ["Choices", "PerOperator", "option_of", "read_value", "word_of"]


class PerOperator(click.Group):
    """A group whose subcommands are made from the registry; C names serve too."""

    def __init__(
        self, *args: Any, make: Callable[[Operator], click.Command], **kwargs: Any
    ) -> None:
        super().__init__(*args, **{"subcommand_metavar": "OPERATOR [OPTIONS]...", **kwargs})
        self.make = make

    def list_commands(self, context: click.Context) -> list[str]:
        return [operator.python_name for operator in registry()]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        try:
            return self.make(find_operator(name))
        except KeyError as error:
            raise click.UsageError(str(error.args[0])) from None

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(context, incomplete)
        return [CompletionItem(name) for name in operator_names(context, None, incomplete)]


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


def read_value(text: str) -> Any:
    """A number, true, false, inf, nan, null, or the text itself."""
    words = {"true": True, "false": False, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        pass
    try:
        return float(text)
    except ValueError:
        return text
