"""Case lists: read as they are written, run three ways, judged by the oracle; what is wrong in them is told."""

from __future__ import annotations

import csv
import json
import math
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import openaclnn
from conftest import OPERATORS, families
from openaclnn.cli import main
from openaclnn.core.declare import Operator
from openaclnn.core.interface import Kind
from openaclnn.core.tensor import Tensor
from openaclnn.operators import find_operator
from openaclnn.testing import CaseResult, level_cases, read_cases, run_cases
from openaclnn.testing.cases.case import Malformed
from openaclnn.testing.cases.ttk import read_literal
from openaclnn.testing.files import FileError, read_array
from openaclnn.testing.run import COLUMNS
from workloads import data_of

names = pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.python_name)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with path.open("w", newline="") as file:
        lines = csv.DictWriter(file, columns)
        lines.writeheader()
        lines.writerows(rows)
    return path


def run(path: Path, **options: Any) -> list[CaseResult]:
    return list(run_cases(read_cases(path), **options))


def only(path: Path, **options: Any) -> CaseResult:
    [result] = run(path, **options)
    return result


def aclnn_row(operator: Operator, **more: Any) -> dict[str, Any]:
    """The operator's sound call as a row of a TTK table."""
    arguments = data_of(operator).sound()
    tensors = [arguments[p.name] for p in operator.tensors]
    attributes = {n: v for n, v in arguments.items() if not isinstance(v, Tensor) and v is not None}
    return {
        "testcase_name": operator.python_name,
        "api_name": operator.name,
        "tensor_view_shapes": tuple(None if t is None else t.shape for t in tensors),
        "tensor_dtypes": tuple(None if t is None else t.dtype.numpy.name for t in tensors),
        "attributes": attributes,
        **more,
    }


@names
@pytest.mark.parametrize("through", ["two-phase", "plain"])
@pytest.mark.in_turns
def test_a_table_of_the_interface(tmp_path: Path, operator: Operator, through: str) -> None:
    path = write_csv(tmp_path / "cases.csv", [aclnn_row(operator)])
    result = only(path, through=through)
    assert result.verdict == "passed", result
    assert result.comparison is not None
    name = result.comparison.output or operator.output.name
    assert result.comparison.count == math.prod(data_of(operator).sound()[name].shape) > 0


@names
def test_an_atk_list(tmp_path: Path, operator: Operator) -> None:
    arguments = data_of(operator).sound()
    inputs = []
    for parameter in operator.parameters:
        value = arguments[parameter.name]
        if isinstance(value, Tensor):
            entry = {"type": "tensor", "dtype": value.dtype.short.replace("f", "fp").replace("bfp", "bf").replace("s", "int").replace("u", "uint"), "shape": list(value.shape), "range_values": None}  # fmt: skip
        elif parameter.is_tensor:
            entry = {"type": "tensor", "dtype": "fp32", "shape": None}
        else:
            kind = "scalar" if parameter.kind is Kind.SCALAR else "attr"
            entry = {"type": kind, "dtype": "fp32" if kind == "scalar" else "float", "range_values": value}  # fmt: skip
        if parameter.is_read or not parameter.is_tensor:
            inputs.append({"name": parameter.python_name + "s", **entry})
    case = {"id": 7, "name": "one", "aclnn_name": operator.name, "inputs": inputs}
    path = tmp_path / "cases.json"
    path.write_text(json.dumps([case]))
    result = only(path)
    assert result.verdict == "passed", result
    assert result.identity == "7"


@names
def test_refusals_say_the_rule(tmp_path: Path, operator: Operator) -> None:
    row = aclnn_row(operator)
    shapes = list(row["tensor_view_shapes"])
    shapes[0] = (2,) * 9  # fits no other
    if len(shapes) == 1:  # which some documents allow
        row["tensor_dtypes"] = ("complex64",)
    path = write_csv(tmp_path / "cases.csv", [row | {"tensor_view_shapes": tuple(shapes)}])
    result = only(path)
    assert result.verdict == "refused"
    assert result.status in (161002, 561002)
    assert result.rule
    assert operator.name in result.why


@pytest.mark.parametrize("operator", families(OPERATORS), ids=lambda op: op.python_name)
@pytest.mark.in_turns
def test_drawn_cases_of_a_level(operator: Operator) -> None:
    for through in ("two-phase", "plain"):
        results = list(run_cases(level_cases(operator, "L0", count=9, seed=2), through=through))
        assert [result.verdict for result in results] == ["passed"] * 9, results


KERNELS = [
    {"op_name": "elu_grad_v2", "input_shapes": "((4, 5), (4, 5))", "input_dtypes": "float16", "output_shapes": "((4, 5),)",
     "output_dtypes": "float16", "attributes": "{'alpha': 1.5, 'scale': 1.0, 'input_scale': 1.0, 'is_result': False}"},
    {"op_name": "l1_loss_grad", "input_shapes": "((1,), (4, 5), (5,))", "input_dtypes": "('float32', 'bfloat16', 'float16')", "attributes": "{'reduction': 'sum'}"},
    {"op_name": "smooth_l1_loss_grad_v2", "input_shapes": "((4, 5), (4, 5), ())", "input_dtypes": "float32", "attributes": "{'sigma': 0.5, 'reduction': 'mean'}"},
    {"op_name": "cross_entropy_loss_grad", "input_shapes": "((8,), (8, 3), (8,), None, None, None)",
     "input_dtypes": "('float32', 'float32', 'int64', None, None, None)", "attributes": "{'reduction': 'none', 'ignore_index': 1, 'label_smoothing': 0.1}"},
    {"op_name": "nll_loss_grad", "input_shapes": "((2, 3, 4, 5), (1,), (2, 4, 5), (3,), (1,))",
     "input_dtypes": "('float32', 'float32', 'int32', 'float32', 'float32')", "attributes": "{'reduction': 'mean'}",
     "input_data_ranges": "(None, (1, 1), (0, 2), (0.5, 2), (3, 3))"},
    {"op_name": "nll_loss_grad", "input_shapes": "((8, 3), (1,), (8,), (3,), (1,))",
     "input_dtypes": "('float32', 'float32', 'int32', 'float32', 'float32')", "attributes": "{'reduction': 'mean'}",
     "input_data_ranges": "(None, (1, 1), (0, 2), (0.5, 2), (3, 3))"},
    {"op_name": "elu", "input_shapes": "((4, 5),)", "input_dtypes": "bfloat16", "attributes": "{'alpha': 1.5}"},
    {"op_name": "smooth_l1_loss_v2", "input_shapes": "((4, 5), (5,))", "input_dtypes": "float32",
     "output_shapes": "((1,),)", "output_dtypes": "float32", "attributes": "{'sigma': 0.5, 'reduction': 'sum'}"},
    {"op_name": "nll_loss", "input_shapes": "((8, 3), (8,), (3,))", "input_dtypes": "('float32', 'int64', 'float32')",
     "output_shapes": "((8,), (1,))", "output_dtypes": "float32", "attributes": "{'reduction': 'none'}"},
    {"op_name": "nll_loss", "input_shapes": "((2, 3, 4, 5), (2, 4, 5), (3,))",
     "input_dtypes": "('float16', 'int32', 'float16')", "attributes": "{'reduction': 'sum', 'ignore_index': 1}"},
    {"op_name": "cross_entropy_loss", "input_shapes": "((8, 3), (8,), None)", "input_dtypes": "('float32', 'int64', None)",
     "output_shapes": "((1,), (8, 3), (1,), (8,))", "output_dtypes": "('float32', 'float32', 'float32', 'float32')",
     "attributes": "{'reduction': 'mean', 'return_zloss': True, 'lse_square_scale_for_zloss': 0.5}"},
]  # fmt: skip


@pytest.mark.parametrize("row", KERNELS, ids=lambda row: f"{row['op_name']} {row['input_shapes']}")
def test_tables_of_kernels(tmp_path: Path, row: dict[str, Any]) -> None:
    result = only(write_csv(tmp_path / "cases.csv", [row]))
    assert result.verdict == "passed", result
    assert result.name == "auto_testcase_name_0"


def test_several_outputs_in_a_table(tmp_path: Path) -> None:
    """Tolerances, golden files and views of each; the verdict is that of the worst, which is named."""
    values = {"self": [[-1.0, -2.0, -3.0]] * 4, "target": [0, 1, 2, 0], "weight": [1.0, 2.0, 3.0]}
    base = {
        "api_name": "aclnnNLLLoss", "tensor_view_shapes": "((4, 3), (4,), (3,), (4,), (1,))",
        "tensor_dtypes": "('float32', 'int64', 'float32', 'float32', 'float32')",
        "attributes": repr({"reduction": "none", **values}),
    }  # fmt: skip
    np.float32([1, 4, 9, 1]).tofile(tmp_path / "loss.bin")
    np.float32([7.5]).tofile(tmp_path / "wrong.bin")
    np.float32([7]).tofile(tmp_path / "total.bin")
    changes: list[tuple[dict[str, str], str]] = [
        ({}, "passed"),
        ({"manual_golden_binaries": "('loss.bin', 'total.bin')"}, "passed"),
        ({"manual_golden_binaries": "('loss.bin', 'wrong.bin')"}, "failed"),
        ({"manual_golden_binaries": "(None, 'wrong.bin')"}, "failed"),
        ({"manual_golden_binaries": "(None, 'wrong.bin')", "precision_tolerances": "((0, 0), (0.1, 0))"}, "passed"),
        ({"manual_golden_binaries": "(None, 'wrong.bin')", "precision_tolerances": "((0.1, 0), (0, 0))"}, "failed"),
        ({"manual_golden_binaries": "(None, 'wrong.bin')", "precision_tolerances": "(0.1, 0)"}, "passed"),
        ({"tensor_view_strides": "(None, None, None, (-2,), None)", "tensor_view_offsets": "(0, 0, 0, 6, 3)"}, "passed"),
        ({"output_tensor_indexes": "(3, 4)"}, "passed"),
        ({"output_tensor_indexes": "(2, 4)"}, "skipped"),
        ({"tensor_view_shapes": "((4, 3), (4,), (3,), (4,), (2,))"}, "refused"),
    ]  # fmt: skip
    path = write_csv(tmp_path / "cases.csv", [base | change for change, _ in changes])
    for through in ("two-phase", "plain"):
        results = run(path, through=through)
        assert [result.verdict for result in results] == [verdict for _, verdict in changes], (
            results
        )
        assert results[2].why.startswith("totalWeightOut: ")
        assert results[2].row()[COLUMNS.index("output")] == "totalWeightOut"
        assert "tensor 2 is weight, which is not written" in results[9].why


def test_a_buffer_that_nobody_writes_may_be_among_the_outputs(tmp_path: Path) -> None:
    """The prototype says no more of it than of an output."""
    row = {
        "api_name": "aclnnLogSigmoidForward", "tensor_view_shapes": "((2, 3), (2, 3), (0,))", "tensor_dtypes": "('float32',)",
        "output_tensor_indexes": "(1, 2)",
    }  # fmt: skip
    empty, missing = row, row | {"tensor_view_shapes": "((2, 3), (2, 3), None)"}
    path = write_csv(tmp_path / "cases.csv", [empty, missing])
    assert [result.verdict for result in run(path)] == ["passed", "passed"]


def test_what_is_not_computed_is_not_judged(tmp_path: Path) -> None:
    operator = find_operator("cross_entropy_loss")
    rows = [aclnn_row(operator, testcase_name="without"), aclnn_row(operator, testcase_name="with")]
    rows[1]["attributes"] |= {"returnZloss": True, "lseSquareScaleForZloss": 0.5}
    results = run(write_csv(tmp_path / "cases.csv", rows), golden=tmp_path / "g")
    assert [result.verdict for result in results] == ["passed", "passed"], results
    zloss = [tmp_path / "g" / name / "golden_zloss.npy" for name in ("without", "with")]
    assert [path.exists() for path in zloss] == [False, True]


@pytest.mark.parametrize("through", ["two-phase", "plain"])
def test_what_is_not_written_is_not_judged(tmp_path: Path, through: str) -> None:
    """Without classes a pixel has no loss; the total weight is there."""
    row = {
        "api_name": "aclnnNLLLoss2d", "tensor_view_shapes": "((1, 0, 2, 2), (1, 2, 2), (0,), (1, 2, 2), (1,))",
        "tensor_dtypes": "('float32', 'int64', 'float32', 'float32', 'float32')",
        "attributes": repr({"reduction": "none", "target": [[[0, 0], [0, 0]]]}),
    }  # fmt: skip
    path = write_csv(tmp_path / "cases.csv", [row])
    result = only(path, through=through, compare="binary")
    assert result.verdict == "passed", result


def test_spreadsheets(tmp_path: Path, capsys: Any) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["testcase_name", *KERNELS[0]])
    book.active.append(["first", *KERNELS[0].values()])
    other = book.create_sheet("other")
    other.append(["testcase_name", *KERNELS[1]])
    other.append(["second", *KERNELS[1].values()])
    path = tmp_path / "cases.xlsx"
    book.save(path)
    assert only(path).name == "first"
    assert main(["cases", str(path), "--sheet", "other", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cases"][0]["name"] == "second"
    assert main(["cases", str(path), "--sheet", "none"]) == 2
    (tmp_path / "broken.xlsx").write_bytes(b"nothing")
    assert main(["cases", str(tmp_path / "broken.xlsx")]) == 2


ELU = {
    "api_name": "aclnnEluBackward", "tensor_view_shapes": "((4, 3), (4, 3), (4, 3))", "tensor_dtypes": "float32",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"tensor_view_shapes": "((4, 3), (4, 3"}, "tensor_view_shapes"),
        ({"tensor_view_shapes": "((4, 3), (4, 3), (4, 3), (4, 3))"}, "tensor_view_shapes"),
        ({"tensor_view_shapes": "((4, 3), (4, -3), (4, 3))"}, "tensor_view_shapes"),
        ({"tensor_view_shapes": "((4, 3), (4, 'x'), (4, 3))"}, "tensor_view_shapes"),
        ({"api_name": ""}, "api_name"),
        ({"attributes": "{'alpha': __import__('os').getpid()}"}, "attributes"),
        ({"attributes": "[1]"}, "attributes"),
        ({"input_data_ranges": "((2, 1), None)"}, "input_data_ranges"),
        ({"input_data_ranges": "(('x', 2), None)"}, "input_data_ranges"),
        ({"tensor_view_strides": "((9, 1), None, None)", "tensor_storage_shapes": "((12,), None, None)"}, "tensor_view_strides"),
        ({"tensor_view_strides": "((-1, 1), None, None)"}, "tensor_view_strides"),
        ({"tensor_formats": "XYZ"}, "tensor_formats"),
        ({"output_tensor_indexes": "(0,)"}, "output_tensor_indexes"),
        ({"precision_tolerances": "(1,)"}, "precision_tolerances"),
        ({"precision_tolerances": "(nan, 0.1)"}, "precision_tolerances"),
        ({"precision_tolerances": "((0.1, 0.1), (0.1, 7))"}, "precision_tolerances"),
        ({"absolute_precision": "'x'"}, "absolute_precision"),
        ({"absolute_precision": "nan"}, "absolute_precision"),
        ({"absolute_precision": "-1"}, "absolute_precision"),
        ({"absolute_precision": "9" * 400}, "absolute_precision"),
        ({"scalar_data_ranges": "9" * 400}, "scalar_dtypes"),
        ({"attributes": "{'selfOrResult': 'ab'}"}, "attributes"),
        ({"manual_tensor_binaries": "(1, 2, 3)"}, "manual_tensor_binaries"),
        ({"manual_golden_binaries": "(1,)"}, "manual_golden_binaries"),
        ({"attributes": "{'selfOrResult': [1.0, 2.0]}"}, "attributes"),
    ],
)  # fmt: skip
def test_unreadable_rows_are_told_with_line_and_column(
    tmp_path: Path, change: dict[str, str], column: str
) -> None:
    path = write_csv(tmp_path / "cases.csv", [ELU, ELU | change, ELU])
    before, unreadable, after = run(path)
    assert (before.verdict, after.verdict) == ("passed", "passed")
    assert (unreadable.verdict, unreadable.reason) == ("skipped", "unreadable")
    assert unreadable.place == "cases.csv, line 3"
    assert f"column {column}" in unreadable.why, unreadable.why
    assert "broadcast" not in unreadable.why  # in words of lists, not of NumPy


def test_one_entry_stands_for_all(tmp_path: Path) -> None:
    one = {
        "tensor_dtypes": "('float16',)",
        "tensor_formats": "['ND']",
        "input_data_ranges": "((1, 1),)",
    }
    path = write_csv(tmp_path / "cases.csv", [ELU | one])
    [case] = read_cases(path)
    assert not isinstance(case, Malformed), case
    specs = [spec for spec in case.tensors.values() if spec is not None]
    assert {spec.dtype.name for spec in specs} == {"FLOAT16"}
    assert only(path).ok
    alone = ELU | {"manual_tensor_binaries": "('x.bin',)"}  # a file is one tensor's
    np.float32([[7] * 3] * 4).tofile(tmp_path / "x.bin")
    [case] = read_cases(write_csv(path, [alone]))
    assert not isinstance(case, Malformed)
    assert [spec is None or spec.binary is None for spec in case.tensors.values()] == [
        False,
        True,
        True,
    ]


def test_lines_are_counted_where_cells_have_several(tmp_path: Path) -> None:
    row = {"remark": "two\nlines", **ELU}
    path = write_csv(tmp_path / "cases.csv", [row, row | {"api_name": "x"}])
    assert run(path)[1].place == "cases.csv, line 4"


def test_literals_are_not_evaluated() -> None:
    assert read_literal("((1, 2), None, {'a': [inf, -inf, nan]}, True, 'x', -1.5)")[0] == (1, 2)
    for bad in ("open('x')", "a", "1 + 1", "[x for x in ()]", "(" * 10_000, "{1: 2}", "{**{}}", "f'{1}'", "-'x'", "..."):  # fmt: skip
        with pytest.raises(ValueError, match=r"literal|names"):
            read_literal(bad)


def test_views_ranges_and_values(tmp_path: Path) -> None:
    base = {"api_name": "aclnnL1LossBackward", "tensor_view_shapes": "((4, 3), (4, 3), (3,), (4, 3))", "attributes": "{'reduction': 'none'}"}  # fmt: skip
    rows = [
        base | {"tensor_dtypes": "bfloat16", "tensor_view_strides": "((1, 4), (-3, 1), None, (6, 2))",
                "tensor_view_offsets": "(0, 9, 2, 1)"},
        base | {"tensor_dtypes": "float16", "input_data_ranges": "((-5, 5, inf, nan), (inf, inf), (1, 1))"},
        base | {"tensor_dtypes": "float32", "attributes": "{'reduction': 0, 'target': [1, 2, 3]}"},
        base | {"tensor_dtypes": "float32", "tensor_view_strides": "((0, 1), None, None, None)", "tensor_storage_shapes": "((3,), None, None, None)"},
        base | {"tensor_dtypes": "float32", "tensor_view_shapes": "((0, 3), (0, 3), (3,), (0, 3))"},
        base | {"tensor_dtypes": "float32", "precision_tolerances": "((1e-4, 1e-4),)", "absolute_precision": "1e-9"},
    ]  # fmt: skip
    path = write_csv(tmp_path / "cases.csv", rows)
    results = run(path)
    assert [result.verdict for result in results] == ["passed"] * 6, results
    assert results[5].comparison is not None
    assert results[5].comparison.standard == "close"
    assert [r.verdict for r in run(path, compare="binary")][1:3] == ["passed", "passed"]


def test_scalars_with_dtypes_and_ranges(tmp_path: Path) -> None:
    rows = [
        ELU | {"scalar_dtypes": "('float32', 'int32', 'float16')", "scalar_data_ranges": "((0, 1), (2, 2), (0.5, 0.5))"},
        ELU | {"scalar_dtypes": "float16", "attributes": "{'alpha': 1.5}"},
        ELU | {"scalar_dtypes": "('complex64', 'float32', 'float32')"},
    ]  # fmt: skip
    results = run(write_csv(tmp_path / "cases.csv", rows))
    assert [result.verdict for result in results] == ["passed", "passed", "refused"], results


def test_binaries(tmp_path: Path) -> None:
    x = np.float32([[1, 2, 3]] * 4)
    x.tofile(tmp_path / "x.bin")
    x.tofile(tmp_path / "x.data")
    np.float32(x * 2).tofile(tmp_path / "golden.bin")
    row = ELU | {
        "manual_tensor_binaries": "('x.bin', 'x.data', None)",
        "attributes": "{'scale': 2.0}",
    }
    golden = row | {"manual_golden_binaries": "('golden.bin',)"}
    wrong = row | {"manual_golden_binaries": "('x.bin',)"}
    short = ELU | {"manual_tensor_binaries": "('short.bin', None, None)"}
    (tmp_path / "short.bin").write_bytes(b"123")
    results = run(write_csv(tmp_path / "cases.csv", [row, golden, wrong, short]))
    assert [result.verdict for result in results] == ["passed", "passed", "failed", "failed"]
    assert "short.bin: 3 bytes are not shape (4, 3)" in results[3].why


def atk(tmp_path: Path, *cases: Any) -> list[CaseResult]:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(list(cases)))
    return run(path)


def entropy(shape: list[int], scale: Any = None, **ranges: Any) -> dict[str, Any]:
    rows, classes = shape
    shapes = {
        "gradLoss": [rows],
        "logProb": shape,
        "targets": [rows],
        "weight": [classes],
        "gradZloss": [3, 3],
        "lse": [5],
    }
    inputs = [
        {"name": n, "type": "tensor", "dtype": {"targets": "int64"}.get(n, "fp32"), "shape": s, "range_values": ranges.get(n)}
        for n, s in shapes.items()
    ]  # fmt: skip
    for name, dtype, value in (("reduction", "string", "none"), ("ignoreIndex", "int", -100), ("smoothing", "float", 0.0), ("scale", "float", scale)):  # fmt: skip
        inputs.append({"name": name, "type": "attr", "dtype": dtype, "range_values": value})
    return {"id": 1, "name": "ce", "aclnn_name": "aclnnCrossEntropyLossGrad", "inputs": inputs}


def test_atk_words(tmp_path: Path) -> None:
    normal = {"name": "nd", "mean": [-1, 1], "std": [0.5, 2]}
    results = atk(
        tmp_path, entropy([8, 5], 0.0), entropy([8, 5], 0, gradLoss=normal, logProb=[-3, 0]), entropy([0, 5], 0),
        entropy([8, 5], 0, targets=[0, 4], gradLoss=["inf", "inf"]), entropy([8, 5], 0.5), entropy([8, 5], 0, gradLoss=1.5),
        entropy([8, 5], 0, gradLoss=["nan", "nan"]),
    )  # fmt: skip
    verdicts = [result.verdict for result in results]
    assert verdicts == ["passed"] * 4 + ["refused"] + ["passed"] * 2, results
    assert "lseForZlossOptional" in results[4].why or "gradZlossOptional" in results[4].why


def test_malformed_atk(tmp_path: Path) -> None:
    good = entropy([8, 5], 0)
    tensor = {"name": "gradLoss", "type": "tensor", "dtype": "fp32", "shape": [8]}
    results = atk(
        tmp_path, 3, {}, {"aclnn_name": "aclnnNothing"}, {"aclnn_name": "aclnnEluBackward"},
        good | {"inputs": [tensor] * 11}, good | {"inputs": [tensor | {"dtype": "fp99"}]},
        good | {"inputs": [tensor | {"shape": [1.5]}]}, good | {"inputs": [tensor | {"type": "attr"}]},
        good | {"inputs": [tensor | {"range_values": {"name": "poisson"}}]},
        good | {"inputs": [tensor | {"range_values": {"name": "nd", "mean": [0, 1], "std": [-1, 1]}}]}, good,
    )  # fmt: skip
    assert [result.verdict for result in results] == ["skipped"] * 10 + ["passed"]
    reasons = [
        "another operator" if n == 2 else "dtype" if n == 5 else "unreadable" for n in range(10)
    ]
    assert [result.reason for result in results] == [*reasons, ""]
    assert results[5].place == "cases.json, case 5"
    assert results[5].why.startswith("inputs, gradLoss: unknown dtype 'fp99'; known: FLOAT, ")
    for text in ("", "{}", "[1", "\xff"):
        (tmp_path / "x.json").write_bytes(text.encode("latin-1"))
        with pytest.raises(FileError):
            run(tmp_path / "x.json")


def test_data_depend_on_seed_and_name_alone(tmp_path: Path) -> None:
    rows = [ELU | {"testcase_name": name} for name in "abc"]
    path = write_csv(tmp_path / "cases.csv", rows)

    def data(folder: str, cases: Any, **options: Any) -> bytes:
        list(run_cases(cases, golden=tmp_path / folder, **options))
        return read_array(tmp_path / folder / "b" / "grad_output.npy").tobytes()

    alone = [case for case in read_cases(path) if case.name == "b"]
    first = data("one", read_cases(path))
    assert first == data("two", alone) == data("three", read_cases(path), jobs=2)
    assert first != data("four", read_cases(path), seed=1)
    about = json.loads((tmp_path / "one" / "b" / "case.json").read_text())
    assert about["operator"] == "aclnnEluBackward"
    assert about["attributes"]["alpha"] == 1.0
    assert (tmp_path / "one" / "b" / "golden.bin").stat().st_size == 48


def test_products(tmp_path: Path) -> None:
    rows = [
        ELU | {"soc_series": "Ascend910B"}, ELU | {"soc_series": "('Ascend310P', 'Ascend950')"},
        ELU | {"soc_series": "-Ascend910B"}, ELU, ELU | {"tensor_dtypes": "bfloat16"},
    ]  # fmt: skip
    path = write_csv(tmp_path / "cases.csv", rows)
    skipped = ["passed", "skipped", "skipped", "passed", "passed"]
    assert [result.verdict for result in run(path, product="910b")] == skipped
    assert run(path, product="310p")[4].verdict == "refused"
    assert all(result.verdict == "passed" for result in run(path))


@pytest.mark.parametrize("through", ["two-phase", "plain"])
def test_golden_values_are_those_of_the_product(tmp_path: Path, through: str) -> None:
    """A family takes the z-loss arguments without effect, and without the tensor that a z-loss needs."""
    zloss = {"lseSquareScaleForZloss": 0.5}
    loss, grad = (find_operator(f"cross_entropy_loss{end}") for end in ("", "_grad"))
    rows = [aclnn_row(loss, testcase_name="loss"), aclnn_row(grad, testcase_name="grad")]
    rows[0]["attributes"] |= zloss | {"returnZloss": True}
    rows[1]["attributes"] |= zloss
    for number, name in enumerate(p.name for p in grad.tensors):
        if name in ("gradZlossOptional", "lseForZlossOptional"):
            for key in ("tensor_view_shapes", "tensor_dtypes"):
                rows[1][key] = tuple(None if n == number else v for n, v in enumerate(rows[1][key]))
    path = write_csv(tmp_path / "cases.csv", rows)
    results = run(path, product="950", through=through, golden=tmp_path / "g")
    assert [result.verdict for result in results] == ["passed", "passed"], results
    assert [result.verdict for result in run(path, through=through)] == ["passed", "refused"]
    golden = {each.name for each in (tmp_path / "g" / "loss").glob("golden_*_float64.npy")}
    assert golden == {"golden_loss_float64.npy", "golden_log_prob_float64.npy"}
    folder = tmp_path / "g" / "loss"
    options = json.loads((folder / "case.json").read_text())["attributes"]
    options |= {name: read_array(folder / f"{name}.npy") for name in ("input", "target", "weight")}
    options |= {"lse_square_scale_for_zloss": 0.0, "return_zloss": False}
    exact = read_array(folder / "golden_loss_float64.npy")
    np.testing.assert_array_equal(exact, loss.oracle(**options).loss)


def test_large_cases_of_a_product(tmp_path: Path) -> None:
    """They are taken in pieces, which the product's rules alone are asked about."""
    operator = find_operator("cross_entropy_loss_grad")
    shapes, names = ((1000,), (1000, 100), (1000,), None, None, None, (1000, 100)), operator.tensors
    types = {"target": "int64"}
    row = {
        "api_name": operator.name, "tensor_view_shapes": repr(shapes),
        "tensor_dtypes": repr(tuple(None if s is None else types.get(p.name, "float32") for p, s in zip(names, shapes, strict=True))),
        "attributes": repr({"reductionOptional": "none", "lseSquareScaleForZloss": 0.5}),
    }  # fmt: skip
    path = write_csv(tmp_path / "cases.csv", [row])
    assert only(path, product="950").verdict == "passed"


def test_drawn_cases_of_a_product() -> None:
    cases = list(level_cases("elu_backward", "L0", count=30))
    results = list(run_cases(cases, product="310p"))
    assert {result.verdict for result in results} == {"passed", "refused"}
    assert all("BFLOAT16" in result.why for result in results if result.verdict == "refused")


def test_the_product_in_force(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "cases.csv", [ELU | {"tensor_dtypes": "bfloat16"}])
    with openaclnn.use_product("310p"):
        assert only(path).verdict == "refused"
        assert only(path, product="default").verdict == "passed"


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    """They may say the same; what stands in both and differs is refused, whichever was meant."""
    path = tmp_path / "cases.csv"
    write_csv(path, [ELU | {"testcase_name": "a"}])
    head, row = path.read_text().splitlines()
    for again in ("a", ""):
        path.write_text(f"{head},testcase_name\n{row},{again}\n")
        assert [result.verdict for result in run(path)] == ["passed"]
    path.write_text(f"{head},testcase_name\n{row},other\n")
    with pytest.raises(FileError, match="line 2: two columns testcase_name, with a and other"):
        run(path)


def test_unknown_words() -> None:
    for wrong in (
        {"compare": "strict"},
        {"compare": "cross_check"},
        {"through": "x"},
        {"product": "x"},
    ):
        with pytest.raises(ValueError, match=r"unknown|third"):
            list(run_cases([], **wrong))  # type: ignore[arg-type]
    with pytest.raises(FileError, match="a case list named"):
        read_cases("cases.txt")
    with pytest.raises(ValueError, match="unknown level"):
        list(level_cases("elu_backward", "L9"))


def test_unwritten_output_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from openaclnn.testing import run as module

    monkeypatch.setattr(module, "run_through", lambda way, built: (0, ""))
    result = only(write_csv(tmp_path / "cases.csv", [ELU]))
    assert result.verdict == "failed"


def test_memory_stays_flat() -> None:
    """Nothing of a case is kept: hundreds take no more than the first of them."""
    cases = list(level_cases("elu_backward", "L1", count=200))
    list(run_cases(cases[:50]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert all(result.ok for result in run_cases(iter(cases[50:])))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20_000, f"{grown} kB"


def test_through_c(tmp_path: Path) -> None:
    from openaclnn.testing import calls
    from test_capi_tools import installed

    installed()  # skips where there is no compiler
    rows = [
        *[aclnn_row(operator) for operator in families(OPERATORS)],
        ELU | {"tensor_view_strides": "((1, 4), (-3, 1), (6, 2))", "tensor_view_offsets": "(0, 9, 1)"},
        ELU | {"tensor_view_shapes": "((), (), ())"}, ELU | {"tensor_view_shapes": "((0, 3), (0, 3), (0, 3))"},
        ELU | {"attributes": "{'alpha': -1.0, 'isResult': True}"},
    ]  # fmt: skip
    try:
        results = run(write_csv(tmp_path / "cases.csv", rows), through="c")
    finally:  # other tests begin with a runtime that is not initialised
        session = calls._session()
        session.library.aclrtDestroyStream(session.stream)
        session.library.aclrtResetDevice(0)
        session.library.aclFinalize()
        calls._session.cache_clear()
    verdicts = [result.verdict for result in results]
    assert verdicts == ["passed"] * (len(families(OPERATORS)) + 3) + ["refused"], results


def test_the_command(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [ELU | {"testcase_name": "a"}, ELU | {"testcase_name": "b", "attributes": "{'alpha': -1.0, 'isResult': True}"}]  # fmt: skip
    write_csv(tmp_path / "cases.csv", [*rows, ELU | {"testcase_name": "c", "api_name": "x"}])
    assert main(["cases", "cases.csv", "--csv", "results.csv"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    line = "3 cases: 1 passed, 1 refused, 1 skipped (1 end-to-end); "
    assert out.splitlines()[-1].startswith(line)
    assert "rule 9: alpha >= 0 if isResult" in out
    with open("results.csv") as file:
        held = list(csv.DictReader(file))
    assert [row["verdict"] for row in held] == ["passed", "refused", "skipped"]
    assert held[1]["status"] == "161002"
    for line in ("--name a*", "--id 0", "--operator elu_backward --name a", "--name a -j 2"):
        assert main(["cases", "cases.csv", *line.split()]) == 0
        assert capsys.readouterr().out.splitlines()[-1].startswith("1 case: 1 passed; ")
    assert (
        main(
            [
                "cases",
                "--level",
                "L0",
                "--count",
                "6",
                "--operator",
                "elu_backward",
                "--golden",
                "g",
            ]
        )
        == 0
    )
    assert len(json.loads(Path("g/cases.json").read_text())["cases"]) == 6
    Path("strange.csv").write_text("a;b\n1;2\n")
    capsys.readouterr()
    for line in (
        "",
        "none.csv",
        "cases.csv --compare x",
        "cases.csv --product x",
        "results.txt",
        "cases.csv --operator x",
        "cases.csv --name nobody",
        "strange.csv",
    ):
        assert main(["cases", *line.split()]) == 2, line
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_golden_folders_of_one_name(tmp_path: Path) -> None:
    """Two lists may use a name, and names may differ in what no folder can be called."""
    rows = [ELU | {"testcase_name": name} for name in ("a/b", "a_b", "a_b-2", "a_b")]
    path = write_csv(tmp_path / "cases.csv", rows)
    assert all(result.ok for result in run(path, golden=tmp_path / "g"))
    held = {p.parent.name: json.loads(p.read_text()) for p in (tmp_path / "g").glob("*/case.json")}
    assert [(name, held[name]["place"][-1]) for name in sorted(held)] == [
        ("a_b", "2"), ("a_b-2", "3"), ("a_b-2-2", "4"), ("a_b-3", "5"),
    ]  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030", "utf-16"])
def test_what_spreadsheets_write(tmp_path: Path, encoding: str) -> None:
    path = write_csv(tmp_path / "cases.csv", [ELU | {"remark": "备注"}])
    path.write_text(path.read_text("utf-8"), encoding)
    assert only(path).ok


@pytest.mark.parametrize(
    ("separator", "first"),
    [(";", ""), ("\t", ""), ("|", "sep=|\n"), (",", "sep=,\r\n"), (";", "\n")],
)
def test_separators_of_spreadsheets(tmp_path: Path, separator: str, first: str) -> None:
    """With semicolons go decimal commas, and headers are what people make of them."""
    path = tmp_path / "cases.csv"
    row = ELU | {"absolute_precision": "2,50E-01" if separator == ";" else "0.25", "precision_tolerances": "((0.5, 0.1),)"}  # fmt: skip
    with path.open("w", newline="") as file:
        file.write(first)
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(name.replace("_", " ").title() + " " for name in row)
        writer.writerow(row.values())
    (case,) = read_cases(path)
    assert not isinstance(case, Malformed)
    assert case.atols == (0.25,)
    assert case.tolerances == ((0.5, 0.1),)
    assert only(path).ok


def test_merged_cells_are_one_value(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append([])
    for cells in ([*ELU], *[[*ELU.values()]] * 3):
        book.active.append(cells)
    for place, name in enumerate(ELU):
        if name != "testcase_name":
            letter = openpyxl.utils.get_column_letter(place + 1)
            book.active.merge_cells(f"{letter}3:{letter}5")
    book.save(tmp_path / "x.xlsx")
    assert [result.verdict for result in run(tmp_path / "x.xlsx")] == ["passed"] * 3


def test_cases_travel_between_processes() -> None:
    import pickle

    for case in (Malformed("a", "b", "c"), next(level_cases("elu_backward"))):
        assert pickle.loads(pickle.dumps(case)) == case
