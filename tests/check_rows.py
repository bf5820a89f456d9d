"""For every operator: a sound call, and one way to break each row of its check table, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import openaclnn
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import (
    BFLOAT16,
    COMPLEX64,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    DType,
)  # fmt: skip
from openaclnn.core.tensor import Format, Scalar, Tensor

NULL, INVALID, TILING = 161001, 161002, 561002


def t(shape: tuple[int, ...], dtype: DType = FLOAT, format: int = Format.ACL_FORMAT_ND) -> Tensor:
    """A descriptor; phase one never looks at values."""
    return Tensor(shape, dtype, base=4096, format=format)


@dataclass(frozen=True)
class Mistake:
    """What breaks one row: the arguments to change (by C name), the row, the code, who is blamed."""

    row: str
    status: int
    parameter: str
    change: dict[str, Any]
    pointers: tuple[bool, bool] = (True, True)  # workspaceSize, executor


Sound = Callable[[], dict[str, Any]]


def _nulls(row: str, *names: str) -> list[Mistake]:
    return [Mistake(row, NULL, name, {name: None}) for name in names]


_POINTERS = [
    Mistake("0", NULL, "workspaceSize", {}, (False, True)),
    Mistake("0", NULL, "executor", {}, (True, False)),
]


def elu() -> dict[str, Any]:
    return {
        "gradOutput": t((2, 3)), "alpha": 1.0, "scale": 1.0, "inputScale": 1.0, "isResult": False,
        "selfOrResult": t((2, 3)), "gradInput": t((2, 3)),
    }  # fmt: skip


NINE = (1,) * 9
ELU = [
    *_POINTERS,
    *_nulls("1", "gradOutput", "alpha", "scale", "inputScale", "selfOrResult", "gradInput"),
    Mistake("2", INVALID, "selfOrResult", {"selfOrResult": t((2, 3), FLOAT16)}),
    Mistake(
        "3",
        INVALID,
        "gradOutput",
        {"gradOutput": t((2, 3), DOUBLE), "selfOrResult": t((2, 3), DOUBLE)},
    ),
    Mistake("4", INVALID, "alpha", {"alpha": Scalar(1j, COMPLEX64)}),
    Mistake("4", INVALID, "scale", {"scale": Scalar(1j, COMPLEX64)}),
    Mistake("4", INVALID, "inputScale", {"inputScale": 1j}),
    Mistake("5", INVALID, "gradInput", {"gradInput": t((2, 3), INT32)}),
    Mistake("6", INVALID, "selfOrResult", {"selfOrResult": t((3, 2))}),
    Mistake("7", INVALID, "gradInput", {"gradInput": t((2, 1))}),
    Mistake(
        "8",
        INVALID,
        "gradOutput",
        {"gradOutput": t(NINE), "selfOrResult": t(NINE), "gradInput": t(NINE)},
    ),
    Mistake("9", INVALID, "alpha", {"alpha": -0.5, "isResult": True}),
]


def smooth_l1() -> dict[str, Any]:
    return {
        "gradOut": t((2, 3)), "self": t((2, 3)), "target": t((2, 3)), "reduction": 0, "beta": 1.0,
        "gradInput": t((2, 3)),
    }  # fmt: skip


SMOOTH_L1 = [
    *_POINTERS,
    *_nulls("1", "gradOut", "self", "target", "gradInput"),
    Mistake("2", INVALID, "gradOut", {"gradOut": t((2, 3), DOUBLE)}),
    Mistake("2", INVALID, "self", {"self": t((2, 3), INT32)}),
    Mistake("2", INVALID, "target", {"target": t((2, 3), UINT8)}),
    Mistake("2", INVALID, "gradInput", {"gradInput": t((2, 3), DOUBLE)}),
    Mistake("3", INVALID, "gradOut", {"gradOut": t(NINE)}),
    Mistake("3", INVALID, "self", {"self": t(NINE)}),
    Mistake("3", INVALID, "target", {"target": t(NINE)}),
    Mistake("4", INVALID, "reduction", {"reduction": 3}),
    Mistake("4", INVALID, "reduction", {"reduction": -1}),
    Mistake("5", INVALID, "beta", {"beta": -0.1}),
    Mistake("5", INVALID, "beta", {"beta": float("nan")}),
    Mistake("9", INVALID, "self", {"self": t((4, 3))}),
    Mistake("9", INVALID, "target", {"target": t((0, 3))}),
    Mistake("10", INVALID, "gradInput", {"gradInput": t((1, 2, 3))}),
]


def l1() -> dict[str, Any]:
    return {
        "gradOutput": t((2, 3)), "self": t((2, 3)), "target": t((2, 3)), "reduction": 0,
        "gradInput": t((2, 3)),
    }  # fmt: skip


L1 = [
    *_POINTERS,
    *_nulls("1", "gradOutput", "self", "target", "gradInput"),
    Mistake("2", INVALID, "reduction", {"reduction": 3}),
    Mistake("3", INVALID, "self", {"self": t((2, 3), UINT16)}),
    Mistake("4", INVALID, "target", {"target": t((2, 3), UINT32)}),
    Mistake("5", INVALID, "gradInput", {"gradInput": t((2, 3), INT64)}),
    Mistake("6", INVALID, "gradOutput, self, target", {"self": t((2, 3), DOUBLE)}),
    Mistake("7", INVALID, "self", {"self": t(NINE)}),
    Mistake("7", INVALID, "target", {"target": t(NINE)}),
    Mistake("7", INVALID, "gradOutput", {"gradOutput": t(NINE)}),
    Mistake("7", INVALID, "gradInput", {"gradInput": t(NINE)}),
    Mistake("8", INVALID, "gradOutput", {"gradOutput": t((5, 3))}),
    Mistake("9", INVALID, "target", {"target": t((4, 3))}),
    Mistake("10", INVALID, "gradInput", {"gradInput": t((3,))}),
]


def nll() -> dict[str, Any]:
    return {
        "gradOutput": t((1,)), "self": t((2, 3, 4, 5)), "target": t((2, 4, 5), INT64), "weight": t((3,)),
        "reduction": 1, "ignoreIndex": -100, "totalWeight": t((1,)), "out": t((2, 3, 4, 5)),
    }  # fmt: skip


NLL = [
    *_POINTERS,
    *_nulls("1", "gradOutput", "self", "target", "weight", "out", "totalWeight"),
    Mistake("2", INVALID, "self", {"self": t((2, 3, 4, 5), DOUBLE)}),
    Mistake("3", INVALID, "gradOutput", {"gradOutput": t((1,), FLOAT16)}),
    Mistake("4", INVALID, "weight", {"weight": t((3,), BFLOAT16)}),
    Mistake("5", INVALID, "out", {"out": t((2, 3, 4, 5), FLOAT16)}),
    Mistake("6", INVALID, "totalWeight", {"totalWeight": t((1,), FLOAT16)}),
    Mistake("7", INVALID, "target", {"target": t((2, 4, 5), FLOAT)}),
    Mistake("8", INVALID, "gradOutput", {"gradOutput": t((2, 4, 5))}),
    Mistake("8", INVALID, "gradOutput", {"gradOutput": t((1, 1))}),
    Mistake("8", INVALID, "gradOutput", {"reduction": 0}),
    Mistake("8", INVALID, "gradOutput", {"gradOutput": t((2, 4, 5)), "reduction": 3}),
    Mistake("9", INVALID, "self", {"self": t((2, 3, 20))}),
    Mistake("10", INVALID, "target", {"target": t((2, 20), INT64)}),
    Mistake("11", INVALID, "target", {"target": t((2, 5, 4), INT64)}),
    Mistake("12", INVALID, "weight", {"weight": t((4,))}),
    Mistake("13", INVALID, "out", {"out": t((2, 3, 5, 4))}),
    Mistake("14", INVALID, "totalWeight", {"totalWeight": t((2,))}),
    Mistake("15", INVALID, "reduction", {"reduction": 3}),
]


def cross_entropy() -> dict[str, Any]:
    return {
        "gradLoss": t(()), "logProb": t((4, 5)), "target": t((4,), INT64), "weightOptional": t((5,)),
        "gradZlossOptional": t(()), "lseForZlossOptional": t((4,)), "reductionOptional": "mean",
        "ignoreIndex": -100, "labelSmoothing": 0.0, "lseSquareScaleForZloss": 0.5, "out": t((4, 5)),
    }  # fmt: skip


NCHW = Format.ACL_FORMAT_NCHW
CROSS_ENTROPY = [
    *_nulls("1", "gradLoss", "logProb", "target", "out"),
    Mistake("2", NULL, "executor", {}, (True, False)),
    Mistake("2", NULL, "workspaceSize", {}, (False, True)),
    Mistake("2", NULL, "lseForZlossOptional", {"lseForZlossOptional": None}),
    Mistake("3", INVALID, "gradLoss", {"gradLoss": t((), DOUBLE)}),
    Mistake("3", INVALID, "logProb", {"logProb": t((4, 5), FLOAT16)}),
    Mistake("3", INVALID, "gradZlossOptional", {"gradZlossOptional": t((), FLOAT16)}),
    Mistake("3", INVALID, "lseForZlossOptional", {"lseForZlossOptional": t((4,), BFLOAT16)}),
    Mistake("3", INVALID, "out", {"out": t((4, 5), FLOAT16)}),
    Mistake("3", INVALID, "target", {"target": t((4,), UINT8)}),
    Mistake("3", INVALID, "weightOptional", {"weightOptional": t((5,), FLOAT16)}),
    Mistake("3", INVALID, "logProb", {"logProb": t((4, 5), FLOAT, NCHW)}),
    Mistake("3", INVALID, "out", {"out": t((4, 5), FLOAT, NCHW)}),
    Mistake("6", TILING, "reductionOptional", {"reductionOptional": "Mean"}),
    Mistake("6", TILING, "labelSmoothing", {"labelSmoothing": 1.5}),
    Mistake("6", TILING, "labelSmoothing", {"labelSmoothing": float("nan")}),
    Mistake("6", TILING, "logProb", {"logProb": t((4, 5, 1))}),
    Mistake("6", TILING, "gradLoss", {"gradLoss": t((4,))}),
    Mistake("6", TILING, "target", {"target": t((5,), INT64)}),
    Mistake("6", TILING, "weightOptional", {"weightOptional": t((4,))}),
    Mistake("6", TILING, "gradZlossOptional", {"gradZlossOptional": t((4,))}),
    Mistake("6", TILING, "lseForZlossOptional", {"lseForZlossOptional": t((5,))}),
    Mistake("6", TILING, "out", {"out": t((4, 4))}),
]

TABLES: dict[str, tuple[Sound, list[Mistake]]] = {
    "aclnnEluBackward": (elu, ELU),
    "aclnnSmoothL1LossBackward": (smooth_l1, SMOOTH_L1),
    "aclnnL1LossBackward": (l1, L1),
    "aclnnNLLLoss2dBackward": (nll, NLL),
    "aclnnCrossEntropyLossGrad": (cross_entropy, CROSS_ENTROPY),
}


def table_of(operator: Operator) -> tuple[Sound, list[Mistake]]:
    """The operator's sound call and mistakes; an operator without a table fails its tests."""
    return TABLES[openaclnn.find_operator(operator.name).name]
