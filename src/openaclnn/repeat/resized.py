"""Plans of one size, at any size: halves of tensors, numbers for each channel, numbers and steps that follow from sizes.

No kernel is told the sizes of such a plan. So the entry's runner is given the shape of the source, says what shapes follow from it, and checks and plans
the call as the slow path would; what runs a size is kept. The fast path reads arguments, makes outputs and keeps memory apart, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from openaclnn.core import rounding
from openaclnn.core.call import Call
from openaclnn.core.declare import Operator
from openaclnn.core.plan import BoundedCache, Plan
from openaclnn.core.products import current_product
from openaclnn.core.tensor import Tensor
from openaclnn.engines.dispatch import Choice, Runner, choose_engine
from openaclnn.repeat.specialize import Patterns, places_of
from openaclnn.repeat.words import slots as at

__all__ = ["resized"]

MOST_SIZES = 256  # that are kept


def resized(
    operator: Operator, plan: Plan, choice: Choice, names: Sequence[str], outputs: Sequence[str], values: Mapping[str, Any]
) -> tuple[Plan, Choice, Patterns | None]:  # fmt: skip
    """A plan of one size as one over whole tensors, which entries know; what runs it, at any size where all tensors are row-major; and how
    they follow from each other then, in the order of these names of inputs and outputs. `values` are those of the call.
    """
    whole, taken = _over_tensors(plan)

    def prepare() -> Runner:
        return _of_tensors(choice.prepare(), taken)

    places = places_of(whole, names, outputs)
    every = [values[name] for name in (*names, *outputs)]
    patterns = _patterns_of(whole, places, every, len(names))
    if patterns is None:
        return whole, Choice(choice.engine, prepare), None
    followers = dict(zip((*names, *outputs), patterns.each, strict=True))
    run = _any_size(operator, whole, prepare, values, followers, every[patterns.source].shape)
    return whole, Choice(choice.engine, prepare, dynamic_shapes=lambda plan: run), patterns


def _over_tensors(plan: Plan) -> tuple[Plan, list[int]]:
    """A plan with one operand for each tensor, and which of these each operand of the plan is a part of."""
    inputs, outputs = (
        {operand.parameter: operand for operand in side} for side in (plan.inputs, plan.outputs)
    )
    places = {name: place for place, name in enumerate([*inputs, *outputs])}
    first, *more = outputs.values()
    whole = replace(plan, inputs=tuple(inputs.values()), output=first, more=tuple(more), free=())
    return whole, [places[operand.parameter] for operand in plan.operands]


def _of_tensors(run: Runner, taken: Sequence[int]) -> Runner:
    """What runs a plan, of the addresses of whole tensors."""
    if list(taken) == list(range(len(taken))):
        return run

    def run_parts(addresses: Sequence[int], stream: int = 0) -> int:
        return run(tuple([addresses[place] for place in taken]), stream)

    return run_parts


def _patterns_of(
    plan: Plan, places: Sequence[int], views: Sequence[Any], inputs: int
) -> Patterns | None:
    """How the shapes of row-major tensors follow from that of the largest input; None where one is not row-major. What does not follow has to be
    the very same: the next call with another gets an entry of its own.
    """
    known = [view for view in views if view is not None]
    if not all(isinstance(view, Tensor) and view.contiguous for view in known):
        return None
    read = [place for place in range(inputs) if views[place] is not None and places[place] >= 0]
    source = max(read, key=lambda place: (views[place].size, -place))
    shape, axis = views[source].shape, plan.class_axis
    if not shape or len(shape) > at.MAX_AXES:
        return None
    every = (1 << len(shape)) - 1
    operands = (*plan.operands, *plan.spared)

    def pattern(place: int, view: Tensor | None) -> tuple[int, int]:
        if view is None:
            return at.MISSING, 0
        role = operands[place].role if place >= 0 else "full"
        if view.shape == shape:
            return at.DENSE, every
        if plan.halved and view.shape == _halved(shape, axis):
            return at.HALF, every
        if role == "channels" and len(shape) > 1 and view.shape == shape[1:2]:
            return at.SOME, 1 << 1
        if role == "positions" and axis >= 0 and view.shape == _without(shape, axis):
            return at.SOME, every & ~(1 << axis)
        return at.SAME, 0

    each = [pattern(place, view) for place, view in zip(places, views, strict=True)]
    return Patterns(each, source, False)


def _halved(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :])


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _any_size(
    operator: Operator, plan: Plan, prepare: Callable[[], Runner], values: Mapping[str, Any], patterns: Mapping[str, tuple[int, int]],
    first: tuple[int, ...],
) -> Callable[..., int]:  # fmt: skip
    """What runs a call whose source has a shape: 1 where that breaks a rule, which the slow path says."""
    axis, product, (names, first_output) = plan.class_axis, current_product(), _names(plan)
    # No call's memory is kept by what it left behind.
    tensors = {
        name: (value.shape, value.dtype, value.device) for name, value in values.items() if isinstance(value, Tensor)
    }  # fmt: skip
    options = {name: value for name, value in values.items() if name not in tensors}
    runners: BoundedCache[tuple[int, ...], Runner] = BoundedCache(MOST_SIZES)
    runners[first] = prepare()

    def sized(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        pattern, mask = patterns[name]
        if pattern == at.DENSE:
            return shape
        if pattern == at.HALF:
            return _halved(shape, axis)
        if pattern == at.SOME:
            return tuple([size for place, size in enumerate(shape) if mask >> place & 1])
        return tensors[name][0]

    def runner_of(shape: tuple[int, ...]) -> Runner:
        if not rounding.is_standard():
            with rounding.standard():
                return runner_of(shape)
        resized_tensors = {
            name: Tensor.view(sized(name, shape), dtype, None, 0, None, device)
            for name, (_, dtype, device) in tensors.items()
        }
        call = Call(
            operator,
            {name: resized_tensors.get(name, options.get(name)) for name in values},
            product,
        )
        if operator.first_violation(call) is not None:
            return _refuse
        now = operator.plan(call)
        other, at_output = _names(now)
        if now.empty or {*other} - {*names}:
            return _refuse
        places = [
            names.index(name, first_output if place >= at_output else 0)
            for place, name in enumerate(other)
        ]
        device = next(iter(tensors.values()))[2]
        return _of_tensors(choose_engine(now, device).prepare(), places)

    def run(
        addresses: Sequence[int], stream: int, shape: tuple[int, ...], numbers: Sequence[Any] = ()
    ) -> int:
        runner = runners.get(shape)
        if runner is None:
            runner = runners[shape] = runner_of(shape)
        return runner(addresses, stream)

    return run


def _names(plan: Plan) -> tuple[list[str], int]:
    """The tensors of a plan's operands, and where the outputs begin."""
    return [operand.parameter for operand in plan.operands], len(plan.inputs)


def _refuse(addresses: Sequence[int], stream: int = 0) -> int:
    return 1
