"""The text of `docs/benchmarks.md`: each machine in short, then every case of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from benchmarks.calls_report import calls_markdown
from benchmarks.cells import (
    INEXACT,
    Row,
    by_operator,
    case_of,
    duration,
    markdown_table,
    notes,
    number,
    peers_of,
    ratio_to,
    size,
    threads_of,
)
from benchmarks.merge import merged, narrowed
from benchmarks.report import disturbed
from benchmarks.summary import closest, counts, short_tables

__all__ = ["markdown"]

INTRODUCTION = f"""# Benchmarks

Written by `python -m benchmarks --report RESULTS.json ... --markdown docs/benchmarks.md`; do not edit.

Times are per call, the median and the quartiles of the rounds. In each round every contender takes its turn in one process, PyTorch's
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

Short tables count every variant and dtype, allocating and into `out=`, beside PyTorch's way of the same kind.
"""


def markdown(reports: Iterable[dict[str, Any]], every_case_in: str = "") -> str:
    """The page from the results of any number of runs; the long tables only where no file has them instead."""
    machines = merged(reports)
    parts = [INTRODUCTION]
    if every_case_in:
        parts += [f"Every case is in [{every_case_in}]({every_case_in}).\n"]
    for results in machines:
        parts += [f"## {_name(results)}\n", _preface(results), *_in_short(results)]
    for results in machines if not every_case_in else ():
        if results["rows"]:
            parts += [f"## Every case: {_name(results)}\n", _commands(results["commands"])]
            parts += _every_case(results["rows"])
    return "\n".join(parts)


def _name(results: dict[str, Any]) -> str:
    machine = results["machine"]
    gpu = machine.get("gpu")
    return gpu or f"{machine['cpu']}, {machine['cores']} cores, {results['mode']}"


def _preface(results: dict[str, Any]) -> str:
    machine, versions = results["machine"], results["versions"]
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    facts = ", ".join(f"{name} {value}" for name, value in machine.items() if value is not None)
    engines = "; ".join(f"{name}: {state}" for name, state in results["engines"].items())
    copied, noise = results["copy_gbps"], disturbed(results)
    return "\n".join(
        [
            f"- machine: {facts}",
            f"- threads: {results['threads']}",
            f"- versions: {listed}",
            f"- engines: {engines}",
            *([f"- fastest copy: {number(copied, 1)} GB/s, read and written bytes together"] if copied else []),
            *([f"- **{noise}**"] if noise else []),
            f"- date: {', '.join(results['dates'])}",
            _commands(results["commands"]),
        ]
    )  # fmt: skip


def _commands(commands: Iterable[str]) -> str:
    return "\n".join(f"- command: `{command}`" for command in commands) + "\n"


def _in_short(results: dict[str, Any]) -> Iterator[str]:
    rows = results["rows"]
    for title, headings, lines in short_tables(rows):
        yield f"### {title}\n"
        yield markdown_table(headings, 2, lines)
    if counts(rows):
        yield f"{counts(rows)}. The closest:\n"
        yield "\n".join(f"- {line}" for line in closest(rows)) + "\n"
    if results["calls"]:
        yield "### Calls that change\n"
        yield calls_markdown(results["calls"])
    if results["first_calls"]:
        yield "### First call in a fresh process\n"
        yield _first_call_table(results)
    if results["memory"]:
        yield "### Memory beyond arguments and output\n"
        yield _memory_table(results)


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


def _first_call_table(results: dict[str, Any]) -> str:
    headings = ["operator", "shape", "contender", "cache", "import", "first call", "later calls"]
    lines = [
        [row["operator"], size(row["shape"]), row["contender"], row["cache"]]
        + (
            [row["note"], "-", "-"]
            if "note" in row
            else [
                f"{row['import_s']:.2f} s",
                duration(row["first_ms"] * 1e3) + (" !" if row["disturbed"] else ""),
                duration(row["again_ms"] * 1e3),
            ]
        )
        for row in results["first_calls"]
    ]
    return markdown_table(headings, 4, lines)


def _memory_table(results: dict[str, Any]) -> str:
    """A call that allocates its result needs the output's size; into `out=` nothing is the right answer."""
    headings = ["operator", "shape", "contender", "MiB above what was there"]
    lines = [
        [row["operator"], size(row["shape"]), row["contender"],
         row["note"] if "note" in row else f"{row['extra_bytes'] / 2**20:.1f}"]
        for row in results["memory"]
    ]  # fmt: skip
    return markdown_table(headings, 3, lines)
