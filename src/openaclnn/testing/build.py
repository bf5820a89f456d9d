"""From a case to a call: checks on descriptors first, then the data of those that are sound.

Here are also the commercial standard's cases, drawn when their turn comes, so that ten thousand take no memory; and `answer_of`, which says
what a call would be told without data.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from openaclnn.core.call import AUTO, Call, bind_arguments
from openaclnn.core.checks import Outcome
from openaclnn.core.declare import Operator
from openaclnn.core.interface import REQUIRED, Kind, Parameter
from openaclnn.core.plan import Plan
from openaclnn.core.products import PRODUCTS, Product
from openaclnn.core.status import AclnnError, status_name
from openaclnn.core.tensor import Scalar, Tensor
from openaclnn.testing.cases.case import Case, Drawn, OneOf, TensorSpec
from openaclnn.testing.drawing import (
    AMOUNTS,
    DEFAULT,
    Distribution,
    Recipe,
    draw_array,
    generator,
)
from openaclnn.testing.figures import Array
from openaclnn.testing.files import Source, read_array
from openaclnn.testing.goldens import Planned, operator_of, planned

LACKS = " does not have the operator; products that have it: "
"""What is told of a product, before the names of those that have it."""

_CANARY = b"\xa5"


@dataclass
class Built:
    """A sound case with its data: the arguments of the plain call, and the outputs to be written."""

    operator: Operator
    plan: Plan
    arguments: dict[str, Any]  # by Python name, without what is only written
    outputs: dict[str, Array]  # by C name; what is written in place is an argument too
    formats: Mapping[str, int] = field(default_factory=dict)  # by C name, where a case says them

    @cached_property
    def values(self) -> list[Any]:
        """The arguments in C order, tensors as descriptors of the arrays."""
        values = []
        for parameter in self.operator.parameters:
            value = self.outputs.get(parameter.name, self.arguments.get(parameter.python_name))
            if parameter.is_tensor and value is not None:
                value = Tensor.from_numpy(np.asarray(value))
                value.format = self.formats.get(parameter.name, value.format)
            values.append(value)
        return values

    @property
    def counted(self) -> dict[str, Any]:
        """The arguments as the oracle takes them: class indices out of range, which count for nothing in phase two, are
        ignored ones.
        """
        if self.plan.targets < 0:
            return self.arguments
        name = self.operator[self.plan.inputs[self.plan.targets].parameter].python_name
        target, ignored = self.arguments[name], self.plan.numbers["ignore_index"]
        stray = (target < 0) | (target >= self.plan.classes)
        if not stray.any():
            return self.arguments
        return self.arguments | {name: np.where(stray, np.int64(ignored), target)}

    @property
    def whole(self) -> dict[str, Any]:
        """The plain call's arguments, `out` among them."""
        return self.arguments | out_argument(self.operator, list(self.outputs.values()))

    def writes(self, name: str) -> bool:
        """Whether an output is written, all that there is of it."""
        written = () if self.plan.empty else self.plan.outputs
        return not self.outputs[name].size or name in [operand.parameter for operand in written]


def out_argument(operator: Operator, outputs: Sequence[Array | None]) -> dict[str, Any]:
    """The plain call's `out` for these outputs; an operator that works in place has none."""
    if operator.output.in_place:
        return {}
    return {"out": outputs[0] if operator.result_type is None else tuple(outputs)}


def build(case: Case, seed: int, product: Product) -> Built:
    """Check a case and draw its data; AclnnError where the operator, or the product, refuses it."""
    operator = case.operator
    numbers, plan, specs = _chosen(operator, case, seed, product)
    arrays = {p.name: _tensor(case, p, seed, plan) for p in operator.parameters if p.is_read}
    arguments = {operator[name].python_name: value for name, value in (arrays | numbers).items()}
    written = {p.name: arrays[p.name] if p.in_place else specs[p.name].view(_CANARY) for p in operator.outputs}  # fmt: skip
    outputs = {name: array for name, array in written.items() if array is not None}
    formats = {name: spec.format for name, spec in {**case.tensors, **specs}.items() if spec is not None}  # fmt: skip
    return Built(operator, plan, arguments, outputs, formats)


def _chosen(
    operator: Operator, case: Case, seed: int, product: Product
) -> tuple[dict[str, Any], Plan, dict[str, TensorSpec]]:
    """Attributes, plan and outputs. Of values to choose from, the first that are drawn and fit together with the rest."""
    parameters = [p for p in operator.parameters if not p.is_tensor]
    refusal: AclnnError | None = None
    for drawn in itertools.product(*(_attribute(case, p, seed) for p in parameters)):
        numbers = {p.name: value for p, value in zip(parameters, drawn, strict=True)}
        try:
            return numbers, *_checked(operator, case, numbers, product)
        except AclnnError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _checked(
    operator: Operator, case: Case, numbers: dict[str, Any], product: Product
) -> tuple[Plan, dict[str, TensorSpec]]:
    """The plan of a sound case, and its outputs: the case's own, or what the operator would make."""
    tensors = _without_placeholders(operator, case, numbers, product)
    call = _bind(operator, descriptors(tensors) | numbers, product)
    operator.verify(call)
    outputs = {
        parameter.name: tensors.get(parameter.name) or TensorSpec(*output)
        for parameter, output in zip(operator.outputs, operator.results(call), strict=True)
    }
    call.values |= {name: spec.descriptor() for name, spec in outputs.items()}
    return operator.plan(call), outputs


def is_automatic(parameter: Parameter) -> bool:
    """Whether the plain call makes it: an output that is not read before, or what it computes."""
    return parameter.computed or (parameter.is_tensor and not parameter.is_read)


def _bind(operator: Operator, values: Mapping[str, Any], product: Product) -> Call:
    """A call on descriptors and numbers by C name; what is left out has its default, or is the operator's to make."""
    missing = [p for p in operator.parameters if p.name not in values]
    defaults = {p.name: p.default for p in missing if p.default is not REQUIRED}
    automatic = {p.name: AUTO for p in missing if is_automatic(p)}
    complete = {**defaults, **dict.fromkeys(automatic), **values}
    call = bind_arguments(operator, [complete.get(p.name) for p in operator.parameters], product)
    call.values |= automatic
    return call


def descriptors(tensors: Mapping[str, TensorSpec | None]) -> dict[str, Tensor | None]:
    """Tensors as phase one is given them."""
    return {n: None if spec is None else spec.descriptor() for n, spec in tensors.items()}


def _without_placeholders(
    operator: Operator, case: Case, numbers: dict[str, Any], product: Product
) -> dict[str, TensorSpec | None]:
    """A case's tensors, without outputs whose shapes are placeholders: of those that are not computed, and of a kernel
    that has as many elements as the interface in another shape.
    """
    described = [p.name for p in operator.outputs if not p.in_place and case.tensors.get(p.name)]
    tensors = dict(case.tensors)
    if not described:
        return tensors
    others = {name: spec for name, spec in tensors.items() if name not in described}
    call = _bind(operator, descriptors(others) | numbers, product)
    if operator.first_violation(call) is not None:
        return tensors
    outputs = dict(zip(operator.output_names, operator.results(call), strict=True))
    operator.outline(call)
    spared = {operand.parameter for operand in operator.plan(call).spared}
    for name in described:
        spec, (shape, _) = tensors[name], outputs[name]
        assert spec is not None
        if name in spared:
            del tensors[name]
        elif case.kernel and math.prod(spec.shape) == math.prod(shape):
            tensors[name] = replace(spec, shape=shape)
    return tensors


def _rng(case: Case, parameter: Parameter, seed: int) -> np.random.Generator:
    """By the case's name and id: filters and the order of a list do not matter."""
    place = zlib.crc32(parameter.name.encode())
    label = f"{case.name}#{case.identity}" if case.identity else case.name
    return generator(seed, 5, zlib.crc32(label.encode()), place)


def _attribute(case: Case, parameter: Parameter, seed: int) -> list[Any]:
    """An attribute's value; several, in the order they were drawn, where a list has them to choose from."""
    value = case.attributes.get(parameter.name, parameter.default)
    if isinstance(value, OneOf):
        order = _rng(case, parameter, seed).permutation(len(value.values))
        return [value.values[number] for number in order]
    if isinstance(value, Drawn):
        drawn = draw_array(_rng(case, parameter, seed), (), value.dtype, value.how)
        scalar = parameter.kind is Kind.SCALAR
        return [Scalar(drawn[()], value.dtype) if scalar else drawn.item()]
    return [None if value is REQUIRED else value]


def _tensor(case: Case, parameter: Parameter, seed: int, plan: Plan) -> Array | None:
    spec = case.tensors.get(parameter.name)
    if spec is None:
        return None
    view = spec.view()
    if spec.binary is not None:
        view[...] = read_array(Source(spec.binary, dtype=spec.dtype, shape=spec.shape))
    elif spec.values is not None:
        view[...] = np.asarray(spec.values).astype(spec.dtype.numpy)
    elif math.prod(spec.shape):
        how = spec.how or _suitable(parameter, plan)
        drawn = draw_array(_rng(case, parameter, seed), spec.shape, spec.dtype, how)
        if spec.is_plain:
            return drawn
        view[...] = drawn
    return view


def _suitable(parameter: Parameter, plan: Plan) -> Distribution:
    """Class indices where those are wanted."""
    if plan.targets >= 0 and plan.inputs[plan.targets].parameter == parameter.name:
        return Distribution(0, plan.classes - 1)
    return DEFAULT


@dataclass(frozen=True)
class LevelCase(Case):
    """One case of a recipe: what it reads is drawn with all else that it needs."""

    recipe: Recipe = field(kw_only=True)

    def built(self, product: Product) -> Built:
        """Its data, and outputs to be written."""
        return call_of(self.operator, self.recipe.arguments(self.number), product)


def level_cases(
    operator: str | Operator | Callable[..., Any],
    level: str = "L1",
    *,
    seed: int = 0,
    count: int | None = None,
) -> Iterator[LevelCase]:
    """The cases that the commercial standard asks for at a level, or `count` of them."""
    operator = operator_of(operator)
    if level not in AMOUNTS:
        raise ValueError(f"unknown level {level!r}; known: {', '.join(AMOUNTS)}")
    recipe = Recipe(operator.name, seed, AMOUNTS[level] if count is None else count, level=level)
    for number, name in enumerate(recipe.names()):
        place = f"{level}, case {number}"
        yield LevelCase(name, operator.name, place, number, {}, identity=str(number), recipe=recipe)


def call_of(operator: Operator, plain: Mapping[str, Any], product: Product) -> Built:
    """A plain call's arguments as both phases take them too, with outputs of NaN to be written."""
    sound = planned(operator, plain, product)
    arguments = {n: v for n, v in {**operator.plain_defaults, **plain}.items() if n != "out"}
    outputs = {
        name: np.full(shape, -1 if dtype.kind == "integer" else np.nan).astype(dtype.numpy)
        for name, (shape, dtype) in sound.outputs.items()
    }
    if operator.output.in_place:
        outputs = {operator.output.name: arguments[operator.output.python_name]}
    return Built(operator, sound.plan, arguments, outputs)


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
            outputs = {
                name: {"dtype": tensor.dtype.name, "shape": tensor.shape} if name in self.computed else None
                for name, tensor in self.outputs.items()
            }  # fmt: skip
            if len(outputs) == 1:
                return told | {"output": outputs.popitem()[1]}
            return told | {"outputs": outputs}
        error = self.error
        row, _, rule = error.rule.partition(": ")
        fix = f"give {error.parameter} {error.expected}, in place of {error.got}"
        having = [product.tag for product in PRODUCTS if self.operator.dtypes_on(product)]
        if self.product.tag not in having:
            fix = f"{self.product.title} ({self.product.tag}){LACKS}{', '.join(having)}"
        return told | {
            "row": row, "rule": rule, "parameter": error.parameter, "expected": error.expected,
            "got": error.got, "fix": fix,
        }  # fmt: skip


def answer_of(operator: Operator, values: Mapping[str, Any], product: Product) -> Answer:
    """The answer to a call of phase one, by C name; outputs that are left out are what the plain call would make."""
    outcomes: list[Outcome] = []
    try:
        call = _bind(operator, values, product)
        outcomes = operator.run_checks(call)
        check, violation = outcomes[-1]
        if violation is not None:
            raise check.refusal(operator.name, violation)
        operator.outline(call)
        sound = Planned(call, operator.plan(call))
        outputs = {name: call.tensor(name) for name in sound.outputs}
        return Answer(operator, product, tuple(outcomes), None, outputs, frozenset(sound.computed))
    except AclnnError as error:
        return Answer(operator, product, tuple(outcomes), error)
