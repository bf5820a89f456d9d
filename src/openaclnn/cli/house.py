"""The commands about the house itself: `demo`, `support`, `warmup`, `completion`."""

from __future__ import annotations

import click

from openaclnn.cli.say import command_options, say, say_json

__all__ = ["completion", "demo", "support", "warmup"]


@click.command()
@command_options
def demo(as_json: bool) -> int:
    """Run the documents' examples through both interfaces.

    \b
    Example:
      openaclnn demo
    """
    from openaclnn.cli.demo import run_demo

    return run_demo(as_json)


@click.command()
@click.option("--markdown", is_flag=True, help="Print a Markdown table.")
@command_options
def support(markdown: bool, as_json: bool) -> None:
    """Show operator x product x dtype.

    \b
    Example:
      openaclnn support --markdown
    """
    from openaclnn.operators import support_table

    table = support_table()
    if as_json:
        say_json([dict(zip(table.header, row, strict=True)) for row in table.rows])
    else:
        say(table.markdown() if markdown else str(table))


@click.command()
@command_options
def warmup(as_json: bool) -> int:
    """Compile every CPU kernel, so that no later call waits.

    This takes minutes on few cores; kernels that are kept already take no time.

    \b
    Example:
      openaclnn warmup
    """
    from openaclnn.cli.warmup import run_warmup

    return run_warmup(as_json)


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
