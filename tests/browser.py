"""What the tests of pages share: a headless Chromium of one size, scheme and language at a time, its pictures, and axe-core.

`build/screenshots` has the pictures of `make test-all`, which are there to be looked at.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from workloads import EVERYTHING

__all__ = ["NARROW", "WIDE", "Window", "axe_script", "looks", "missing", "started"]

BUILD = Path(__file__).parent.parent / "build"
WIDE, NARROW = (1280, 900), (390, 844)
DEEPEST = 1800  # pixels of a page that a picture shows
_PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)  # fmt: skip
_DRIVER = shutil.which("chromedriver")


def looks(turn: int) -> Iterator[tuple[tuple[int, int], bool]]:
    """Both widths, one of them dark, at the next turn the other; with OPENACLNN_TEST_ALL both light and dark."""
    for place, size in enumerate((WIDE, NARROW)):
        for dark in (False, True):
            if EVERYTHING or dark == ((turn + place) % 2 == 1):
                yield size, dark


def missing() -> str | None:
    """Why no page can be looked at on this machine, or None."""
    if _PROGRAM is None or _DRIVER is None:
        return "no Chromium with its chromedriver (the packages chromium and chromium-driver)"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "Selenium, of openaclnn[test], drives the browser"
    return None


@contextmanager
def started() -> Iterator[Any]:
    """Selenium's driver of a browser."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(_PROGRAM)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for flag in (
            "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--allow-file-access-from-files", f"--user-data-dir={folder}",
        ):  # fmt: skip
            options.add_argument(flag)
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            options.add_argument(
                "--no-sandbox"
            )  # its sandbox refuses root, as containers run tests
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options, Service(_DRIVER))
        driver.set_script_timeout(
            120
        )  # axe-core reads a page in seconds, but not on a busy machine
        try:
            yield driver
        finally:
            driver.quit()


class Window:
    """A browser's window: what it shows, and how wide, light and in which language."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def window(self, size: tuple[int, int], dark: bool = False) -> None:
        self.command("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)  # fmt: skip
        self.command("Emulation.setScrollbarsHidden", hidden=True)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.command("Emulation.setEmulatedMedia", features=[scheme, still])

    def command(self, name: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, arguments)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def picture(self, name: str) -> None:
        """The page from its top, as a file of this name; nothing is asserted of it, so that it is taken by `make test-all` alone."""
        if not EVERYTHING:
            return
        width, height = self.run("scrollTo(0, 0); const e = document.documentElement; return [e.clientWidth, e.scrollHeight]")  # fmt: skip
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, DEEPEST), "scale": 1}
        held = self.command("Page.captureScreenshot", captureBeyondViewport=True, optimizeForSpeed=True, clip=clip)  # fmt: skip
        folder = BUILD / "screenshots"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.png").write_bytes(base64.b64decode(held["data"]))

    def sideways(self) -> int:
        """How far the page could be scrolled to the side."""
        return int(self.run("const e = document.documentElement; return e.scrollWidth - e.clientWidth"))  # fmt: skip

    def faults(self) -> list[str]:
        """The accessibility faults that axe-core calls serious or critical, and where they are; skips the test where npm cannot fetch it."""
        script = axe_script()
        if script is None:
            pytest.skip("axe-core is not there: npm could not fetch it")
        self.run(script)
        violations = self.driver.execute_async_script("axe.run(document, {resultTypes: ['violations']}).then((r) => arguments[0](r.violations))")  # fmt: skip
        grave = [each for each in violations if each["impact"] in ("serious", "critical")]
        return [f"{each['id']}: {node['target']} {node['failureSummary']}" for each in grave for node in each["nodes"]]  # fmt: skip


def axe_script() -> str | None:
    """axe-core's script, which npm fetches once into `build`; None where it cannot."""
    kept = BUILD / "axe.min.js"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as folder:
            try:
                asked = ["npm", "pack", "axe-core@4", "--silent", "--pack-destination", folder]
                subprocess.run(asked, check=True, capture_output=True, timeout=20, cwd=folder)
            except (OSError, subprocess.SubprocessError):
                return None
            with tarfile.open(next(Path(folder).glob("*.tgz"))) as packed:
                held = packed.extractfile("package/axe.min.js")
                assert held is not None
                BUILD.mkdir(exist_ok=True)
                kept.write_bytes(held.read())
    return kept.read_text(encoding="utf-8")
