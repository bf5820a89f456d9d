"""The commercial standard's cases as cases to run: drawn when their turn comes, so that ten thousand take no memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from openaclnn.core.declare import Operator
from openaclnn.core.products import current_product
from openaclnn.core.tensor import Tensor
from openaclnn.testing.data.goldens import operator_of, places_of, plan_of
from openaclnn.testing.data.recipe import AMOUNTS, Recipe
from openaclnn.testing.running.build import Built

__all__ = ["LevelCase", "level_cases"]


@dataclass(frozen=True)
class LevelCase:
    """One case of a recipe."""

    recipe: Recipe
    number: int
    name: str
    identity: str = ""
    products: tuple[str, ...] = ()
    enabled: bool = True
    folder: str = ""

    @property
    def place(self) -> str:
        return f"{self.recipe.level}, case {self.number}"

    @property
    def operator_name(self) -> str:
        return self.recipe.operator

    @property
    def operator(self) -> Operator:
        return operator_of(self.recipe.operator)

    @property
    def elements(self) -> int:
        return 4 * self.recipe.elements

    def built(self) -> Built:
        """Its data, and outputs to be written."""
        operator, given = self.operator, self.recipe.arguments(self.number)
        product = current_product()
        arguments = {n: v for n, v in (operator.plain_defaults | given).items() if n != "out"}
        outputs = {
            name: np.full(shape, np.nan).astype(dtype.numpy)
            for name, (shape, dtype) in places_of(operator, given, product).items()
        }
        if operator.output.in_place:
            outputs = {operator.output.name: arguments[operator.output.python_name]}
        plan = plan_of(operator, given, product)
        return Built(operator, plan, _in_c_order(operator, arguments, outputs), arguments, outputs)


def _in_c_order(
    operator: Operator, arguments: dict[str, Any], outputs: dict[str, Any]
) -> list[Any]:
    values = []
    for parameter in operator.parameters:
        value = outputs.get(parameter.name, arguments.get(parameter.python_name))
        if parameter.is_tensor and value is not None:
            value = Tensor.from_numpy(np.asarray(value))
        values.append(value)
    return values


def level_cases(
    operator: str | Operator | Callable[..., Any],
    level: str = "L1",
    *,
    seed: int = 0,
    count: int | None = None,
) -> Iterator[LevelCase]:
    """The cases that the commercial standard asks for at a level, or `count` of them."""
    found = operator_of(operator)
    if level not in AMOUNTS:
        raise ValueError(f"unknown level {level!r}; known: {', '.join(AMOUNTS)}")
    recipe = Recipe(found.name, seed, AMOUNTS[level] if count is None else count, level=level)
    for number, name in enumerate(recipe.names()):
        yield LevelCase(recipe, number, name, str(number))
