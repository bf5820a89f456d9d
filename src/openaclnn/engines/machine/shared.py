"""Words that some threads read while another writes them, with no lock between them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence

from openaclnn.engines.machine.cache import compiled
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.kinds import signature
from openaclnn.engines.machine.values import Value

__all__ = ["publish"]


def publish(address: int, word: int) -> None:
    """Write a word: who reads it reads all that was written before it, and what we read from here on is later than it."""
    _publish()(address, word)


@functools.cache
def _publish() -> Callable[[int, int], None]:
    def emit(code: Code, arguments: Sequence[Value]) -> None:
        address, word = arguments
        code.settle()
        code.slots(address).write(0, word)
        code.settle()
        code.leave()

    address_of_code = compiled("shared.publish", emit, signature(None, "i64", "i64"))
    return ctypes.PYFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(address_of_code)
