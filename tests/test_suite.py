"""The suite's outcome does not depend on the terminal, the settings and the signals that it was started with."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import warnings

import pytest

from conftest import SURROUNDINGS, TURNS, is_in_turn, run_python

ODD = dict.fromkeys(SURROUNDINGS, "1") | {"COLUMNS": "40", "TERM": "xterm-256color"}


def test_surroundings_are_the_suites() -> None:
    assert not {*SURROUNDINGS} & {*os.environ}
    assert os.environ["TERM"] == "dumb"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    child = "import signal; print(signal.getsignal(signal.SIGINT).__name__, signal.pthread_sigmask(0, ()))"
    assert run_python(child).stdout == "default_int_handler set()\n"


def test_they_are_so_in_a_background_job() -> None:
    """Its shell ignores SIGINT; and the terminal and all settings are other ones."""
    inner = f"{__file__}::{test_surroundings_are_the_suites.__name__}"
    command = f"trap '' INT; exec {sys.executable} -m pytest -q -p no:xdist {inner}"
    done = subprocess.run(
        ["sh", "-c", command], env=os.environ | ODD, capture_output=True, text=True, check=False,
        cwd=os.path.dirname(os.path.dirname(__file__)),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("category", [DeprecationWarning, FutureWarning])
def test_only_pytorch_may_warn_of_itself(category: type[Warning]) -> None:
    warnings.warn_explicit("old", category, "torch/jit/_script.py", 1, "torch.jit._script")
    for ours in ("openaclnn.torch.nn", "test_torch_ops", "torchlike"):
        with pytest.raises(category):
            warnings.warn_explicit("old", category, "ours.py", 1, ours)


def test_every_case_has_its_turn_and_every_turn_cases_along_every_axis() -> None:
    turns = [[number for number in range(81) if is_in_turn(number, "test", turn)] for turn in range(TURNS)]  # fmt: skip
    assert sorted(itertools.chain(*turns)) == [*range(81)]
    for axis, cases in itertools.product((1, 2, 3, 4, 6, 9, 12), turns):
        assert {number % axis for number in cases} == {*range(axis)}
    assert (
        20 < sum(is_in_turn(0, f"test_{number}") for number in range(100)) < 50
    )  # other tests, other cases
