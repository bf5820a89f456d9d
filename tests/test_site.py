"""The site: operator pages are true in both languages, it builds, and it shows nothing from elsewhere."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tools.pages import index_page, operator_page

import openaclnn
from browser import NARROW, WIDE, Window, looks, missing as no_browser, started
from conftest import families
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
    assert chinese("same as gradOutput") == "与 gradOutput 相同"


@pytest.mark.parametrize("zh", [False, True], ids=["en", "zh"])
def test_pages_have_all_that_the_declarations_say(zh: bool) -> None:
    say = chinese if zh else str
    listed = index_page(openaclnn.registry(), zh)
    for operator in openaclnn.registry():
        if missing(operator) and zh:
            continue
        page = operator_page(operator, zh)
        assert f"[{operator.name}]({operator.python_name}.md)<br>`{operator.python_name}`" in listed
        assert f"| `{operator.aten}`" in listed or not operator.aten
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
        lines = [x for x in page.splitlines() if re.match(r"\| \d+[a-z]? \| \d+ `", x)]
        assert [x.startswith(start) for x, start in zip(lines, rules, strict=True)]
        assert all(x.endswith(f"| {say(c.rule)} |") for x, c in zip(lines, operator.checks, strict=True))  # fmt: skip


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


LOOKED_FOR = (
    "elu",
    "elu_backward",
    "sigmoid_backward",
    "cross_entropy_loss",
    "softmax",
    "binary_cross_entropy",
)
BUILT = tuple(
    each
    for each in openaclnn.registry()
    if each.python_name in LOOKED_FOR or each in families(openaclnn.registry())[::6]
)
"""Operators with pages in the site that tests build: all pages are made alike, and each takes time."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the very command of `make docs`."""
    pytest.importorskip("mkdocs", reason="the site is built by MkDocs")
    pytest.importorskip("material", reason="the site's theme is Material")
    folder = tmp_path_factory.mktemp("site")
    makefile = (PROJECT / "Makefile").read_text()
    (command,) = re.findall(r"^docs:.*\n\t(.*)$", makefile, re.M)
    done = subprocess.run(
        ["sh", "-c", f"{command.replace('$(BIN)/python', sys.executable)} --site-dir {folder}"],
        cwd=PROJECT, capture_output=True, text=True, check=False,
        env=os.environ | {"SITE_OPERATORS": " ".join(each.python_name for each in BUILT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_the_site_shows_nothing_from_elsewhere(site: Path) -> None:
    built = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    assert pages_of(BUILT) <= built
    written = {p.relative_to(PROJECT / "docs") for p in (PROJECT / "docs").rglob("*.md")}
    assert {str(path.with_suffix(".html")) for path in written} <= built
    for path in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?([^\"\s>]+)", path.read_text())  # fmt: skip
        assert [target for target in loaded if "//" in target] == [], path
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(\"?(https?:)?//|@import \"?(https?:)?//", path.read_text())


class Reader(Window):
    """A window with pages of the site."""

    def open(self, site: Path, page: str, size: tuple[int, int] = WIDE, dark: bool = False) -> None:
        self.window(size, dark)
        self.driver.get((site / f"{page}.html").as_uri())

    def until(self, answer: str, *arguments: Any) -> Any:
        """What a script returns once it returns something."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, 20, 0.02).until(lambda _: self.run(answer, *arguments))

    def follows(self, scheme: str) -> None:
        """Until the page has taken the system's choice of light or dark."""
        self.until("return document.body.getAttribute('data-md-color-scheme') === arguments[0]", scheme)  # fmt: skip

    def typed(self, field: str, text: str, answer: str, *arguments: Any) -> list[str]:
        """What a script returns after a text was typed."""
        element = self.driver.find_element("css selector", field)
        self.run("arguments[0].focus(); arguments[0].value = ''", element)
        element.send_keys(text)
        return [str(each) for each in self.until(answer, *arguments)]


@pytest.fixture(scope="module")
def window() -> Iterator[Reader]:
    if reason := no_browser():
        pytest.skip(f"the site is not looked at: {reason}")
    with started() as driver:
        yield Reader(driver)


def test_search_works_from_disk_in_both_languages(site: Path, window: Reader) -> None:
    answer = """const links = [...document.querySelectorAll('.md-search-result__item > a')];
        return links.some(link => link.href.includes(arguments[0])) ? links.map(link => link.href) : null"""
    window.open(site, "index")
    for text, wanted in (
        ("梯度", "zh/operators/elu_backward.html"),
        ("指数线性单元", "zh/operators/elu.html"),
        ("logistic gradient", "operators/sigmoid_backward.html"),
    ):
        links = window.typed(".md-search__input", text, answer, wanted)
        assert (site / wanted).as_uri() in links


def test_the_page_of_functions_is_filtered_by_what_a_reader_has(site: Path, window: Reader) -> None:
    answer = """const shown = [...document.querySelectorAll('tbody tr:not([hidden]) a')];
        return document.querySelector('.filter + output').textContent && shown.map(link => link.textContent)"""
    window.open(site, "operators/index")
    for text, first, most in (
        ("torch.nn.functional.elu", "aclnnElu", 15),
        ("aclnnSoftmaxGetWorkspaceSize", "aclnnSoftmax", 5),
        ("nn.CrossEntropyLoss", "aclnnCrossEntropyLoss", 5),
        ("nn.BCELoss", "aclnnBinaryCrossEntropy", 2),
        ("max(log(self), -100)", "aclnnBinaryCrossEntropy", 2),
    ):
        shown = window.typed(".filter", text, answer)
        assert shown[0] == first
        assert len(shown) <= most


PAGES = {
    "home": "index", "start": "zh/index", "operator": "operators/elu_backward", "operator-zh": "zh/operators/elu_backward",
    "functions": "operators/index", "functions-zh": "zh/operators/index", "speed": "benchmarks", "errors": "faq",
    "errors-zh": "zh/faq", "large": "benchmarks-large", "calls": "benchmarks-calls", "products": "products",
}  # fmt: skip
PICTURED = 9
"""The first of the pages, which have pictures in both widths."""


def test_how_pages_look(site: Path, window: Reader) -> None:
    """No page is wider than the window; tables fit 1280 pixels, and scroll in boxes of their own where a page is narrower."""
    wide = """return [...document.querySelectorAll('.md-content table, .formula')].filter(
        each => each.scrollWidth > (each.closest('.md-typeset__scrollwrap') ?? each).clientWidth + 1).length"""
    for number, (name, page) in enumerate(PAGES.items()):
        window.open(site, page)
        for size, dark in looks(number):
            window.window(size, dark)
            window.follows("slate" if dark else "default")
            assert window.sideways() <= 0, (page, size)
            assert size is NARROW or window.run(wide) == 0, page
            if number < PICTURED:
                window.picture(f"site-{name}-{size[0]}-{'dark' if dark else 'light'}")


@pytest.mark.parametrize(
    ("name", "size", "dark"),
    [("home", WIDE, False), ("operator-zh", NARROW, True), ("functions", NARROW, False), ("errors-zh", WIDE, True)],
)  # fmt: skip
def test_no_serious_fault_for_assistive_technology(
    site: Path, window: Reader, name: str, size: tuple[int, int], dark: bool
) -> None:
    window.open(site, PAGES[name], size, dark)
    window.follows("slate" if dark else "default")
    assert window.faults() == []


def test_formulas_are_typeset() -> None:
    page = operator_page(openaclnn.find_operator("elu"))
    assert '<span class="case">if <var>x</var> ≤ 0; <var>x</var> = <var>self</var></span>' in page
    assert "<var>self</var><sup>3</sup>" in operator_page(openaclnn.find_operator("gelu"))
    grad = operator_page(openaclnn.find_operator("cross_entropy_loss_grad"))
    assert "<var>w</var>[<var>t</var><sub>i</sub>]" in grad
