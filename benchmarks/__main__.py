"""The command line: `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.merge import command_of
from benchmarks.page import markdown
from benchmarks.report import console_tables, disturbed, find_wrong, headline_table
from benchmarks.runner import run
from benchmarks.selection import SECTIONS, SelectionError, Settings, choose, title_of
from benchmarks.sheet import sheet
from openaclnn.core.dtypes import FLOATS, DType, dtype_of_name
from openaclnn.engines.dispatch import ENGINES


def _dtype(name: str) -> DType:
    try:
        dtype = dtype_of_name(name)
    except (KeyError, ValueError, TypeError):
        dtype = None
    if dtype not in FLOATS:
        known = ", ".join(each.name for each in FLOATS)
        raise argparse.ArgumentTypeError(f"unknown dtype {name!r}; known dtypes: {known}")
    return dtype


def _counts(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) if part.strip().isdecimal() else 0 for part in text.split(","))
    if not all(numbers):
        raise argparse.ArgumentTypeError(
            f"expected numbers of threads such as 1,4,16, got {text!r}"
        )
    return numbers


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Time every operator on every engine beside PyTorch and a plain copy.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="a subset that takes less than a minute")
    add(
        "--headline",
        action="store_true",
        help="one large problem of each operator in FLOAT, a line each, beside NumPy and PyTorch",
    )
    add(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="cases with this, from a word's start, in their name, as --list tells it; may be repeated",
    )
    add(
        "--dtype",
        action="append",
        type=_dtype,
        default=[],
        help="FLOAT, FLOAT16 or BFLOAT16; may be repeated",
    )
    add(
        "--engine",
        action="append",
        choices=list(ENGINES),
        default=[],
        help="may be repeated; default: all",
    )
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add(
        "--threads",
        type=_counts,
        default=(),
        metavar="N,...",
        help="numbers of threads, for both sides, such as 1,4,16 (default: each side's own)",
    )
    add(
        "--alone",
        action="store_true",
        help="time ours and the copy in a process without PyTorch (default: in turn with PyTorch)",
    )
    add("--rounds", type=int, help="rounds of turns (default: 15, quick: 7)")
    add(
        "--section",
        action="append",
        choices=SECTIONS,
        default=[],
        help="may be repeated; default: all, quick: speed and calls",
    )
    add("--list", action="store_true", help="run nothing: name the cases, section by section")
    add("--json", type=Path, metavar="FILE", help="write the results here")
    add("--markdown", type=Path, metavar="FILE", help="write the page for docs here")
    add("--csv", type=Path, metavar="FILE", help="write every case here, not into the page")
    add("--report", nargs="+", type=Path, metavar="JSON", help="run nothing: render these results")
    return parser  # fmt: skip


def _default_sections(options: argparse.Namespace) -> tuple[str, ...]:
    return ("speed",) if options.headline else ("speed", "calls") if options.quick else SECTIONS


def _settings(options: argparse.Namespace, command: str) -> Settings:
    quick: bool = options.quick or options.headline
    return Settings(
        device=options.device,
        quick=quick,
        headline=options.headline,
        only=tuple(options.only),
        dtypes=tuple(options.dtype),
        engines=tuple(options.engine),
        threads=options.threads,
        rounds=options.rounds or (5 if options.headline else 7 if quick else 15),
        budget_seconds=0.5 if quick else 2.0,
        sections=tuple(options.section) or _default_sections(options),
        use_torch=not options.alone,
        command=command,
    )


def _follow(console: Console) -> Any:
    def follow(items: Sequence[Any], label: str) -> Iterator[Any]:
        if not items:
            return
        columns = (
            TextColumn("{task.description:60.60}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        # Few refreshes: the display's thread would run beside what is being timed.
        with Progress(*columns, console=console, auto_refresh=False) as progress:
            task = progress.add_task(label, total=len(items))
            for item in items:
                title = (
                    f"{title_of(item[0])} {item[1]}" if isinstance(item, tuple) else title_of(item)
                )
                progress.update(task, description=f"{label}: {title}", refresh=True)
                yield item
                progress.advance(task)
            progress.update(task, description=label, refresh=True)

    return follow


def _objection(options: argparse.Namespace) -> str:
    """Why these options cannot go together; "" if they can."""
    if options.device != "cpu" and (options.alone or options.threads):
        return "--alone and --threads are for the CPU: GPU memory is PyTorch's, and its threads the GPU's"
    if options.alone and "torch" in sys.modules:
        return "--alone needs a process that has not loaded PyTorch"
    return ""


def _list(settings: Settings) -> None:
    """Each case as the options that run it alone."""
    for section, items in choose(settings).items():
        for item in items:
            print(f"--section {section} --only {shlex.quote(title_of(item))}")


def _results(options: argparse.Namespace, given: Sequence[str], console: Console) -> list[Any]:
    if options.report:
        return [json.loads(path.read_text()) for path in options.report]
    results = run(_settings(options, command_of(given)), _follow(console))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return [results]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run or render; 1 where one of our results was wrong, 2 where there is nothing to run."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = command_line().parse_args(given)
    console = Console(stderr=True)
    try:
        if _objection(options):
            raise SelectionError(_objection(options))
        if options.list:
            _list(_settings(options, ""))
            return 0
        reports = _results(options, given, console)
    except SelectionError as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        return 2
    if options.csv:
        options.csv.write_text(sheet(reports))
    if options.markdown:
        options.markdown.write_text(markdown(reports, options.csv.name if options.csv else ""))
    _show(reports, options.headline, console)
    wrong = [row for results in reports for row in find_wrong(results)]
    for row in wrong:
        console.print(
            f"WRONG: {row['operator']} {row['variant']} {row['regime']} {row['dtype']} "
            f"{row['contender']}: {row['note']}",
            style="red", markup=False,
        )  # fmt: skip
    return 1 if wrong else 0


def _show(reports: Sequence[dict[str, Any]], headline: bool, console: Console) -> None:
    output = Console()
    if not output.is_terminal:  # a file or a pipe has room
        output = Console(width=150)
    for results in reports:
        for table in [headline_table(results)] if headline else console_tables(results):
            output.print(table)
        if disturbed(results):
            console.print(disturbed(results), style="yellow", markup=False)


if __name__ == "__main__":
    sys.exit(main())
