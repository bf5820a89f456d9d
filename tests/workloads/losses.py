"""Cases and mistakes of losses of elements and their gradients, from their declarations: each rule says by its kind how it is broken."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.call import Call
from openaclnn.core.checks import Check
from openaclnn.core.dtypes import INT32, DType
from openaclnn.core.products import find_product
from openaclnn.core.tensor import Format
from openaclnn.operators.losses import Loss
from openaclnn.operators.workloads.activations import drawn
from workloads import activations
from workloads.mistakes import INVALID, Mistake, t
from workloads.pairwise import GRADIENTS, LOSSES

STRETCHED = ((5, 1), (), (4,), (1, 5, 4))
"""Shapes that broadcast to (6, 5, 4)."""
SUMMED = (
    ((), (1, 5, 1), (6, 5, 4)),
    ((4,), (6, 5, 4), (1, 5, 1)),
    ((), (5,), (6, 3, 5)),
    ((1,), (6, 5), ()),
    ((), (1, 1), (9, 5)),
)
"""What is added up along two axes that do not lie in one another, or along one, or along all."""


class Data(activations.Data):
    """What the modules of other operators have."""

    operator: Loss

    def __init__(self, operator: Loss) -> None:
        super().__init__(operator)
        if not operator.is_gradient:
            self.WHOLE = {"reduction": "none"}

    def cases(self, rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
        operator = self.operator
        for reduction in operator.reduction.choices:  # type: ignore[union-attr]
            for options in self._options():
                for shapes in self._shapes():
                    arrays = {
                        operator[name].python_name: drawn(
                            rng, dtype, shape, operator.domains.get(name)
                        )
                        for name, shape in shapes.items()
                    }
                    yield {**arrays, "reduction": reduction, **options}

    def _options(self) -> Iterator[dict[str, Any]]:
        switches = [p.python_name for p in self.operator.parameters if p.default is False]
        for values in itertools.product((False, True), repeat=len(switches)):
            yield dict(zip(switches, values, strict=True))

    def _shapes(self) -> Iterator[dict[str, tuple[int, ...]]]:
        """By the tensors' names; of tensors that broadcast to another, optional ones are left out, and there, and stretched."""
        operator = self.operator
        every = operator.input_names
        required = [name for name in every if not operator[name].optional]
        if not operator.onto:
            more = SUMMED if operator.dtype_of else ()
            for shapes in (*more, *(GRADIENTS if len(required) > 2 else LOSSES)):
                yield dict(zip(required, shapes, strict=True))
            return
        rules = " ".join(check.rule for check in operator.checks)
        stretched = [name for name in every if f"{name} broadcasts to " in rules]
        yield dict.fromkeys(required, (6, 5, 4))
        yield dict.fromkeys(every, (9, 101))
        for alone in (*(name for name in stretched if operator[name].optional), ""):
            whole = [name for name in every if name in required or alone in (name, "")]
            stretching = [name for name in stretched if name in whole]
            yield dict.fromkeys(whole, (6, 5, 4)) | dict(zip(stretching, STRETCHED, strict=False))

    def _fits(self, word: str) -> bool:
        return any(check.rule.endswith(word) for check in self.operator.checks)

    def sound(self) -> dict[str, Any]:
        arguments = {**super().sound(), "reduction": 1}
        shape, _ = self.operator.result(Call(self.operator, arguments, find_product("default")))
        return {**arguments, self.operator.output.name: t(shape)}

    def _breaking(self, check: Check) -> Iterator[Mistake]:
        row, rule, names = check.row, check.rule, check.names
        if rule.startswith("reduction is any number"):
            yield Mistake(row, INVALID, "reduction", {"reduction": "median"})
        elif rule.startswith("reduction is"):
            yield Mistake(row, INVALID, "reduction", {"reduction": 3})
            yield Mistake(row, INVALID, "reduction", {"reduction": -1})
        elif " has shape " in rule:
            yield Mistake(row, INVALID, names[0], {names[0]: t((2,))})
            yield Mistake(row, INVALID, names[0], {names[0]: t((1, 32)), "reduction": 0})
        elif rule.startswith("the product supports the dtype") and self._fits("common dtype"):
            # Of one that promotes to a floating dtype.
            yield Mistake(row, INVALID, names[0], {names[0]: self._tensor(names[0], INT32)})
        elif " broadcasts to " in rule:
            yield Mistake(row, INVALID, names[0], {names[0]: t((2, 2, 32))})
        elif rule.startswith("no private format"):
            other = t((2, 32), format=Format.ACL_FORMAT_FRACTAL_NZ)
            yield Mistake(row, INVALID, names[0], {names[0]: other})
        elif " has the format of " in rule:
            other = t((2, 32), format=Format.ACL_FORMAT_NHWC)
            yield Mistake(row, INVALID, names[0], {names[0]: other})
        else:
            yield from super()._breaking(check)
