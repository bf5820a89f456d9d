"""Cases and mistakes of aclnnInplaceElu."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.dtypes import INT64, DType
from workloads import elu
from workloads.elu import WRONG_SCALARS
from workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t


def cases(rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
    for case in elu.cases(rng, dtype):
        yield {"self_ref": case.pop("self"), **case}


def sound() -> dict[str, Any]:
    return {"selfRef": t((2, 3)), "alpha": 1.0, "scale": 1.0, "inputScale": 1.0}


MISTAKES = [
    *POINTERS,
    *nulls("1", "selfRef", "alpha", "scale", "inputScale"),
    Mistake("2", INVALID, "selfRef", {"selfRef": t((2, 3), INT64)}),
    *WRONG_SCALARS,
    Mistake("6", INVALID, "selfRef", {"selfRef": t(NINE)}),
]
