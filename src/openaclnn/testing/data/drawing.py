"""`draw`: arguments of an operator, with the values that are apt to go wrong where they are asked for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import DType, dtype_of_numpy
from openaclnn.testing.data.distribution import Distribution, draw_array, generator
from openaclnn.testing.data.goldens import operator_of, plan_of
from openaclnn.testing.words import dtype_named

__all__ = ["SPECIALS", "draw", "ranks_of", "variants_of"]

Array = np.ndarray[Any, Any]

SPECIALS = ("nan", "inf", "zero", "subnormal", "extreme", "tie", "ignored", "boundary")
"""Kinds of special values: the first five for floating tensors, equal elements in tensors of one shape, targets that are
ignored, and targets of the first and the last class."""

_RANKS = {"rows": (2,), "pixels": (4,)}


def ranks_of(operator: Operator) -> tuple[int, ...]:
    """How many dimensions the main tensor may have."""
    return _RANKS.get(operator.workloads.PATTERN, tuple(range(1, 9)))


def variants_of(operator: Operator) -> tuple[str, ...]:
    """The names of the operator's usual options."""
    return tuple(operator.workloads.VARIANTS)


def draw(
    operator: str | Operator | Callable[..., Any],
    shape: Sequence[int],
    dtype: str | DType = "float32",
    *,
    seed: int = 0,
    variant: str | None = None,
    how: Distribution | Mapping[str, Distribution] | None = None,
    special: Sequence[str] = (),
    **options: Any,
) -> dict[str, Any]:
    """Arguments of the plain call: arrays of one main shape (those of a broadcast, a row's class, … follow from it).

    Without `how`, values are what a training step would give. A distribution, or one for each parameter by name,
    draws the floating tensors anew. `special` names kinds of `SPECIALS` to strew in; `options` are arguments that
    take the place of the drawn ones. The same arguments give the same bytes.
    """
    found = operator_of(operator)
    unknown = [name for name in special if name not in SPECIALS]
    if unknown:
        raise ValueError(f"unknown special values {unknown[0]!r}; known: {', '.join(SPECIALS)}")
    kind = dtype_named(dtype) if isinstance(dtype, str) else dtype
    variants = variants_of(found)
    name = variants[0] if variant is None else variant
    if name not in variants:
        raise ValueError(f"{found.name} has no variant {name!r}; known: {', '.join(variants)}")
    if len(shape) not in ranks_of(found):
        expected = ", ".join(map(str, ranks_of(found)))
        raise ValueError(
            f"{found.name}: a shape of {expected} dimensions is expected, not {tuple(shape)}"
        )
    arguments = found.workloads.make(generator(seed, 0), kind, tuple(shape), name)
    if how is not None:
        _redraw(found, arguments, how, seed)
    arguments |= options
    _fill_unread(found, arguments, seed)
    if special:
        _strew(found, arguments, special, generator(seed, 1))
    return dict(arguments)


def _floating(operator: Operator, arguments: Mapping[str, Any]) -> dict[str, Array]:
    """The floating tensors among the arguments."""
    names = [p.python_name for p in operator.parameters if p.is_read]
    arrays = {
        name: arguments[name] for name in names if isinstance(arguments.get(name), np.ndarray)
    }
    types = {name: dtype_of_numpy(array.dtype) for name, array in arrays.items()}
    return {n: a for n, a in arrays.items() if (t := types[n]) is not None and t.kind == "floating"}


def _redraw(
    operator: Operator,
    arguments: dict[str, Any],
    how: Distribution | Mapping[str, Distribution],
    seed: int,
) -> None:
    each = {} if isinstance(how, Distribution) else dict(how)
    for name in each:
        if name not in operator.plain_defaults:
            raise ValueError(f"{operator.name} has no parameter {name!r}")
    for number, (name, array) in enumerate(_floating(operator, arguments).items()):
        chosen = how if isinstance(how, Distribution) else each.get(name)
        if chosen is not None:
            dtype = dtype_of_numpy(array.dtype)
            assert dtype is not None
            arguments[name] = draw_array(generator(seed, 2, number), array.shape, dtype, chosen)
    settle = getattr(operator.workloads, "settle", None)
    if settle is not None:  # some tensors follow from others
        with np.errstate(all="ignore"):  # what is too large for the dtype is infinite
            arguments |= settle(arguments, frozenset(each))


def _fill_unread(operator: Operator, arguments: dict[str, Any], seed: int) -> None:
    """Tensors that no kernel reads may come without values; files of them must be the same every time."""
    plan = plan_of(operator, arguments)
    read = {operator[each.parameter].python_name for each in plan.inputs}
    for number, (name, array) in enumerate(_floating(operator, arguments).items()):
        if name not in read:
            dtype = dtype_of_numpy(array.dtype)
            assert dtype is not None
            arguments[name] = draw_array(generator(seed, 3, number), array.shape, dtype)


def _strew(
    operator: Operator, arguments: dict[str, Any], special: Sequence[str], rng: np.random.Generator
) -> None:
    """Put special values at some places of tensors that have room for them."""
    floating = {n: a for n, a in _floating(operator, arguments).items() if a.size >= 16}
    for name in floating:
        arguments[name] = floating[name] = np.array(floating[name])
    domains = getattr(operator.workloads, "DOMAINS", {})
    for kind in special:
        for name, array in floating.items():
            values = _values(kind, array)
            low, high = domains.get(name, (-np.inf, np.inf))
            values = values[~((values < low) | (values > high))]
            if values.size:
                places = _places(rng, array)
                array.reshape(-1)[places] = np.resize(values, places.size)
    if "tie" in special:
        _tie(list(floating.values()), rng)
    if {"ignored", "boundary"} & set(special):
        _mark_targets(operator, arguments, special, rng)


def _places(rng: np.random.Generator, array: Array) -> Array:
    return rng.integers(0, array.size, max(array.size // 32, 2))


def _values(kind: str, array: Array) -> Array:
    import ml_dtypes

    info = ml_dtypes.finfo(array.dtype)  # type: ignore[no-untyped-call]
    small, normal = float(info.smallest_subnormal), float(info.smallest_normal)
    listed = {
        "nan": [np.nan], "inf": [np.inf, -np.inf], "zero": [0.0, -0.0],
        "subnormal": [small, -small, normal - small, normal],
        "extreme": [float(info.max), float(info.min)],
    }  # fmt: skip
    return np.array(listed.get(kind, []), np.float64).astype(array.dtype)


def _tie(arrays: list[Array], rng: np.random.Generator) -> None:
    """Some elements of tensors of one shape and dtype are equal."""
    for one, other in itertools.pairwise(arrays):
        if (one.shape, one.dtype) == (other.shape, other.dtype):
            places = _places(rng, one)
            other.reshape(-1)[places] = one.reshape(-1)[places]


def _mark_targets(
    operator: Operator, arguments: dict[str, Any], special: Sequence[str], rng: np.random.Generator
) -> None:
    plan = plan_of(operator, arguments)
    if plan.targets < 0:
        return
    name = operator[plan.inputs[plan.targets].parameter].python_name
    target = arguments[name] = np.array(arguments[name])
    marks = {"boundary": [0, plan.classes - 1], "ignored": [plan.numbers["ignore_index"]]}
    for kind in ("boundary", "ignored"):
        fits = [m for m in marks[kind] if np.iinfo(target.dtype).min <= m <= np.iinfo(target.dtype).max]  # fmt: skip
        if kind in special and fits and target.size:
            places = _places(rng, target)
            target.reshape(-1)[places] = np.resize(np.array(fits, target.dtype), places.size)
