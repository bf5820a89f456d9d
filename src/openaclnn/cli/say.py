"""What the commands print: text, tables and JSON, quiet when nobody reads any more; and that no file that a command reads is written by it."""

from __future__ import annotations

import functools
import json
import os
import re
import stat
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import click

from openaclnn.core.writing import neutral, without_nan

NARROWEST = 40  # columns that are printed for, however narrow a terminal is
WIDEST = 1000  # where there is none
_GAP = 3  # blanks between columns
_INDENT = 2
_SENTENCE = 24  # columns that a sentence has at least


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


def columns(otherwise: int) -> int:
    """How wide what is printed may be: as the terminal, or as COLUMNS says; where neither is there, `otherwise`."""
    import shutil

    said = os.environ.get("COLUMNS", "")
    if sys.stdout.isatty() or (said.isdecimal() and int(said)):
        return max(shutil.get_terminal_size().columns, NARROWEST)
    return otherwise


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], left: int | None = None,
    title: str = "", notes: Sequence[str] = (), joined: bool = False,
) -> str:  # fmt: skip
    """A table as text: the first columns, or all, are text and the others numbers. No word or number is broken: where the columns have no
    room, each row is a few lines with its first cell above them. `joined`: a row without a first cell belongs to the one above."""
    from rich.console import Group
    from rich.text import Text

    header, rows = list(map(neutral, header)), [list(map(neutral, row)) for row in rows]
    left, width = len(header) if left is None else left, columns(WIDEST)
    by_column = [[row[place] for row in rows] for place in range(len(header))]
    least = [
        max(_least(cells, place < left), _longest_word(name))
        for place, (name, cells) in enumerate(zip(header, by_column, strict=True))
    ]
    gap = next(
        (gap for gap in (_GAP, _GAP - 1) if gap * (len(header) - 1) + sum(least) <= width), None
    )
    if gap is None:
        body = _stacked(header, rows, width)
    else:
        # What is left goes to the columns from the first on, as far as they have use for it.
        room = width - gap * (len(header) - 1) - sum(least)
        for place, (name, cells) in enumerate(zip(header, by_column, strict=True)):
            more = min(max(map(len, (name, *cells))) - least[place], room)
            least[place], room = least[place] + more, room - more
        body = _side_by_side(header, rows, left, least, joined, gap)
    above = [Text(title, style="bold")] if title else []
    return rendered(Group(*above, body, *(Text(note, style="dim") for note in notes)), width)


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _least(cells: Sequence[str], text: bool) -> int:
    """The narrowest that a column can be: numbers stay whole, sentences have room for some words."""
    if not text:
        return max(map(len, cells), default=0)
    widest, longest = max(map(len, cells), default=0), max(map(_longest_word, cells), default=0)
    return max(longest, min(widest, _SENTENCE))


def _side_by_side(
    header: Sequence[str], rows: Sequence[Sequence[str]], left: int, least: Sequence[int], joined: bool, gap: int
) -> Any:  # fmt: skip
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, gap - 2))
    for place, (name, width) in enumerate(zip(header, least, strict=True)):
        drawn.add_column(name, justify="left" if place < left else "right", width=width)
    for row in rows:
        if joined and row[0]:
            drawn.add_section()
        drawn.add_row(*map(_cell, row))
    return drawn


def _stacked(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Any:
    """Each row as its first cell and, below it, the others with their headings, as many on a line as have room."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    lines: list[Any] = []
    for first, *others in rows:
        if first:
            lines.append(Text(first, style="bold"))
        line = Text()
        for name, cell in zip(header[1:], others, strict=True):
            if not cell:
                continue
            pair = Text.assemble((f"{name}: ", "dim"), _cell(cell))
            if line and len(line) + _GAP + len(pair) > width - _INDENT:
                lines.append(Padding(line, (0, 0, 0, _INDENT)))
                line = Text()
            line = Text.assemble(line, " " * _GAP, pair) if line else pair
        if line:
            lines.append(Padding(line, (0, 0, 0, _INDENT)))
    return Group(*lines)


def _cell(text: str) -> Any:
    from rich.text import Text

    return Text(text, style=_STYLES.get(text, ""))


def say_text(text: str) -> None:
    """Print lines of words, of which the long ones go on below on a terminal."""
    say(folded(text, columns(sys.maxsize)))


def folded(text: str, width: int) -> str:
    """Text whose lines that reach the edge go on below, further in; commands as a shell reads them. Words stay whole."""
    return "\n".join([_folded(line, width) if len(line) > width else line for line in text.split("\n")])  # fmt: skip


_COLUMN = re.compile(r"(?<=\S) {2,}(?=\S)")  # blanks between what stands in columns


def _folded(line: str, width: int) -> str:
    inside = " " * (len(line) - len(line.lstrip()) + _INDENT)
    columns = [match.end() for match in _COLUMN.finditer(line)]
    if columns and columns[-1] <= width // 3:  # the last column goes on below itself
        inside = " " * columns[-1]
    elif columns:  # the last column is a line of its own, as the condition of a formula
        rest = _folded(f"{inside}{_INDENT * ' '}{line[columns[-1] :]}", width)
        return f"{folded(line[: columns[-1]].rstrip(), width)}\n{rest}"
    if line.startswith("aclnnStatus "):  # a prototype's parameters stay whole
        line = re.sub(r"(?<!,) ", "\0", line).replace("\0", " ", 1)
    end = " \\" if line.lstrip().startswith(("openaclnn ", "c++ ")) else ""
    # An option and its value stay together.
    joined = re.sub(r"(?<= --)(\S+) (?=[^-\s])", "\\1\0", line) if end else line
    parts = textwrap.wrap(
        joined, width - len(end), subsequent_indent=inside, break_long_words=False, break_on_hyphens=False
    )  # fmt: skip
    return f"{end}\n".join(parts).replace("\0", " ")


class _Help(click.HelpFormatter):
    def write(self, string: str) -> None:
        super().write(folded(string, self.width))


class HelpContext(click.Context):
    """Of a command whose help has no line beyond the terminal's edge."""

    formatter_class = _Help


def coloured(text: str, style: str) -> str:
    """The text in a colour, on a terminal."""
    from rich.text import Text

    return rendered(Text(text, style=style), max(len(text), columns(WIDEST)))


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
    """What rich drew as text, so wide; in colours where there is a terminal."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    terminal = sys.stdout.isatty()
    text = StringIO()
    console = Console(file=text, force_terminal=terminal, width=width, no_color=not terminal)
    pieces = [Segment(neutral(each.text), each.style) for each in console.render(drawn)]
    console.print(Segments(pieces))
    return _Drawn("\n".join(line.rstrip() for line in text.getvalue().rstrip("\n").split("\n")))


_STYLES = {
    "passed": "green", "failed": "red", "refused": "yellow", "skipped": "magenta", "unreadable": "red", "WRONG": "red",
    "unavailable": "red", "there": "green", "missing": "yellow", "ACLNN_SUCCESS": "green", "ACL_SUCCESS": "green",
}  # fmt: skip


@contextmanager
def progress(title: str, total: int | None, *, timing: bool = False) -> Iterator[Callable[..., None]]:  # fmt: skip
    """A bar on the error stream, where that is a terminal; call what it gives with how much was done, and perhaps what is being done. While something is
    being timed it is drawn at these calls alone, since its thread would run beside that, and it stays."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:28.28}" if timing else "{task.description}"), BarColumn(12), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    quiet = not total or not sys.stderr.isatty()
    with Progress(
        *columns, console=Console(stderr=True), disable=quiet, transient=not timing, auto_refresh=not timing
    ) as bar:  # fmt: skip
        task = bar.add_task(title, total=total)

        def advance(count: int, doing: str = title) -> None:
            bar.update(task, advance=count, description=doing, refresh=timing)

        yield advance


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
        identity = _identity(output)
        for other, path, fate in taken if identity is not None else ():
            if identity == other:
                same = f"{output} and {path} are one file, which"
                raise click.UsageError(f"{output if output == path else same} {fate}")
        taken.append((identity, output, "would be written twice"))


def _identity(path: Path) -> Any:
    """The same for every name of a file, also of one that is not there yet; None for pipes and devices."""
    try:
        held = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    known = stat.S_ISREG(held.st_mode) or stat.S_ISDIR(held.st_mode)
    return (held.st_dev, held.st_ino) if known else None
