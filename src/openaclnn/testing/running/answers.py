"""What a call would be told: its checks made on descriptors, without data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openaclnn.core.call import AUTO, bind_arguments
from openaclnn.core.checks import Outcome
from openaclnn.core.declare import Operator
from openaclnn.core.products import Product
from openaclnn.core.status import AclnnError, status_name
from openaclnn.core.tensor import Tensor
from openaclnn.testing.data.goldens import computed_by

__all__ = ["Answer", "answer_of"]


@dataclass(frozen=True)
class Answer:
    """A call's status, the checks that were made for it, and what it would write."""

    operator: Operator
    product: Product
    outcomes: tuple[Outcome, ...] = ()  # up to and including the broken one
    error: AclnnError | None = None
    outputs: Mapping[str, Tensor] = field(default_factory=dict)  # by C name, of a sound call
    computed: frozenset[str] = frozenset()  # those of them that it computes

    @property
    def status(self) -> int:
        return 0 if self.error is None else self.error.status

    def as_dict(self) -> dict[str, Any]:
        """The answer in types that JSON has."""
        told: dict[str, Any] = {
            "operator": self.operator.name, "product": self.product.tag, "status": self.status,
            "name": status_name(self.status),
        }  # fmt: skip
        if self.error is None:
            each = [
                {"dtype": tensor.dtype.name, "shape": tensor.shape}
                if name in self.computed
                else None
                for name, tensor in self.outputs.items()
            ]
            if len(each) == 1:
                return told | {"output": each[0]}
            return told | {"outputs": dict(zip(self.outputs, each, strict=True))}
        error = self.error
        row, _, rule = error.rule.partition(": ")
        fix = f"give {error.parameter} {error.expected}, in place of {error.got}"
        return told | {
            "row": row, "rule": rule, "parameter": error.parameter, "expected": error.expected,
            "got": error.got, "fix": fix,
        }  # fmt: skip


def answer_of(operator: Operator, values: Mapping[str, Any], product: Product) -> Answer:
    """The answer to a call of phase one; AUTO stands for tensors that the plain call would make."""
    given = [None if v is AUTO else v for v in (values[p.name] for p in operator.parameters)]
    outcomes: list[Outcome] = []
    try:
        call = bind_arguments(operator, given, product)
        call.values |= {name: AUTO for name, value in values.items() if value is AUTO}
        outcomes = operator.run_checks(call)
        check, violation = outcomes[-1]
        if violation is not None:
            raise check.refusal(operator.name, violation)
        computed = frozenset(computed_by(operator, call))
        outputs = {parameter.name: call.tensor(parameter.name) for parameter in operator.outputs}
        return Answer(operator, product, tuple(outcomes), None, outputs, computed)
    except AclnnError as error:
        return Answer(operator, product, tuple(outcomes), error)
