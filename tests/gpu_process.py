"""What the files share whose tests `test_gpu.py` runs in processes of their own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """For files whose tests change what runners are made of; where kernels are interpreted or compiled."""
    from openaclnn.engines.gpu.launchers import launcher

    monkeypatch.setattr(launcher, "_dynamic_runners", {})
