"""Case lists of the field, form by form: what a cell or a key says is what is drawn, called and judged."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import openaclnn
from openaclnn.cli import main
from openaclnn.core.products import find_product
from openaclnn.testing import CaseResult, read_cases, run_cases
from openaclnn.testing.build import Built, build
from openaclnn.testing.cases.case import Case, Malformed

KERNEL = {
    "testcase_name": "case", "network_name": "UNKNOWN", "op_name": "l1_loss_grad", "input_shapes": "((4, 6), (4, 6), (4, 6))",
    "input_dtypes": "('float32',)", "input_formats": "('ND',)", "output_shapes": "((4, 6),)", "output_dtypes": "('float32',)",
    "output_formats": "['ND']", "input_ori_shapes": "((4, 6), (4, 6), (4, 6))", "output_ori_formats": "", "attributes": "{'reduction': 'sum'}",
    "input_data_ranges": "((-1, 1),)", "precision_tolerances": "", "absolute_precision": "1.00E-08", "output_inplace_indexes": "()",
    "output_shape_unknown_indexes": "()", "is_enabled": "TRUE", "remark": "boundary, empty-tensor", "soc_series": "", "priority": "",
    "dump_file_prefix": "", "manual_input_binaries": "()", "manual_golden_binaries": "[]", "a_column_of_the_future": "x",
}  # fmt: skip
ACLNN = {
    "testcase_name": "case", "api_name": "aclnnSmoothL1LossBackward", "tensor_view_shapes": "((4, 6), (4, 6), (4, 6), (4, 6))",
    "tensor_dtypes": "('float32',)", "attributes": "{'reduction': 0, 'beta': 1.0}", "output_tensor_indexes": "(3,)",
    "input_data_ranges": "((-1, 1), (-2, 2), (-2, 2))", "manual_tensor_binaries": "()",
}  # fmt: skip


def table(path: Path, *rows: dict[str, str], end: str = "\r\n", mark: str = "") -> Path:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    lines = csv.DictWriter(text, columns, lineterminator=end)
    lines.writeheader()
    lines.writerows(rows)
    path.write_bytes((mark + text.getvalue()).encode())
    return path


def one(path: Path) -> Case:
    [case] = read_cases(path)
    assert isinstance(case, Case), case
    return case


def data(case: Case) -> Built:
    return build(case, 0, find_product("default"))


def run(path: Path, **options: Any) -> list[CaseResult]:
    return list(run_cases(read_cases(path), **options))


def kernel(tmp_path: Path, **change: str) -> Case:
    return one(table(tmp_path / "k.csv", KERNEL | change))


def aclnn(tmp_path: Path, **change: str) -> Case:
    return one(table(tmp_path / "a.csv", ACLNN | change))


@pytest.mark.parametrize("end", ["\r\n", "\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("row", [KERNEL, ACLNN], ids=["kernel", "aclnn"])
def test_tables_as_they_come(tmp_path: Path, row: dict[str, str], end: str, mark: str) -> None:
    """Line ends, byte order marks, columns in any order, columns that nobody knows."""
    backwards = dict(reversed(row.items()))
    for columns in (row, backwards):
        [result] = run(table(tmp_path / "x.csv", columns, end=end, mark=mark))
        assert result.verdict == "passed", result


@pytest.mark.parametrize(
    ("shapes", "outputs", "expected"),
    [
        ("((4, 6), (4, 6), (4, 6))", "((4, 6),)", (4, 6)),
        ("[(), (), ()]", "[()]", ()),
        ("((13, ), (13, ), (13, ))", "((13, ),)", (13,)),
        ("((2, 3, 5), (2, 3, 5), (1,))", "((2, 3, 5))", (2, 3, 5)),
        ("((1), (1,), (1,))", "((1),)", (1,)),
        ("[(0, 4), [3, 0, 4], (1, 4)]", "", (3, 0, 4)),
        ("((4, 6), (4, 6), (4, 6))", "ELEWISE", (4, 6)),
        ("((4, 6), (4, 6), (4, 6))", "REDUCE(0)", (4, 6)),
    ],
)
def test_shapes_of_a_kernel(
    tmp_path: Path, shapes: str, outputs: str, expected: tuple[int, ...]
) -> None:
    built = data(kernel(tmp_path, input_shapes=shapes, output_shapes=outputs, input_data_ranges=""))
    assert built.outputs["gradInput"].shape == expected
    assert run(tmp_path / "k.csv")[0].verdict == "passed"


def test_a_flat_row_is_one_tensor(tmp_path: Path) -> None:
    case = kernel(
        tmp_path, op_name="elu", input_shapes="((2, 3, 5))", output_shapes="", attributes="{}"
    )
    assert data(case).arguments["self"].shape == (2, 3, 5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("float16", "FLOAT16"), ("float32", "FLOAT"), ("float", "FLOAT"), ("bfloat16", "BFLOAT16")],
)
def test_dtypes(tmp_path: Path, name: str, expected: str) -> None:
    for text in (f"('{name}',)", f"['{name}', '{name}', '{name}']", name):
        case = kernel(tmp_path, input_dtypes=text, output_dtypes=f"('{name}',)")
        assert {spec.dtype.name for spec in case.tensors.values() if spec} == {expected}


@pytest.mark.parametrize(
    "formats", ["", "('ND',)", "('NCHW', None, 'NHWC')", "HWCN", "('ND', 'ND', 'ND')"]
)
def test_formats(tmp_path: Path, formats: str) -> None:
    for path in (table(tmp_path / "k.csv", KERNEL | {"input_formats": formats}),
                 table(tmp_path / "a.csv", ACLNN | {"tensor_formats": formats})):  # fmt: skip
        assert run(path)[0].verdict == "passed"


def drawn(tmp_path: Path, ranges: str, shape: str = "(40, 60)") -> list[np.ndarray[Any, Any]]:
    case = kernel(
        tmp_path,
        input_shapes=f"({shape}, {shape}, {shape})",
        output_shapes="",
        input_data_ranges=ranges,
    )
    arguments = data(case).arguments
    return [arguments[name] for name in ("grad_output", "self", "target")]


def test_ranges(tmp_path: Path) -> None:
    for ranges in ("", "None", "()", "(None, None, None)", "((None, None),)", "[None]"):
        for array in drawn(tmp_path, ranges):
            assert -2 <= array.min() < -1.9
            assert 1.9 < array.max() <= 2
    for ranges in ("((-1, 1),)", "(-1, 1)", "[[-1.0, 1.0]]", "((-1, 1), (-1, 1), (-1, 1))"):
        for array in drawn(tmp_path, ranges):
            assert -1 <= array.min() < -0.9
            assert 0.9 < array.max() <= 1
    first, second, third = drawn(tmp_path, "((0.5, 0.75), (-3.4028235e+38, 3.4028235e+38))")
    assert 0.5 <= first.min() <= first.max() <= 0.75
    assert np.isfinite(second).all()
    assert np.abs(second).max() > 3e38
    assert 1.9 < third.max() <= 2  # the rest has the default
    first, second, third = drawn(tmp_path, "[[2, 2], [inf, inf], (nan, nan)]")
    assert (first == 2).all()
    assert np.isposinf(second).all()
    assert np.isnan(third).all()
    for array in drawn(tmp_path, "((-1, 1, nan, -0.0, inf, -inf, 7),)", "(3, 3)"):
        assert np.isnan(array).any()
        assert np.isposinf(array).any()
        assert np.isneginf(array).any()
        assert (np.signbit(array) & (array == 0)).any()
        assert (array == 7).any()


def test_ranges_of_the_interface(tmp_path: Path) -> None:
    """Entries may cover the inputs alone; those of outputs are not used."""
    for ranges in ("((1, 1), (2, 2), (3, 3))", "((1, 1), (2, 2), (3, 3), (0, 0))"):
        arguments = data(aclnn(tmp_path, input_data_ranges=ranges)).arguments
        assert [arguments[name].max() for name in ("grad_out", "self", "target")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("{}", "mean"),
        ("", "mean"),
        ("{'reduction': 'sum'}", "sum"),
        ("{'reduction': 'none', 'unheard': 1}", "none"),
    ],
)
def test_attributes_of_a_kernel(tmp_path: Path, attributes: str, expected: str) -> None:
    case = kernel(tmp_path, attributes=attributes)
    assert case.attributes.get("reduction", "mean") == expected
    [result] = run(tmp_path / "k.csv")
    assert result.verdict == "passed"
    assert ("'unheard' was not used" in result.why) == ("unheard" in attributes)


def test_values_in_attributes(tmp_path: Path) -> None:
    text = "{'reduction': 0, 'beta': 2.0, 'self': [-3.0, -0.5, 0.0, 2.0], 'target': [0, 0, 0, 0]}"
    case = aclnn(tmp_path, attributes=text, tensor_view_shapes="((1,), (4,), (4,), (4,))",
                 input_data_ranges="((2, 2), None, None)", precision_tolerances="((0, 0),)")  # fmt: skip
    assert data(case).arguments["self"].tolist() == [-3.0, -0.5, 0.0, 2.0]
    [result] = run(tmp_path / "a.csv")
    assert (result.verdict, result.judged_by) == ("passed", "close rtol=0 atol=0 ptol=0")
    named = kernel(
        tmp_path,
        attributes="{'label': [[0.5] * 6] * 4}".replace("[[0.5] * 6] * 4", str([[0.5] * 6] * 4)),
    )
    assert (data(named).arguments["target"] == 0.5).all()  # by the kernel's own name


@pytest.mark.parametrize(
    ("tolerances", "absolute", "expected"),
    [
        ("", "", "mixed"),
        ("()", "1e-08", "mixed"),
        ("((0.001, 0.002),)", "", "close rtol=0.001 ptol=0.002"),
        ("(0.001, 0.002)", "0.001", "close rtol=0.001 atol=0.001 ptol=0.002"),
        ("((0.001, 0.002, 0.5),)", "1.00E-08", "close rtol=0.001 atol=1e-08 ptol=0.002"),
        ("((0, 0),)", "", "close rtol=0 atol=0 ptol=0"),
        ("[[0.01, 0.2]]", "(0.0001,)", "close rtol=0.01 atol=0.0001 ptol=0.2"),
    ],
)
def test_tolerances(tmp_path: Path, tolerances: str, absolute: str, expected: str) -> None:
    path = table(
        tmp_path / "k.csv",
        KERNEL | {"precision_tolerances": tolerances, "absolute_precision": absolute},
    )
    assert run(path)[0].judged_by == expected
    assert run(path, compare="binary")[0].judged_by == "binary"


def test_tolerances_decide(tmp_path: Path) -> None:
    np.full((4, 6), 1.5, np.float32).tofile(tmp_path / "golden.bin")
    row = KERNEL | {
        "input_data_ranges": "((1, 1), (2, 2), (0, 0))",
        "manual_golden_binaries": "('golden.bin',)",
    }
    wide, narrow = (
        {"precision_tolerances": "((0, 0),)", "absolute_precision": atol} for atol in ("0.6", "0.4")
    )
    assert [r.verdict for r in run(table(tmp_path / "x.csv", row | wide, row | narrow))] == [
        "passed",
        "failed",
    ]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("True", "passed"), ("TRUE", "passed"), ("1", "passed"), ("", "passed"), ("False", "skipped"), ("FALSE", "skipped"), ("0", "skipped")],
)  # fmt: skip
def test_switches(tmp_path: Path, text: str, verdict: str) -> None:
    [result] = run(table(tmp_path / "x.csv", KERNEL | {"is_enabled": text}))
    assert (result.verdict, result.reason) == (
        verdict,
        "" if verdict == "passed" else "not enabled",
    )


def test_series(tmp_path: Path) -> None:
    rows = [
        KERNEL | {"soc_series": text}
        for text in ("", "('Ascend950',)", "Ascend910B", "('-Ascend950',)", "-Ascend310P")
    ]
    path = table(tmp_path / "x.csv", *rows)
    assert [r.verdict for r in run(path, product="950")] == [
        "passed",
        "passed",
        "skipped",
        "skipped",
        "passed",
    ]
    assert {r.reason for r in run(path, product="950")} == {"", "another product"}


@pytest.mark.parametrize(
    ("series", "product", "reason"),
    [
        ("Ascend910B3", "910b", ""), ("Ascend910B3", "910B1", ""), ("('Ascend910B2C',)", "950", "another product"),
        ("Ascend910_9391", "a3", ""), ("Ascend910_9391", "a2", "another product"), ("Ascend310P3", "310p", ""),
        ("ascend950pr", "950", ""), ("Ascend910A", "910", ""), ("-Ascend910B3", "a2", "another product"), ("-Ascend910B3", "a3", ""),
        ("Ascend999X1", "a2", "unknown product"), ("('Ascend999X1', 'Ascend910B')", "a2", ""),
        ("('Ascend999X1', 'Ascend910B')", "a3", "another product"), ("-Ascend999X1", "a2", ""), ("Ascend999X1", "default", ""),
    ],
)  # fmt: skip
def test_chips_stand_for_their_series(
    tmp_path: Path, series: str, product: str, reason: str
) -> None:
    [result] = run(table(tmp_path / "x.csv", KERNEL | {"soc_series": series}), product=product)
    assert (result.verdict, result.reason) == ("skipped" if reason else "passed", reason), result
    if reason:
        assert result.why.startswith("the list has it for ")


def test_series_of_json_lists(tmp_path: Path) -> None:
    path = listed(
        tmp_path / "x.json",
        *(elu(n) | {"soc_series": s} for n, s in enumerate(["Ascend910B3", ["Ascend310P3"], None])),
    )
    assert [r.verdict for r in run(path, product="a2")] == ["passed", "skipped", "passed"]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_weights_left_out_are_ones(tmp_path: Path, reduction: str) -> None:
    """A kernel's weight is optional, as PyTorch's; the interface's is not."""
    torch = pytest.importorskip("torch")
    ranges = "((-4, 0), (0, 2), None)"
    row = KERNEL | {"op_name": "nll_loss", "output_shapes": "", "output_dtypes": "", "input_data_ranges": ranges,
                    "attributes": f"{{'reduction': '{reduction}', 'ignore_index': 1}}"}  # fmt: skip
    shapes = ["((8, 3), (8,), None)", "((2, 3, 4, 5), (2, 4, 5), None)", "((3,), (), None)"]
    rows = [row | {"input_shapes": each, "input_dtypes": "('float32', 'int64', None)"} for each in shapes]  # fmt: skip
    grad = row | {
        "op_name": "nll_loss_grad", "input_dtypes": "('float16', 'float16', 'int32', None, 'float16')",
        "input_shapes": f"((8, 3), {'(8,)' if reduction == 'none' else '(1,)'}, (8,), None, (1,))", "input_data_ranges": "(None, None, (0, 2), None, (4, 4))",
    }  # fmt: skip
    path = table(tmp_path / "x.csv", *rows, grad)
    assert [r.verdict for r in run(path)] == ["passed"] * 4
    for case in list(read_cases(path))[:3]:
        assert isinstance(case, Case)
        drawn = data(case).arguments
        x, target = torch.from_numpy(drawn["self"]), torch.from_numpy(np.asarray(drawn["target"]))
        expected = torch.nn.functional.nll_loss(x, target, reduction=reduction, ignore_index=1)
        function = openaclnn.nll_loss if x.ndim < 3 else openaclnn.nll_loss2d
        np.testing.assert_allclose(
            function(**drawn).out.reshape(expected.shape), expected, rtol=1e-6
        )
    [refused] = run(
        table(tmp_path / "y.csv", ACLNN | {
            "api_name": "aclnnNLLLoss", "tensor_view_shapes": "((8, 3), (8,), None, (1,), (1,))",
            "tensor_dtypes": "('float32', 'int64', None, 'float32', 'float32')", "attributes": "{'reduction': 1}",
        })
    )  # fmt: skip
    assert (refused.verdict, refused.status) == ("refused", 161001)


ELSEWHERE: list[tuple[dict[str, str], str]] = [
    (ACLNN | {"api_name": "torch.add"}, "end-to-end"),
    (ACLNN | {"api_name": "aclnnTanh"}, "another operator"),
    (KERNEL | {"op_name": "tanh_grad"}, "another operator"),
    (KERNEL | {"op_name": "lp_loss", "attributes": "{'p': 2}"}, "another operator"),
    (KERNEL | {"input_dtypes": "('uint1',)"}, "dtype"),
    (KERNEL | {"input_dtypes": "('float8_e4m3fn',)"}, "dtype"),
    (ACLNN | {"tensor_dtypes": "('float4_e2m1',)"}, "dtype"),
    (KERNEL | {"input_shapes": "(((4, 6), (4, 6)), (4, 6), (4, 6))"}, "tensor list"),
    (KERNEL | {"input_dtypes": "('int32', 'float32', 'float32')", "input_data_ranges": "((inf, inf),)"}, "value"),
    (KERNEL | {"input_shapes": "((4, 6), (4"}, "unreadable"),
]  # fmt: skip


def test_what_we_lack_is_skipped(tmp_path: Path) -> None:
    rows = [row for row, _ in ELSEWHERE]
    results = run(table(tmp_path / "x.csv", *rows, KERNEL, ACLNN))
    reasons = [reason for _, reason in ELSEWHERE]
    assert [(r.verdict, r.reason) for r in results[:-2]] == [
        ("skipped", reason) for reason in reasons
    ]
    assert [r.why for r in results[:2]] == ["torch.add is a function of a framework, called end to end", "aclnnTanh is not among our operators"]  # fmt: skip


def test_kernels_of_one_interface(tmp_path: Path) -> None:
    two = {
        "input_shapes": "((4, 6), (4, 6))",
        "input_data_ranges": "((-0.5, 1),)",
        "output_shapes": "",
    }
    of_result = data(kernel(tmp_path, op_name="elu_grad", attributes="{}", **two))
    assert of_result.arguments["is_result"] is True
    assert of_result.operator.name == "aclnnEluBackward"
    for reduction in ("none", "mean", "sum"):
        loss = {
            "op_name": "lp_loss",
            "attributes": f"{{'p': 1, 'reduction': '{reduction}'}}",
            "output_shapes": "((1,),)",
        }
        path = table(
            tmp_path / "x.csv",
            KERNEL | two | loss | ({} if reduction != "none" else {"output_shapes": "((4, 6),)"}),
        )
        assert run(path)[0].verdict == "passed", reduction  # a kernel's (1,) is the interface's ()


def test_placeholders_of_what_is_not_computed(tmp_path: Path) -> None:
    row = KERNEL | {
        "op_name": "cross_entropy_loss", "input_shapes": "((8, 3), (8,), None)", "input_dtypes": "('float16', 'int64', 'float32')",
        "output_shapes": "((1,), (8, 3), (1,), (1,))", "output_dtypes": "('float16', 'float16', 'float32', 'float32')",
        "attributes": "{'reduction': 'mean'}", "input_data_ranges": "((-1, 1), None, None)",
    }  # fmt: skip
    [result] = run(table(tmp_path / "x.csv", row))
    assert result.verdict == "passed", result


def tensor(name: Any, dtype: str, shape: list[int], values: Any) -> dict[str, Any]:
    return {"name": name, "type": "tensor", "required": True, "dtype": dtype, "shape": shape, "range_values": values,
            "backward": True, "align_32B": None, "outlier_values": None}  # fmt: skip


def attr(name: Any, dtype: str, values: Any, kind: str = "attr") -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "required": True,
        "dtype": dtype,
        "shape": None,
        "range_values": values,
    }


def elu(
    number: int = 0, values: Any = (-2, 2), dtype: str = "fp32", shape: Any = (20, 30), **more: Any
) -> dict[str, Any]:
    range_values = list(values) if isinstance(values, tuple) else values
    scalars = [
        attr(None, "fp32", more.pop(name, 1), "scalar") for name in ("alpha", "scale", "inputScale")
    ]
    return {
        "id": number, "name": "torch.ops.aten.elu_backward", "aclnn_name": "EluBackward", "api_type": "f", "is_boundary": True,
        "standard": {"acc": "default", "perf": "not_key", "mem": 1.1}, "expected_error_msg": None, "uuid": None,
        "inputs": [tensor("x", dtype, list(shape), range_values), *scalars, attr("b", "attr_bool", more.pop("is_result", 0)),
                   tensor(None, dtype, list(shape), [-3, 3])],
        **more,
    }  # fmt: skip


def listed(path: Path, *cases: Any) -> Path:
    path.write_text(json.dumps(list(cases)))
    return path


def atk_data(tmp_path: Path, case: dict[str, Any]) -> Built:
    return data(one(listed(tmp_path / "x.json", case)))


@pytest.mark.parametrize(
    ("values", "allowed"),
    [
        (1.5, lambda x: x == 1.5), ([1.5, 1.5], lambda x: x == 1.5), ([-1.0], lambda x: x == -1), (True, lambda x: x == 1),
        ("inf", np.isposinf), (["inf"], np.isposinf), ("-inf", np.isneginf), ("nan", np.isnan), (["nan"], np.isnan),
        ([-1, 1], lambda x: abs(x) <= 1), ("(0, 2)", lambda x: (x > 0) & (x < 2)), ("[ -3, 0 )", lambda x: (x >= -3) & (x < 0)),
        ("( 0, 3 ]", lambda x: (x > 0) & (x <= 3)), (["-inf", "inf"], np.isfinite), ([-4, -1, 0, 3], lambda x: np.isin(x, [-4, -1, 0, 3])),
        (["inf", "-inf", "nan"], lambda x: ~np.isfinite(x)), ({"name": "nd", "mean": [50, 60], "std": [1, 3]}, lambda x: abs(x - 55) < 25),
        (None, lambda x: abs(x) <= 2), ("default", lambda x: abs(x) <= 2), (["null"], lambda x: abs(x) <= 2),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_range_values(tmp_path: Path, values: Any, allowed: Any, dtype: str) -> None:
    array = (
        atk_data(tmp_path, elu(values=values, dtype=dtype))
        .arguments["grad_output"]
        .astype(np.float64)
    )
    assert np.all(allowed(array))
    if isinstance(values, list) and len(values) == 4:
        assert set(array.ravel()) == set(values)
    assert run(tmp_path / "x.json")[0].verdict == "passed"


@pytest.mark.parametrize("shape", [(), (6, 0, 2), (2, 1, 3, 1, 2, 1, 1, 4)])
def test_shapes_of_atk(tmp_path: Path, shape: tuple[int, ...]) -> None:
    assert atk_data(tmp_path, elu(shape=shape)).outputs["gradInput"].shape == shape
    assert run(tmp_path / "x.json")[0].verdict == "passed"


def test_scalars_and_attributes(tmp_path: Path) -> None:
    built = atk_data(
        tmp_path, elu(alpha=[0.25, 0.75], scale=[2], inputScale="[ -1, 0 )", is_result=True)
    )
    alpha, scale, inner = (
        float(built.arguments[n].value) for n in ("alpha", "scale", "input_scale")
    )
    assert 0.25 <= alpha <= 0.75
    assert scale == 2
    assert -1 <= inner < 0
    assert built.arguments["is_result"] is True
    unset = atk_data(tmp_path, elu(alpha="default"))
    assert unset.arguments["alpha"] == 1.0  # the operator's own
    wide = elu()
    wide["inputs"][1]["dtype"] = "fp64"
    wide["inputs"].insert(0, attr("format", "non_param", "ND"))
    assert run(listed(tmp_path / "x.json", wide))[0].verdict == "passed"
    array = elu()
    array["inputs"][1] = [attr("alpha", "fp32", 2.0, "attr_tuple")]
    assert float(atk_data(tmp_path, array).arguments["alpha"].value) == 2.0


def elements(name: str, dtype: str, values: Any, tensors: int = 2) -> dict[str, Any]:
    inputs = [tensor("x", dtype, [2000], values), *[tensor("y", dtype, [2000], None)] * (tensors - 1)]  # fmt: skip
    return {"id": 0, "name": "x", "aclnn_name": name, "standard": {"acc": "default"}, "inputs": inputs}  # fmt: skip


@pytest.mark.parametrize("values", ["(0, 2]", "[ 1, 2 ]", "1", ["1", "2"], [1, 2]])
def test_numbers_of_choices_are_drawn_as_others_are(tmp_path: Path, values: Any) -> None:
    """A reduction that comes as a text is a word, unless it says numbers."""
    case = elements("MseLoss", "fp32", None)
    case["inputs"].append(attr(None, "int", values))
    assert atk_data(tmp_path, case).arguments["reduction"] in ("mean", "sum", 1, 2)
    assert run(tmp_path / "x.json")[0].verdict == "passed"
    case["inputs"][-1] = attr(None, "string", "average")
    assert run(listed(tmp_path / "x.json", case))[0].verdict == "refused"


@pytest.mark.parametrize("values", [["-inf", "inf"], [-(2**63), 2**63 - 1], [-1e30, 1e30]])
def test_integers_of_64_bits_are_drawn_to_their_ends(tmp_path: Path, values: Any) -> None:
    case = elements("Relu", "int64", values, tensors=1)
    array = atk_data(tmp_path, case).arguments["self"]
    assert array.min() < -(2**62) < 2**62 < array.max()
    assert run(tmp_path / "x.json")[0].verdict == "passed"


@pytest.mark.parametrize(
    ("standard", "dtype", "expected"),
    [
        ("default", "fp16", "mixed"), ("single_bm", "fp16", "stat_rel_err"), ({"single_bm": {"type": "vector_fused"}}, "fp32", "stat_rel_err"),
        ({"single_bm": {"type": "high_performance", "fp16_error": "2**-5"}}, "fp16", "stat_rel_err T=0.03125"),
        ({"single_bm": {"type": "high_performance", "fp16_error": "2**-5"}}, "fp32", "stat_rel_err"), ("unheard", "fp32", "mixed"), (None, "fp32", "mixed"),
    ],
)  # fmt: skip
def test_standards_of_atk(tmp_path: Path, standard: Any, dtype: str, expected: str) -> None:
    [result] = run(
        listed(tmp_path / "x.json", elu(dtype=dtype, standard={"acc": standard, "perf": "not_key"}))
    )
    assert (result.verdict, result.judged_by) == ("passed", expected)
    assert ("not known" in result.why) == (standard == "unheard")


def entropy(number: int = 0, rows: int = 7, classes: int = 3, **more: Any) -> dict[str, Any]:
    numbers = {"reduction": "mean", "ignoreIndex": -1, "labelSmoothing": 0.0, "scale": 0.0} | more
    kinds = {
        "reduction": "string",
        "ignoreIndex": "int",
        "labelSmoothing": "double",
        "scale": "float",
    }
    odd = {"name": "nd", "mean": [-8, 8], "std": [1, 3]}
    inputs = [
        tensor("gradLoss", "fp32", more.pop("grad", []), [2.0]), tensor("logProb", "fp32", [rows, classes], [-9, -1e-09]),
        tensor("targets", more.pop("target_dtype", "int64"), [rows], more.pop("targets", [0, classes - 1])),
        tensor("weightOptional", "fp32", [classes], [0.5, 1.5]), tensor("gradZloss", "fp32", [classes], odd), tensor("lse", "fp32", [], odd),
        *[attr(name, kinds[name], numbers[name]) for name in kinds],
    ]  # fmt: skip
    return {"id": number, "name": "ce", "aclnn_name": "CrossEntropyLossGrad", "inputs": inputs}


@pytest.mark.parametrize("through", ["two-phase", "plain"])
def test_unread_tensors_are_null(tmp_path: Path, through: str) -> None:
    short = entropy()
    short["inputs"].pop()  # the scale is not there at all
    results = run(
        listed(
            tmp_path / "x.json",
            entropy(),
            short,
            entropy(reduction=["mean", "sum"]),
            entropy(labelSmoothing=[0, 0.5]),
        ),
        through=through,
    )
    assert [r.verdict for r in results] == ["passed"] * 4, results
    assert one(listed(tmp_path / "x.json", entropy())).tensors["gradZlossOptional"] is None
    reductions = {
        atk_data(tmp_path, entropy(n, 1, grad=[1], reduction=["mean", "sum", "none"])).arguments[
            "reduction"
        ]
        for n in range(20)
    }
    assert reductions == {"mean", "sum", "none"}
    fitting = {
        atk_data(tmp_path, entropy(n, reduction=["none", "sum"])).arguments["reduction"]
        for n in range(9)
    }
    assert fitting == {"sum"}  # none takes a gradient for each row


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("targets", [[-5, 7], [3, 3], [-1, 2]])
def test_targets_out_of_range_count_for_nothing(
    tmp_path: Path, reduction: str, targets: list[int]
) -> None:
    shape = [64] if reduction == "none" else []
    cases = [entropy(n, 64, targets=targets, reduction=reduction, grad=shape, ignoreIndex=ignored, target_dtype=dtype)
             for n, (ignored, dtype) in enumerate([(-1, "int64"), (0, "int32"), (-100, "int64")])]  # fmt: skip
    results = run(listed(tmp_path / "x.json", *cases), golden=tmp_path / "g")
    assert [r.verdict for r in results] == ["passed"] * 3, results
    assert (tmp_path / "g" / "ce-1" / "golden.npy").exists()
    row = KERNEL | {
        "op_name": "nll_loss", "input_shapes": "((64, 3), (64,), (3,))", "input_dtypes": "('float32', 'uint8', 'float32')", "output_shapes": "",
        "attributes": f"{{'reduction': '{reduction}', 'ignore_index': 1}}", "input_data_ranges": "((-1, 1), (0, 9), (0.5, 1))",
    }  # fmt: skip
    assert run(table(tmp_path / "x.csv", row))[0].verdict == "passed"
    assert math.isnan(
        openaclnn.nll_loss(
            np.zeros((1, 3), np.float32), np.int64([1]), np.ones(3, np.float32), ignore_index=1
        ).out
    )


def test_ids_keep_cases_apart(tmp_path: Path) -> None:
    """They have one name: data, folders and the table go by the id."""
    path = listed(tmp_path / "x.json", elu(3), elu(5))
    first, second = (data(case) for case in read_cases(path) if isinstance(case, Case))
    assert (first.arguments["grad_output"] != second.arguments["grad_output"]).any()
    results = run(path, golden=tmp_path / "g")
    assert [r.label for r in results] == [
        "3 torch.ops.aten.elu_backward",
        "5 torch.ops.aten.elu_backward",
    ]
    assert sorted(p.name for p in (tmp_path / "g").iterdir()) == [
        "torch.ops.aten.elu_backward-3",
        "torch.ops.aten.elu_backward-5",
    ]


def test_values_that_a_dtype_cannot_hold(tmp_path: Path) -> None:
    results = run(
        listed(
            tmp_path / "x.json",
            entropy(targets=["-inf"]),
            entropy(target_dtype="uint8", targets=[-3]),
            elu(is_result="inf"),
            elu(),
        )
    )
    assert [(r.verdict, r.reason) for r in results] == [("skipped", "value")] * 3 + [("passed", "")]
    assert "cannot hold -inf" in results[0].why


def test_causes_are_counted(tmp_path: Path, capsys: Any) -> None:
    others = [elu(n, aclnn_name="Abs") for n in range(240)]
    refused = [elu(300 + n, shape=(n + 1,), alpha=-1 - n, is_result=True) for n in range(30)]
    path = listed(tmp_path / "x.json", *others, *refused, elu(400))
    assert main(["cases", str(path)]) == 1
    out = capsys.readouterr().out
    assert len(out.splitlines()) < 12
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert any(
        line.startswith(
            "240 cases skipped Abs Abs is not among our operators 0 torch.ops.aten.elu_backward"
        )
        for line in lines
    )
    assert any(line.startswith("30 cases refused aclnnEluBackward") for line in lines)
    assert out.count("`openaclnn list` names") == 1
    assert lines[-1].startswith(
        "271 cases: 1 passed, 30 refused, 240 skipped (240 another operator); "
    )
    assert main(["cases", str(listed(path, *others))]) == 3
    assert main(["cases", str(listed(path))]) == 3  # a list of none, which must not pass
    assert main(["cases", str(listed(path, elu(), *others))]) == 0
    capsys.readouterr()
    assert main(["cases", str(path), "--json"]) == 0
    held = json.loads(capsys.readouterr().out)
    assert held["skipped"] == {"another operator": 240}
    assert held["judged_by"] == {"mixed": 1}


@pytest.mark.parametrize(
    "name",
    [
        "EluBackward",
        "aclnnEluBackward",
        "elu_backward",
        "elu_grad_v2",
        "ELU_BACKWARD",
        "eluBackward",
        "elu_grad",
    ],
)
def test_operators_in_any_spelling(name: str, tmp_path: Path, capsys: Any) -> None:
    assert openaclnn.find_operator(name).name == "aclnnEluBackward"
    for line in (f"describe {name}", f"check {name} --grad-output fp16:2 --self-or-result fp16:2", f"example {name} --lang c -o {tmp_path}/{name}.c",
                 f"cases --level L0 --count 1 --operator {name}", f"golden {name} --shape 3 -o {tmp_path}/{name}"):  # fmt: skip
        assert main(line.split()) == 0, line
    capsys.readouterr()


ONE, TWO, THREE = "((4, 6),)", "((4, 6), (4, 6))", "((4, 6), (4, 6), (4, 6))"


@pytest.mark.parametrize(
    ("name", "shapes", "attributes", "calls"),
    [
        ("relu", ONE, {}, {}),
        ("gelu_v2", ONE, {"approximate": "tanh"}, {"approximate": 1}),
        ("gelu_v2", ONE, {"approximate": "none"}, {"approximate": 0}),
        ("gelu_grad", THREE, {}, {}),
        ("gelu_grad_v2", TWO, {"approximate": "tanh"}, {"approximate": "tanh"}),
        ("sigmoid_grad", TWO, {}, {}),
        ("hardtanh_grad", TWO, {"min_val": -1, "max_val": 1.5}, {"min": -1, "max": 1.5}),
        ("leaky_relu", ONE, {}, {"negativeSlope": 0.0}),
        ("leaky_relu_grad", TWO, {"negative_slope": 0.1}, {"negativeSlope": 0.1}),
        ("relu_grad", TWO, {}, {"threshold": 0.0}),
        ("threshold_grad_v2_d", TWO, {}, {"threshold": 1.0}),
        ("swish_grad", THREE, {"scale": 2.0}, {"betaOptional": 2.0}),
        ("mish_grad", "((4, 6), (4, 6), None)", {}, {}),
        ("log_sigmoid_grad", TWO, {}, {}),
        ("hard_sigmoid", ONE, {"alpha": 0.16666667, "beta": 0.5}, {}),
        ("softmax_v2", ONE, {"axes": [0]}, {"dim": 0}),
        ("log_softmax_grad", TWO, {"axis": [-1]}, {"dim": -1}),
    ],
)  # fmt: skip
def test_kernels_of_activations(
    tmp_path: Path, name: str, shapes: str, attributes: dict[str, Any], calls: dict[str, Any]
) -> None:
    row = KERNEL | {"op_name": name, "input_shapes": shapes, "attributes": repr(attributes)}
    case = kernel(tmp_path, **row)
    assert case.attributes == calls
    assert not case.notes
    [result] = run(tmp_path / "k.csv")
    assert result.verdict == "passed", result


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_kernel_whose_output_has_another_dtype(tmp_path: Path, dtype: str) -> None:
    """multilabel_margin_loss writes its mask in INT32, the interface in the dtype of self."""
    row = KERNEL | {
        "op_name": "multilabel_margin_loss", "input_shapes": "((4, 6), (4, 6))", "input_dtypes": f"('{dtype}', 'int32')", "input_data_ranges": "",
        "output_shapes": "((), (4, 6))", "output_dtypes": f"('{dtype}', 'int32')", "attributes": "{}",
    }  # fmt: skip
    path = table(tmp_path / "k.csv", row)
    assert (spec := one(path).tensors["isTarget"]) is not None
    assert spec.dtype.numpy == dtype
    [result] = run(path)
    assert result.verdict == "passed", result


def test_kernels_that_read_the_forward_first(tmp_path: Path) -> None:
    ranges = {"input_shapes": TWO, "attributes": "{}", "input_data_ranges": "((0.5, 0.5), (3, 3))"}
    for name, first, second in (
        ("sigmoid_grad", "output", "grad_output"), ("hardtanh_grad", "self", "grad_output"),
        ("softmax_grad", "output", "grad_output"), ("log_softmax_grad", "grad_output", "output"),
    ):  # fmt: skip
        arrays = data(kernel(tmp_path, op_name=name, **ranges)).arguments
        assert (arrays[first] == 0.5).all()
        assert (arrays[second] == 3).all()


@pytest.mark.parametrize(
    ("name", "attributes", "why"),
    [
        ("gelu_v2", {"approximate": "erf"}, "approximate is none or tanh, not 'erf'"),
        ("hard_sigmoid", {"alpha": 0.2}, "with alpha 0.2 is not among our operators"),
        ("softmax_v2", {"axes": [0, 1]}, "rows along one axis"),
    ],
)
def test_kernels_of_other_activations(
    tmp_path: Path, name: str, attributes: dict[str, Any], why: str
) -> None:
    row = KERNEL | {"op_name": name, "input_shapes": ONE, "attributes": repr(attributes)}
    [case] = read_cases(table(tmp_path / "k.csv", row))
    assert isinstance(case, Malformed)
    assert why in case.why


def test_near_misses(capsys: Any) -> None:
    for line in (
        "describe elu_bakward",
        "check aclnnEluBackwards",
        "golden elu_bckward --shape 3 -o x",
        "cases --level L0 --operator EluBackwrd",
    ):
        assert main(line.split()) == 2
        assert "did you mean elu_backward" in capsys.readouterr().err
    with pytest.raises(KeyError, match="`openaclnn list` names"):
        openaclnn.find_operator("abs")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_encodings_of_lists(tmp_path: Path, encoding: str) -> None:
    text = json.dumps([elu(1) | {"name": "用例"}], ensure_ascii=False)
    (tmp_path / "x.json").write_text(text, encoding)
    (result,) = run(tmp_path / "x.json")
    assert (result.verdict, result.name) == ("passed", "用例")


def test_spreadsheets_hold_more_than_text(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    row: dict[str, Any] = KERNEL | {
        "is_enabled": True,
        "absolute_precision": 1e-8,
        "priority": 0,
        "attributes": "{}",
    }
    book.active.append(list(row))
    book.active.append(list(row.values()))
    book.active.append(list((row | {"is_enabled": False}).values()))
    book.active.append(list((row | {"is_enabled": 0.0}).values()))
    book.save(tmp_path / "x.xlsx")
    assert [r.verdict for r in run(tmp_path / "x.xlsx")] == ["passed", "skipped", "skipped"]


def test_what_is_not_run_travels_between_processes() -> None:
    import pickle

    from openaclnn.testing.cases.case import Skip

    entry = Malformed("a", "b", "c", reason="dtype")
    assert pickle.loads(pickle.dumps(entry)) == entry
    assert Skip("dtype", "why").reason == "dtype"


def test_more_memory_than_allowed(tmp_path: Path, capsys: Any) -> None:
    """A tensor of 3.5e9 elements, and axes past 2^31, are counted in 64 bits and skipped; the rest is run."""
    large = [elu(1, shape=(70000, 50000)), elu(2, shape=(2**31 + 1,)), elu(3)]
    path = listed(tmp_path / "x.json", *large)
    assert main(["cases", str(path), "--memory", "0.5"]) == 0
    out = capsys.readouterr().out
    assert "3 cases: 1 passed, 2 skipped (2 memory); " in out
