"""The commands on operators: run on files, checks without data, examples that compile, and the house's own state."""

from __future__ import annotations

import ctypes
import importlib.metadata
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from string import ascii_lowercase
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import openaclnn
from conftest import OPERATORS, each, expected_of, families, floats_of, plain, table_of
from openaclnn.cli import main
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT, dtype_of_numpy
from openaclnn.core.interface import Kind
from openaclnn.core.tensor import Format, Scalar, Tensor
from openaclnn.core.trust import CODE_MARK
from openaclnn.operators import find_operator
from openaclnn.testing import draw
from openaclnn.testing.drawing import ranks_of, variants_of
from openaclnn.testing.files import read_array, write_array
from openaclnn.testing.goldens import plan_of, planned
from openaclnn.testing.programs import LANGUAGES, example_of
from test_capi_tools import compile_program, installed, run_program
from workloads import EVERYTHING

names = pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.python_name)
SHAPES = {2: (40, 6), 4: (5, 3, 6, 7)}


def drawn(operator: Operator, dtype: str, variant: str | None = None) -> dict[str, Any]:
    shape = SHAPES[2 if 2 in ranks_of(operator) else 4]
    if dtype not in [kind.name.lower() for kind in floats_of(operator)]:
        dtype = "float32"
    return draw(operator, shape, dtype, variant=variant, seed=1)


def line_of(arguments: dict[str, Any], folder: Path, suffix: str = ".npy") -> list[str]:
    """The arguments as options, arrays in files."""
    line = []
    for name, value in arguments.items():
        line.append(f"--{name.replace('_', '-')}")
        if isinstance(value, np.ndarray):
            path = folder / f"{name}{suffix}"
            write_array(path, value)
            shape = "x".join(map(str, value.shape))
            line.append(f"{path}:{value.dtype}:{shape}" if suffix == ".bin" else str(path))
        else:
            line.append(str(value))
    return line


def out_lines(
    operator: Operator, arguments: dict[str, Any], folder: Path, suffix: str
) -> list[str]:
    """An option with a file for each output that the call computes."""
    if operator.result_type is None:
        return ["--out", str(folder / f"out{suffix}")]
    line = []
    for name in planned(operator, arguments).computed:
        line += [f"--{name}", str(folder / f"{operator[name].field}_out{suffix}")]
    return line


SUFFIXES = (".npy", ".bin", ".npz", ".safetensors", ".pt")


@pytest.mark.parametrize(
    ("operator", "suffix"),
    [(op, SUFFIXES[place % len(SUFFIXES)]) for place, op in enumerate(families(OPERATORS))],
    ids=lambda value: getattr(value, "python_name", str(value)),
)
@pytest.mark.in_turns
def test_run_on_files(tmp_path: Path, operator: Operator, suffix: str, capsys: Any) -> None:
    if suffix == ".pt":
        pytest.importorskip("torch")
    arguments = drawn(operator, "bfloat16")
    outs = out_lines(operator, arguments, tmp_path, suffix)
    assert main(["run", operator.name, *line_of(arguments, tmp_path, suffix), *outs]) == 0
    for out, expected in zip(outs[1::2], each(plain(operator)(**arguments)), strict=True):
        shape = "x".join(map(str, expected.shape))
        kind = dtype_of_numpy(expected.dtype)
        assert kind is not None
        result = read_array(f"{out}:{kind.name.lower()}:{shape}" if suffix == ".bin" else out)
        assert result.dtype == expected.dtype
        assert result.tobytes() == expected.tobytes()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("operator", families(OPERATORS), ids=lambda op: op.python_name)
def test_pieces_have_the_bits_of_the_whole(tmp_path: Path, operator: Operator, capsys: Any) -> None:
    in_pieces, stepped = set(), set()
    sums = any(parameter.shape == "one element" for parameter in operator.outputs)
    for variant in variants_of(operator):
        arguments = drawn(operator, "float32", variant)
        outs = out_lines(operator, arguments, tmp_path, ".npy")
        line = [
            "run",
            operator.python_name,
            *line_of(arguments, tmp_path),
            "--chunk",
            "17",
            "--json",
        ]
        assert main([*line, *outs, "--force"]) == 0
        plan = plan_of(operator, arguments)
        stepped.add(plan.fixed or bool(plan.steps))
        in_pieces.add(json.loads(capsys.readouterr().out)["in_pieces"])
        for out, expected in zip(outs[1::2], each(plain(operator)(**arguments)), strict=True):
            assert read_array(out).tobytes() == expected.tobytes()
    sums |= stepped == {True}
    assert (True in in_pieces) != sums  # a sum over all is a result of the whole


def test_files_of_several_outputs(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = drawn(find_operator("cross_entropy_loss"), "float32") | {"return_zloss": True}
    expected = openaclnn.cross_entropy_loss(**arguments)
    line = ["run", "cross_entropy_loss", *line_of(arguments, tmp_path)]
    assert main([*line, "--zloss-out", "z.npy"]) == 0
    assert capsys.readouterr().out == "z.npy: FLOAT, shape ()\n"
    assert (read_array("z.npy") == expected.zloss).all()
    assert main([*line, "--loss-out", "l.npy", "--logProbOut", "p.bin", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["outputs"]["logProbOut"] == {"out": "p.bin", "dtype": "FLOAT", "shape": [40, 6]}
    assert (read_array("p.bin:float32:40x6") == expected.log_prob).all()
    files = sorted(path.name for path in tmp_path.iterdir())
    for wrong in (
        [], ["--loss-out", "l.npy"], ["--loss-out", "a.npy", "--zloss-out", "a.npy"],
        ["--loss-out", "a.npy", "--zloss-out", "z.npy"], ["--zloss-out", "a.npy", "--return-zloss", "false"],
        ["--zloss-out", "a.npy", "--product", "a2"],
    ):  # fmt: skip
        assert main([*line, *wrong]) == 2, wrong
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == files


def test_a_file_is_written_over_in_place(tmp_path: Path, capsys: Any) -> None:
    path, other = str(tmp_path / "x.npy"), str(tmp_path / "y.npy")
    x = np.linspace(-2, 2, 40, dtype=np.float32)
    np.save(path, x)
    line = ["run", "inplace_elu", "--self-ref", path, "--chunk", "7"]
    assert main([*line, "--out", other]) == 0
    expected = openaclnn.elu(x)
    assert (read_array(path) == x).all()
    assert (read_array(other) == expected).all()
    assert main([*line, "--out", path]) == 2
    assert main([*line, "--out", path, "--force"]) == 0
    assert (read_array(path) == expected).all()
    assert main(["run", "inplace_elu", "--self-ref", "1.5", "--out", str(tmp_path / "z.npy")]) == 1


def test_pieces_of_a_broadcast(tmp_path: Path, capsys: Any) -> None:
    arguments = {
        "grad_output": np.float32([[2.0]]), "self": np.arange(12, dtype=np.float32).reshape(4, 3),
        "target": np.float32([5, 6, 7]), "reduction": "none",
    }  # fmt: skip
    out = str(tmp_path / "out.npy")
    assert (
        main(
            ["run", "l1_loss_backward", *line_of(arguments, tmp_path), "--chunk", "3", "--out", out]
        )
        == 0
    )
    assert (read_array(out) == openaclnn.l1_loss_backward(**arguments)).all()
    numbers = {"grad_output": 2.0, "self": arguments["self"], "target": arguments["target"]}
    line = [*line_of(numbers, tmp_path), "--reduction", "sum", "--out", out]
    assert main(["run", "l1_loss_backward", *line]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["run", "l1_loss_backward", *line, "--force", "--engine", "numpy"]) == 0
    assert (read_array(out) == openaclnn.l1_loss_backward(**numbers, reduction="sum")).all()


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("", 2), ("nothing", 2), ("elu_backward", 2), ("elu_backward --out o.npy", 2), ("elu_backward --grad-output x.npy", 2),
        ("elu_backward --grad-output x.npy --self-or-result none.npy --out o.npy", 2),
        ("elu_backward --grad-output x.npy --self-or-result x.npy --out o.txt", 2),
        ("elu_backward --grad-output x.npy --self-or-result x.npy --out none/o.npy", 2),
        ("elu_backward --grad-output x.npy --self-or-result x.npy --product 9 --out o.npy", 2),
        ("elu_backward --grad-output x.npy --self-or-result x.npy --product 310b --out o.npy", 1),
        ("l1_loss --self x.npy --target x.npy --reduction 3 --out o.npy", 2),
        ("elu_backward --grad-output x.npy --self-or-result y.npy --out o.npy", 1),
        ("elu_backward --grad-output x.npy --self-or-result x.npy --alpha x --out o.npy", 1),
    ],
)  # fmt: skip
def test_runs_that_fail(
    tmp_path: Path, capsys: Any, monkeypatch: Any, line: str, status: int
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.float32([1, 2]))
    np.save("y.npy", np.float32([1, 2, 3]))
    assert main(["run", *line.split()]) == status
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1 or not line
    assert ".part" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy", "y.npy"]


def test_choices_are_words_or_the_numbers_of_c(tmp_path: Path, capsys: Any) -> None:
    arguments = {"self": np.float32([1, 2]), "target": np.float32([3, 5])}
    for choice in ("sum", "2"):
        out = str(tmp_path / f"{choice}.npy")
        line = [*line_of(arguments, tmp_path), "--reduction", choice, "--out", out]
        assert main(["run", "l1_loss", *line]) == 0
        assert read_array(out) == 5


def as_file(values: dict[str, Any]) -> dict[str, Any]:
    held = {}
    for name, value in values.items():
        if isinstance(value, Tensor):
            layout = Format(value.format).name.removeprefix("ACL_FORMAT_")
            held[name] = {"dtype": value.dtype.name, "shape": list(value.shape), "format": layout}
        elif isinstance(value, Scalar):
            number = value.value.item()
            plain = not isinstance(number, complex)
            held[name] = {"dtype": value.dtype.name, "value": number if plain else str(number)}
        elif not isinstance(value, complex):
            held[name] = value
    return held


@names
@pytest.mark.in_turns
def test_checks_tell_every_mistake(tmp_path: Path, operator: Operator, capsys: Any) -> None:
    sound, mistakes = table_of(operator)
    path = tmp_path / "call.json"

    def answer(values: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        path.write_text(json.dumps({"arguments": as_file(values)}))
        status = main(["check", operator.python_name, "--file", str(path), "--json"])
        return status, json.loads(capsys.readouterr().out)

    status, told = answer(sound())
    assert (status, told["status"]) == (0, 0)
    for mistake in mistakes:
        plain_values = not any(isinstance(v, complex) for v in mistake.change.values())
        if mistake.change and plain_values:
            status, told = answer(sound() | mistake.change)
            assert status == 1
            refusal = (told["row"].rstrip(ascii_lowercase), told["status"], told["parameter"])
            assert refusal == (mistake.row, mistake.status, mistake.parameter)
            assert told["fix"]


def test_a_row_a_product(tmp_path: Path, capsys: Any) -> None:
    line = "check elu_backward --grad-output bf16:2x3 --self-or-result bf16:2x3:1,2 --products all --json"
    assert main(line.split()) == 1
    told = {row["product"]: row["status"] for row in json.loads(capsys.readouterr().out)}
    assert (told["default"], told["a2"], told["910"]) == (0, 0, 161002)
    pytest.importorskip("yaml")
    (tmp_path / "call.yaml").write_text(
        "product: '910'\narguments:\n  gradOutput: {dtype: float16, shape: [2]}\n  self_or_result: {dtype: float16, shape: [3]}\n"
    )
    assert main(["check", "elu_backward", "--file", str(tmp_path / "call.yaml")]) == 1
    out = capsys.readouterr().out
    for word in ("product 910", "rule     6:", "expected selfOrResult", "got", "fix"):
        assert word in out
    (tmp_path / "call.json").write_text(
        '{"operator": "aclnnElu", "product": "310", "arguments": {"self": "fp16:2x3", "out": null}}'
    )
    line = ["check", "elu", "--file", str(tmp_path / "call.json"), "--out", "fp16:2x3"]
    assert main([*line, "--product", "a2"]) == 0  # what is said on the line goes before the file
    assert main(line) == 1
    capsys.readouterr()
    assert main(["check", "elu_backward", "--grad-output", "null"]) == 1
    assert "161001" in capsys.readouterr().out


def test_scalars_have_dtypes(tmp_path: Path, capsys: Any) -> None:
    line = ["check", "leaky_relu_backward", "--grad-output", "f32:2", "--self", "f32:2"]
    for scalar in ("int8:2", "0.5", "bool:true", "bf16:-1e9", "INT64:-9223372036854775808"):
        assert main([*line, "--negative-slope", scalar]) == 0
    for scalar, status in ("uint32:1", 161002), ("complex64:1+2j", 161002), ("null", 161001):
        capsys.readouterr()
        assert main([*line, "--negativeSlope", scalar]) == 1
        assert f"status {status}" in capsys.readouterr().out
    (tmp_path / "call.json").write_text(
        '{"arguments": {"negative_slope": {"dtype": "uint32", "value": 1}}}'
    )
    assert main([*line, "--file", str(tmp_path / "call.json")]) == 1
    assert "got      UINT32" in capsys.readouterr().out
    for scalar in ("int8:300", "int8:2.5", "f16:1e9", "int8:x", "int8:", "int64:inf", "string:1"):
        assert main([*line, "--negative-slope", scalar]) == 2
        wanted, got = f"an aclScalar of {scalar.split(':')[0].upper()}", scalar.split(":")[1]
        told = capsys.readouterr().err
        assert wanted.replace("F16", "FLOAT16") in told
        assert told.endswith(f"holds, got {got!r}\n")
    for scalar in (":1", "float99:1"):
        assert main([*line, "--negative-slope", scalar]) == 2
        assert "unknown dtype" in capsys.readouterr().err


def test_checks_say_what_is_computed(capsys: Any) -> None:
    line = "check cross_entropy_loss --input float16:4x3 --target int64:4"
    assert main(line.split()) == 0
    out = capsys.readouterr().out
    assert "lossOut          FLOAT16, shape ()" in out
    assert "lseForZlossOut   not computed" in out
    more = "--return-zloss true --loss-out float16:1 --zlossOut float16:1:1 --json"
    assert main([*line.split(), *more.split()]) == 0
    told = json.loads(capsys.readouterr().out)["outputs"]
    assert told["lossOut"] == told["zlossOut"] == {"dtype": "FLOAT16", "shape": [1]}
    assert told["lseForZlossOut"] == {"dtype": "FLOAT16", "shape": [4]}
    assert main([*line.split(), "--zloss-out", "float16:2"]) == 1
    assert "zlossOut" in capsys.readouterr().out
    assert main(["check", "inplace_elu", "--self-ref", "float16:4x3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["output"]["shape"] == [4, 3]
    assert main(["check", "inplace_elu"]) == 1
    assert "161001" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    [
        "nothing", "elu_backward --grad-output float99:2", "elu_backward --grad-output float16:2:x",
        "elu_backward --grad-output float16:2:1,1", "elu_backward --file none.json", "elu_backward --product x",
        "elu_backward --file bad.json", "elu_backward --file list.json", "elu_backward --file name.json",
        "elu_backward --file tensor.json", "elu_backward --file bad.yaml", "elu_backward --grad-output float16",
        "elu_backward --file word.json", "elu_backward --file stride.json", "elu_backward --file other.json",
    ],
)  # fmt: skip
def test_checks_that_mean_nothing(tmp_path: Path, capsys: Any, monkeypatch: Any, line: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "bad.json": "{", "list.json": "[]", "name.json": '{"arguments": {"x": 1}}',
        "tensor.json": '{"arguments": {"gradOutput": {"shape": [1]}}}', "bad.yaml": "a: [",
        "word.json": '{"prodct": "a2", "arguments": {}}', "other.json": '{"operator": "elu", "arguments": {}}',
        "stride.json": '{"arguments": {"gradOutput": {"dtype": "fp16", "shape": [1], "stride": [1]}}}',
    }.items():  # fmt: skip
        Path(name).write_text(text)
    if "yaml" in line:
        pytest.importorskip("yaml")
    assert main(["check", *line.split()]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@names
def test_python_examples_run(tmp_path: Path, operator: Operator) -> None:
    """They assert what they should; one of them in a process of its own."""
    text = example_of(operator, "python")
    exec(text, {})
    if operator is OPERATORS[0]:
        path = tmp_path / "example.py"
        path.write_text(text)
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("language", ["c", "c++"])
def test_compiled_examples_give_what_is_expected(tmp_path: Path, language: str) -> None:
    # The texts differ in little.
    for operator in families(OPERATORS)[language == "c++" :: 5 if EVERYTHING else 12]:
        source = tmp_path / f"{operator.python_name}{LANGUAGES[language]}"
        assert main(["example", operator.name, "--lang", language, "-o", str(source)]) == 0
        words = run_program(compile_program(source, tmp_path / "program")).split()
        expected = expected_of(operator.samples[0], np.float64)
        numbers = np.concatenate([output.reshape(-1) for output in each(expected)])
        names = [word.rstrip(":") for word in words if word.endswith(":")]
        assert names == [parameter.name for parameter in operator.outputs][: len(each(expected))]
        printed = [float(word) for word in words if not word.endswith(":")]
        narrow = (
            FLOAT not in operator.output.dtypes
        )  # FLOAT16, which is computed with in between, too
        np.testing.assert_allclose(printed, numbers, rtol=1e-3 if narrow else 1e-5, atol=1e-7)


def test_the_cmake_example_builds(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("no CMake")
    toolkit = installed()
    operator = OPERATORS[0]
    (tmp_path / "CMakeLists.txt").write_text(example_of(operator, "cmake"))
    (tmp_path / f"{operator.python_name}.cpp").write_text(example_of(operator, "c++"))
    build = tmp_path / "build"
    place = f"-Dopenaclnn_DIR={toolkit.lib / 'cmake' / 'openaclnn'}"
    for command in (["cmake", "-S", tmp_path, "-B", build, place], ["cmake", "--build", build]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert run_program(build / operator.python_name)


def test_examples_are_not_written_over(tmp_path: Path, capsys: Any) -> None:
    line = ["example", OPERATORS[0].name, "-o", str(tmp_path / "x.cpp")]
    assert main(line) == 0
    assert main(line) == 2
    assert main([*line, "--force"]) == 0
    assert main(["example", OPERATORS[0].name, "--lang", "cobol"]) == 2
    capsys.readouterr()
    assert main(["example", OPERATORS[0].name, "--lang", "c", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"].endswith(".c")


def test_lists_and_pages(capsys: Any) -> None:
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {each["name"] for each in listed} == {o.name for o in OPERATORS}
    families = [family for family, _ in itertools.groupby(each["family"] for each in listed)]
    assert len(listed) == len(OPERATORS)
    assert len(set(families)) == len(families)
    assert main(["list"]) == 0
    assert OPERATORS[0].python_name in capsys.readouterr().out
    for operator in OPERATORS:
        assert main(["describe", operator.name, "--json"]) == 0
        page = json.loads(capsys.readouterr().out)
        assert len(page["checks"]) == len(operator.checks)
        assert [p["name"] for p in page["parameters"]] == [p.name for p in operator.parameters]
        assert main(["describe", operator.name]) == 0
        out = capsys.readouterr().out
        assert operator.samples[0].title in out
        assert "Atlas A2" in out
    assert main(["support", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(OPERATORS)


def test_lists_are_searched(capsys: Any) -> None:
    for command, key in (("list", "name"), ("support", "operator")):
        assert main([command, "Softmax", "gradient", "--json"]) == 0
        listed = [each[key] for each in json.loads(capsys.readouterr().out)]
        assert {"aclnnSoftmaxBackward", "aclnnLogSoftmaxBackward"} <= {*listed}
        assert "aclnnSoftmax" not in listed
        assert main([command, "no such", "thing"]) == 2
        told = "no operator has 'no such' and 'thing' in its name, family or summary"
        assert told in capsys.readouterr().err


def test_options_are_the_parameters(capsys: Any) -> None:
    for operator in OPERATORS:
        for command in ("run", "check"):
            assert main([command, operator.python_name, "--help"]) == 0
            out = capsys.readouterr().out
            assert f"openaclnn {command} {operator.python_name}" in out.partition("Example:")[2]
            for parameter in operator.parameters:
                several = operator.result_type is not None
                wanted = command == "check" or several or parameter.kind is not Kind.OUTPUT
                assert not wanted or f"--{parameter.name}" in out


def test_a_fault_in_yaml_is_told_with_its_line(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("yaml")
    (tmp_path / "call.yaml").write_text("arguments:\n  grad_output: float16:2x3\n  alpha: ]\n")
    assert main(["check", "elu_backward", "--file", str(tmp_path / "call.yaml")]) == 2
    assert "call.yaml: line 3, column " in capsys.readouterr().err


def test_the_line_wins_over_the_file(tmp_path: Path, capsys: Any) -> None:
    held = {"product": "910b", "arguments": {"gradOutput": "f16:2x3", "selfOrResult": "F16:2x3"}}
    (tmp_path / "call.json").write_text(json.dumps(held))
    call = ["check", "elu_backward", "--file", str(tmp_path / "call.json")]
    assert main(call) == 0
    assert "(product a2)" in capsys.readouterr().out
    assert main([*call, "--self-or-result", "float16:4"]) == 1
    assert main([*call, "--product", "310b"]) == 1


def test_a_file_of_pytorch_is_named_as_it_was_given(
    tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    np.save(tmp_path / "x.npy", np.zeros(3, np.float32))
    out = tmp_path / "q.pt"
    assert main(["run", "elu", "--self", str(tmp_path / "x.npy"), "--out", str(out)]) == 2
    assert f"openaclnn: {out}: PyTorch writes it, which is not installed" in capsys.readouterr().err


def test_doctor(capsys: Any) -> None:
    from openaclnn.engines import cpu

    assert main(["doctor", "--json"]) == (0 if cpu.unavailable() is None else 1)
    told = json.loads(capsys.readouterr().out)
    assert {row["part"] for row in told} == {"engine", "compiler", "GPU", "library", "cache"}
    assert {row["state"] for row in told} <= {"there", "missing"}
    assert all(row["about"] or row["state"] == "there" for row in told)
    main(["doctor"])
    assert "openaclnn" in capsys.readouterr().out


def test_doctor_has_one_answer_for_triton(capsys: Any, monkeypatch: Any) -> None:
    from openaclnn.engines import gpu

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setattr(gpu, "unavailable", gpu.unavailable.__wrapped__)
    main(["doctor", "--json"])
    rows = [row for row in json.loads(capsys.readouterr().out) if row["name"] == "triton"]
    assert [row["about"].rpartition("; ")[2] for row in rows] == ["pip install triton"] * 2


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        (None, "no NVIDIA driver is installed: libcuda.so.1 is not there"),
        (SimpleNamespace(cuInit=lambda flags: 100), "the NVIDIA driver finds no GPU (error 100), with CUDA_VISIBLE_DEVICES='7'"),
        (SimpleNamespace(cuInit=lambda flags: 0, cuDeviceGetCount=lambda count: 0), "the NVIDIA driver finds no GPU, with CUDA_VISIBLE_DEVICES='7'"),
    ],
)  # fmt: skip
def test_doctor_tells_what_a_gpu_run_lacks(
    library: Any, expected: str, capsys: Any, monkeypatch: Any
) -> None:
    """Not in Triton's words, which speak of active drivers."""
    pytest.importorskip("triton")
    from openaclnn.engines import gpu

    def load(name: str) -> Any:
        if library is None:
            raise OSError(f"{name}: cannot open shared object file")
        return library

    def active() -> Any:
        raise RuntimeError("0 active drivers ([]). There should only be one.")

    target = SimpleNamespace(get_current_target=active)
    monkeypatch.setattr("triton.runtime.driver._active", target)
    monkeypatch.setattr(gpu, "ctypes", SimpleNamespace(CDLL=load, c_int=ctypes.c_int, byref=ctypes.byref))  # fmt: skip
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setattr(gpu, "unavailable", gpu.unavailable.__wrapped__)
    main(["doctor", "--json"])
    rows = json.loads(capsys.readouterr().out)
    engine = next(row for row in rows if (row["part"], row["name"]) == ("engine", "triton"))
    assert engine["about"] == expected
    with openaclnn.use_engine("triton"):
        told = openaclnn.explain("elu", np.ones(3, np.float32))
    assert "active drivers" not in str(told)


def test_the_cache_is_cleared_of_what_is_ours(
    tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("OPENACLNN_CACHE_DIR", str(tmp_path))
    (tmp_path / f"{'a' * 40}.o").write_bytes(CODE_MARK + bytes(100))
    library = tmp_path / "0.0.1-cpython-311-0123456789abcdef" / "lib" / "libopenaclnn_core.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(bytes(50))
    (tmp_path / "letters.txt").write_text("mine")
    os.symlink("/", tmp_path / "building-link")
    assert main(["cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] >= 150
    assert main(["cache", "clear"]) == 0
    assert "do not start until openaclnn-config --prefix is run" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["building-link", "letters.txt"]
    assert main(["cache", "everything"]) == 2
    monkeypatch.setenv("OPENACLNN_CACHE_DIR", str(tmp_path / "none"))
    assert main(["cache", "clear"]) == 0


def test_a_cache_that_cannot_be_written_is_told(
    tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("OPENACLNN_CACHE_DIR", str(file / "below" / "it"))
    assert main(["warmup"]) == 1
    why = f"{file} cannot be written; set OPENACLNN_CACHE_DIR"
    assert capsys.readouterr().err == f"openaclnn: nothing can be kept: {why}\n"
    main(["doctor", "--json"])
    (row,) = (row for row in json.loads(capsys.readouterr().out) if row["part"] == "cache")
    assert (row["state"], row["about"]) == ("missing", why)


def test_warmup_says_at_its_start_that_it_takes_long(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("openaclnn.engines.cpu.warmup", lambda progress: 3)
    monkeypatch.setattr("openaclnn.engines.cpu.unavailable", lambda: None)
    assert main(["warmup"]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith("compiling every CPU kernel into ")
    assert shown.out.startswith("3 plans ready")


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_an_encoding_without_frames_prints_the_rest(encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "openaclnn", "list"], capture_output=True, check=False,
        env=os.environ | {"PYTHONIOENCODING": encoding},
    )  # fmt: skip
    lines = done.stdout.decode(encoding).splitlines()
    assert (done.returncode, done.stderr) == (0, b"")
    assert set(lines[1]) == {"?"}
    assert len(lines) == 2 + len(OPERATORS)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("check elu --self f32:2x", "--self: expected a shape like 2x3, 5 or (), got '2x'"),
        ("check elu --self f32:[2,3)", "--self: expected a shape like 2x3, 5 or (), got '[2,3)'"),
        ("check elu --self f32:1_0x2", "--self: expected a shape like 2x3, 5 or (), got '1_0x2'"),
        ("check elu --self f32:2x3:", "--self: expected strides like 3,1, got ''"),
        ("check elu --self f32:2x3:3", "--self: expected 2 strides for shape (2, 3), got 1"),
        ("check elu --self f32", "--self: expected DTYPE:SHAPE, as float16:2x3, got 'f32'"),
        ("golden elu --shape 2x -o x", "expected a shape like 2x3, 5 or (), got '2x'"),
        ("golden elu --shape 2 --range nan,1 -o x", "expected two numbers, as -2,2, got 'nan,1'"),
        ("run elu --self x.bin:f32:2x --out y.npy", "x.bin: expected a shape like 2x3, 5 or (), got '2x'"),
    ],
)  # fmt: skip
def test_what_is_written_badly_is_refused_with_what_was_expected(
    capsys: Any, line: str, told: str
) -> None:
    assert main(line.split()) == 2
    assert capsys.readouterr().err.strip() == f"openaclnn: {told}"


@pytest.mark.parametrize(
    ("line", "got"),
    [("check softmax --self f32:2x3 --dim true", "True"), ("check elu --self f32:2 --alpha [1]", "'[1]'"), ("check elu --self f32:2 --alpha 1_0", "'1_0'")],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_shown_as_it_was_written(
    capsys: Any, line: str, got: str
) -> None:
    assert main(line.split()) == 1
    assert f"got      {got}\n" in capsys.readouterr().out
