"""Results as somebody reads them: tables on the terminal, the page for docs/, one HTML file with pictures, and every timing as CSV."""

from __future__ import annotations

import base64
import csv
import html
import io
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from openaclnn.bench import tables
from openaclnn.bench.calls import CHANGES
from openaclnn.bench.tables import Table
from openaclnn.bench.timing import AGAIN, TOLERATED
from openaclnn.testing.extras import need


def terminal_tables(results: dict[str, Any]) -> Iterator[Table]:
    """One table for each operator, those of the other sections, and all in short where that is several cases."""
    rows = results["rows"]
    for operator, members in tables.by_operator(rows):
        yield tables.speed_table(operator, members, page=False)
    yield from tables.section_tables(results, page=False)
    if len({(row["operator"], *tables.case_of(row)) for row in rows}) > 1:
        yield from tables.short_tables(rows)


WRITTEN = "Written by `openaclnn bench --from RESULTS.json ... --markdown PAGE.md`; do not edit.\n"


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
            heading = f"{'#' * section.level} {section.title}\n"
            parts += [heading, *([WRITTEN] if section.level == 1 else []), section.text]
        if section.level == 1 and every_case_in:
            parts += [f"Every case is in [{every_case_in}]({every_case_in}).\n"]
    return "\n".join(parts)


def sections(reports: Iterable[dict[str, Any]]) -> Iterator[Section]:
    """The introduction, each machine in short, then every case of each."""
    machines = tables.merged(reports)
    prose = _prose()
    yield Section(1, "Benchmarks", prose["Benchmarks"])
    for results in machines:
        rows = results["rows"]
        yield Section(2, tables.name_of(results), _preface(results), machine=True)
        short = [Section(3, table.title, table.markdown()) for table in tables.short_tables(rows)]
        if tables.counts(rows):
            listed = "\n".join(f"- {line}" for line in tables.closest(rows))
            text = f"{short[-1].text}\n{tables.counts(rows)}. The closest:\n\n{listed}\n"
            short[-1] = short[-1]._replace(text=text)
        yield from short
        for table in tables.section_tables(results, page=True):
            yield Section(3, table.title, prose.get(table.title, "") + table.markdown())
    for results in machines:
        if results["rows"]:
            parts = [_commands(results["commands"])]
            for operator, rows in tables.by_operator(results["rows"]):
                commands = dict.fromkeys(tables.narrowed(row["command"], operator) for row in rows)
                parts += [f"### {operator}\n", _commands(commands)]
                parts += [tables.speed_table(operator, rows, page=True).markdown()]
            yield Section(2, f"Every case: {tables.name_of(results)}", "\n".join(parts), long=True)


def _text(name: str) -> str:
    """A file beside this one."""
    return (files("openaclnn.bench") / name).read_text(encoding="utf-8")


def _prose() -> dict[str, str]:
    """What the page says above its tables, by their titles."""
    regimes = "\n".join(f"- {regime.name}: {regime.reason}" for regime in CHANGES)
    marks = {"inexact": tables.INEXACT, "slow": tables.SLOW, "tolerated": TOLERATED, "again": AGAIN}
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
            _commands(results["commands"]),
        ]
    )  # fmt: skip


def _commands(commands: Iterable[str]) -> str:
    return "\n".join(f"- command: `{command}`" for command in commands) + "\n"


def report_page(reports: Iterable[dict[str, Any]], drawn: Sequence[dict[str, bytes]]) -> str:
    """One HTML file with the page and the pictures of each machine, and nothing from outside."""
    markdown_it = need("markdown_it", "reports are rendered by markdown-it-py")
    render = markdown_it.MarkdownIt("commonmark", {"html": False}).enable("table").render
    parts: list[str] = []
    pictures = iter(drawn)
    for section in sections(reports):
        text = render(section.text).replace("<table>", '<div class="wide"><table>')
        text = text.replace("</table>", "</table></div>")
        heading = html.escape(section.title)
        if section.long:
            parts.append(f"<details><summary>{heading}</summary>\n{text}</details>")
            continue
        parts.append(f"<h{section.level}>{heading}</h{section.level}>\n{text}")
        if section.machine:
            parts += [_image(name, data) for name, data in next(pictures).items()]
    return _text("report.html").replace("{body}", "\n".join(parts))


def _image(name: str, data: bytes) -> str:
    inside = base64.b64encode(data).decode("ascii")
    return f'<p><img alt="{html.escape(name)}" src="data:image/png;base64,{inside}"></p>'


_ABOUT = (
    "operator", "variant", "regime", "layout", "dtype", "threads", "team", "contender", "status",
    "disturbed", "slow", "median_us", "q1_us", "q3_us", "minimum_us", "host_us", "rounds", "inner", "gbps", "of_copy",
    "of_round",
)  # fmt: skip


def sheet(reports: Iterable[dict[str, Any]]) -> str:
    """Every timing as CSV, a line for each contender of each case."""
    target = io.StringIO()
    ratios = {f"x {peer}": peer for peer in tables.SPEED_PEERS}
    names = ("machine", "mode", "date", "shape", "round shape", *_ABOUT, *ratios, "note")
    lines = csv.DictWriter(target, names, lineterminator="\n")
    lines.writeheader()
    for results in reports:
        where = results["machine"].get("gpu") or results["machine"]["cpu"]
        common = {"machine": where, "mode": results["mode"], "date": results["date"]}
        for row in (*results["rows"], *results.get("overrides", ())):
            cells = {name: row.get(name) for name in (*_ABOUT, "note")}
            cells |= {name: row["ratios"].get(peer) for name, peer in ratios.items()}
            cells |= {"shape": tables.size(row["shape"]), "round shape": tables.size(row["near"])}
            rounded = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in cells.items()}  # fmt: skip
            lines.writerow(common | rounded)
    return target.getvalue()
