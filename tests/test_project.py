"""The project's files agree with each other: what the forge runs, what the package says of itself."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
PACKAGE = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]


def test_the_forge_runs_what_we_run_on_every_python_and_both_architectures() -> None:
    yaml = pytest.importorskip("yaml", reason="the workflow is YAML")
    workflow = yaml.safe_load((PROJECT / ".github" / "workflows" / "ci.yml").read_text())
    [job] = workflow["jobs"].values()
    matrix = job["strategy"]["matrix"]
    named = [text.rpartition(" ")[2] for text in PACKAGE["classifiers"] if re.search(r":: 3\.\d+$", text)]  # fmt: skip
    assert matrix["python"] == named
    assert PACKAGE["requires-python"] == f">={named[0]}"
    machines = {each["architecture"]: each["machine"] for each in matrix["include"]}
    assert set(machines) == set(matrix["architecture"]) == {"x86-64", "aarch64"}
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert os.access(PROJECT / ".ci" / "run", os.X_OK)


def test_extras_name_libraries_with_the_lowest_version_that_was_tried() -> None:
    extras = PACKAGE["optional-dependencies"]
    assert {"gpu", "bench", "tools", "docs", "test", "lint"} <= extras.keys()
    for wanted in (each for extra in extras.values() for each in extra):
        assert ">=" in wanted or wanted.startswith("openaclnn["), wanted


def test_pages_are_on_the_forge_as_on_the_site() -> None:
    """Pages of the navigation are files of docs/, or made for the site; each is there once."""
    text = (PROJECT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    listed = re.findall(r"([\w/-]+\.md)$", text, re.M)
    assert len(set(listed)) == len(listed)
    generated = {"contributing.md", "changelog.md", "operators/index.md", "zh/operators/index.md"}
    assert {place for place in listed if not (PROJECT / "docs" / place).exists()} == generated
