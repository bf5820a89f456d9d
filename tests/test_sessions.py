"""What the pages show of a terminal is true: each command runs, and prints what stands below it."""

from __future__ import annotations

import contextlib
import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from openaclnn.cli import main

PROJECT = Path(__file__).parent.parent
PAGES = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")])


def sessions(page: Path) -> list[tuple[str, str]]:
    """The commands of a page's `console` blocks, each with what it prints."""
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text(), re.M | re.S)
    found = [re.split(r"^\$ (.*)\n", block, flags=re.M)[1:] for block in blocks]
    return [pair for each in found for pair in zip(each[::2], each[1::2], strict=True)]


@pytest.mark.parametrize(
    "page", [p for p in PAGES if sessions(p)], ids=lambda p: str(p.relative_to(PROJECT))
)
def test_sessions_run(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a folder of their own, in order; `...` stands for anything."""
    if "g++" in page.read_text() and shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    environment = shell(tmp_path)
    (tmp_path / "work").mkdir()
    for command, expected in sessions(page):
        if re.match(
            r"openaclnn (?!bench)[^$|<>;&]*$", command
        ):  # the same, without another process
            with contextlib.chdir(tmp_path / "work"):
                status = main(shlex.split(command)[1:])
            printed = "".join(capsys.readouterr())
        else:
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path / "work", env=environment, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
            status, printed = done.returncode, done.stdout
        flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
        assert doctest.OutputChecker().check_output(expected, printed, flags), printed
        assert status in ((0, 1) if expected else (0,)), command


def shell(folder: Path) -> dict[str, str]:
    """An environment whose commands are those of this Python."""
    programs = {
        "openaclnn": '-c "from openaclnn.cli import main; raise SystemExit(main())"',
        "openaclnn-config": '-c "from openaclnn.capi.config import main; raise SystemExit(main())"',
        "python": "",
    }
    (folder / "bin").mkdir()
    for name, arguments in programs.items():
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -P {arguments} "$@"\n')
        script.chmod(0o755)
    path = os.pathsep.join((str(folder / "bin"), os.environ["PATH"]))
    packages = os.pathsep.join(part for part in sys.path if part)
    return os.environ | {"PATH": path, "PYTHONPATH": packages}
