"""A formula tried out once: what stands for its values notes the words they are given to, and tells values from comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from openaclnn.engines.formulas.words import WORDS


def _refusing(what: str) -> Callable[..., NoReturn]:
    def refuse(*operands: Any) -> NoReturn:
        raise TypeError(f"a formula has no {what}")

    return refuse


class _Tried:
    """Stands for what every element has, and keeps a set of the words it was given to."""

    __slots__ = ("used",)
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # NumPy's functions refuse it

    def __init__(self, used: set[str]) -> None:
        self.used = used

    @property
    def words(self) -> _Tried:
        return self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in WORDS:
            raise AttributeError(f"a formula's values have no `{name}`")
        self.used.add(name)
        return self._chosen if name == "where" else self._value

    def _chosen(self, condition: Any, yes: Any, no: Any) -> _Value:
        if not isinstance(condition, _Truth):
            raise TypeError("a formula chooses by a comparison: `where(x > y, ...)`")
        return self._value(yes, no)

    def _value(self, *others: Any) -> _Value:
        """A value, which others than comparisons make."""
        for other in others:
            if isinstance(other, _Truth):
                _no_number()
            if not isinstance(other, (_Value, int, float)):
                raise TypeError(f"a formula computes with values and numbers, not {other!r}")
        return _Value(self.used)

    # What would pass unseen here, and be wrong in an engine, where there was no source to read.
    __bool__ = _refusing("decision by its values (write `where`)")
    __iadd__ = __isub__ = __imul__ = __itruediv__ = __iand__ = __ior__ = _refusing(
        "assignment that changes a value in place"
    )


_no_number = _refusing("number that is a comparison (write `where(x > y, 1.0, 0.0)`)")


class _Value(_Tried):
    """A FLOAT of every element, or a number."""

    __slots__ = ()

    def _compared(self, other: Any) -> _Truth:
        return _Truth(self._value(other).used)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _Tried._value
    __truediv__ = __rtruediv__ = __neg__ = _Tried._value
    __eq__ = __ne__ = _compared  # type: ignore[assignment]
    __lt__ = __le__ = __gt__ = __ge__ = _compared
    __and__ = __rand__ = __or__ = __ror__ = __invert__ = _refusing(
        "`&`, `|` or `~` but of comparisons, each in parentheses"
    )


class _Truth(_Tried):
    """A comparison of every element."""

    __slots__ = ()

    def _again(self, *others: Any) -> _Truth:
        if not all(isinstance(other, _Truth) for other in others):
            raise TypeError("a formula has `&` and `|` between two comparisons alone")
        return self

    __and__ = __rand__ = __or__ = __ror__ = __invert__ = _again
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _no_number
    __truediv__ = __rtruediv__ = __neg__ = _no_number
    __eq__ = __ne__ = _no_number
    __lt__ = __le__ = __gt__ = __ge__ = _no_number


def words_of(
    function: Callable[..., Any], values: int, numbers: tuple[str, ...], switches: Mapping[str, bool]
) -> tuple[frozenset[str], int]:  # fmt: skip
    """The words on the way that these switches choose, and how many results it has; TypeError where it says what no formula may."""
    value = _Value(set())
    returned = function(*[value] * values, **dict.fromkeys(numbers, value), **switches)
    results = returned if isinstance(returned, tuple) else (returned,)
    for result in results:
        if not isinstance(result, _Value):
            raise TypeError(
                f"{function.__name__} returns {result!r}, which is no value of its elements"
            )
    return frozenset(value.used), len(results)
