"""The site: operator pages are true in both languages, it builds, and it shows nothing from elsewhere."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tools.pages import index_page, operator_page

import openaclnn
from openaclnn.core.declare import Operator
from openaclnn.core.products import PRODUCTS
from openaclnn.explorer.chinese import UntranslatedError, chinese, missing

PROJECT = Path(__file__).parent.parent


def test_every_sentence_has_its_chinese_form() -> None:
    lacking = {each.name: missing(each) for each in openaclnn.registry() if missing(each)}
    assert lacking == {}, "chinese.toml lacks these"


def test_what_has_no_chinese_form_is_named() -> None:
    told = r"^chinese\.toml has no Chinese form of\n  'a thing that nobody says'$"
    with pytest.raises(UntranslatedError, match=told):
        chinese("a thing that nobody says")
    assert chinese("(N, C)") == "(N, C)"
    assert chinese("that of gradOutput") == "与 gradOutput 相同"


@pytest.mark.parametrize("zh", [False, True], ids=["en", "zh"])
def test_pages_have_all_that_the_declarations_say(zh: bool) -> None:
    say = chinese if zh else str
    listed = index_page(openaclnn.registry(), zh)
    for operator in openaclnn.registry():
        if missing(operator) and zh:
            continue
        page = operator_page(operator, zh)
        assert f"[{operator.name}]({operator.python_name}.md)" in listed
        assert say(operator.summary) in page
        assert operator.header in page
        assert operator.signature() in page
        for parameter in operator.parameters:
            line = next(x for x in page.splitlines() if x.startswith(f"| `{parameter.name}` |"))
            assert say(parameter.text) in line
            assert (say(parameter.shape) if parameter.shape else "") in line
            assert all(dtype.name in line for dtype in parameter.dtypes)
        for product in PRODUCTS:
            line = next(x for x in page.splitlines() if x.startswith(f"| `{product.tag}` |"))
            dtypes = ", ".join(dtype.name for dtype in operator.dtypes_on(product))
            assert line.endswith(f"| {dtypes or say('not supported')} |")
        rules = [f"| {c.number} | {int(c.status)} `" for c in operator.checks]
        found = [x for x in page.splitlines() if re.match(r"\| \d+[a-z]? \| \d+ `", x)]
        assert [x.startswith(start) for x, start in zip(found, rules, strict=True)]
        assert all(x.endswith(f"| {say(c.rule)} |") for x, c in zip(found, operator.checks, strict=True))  # fmt: skip


def test_examples_of_operator_pages_run() -> None:
    flags = doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(optionflags=flags, verbose=False)
    for operator in openaclnn.registry():
        blocks = re.findall(r"^```pycon\n(.*?)^```", operator_page(operator), re.M | re.S)
        text = "\n".join(re.sub(r"^\n", "<BLANKLINE>\n", block, flags=re.M) for block in blocks)
        test = doctest.DocTestParser().get_doctest(text, {}, operator.name, None, 0)
        assert len(test.examples) == 2 * len(operator.samples)
        with np.printoptions(precision=8):
            runner.run(test)
    assert runner.summarize().failed == 0


def pages_of(operators: tuple[Operator, ...]) -> set[str]:
    names = {"index", *(each.python_name for each in operators)}
    return {f"{folder}operators/{name}.html" for folder in ("", "zh/") for name in names}


def test_the_site_builds_and_shows_nothing_from_elsewhere(tmp_path: Path) -> None:
    """By the very command of `make docs`."""
    pytest.importorskip("mkdocs", reason="the site is built by MkDocs")
    pytest.importorskip("material", reason="the site's theme is Material")
    makefile = (PROJECT / "Makefile").read_text()
    (command,) = re.findall(r"^docs:.*\n\t(.*)$", makefile, re.M)
    done = subprocess.run(
        ["sh", "-c", f"{command.replace('$(BIN)/python', sys.executable)} --site-dir {tmp_path}"],
        cwd=PROJECT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    built = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.html")}
    assert pages_of(openaclnn.registry()) <= built
    written = {p.relative_to(PROJECT / "docs") for p in (PROJECT / "docs").rglob("*.md")}
    assert {str(path.with_suffix(".html")) for path in written} <= built
    for path in tmp_path.rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?([^\"\s>]+)", path.read_text())  # fmt: skip
        assert [target for target in loaded if "//" in target] == [], path
    for path in tmp_path.rglob("*.css"):
        assert not re.search(r"url\(\"?(https?:)?//|@import \"?(https?:)?//", path.read_text())
