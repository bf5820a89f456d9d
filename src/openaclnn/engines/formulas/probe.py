"""Which words a formula uses: engines choose their loops by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from openaclnn.engines.formulas import Formula
from openaclnn.engines.formulas.words import WORDS

__all__ = ["words_of"]


class _Probe:
    """Stands for every value and number, and notes the words it is given to."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    @property
    def words(self) -> _Probe:
        return self

    def __getattr__(self, name: str) -> Callable[..., _Probe]:
        if name not in WORDS:
            raise AttributeError(name)
        self.used.add(name)
        return self._again

    def _again(self, *others: Any) -> _Probe:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = (
        _again
    )
    __eq__ = __ne__ = _again  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]
    __lt__ = __le__ = __gt__ = __ge__ = __and__ = __or__ = __neg__ = __invert__ = _again


def words_of(formula: Formula, switches: Mapping[str, bool]) -> frozenset[str]:
    """The words on the way that these switches choose."""
    probe = _Probe()
    numbers = dict.fromkeys(formula.numbers, probe)
    formula.function(*[probe] * len(formula.values), **numbers, **switches)
    return frozenset(probe.used)
