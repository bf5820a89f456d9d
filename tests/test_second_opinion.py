"""PyTorch as a second opinion: same values where it has the operator, and never more precise than we are."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from conftest import OPERATORS, call_on, each
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
        known = each(operator.oracle(**arguments))
        results = each(call_on(engine, operator, arguments))
        given = {name: to_torch(value) for name, value in arguments.items()}
        formulas = each(work.torch_formula(torch, given))
        kind = getattr(torch, dtype.torch_name)
        outputs = tuple([torch.empty(own.shape, dtype=kind) for own in known])
        out = outputs[0] if operator.result_type is None else outputs
        peers = work.torch_peers(torch, given, out)
        assert "torch" in peers
        said = {name: each(peer()) for name, peer in peers.items()}
        for number, (exact, result) in enumerate(zip(known, results, strict=True)):
            ours = np.abs(result.astype(np.float64) - exact).max()
            unit = np.spacing(np.float32(np.abs(exact).max()))
            scale = 2 * eps * np.abs(exact).max()  # it rounds between its steps
            if exact.ndim == 0:
                scale *= 8  # and at each addition
            for name, theirs_all in said.items():
                theirs = np.abs(theirs_all[number].double().numpy() - exact).max()
                assert theirs <= scale, (variant, name, "PyTorch computes something else")
                assert ours <= theirs + unit, (variant, name, ours, theirs)
            formula = formulas[number].double().numpy()
            np.testing.assert_allclose(formula, exact, rtol=0, atol=scale)
