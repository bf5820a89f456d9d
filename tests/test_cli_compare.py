"""The command: verdicts on files and folders, statuses, one sentence for every mistake."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import openaclnn
from openaclnn.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Golden values, an output that is right and one that is not."""
    monkeypatch.chdir(tmp_path)
    golden = np.random.default_rng(0).normal(size=(20, 30))
    good = golden.astype(np.float16)
    bad = good.copy()
    bad[3, 4] += 9
    np.save("golden.npy", golden)
    np.save("good.npy", good)
    np.save("bad.npy", bad)
    good.tofile("good.bin")
    return tmp_path


def told(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out, err


def test_verdicts(folder: Path, capsys: Any) -> None:
    status, out, err = told(capsys, "compare", "good.npy", "golden.npy")
    assert (status, err) == (0, "")
    assert "passed: mixed" in out
    for figure in (
        "cosine similarity",
        "accumulated relative error",
        "MERE",
        "MARE",
        "matched share",
    ):
        assert figure in out
    status, out, err = told(capsys, "compare", "bad.npy", "golden.npy", "--standard", "close")
    assert (status, err) == (1, "")
    assert "(3, 4)" in out
    status, out, _ = told(capsys, "compare", "good.bin", "golden.npy", "--dtype", "float16")
    assert status == 0
    assert "shape (20, 30)" in out
    np.save("turned.npy", np.load("good.npy").reshape(30, 20))
    status, out, _ = told(capsys, "compare", "turned.npy", "golden.npy")
    assert status == 1
    assert "the golden values have (20, 30)" in out
    assert "\x1b" not in out


def test_json_and_csv(folder: Path, capsys: Any) -> None:
    bad = np.load("bad.npy")
    bad[0, 0] = np.inf
    np.save("bad.npy", bad)
    status, out, _ = told(capsys, "compare", "bad.npy", "golden.npy", "--json")
    found = json.loads(out)
    assert status == 1
    assert not found["passed"]
    assert found["first_bad"][0]["actual"] == "inf"
    assert found["first_bad"][1]["position"] == [3, 4]
    assert sum(found["ulp_histogram"].values()) == 599
    _, out, _ = told(capsys, "compare", "bad.npy", "golden.npy", "--csv")
    [row] = csv.DictReader(io.StringIO(out))
    assert (row["verdict"], row["bad"]) == ("failed", "2")


def test_folders_by_name(folder: Path, capsys: Any) -> None:
    for name in ("ours/deep", "theirs/deep"):
        Path(name).mkdir(parents=True)
    golden = np.load("golden.npy")
    for name in ("a", "deep/b"):
        np.save(f"ours/{name}.npy", golden.astype(np.float32))
        np.savez(f"theirs/{name}.npz", golden)
    status, out, _ = told(capsys, "compare", "ours", "theirs")
    assert (status, out.splitlines()[-1]) == (0, "2 of 2 passed")
    np.save("ours/more.npy", golden)
    status, out, _ = told(capsys, "compare", "ours", "theirs", "--json")
    assert status == 1
    assert [each["name"] for each in json.loads(out)] == ["a", "deep/b", "more"]
    assert "theirs has no such file" in json.loads(out)[2]["reasons"][0]


def test_a_file_that_cannot_be_read_fails_alone(folder: Path, capsys: Any) -> None:
    golden = np.load("golden.npy")
    for name in ("ours", "theirs"):
        Path(name).mkdir()
        np.save(f"{name}/good.npy", golden)
        np.save(f"{name}/junk.npy", golden)
        golden.tofile(f"{name}/raw.bin")
        golden.tofile(f"{name}/good.bin")  # of both kinds, the one that says its shape
    Path("ours/junk.npy").write_bytes(b"junk")
    status, out, err = told(capsys, "compare", "ours", "theirs", "--json")
    assert (status, err) == (2, "")
    assert [each["verdict"] for each in json.loads(out)] == ["passed", "unreadable", "unreadable"]
    found = {each["name"]: each["reasons"] for each in json.loads(out)}
    assert found["good"] == []
    assert found["junk"] == ["ours/junk.npy: not a file of numbers"]
    assert "needs a dtype" in found["raw"][0]
    status, out, _ = told(
        capsys, "compare", "ours", "theirs", "theirs", "--standard", "cross_check"
    )
    assert (status, out.splitlines()[-1]) == (2, "1 of 3 passed, 2 unreadable")


def test_picture(folder: Path, capsys: Any) -> None:
    pytest.importorskip("matplotlib")
    assert told(capsys, "compare", "bad.npy", "golden.npy", "--picture", "x.png")[0] == 1
    assert Path("x.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "good.npy"], ["compare", "good.npy", "none.npy"], ["compare", "good.npy", "golden.txt"],
        ["compare", "good.npy", "golden.npy", "--standard", "strict"], ["compare", "good.bin", "golden.npy"],
        ["compare", "good.npy", "golden.npy", "--standard", "cross_check"], ["compare", ".", "none"],
        ["compare", "good.npy", "golden.npy", "--dtype", "float99"], ["nonsense"], ["describe", "nothing"],
        ["compare", "good.npy", "golden.npy", "--rtol", "-1"], ["compare", "good.npy", "golden.npy", "--ptol", "2"],
        *(["compare", "bad.npy", "golden.npy", "--standard", standard, f"--{name}", "nan"]
          for standard in ("mixed", "close") for name in ("rtol", "atol", "ptol")),
        *(["compare", "good.npy", "golden.npy", *given] for given in (
            ["--standard", "cosine", "--rtol", "3"], ["--standard", "stat_rel_err", "--ptol", "0.1"],
            ["--standard", "close", "--limit", "1"], ["--level", "L0"], ["golden.npy"], ["--csv", "--json"])),
        ["compare", "good.npy:fp32", "golden.npy"], ["cases", "good.npy", "--sheet", "one"],
        ["cases", "good.npy", "--count", "3"],
        ["compare", "bad.npy", "golden.npy", "--limit", "nan"], ["compare", "bad.npy", "golden.npy", "--rtol", "inf"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_misuse_is_one_sentence(folder: Path, capsys: Any, arguments: list[str]) -> None:
    status, out, err = told(capsys, *arguments)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("openaclnn: ")


def test_a_traceback_for_those_who_ask(folder: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        main(["compare", "good.npy", "none.npy", "--traceback"])


def test_a_fault_of_ours_is_one_sentence_too(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr("openaclnn.cli.compare.judge", fail)
    status, out, err = told(capsys, "compare", "good.npy", "golden.npy")
    assert (status, out) == (1, "")
    assert err == "openaclnn: RuntimeError: first line (--traceback shows where)\n"


def test_every_command_has_help_with_an_example(capsys: Any) -> None:
    from openaclnn.cli.entry import COMMANDS

    for name in COMMANDS:
        status, out, _ = told(capsys, name, "--help")
        assert status == 0
        assert f"openaclnn {name}" in out.partition("Example:")[2], name


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("matplotlib.figure", "compare good.npy golden.npy --picture x.png"),
        ("openpyxl", "cases cases.xlsx"),
        ("yaml", "check elu_backward --file call.yaml"),
    ],
)
def test_missing_libraries_are_named_with_their_extra(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, module: str, line: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    Path("cases.xlsx").touch()
    Path("call.yaml").touch()
    status, out, err = told(capsys, *line.split())
    assert (status, out) == (2, "")
    assert err.endswith("which is not installed: pip install 'openaclnn[tools]'\n")


def test_every_command_that_answers_has_json(capsys: Any) -> None:
    from openaclnn.cli.entry import COMMANDS

    for name in COMMANDS:
        shown = [name, "elu_backward", "--help"] if name in ("run", "check") else [name, "--help"]
        assert "--json" in told(capsys, *shown)[1], name
    status, out, _ = told(capsys, "demo", "--json")
    assert status == 0
    assert {"operator", "largest_error"} == json.loads(out)[0].keys()


def test_no_command_loads_what_it_does_not_need() -> None:
    program = (
        "import sys; from openaclnn.cli import main; main(['list', '--json'])\n"
        "print({'matplotlib', 'openpyxl', 'yaml', 'torch', 'triton', 'llvmlite'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == "set()\n"


def test_pipes_that_close_early() -> None:
    for line in ("describe aclnnEluBackward", "demo"):
        command = f"set -o pipefail; {sys.executable} -m openaclnn {line} | head -1"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert len(done.stdout.splitlines()) == 1
        assert (done.returncode, done.stderr) == (0, "")


def test_streams_that_are_closed_from_the_start() -> None:
    for line, status in (("list >&-", 0), ("list >&- 2>&-", 0), ("describe nothing 2>&-", 2)):
        command = f"{sys.executable} -m openaclnn {line}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (status, "", ""), line


def test_completion(capsys: Any) -> None:
    status, out, _ = told(capsys, "completion", "bash")
    assert status == 0
    assert "_OPENACLNN_COMPLETE=bash_complete" in out
    names = [operator.python_name for operator in openaclnn.registry()]
    assert completed("describe", "elu") == [name for name in names if name.startswith("elu")]
    assert completed("run", "aclnnEl") == completed("cases", "--operator", "aclnnEl")
    assert set(completed("run", "aclnnEl")) == {"aclnnEluBackward", "aclnnElu"}
    assert completed("run", "l1_loss", "--reduction", "") == ["none", "mean", "sum"]
    assert completed("check", "elu", "--product", "310") == ["310b", "310p", "310"]
    for line in (("run", "elu", "--self"), ("run", "elu", "--out"), ("compare",), ("cases",)):
        assert kinds_of(*line, "x") == ["file"], line


def offers(words: tuple[str, ...]) -> list[Any]:
    """What the shell would offer for the last word."""
    from click.shell_completion import ShellComplete

    from openaclnn.cli.entry import app

    shell = ShellComplete(app, {}, "openaclnn", "_OPENACLNN_COMPLETE")
    return shell.get_completions(list(words[:-1]), words[-1])


def completed(*words: str) -> list[str]:
    return [item.value for item in offers(words)]


def kinds_of(*words: str) -> list[str]:
    return [item.type for item in offers(words)]
