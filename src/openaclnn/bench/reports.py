"""Results as somebody reads them: tables on the terminal, the page for docs/, one HTML file with pictures, and every timing as CSV."""

from __future__ import annotations

import base64
import csv
import html
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

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


class Section(NamedTuple):
    """A part of the page: Markdown below a heading."""

    level: int
    title: str
    text: str
    machine: bool = False  # introduces one


def markdown(reports: Iterable[dict[str, Any]], every_case_in: str = "") -> str:
    """The page from the results of any number of runs; it names the file that has every case."""
    parts = []
    for section in sections(reports):
        parts += [f"{'#' * section.level} {section.title}\n", section.text]
        if section.level == 1:
            parts.insert(1, WRITTEN)
            if every_case_in:
                parts.append(f"Every case is in [{every_case_in}]({every_case_in}).\n")
    return "\n".join(parts)


def sections(reports: Iterable[dict[str, Any]]) -> Iterator[Section]:
    """The introduction, and each machine in short."""
    prose = _prose()
    yield Section(1, "Benchmarks", prose["Benchmarks"])
    for results in tables.merged(reports):
        rows = results["rows"]
        yield Section(2, tables.name_of(results), _preface(results), machine=True)
        short = [Section(3, table.title, table.markdown()) for table in tables.short_tables(rows)]
        if tables.counts(rows):
            listed = "\n".join(f"- {line}" for line in tables.closest(rows))
            text = f"{short[-1].text}\n{tables.counts(rows)}. The closest:\n\n{listed}\n"
            short[-1] = short[-1]._replace(text=text)
        yield from short
        for table in tables.section_tables(results, page=True):
            # What is said above a table holds for that of the next machine, too.
            yield Section(3, table.title, prose.pop(table.title, "") + table.markdown())


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


def report_page(reports: Iterable[dict[str, Any]], drawn: Sequence[dict[str, bytes]]) -> str:
    """One HTML file with the page and the pictures of each machine, and nothing from outside."""
    markdown_it = need("markdown_it", "reports are rendered by markdown-it-py")
    render = markdown_it.MarkdownIt("commonmark", {"html": False}).enable("table").render
    parts: list[str] = []
    pictures = iter(drawn)
    for section in sections(reports):
        text = render(section.text).replace("<table>", '<div class="wide" tabindex="0"><table>')
        text = text.replace("</table>", "</table></div>")
        text = re.sub(r"(?<=<th)[^<]+", lambda match: match[0].replace("_", "_<wbr>"), text)
        if section.level == 1:
            text = f"<details><summary>How to read the numbers</summary>\n{text}</details>\n"
        parts.append(f"<h{section.level}>{html.escape(section.title)}</h{section.level}>\n{text}")
        if section.machine:
            parts += [_image(name, data) for name, data in next(pictures).items()]
    return _text("report.html").replace("{body}", "\n".join(parts))


def _image(name: str, data: bytes) -> str:
    inside = base64.b64encode(data).decode("ascii")
    return f'<div class="wide" tabindex="0"><img alt="{html.escape(name)}" src="data:image/png;base64,{inside}"></div>'


_ABOUT = (
    "operator", "variant", "regime", "layout", "dtype", "threads", "team", "contender", "status",
    "disturbed", "slow", "median_us", "q1_us", "q3_us", "minimum_us", "host_us", "rounds", "inner", "gbps", "of_copy",
    "of_round", "of_same", "extra_bytes",
)  # fmt: skip


def sheet(reports: Sequence[dict[str, Any]]) -> str:
    """Every timing as CSV, a line for each contender of each case."""
    target = io.StringIO()
    every = [row for results in reports for row in tables.timed_rows(results)]
    ratios = {f"x {peer}": peer for peer in dict.fromkeys(peer for row in every for peer in row["ratios"])}  # fmt: skip
    names = ("machine", "mode", "date", "shape", "round shape", *_ABOUT, *ratios, "note")
    lines = csv.DictWriter(target, names, lineterminator="\n")
    lines.writeheader()
    for results in reports:
        where = results["machine"].get("gpu") or results["machine"]["cpu"]
        common = {"machine": where, "mode": results["mode"], "date": results["date"]}
        for row in tables.timed_rows(results):
            cells = {name: row.get(name) for name in (*_ABOUT, "note")}
            cells |= {name: row["ratios"].get(peer) for name, peer in ratios.items()}
            cells |= {
                "shape": tables.size(row["shape"]),
                "round shape": tables.size(row.get("near", ())),
            }
            rounded = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in cells.items()}  # fmt: skip
            lines.writerow(common | rounded)
    return target.getvalue()
