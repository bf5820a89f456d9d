"""PyTorch as a second opinion: same values where it has the operator, and never more precise than we are."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from conftest import OPERATORS, call_on, each, floats_of, naive_result, told
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import DType
from test_interop import to_torch
from workloads import EVERYTHING

names = pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.python_name)
SHAPES = {"elementwise": (37, 201), "rows": (33, 301), "pixels": (2, 7, 30, 65)}


@names
@pytest.mark.in_turns
def test_pytorch_agrees_and_is_not_closer_to_the_oracle(operator: Operator, engine: str) -> None:
    """It agrees in float64, where its roundings, which differ from machine to machine, hide nothing. One dtype of 16 bits stands for the other."""
    first, *others = floats_of(operator)
    turn = OPERATORS.index(operator) % 2
    for dtype in (first, *(others if EVERYTHING else others[turn::2])):
        with told(dtype):
            check_second_opinion(operator, dtype, engine)


def unrounded(operator: Operator, arguments: Any) -> Any:
    """What the reference gives of float64: it does not round between its steps."""
    seen = operator.reference_arguments(**arguments).items()
    wide = {name: np.float64(value) if isinstance(value, np.ndarray) and value.dtype.kind in "fV" else value for name, value in seen}  # fmt: skip
    return each(operator.reference(**wide))


def check_second_opinion(operator: Operator, dtype: DType, engine: str) -> None:
    work = operator.workloads
    eps = float(ml_dtypes.finfo(dtype.numpy).eps)
    for variant in work.VARIANTS:
        arguments = work.make(np.random.default_rng(43), dtype, SHAPES[work.PATTERN], variant)
        known = each(operator.oracle(**arguments))
        results = each(call_on(engine, operator, arguments))
        tensors = {name: to_torch(value) for name, value in arguments.items()}
        numbers = {
            name: default
            for name, default in operator.plain_defaults.items()
            if isinstance(default, float)
        }
        exactly = {name: exact_value(value) for name, value in (numbers | tensors).items()}
        formulas, rough = (
            each(work.torch_formula(torch, tensors)),
            each(naive_result(operator, arguments)),
        )
        said, meant = (
            {name: each(peer()) for name, peer in peers_of(operator, inputs, kind, known).items()}
            for inputs, kind in (
                (tensors, getattr(torch, dtype.torch_name)),
                (exactly, torch.float64),
            )
        )
        assert "torch" in said
        for number, (exact, result) in enumerate(zip(known, results, strict=True)):
            ours = error(result.astype(np.float64), exact)
            largest = np.abs(exact[np.isfinite(exact)]).max()
            for name, theirs_all in said.items():
                theirs = error(theirs_all[number].double().numpy(), exact)
                assert ours <= theirs + np.spacing(np.float32(largest)), (variant, name)
            for name, theirs_all in meant.items():
                theirs = error(theirs_all[number].numpy(), exact)
                if theirs > 1e-11 * largest:
                    theirs = error(
                        theirs_all[number].numpy(), unrounded(operator, arguments)[number]
                    )
                assert theirs <= 1e-11 * largest, (variant, name, "PyTorch computes something else")
            # The expression computes in FLOAT: it may lose what the formula loses there.
            lost = 4 * error(rough[number], exact) + 2 * eps * largest
            formula = formulas[number].double().numpy()
            np.testing.assert_allclose(formula, exact, rtol=0, atol=lost)


def error(values: Any, exact: Any) -> Any:
    """The largest; the same infinity is none."""
    with np.errstate(invalid="ignore"):
        return np.where(values == exact, 0.0, np.abs(values - exact)).max()


def exact_value(value: Any) -> Any:
    """In float64: a tensor's elements as they are, an option as C takes it, in FLOAT."""
    if isinstance(value, float):
        return float(np.float32(value))
    return value.double() if torch.is_tensor(value) and value.is_floating_point() else value


def peers_of(
    operator: Operator, inputs: dict[str, Any], kind: torch.dtype, known: list[Any]
) -> dict[str, Any]:
    outputs = tuple([torch.empty(array.shape, dtype=kind) for array in known])
    out = outputs[0] if operator.result_type is None else outputs
    peers: dict[str, Any] = operator.workloads.torch_peers(torch, inputs, out)
    return peers
