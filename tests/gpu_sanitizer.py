"""The sanitizer on a real GPU: the programs of `test_sanitizer.py` have the same findings there. `python -m pytest tests/gpu_sanitizer.py`."""

from __future__ import annotations

import os
from pathlib import Path

from test_sanitizer import check_programs


def test_faults_are_found_on_the_gpu_and_nothing_else(tmp_path: Path) -> None:
    check_programs(tmp_path, {**os.environ, "OPENACLNN_DEVICE": "cuda"})
