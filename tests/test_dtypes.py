"""The dtype table and the two documented relations."""

from __future__ import annotations

import itertools
import pickle

import ml_dtypes
import numpy as np
import pytest

from openaclnn.core import dtypes
from openaclnn.core.dtypes import (
    BFLOAT16,
    BOOL,
    COMPLEX32,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    DTYPES,
    FLOAT,
    FLOAT16,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    UNDEFINED,
    can_cast,
    dtype_of_code,
    dtype_of_name,
    dtype_of_numpy,
    promote,
)  # fmt: skip

LISTED = [d for d in DTYPES if d.short]


def test_promotion_is_symmetric_and_idempotent() -> None:
    for a, b in itertools.product(LISTED, LISTED):
        assert promote(a, b) is promote(b, a)
        assert promote(a, a) is a


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        (FLOAT16, BFLOAT16, FLOAT), (FLOAT16, INT64, FLOAT16), (BFLOAT16, BOOL, BFLOAT16),
        (UINT8, INT8, INT16), (INT8, INT64, INT64), (BOOL, UINT8, UINT8), (FLOAT, DOUBLE, DOUBLE),
        (UINT16, UINT16, UINT16), (UINT16, INT32, None), (UINT32, FLOAT, None), (UINT64, BOOL, None),
        (BFLOAT16, COMPLEX32, COMPLEX32), (FLOAT, COMPLEX32, COMPLEX64), (DOUBLE, COMPLEX64, COMPLEX128),
        (INT16, UINT8, INT16), (INT32, INT16, INT32),
    ],
)  # fmt: skip
def test_promotion_table(a: dtypes.DType, b: dtypes.DType, result: dtypes.DType | None) -> None:
    assert promote(a, b) is result


def test_can_cast_by_groups() -> None:
    groups = {
        "integer": [INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64],
        "floating": [FLOAT16, FLOAT, DOUBLE, BFLOAT16],
        "complex": [COMPLEX64, COMPLEX128],
        "bool": [BOOL],
    }
    allowed = {
        ("integer", "integer"), ("integer", "floating"), ("integer", "complex"),
        ("floating", "floating"), ("floating", "complex"), ("complex", "complex"),
        ("bool", "integer"), ("bool", "floating"), ("bool", "complex"), ("bool", "bool"),
    }  # fmt: skip
    for (source, sources), (target, targets) in itertools.product(groups.items(), groups.items()):
        for a, b in itertools.product(sources, targets):
            assert can_cast(a, b) == ((source, target) in allowed), (a, b)


def test_codes_names_and_numpy() -> None:
    assert len({d.code for d in DTYPES}) == len(DTYPES)
    assert dtype_of_code(27) is BFLOAT16
    assert dtype_of_code(5) is UNDEFINED
    assert dtype_of_name("float32") is FLOAT
    assert dtype_of_name("ACL_BF16") is BFLOAT16
    with pytest.raises(KeyError, match="known"):
        dtype_of_name("float12")
    for d in DTYPES:
        if d.numpy_name:
            assert dtype_of_numpy(d.numpy) is d
            assert d.numpy.itemsize == d.itemsize
        assert pickle.loads(pickle.dumps(d)) is d
    assert dtype_of_numpy(np.dtype(ml_dtypes.bfloat16)) is BFLOAT16
    assert dtype_of_numpy(np.dtype(">f4")) is None
    with pytest.raises(TypeError, match="no NumPy"):
        _ = UNDEFINED.numpy
