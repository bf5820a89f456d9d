"""What the commands print: text, tables and JSON, quiet when nobody reads any more; and that no file that a command reads is written by it."""

from __future__ import annotations

import functools
import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import click

from openaclnn.core.writing import neutral, without_nan

__all__ = [
    "command_options", "counted", "keep_apart", "open_streams", "progress", "rendered", "say", "say_json", "say_rows",
    "table", "traceback_option",
]  # fmt: skip


def say(text: str, error: bool = False) -> None:
    """Print a line or more; once the reader of a pipe is gone, the rest goes nowhere and the work goes on.

    What the stream's encoding lacks is a question mark: frames of tables are no reason to say nothing. Control characters, which may
    come from anybody's file, are shown and not obeyed.
    """
    stream = sys.stderr if error else sys.stdout
    text = text if isinstance(text, _Drawn) else neutral(text)
    try:
        click.echo(text, err=error)
    except UnicodeEncodeError:
        click.echo(text.encode(stream.encoding, "replace").decode(stream.encoding), err=error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def open_streams() -> None:
    """Where the caller has closed a stream, one that goes nowhere: else the next file that is opened would be it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def counted(count: int, thing: str) -> str:
    """So many things: 1 case, 2 cases."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def say_json(value: Any) -> None:
    """Print JSON; NaN and infinities, which it lacks, as strings."""
    say(json.dumps(without_nan(value), indent=2, ensure_ascii=False, allow_nan=False))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as text, in colours and as wide as the terminal where there is one."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for name in header:
        drawn.add_column(name, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(neutral(cell), style=_STYLES.get(cell, "")) for cell in row))
    return rendered(drawn, 240)


def say_rows(
    header: Sequence[str], rows: Sequence[Sequence[str]], as_json: bool, keys: Sequence[str] = ()
) -> None:
    """Print rows as a table, or as JSON: a dictionary for each, by the header's words or `keys`."""
    if as_json:
        say_json([dict(zip(keys or header, row, strict=True)) for row in rows])
    else:
        say(table(header, rows))


class _Drawn(str):
    """Text whose control characters are colours of ours."""


def rendered(drawn: Any, width: int) -> str:
    """What rich drew as text: for the terminal where there is one, else plain and so wide."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    terminal = sys.stdout.isatty()
    text = StringIO()
    plain: dict[str, Any] = {} if terminal else {"width": width, "no_color": True}
    console = Console(file=text, force_terminal=terminal, **plain)
    pieces = [Segment(neutral(each.text), each.style) for each in console.render(drawn)]
    console.print(Segments(pieces))
    return _Drawn("\n".join(line.rstrip() for line in text.getvalue().rstrip("\n").split("\n")))


_STYLES = {"passed": "green", "failed": "red", "refused": "yellow", "skipped": "magenta"}


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on the error stream, where that is a terminal; call what it gives with how much was done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())  # fmt: skip
    quiet = not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.advance(task, done)


def traceback_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--traceback`, which the entry looks for: the command itself does not see it."""
    trace = click.option("--traceback", is_flag=True, help="Show where an error came from.")

    @functools.wraps(function)
    def drop(*args: Any, traceback: bool, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return trace(drop)


def command_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that commands have."""
    as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    return as_json(traceback_option(function))


def keep_apart(inputs: Iterable[Path], outputs: Iterable[Path]) -> None:
    """Refuse, before anything is run, an output that is an input or another output, by whatever name."""
    taken = [(_identity(path), path, "is read and would be written over") for path in inputs]
    for output in outputs:
        own = _identity(output)
        for other, path, fate in taken if own is not None else ():
            if own == other:
                same = f"{output} and {path} are one file, which"
                raise click.UsageError(f"{output if output == path else same} {fate}")
        taken.append((own, output, "would be written twice"))


def _identity(path: Path) -> Any:
    """The same for every name of a file, also of one that is not there yet; None for pipes and devices."""
    try:
        held = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    known = stat.S_ISREG(held.st_mode) or stat.S_ISDIR(held.st_mode)
    return (held.st_dev, held.st_ino) if known else None
