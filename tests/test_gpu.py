"""The Triton kernels without a GPU: all tests of other files that want them interpreted on host memory, or compiled (not run) for an H200.

Triton decides when it is imported whether it interprets, so each way is a process of its own, for all these files together.
To look at one alone: OPENACLNN_GPU_TESTS=interpret pytest tests/test_gpu_kernels.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(sys.platform != "linux", reason="Triton has wheels for Linux alone")
@pytest.mark.parametrize(("mode", "many"), [("interpret", 10), ("compile", 7)])
def test_in_a_process_of_its_own(mode: str, many: int) -> None:
    """Without Triton this is where it shows."""
    import triton  # noqa: F401

    wanting = f'\nif MODE == "{mode}":\n'
    files = [str(path) for path in sorted(HERE.glob("test_*.py")) if wanting in path.read_text()]
    assert len(files) >= many
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *files, "-x"],
        env=environment | {"OPENACLNN_GPU_TESTS": mode}, cwd=HERE.parent, text=True,
        timeout=1200, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
