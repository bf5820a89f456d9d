"""The documentation is true: its examples run, its tables are those of the declarations, its links lead somewhere."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from benchmarks.__main__ import command_line
from tools.readme import README, with_support_table

import openaclnn
from openaclnn.cli import main

PROJECT = Path(__file__).parent.parent
PAGES = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_examples_run(page: Path) -> None:
    with np.printoptions(precision=8):
        result = doctest.testfile(
            str(page), module_relative=False,
            optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS,
        )  # fmt: skip
    assert result.failed == 0
    if page.name == "README.md":
        assert result.attempted > 10


def test_readme_has_the_support_table() -> None:
    page = README.read_text()
    assert openaclnn.support_table().markdown() in page
    assert page == with_support_table(page), "run: make format"


def test_commands_of_the_benchmarks_can_be_pasted() -> None:
    page = (PROJECT / "docs" / "benchmarks.md").read_text()
    commands = re.findall(r"^- command: `(.*)`$", page, re.M)
    assert len(commands) == page.count("\n## ")
    for line in commands:
        program, *arguments = shlex.split(line)
        assert program == ".venv/bin/python"
        assert arguments[:2] == ["-m", "benchmarks"]
        command_line().parse_args(arguments[2:])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_architecture_names_every_part() -> None:
    text = (PROJECT / "docs" / "architecture.md").read_text()
    package = Path(openaclnn.__file__).parent
    for path in package.iterdir():
        if path.name.startswith("__") or path.suffix in (".pyi", ".typed"):
            continue
        assert path.name in text, f"docs/architecture.md does not mention {path.name}"


def test_demo_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    shown = capsys.readouterr().out
    assert all(operator.name in shown for operator in openaclnn.registry())
    assert "both interfaces agree" in shown
    assert main(["support", "--markdown"]) == 0
    assert capsys.readouterr().out.strip() == openaclnn.support_table().markdown()
    for operator in openaclnn.registry():
        assert main(["describe", operator.python_name]) == 0
        assert operator.prototypes()[0] in capsys.readouterr().out
