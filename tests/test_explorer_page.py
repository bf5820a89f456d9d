"""The explorer's page in a real browser, headless: what a person sees, types and drops; after `make test-all` build/screenshots has how it looks."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import openaclnn
from browser import NARROW, WIDE, Window, looks, missing, started
from conftest import OPERATORS, families
from explorer_server import serving
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import COMPLEX64, UINT32
from openaclnn.core.interface import Kind
from openaclnn.core.products import PRODUCTS
from openaclnn.explorer.server import Explorer

if missing():
    pytest.skip(f"the explorer's page is not tested: {missing()}", allow_module_level=True)

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

# The page is one for all: what it is told of each operator is tested without a browser (test_explorer.py).
names = pytest.mark.parametrize(
    "operator", families(OPERATORS)[::20], ids=lambda operator: operator.python_name
)


class Page(Window):
    """The page as a person has it before them."""

    def __init__(self, driver: Any, address: str) -> None:
        super().__init__(driver)
        self.address = address

    def open(
        self,
        link: str = "",
        size: tuple[int, int] = WIDE,
        dark: bool = False,
        language: str = "en-US",
    ) -> None:
        self.window(size, dark)
        agent = self.run("return navigator.userAgent")
        self.command("Emulation.setUserAgentOverride", userAgent=agent, acceptLanguage=language)
        self.driver.get("about:blank")
        self.driver.get(f"{self.address}#{link if '/' in link else f'{link}/default'}")
        self.settled(0)

    def answers(self) -> int:
        return int(self.run("return Number(document.body.dataset.answers ?? 0)"))

    def settled(self, before: int) -> None:
        """Wait until the page has drawn an answer more than before."""
        ready = "return document.body.dataset.state === 'ready' && Number(document.body.dataset.answers) > arguments[0]"
        WebDriverWait(self.driver, 20, 0.02).until(lambda _: self.run(ready, before))

    @contextmanager
    def change(self) -> Iterator[None]:
        """What the block does makes the page ask again."""
        before = self.answers()
        yield
        self.settled(before)

    def find(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return str(self.find(selector).text)

    def texts(self, selector: str) -> list[str]:
        return list(self.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector))  # fmt: skip

    def count(self, selector: str) -> int:
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def type(self, selector: str, text: str) -> None:
        with self.change():
            field = self.find(selector)
            self.run(
                "arguments[0].closest('details')?.setAttribute('open', ''); arguments[0].select()",
                field,
            )
            field.send_keys(text or Keys.DELETE)

    def choose(self, selector: str, value: str) -> None:
        with self.change():
            Select(self.find(selector)).select_by_value(value)


@pytest.fixture(scope="module")
def server() -> Iterator[Explorer]:
    with serving() as explorer:
        yield explorer


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with started() as browser:
        yield browser


@pytest.fixture
def page(driver: Any, server: Explorer) -> Iterator[Page]:
    """The page; nothing may have gone wrong in it but refused requests."""
    driver.get_log("browser")
    yield Page(driver, server.address)
    wrong = [each["message"] for each in driver.get_log("browser")]
    assert [each for each in wrong if "status of 400" not in each] == []


def broken(page: Page) -> tuple[str, str]:
    """The headline and the fix, where one check is marked: those before it passed, the rest were not reached."""
    states = page.run("return [...document.querySelectorAll('#checks li')].map((e) => e.className)")
    assert states.count("broken") == 1
    place = states.index("broken")
    assert set(states[:place]) <= {"passed"}
    assert set(states[place + 1 :]) <= {"unreached"}
    return page.text("#verdict .headline"), page.text("#verdict .fix")


@names
def test_each_operator(page: Page, operator: Operator) -> None:
    """The document's example: sound, with values, plot and code. Then a null, a dtype and a product are refused."""
    page.open(operator.python_name)
    assert page.text("#verdict .headline") == "✓ 0 ACLNN_SUCCESS"
    assert page.count("#checks li.passed") == len(operator.checks)
    written = [p for p in operator.parameters if p.kind is Kind.OUTPUT]
    cells = page.texts("#values > .tensors > details:first-child tbody td")
    expected: Any = operator.samples[0].expected
    first = np.asarray(expected if len(written) == 1 else expected[0], np.float64).reshape(-1)
    np.testing.assert_allclose([float(cell) for cell in cells], first, rtol=1e-5, atol=1e-6)
    sizes = page.run("return [...document.querySelectorAll('#values > .tensors > details')].map((e) => e.querySelectorAll('tbody td').length)")  # fmt: skip
    assert page.count("#values svg circle") == next((n for n in sizes if n > 1), sizes[0])
    for language, word in (("python", f"openaclnn.{operator.python_name}("), ("c", "cc "), ("c++", "c++ ")):  # fmt: skip
        page.find(f"[data-language='{language}']").click()
        assert word in page.text("#code")

    tensor = next(p.name for p in operator.parameters if p.is_tensor and not p.optional)
    page.choose(f"#{tensor}-mode", "null")
    headline, fix = broken(page)
    assert headline == "✗ 161001 ACLNN_ERR_PARAM_NULLPTR"
    assert fix == f"give {tensor} a tensor, in place of null"
    assert "blamed" in page.find(f"#parameter-{tensor}").get_attribute("class")
    assert page.text("#values") == "A refused call computes nothing."
    page.choose(f"#{tensor}-mode", "tensor")
    foreign = next(d.name for d in (COMPLEX64, UINT32) if d not in operator[tensor].dtypes)
    if foreign == UINT32.name:  # which cannot hold the example's values
        page.type(f"#{tensor}-shape", "2x2")
    page.choose(f"#{tensor}-dtype", foreign)
    assert broken(page)[0].startswith("✗ ")
    assert foreign in page.text("#verdict")
    page.choose(f"#{tensor}-dtype", "FLOAT")
    lacking = [p.tag for p in PRODUCTS if not operator.supported_on(p)]
    if lacking:
        page.choose("#product", lacking[0])
        assert "products that have it" in broken(page)[1]
    else:
        page.type(f"#{tensor}-shape", "1x1x1x1x1x1x1x1x1")
        assert broken(page)[0].startswith("✗ ")


def test_what_is_half_typed(page: Page) -> None:
    page.open("elu_backward")
    page.type("#gradOutput-shape", "2x2y")
    assert page.text("#verdict .headline") == "Not a call yet"
    assert "expected a shape like 2x3" in page.text("#problem-gradOutput")
    assert page.find("#gradOutput-shape").get_attribute("aria-invalid") == "true"
    assert not page.find("#copy").is_enabled()  # the code is of the call before
    page.type("#gradOutput-shape", "2x2")
    assert page.find("#gradOutput-shape").get_attribute("aria-invalid") is None
    assert not page.find("#problem-gradOutput").is_displayed()
    assert page.text("#verdict .headline").startswith("✓ 0")


def test_operators_are_found_by_words(page: Page) -> None:
    page.open("elu_backward")
    type_all_at_once = "const field = document.getElementById('find'); field.value = arguments[0]; field.dispatchEvent(new Event('input', { bubbles: true }))"
    offered = "return [...document.querySelectorAll('#operator option')].filter((e) => !e.hidden).map((e) => e.value)"
    with page.change():
        page.run(type_all_at_once, "GRADIENT softmax")
    matches = page.run(offered)
    assert {"softmax_backward", "log_softmax_backward"} <= {*matches} < {op.python_name for op in OPERATORS}  # fmt: skip
    assert page.find("#operator").get_attribute("value") == matches[0]
    page.run(type_all_at_once, "no such thing")
    assert page.run(offered) == []
    assert page.find("#operator").get_attribute("value") == matches[0]
    page.run(type_all_at_once, "")
    assert len(page.run(offered)) == len(OPERATORS)


def test_strides_numbers_and_plots(page: Page) -> None:
    page.open("elu_backward")
    for name in ("gradOutput", "selfOrResult"):
        page.type(f"#{name}-shape", "16x16")
        page.type(f"#{name}-strides", "1,16")
    page.type("#alpha-value", "1.5")
    with page.change():
        page.find("#isResult-value").click()
    assert page.text("#verdict .headline").startswith("✓ 0")
    Select(page.find("#against")).select_by_value("selfOrResult")
    assert page.count("#values svg circle") == 256
    assert "against selfOrResult: 256 values" in page.find("#values svg").get_attribute("aria-label")  # fmt: skip
    page.find("[data-language=c]").click()
    assert "const int64_t gradOutputStrides[] = {1, 16};" in page.text("#code")
    assert page.sideways() == 0
    page.type("#seed", "1")
    assert page.find("#against").get_attribute("value") == "selfOrResult"  # it stays
    page.type("#gradOutput-shape", "100000x100000")
    page.type("#selfOrResult-shape", "100000x100000")
    page.type("#gradOutput-strides", "1,100000")
    page.type("#selfOrResult-strides", "")
    assert page.text("#verdict .headline").startswith("✓ 0")
    assert "up to 4,096 elements" in page.text("#values")


def test_keyboard_alone(page: Page) -> None:
    """From the address bar on: the skip link, tabs by arrows, an operator, a shape, the blamed parameter, the code."""
    page.open()

    def press(*keys: str) -> str:
        webdriver.ActionChains(page.driver).send_keys(*keys).perform()
        return str(page.run("return document.activeElement.id || document.activeElement.className"))

    def retype(text: str) -> None:
        with page.change():
            chain = webdriver.ActionChains(page.driver).key_down(Keys.CONTROL).send_keys("a")
            chain.key_up(Keys.CONTROL).send_keys(text).perform()

    def until(wanted: str, most: int = 80) -> None:
        for _ in range(most):
            if press(Keys.TAB) == wanted:
                outline = page.run("return getComputedStyle(document.activeElement).outlineStyle")
                assert outline != "none", wanted
                return
        raise AssertionError(f"{wanted} is not reached")

    assert press(Keys.TAB) == "skip"
    assert press(Keys.TAB) == "tab-call"
    assert press(Keys.ARROW_RIGHT) == "tab-compare"
    assert page.find("#view-compare").is_displayed()
    assert press(Keys.ARROW_RIGHT) == "tab-call"
    until("operator")
    with page.change():
        press("aclnnEluBackward")
    assert page.find("#operator").get_attribute("value") == "elu_backward"
    until("gradOutput-shape")
    retype("3x2")
    assert "161002" in page.text("#verdict .headline")
    until("link")
    assert press(Keys.ENTER) == "selfOrResult-shape"
    retype("3x2")
    assert page.text("#verdict .headline").startswith("✓ 0")
    until("language-c++")
    assert press(Keys.ARROW_LEFT) == "language-python"
    assert "openaclnn.elu_backward(" in page.text("#code")
    assert press(Keys.TAB) == "copy"
    press(Keys.ENTER)
    WebDriverWait(page.driver, 20, 0.02).until(lambda _: page.text("#copy") == "Copied")


def test_everything_has_a_name(page: Page) -> None:
    """What can be reached or read aloud is labelled, in both views."""
    page.open("cross_entropy_loss_grad")
    for view in ("call", "compare"):
        page.find(f"#tab-{view}").click()
        nameless = """
            const named = (e) => e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.labels?.length || e.textContent.trim();
            const all = document.querySelectorAll("input, select, textarea, button, [role=region], [role=img], [role=tabpanel], [tabindex='0']");
            return [...all].filter((e) => !named(e)).map((e) => e.outerHTML)"""
        assert page.run(nameless) == []
        ids = page.run("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
        assert len(ids) == len(set(ids))
    tree = page.command("Accessibility.getFullAXTree")["nodes"]
    fields = [n for n in tree if n.get("role", {}).get("value") in ("textbox", "combobox", "checkbox", "button", "tab")]  # fmt: skip
    assert fields
    assert all(node["name"]["value"] for node in fields if not node.get("ignored"))


def test_narrow_window(page: Page) -> None:
    page.open("elu_backward", NARROW)
    assert page.sideways() == 0
    columns = "return getComputedStyle(document.getElementById('view-call')).gridTemplateColumns"
    assert len(page.run(columns).split()) == 1
    page.type("#selfOrResult-shape", "3x2")
    assert page.text("#pill") == "✗ 161002"  # the verdict itself is further down
    assert page.sideways() == 0
    page.find("#tab-compare").click()
    assert page.sideways() == 0


def luminance(color: str) -> float:
    parts = [int(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_light_and_dark(page: Page, dark: bool) -> None:
    """The system's choice, enough contrast in both, and a button that turns it round."""
    page.open("elu_backward", dark=dark)
    page.choose("#gradOutput-dtype", "FLOAT16")
    style = """
        const shown = (e) => { for (; e; e = e.parentElement) { const b = getComputedStyle(e).backgroundColor; if (!b.endsWith(", 0)")) return b; } };
        return arguments[0].map((s) => { const e = document.querySelector(s); return [getComputedStyle(e).color, shown(e)]; })"""
    parts = ["body", ".soft", "#verdict .headline", "#verdict dt", "#checks .broken", "#checks .unreached", "#copy", "button.link", "#code", "h1 span"]  # fmt: skip
    for part, (front, back) in zip(parts, page.run(style, parts), strict=True):
        light, deep = sorted((luminance(front), luminance(back)), reverse=True)
        assert (light + 0.05) / (deep + 0.05) >= 4.5, part
    back = luminance(page.run("return getComputedStyle(document.body).backgroundColor"))
    assert (back < 0.2) == dark
    page.find("#theme").click()
    turned = luminance(page.run("return getComputedStyle(document.body).backgroundColor"))
    assert (turned < 0.2) != dark
    page.run("localStorage.clear()")


def drop(page: Page, selector: str, *files: tuple[str, bytes]) -> None:
    """Drop files, as a file manager does."""
    held = [[name, base64.b64encode(data).decode()] for name, data in files]
    with page.change():
        page.run(
            """
            const data = new DataTransfer();
            for (const [name, text] of arguments[1]) data.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name));
            const target = document.querySelector(arguments[0]);
            for (const kind of ["dragenter", "dragover", "drop"]) target.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
            """,
            selector, held,
        )  # fmt: skip


@pytest.mark.parametrize("language", ["en", "zh"])
def test_how_it_looks(page: Page, language: str) -> None:
    """A sound call, a refused one and a verdict, each in two pictures; nothing is wider than the window."""

    def pictures(name: str, turn: int) -> None:
        for size, dark in looks(turn + (language == "zh")):
            page.window(size, dark)
            assert page.sideways() == 0, (name, size)
            page.picture(f"explorer-{name}-{size[0]}-{language}-{'dark' if dark else 'light'}")

    page.open("cross_entropy_loss/default?input.dtype=FLOAT16&input.shape=2x5", language=f"{language}-CN")  # fmt: skip
    assert page.run("return document.documentElement.lang") == {"en": "en", "zh": "zh-CN"}[language]
    pictures("call", 0)
    page.choose("#target-mode", "null")
    pictures("refused", 1)
    page.find("#tab-compare").click()
    drop(page, "#view-compare", *special())
    assert page.count("#picture svg .wrong[rx]") == 1  # the bar of NaN and Inf that differ
    pictures("verdict", 0)


def special() -> Iterator[tuple[str, bytes]]:
    """An output and golden values that have NaN and Inf, alike and not."""
    golden = np.random.default_rng(7).normal(size=(64, 96)).astype(np.float32)
    golden[4, :90] = np.inf
    actual = golden.astype(np.float16)
    actual[20:30, 40:60] += np.float16(0.05)
    actual[3, :40], actual[4] = np.nan, np.inf
    for name, array in (("out.npy", actual), ("golden.npy", golden)):
        held = io.BytesIO()
        np.save(held, array)
        yield name, held.getvalue()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_serious_fault_for_assistive_technology(page: Page, dark: bool) -> None:
    """A call and a verdict, the one wide, light and English, the other narrow, dark and Chinese."""
    page.open("cross_entropy_loss", NARROW if dark else WIDE, dark, "zh-CN" if dark else "en")
    if dark:
        page.find("#tab-compare").click()
        drop(page, "#view-compare", *special())
    page.run("for (const each of document.querySelectorAll('details')) each.open = true")
    assert page.faults() == []


def test_a_link_restores_the_whole_call(page: Page) -> None:
    page.open("elu_backward")
    page.choose("#product", PRODUCTS[1].tag)
    page.type("#gradOutput-shape", "2x3")
    page.type("#gradOutput-values", "1, 2, 3, 4, 5, 6")
    page.choose("#gradOutput-dtype", "FLOAT16")
    page.type("#selfOrResult-shape", "2x3")
    page.type("#selfOrResult-strides", "1,2")
    page.choose("#selfOrResult-dtype", "FLOAT16")
    page.type("#alpha-value", "1.5")
    page.type("#seed", "7")
    with page.change():
        page.find("#isResult-value").click()
    assert page.text("#verdict .headline").startswith("✓ 0")
    seen, link = page.texts("#values td"), page.run("return location.hash.slice(1)")
    for part in ("elu_backward/", "gradOutput.values=1+2+3+4+5+6", "alpha=1.5", "selfOrResult.strides=1,2", "seed=7", "isResult=false"):  # fmt: skip
        assert part in link
    page.find("#link").click()
    WebDriverWait(page.driver, 20, 0.02).until(lambda _: page.text("#link") == "Copied")
    page.open(link)
    assert page.texts("#values td") == seen
    assert page.run("return location.hash.slice(1)") == link
    with page.change():  # another one, in the same window
        page.run("location.hash = 'l1_loss/default?self=null'")
    assert page.text("#verdict .headline") == "✗ 161001 ACLNN_ERR_PARAM_NULLPTR"


def test_chinese(page: Page) -> None:
    """The browser's language at first, then the reader's choice; what was typed stays, and both languages are searched."""
    page.open("elu_backward", language="zh-CN")
    assert page.text("label[for=seed], label:has(#seed)") == "随机数种子"
    assert page.text("#tab-compare") == "精度比对"
    page.type("#gradOutput-shape", "3x2")
    assert page.text("#checks .broken .state").startswith("不满足")
    assert page.text("#verdict .fix").startswith("将 selfOrResult 改为")
    with page.change():
        page.find("#speech").click()
    assert page.text("#tab-compare") == "Compare"
    assert page.find("#gradOutput-shape").get_attribute("value") == "3x2"
    assert page.text("#checks .broken .state").startswith("broken")
    page.run("document.getElementById('find').value = '损失 梯度'; document.getElementById('find').dispatchEvent(new Event('input', { bubbles: true }))")  # fmt: skip
    page.settled(0)
    offered = page.run("return [...document.querySelectorAll('#operator option')].filter((e) => !e.hidden).map((e) => e.value)")  # fmt: skip
    assert "l1_loss_backward" in offered
    assert "elu" not in offered
    assert page.text("#found") == f"{len(offered)} of {len(OPERATORS)} operators"
    page.open("elu_backward", language="zh-CN")
    assert page.text("#tab-compare") == "Compare"  # the choice is kept
    page.run("localStorage.clear()")


@pytest.fixture
def pair(tmp_path: Path) -> Callable[[np.ndarray[Any, Any]], tuple[Path, Path]]:
    def write(actual: np.ndarray[Any, Any]) -> tuple[Path, Path]:
        golden = np.random.default_rng(7).normal(size=(64, 96)).astype(np.float32)
        np.save(tmp_path / "out.npy", (golden + actual).astype(np.float16))
        np.save(tmp_path / "golden.npy", golden)
        return tmp_path / "out.npy", tmp_path / "golden.npy"

    return write


def test_two_files_are_dropped(page: Page, pair: Any) -> None:
    error = np.zeros((64, 96))
    error[20:30, 40:70] = 0.05
    out, golden = pair(error)
    page.open()
    page.find("#tab-compare").click()
    drop(page, "#view-compare", (golden.name, golden.read_bytes()), (out.name, out.read_bytes()))
    assert page.text("#name-golden").startswith("golden.npy")  # by its name, whichever comes first
    assert page.text("#judged .headline") == "✗ failed"
    assert "300 of 6,144" in page.text("#judged") or "bad elements" in page.text("#judged")
    assert page.count("#picture svg") == 3
    assert page.count("#picture svg .cell")
    assert "cosine similarity" in page.text("#figures")
    page.choose("#standard", "cosine")
    assert page.text("#judged .headline") == "✓ passed"
    page.window(NARROW)
    assert page.sideways() == 0


def test_files_are_chosen(page: Page, pair: Any) -> None:
    out, golden = pair(np.zeros((64, 96)))
    page.open(dark=True)
    page.find("#tab-compare").click()
    page.find("#file-actual").send_keys(str(out))
    with page.change():
        page.find("#file-golden").send_keys(str(golden))
    assert page.text("#judged .headline") == "✓ passed"
    drop(page, "#drop-golden", ("model.pt", b"\x80"))
    assert page.text("#judged .headline") == "No verdict"
    assert "files are read here" in page.text("#judged")


def test_a_server_that_is_gone(driver: Any) -> None:
    with serving() as explorer:
        page = Page(driver, explorer.address)
        page.open("elu_backward")
    page.type("#gradOutput-shape", "3")
    assert page.text("#verdict .headline") == "No answer"
    driver.get("about:blank")
    driver.get_log("browser")


def test_names_are_text(page: Page) -> None:
    """What a person types is never markup."""
    page.open("l1_loss_backward")
    page.type("#reduction-value", "<img src=x>")
    assert "<img src=x>" in page.text("#verdict")
    assert page.count("img") == 0
    assert json.dumps("<img src=x>")[1:-1] in page.text("#code")
    assert openaclnn.find_operator("l1_loss_backward").name in page.text("#operator")
