"""A recipe: what to draw, in so many words that the same bytes can be drawn again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from openaclnn.core.dtypes import FLOATS
from openaclnn.operators import find_operator
from openaclnn.testing.data.distribution import Distribution, generator
from openaclnn.testing.data.drawing import draw, ranks_of, variants_of
from openaclnn.testing.judging.limits import LEVELS
from openaclnn.testing.words import dtype_named

__all__ = ["AMOUNTS", "MIXES", "Recipe"]

AMOUNTS = {"L0": 5_000, "L1": 10_000, "L2": 30_000}
"""How many cases the commercial standard asks for at each level; it also asks for 200 (L0) or 700 of every dtype,
which an even share of these is beyond."""


_UNIFORM = Distribution(-5, 5)
_NORMAL = Distribution(means=(-100, 100), deviations=(1, 25))
_OUTLIERS = Distribution(-5, 5, outliers=0.01)
_SMALL = Distribution(-0.001, 0.001)
_FULL_MIX = (
    _NORMAL, _UNIFORM, _OUTLIERS, _NORMAL, _SMALL, _UNIFORM, _NORMAL, _OUTLIERS, _UNIFORM, _NORMAL,
)  # fmt: skip
MIXES = {"L0": (_UNIFORM, _NORMAL), "L1": _FULL_MIX, "L2": _FULL_MIX}
"""How the cases of a level are drawn, in turn: at L0 half uniform, half normal; above, a tenth is small, 30% are uniform,
40% normal, and 20% have outliers."""


@dataclass(frozen=True)
class Recipe:
    """Cases of one operator: one kind many times, or (with a level) all kinds as the commercial standard draws them."""

    operator: str
    seed: int = 0
    count: int = 1
    shape: tuple[int, ...] = ()
    dtype: str = "FLOAT"
    variant: str | None = None
    how: Mapping[str, Distribution] = field(default_factory=dict)  # "" stands for all
    special: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    level: str = ""
    elements: int = 4096  # of the main shape of a level's cases, at most

    def __post_init__(self) -> None:
        find_operator(self.operator)
        dtype_named(self.dtype)
        if self.level and self.level not in LEVELS:
            raise ValueError(f"unknown level {self.level!r}; known: {', '.join(LEVELS)}")

    def names(self) -> list[str]:
        """The cases' names."""
        name = find_operator(self.operator).python_name
        return [f"{name}_{number:05d}" for number in range(self.count)]

    def arguments(self, number: int) -> dict[str, Any]:
        """The arguments of one case, whichever were drawn before."""
        if self.level:
            return self._of_level(number)
        return draw(
            self.operator, self.shape, self.dtype, seed=_seed(self.seed, number), variant=self.variant,
            how=self.how.get("", self.how or None), special=self.special, **self.options,
        )  # fmt: skip

    def _of_level(self, number: int) -> dict[str, Any]:
        """Dtypes, distributions, ranks and variants in turn."""
        operator, mix = find_operator(self.operator), MIXES[self.level]
        rng = generator(self.seed, 4, number)
        round_, dtype = number // len(FLOATS), FLOATS[number % len(FLOATS)]
        how = mix[round_ % len(mix)].settled(rng)
        # One further after all distributions, so that each meets every rank and variant.
        turn = round_ + round_ // len(mix)
        ranks, variants = ranks_of(operator), variants_of(operator)
        rank, variant = ranks[turn % len(ranks)], variants[turn // len(ranks) % len(variants)]
        return draw(
            operator, _random_shape(rng, rank, self.elements), dtype, seed=_seed(self.seed, number),
            variant=variant, how=how, special=self.special, **self.options,
        )  # fmt: skip

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, name in enumerate(self.names()):
            yield name, self.arguments(number)

    def as_dict(self) -> dict[str, Any]:
        """The recipe as JSON holds it."""
        return asdict(self) | {"how": {name: asdict(each) for name, each in self.how.items()}}

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> Recipe:
        """The recipe that `as_dict` gave; ValueError where it is none."""
        try:
            how = {name: _distribution(each) for name, each in held["how"].items()}
            lists = {name: tuple(held[name]) for name in ("shape", "special")}
            return cls(**{**held, **lists, "how": how})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a recipe: {error}") from None


def _distribution(held: Mapping[str, Any]) -> Distribution:
    numbers: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in held.items()}
    return Distribution(**numbers)


def _seed(seed: int, number: int) -> int:
    return seed * 1_000_003 + number


def _random_shape(rng: np.random.Generator, rank: int, elements: int) -> tuple[int, ...]:
    """Sizes whose product stays within bounds."""
    shape = []
    left = elements
    for axis in range(rank):
        most = max(int(left ** (1 / (rank - axis)) * 1.5), 1)
        shape.append(int(rng.integers(1, min(most, left) + 1)))
        left = max(left // shape[-1], 1)
    return tuple(int(size) for size in rng.permutation(shape))
