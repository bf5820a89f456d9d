"""Cases and mistakes of aclnnLogSoftmax."""

from __future__ import annotations

from openaclnn.core.dtypes import COMPLEX64, INT32
from workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t
from workloads.softmax import axes, cases, sound

__all__ = ["cases", "sound"]

MISTAKES = [
    *POINTERS,
    *nulls("1", "self", "out"),
    *axes("2"),
    Mistake("3", INVALID, "self", {"self": t((2, 3), INT32)}),
    Mistake("3", INVALID, "out", {"out": t((2, 3), COMPLEX64)}),
    Mistake("4", INVALID, "self", {"self": t(NINE), "out": t(NINE)}),
    Mistake("5", INVALID, "out", {"out": t((3, 2))}),
]
