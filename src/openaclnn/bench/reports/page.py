"""The text of a page of benchmarks in docs/: each machine in short, then every case of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from openaclnn.bench.reports.terminal import disturbed
from openaclnn.bench.tables.calls import calls_markdown
from openaclnn.bench.tables.cells import (
    INEXACT,
    SLOW,
    Row,
    by_operator,
    case_of,
    duration,
    markdown_table,
    name_of,
    notes,
    number,
    peers_of,
    ratio_to,
    threads_of,
)
from openaclnn.bench.tables.merge import merged, narrowed
from openaclnn.bench.tables.overrides import TITLE, overrides_markdown
from openaclnn.bench.tables.processes import process_markdown
from openaclnn.bench.tables.summary import closest, counts, short_tables
from openaclnn.bench.tables.training import training_markdown
from openaclnn.bench.timing.steady import AGAIN, TOLERATED

__all__ = ["Section", "markdown", "sections"]

WRITTEN = "Written by `openaclnn bench --from RESULTS.json ... --markdown PAGE.md`; do not edit.\n"
INTRODUCTION = f"""Times are per call, the median and the quartiles of the rounds. In each round every contender takes its turn in one process, PyTorch's
operators among them (beside PyTorch), and the order rotates. Nothing rests in between: on x86-64 OpenMP's threads spin for
milliseconds after each of PyTorch's operators, and ours meets them as it does in training. `--alone` times ours and the copy in a
process that never loads PyTorch. `threads` says who ran a problem: its caller, or so many threads of our own or of PyTorch's OpenMP.

`x` columns are the median over the rounds of PyTorch's time divided by ours in the same round: above 1 we are faster. GB/s counts the bytes
that any implementation must move (inputs once, output once), and `of copy` compares with a plain copy timed in the same rounds,
which moves as many bytes; where elements do not lie side by side (`sliced`) that counts what lies between
them too, as memory moves whole lines (64 bytes here, 32 on a GPU). `of round` is the throughput at an odd size over that at the
round size beside it, both ours into `out=` and timed in the same rounds. `torch.compile` is the formula compiled,
`torch.compile ops` the operators that autograd would run, compiled.

Results are checked before they are timed, against the float64 reference. A `!` marks a case during which other processes took cores from
the benchmark: do not trust its ratios. A `{INEXACT}` marks a comparison with a result of PyTorch's that failed the check that ours passed.

Some machines change their speed. In every round of calls that change, of modules and of replaced operators a yardstick is timed too, a fixed loop
in Python. A case whose yardstick took more than {TOLERATED} times what it took at best in the run, or that had a `!`, was timed again later, up to {AGAIN} times (and all
of them in no more time than the first attempts took, or `--again` allows). Of its attempts the one without a `!` and with the quickest
yardstick is told, whatever was measured in it. A `{SLOW}` marks a case that stayed slow: compare what was timed in it, not its times with those of others.

Short tables count every variant and dtype, allocating and into `out=`, beside PyTorch's way of the same kind.
"""


class Section(NamedTuple):
    """A part of the page: Markdown below a heading."""

    level: int
    title: str
    text: str
    long: bool = False  # every case
    machine: bool = False  # introduces one


def markdown(reports: Iterable[dict[str, Any]], every_case_in: str = "") -> str:
    """The page from the results of any number of runs; the long tables only where no file has them instead."""
    parts = []
    for section in sections(reports):
        if not (section.long and every_case_in):
            own = [WRITTEN, section.text] if section.level == 1 else [section.text]
            parts += [f"{'#' * section.level} {section.title}\n", *own]
        if section.level == 1 and every_case_in:
            parts += [f"Every case is in [{every_case_in}]({every_case_in}).\n"]
    return "\n".join(parts)


def sections(reports: Iterable[dict[str, Any]]) -> Iterator[Section]:
    """The introduction, each machine in short, then every case of each."""
    machines = merged(reports)
    yield Section(1, "Benchmarks", INTRODUCTION)
    for results in machines:
        yield Section(2, name_of(results), _preface(results), machine=True)
        for title, text in _in_short(results):
            yield Section(3, title, text)
    for results in machines:
        if results["rows"]:
            text = "\n".join([_commands(results["commands"]), *_every_case(results["rows"])])
            yield Section(2, f"Every case: {name_of(results)}", text, long=True)


def _preface(results: dict[str, Any]) -> str:
    machine, versions = results["machine"], results["versions"]
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    facts = ", ".join(f"{name} {value}" for name, value in machine.items() if value is not None)
    engines = "; ".join(f"{name}: {state}" for name, state in results["engines"].items())
    copied = results["copy_gbps"]
    return "\n".join(
        [
            f"- machine: {facts}",
            f"- threads: {results['threads']}",
            f"- versions: {listed}",
            f"- engines: {engines}",
            *([f"- fastest copy: {number(copied, 1)} GB/s, read and written bytes together"] if copied else []),
            *(f"- **{noise}**" for noise in disturbed(results)),
            f"- date: {', '.join(results['dates'])}",
            _commands(results["commands"]),
        ]
    )  # fmt: skip


def _commands(commands: Iterable[str]) -> str:
    return "\n".join(f"- command: `{command}`" for command in commands) + "\n"


def _in_short(results: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Titles and text."""
    rows = results["rows"]
    tables = [
        (each.title, markdown_table(each.headings, 2, each.lines)) for each in short_tables(rows)
    ]
    if counts(rows):
        title, text = tables.pop()
        listed = "\n".join(f"- {line}" for line in closest(rows))
        tables.append((title, f"{text}\n{counts(rows)}. The closest:\n\n{listed}\n"))
    yield from tables
    if results["calls"]:
        yield "Calls that change", calls_markdown(results["calls"])
    yield from training_markdown(results["training"])
    if results["overrides"]:
        yield TITLE, overrides_markdown(results["overrides"])
    yield from process_markdown(results)


def _every_case(rows: Sequence[Row]) -> Iterator[str]:
    for operator, own in by_operator(rows):
        yield f"### {operator}\n"
        yield _commands(dict.fromkeys(narrowed(row["command"], operator) for row in own))
        yield _speed_table(own)
        if notes(own):
            yield "\n".join(f"- {note}" for note in notes(own)) + "\n"


def _speed_table(rows: list[Row]) -> str:
    names = peers_of(rows)
    headings = [
        "variant", "regime", "shape", "dtype", "threads", "ours", "time", "quartiles", "GB/s", "of copy",
        "of round", *names, *(f"x {peer}" for peer in names),
    ]  # fmt: skip
    lines = []
    for (case, _), group in groupby(rows, key=lambda row: (case_of(row), row["threads"])):
        members = list(group)
        peers = {row["contender"]: duration(row.get("median_us")) for row in members}
        for row in (row for row in members if row["ours"]):
            start = [*case, threads_of(row), row["contender"]]
            if row["status"] != "ok":
                lines.append([*start, f"**{row['status']}**", *["-"] * (len(headings) - 7)])
                continue
            lines.append(
                [*start, duration(row["median_us"]), f"{duration(row['q1_us'])} .. {duration(row['q3_us'])}",
                 number(row["gbps"], 1), number(row["of_copy"]), number(row["of_round"]),
                 *(peers.get(peer, "-") for peer in names), *(ratio_to(row, peer) for peer in names)]
            )  # fmt: skip
    return markdown_table(headings, 6, lines)
