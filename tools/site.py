"""What MkDocs asks us while it builds the site: operator pages are made from the declarations, the guide for
contributors and the changelog come from the project's root, and pages that the navigation forgot stand under "More". Search's index is a script too,
which pages from disk can load.

A page's links are those of its file in the project, so that they lead somewhere on a forge too; `on_page_markdown` turns them to the site's."""

from __future__ import annotations

import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import openaclnn

PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(PROJECT))

from openaclnn.explorer.chinese import UntranslatedError, missing  # noqa: E402
from tools.pages import index_page, operator_page  # noqa: E402
from tools.speed import tables_of  # noqa: E402

ROOT_PAGES = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
FOLDERS = {"operators": False, "zh/operators": True}
"""Where operator pages stand, and whether they are Chinese."""

CHINESE = {
    '<html lang="en"': '<html lang="zh"', 'placeholder="Search"': 'placeholder="搜索"', "Table of contents": "目录",
    "Back to top": "回到顶部", "Skip to content": "跳到正文", "Copy to clipboard": "复制", "Initializing search": "正在准备搜索",
    'title="Dark"': 'title="深色"', 'title="Light"': 'title="浅色"', 'title="As the system"': 'title="跟随系统"',
}  # fmt: skip
"""What the theme says around a Chinese page."""

TRANSLATED = {"quickstart.md": "zh/index.md"} | {
    f"{name}.md": f"zh/{name}.md" for name in ("vendor-example", "testing", "sanitizer", "products", "faq")
}  # fmt: skip
"""Guides in both languages; operator pages all are."""

NAMED = os.environ.get("SITE_OPERATORS", "").split()
"""The operators that have pages, by their Python names; without a word, all. Tests look at a few."""

WHICH = "Which function do I need"
"""The page of all operators: a file of the project can name it, not link to it."""


def operators() -> list[Any]:
    """Those that have pages."""
    return [
        each for each in openaclnn.registry() if each.python_name in (NAMED or each.python_name)
    ]


def generated() -> dict[str, str]:
    """The pages that are in no file of docs/, by their place."""
    pages = {
        place: (PROJECT / name).read_text(encoding="utf-8") for place, name in ROOT_PAGES.items()
    }
    if lacking := [text for operator in operators() for text in missing(operator)]:
        raise UntranslatedError(*dict.fromkeys(lacking))
    for folder, zh in FOLDERS.items():
        pages[f"{folder}/index.md"] = index_page(operators(), zh)
        for operator in operators():
            pages[f"{folder}/{operator.python_name}.md"] = operator_page(operator, zh)
    return pages


def on_config(config: Any) -> Any:
    """Operators join the navigation where it has their folder; pages that it lacks come last."""
    for folder in FOLDERS:
        section = _section(config.nav, f"{folder}/index.md")
        section += [{each.name: f"{folder}/{each.python_name}.md"} for each in operators()]
    listed = set(_places(config.nav))
    own = Path(config.docs_dir)
    found = sorted(str(path.relative_to(own).as_posix()) for path in own.rglob("*.md"))
    more = [place for place in found if place not in listed]
    if more:
        config.nav.append({"More": more})
    return config


def _section(entries: list[Any], place: str) -> list[Any]:
    """The innermost list that has a place."""
    for entry in entries:
        inside = next(iter(entry.values())) if isinstance(entry, dict) else entry
        if inside == place:
            return entries
        if isinstance(inside, list) and place in _places(inside):
            return _section(inside, place)
    raise ValueError(f"mkdocs.yml: the navigation lacks {place}")


def _places(entries: list[Any]) -> list[str]:
    places: list[str] = []
    for entry in entries:
        inside = next(iter(entry.values())) if isinstance(entry, dict) else entry
        places += _places(inside) if isinstance(inside, list) else [inside]
    return places


def on_files(files: Files, config: Any) -> Files:
    """Add what is generated."""
    for place, text in generated().items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Names in tables may break after an underscore or a point, so that tables of many columns fit. Code with arrows is a diagram, whose
    lines do not wrap."""

    def breakable(cell: re.Match[str]) -> str:
        return re.sub(r"(?<=[a-z0-9])[_.](?=[a-z])", r"\g<0><wbr>", cell[0])

    html = re.sub(r'<div class="highlight">(?=<pre>(?:(?!</pre>).)*(?:│|--&gt;))', '<div class="highlight diagram">', html, flags=re.S)  # fmt: skip
    return re.sub(r"(?<=>)[\w. ]+(?=</t[hd]>)", breakable, html)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Browsers choose fonts and read aloud by a page's language, and its frame speaks it."""
    if page.file.src_uri.startswith("zh/"):
        for english, chinese in CHINESE.items():
            output = output.replace(english, chinese)
    return output


def on_post_build(config: Any) -> None:
    """The theme loads search's index as a script where the page is from disk."""
    index = Path(config.site_dir, "search", "search_index.json")
    script = f"var __index = {index.read_text(encoding='utf-8')}"
    index.with_suffix(".js").write_text(script, encoding="utf-8")


def _other_language(place: str) -> str | None:
    """Where a page stands in the other language, if it does."""
    if "operators/" in place:
        return place.removeprefix("zh/") if place.startswith("zh/") else f"zh/{place}"
    return (TRANSLATED | {chinese: english for english, chinese in TRANSLATED.items()}).get(place)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Tables that a page only names are made; links to the pages of the project's root, and from them, lead to where these stand in the site.
    Pages that are one wide table have the room of the list of their headings, too."""
    place = page.file.src_uri
    if place.endswith("operators/index.md") or place.startswith("benchmarks-"):
        page.meta["hide"] = ["toc"]
    if place == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    folder = posixpath.dirname(ROOT_PAGES.get(place, f"docs/{place}"))
    there = {name: site for site, name in ROOT_PAGES.items()}

    def turned(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        found = there.get(target) or target.removeprefix("docs/")
        return f"]({posixpath.relpath(found, posixpath.dirname(place) or '.')}"

    tables = re.sub(
        r"^<!-- table: (.*) -->$", lambda named: tables_of(named[1]), markdown, flags=re.M
    )
    nested = re.sub(
        r"^ {2,3}(?=- )", "    ", tables, flags=re.M
    )  # MkDocs wants four spaces, forges fewer
    turned_links = re.sub(r"\]\(([^)#:]+\.md)", turned, nested)
    if other := _other_language(place):
        name = "English" if place.startswith("zh/") else "中文"
        link = (
            f"[{name}]({posixpath.relpath(other, posixpath.dirname(place) or '.')}){{ .language }}"
        )
        turned_links = f"{link}\n\n{turned_links}"
    return turned_links.replace(f"*{WHICH}*", f"[{WHICH}](operators/index.md)")
