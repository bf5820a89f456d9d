"""`compare` for the page: two uploaded files in, the verdict and what its picture shows out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from openaclnn.explorer.refusals import Refused
from openaclnn.testing.extras import MissingLibraryError
from openaclnn.testing.files.arrays import read_together
from openaclnn.testing.files.sources import RAW, Source, TooLargeError
from openaclnn.testing.judging.compare import Comparison, judge
from openaclnn.testing.judging.figures import Array
from openaclnn.testing.judging.limits import STANDARDS
from openaclnn.testing.judging.rules import Rules
from openaclnn.testing.judging.sights import errors_at, map_of, stick_of

__all__ = ["KINDS", "UNPACKED", "verdict_of"]

KINDS = (".npy", ".npz", ".safetensors", *RAW)
"""The files that are taken, by the ends of their names; none is a pickle."""

UNPACKED = 256 << 20
"""Bytes that an array of a packed file may have."""

_POINTS = 1500
_CELLS = 48
_KEPT = 10


def verdict_of(
    files: Sequence[Path], standard: str = STANDARDS[0], dtype: str | None = None
) -> dict[str, Any]:
    """The verdict on two files, and its picture as numbers; Refused where they cannot be compared."""
    try:
        rules = Rules(standard)
        if standard == "cross_check":
            raise ValueError("cross_check needs a third party's output: openaclnn compare has it")
        one, other = read_together([Source(path) for path in files], dtype, UNPACKED)
        found = judge(one, other, None, rules, dtype, _KEPT)
    except KeyError as error:
        raise Refused(400, str(error.args[0])) from None
    except TooLargeError as error:
        raise Refused(413, _without_folders(str(error), *files)) from None
    except (ValueError, MissingLibraryError) as error:
        raise Refused(400, _without_folders(str(error), *files)) from None
    except (RecursionError, MemoryError):
        raise Refused(400, "the files are not what their names say") from None
    return found.as_dict() | {"text": str(found), "picture": _picture(found, one, other, rules)}


def _without_folders(sentence: str, *paths: Path) -> str:
    for path in paths:
        sentence = sentence.replace(str(path), path.name)
    return sentence


def _picture(found: Comparison, actual: Array, golden: Array, rules: Rules) -> dict[str, Any] | None:  # fmt: skip
    if actual.shape != golden.shape or not actual.size:
        return None
    pair = (found, actual, golden, rules)
    errors, seen = errors_at(*pair, _POINTS), map_of(*pair, _CELLS)
    tolerance = stick_of(found, rules).tolerance
    allowed: list[list[float]] = []
    if errors.size.size and not tolerance.exact:
        ends = np.geomspace(errors.size.min(), errors.size.max() * (1 + 1e-9), 32)
        allowed = np.stack([ends, tolerance.allowed(ends)], axis=1).tolist()
    points = np.stack([errors.size, errors.error], axis=1)
    share = seen.share
    return {
        "good": points[~errors.bad].tolist(),
        "bad": points[errors.bad].tolist(),
        "allowed": [pair for pair in allowed if all(map(math.isfinite, pair))],
        "map": [[None if math.isnan(each) else round(each, 4) for each in row] for row in share.tolist()],
        "rows": seen.rows,
        "columns": seen.columns,
        "folded": len(actual.shape) < 2,
    }  # fmt: skip
