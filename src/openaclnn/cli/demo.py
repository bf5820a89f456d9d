"""Operators at work: `demo` runs every first sample through both interfaces beside the oracle, `example` writes it as a program, `explorer` serves
a page to try calls.
"""

from __future__ import annotations

import sys
import threading
import webbrowser
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import openaclnn
from openaclnn.cli.operators import operator_argument
from openaclnn.cli.say import columns, command_options, rendered, say, say_json
from openaclnn.core.declare import Operator, Sample
from openaclnn.core.products import current_product
from openaclnn.core.writing import write_text
from openaclnn.testing.build import call_of
from openaclnn.testing.calls import run_through
from openaclnn.testing.files import FileError
from openaclnn.testing.programs import LANGUAGES, example_of


def _row(values: Any) -> str:
    flat = np.asarray(values, np.float64).reshape(-1)
    text = "  ".join(f"{value:.6g}" for value in flat[:10])
    return text + ("  ..." if flat.size > 10 else "")


def _show(operator: Operator, sample: Sample, quiet: bool) -> float:
    arguments = sample.arrays()
    table = Table(box=None, show_header=False, padding=(0, 1))
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            table.add_row(name, f"{value.dtype} {value.shape}", _row(value))
        else:
            table.add_row(name, "", str(value))
    exact = _each(operator, operator.oracle(**arguments))
    results = _each(operator, getattr(openaclnn, operator.python_name)(**sample.arrays()))
    built = call_of(operator, arguments, current_product())
    status, _ = run_through("two-phase", built)
    again = list(built.outputs.values())
    errors = []
    for (name, result), second in zip(results.items(), again, strict=False):
        beside = np.maximum(np.abs(exact[name]), 1)  # of large values, what part of them it is
        errors.append(float((np.abs(result - exact[name]) / beside).max()))
        table.add_section()
        table.add_row(
            f"[bold]plain call{name}[/]",
            f"{result.dtype} {result.shape}",
            f"[bold]{_row(result)}[/]",
        )
        table.add_row("two-phase call", f"status {status}", _row(second))
        table.add_row("oracle", "float64", _row(exact[name]))
        table.add_row("largest error", "", f"{errors[-1]:.2g}")
    if not quiet:
        _tell(Group(f"[dim]{operator.summary}[/]", table), operator.name)
    for result, second in zip(results.values(), again, strict=False):
        if status or not np.array_equal(second, result, equal_nan=True):
            raise SystemExit(f"{operator.name}: the two interfaces disagree (status {status})")
    return max(errors)


def _each(operator: Operator, results: Any) -> dict[str, Any]:
    """Results by what the demo calls them: one has no name; what is not computed is left out."""
    if operator.result_type is None:
        return {"": results}
    return {f", {name}": result for name, result in results._asdict().items() if result is not None}


def _tell(drawn: Any, title: str) -> None:
    say(rendered(Panel(drawn, title=title, title_align="left"), min(columns(100), 100)))


def _show_a_mistake() -> None:
    operator = openaclnn.registry()[0]
    arguments = operator.samples[0].arrays()
    name = next(n for n, v in arguments.items() if isinstance(v, np.ndarray) and v.ndim == 2)
    wrong = {**arguments, name: arguments[name].astype(np.float64)}
    try:
        getattr(openaclnn, operator.python_name)(**wrong)
    except openaclnn.AclnnError as error:
        _tell(Text(str(error)), "and a mistake is told exactly")


@click.command()
@command_options
def demo(as_json: bool) -> int:
    """Run the documents' examples through both interfaces.

    \b
    Example:
      openaclnn demo
    """
    errors = {each.name: _show(each, each.samples[0], as_json) for each in openaclnn.registry()}
    if as_json:
        say_json([{"operator": name, "largest_error": error} for name, error in errors.items()])
        return 0
    _show_a_mistake()
    agree = f"{len(errors)} operators, both interfaces agree"
    say(f"{agree}; largest error against float64: {max(errors.values()):.2g}")
    return 0


@click.command(short_help="Write a program that calls an operator.")
@operator_argument
@click.option("--lang", type=click.Choice(list(LANGUAGES)), default="c++", show_default=True)
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="The file to write; otherwise it is printed.")  # fmt: skip
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@command_options
def example(operator: Operator, lang: str, out: Path | None, force: bool, as_json: bool) -> None:
    """Write a program that calls an operator, ready to be compiled or run.

    \b
    Example:
      openaclnn example aclnnEluBackward --lang c++ -o elu_backward.cpp
      c++ elu_backward.cpp $(openaclnn-config --cflags --libs) -o elu_backward && ./elu_backward
    """
    text = example_of(operator, lang)
    if out is not None:
        if out.exists() and not force:
            raise FileError(f"{out} is there already; --force writes over it")
        write_text(out, text)
    if as_json:
        name = operator.python_name + LANGUAGES[lang] if lang != "cmake" else "CMakeLists.txt"
        say_json({"operator": operator.name, "language": lang, "name": name, "text": text})
    elif out is None:
        say(text.rstrip("\n"))
    else:
        say(str(out))


@click.command(short_help="Serve a page to try calls and compare files.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; without it, one that is free.")  # fmt: skip
@click.option("--host", type=click.Choice(["127.0.0.1", "::1"]), default="127.0.0.1", show_default=True, help="The address of this machine; there is no other.")  # fmt: skip
@click.option("--open/--no-open", "show", default=None, help="Open a browser; by default on a terminal.")  # fmt: skip
@command_options
def explorer(port: int, host: str, show: bool | None, as_json: bool) -> None:
    """Serve a page on this machine: describe a call, see its status, the rule that decided, its code and its values.

    It stops on Ctrl-C.

    \b
    Example:
      openaclnn explorer --port 8000 --no-open
    """
    from openaclnn.explorer.server import Explorer

    try:
        page = Explorer(host, port)
    except OSError as error:
        raise click.UsageError(
            f"port {port} of {host}: {error.strerror}; without --port one that is free is taken"
        ) from None
    with page as server:
        if as_json:
            say_json({"address": server.address})
        else:
            say(f"The explorer is at {server.address} (Ctrl-C stops it)")
        sys.stdout.flush()
        if sys.stdout.isatty() if show is None else show:
            # Some browsers return when they are closed.
            threading.Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            if not as_json:
                say("stopped")
