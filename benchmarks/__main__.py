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

from benchmarks.report import (
    console_tables,
    disturbed,
    find_wrong,
    headline_table,
    markdown,
)
from benchmarks.runner import run
from benchmarks.selection import SECTIONS, Settings, choose, title_of
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


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Time every operator on every engine beside PyTorch and a plain copy.",
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
        default="",
        metavar="TEXT",
        help="cases whose operator, variant, regime and dtype contain this",
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
    add("--threads", type=int, help="threads on both sides (default: each side's own)")
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
    add("--markdown", type=Path, metavar="FILE", help="write tables for docs here")
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
        only=options.only,
        dtypes=tuple(options.dtype),
        engines=tuple(options.engine),
        threads=options.threads,
        rounds=options.rounds or (5 if options.headline else 7 if quick else 15),
        budget_seconds=0.5 if quick else 2.0,
        sections=tuple(options.section) or _default_sections(options),
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run or render; 1 where one of our results was wrong."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = command_line().parse_args(given)
    console = Console(stderr=True)
    if options.list:
        for section, items in choose(_settings(options, "")).items():
            for item in items:
                print(f"{section}: {title_of(item)}")
        return 0
    if options.report:
        reports = [json.loads(path.read_text()) for path in options.report]
    else:
        command = shlex.join([".venv/bin/python", "-m", "benchmarks", *given])
        reports = [run(_settings(options, command), _follow(console))]
        if options.json:
            options.json.write_text(json.dumps(reports[0], indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(markdown(reports))
    output = Console()
    if not output.is_terminal:  # a file or a pipe has room
        output = Console(width=132)
    for results in reports:
        for table in [headline_table(results)] if options.headline else console_tables(results):
            output.print(table)
        if disturbed(results):
            console.print(disturbed(results), style="yellow", markup=False)
    wrong = [row for results in reports for row in find_wrong(results)]
    for row in wrong:
        console.print(
            f"WRONG: {row['operator']} {row['variant']} {row['regime']} {row['dtype']} "
            f"{row['contender']}: {row['note']}",
            style="red", markup=False,
        )  # fmt: skip
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
