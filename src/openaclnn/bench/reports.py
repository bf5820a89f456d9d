"""Results as somebody reads them: tables on the terminal, the page for docs/, one HTML file with pictures, and every timing as CSV."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Any

from openaclnn.bench import tables
from openaclnn.bench.calls import CHANGES
from openaclnn.bench.tables import Table
from openaclnn.testing.extras import need


def terminal_tables(results: dict[str, Any]) -> Iterator[Table]:
    """Those of all sections, and all operators in short where that is several cases."""
    yield from tables.section_tables(results, page=False)
    rows = results["rows"]
    if len(tables.grouped(rows, "operator", "case")) > 1:
        yield from tables.short_tables(rows)


WRITTEN = "Written by `openaclnn bench --from RESULTS.json ... --markdown PAGE.md`; do not edit.\n"


def markdown(reports: Iterable[dict[str, Any]], every_case_in: str = "") -> str:
    """The page from the results of any number of runs; it names the file that has every case."""
    listed = f"Every case is in [{every_case_in}]({every_case_in}).\n\n" if every_case_in else ""
    introduction = _prose()["Benchmarks"]
    return f"# Benchmarks\n\n{WRITTEN}\n{introduction}{listed}{_machines(reports)}"


def report_page(reports: Iterable[dict[str, Any]], drawn: Sequence[dict[str, bytes]]) -> str:
    """The same as one HTML file, with the pictures of each machine and nothing from outside."""
    markdown_it = need("markdown_it", "reports are rendered by markdown-it-py")
    render = markdown_it.MarkdownIt("commonmark", {"html": False}).enable("table").render
    wide = r'<div class="wide" tabindex="0">\g<0></div>'
    body = re.sub(
        r"(?s)<table>.*?</table>|<p><img[^>]*></p>", wide, render(_machines(reports, drawn))
    )
    body = re.sub(r"(?<=<th)[^<]+", lambda match: match[0].replace("_", "_<wbr>"), body)
    page = _text("report.html").replace("{introduction}", render(_prose()["Benchmarks"]))
    return page.replace("{body}", body)


def _machines(reports: Iterable[dict[str, Any]], drawn: Sequence[dict[str, bytes]] = ()) -> str:
    """Each machine in short, as Markdown."""
    parts, prose = [], _prose()
    for place, results in enumerate(tables.merged(reports)):
        rows, pictures = results["rows"], drawn[place] if drawn else {}
        parts += [f"## {tables.name_of(results)}\n", _preface(results)]
        parts += [
            f"![{name}](data:image/png;base64,{base64.b64encode(data).decode()})\n"
            for name, data in pictures.items()
        ]
        parts += [f"### {table.title}\n\n{table.markdown()}" for table in tables.short_tables(rows)]
        if tables.counts(rows):
            parts += [
                f"{tables.counts(rows)}. The closest:\n",
                *(f"- {line}" for line in tables.closest(rows)),
                "",
            ]
        for table in tables.section_tables(results, page=True):
            # What is said above a table holds for that of the next machine, too.
            parts.append(f"### {table.title}\n\n{prose.pop(table.title, '')}{table.markdown()}")
    return "\n".join(parts)


def _text(name: str) -> str:
    """A file beside this one."""
    return (files("openaclnn.bench") / name).read_text(encoding="utf-8")


def _prose() -> dict[str, str]:
    """What the page says above its tables, by their titles."""
    regimes = "\n".join(f"- {regime.name}: {regime.reason}" for regime in CHANGES)
    marks = {"inexact": tables.INEXACT, "slow": tables.SLOW}
    parts = _text("page.md").format(regimes=regimes, **marks).removeprefix("# ").split("\n# ")
    return {
        title: f"{text.strip()}\n\n" for title, _, text in (part.partition("\n") for part in parts)
    }


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
            *([f"- fastest copy: {tables.number(copied, 1)} GB/s, read and written bytes together"] if copied else []),
            *(f"- **{noise}**" for noise in tables.disturbances(results)),
            f"- date: {', '.join(results['dates'])}",
            *(f"- command: `{command}`" for command in results["commands"]),
        ]
    ) + "\n"  # fmt: skip


_ABOUT = (
    "operator", "variant", "regime", "layout", "dtype", "threads", "team", "contender", "status",
    "disturbed", "slow", "median_us", "q1_us", "q3_us", "minimum_us", "host_us", "rounds", "inner", "gbps", "of_copy",
    "of_round", "of_same", "extra_bytes",
)  # fmt: skip


def sheet(reports: Sequence[dict[str, Any]]) -> str:
    """Every timing as CSV, a line for each contender of each case."""
    target = io.StringIO()
    every = [(results, row) for results in reports for row in tables.timed_rows(results)]
    ratios = dict.fromkeys(f"x {peer}" for _, row in every for peer in row["ratios"])
    names = ("machine", "mode", "date", "shape", "round shape", *_ABOUT, *ratios, "note")
    lines = csv.DictWriter(target, names, extrasaction="ignore", lineterminator="\n")
    lines.writeheader()
    for results, row in every:
        cells = row | {f"x {peer}": ratio for peer, ratio in row["ratios"].items()}
        cells |= {name: f"{value:.4g}" for name, value in cells.items() if isinstance(value, float)}
        lines.writerow(cells | {
            "machine": results["machine"].get("gpu") or results["machine"]["cpu"], "mode": results["mode"],
            "date": results["date"], "shape": tables.size(row["shape"]), "round shape": tables.size(row.get("near", ())),
        })  # fmt: skip
    return target.getvalue()
