"""A test file in a process of its own: Triton decides when it is imported whether it interprets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run_in_a_process_of_its_own(file: str, mode: str) -> None:
    """All tests that a file has for a mode, `interpret` or `compile`; without Triton this is where it shows."""
    import triton  # noqa: F401

    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", file, "-x"],
        env=environment | {"OPENACLNN_GPU_TESTS": mode}, cwd=Path(__file__).parent.parent, text=True,
        timeout=600, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout  # no test at all gives 5


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """For files whose tests change what runners are made of; where kernels are interpreted or compiled."""
    from openaclnn.engines.gpu.launchers import launcher

    monkeypatch.setattr(launcher, "_remembered", {})
