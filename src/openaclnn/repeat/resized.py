"""Plans of one size, at any size: halves of tensors, numbers for each channel, numbers and steps that follow from sizes.

No kernel is told the sizes of such a plan. So the entry's runner is given the shape of the source, and checks and plans the call with what follows from it, as the
slow path would; what runs a size is kept. The fast path reads arguments, makes outputs and keeps memory apart, as ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from openaclnn.core.call import Call
from openaclnn.core.declare import Operator
from openaclnn.core.plan import BoundedCache, Plan
from openaclnn.core.products import current_product
from openaclnn.core.tensor import Tensor
from openaclnn.engines.dispatch import Choice, Runner, choose_engine
from openaclnn.repeat import slots as at
from openaclnn.repeat.specialize import Pattern

MOST_SIZES = 256  # that are kept


def over_tensors(plan: Plan, choice: Choice) -> tuple[Plan, Choice]:
    """A plan of one size with one operand for each tensor, of which operands of the plan may be parts, and what runs it."""
    inputs, outputs = (
        {operand.parameter: operand for operand in side} for side in (plan.inputs, plan.outputs)
    )
    places = {name: place for place, name in enumerate([*inputs, *outputs])}
    taken = [places[operand.parameter] for operand in plan.operands]
    first, *more = outputs.values()
    whole = replace(plan, inputs=tuple(inputs.values()), output=first, more=tuple(more), free=())
    return whole, Choice(choice.engine, lambda: _of_tensors(choice.prepare(), taken))


def _of_tensors(run: Runner, taken: Sequence[int]) -> Runner:
    """What runs a plan, of the addresses of whole tensors."""
    if list(taken) == list(range(len(taken))):
        return run

    def run_parts(addresses: Sequence[int], stream: int = 0) -> int:
        return run(tuple([addresses[place] for place in taken]), stream)

    return run_parts


def resized(
    operator: Operator, plan: Plan, choice: Choice, values: Mapping[str, Any], patterns: Mapping[str, Pattern],
    first: tuple[int, ...],
) -> Choice:  # fmt: skip
    """What runs a plan over whole tensors at any size of the shape source, which the call has as `first`; `values` are the call's, and `patterns`
    say how shapes follow from the source's. It gives 1 where a size breaks a rule, which the slow path says.
    """
    product, names = current_product(), _names(plan)
    # No call's memory is kept by what it left behind.
    tensors = {
        name: (value.shape, value.dtype, value.device) for name, value in values.items() if isinstance(value, Tensor)
    }  # fmt: skip
    options = {name: None if name in tensors else value for name, value in values.items()}
    runners: BoundedCache[tuple[int, ...], Runner] = BoundedCache(MOST_SIZES)
    runners[first] = choice.prepare()

    def sized(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        pattern = patterns[name]
        return tensors[name][0] if pattern.lies == at.SAME else pattern.shape(shape)

    def runner_of(shape: tuple[int, ...]) -> Runner:
        views = {
            name: Tensor.view(sized(name, shape), dtype, None, 0, None, device)
            for name, (_, dtype, device) in tensors.items()
        }
        call = Call(operator, options | views, product)
        if operator.first_violation(call) is not None:
            return _refuse
        parts = operator.plan(call)
        if parts.empty:
            return _refuse
        device = next(iter(views.values())).device
        whole, resized_choice = over_tensors(parts, choose_engine(parts, device))
        return resized_choice.prepare() if _names(whole) == names else _refuse

    def run(
        addresses: Sequence[int], stream: int, shape: tuple[int, ...], numbers: Sequence[Any] = ()
    ) -> int:
        runner = runners.get(shape)
        if runner is None:
            runner = runners[shape] = runner_of(shape)
        return runner(addresses, stream)

    return choice._replace(dynamic_shapes=lambda plan: run)


def _names(plan: Plan) -> list[str]:
    """The tensors of a plan's operands, by their parameters."""
    return [operand.parameter for operand in plan.operands]


def _refuse(addresses: Sequence[int], stream: int = 0) -> int:
    return 1
