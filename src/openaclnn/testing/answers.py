"""What a call would be told: its checks made on descriptors, without data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openaclnn.core.call import AUTO, Call, bind_arguments
from openaclnn.core.declare import Operator
from openaclnn.core.interface import Kind
from openaclnn.core.outcome import Outcome
from openaclnn.core.products import Product
from openaclnn.core.status import AclnnError, status_name
from openaclnn.core.tensor import Tensor

__all__ = ["Answer", "answer_of"]


@dataclass(frozen=True)
class Answer:
    """A call's status, the checks that were made for it, and what it would write."""

    operator: Operator
    product: Product
    outcomes: tuple[Outcome, ...] = ()  # up to and including the broken one
    error: AclnnError | None = None
    outputs: Mapping[str, Tensor] = field(default_factory=dict)  # by C name, of a sound call

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
            first = next(iter(self.outputs.values()))
            return told | {"output": {"dtype": first.dtype.name, "shape": first.shape}}
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
            error = AclnnError(check.status, operator.name, *violation)
            error.rule = f"{check.row}: {check.rule}"
            raise error
        outputs = _outputs(operator, call)
        operator.plan(call)
        return Answer(operator, product, tuple(outcomes), None, outputs)
    except AclnnError as error:
        return Answer(operator, product, tuple(outcomes), error)


def _outputs(operator: Operator, call: Call) -> dict[str, Tensor]:
    """The outputs of a sound call; those that were left out join it."""
    written = [p.name for p in operator.parameters if p.kind is Kind.OUTPUT]
    result: Any = operator.result(call)
    for name, made in zip(written, [result] if len(written) == 1 else result, strict=True):
        if call[name] is AUTO:
            call.values[name] = Tensor(*made)
    return {name: call.tensor(name) for name in written}
