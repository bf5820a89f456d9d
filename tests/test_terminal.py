"""What the commands print on terminals of 80 and more columns: no line is longer, no word and no number is broken."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from typing import Any

import pytest

from openaclnn.cli import COMMANDS, main
from openaclnn.cli.say import folded, table
from openaclnn.operators import registry

CHECKED = "check elu_backward --grad-output float16:2x3 --self-or-result float32:2x3"


def printed(capsys: Any, line: str) -> list[str]:
    main(shlex.split(line))
    return str(capsys.readouterr().out).splitlines()


@pytest.mark.parametrize("columns", [80, 100, 140])
@pytest.mark.parametrize(
    "line",
    [
        "list", "support", "describe cross_entropy_loss_grad", CHECKED, f"{CHECKED} --products all", "doctor",
        *(f"{command} --help" for command in COMMANDS), "run cross_entropy_loss_grad --help", "check elu_backward --help",
    ],
)  # fmt: skip
@pytest.mark.in_turns
def test_no_line_is_longer_than_the_terminal(
    capsys: Any, monkeypatch: Any, tmp_path: Any, line: str, columns: int
) -> None:
    monkeypatch.setenv("OPENACLNN_CACHE_DIR", str(tmp_path))  # which others fill meanwhile
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = printed(capsys, line)
    monkeypatch.setenv("COLUMNS", "1000")
    words = {word.rstrip(":,") for each in printed(capsys, line) for word in each.split()}
    assert shown
    assert not [each for each in shown if len(each) > columns and len(each.split()) > 1]
    # Nothing but frames, headings and the ends of lines of a command is there that is not in the wide form.
    new = {word.rstrip(":,") for each in shown for word in each.split()} - words - {"\\"}
    assert not [word for word in new if not re.fullmatch("[─ ]+", word) and word not in HEADINGS]


HEADINGS = {
    "C", "Python", "name", "family", "what", "it", "computes", "operator", "default", "part", "state", "about", "products", "status",
    "rule", "parameter", "expected", "got", "950", "a3", "a2", "310b", "310p", "910", "310", "not", "supported",
}  # fmt: skip


def test_the_demo_has_the_width_of_the_terminal(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("openaclnn.registry", lambda: registry()[:1])
    for columns, widest in (("80", 80), ("140", 100)):
        monkeypatch.setenv("COLUMNS", columns)
        assert max(map(len, printed(capsys, "demo"))) == widest


def test_columns_go_on_below_themselves() -> None:
    assert folded("  1  the rule of two words", 20) == "  1  the rule of two\n     words"
    assert folded("out = a * b * c   if x > 0", 20) == "out = a * b * c\n    if x > 0"
    prototype = "aclnnStatus f(const aclTensor *self, aclTensor *out);"
    assert folded(prototype, 40) == "aclnnStatus f(const aclTensor *self,\n  aclTensor *out);"


def test_rows_that_have_no_room_are_stacked(monkeypatch: Any) -> None:
    header = ("case", "engine", "time", "of a copy")
    rows = [("a long name of a case", "cpu", "12.345 us", "0.98"), ("", "numpy", "1.2 ms", "")]
    monkeypatch.setenv("COLUMNS", "60")
    assert table(header, rows, 2).splitlines()[-2:] == [
        "a long name of a case   cpu      12.345 us        0.98",
        "                        numpy       1.2 ms",
    ]
    monkeypatch.setenv("COLUMNS", "44")
    assert table(header, rows, 2).splitlines() == [
        "a long name of a case",
        "  engine: cpu   time: 12.345 us",
        "  of a copy: 0.98",
        "  engine: numpy   time: 1.2 ms",
    ]


def test_long_lines_go_on_below() -> None:
    assert folded("  one two three four", 12) == "  one two\n    three\n    four"
    command = "  openaclnn check elu --self float16:2x3 --out float16:2x3"
    assert (
        folded(command, 40)
        == "  openaclnn check elu \\\n    --self float16:2x3 \\\n    --out float16:2x3"
    )
    assert folded("x" * 50, 40) == "x" * 50


def test_the_fix_where_a_product_lacks_the_operator_is_another_product(capsys: Any) -> None:
    shown = printed(capsys, f"{CHECKED} --product 310b")
    assert shown[-1].startswith("  fix      Atlas 200I/500 A2 inference (310b) does not have the operator; products that have it: default, 950")  # fmt: skip


def test_rules_of_an_operator_have_numbers_of_their_own() -> None:
    for operator in registry():
        numbers = [check.number for check in operator.checks]
        assert len(set(numbers)) == len(numbers)


def test_a_stopped_benchmark_prints_what_there_is() -> None:
    """After the case at work; the estimate comes first."""
    line = [sys.executable, "-m", "openaclnn", "bench", "--alone", "--section", "speed", "--engine", "numpy", "--rounds", "1"]  # fmt: skip
    environment = os.environ | {"COLUMNS": "80", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*line, "--only", "elu_backward input"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:  # fmt: skip
        assert run.stderr is not None
        assert re.fullmatch(r"\d+ cases: about \d+ \w+\n", run.stderr.readline())
        run.send_signal(signal.SIGINT)
        out, said = run.communicate(timeout=120)
    assert "SIGINT: ending after this case" in said
    assert "stopped: what was timed until then follows" in said
    assert run.returncode == 130, (out, said)


@pytest.mark.parametrize(
    ("end", "status", "says"),
    [
        ("ctypes.string_at(0)", -signal.SIGSEGV, "Segmentation fault"),
        ("os.abort()", -signal.SIGABRT, "Aborted"),
        ("sys.exit(3)", 1, "a library asked to end the process, status 3"),
    ],
)
def test_a_benchmark_that_ends_says_why(end: str, status: int, says: str) -> None:
    """Where its kernels are at fault, or another library is."""
    program = f"""
import ctypes, os, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
from openaclnn.bench import timing
from openaclnn.cli import main
timing.Case.run = lambda *_: {end}
sys.exit(main(["bench", "--alone", "--quick", "--section", "calls", "--only", "elu same"]))
"""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONFAULTHANDLER"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert says in done.stderr
