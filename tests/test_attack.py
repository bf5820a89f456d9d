"""The attack in its short form; `make attack` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from attack.__main__ import run_round
from attack.program import build_program, run_program
from workloads import EVERYTHING


@pytest.mark.parametrize("seed", [1])
def test_through_python(seed: int) -> None:
    fault, counts = run_round(seed, 100, 240)
    assert not fault, fault
    for kind in ("right", "refused", "again", "two phases"):
        assert counts[kind] > 10, counts
    assert counts["overridden"] > 3, counts


def test_through_c(tmp_path: Path) -> None:
    program = build_program(tmp_path)
    for seed in (1, 2) if EVERYTHING else (1,):
        fault, counts = run_program(program, seed, 250, 240)
        assert not fault, fault
        assert counts["C right"] > 10, counts
