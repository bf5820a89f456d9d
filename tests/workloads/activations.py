"""Cases and mistakes of elementwise activations and their gradients, from their declarations: each rule says by its kind how it is broken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from openaclnn.core.call import bind_arguments
from openaclnn.core.checks import Check
from openaclnn.core.dtypes import COMPLEX64, FLOAT, FLOAT16, INT32, UINT16, DType
from openaclnn.core.interface import Kind
from openaclnn.core.products import find_product
from openaclnn.core.tensor import Format, Scalar, Tensor
from openaclnn.operators.activations import Activation
from openaclnn.operators.gated import Gated
from workloads.mistakes import INVALID, NINE, POINTERS, Mistake, nulls, t

STRANGE: dict[Kind, tuple[Any, ...]] = {Kind.INT64: (2, -1), Kind.CSTRING: ("erf",)}
"""Values of options, some of which break the rules about them; of others than these kinds numbers."""
NUMBERS = 0.0, -0.5, 1e30, float("nan")


class Data:
    """What the modules of other operators have."""

    def __init__(self, operator: Activation) -> None:
        self.operator = operator
        self.MISTAKES = list(self._mistakes())

    def cases(self, rng: np.random.Generator, dtype: DType) -> Iterator[dict[str, Any]]:
        for options in self.operator.variants.values():
            drawn = {
                p.python_name: self._drawn(rng, dtype, self.operator.shape_of(p.name, (7, 5, 9), options))
                for p in self.operator.tensors
                if p.is_read
            }  # fmt: skip
            yield {**drawn, **options}

    def _drawn(self, rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Any:
        if self.operator.domain is None:
            return (3 * rng.normal(size=shape)).astype(dtype.numpy)
        low, high = self.operator.domain
        return (low + (high - low) * (0.01 + 0.98 * rng.random(shape))).astype(dtype.numpy)

    def sound(self) -> dict[str, Any]:
        return {
            p.name: self._tensor(p.name) if p.is_tensor else p.default
            for p in self.operator.parameters
        }

    def _tensor(self, name: str, dtype: DType = FLOAT) -> Tensor:
        return t(self.operator.shape_of(name, (2, 32), {}), dtype)

    def _mistakes(self) -> Iterator[Mistake]:
        yield from POINTERS
        for check in self.operator.checks:
            yield from self._breaking(check)

    def _breaking(self, check: Check) -> Iterator[Mistake]:
        operator, row, status = self.operator, check.row, int(check.status)
        rule, names = check.rule, check.names
        tensors = [p.name for p in operator.tensors]
        if rule.startswith("not null"):
            yield from nulls(row, *names)
        elif rule.startswith("the product supports the dtype"):
            # Others follow where a rule that compares them would be broken before.
            others = (
                {name: self._tensor(name, UINT16) for name in tensors}
                if self._compared(check)
                else {}
            )
            yield Mistake(
                row, INVALID, names[0], {**others, names[0]: self._tensor(names[0], UINT16)}
            )
        elif " has dtype " in rule:
            yield Mistake(row, INVALID, names[0], {names[0]: self._tensor(names[0], UINT16)})
        elif " has the dtype of " in rule or rule.endswith("has the common dtype"):
            yield Mistake(row, INVALID, names[0], {names[0]: self._tensor(names[0], FLOAT16)})
        elif " have a common dtype" in rule:
            second = operator.read[1]
            yield Mistake(row, INVALID, second, {second: self._tensor(second, UINT16)})
        elif " converts to the dtype of " in rule:
            # What is read follows where a rule would be broken before, about what the output may be.
            listed = any(each.rule.startswith("the product supports the dtype") and names[0] in each.names for each in operator.checks)  # fmt: skip
            wrong = dict.fromkeys(operator.read, COMPLEX64) if listed else {names[0]: UINT16}
            if operator.output.in_place:
                wrong = dict(zip(operator.read, (INT32, FLOAT), strict=True))
            change = {name: self._tensor(name, dtype) for name, dtype in wrong.items()}
            yield Mistake(row, INVALID, names[0], change)
        elif rule.startswith("at most 8 dimensions"):
            yield Mistake(row, INVALID, names[0], {name: t(NINE) for name in tensors})
        elif " has the format of " in rule:
            other = t((2, 32), format=Format.ACL_FORMAT_NCHW)
            yield Mistake(row, INVALID, names[0], {names[0]: other})
        elif " has the shape of " in rule:
            yield Mistake(row, status, names[0], {names[0]: t((3, 2))})
        elif rule.endswith(" broadcast"):
            yield Mistake(row, INVALID, names[1], {names[1]: t((2, 33))})
        elif " has the broadcast shape of " in rule:
            yield Mistake(row, INVALID, names[0], {names[0]: t((1, 32))})
        elif rule.startswith("convertible to "):
            for name in rule.partition(": ")[2].split(", "):
                yield Mistake(row, INVALID, name, {name: Scalar(1j, COMPLEX64)})
        elif rule.startswith("the product supports the scalar's dtype"):
            yield Mistake(row, INVALID, names[0], {names[0]: Scalar(1, UINT16)})
        elif rule.startswith("format ND"):
            for name in names:
                other = t(self._tensor(name).shape, format=Format.ACL_FORMAT_NCL)
                yield Mistake(row, INVALID, name, {name: other})
        elif rule.startswith("at least 1 dimension"):
            yield Mistake(row, status, names[0], dict.fromkeys(tensors, t(())))
        elif rule.startswith("no private format"):
            private = t((2, 32), format=Format.ACL_FORMAT_FRACTAL_NZ)
            yield Mistake(row, INVALID, names[0], {names[0]: private})
        elif rule.split()[0] in [
            p.name for p in operator.parameters if not (p.is_tensor or p.axis)
        ]:
            yield from self._strange_options(check, rule.split()[0])
        elif isinstance(operator, Gated):
            yield from self._breaking_halves(operator, check)

    def _strange_options(self, check: Check, name: str) -> Iterator[Mistake]:
        """The values of an option that break the rule about it, perhaps where all switches are on."""
        on = {p.name: True for p in self.operator.parameters if p.kind is Kind.BOOL}
        for value in STRANGE.get(self.operator[name].kind, NUMBERS):
            change = {name: value, **on}
            values = [{**self.sound(), **change}[p.name] for p in self.operator.parameters]
            if check.broken_by(bind_arguments(self.operator, values, find_product("default"))):
                yield Mistake(check.row, int(check.status), name, change)

    def _breaking_halves(self, operator: Gated, check: Check) -> Iterator[Mistake]:
        row, status, rule, names = check.row, int(check.status), check.rule, check.names
        whole = operator.halved
        tensors = [p.name for p in operator.tensors]
        alike = [name for name in tensors if self._tensor(name).shape == self._tensor(whole).shape]
        if " is an axis of " in rule:
            for number in (2, -3):
                yield Mistake(row, status, "dim", {"dim": number})
        elif rule.endswith("along dim is even"):
            yield Mistake(row, status, whole, dict.fromkeys(alike, t((2, 63))))
        elif " has the rank of " in rule:
            yield Mistake(row, status, names[0], {names[0]: t((2,))})
        elif " with half its size along dim" in rule:
            # Others follow where a rule about equal shapes would be broken before.
            others = [name for name in tensors if any(c.rule == f"{name} has the shape of {names[0]}" for c in operator.checks)]  # fmt: skip
            for shape in ((2, 31), (32,), (3, 32)):
                if len(shape) == 2 or "rank" not in str([c.rule for c in operator.checks]):
                    yield Mistake(row, status, names[0], dict.fromkeys([names[0], *others], t(shape)))  # fmt: skip

    def _compared(self, check: Check) -> bool:
        """Whether a rule before compares tensors."""
        before = self.operator.checks[: self.operator.checks.index(check)]
        return any(
            " has the dtype of " in each.rule or " broadcast" in each.rule for each in before
        )
