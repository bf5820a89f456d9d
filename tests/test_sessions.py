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
from collections.abc import Sequence
from pathlib import Path

import pytest

from openaclnn.cli import main

PROJECT = Path(__file__).parent.parent
README = PROJECT / "README.md"
PAGES = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")])


OPEN = {"many-devices.md": "python", "migrating.md": "python"}
"""Blocks that are parts of a program, with names of their surroundings: test_torch_parallel.py and test_torch_adopt.py run them."""


def sessions(page: Path) -> list[tuple[str, str, str | None]]:
    """A page's commands and programs, of what kind they are, each with what it prints if the page says it.

    In `console` blocks commands stand behind a `$`. What stands in `bash` and `python` blocks is pasted as it is, and a `text` block behind
    one is what it prints.
    """
    commands: list[tuple[str, str, str | None]] = []
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.M | re.S)
    for (kind, block), (next_kind, printed) in zip(blocks, [*blocks[1:], ("", "")], strict=False):
        if kind == "console":
            parts = re.split(r"^\$ (.*)\n", block, flags=re.M)[1:]
            commands += [(kind, *pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
        elif kind in ("bash", "python") and kind != OPEN.get(page.name):
            commands.append((kind, block, printed if next_kind == "text" else None))
    return commands


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if sessions(p) and p.parent.name != "zh"],
    ids=lambda p: str(p.relative_to(PROJECT)),
)
def test_sessions_run(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a folder of their own, in order; `...` stands for anything."""
    for program in ("g++", "cmake -B"):
        if program in page.read_text() and shutil.which(program.split()[0]) is None:
            pytest.skip(f"no {program.split()[0]}")
    if "import torch" in page.read_text():
        pytest.importorskip("torch")
    environment = shell(tmp_path)
    (tmp_path / "work").mkdir()
    for kind, command, expected in sessions(page):
        if re.match(
            r"openaclnn (?!bench)[^$|<>;&\n]*$", command
        ):  # the same, without another process
            with contextlib.chdir(tmp_path / "work"):
                status = main(shlex.split(command)[1:])
            printed = "".join(capsys.readouterr())
        else:
            words = {"console": ["bash", "-c"], "bash": ["bash", "-ec"], "python": ["python", "-c"]}
            program, option = words[kind]
            done = subprocess.run(
                [shutil.which(program, path=environment["PATH"]) or program, option, command],
                cwd=tmp_path / "work", env=environment, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
            status, printed = done.returncode, done.stdout
        if expected is not None:
            flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
            assert doctest.OutputChecker().check_output(expected, printed, flags), printed
        assert status in ((0, 1) if expected else (0,)), (command, printed)


CHINESE = {
    "index": "quickstart", "vendor-example": "vendor-example", "testing": "testing", "products": "products", "faq": "faq", "sanitizer": "sanitizer",
}  # fmt: skip
"""The guides in Chinese, each with the English one that it follows."""


def test_every_chinese_page_follows_an_english_one() -> None:
    assert {path.stem for path in (PROJECT / "docs" / "zh").glob("*.md")} == {*CHINESE}
    navigation = (PROJECT / "mkdocs.yml").read_text()
    assert all(f": zh/{name}.md\n" in navigation for name in CHINESE)


@pytest.mark.parametrize("name", CHINESE)
def test_both_languages_are_in_step(name: str) -> None:
    """The same commands and what they print, headings, tables, and names that stand as code; so the Chinese commands need not run again."""
    english, chinese = (
        _outline((PROJECT / "docs" / path).read_text())
        for path in (f"{CHINESE[name]}.md", f"zh/{name}.md")
    )
    for part, content in english.items():
        assert content == chinese[part], part


def test_a_page_that_falls_behind_is_seen() -> None:
    page = (PROJECT / "docs" / "zh" / "faq.md").read_text()
    for part, before, after in (
        ("blocks", "x.astype(np.float16)", "x.astype(np.float64)"), ("headings", "## 无效句柄", "无效句柄"),
        ("code", "`openaclnn list`", "openaclnn list"), ("lists", "\n\n", "\n\n- "), ("rows", "\n\n", "\n\n| a | b |\n\n"),
    ):  # fmt: skip
        assert before in page
        assert _outline(page.replace(before, after))[part] != _outline(page)[part], part


def _outline(page: str) -> dict[str, Sequence[str]]:
    """What does not depend on the language: tables that tools write stand in English alone, comments behind a command are translated."""
    block = re.compile(r"^```\w+\n.*?^```$", re.M | re.S)
    text = re.sub(r"^<!-- .*?^<!-- end of .*?$", "", block.sub("", page), flags=re.M | re.S)
    return {
        "blocks": [re.sub(r" +# .*", "", each) if each.startswith("```sh") else each for each in block.findall(page)],
        "headings": re.findall(r"^#+(?= )", text, re.M),
        "lists": re.findall(r"^(?:-|\d+\.) ", text, re.M),
        "rows": [str(row.count("|")) for row in re.findall(r"^\|.*$", text, re.M)],
        "code": sorted(set(re.findall(r"`([^`\n]+)`", text))),
    }  # fmt: skip


INSTALLING = re.compile(r"make \w+|source \.venv/bin/activate|pip install |python3? -m venv ")
STARTING = re.compile(r"^ +(openaclnn|g\+\+|c\+\+|cc|cmake|source|python|torchrun|\./)\b")
ELSEWHERE = {
    "    openaclnn explorer",  # goes on until it is stopped: test_explorer.py
    "    torchrun --nproc-per-node 4 examples/many_devices.py",  # test_torch_parallel.py
    "    python examples/training.py --steps 60 --png training.png",  # test_torch_parallel.py, with fewer steps
}


@pytest.mark.parametrize(
    "page", [README, *(PROJECT / "docs").rglob("*.md")], ids=lambda p: str(p.relative_to(PROJECT))
)
def test_only_what_installs_is_not_run(page: Path) -> None:
    """`sh` blocks install and nothing else; commands do not hide in indented text, which no test reads."""
    text = page.read_text()
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S):
        for line in block.splitlines():
            assert INSTALLING.match(line), line
    outside = re.sub(r"^```\w+\n.*?^```$", "", text, flags=re.M | re.S)
    assert {line for line in outside.splitlines() if STARTING.match(line)} <= ELSEWHERE


def test_the_readme_has_a_program_a_refusal_and_a_loss() -> None:
    shown = [(kind, len(text.splitlines())) for kind, text, _ in sessions(README)]
    assert [kind for kind, _ in shown] == ["bash", "python", "python"]
    assert all(lines <= 5 for _, lines in shown)
    assert all(printed for *_, printed in sessions(README))


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
