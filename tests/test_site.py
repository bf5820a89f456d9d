"""The site: operator pages are true in both languages, it builds, and it shows nothing from elsewhere."""

from __future__ import annotations

import doctest
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
        assert f"| `{operator.aten}` |" in listed or not operator.aten
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
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_the_site_shows_nothing_from_elsewhere(site: Path) -> None:
    built = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    assert pages_of(openaclnn.registry()) <= built
    written = {p.relative_to(PROJECT / "docs") for p in (PROJECT / "docs").rglob("*.md")}
    assert {str(path.with_suffix(".html")) for path in written} <= built
    for path in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?([^\"\s>]+)", path.read_text())  # fmt: skip
        assert [target for target in loaded if "//" in target] == [], path
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(\"?(https?:)?//|@import \"?(https?:)?//", path.read_text())


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("the site is not looked at: no Chromium with its chromedriver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="Selenium drives the browser")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    service = webdriver.chrome.service.Service(driver)
    started = webdriver.Chrome(options=options, service=service)
    yield started
    started.quit()


def typed(browser: Any, field: str, text: str, answer: str) -> list[str]:
    """What a script returns once it returns something, after a text was typed."""
    from selenium.webdriver.support.ui import WebDriverWait

    found = browser.find_element("css selector", field)
    browser.execute_script("arguments[0].focus(); arguments[0].value = ''", found)
    found.send_keys(text)
    listed = WebDriverWait(browser, 20, 0.05).until(lambda _: browser.execute_script(answer))
    return [str(each) for each in listed]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("梯度", "zh/operators/elu_backward.html"),
        ("指数线性单元", "zh/operators/elu.html"),
        ("logistic gradient", "operators/sigmoid_backward.html"),
    ],
)
def test_search_works_from_disk_in_both_languages(
    site: Path, browser: Any, text: str, wanted: str
) -> None:
    browser.get((site / "index.html").as_uri())
    answer = """const links = [...document.querySelectorAll('.md-search-result__item > a')];
        return links.length ? links.map(link => link.href) : null"""
    assert (site / wanted).as_uri() in typed(browser, ".md-search__input", text, answer)


def test_the_page_of_functions_is_filtered_by_what_a_reader_has(site: Path, browser: Any) -> None:
    answer = """const shown = [...document.querySelectorAll('tbody tr:not([hidden]) a')];
        return document.querySelector('.filter + output').textContent && shown.map(link => link.textContent)"""
    for text, first, most in (
        ("torch.nn.functional.elu", "aclnnElu", 40),
        ("aclnnSoftmaxGetWorkspaceSize", "aclnnSoftmax", 5),
        ("nn.CrossEntropyLoss", "aclnnCrossEntropyLoss", 5),
        ("max(log(self), -100)", "aclnnBinaryCrossEntropy", 2),
    ):
        browser.get((site / "operators" / "index.html").as_uri())
        shown = typed(browser, ".filter", text, answer)
        assert shown[0] == first
        assert len(shown) <= most


@pytest.mark.parametrize("width", [390, 1280])
def test_pages_are_no_wider_than_the_window(site: Path, browser: Any, width: int) -> None:
    """Tables fit 1280 pixels, and scroll in boxes of their own where a page is narrower."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    wide = """return [...document.querySelectorAll('.md-content table, .formula')].filter(
        each => each.scrollWidth > (each.closest('.md-typeset__scrollwrap') ?? each).clientWidth + 1).length"""
    for page in ("index", "benchmarks", "benchmarks-large", "benchmarks-calls", "operators/index", "zh/operators/elu_backward"):  # fmt: skip
        browser.get((site / f"{page}.html").as_uri())
        root = "const root = document.documentElement; return root.scrollWidth - root.clientWidth"
        assert browser.execute_script(root) <= 0, page
        assert width < 1280 or browser.execute_script(wide) == 0, page


def test_formulas_are_typeset() -> None:
    page = operator_page(openaclnn.find_operator("elu"))
    assert '<span class="case">if <var>x</var> ≤ 0; <var>x</var> = <var>self</var></span>' in page
    assert "<var>self</var><sup>3</sup>" in operator_page(openaclnn.find_operator("gelu"))
    grad = operator_page(openaclnn.find_operator("cross_entropy_loss_grad"))
    assert "<var>w</var>[<var>t</var><sub>i</sub>]" in grad
