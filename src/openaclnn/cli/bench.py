"""`openaclnn bench`: time every operator beside PyTorch and a copy, or render results that were kept."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import json
import math
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from openaclnn.bench.reports import (
    Table,
    command_of,
    disturbances,
    find_wrong,
    headline_table,
    need_matplotlib,
    pictures,
    report_page,
    sheet,
    terminal_tables,
    write_pictures,
)
from openaclnn.bench.runner import (
    SECTIONS,
    SelectionError,
    Settings,
    choose,
    estimate,
    left_out,
    run,
)
from openaclnn.cli.say import (
    keep_apart,
    progress,
    say,
    say_json,
    table as table_of,
    traceback_option,
)
from openaclnn.core.dtypes import FLOATS
from openaclnn.core.writing import write_text
from openaclnn.engines.dispatch import ENGINES
from openaclnn.testing.extras import dtype_named
from openaclnn.testing.files import read_json

__all__ = ["bench"]

TO_STDOUT = "-"
LINE_SECONDS = 10.0
_FILE = click.Path(dir_okay=False, path_type=Path)


class _Remembers(click.Command):
    """Keeps the arguments as they were given: results name the command that made them."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        context.obj = list(args)
        return super().parse_args(context, args)


def _dtypes(context: Any, parameter: Any, names: Sequence[str]) -> tuple[Any, ...]:
    dtypes = []
    for name in names:
        try:
            dtypes.append(next(dtype for dtype in FLOATS if dtype is dtype_named(name)))
        except (ValueError, StopIteration):
            listed = ", ".join(each.name for each in FLOATS)
            raise click.BadParameter(f"unknown dtype {name!r}; known dtypes: {listed}") from None
    return tuple(dtypes)


def _counts(context: Any, parameter: Any, text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    numbers = tuple(int(part) if part.strip().isdecimal() else 0 for part in text.split(","))
    if not all(numbers):
        raise click.BadParameter(f"expected numbers of threads such as 1,4,16, got {text!r}")
    return numbers


def _seconds(context: Any, parameter: Any, seconds: float | None) -> float | None:
    if seconds is not None and math.isnan(seconds):
        raise click.BadParameter(f"expected a number of seconds, got {seconds}")
    return seconds


@click.command(cls=_Remembers, short_help="Time the operators beside PyTorch and a copy.")
@click.option(
    "--quick",
    is_flag=True,
    help="A few operators at a few sizes, or --only; the estimate is said first.",
)
@click.option(
    "--headline", is_flag=True,
    help="One large problem of some operators in FLOAT, a line each, beside NumPy and PyTorch: a quarter of a minute.",
)  # fmt: skip
@click.option(
    "--only", multiple=True, metavar="TEXT",
    help="Cases with this, from a word's start, in their name, as --list tells it; may be repeated.",
)  # fmt: skip
@click.option(
    "--dtype", "dtypes", multiple=True, callback=_dtypes, metavar="DTYPE",
    help="FLOAT, FLOAT16 or BFLOAT16; may be repeated.",
)  # fmt: skip
@click.option(
    "--engine", "engines", multiple=True, type=click.Choice(list(ENGINES)),
    help="May be repeated; default: all.",
)  # fmt: skip
@click.option("--device", type=click.Choice(("cpu", "cuda")), default="cpu", show_default=True)
@click.option(
    "--threads", callback=_counts, metavar="N,...",
    help="Numbers of threads, for both sides, such as 1,4,16; default: each side's own.",
)  # fmt: skip
@click.option(
    "--alone", is_flag=True,
    help="Time ours and the copy in a process without PyTorch; default: in turn with PyTorch.",
)  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), help="Rounds of turns; default: 15, quick: 7.")
@click.option(
    "--again", type=click.FloatRange(0), callback=_seconds, metavar="SECONDS",
    help="How long calls that met a slow machine may be timed again; default: as long as their section took, quick: not at all.",
)  # fmt: skip
@click.option(
    "--section", "sections", multiple=True, type=click.Choice(SECTIONS),
    help="May be repeated; default: all, quick: speed and calls.",
)  # fmt: skip
@click.option("--list", "listed", is_flag=True, help="Run nothing: name the cases, section by section.")  # fmt: skip
@click.option(
    "--from", "sources", multiple=True, metavar="JSON",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run nothing: render these results; may be repeated.",
)  # fmt: skip
@click.option(
    "--json", "json_file", is_flag=False, flag_value=TO_STDOUT, metavar="[FILE]",
    help="Write the results here; without a name, print them in place of the tables.",
)  # fmt: skip
@click.option("--plots", type=click.Path(file_okay=False, path_type=Path), help="Draw the results into this folder, as PNG.")  # fmt: skip
@click.option("--html", type=_FILE, help="Write a report that needs no other file: machine, pictures, tables.")  # fmt: skip
@click.option("--csv", "table", type=_FILE, help="Write every case here.")
@traceback_option
@click.pass_context
def bench(
    context: click.Context, quick: bool, headline: bool, only: tuple[str, ...], dtypes: Any, engines: Any,
    device: str, threads: Any, alone: bool, rounds: int | None, again: float | None, sections: Any, listed: bool,
    sources: tuple[Path, ...], json_file: str | None, plots: Path | None, html: Path | None, table: Path | None,
) -> int:  # fmt: skip
    """Time the operators on every engine, in turn with PyTorch and a plain copy of the same bytes.

    Results are checked before anything is timed; the status is 1 where one of ours is wrong. Losses of several
    outputs are timed in steps of training (--section training). Pictures need openaclnn[tools], PyTorch's side
    openaclnn[bench].

    \b
    Example:
      openaclnn bench --quick --json results.json --html report.html
      openaclnn bench --only 'elu_backward input scaling' --plots pictures
      openaclnn bench --from results.json --html report.html
    """
    settings = Settings(
        device=device, quick=quick or headline, headline=headline, only=only, dtypes=dtypes, engines=engines,
        threads=threads, rounds=rounds or (5 if headline else 7 if quick else 15),
        sections=sections or (("speed",) if headline else ("speed", "calls") if quick else SECTIONS),
        again_seconds=0.0 if again is None and (quick or headline) else again, use_torch=not alone, command=command_of(context.obj),
    )  # fmt: skip
    if device != "cpu" and (alone or threads):
        raise SelectionError(
            "--alone and --threads are for the CPU: GPU memory is PyTorch's, and its threads the GPU's"
        )
    if listed:
        _list(settings)
        return 0
    # Before the minutes that a run takes.
    kept_in = None if json_file in (None, TO_STDOUT) else Path(str(json_file))
    written = [path for path in (kept_in, html, table) if path is not None]
    keep_apart(sources, written)
    for path in written:
        if not path.parent.is_dir():
            raise click.UsageError(f"{path}: there is no folder {path.parent}")
    if plots or html:
        need_matplotlib()
    reports = _results(settings, sources)
    if kept_in is not None:
        kept = reports[0] if len(reports) == 1 else reports
        write_text(kept_in, json.dumps(kept, indent=1) + "\n")
    _write(reports, plots, html, table)
    if json_file == TO_STDOUT:
        say_json(reports[0] if len(reports) == 1 else reports)
    else:
        _show(reports, headline)
    return _wrong(reports)


def _list(settings: Settings) -> None:
    """Each case as the options that run it alone."""
    for section, items in choose(settings).items():
        for item in items:
            say(f"--section {section} --only {shlex.quote(item.title)}")
    _say_left_out(settings)


def _say_left_out(settings: Settings) -> None:
    if missing := left_out(settings):
        say(f"left out, {missing}", error=True)


def _results(settings: Settings, sources: Sequence[Path]) -> list[dict[str, Any]]:
    if not sources:
        if not settings.use_torch and "torch" in sys.modules:
            raise SelectionError("--alone needs a process that has not loaded PyTorch")
        with _stopping() as stopped:
            results = run(settings, functools.partial(_follow, stopped, [estimate(settings)]))
        if stopped:
            results["stopped"] = True
            say("stopped: what was timed until then follows", error=True)
        _say_left_out(settings)
        return [results]
    reports: list[dict[str, Any]] = []
    for path in sources:
        held = read_json(path)
        held = held if isinstance(held, list) else [held]
        if not all(
            isinstance(each, dict)
            and {"rows", "machine"} <= each.keys()
            and all("section" in row for row in each["rows"])
            for each in held
        ):
            raise click.UsageError(f"{path} has no results of this command")
        reports += held
    return reports


@contextmanager
def _stopping() -> Iterator[list[int]]:
    """A list that Ctrl-C, SIGTERM, as `timeout` sends it, or the end of a terminal adds to: the run ends after the case that is being timed. The second time ends it at once.

    What ends the process itself is not silent either: faulthandler shows where a kernel, ours or another's, met a signal."""
    stopped: list[int] = []

    def stop(number: int, frame: object) -> None:
        stopped.append(number)
        signal.signal(number, before[number])
        name = signal.Signals(number).name
        say(f"\n{name}: ending after this case; Ctrl-C again: at once", error=True)

    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    ours = not faulthandler.is_enabled()
    with contextlib.suppress(OSError, ValueError):  # a stream that is no file
        faulthandler.enable()
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]
    before = {int(number): signal.signal(number, stop) for number in heard}
    try:
        yield stopped
    except SystemExit as error:
        raise RuntimeError(f"a library asked to end the process, status {error.code}") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if ours:
            faulthandler.disable()


def _follow(
    stopped: Sequence[int], ahead: list[str], items: Sequence[Any], label: str
) -> Iterator[Any]:
    """A bar on the error stream where that is a terminal, what is being timed, and the time left; elsewhere a line from time to time; nothing more once it was stopped. What is
    to be said ahead of the first case is said once."""
    while ahead:
        say(ahead.pop(), error=True)
    start = told = time.monotonic()
    with progress(label, len(items), timing=True) as advance:
        for done, item in enumerate(items):
            if stopped:
                break
            now = time.monotonic()
            if not sys.stderr.isatty() and now - told > LINE_SECONDS:
                told, left = now, (now - start) / done * (len(items) - done)
                say(f"{label}: {done} of {len(items)}, about {left:.0f} seconds left", error=True)
            advance(0, f"{label}: {item.title}")
            yield item
            advance(1)


def _write(
    reports: Sequence[dict[str, Any]], plots: Path | None, html: Path | None, table: Path | None
) -> None:
    if table:
        write_text(table, sheet(reports))
    if not (plots or html):
        return
    drawn = [pictures(results) for results in reports]
    for path in write_pictures(drawn, plots) if plots else ():
        say(str(path), error=True)
    if html:
        write_text(html, report_page(reports, drawn))


def _show(reports: Sequence[dict[str, Any]], headline: bool) -> None:
    for results in reports:
        for table in [headline_table(results)] if headline else terminal_tables(results):
            say(tabulated(table))
        for noise in disturbances(results):
            say(noise, error=True)


def _wrong(reports: Sequence[dict[str, Any]]) -> int:
    wrong = [row for results in reports for row in find_wrong(results)]
    for row in wrong:
        case = " ".join(row[name] for name in ("operator", "variant", "regime", "dtype"))
        say(f"WRONG: {case} {row['contender']}: {row['note']}", error=True)
    if any(results.get("stopped") for results in reports):
        return 130
    return 1 if wrong else 0


def tabulated(table: Table) -> str:
    """A table of results as text."""
    return table_of(table.headings, table.lines, table.left, table.title, table.notes, joined=table.cases)  # fmt: skip
