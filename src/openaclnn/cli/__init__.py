"""The `openaclnn` command: one entry, subcommands that iterate the registry."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit status."""
    import openaclnn

    names = [operator.python_name for operator in openaclnn.registry()]
    parser = argparse.ArgumentParser(
        prog="openaclnn", description="The Ascend aclnn operator interface on any machine."
    )
    parser.add_argument("--version", action="version", version=openaclnn.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("demo", help="run the documents' examples through both interfaces")
    support = commands.add_parser("support", help="show operator x product x dtype")
    support.add_argument("--markdown", action="store_true", help="as a Markdown table")
    commands.add_parser("warmup", help="compile every CPU kernel, so that no later call waits")
    page = commands.add_parser("describe", help="show an operator's prototype, checks and formula")
    page.add_argument("operator", choices=names)
    given = parser.parse_args(arguments)
    if given.command == "demo":
        from openaclnn.cli.demo import run_demo

        return run_demo()
    if given.command == "warmup":
        from openaclnn.cli.warmup import run_warmup

        return run_warmup()
    if given.command == "support":
        table = openaclnn.support_table()
        print(table.markdown() if given.markdown else table)
    else:
        print(openaclnn.find_operator(given.operator).describe())
    return 0
