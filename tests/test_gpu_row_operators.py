"""Operators of rows and channels on the Triton engine, interpreted on host memory: every case of theirs, along every axis, against the float64 oracle.
To look at one alone: OPENACLNN_GPU_TESTS=interpret pytest tests/test_gpu_row_operators.py
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest

if sys.platform != "linux":
    pytest.skip("Triton has wheels for Linux alone", allow_module_level=True)

MODE = os.environ.get("OPENACLNN_GPU_TESTS", "")
if MODE == "interpret":
    from interpreted import on_the_interpreter  # noqa: F401

if MODE == "interpret":
    from conftest import INTERPRETED, OPERATORS, assert_matches_oracle, each, lacks, plain
    from openaclnn.core.declare import Operator
    from openaclnn.core.dtypes import DType
    from openaclnn.engines.formulas.rows import ROW_FORMULAS
    from openaclnn.testing.goldens import plan_of
    from workloads import cases_of

    def is_of_rows(operator: Operator) -> bool:
        """Or has a number for each channel, or several steps."""
        plan = plan_of(operator, operator.samples[0].arrays())
        return plan.kernel in ROW_FORMULAS or (plan.shape_specific and not plan.halved)

    ROWS = [op for op in OPERATORS if is_of_rows(op)]
    names = pytest.mark.parametrize("operator", ROWS, ids=lambda op: op.python_name)

    @names
    @pytest.mark.parametrize("dtype", INTERPRETED, ids=str)
    @pytest.mark.in_turns
    def test_cases(operator: Operator, dtype: DType) -> None:
        if reason := lacks(operator, "triton"):
            pytest.skip(reason)
        for case in cases_of(operator, np.random.default_rng(7), dtype):
            assert_matches_oracle(operator, case, plain(operator)(**case))

    @names
    def test_every_axis(operator: Operator) -> None:
        if reason := lacks(operator, "triton"):
            pytest.skip(reason)
        if operator.axis is None:
            return
        rng, work = np.random.default_rng(5), operator.workloads
        variant = next(iter(work.VARIANTS))
        for shape in ((), (5,), (4, 6), (2, 3, 4)):
            base: dict[str, Any] = work.make(rng, INTERPRETED[0], shape or (1,), variant)
            base = {
                name: value.reshape(shape) if isinstance(value, np.ndarray) else value
                for name, value in base.items()
            }
            for dim in range(-max(len(shape), 1), max(len(shape), 1)):
                arguments = base | {operator.axis.python_name: dim}
                got = plain(operator)(**arguments)
                assert_matches_oracle(operator, arguments, got)
                assert [output.shape for output in each(got)] == [shape]
