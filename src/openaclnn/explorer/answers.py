"""What the page is told of a call: the verdict, the checks, the code, and the values of a small one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from openaclnn.core.dtypes import FLOAT
from openaclnn.core.interface import Kind
from openaclnn.core.products import use_product
from openaclnn.core.status import AclnnError
from openaclnn.engines.dispatch import use_engine
from openaclnn.explorer.asked import SMALL, Asked
from openaclnn.testing.cases.case import TensorSpec
from openaclnn.testing.programs.examples import program_of
from openaclnn.testing.running.answers import Answer, answer_of
from openaclnn.testing.running.build import Built, build
from openaclnn.testing.running.through import run_through

__all__ = ["told_of"]

Array = np.ndarray[Any, Any]
_SAFE = 1 << 53  # whole numbers up to here are JavaScript's too


def told_of(asked: Asked) -> dict[str, Any]:
    """Everything that the page shows of a call."""
    answer = answer_of(asked.operator, asked.descriptors(), asked.product)
    built, why = _built(asked, answer)
    values = None
    if built is not None:
        values, why = _values(asked, built, answer.computed)
    return answer.as_dict() | {
        "checks": _checks(answer),
        "outputs": [
            {"name": name, "dtype": tensor.dtype.name, "shape": tensor.shape}
            for name, tensor in answer.outputs.items()
            if name in answer.computed
        ],
        "code": {language: _code(asked, answer, built, language) for language in ("c++", "c", "python")},
        "values": values,
        "no_values": why,
    }  # fmt: skip


def _checks(answer: Answer) -> list[dict[str, Any]]:
    """All of the operator's checks: passed, the broken one, and those that were not reached."""
    made = ["passed" if each.violation is None else "broken" for each in answer.outcomes]
    made += ["not reached"] * (len(answer.operator.checks) - len(made))
    return [
        {"row": check.row, "rule": check.rule, "status": int(check.status), "state": state}
        for check, state in zip(answer.operator.checks, made, strict=True)
    ]


def _built(asked: Asked, answer: Answer) -> tuple[Built | None, str]:
    """The data of a small sound call, or why there are none."""
    if answer.error is not None:
        return None, "A refused call computes nothing."
    made = sum(math.prod(each.shape) for each in answer.outputs.values())
    elements = max(asked.elements, made)
    if elements > SMALL:
        return None, f"Values are shown up to {SMALL:,} elements; this call has {elements:,}."
    try:
        return build(asked.case(), asked.seed, asked.product), ""
    except AclnnError as error:  # sound on this product alone
        return None, str(error)


def _values(
    asked: Asked, built: Built, computed: frozenset[str]
) -> tuple[dict[str, Any] | None, str]:
    """What it read and wrote: by NumPy, which compiles nothing, so that the first call is as quick as the next."""
    pairs = list(zip(asked.operator.parameters, built.values, strict=True))
    read = [
        (p.name, np.array(tensor.owner)) for p, tensor in pairs if p.is_read and tensor is not None
    ]
    with use_engine("numpy"), use_product(asked.product.tag), np.errstate(all="ignore"):
        status, told = run_through("plain", built)
    if status:
        return None, told
    written = [(p.name, tensor.owner) for p, tensor in pairs if p.name in computed]
    return {
        "inputs": [_shown(name, array) for name, array in read],
        "outputs": [_shown(name, array) for name, array in written],
    }, ""


def _shown(name: str, array: Array) -> dict[str, Any]:
    return {
        "name": name, "dtype": array.dtype.name, "shape": array.shape,
        "values": [_plain(each) for each in array.reshape(-1).tolist()],
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """A number as JSON has it; what it lacks as text."""
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, int):
        return value if abs(value) <= _SAFE else str(value)
    if isinstance(value, complex):
        return str(value)
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _code(asked: Asked, answer: Answer, built: Built | None, language: str) -> dict[str, str]:
    """The program of this very call, with the drawn values where there are some."""
    operator = asked.operator
    values: dict[str, Any] = {**asked.tensors, **asked.numbers}
    if built is not None:
        for parameter, tensor in zip(operator.parameters, built.values, strict=True):
            spec = values.get(parameter.name)
            if isinstance(spec, TensorSpec) and parameter.is_read:
                values[parameter.name] = replace(spec, values=tensor.owner)
    written = [p.name for p in operator.parameters if p.kind is Kind.OUTPUT]
    made = frozenset(name for name in written if name not in values)
    for name in made:
        values[name] = _made(asked, answer, name)
    try:
        text = program_of(operator, values, language, asked.product, made, answer.computed or None)
        return {"text": text}
    except ValueError as error:
        return {"why": str(error)}


def _made(asked: Asked, answer: Answer, name: str) -> TensorSpec:
    """What a left out output would be; of a refused call, something of the first tensor's kind."""
    if name in answer.outputs:
        made = answer.outputs[name]
        return TensorSpec(made.shape, made.dtype)
    given = next((spec for spec in asked.tensors.values() if spec is not None), None)
    return TensorSpec((1,), FLOAT) if given is None else TensorSpec(given.shape, given.dtype)
