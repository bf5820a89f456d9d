"""PyTorch as a second opinion: same values where it has the operator, and never more precise than we are."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from conftest import OPERATORS, plain
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS, DType
from test_interop import to_torch

names = pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.python_name)
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)
SHAPES = {"elementwise": (37, 201), "rows": (33, 301), "pixels": (2, 7, 30, 65)}


@names
@dtypes
def test_pytorch_agrees_and_is_not_closer_to_the_oracle(
    operator: Operator, dtype: DType, engine: str
) -> None:
    work = operator.workloads
    eps = float(ml_dtypes.finfo(dtype.numpy).eps)
    for variant in work.VARIANTS:
        arguments = work.make(np.random.default_rng(43), dtype, SHAPES[work.PATTERN], variant)
        exact = operator.oracle(**arguments)
        got = plain(operator)(**arguments).astype(np.float64)
        ours = np.abs(got - exact).max()
        given = {name: to_torch(value) for name, value in arguments.items()}
        out = torch.empty(exact.shape, dtype=getattr(torch, dtype.torch_name))
        peers = work.torch_peers(torch, given, out)
        assert "torch" in peers
        unit = np.spacing(np.float32(np.abs(exact).max()))
        for name, peer in peers.items():
            theirs = np.abs(peer().double().numpy() - exact).max()
            scale = 2 * eps * np.abs(exact).max()  # it rounds between its steps
            assert theirs <= scale, (variant, name, "PyTorch computes something else")
            assert ours <= theirs + unit, (variant, name, ours, theirs)
        formula = work.torch_formula(torch, given).double().numpy()
        np.testing.assert_allclose(formula, exact, rtol=0, atol=scale)
