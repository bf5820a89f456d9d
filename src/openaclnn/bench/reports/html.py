"""The report: one HTML file with the machine, the pictures and the tables of the page, and nothing from outside."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from typing import Any

from openaclnn.bench.reports.page import sections
from openaclnn.testing.extras import need

__all__ = ["report_page"]

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 78rem; margin: 2rem auto; padding: 0 1rem; }}
h1, h2, h3 {{ line-height: 1.2; }}
h2 {{ margin-top: 2.5rem; border-bottom: 1px solid #8886; }}
img {{ max-width: 100%; height: auto; background: #fff; border-radius: 4px; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 13px; margin: 0.8rem 0; }}
th, td {{ padding: 0.2rem 0.6rem; border-bottom: 1px solid #8884; white-space: nowrap; }}
td {{ font-variant-numeric: tabular-nums; }}
code {{ font-size: 90%; }}
summary {{ cursor: pointer; font-size: 1.2rem; font-weight: 600; margin: 1rem 0; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def report_page(reports: Iterable[dict[str, Any]], drawn: Sequence[dict[str, bytes]]) -> str:
    """The report on the results of any number of runs, with the pictures of each machine."""
    render = (
        need("markdown_it", "reports are rendered by markdown-it-py")
        .MarkdownIt("commonmark", {"html": False})
        .enable("table")
        .render
    )
    parts: list[str] = []
    title = ""
    own = iter(drawn)
    for section in sections(reports):
        text = render(section.text)
        text = text.replace("<table>", '<div class="wide"><table>')
        text = text.replace("</table>", "</table></div>")
        if section.long:
            heading = html.escape(section.title)
            parts.append(f"<details><summary>{heading}</summary>\n{text}</details>")
            continue
        parts.append(f"<h{section.level}>{html.escape(section.title)}</h{section.level}>\n{text}")
        title = title or section.title
        if section.machine:
            parts += [_image(name, data) for name, data in next(own).items()]
    return _PAGE.format(title=html.escape(title), body="\n".join(parts))


def _image(name: str, data: bytes) -> str:
    inside = base64.b64encode(data).decode("ascii")
    return f'<p><img alt="{html.escape(name)}" src="data:image/png;base64,{inside}"></p>'
