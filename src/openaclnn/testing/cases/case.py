"""A case: one call of an operator as a list describes it, before any data are drawn; and the words of lists for numbers and for ranges."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import DType
from openaclnn.core.interface import Interface, Kind, Parameter
from openaclnn.core.tensor import Format, Tensor, extent
from openaclnn.operators import find_operator
from openaclnn.testing.drawing import Distribution
from openaclnn.testing.extras import dtype_named


class Skip(ValueError):  # noqa: N818
    """Why a case is not run: in a word or two, by which cases are counted, and in a sentence."""

    def __init__(self, reason: str, why: str) -> None:
        self.reason = reason
        super().__init__(why)


@contextmanager
def telling(place: str, subject: str = "") -> Iterator[None]:
    """What cannot be read is told with its place in the list and what it is about; why a case is skipped, with what it is about."""
    try:
        yield
    except Skip as skip:
        raise Skip(skip.reason, f"{subject or place}: {skip}") from None
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{place}: {subject}: {error}" if subject else f"{place}: {error}"
        ) from None


def operator_named(name: str) -> Operator:
    """An operator by the name that a list gives it; a case of another is skipped."""
    try:
        return find_operator(name)
    except KeyError:
        raise Skip("another operator", f"{name} is not among our operators") from None


def dtype_of(name: Any) -> DType:
    """A dtype by the name that a list gives it; a case of one that is not known is skipped."""
    try:
        return dtype_named(str(name))
    except ValueError as error:
        raise Skip("dtype", str(error)) from None


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of a case: its view of memory, and where the values come from."""

    shape: tuple[int, ...]
    dtype: DType
    how: Distribution | None = None  # None: what suits the parameter
    strides: tuple[int, ...] | None = None
    offset: int = 0
    storage: tuple[int, ...] | None = None
    format: int = Format.ACL_FORMAT_ND
    binary: Path | None = None
    values: Any = None

    def __post_init__(self) -> None:
        if any(size < 0 for size in self.shape):
            raise ValueError(f"a shape has no negative sizes: {self.shape}")
        if not self.dtype.numpy_name:
            raise Skip("dtype", f"tensors of {self.dtype.name} cannot be made")
        if self.strides is not None and len(self.strides) != len(self.shape):
            raise ValueError(f"{len(self.strides)} strides for shape {self.shape}")
        low, high = self._reach
        if self.storage is not None and not 0 <= low <= high <= math.prod(self.storage):
            raise ValueError(
                f"shape {self.shape} with strides {self.strides} and offset {self.offset} reaches "
                f"elements {low} to {high - 1} of a storage of {math.prod(self.storage)}"
            )
        if low < 0:
            raise ValueError(f"strides {self.strides} reach below the storage")

    @property
    def is_plain(self) -> bool:
        """Whether the view is the whole of its memory, in its order."""
        return self.strides is None and not self.offset and self.storage is None

    @property
    def elements(self) -> int:
        """How many elements the storage has, as far as the view covers it."""
        return math.prod(self.storage) if self.storage is not None else self._reach[1]

    @cached_property
    def _reach(self) -> tuple[int, int]:
        """The elements of the storage that the view covers: the first, and the one behind the last."""
        size = max(self.dtype.itemsize, 1)
        low, high = extent(self.descriptor())
        if low == high:
            return self.offset, self.offset
        return self.offset + low // size, self.offset + high // size

    def descriptor(self) -> Tensor:
        """The tensor without memory, for the checks."""
        return Tensor(self.shape, self.dtype, self.strides, self.offset, self.format, self.storage, base=4096)  # fmt: skip

    def memory(self) -> np.ndarray[Any, Any]:
        """The storage, zeros."""
        return np.zeros(self.elements, self.dtype.numpy)

    def over(self, memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The view of a storage."""
        if self.strides is None and not self.offset:
            return memory[: math.prod(self.shape)].reshape(self.shape)
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype.numpy)
        steps = Tensor(self.shape, self.dtype, self.strides).strides
        itemsize = self.dtype.itemsize
        return np.ndarray(
            self.shape, self.dtype.numpy, memory.view(np.uint8).data, self.offset * itemsize, tuple(s * itemsize for s in steps)
        )  # fmt: skip

    def view(self, fill: bytes | None = None) -> np.ndarray[Any, Any]:
        """Memory as the case lays it out, and the view of it; zeros, or full of a byte."""
        memory = self.memory()
        if fill is not None:
            memory.view(np.uint8)[...] = fill[0]
        return self.over(memory)


@dataclass(frozen=True)
class Drawn:
    """A number of a case that is to be drawn."""

    how: Distribution
    dtype: DType

    def __post_init__(self) -> None:
        if not self.dtype.numpy_name:
            raise Skip("dtype", f"numbers of {self.dtype.name} cannot be made")


@dataclass(frozen=True)
class OneOf:
    """An attribute of a case that is to be chosen."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """One call, by C parameter names; what a list leaves out has the plain call's default."""

    name: str
    operator_name: str
    place: str  # where it stands in its list, for people
    number: int  # its place among the list's cases, from 0
    tensors: Mapping[str, TensorSpec | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    identity: str = ""  # the list's own id
    tolerances: tuple[tuple[float, float], ...] = ()  # (rtol, ptol) of each output, or of all
    atols: tuple[float, ...] = ()  # of each output, or of all
    standard: str = ""  # the list's own: "" where it names none
    relatives: Mapping[str, float] = field(default_factory=dict)  # stat_rel_err's T by dtype name
    kernel: bool = False  # whose outputs may have other shapes than the interface's
    notes: tuple[str, ...] = ()  # what was read otherwise than it is written
    products: tuple[str, ...] = ()
    goldens: tuple[Path | None, ...] = ()  # of each output, in C order
    enabled: bool = True
    folder: str = ""  # of its golden files

    @property
    def operator(self) -> Operator:
        return find_operator(self.operator_name)


@dataclass(frozen=True)
class Malformed:
    """An entry of a list that is not run: where, and why."""

    name: str
    place: str
    why: str
    number: int = 0
    identity: str = ""
    operator_name: str = ""
    reason: str = "unreadable"

    @classmethod
    def of(cls, error: Exception, name: str, place: str, number: int, identity: str, operator_name: str) -> Malformed:  # fmt: skip
        reason = error.reason if isinstance(error, Skip) else "unreadable"
        return cls(name, place, str(error), number, identity, operator_name, reason)


def without_unread(
    operator: Operator, tensors: dict[str, TensorSpec | None], attributes: Mapping[str, Any]
) -> dict[str, TensorSpec | None]:
    """A case's tensors, null those that the operator does not read with these attributes: lists have them in odd shapes."""
    unread = getattr(operator.workloads, "unread", lambda numbers: ())(attributes)
    return tensors | {name: None for name in unread if name in tensors}


def _plain(name: str) -> str:
    return name.replace("_", "").lower().removesuffix("optional")


def parameter_named(operator: Interface, name: str) -> Parameter | None:
    """A parameter by its C or Python name, whatever its case and underscores; lists are not exact about them."""
    for parameter in operator.parameters:
        several = parameter.kind is Kind.OUTPUT and operator.result_type is not None
        in_python = parameter.field if several else parameter.python_name
        if _plain(name) in (_plain(parameter.name), _plain(in_python)):
            return parameter
    return None


_INTERVAL = re.compile(r"([(\[])([^,()\[\]]+),([^,()\[\]]+)([)\]])")
_UNSET = ("default", "null", "")


def number_of(value: Any) -> float:
    """A number, also as the words inf and nan; true and false are 1 and 0."""
    if not isinstance(value, (int, float, str)):
        raise ValueError(f"a number is expected, not {value!r}")
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"a number is expected, not {str(value)[:40]!r}") from None


def is_word(value: Any) -> bool:
    """Whether this is a text that says neither a number nor an interval."""
    if not isinstance(value, str) or _INTERVAL.fullmatch(value.strip()):
        return False
    try:
        number_of(value)
    except ValueError:
        return True
    return False


def power_of(value: Any) -> float:
    """A number, also as the text of a power: 2**-5."""
    base, power, exponent = str(value).partition("**")
    try:
        return number_of(base) ** number_of(exponent) if power else number_of(value)
    except (OverflowError, ZeroDivisionError):
        raise ValueError(f"a number is expected, not {value!r}") from None


def is_unset(value: Any) -> bool:
    """Whether a range leaves the values to us: null, "default", and lists of nothing else."""
    if isinstance(value, (tuple, list)):
        return all(is_unset(each) for each in value)
    return value is None or (isinstance(value, str) and value.strip().lower() in _UNSET)


def _between(low: float, high: float, **more: Any) -> Distribution:
    if math.isnan(low) or math.isnan(high):
        low = high = math.nan
    return Distribution(low, high, **more)


def ttk_range(written: Any) -> Distribution | None:
    """TTK's: (low, high) with values that must occur behind them; None where it is left to us."""
    if is_unset(written):
        return None
    if not isinstance(written, (tuple, list)):
        written = (written,)
    low, high, *occur = (
        number_of(each) for each in (written if len(written) > 1 else [*written] * 2)
    )
    return _between(low, high, includes=tuple(occur))


def atk_range(written: Any) -> Distribution | None:
    """ATK's: a value, an interval, values to choose from, a normal distribution; None where it is left to us."""
    if is_unset(written):
        return None
    if isinstance(written, dict):
        return _normal(written)
    interval = _INTERVAL.fullmatch(written.strip()) if isinstance(written, str) else None
    if interval is not None:
        opens, low, high, closes = interval.groups()
        first, last = (_finite(number_of(end)) for end in (low, high))
        return Distribution(first, last, open=(opens == "(", closes == ")"))
    values = [number_of(each) for each in (written if isinstance(written, list) else [written])]
    if len(values) == 1:
        return _between(values[0], values[0])
    words = all(isinstance(each, str) for each in written)
    if len(values) > 2 or (words and not values[0] <= values[1]):
        return Distribution(choices=tuple(values))
    if values[0] == values[1]:
        return Distribution(values[0], values[1])
    return _between(_finite(values[0]), _finite(values[1]))


def _finite(end: float) -> float:
    """An end of an interval; an infinite one is where the dtype's finite numbers end."""
    return math.copysign(sys.float_info.max, end) if math.isinf(end) else end


def _normal(written: dict[str, Any]) -> Distribution:
    if written.get("name") != "nd":
        raise ValueError(f"unknown distribution {written.get('name')!r}")
    means, deviations = (_ends(written.get(word)) for word in ("mean", "std"))
    if deviations[0] < 0:
        raise ValueError(f"a deviation is 0 or more, not {deviations[0]:g}")
    return Distribution(means=means, deviations=deviations)


def _ends(written: Any) -> tuple[float, float]:
    ends = written if isinstance(written, list) and len(written) == 2 else [written, written]
    low, high = (number_of(end) for end in ends)
    if not -1e300 < low <= high < 1e300:
        raise ValueError(f"an interval of numbers is expected, not {written!r}")
    return low, high


def check_range(how: Distribution | None, dtype: DType) -> None:
    """Skip a case whose values its dtype cannot hold; of an interval, those that it can hold are drawn."""
    if how is None or how.means is not None or dtype.kind not in ("integer", "bool"):
        return
    info = np.iinfo(dtype.numpy) if dtype.kind == "integer" else None
    least, most = (0, 1) if info is None else (int(info.min), int(info.max))
    values = [*how.choices, *how.includes]
    if not how.choices:
        values += [max(how.low, least), min(how.high, most)]
    for value in values:
        if not least <= value <= most:  # NaN is neither
            raise Skip("value", f"{dtype.name} cannot hold {value:g}")
