"""The command: verdicts on files and folders, statuses, one sentence for every mistake."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import openaclnn
from conftest import OPERATORS, families, floats_of, plain, run_python
from openaclnn.cli import main
from openaclnn.core.declare import Operator
from openaclnn.operators import find_operator
from openaclnn.testing.drawing import ranks_of
from openaclnn.testing.files import Source, raw_type, read_array, write_array
from openaclnn.testing.goldens import by_output


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
    report = json.loads(out)
    assert status == 1
    assert not report["passed"]
    assert report["first_bad"][0]["actual"] == "inf"
    assert report["first_bad"][1]["position"] == [3, 4]
    assert sum(report["ulp_histogram"].values()) == 600
    assert report["ulp_histogram"]["NaN/Inf differ"] == 1
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
    reasons = {each["name"]: each["reasons"] for each in json.loads(out)}
    assert reasons["good"] == []
    assert reasons["junk"] == ["ours/junk.npy: not a file of numbers"]
    assert "needs a dtype" in reasons["raw"][0]
    status, out, _ = told(
        capsys, "compare", "ours", "theirs", "theirs", "--standard", "cross_check"
    )
    assert (status, out.splitlines()[-1]) == (2, "1 of 3 passed, 2 unreadable")


def test_damaged_files_fail_alone_whatever_their_kind(folder: Path, capsys: Any) -> None:
    golden = np.load("golden.npy")
    for name in ("ours", "theirs"):
        Path(name).mkdir()
        for suffix in (".npy", ".npz", ".safetensors"):
            write_array(Path(name, f"good_{suffix[1:]}{suffix}"), golden)
            write_array(Path(name, f"bad_{suffix[1:]}{suffix}"), golden)
    for path in Path("ours").glob("bad*"):
        content = path.read_bytes()
        path.write_bytes(content[:90] + bytes(20) + content[110:-9])
    status, out, err = told(capsys, "compare", "ours", "theirs", "--csv")
    assert (status, err) == (2, "")
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(out))}
    for name, row in rows.items():
        bad = name.startswith("bad")
        assert row["verdict"] == ("unreadable" if bad else "passed"), row
        assert row["why"].startswith(f"ours/{name}." if bad else ""), row
    assert len(rows) == 6
    for path in Path("ours").glob("bad*"):
        status, out, err = told(capsys, "compare", str(path), "golden.npy")
        assert (status, out) == (2, "")
        assert err.startswith(f"openaclnn: {path}: ")
        assert err.count("\n") == 1


def test_the_worst_status_counts(folder: Path, capsys: Any) -> None:
    for name in ("ours", "theirs"):
        Path(name).mkdir()
        for which in ("a", "b", "c"):
            shutil.copy("golden.npy", f"{name}/{which}.npy")
    assert told(capsys, "compare", "ours", "theirs")[0] == 0
    np.save("ours/a.npy", np.load("golden.npy") + 1)
    assert told(capsys, "compare", "ours", "theirs")[0] == 1
    Path("ours/c.npy").write_bytes(b"junk")
    assert told(capsys, "compare", "ours", "theirs")[0] == 2


def test_dtypes_that_differ_are_noted(folder: Path, capsys: Any) -> None:
    golden = np.load("golden.npy")
    np.save("wide.npy", golden.astype(np.float32))
    status, out, _ = told(capsys, "compare", "wide.npy", "good.npy")
    assert (status, out.splitlines()[:2]) == (0, [
        "passed: mixed, FLOAT16, shape (20, 30)",
        "  the output is FLOAT, the golden values are FLOAT16: judged as FLOAT16, the narrower",
    ])  # fmt: skip
    _, out, _ = told(capsys, "compare", "wide.npy", "good.npy", "--csv")
    [row] = csv.DictReader(io.StringIO(out))
    assert (row["dtype"], row["golden_dtype"]) == ("FLOAT16", "FLOAT16")
    assert "the output is FLOAT, the golden values are FLOAT16" in row["why"]
    _, out, _ = told(capsys, "compare", "wide.npy", "good.npy", "--json")
    assert "judged as FLOAT16" in json.loads(out)["notes"][0]
    np.save("whole.npy", golden.astype(np.int32))
    _, out, _ = told(capsys, "compare", "wide.npy", "whole.npy")
    assert "the output is FLOAT, the golden values are INT32: judged as FLOAT\n" in out
    for pair in (("good.npy", "golden.npy"), ("good.npy", "good.npy"), ("wide.npy", "golden.npy")):
        assert "judged as" not in told(capsys, "compare", *pair)[1]
    assert "judged as" not in told(capsys, "compare", "wide.npy", "good.npy", "--dtype", "fp16")[1]


def device(
    operator: Operator, goldens: Path, dump: Path, suffix: str, naming: str = "golden"
) -> None:
    """What a device would do: read each case's inputs, and write its outputs under names of their own."""
    for case in json.loads((goldens / "manifest.json").read_text())["cases"]:
        files = {name: Source(goldens / case["name"] / name, dtype=raw_type(each["dtype"]), shape=tuple(each["shape"]))
                 for name, each in case["files"].items()}  # fmt: skip
        arguments = dict(case["attributes"]) | {
            Path(name).stem: np.array(read_array(source))
            for name, source in files.items()
            if not name.startswith("golden")
        }
        results = by_output(operator, plain(operator)(**arguments))
        (dump / case["name"]).mkdir(parents=True)
        for name, result in results.items():
            single = operator.result_type is None
            stems = {"golden": "golden" if single else f"golden_{operator[name].field}",
                     "python": "out" if single else operator[name].field, "C": name}  # fmt: skip
            write_array(dump / case["name"] / f"{stems[naming]}.{suffix}", np.asarray(result))


@pytest.mark.parametrize("operator", families(OPERATORS)[::2], ids=lambda op: op.python_name)
@pytest.mark.in_turns
def test_golden_then_compare(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, operator: Operator
) -> None:
    monkeypatch.chdir(tmp_path)
    shape = "4x6" if 2 in ranks_of(operator) else "2x5x3x4"
    for form, suffix, naming in (("npy", "npy", "golden"), ("bin", "bin", "python"), ("npy", "bin", "C"), ("bin", "npy", "C")):  # fmt: skip
        for name in ("made", "dump"):
            shutil.rmtree(name, ignore_errors=True)
        line = [
            "golden",
            operator.name,
            "--shape",
            shape,
            "--dtype",
            floats_of(operator)[-1].name.lower(),
            "--count",
            "2",
            "--format",
            form,
        ]
        assert main([*line, "-o", "made"]) == 0
        device(operator, Path("made"), Path("dump"), suffix, naming)
        capsys.readouterr()
        status, out, err = told(capsys, "compare", "dump", "made", "--json")
        rows = json.loads(out)
        assert (status, err) == (0, ""), rows
        assert len(rows) == sum(path.is_file() for path in Path("dump").rglob("*"))
        assert {row["golden_dtype"] for row in rows} - {"INT64"} == {"DOUBLE"}  # of indices
        line = ["compare", "dump", "made", "dump", "--standard", "cross_check"]
        assert told(capsys, *line)[0] == 0
        [case, *_] = sorted(os.listdir("dump"))
        status, out, _ = told(
            capsys, "compare", f"dump/{case}", f"made/{case}", "--standard", "close"
        )
        assert (status, out.splitlines()[-1]) == (0, f"{len(rows) // 2} of {len(rows) // 2} passed")


def test_outputs_that_a_device_did_not_write_fail(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        main(
            [
                "golden",
                "elu_backward",
                "--shape",
                "3x4",
                "--dtype",
                "fp16",
                "--count",
                "3",
                "--format",
                "bin",
                "-o",
                "made",
            ]
        )
        == 0
    )
    device(find_operator("elu_backward"), Path("made"), Path("dump"), "bin", "python")
    Path("dump/elu_backward_00001/out.bin").unlink()
    shutil.copy("made/elu_backward_00001/grad_output.bin", "dump/elu_backward_00001")  # no output
    capsys.readouterr()
    status, out, _ = told(capsys, "compare", "dump", "made", "--json")
    assert status == 1
    verdicts = {row["name"]: (row["verdict"], row["reasons"]) for row in json.loads(out)}
    assert verdicts == {
        "elu_backward_00000/golden": ("passed", []),
        "elu_backward_00001/golden": ("failed", [
            "dump/elu_backward_00001 has no file named golden or out or gradInput or grad_input"]),
        "elu_backward_00002/golden": ("passed", []),
    }  # fmt: skip
    Path("dump/elu_backward_00002/out.bin").write_bytes(b"short")
    status, out, _ = told(capsys, "compare", "dump", "made")
    assert (status, out.splitlines()[-1]) == (2, "1 of 3 passed, 1 unreadable")
    assert "5 bytes are not shape (3, 4) of FLOAT16, which takes 24" in out


def test_outputs_of_another_dtype_than_the_manifest_says_are_noted(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["golden", "elu_backward", "--shape", "300", "--dtype", "bf16", "-o", "made"]) == 0
    wide = read_array("made/elu_backward_00000/golden.npy").astype(np.float32)
    Path("dump/elu_backward_00000").mkdir(parents=True)
    for suffix, more in (("npy", []), ("bin", ["--dtype", "float32"])):
        write_array(Path(f"dump/elu_backward_00000/out.{suffix}"), wide)
        capsys.readouterr()
        status, out, _ = told(capsys, "compare", "dump", "made", "--json", *more)
        [row] = json.loads(out)
        note = "the output is FLOAT, the manifest says BFLOAT16: judged as BFLOAT16"
        assert row["notes"] == ([] if more else [note])
        assert (status, row["dtype"]) == ((1, "FLOAT") if more else (0, "BFLOAT16"))
        Path(f"dump/elu_backward_00000/out.{suffix}").unlink()


def test_a_manifest_says_what_raw_files_are(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        main(
            [
                "golden",
                "elu_backward",
                "--shape",
                "3x4",
                "--dtype",
                "fp16",
                "--format",
                "bin",
                "-o",
                "made",
            ]
        )
        == 0
    )
    shutil.copy("made/elu_backward_00000/golden.bin", "out.bin")
    for golden in ("golden", "golden_float64"):
        capsys.readouterr()
        status, out, err = told(
            capsys, "compare", "out.bin", f"made/elu_backward_00000/{golden}.bin"
        )
        assert (status, err) == (0, "")
        assert out.startswith("passed: mixed, FLOAT16, shape (3, 4)\n")
    Path("made/manifest.json").write_text('{"name": "of something else"}')
    assert told(capsys, "compare", "out.bin", "made/elu_backward_00000/golden.bin")[0] == 2


def test_cases_for_a_device_are_compared_as_golden_files_are(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("l.csv").write_text(
        "testcase_name,api_name,tensor_view_shapes,tensor_dtypes\n"
        "one,aclnnElu,\"((2,),(2,))\",\"('float16','float16')\"\n"
    )
    assert main(["cases", "l.csv", "--golden", "made"]) == 0
    Path("dump/one").mkdir(parents=True)
    shutil.copy("made/one/golden.bin", "dump/one/out.bin")
    capsys.readouterr()
    for pair in (("dump", "made"), ("dump/one", "made/one")):
        status, out, _ = told(capsys, "compare", *pair)
        assert (status, out.splitlines()[-1]) == (0, "1 of 1 passed")


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
        *(["compare", "good.npy", "golden.npy", *options] for options in (
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
    def fail(*arguments: Any) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr("openaclnn.cli.compare.judge", fail)
    status, out, err = told(capsys, "compare", "good.npy", "golden.npy")
    assert (status, out) == (1, "")
    assert err == "openaclnn: RuntimeError: first line (--traceback shows where)\n"


def test_every_command_has_help_with_an_example(capsys: Any) -> None:
    from openaclnn.cli import COMMANDS

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
    from openaclnn.cli import COMMANDS

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
    done = run_python(program)
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
    assert completed("describe", "oss2d_b") == [
        "nll_loss2d_backward"
    ]  # what has it inside, where none begins with it
    assert completed("run", "aclnnEl") == completed("cases", "--operator", "aclnnEl")
    assert set(completed("run", "aclnnEl")) == {"aclnnEluBackward", "aclnnElu"}
    assert completed("run", "l1_loss", "--reduction", "") == ["none", "mean", "sum"]
    assert completed("check", "elu", "--product", "310") == ["310b", "310p", "310"]
    for line in (("run", "elu", "--self"), ("run", "elu", "--out"), ("compare",), ("cases",)):
        assert kinds_of(*line, "x") == ["file"], line


def offers(words: tuple[str, ...]) -> list[Any]:
    """What the shell would offer for the last word."""
    from click.shell_completion import ShellComplete

    from openaclnn.cli import app

    shell = ShellComplete(app, {}, "openaclnn", "_OPENACLNN_COMPLETE")
    return shell.get_completions(list(words[:-1]), words[-1])


def completed(*words: str) -> list[str]:
    return [item.value for item in offers(words)]


def kinds_of(*words: str) -> list[str]:
    return [item.type for item in offers(words)]
