"""What tests alone run each operator on: cases, and mistakes.

Each operator has the module of its declaration's name here; `pairwise.py` and `likelihood.py` have what families of losses share,
`activations.py` and `losses.py` make those of elementwise activations and losses from their declarations, `logits.py` has the cases of cross entropy from logits, `mistakes.py` the words of the tables. Each module has the same names:

A module of several operators has these under each one's Python name.

- `cases(rng, dtype)`: small arguments of the plain call that together reach every option;
- `summed(**arguments)`, where terms of sums may cancel: what each result would be if none did;
- `WHOLE`, of losses: the options with which the result has the shape of the arguments;
- `sound()`: arguments of phase one by C name that break no rule;
  `MISTAKES`: one way or more to break each row of the checks, in their order, but for the product's row;
  `LIMITS`: ways to break the rows that only products have, by these rows.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT, FLOATS, DType
from openaclnn.operators.activations import Activation
from openaclnn.operators.losses import Loss

__all__ = [
    "EVERYTHING",
    "cases_of",
    "cases_to_compile",
    "data_of",
    "few_to_compile",
    "most_to_compile",
]

EVERYTHING = bool(os.environ.get("OPENACLNN_TEST_ALL"))
"""Whether tests try every case where otherwise some stand for the others, in turns: `make test-all`."""

MANY = 15
"""Cases of an operator: who has more combines every option with every other."""


def data_of(operator: Operator) -> Any:
    """The operator's module, what has its Python name in that of its declaration, or what its family makes of its declaration."""
    name = operator.python_name
    if name in _OF_MODULES:
        module = importlib.import_module(f"{__name__}.{name}")
        return getattr(module, name, module)
    if isinstance(operator, Activation):
        return _data_of_activation(operator)
    module = importlib.import_module(f"{__name__}.{operator.home.rpartition('.')[2]}")
    return getattr(module, name, module)


_OF_MODULES = frozenset(path.stem for path in Path(__file__).parent.glob("*.py"))


@functools.cache
def _data_of_activation(operator: Activation) -> Any:
    family = "losses" if isinstance(operator, Loss) else "activations"
    return importlib.import_module(f"{__name__}.{family}").Data(operator)


def cases_of(
    operator: Operator, rng: np.random.Generator, dtype: DType
) -> Iterator[dict[str, Any]]:
    """The operator's cases."""
    cases: Iterator[dict[str, Any]] = data_of(operator).cases(rng, dtype)
    return cases


def few_to_compile(cases: list[dict[str, Any]], turn: int) -> list[dict[str, Any]]:
    """Every third case, of many every fifth, others at other turns: kernels take up to a second each to compile, most of what a first
    run takes."""
    step = 5 if len(cases) > MANY else 3
    return cases[turn % step :: step] if len(cases) > 2 and not EVERYTHING else cases


def most_to_compile(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of many cases, which are every option with every other, two of five: each option is there, with and without others."""
    if len(cases) <= MANY or EVERYTHING:
        return cases
    return [case for number, case in enumerate(cases) if number % 5 in (0, 2)]


def cases_to_compile(
    operator: Operator, rng: np.random.Generator, dtype: DType
) -> list[dict[str, Any]]:
    """The operator's cases of FLOAT, or most; of 16 bits few, the same for all tests, so that they share compiled code."""
    cases = [*cases_of(operator, rng, dtype)]
    return most_to_compile(cases) if dtype is FLOAT else few_to_compile(cases, FLOATS.index(dtype))
