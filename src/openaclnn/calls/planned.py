"""What phase one finds out about a kind of call: bound, checked, planned and given an engine once, then looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from openaclnn.calls.guard import Found, check_devices, check_output_layout
from openaclnn.core import rounding
from openaclnn.core.call import Call, bind_arguments, leave_unbound
from openaclnn.core.declare import Operator
from openaclnn.core.forks import undivided
from openaclnn.core.interop import as_tensor, held, is_tracked_leaf, torch_tensor
from openaclnn.core.products import current_product
from openaclnn.core.status import AclnnError
from openaclnn.core.tensor import Tensor
from openaclnn.engines.dispatch import choose_engine
from openaclnn.engines.machine import unusable
from openaclnn.repeat.phases.again import find, key_of, remember
from openaclnn.repeat.phases.sizes import Kind, OneSize, Work, any_size

if TYPE_CHECKING:
    from openaclnn.repeat.phases.located import Locating

__all__ = ["locate", "planned"]


@undivided
def planned(
    operator: Operator, arguments: tuple[Any, ...], workspace_size: bool, executor: bool
) -> tuple[Kind, Work, tuple[Any, ...]]:
    """Bind, check and plan, or find that done for such a call before; and the arguments as tensors and plain numbers."""
    if not rounding.is_standard():
        with rounding.standard():
            return planned(operator, arguments, workspace_size, executor)
    key, given = None, arguments
    if workspace_size and executor:
        key = key_of(operator, arguments)
        if key is None:
            arguments = _with_views(arguments)
            located = locate(operator, arguments)
            if located is not None:
                kind, work, _ = located
                _learn(operator, kind, given)
                return kind, work, arguments
            key = key_of(operator, arguments)
        known = None if key is None else find(key)
        if known is not None:
            _learn(operator, known, given)
            return known, known.only, arguments
    call = _bound(operator, arguments, workspace_size, executor)
    error = operator.first_violation(call)
    if error is not None:
        raise error
    for output in operator.outputs:
        if call.given(output.name):
            check_output_layout(operator.name, output.name, call.tensor(output.name))
    device = check_devices(call)
    plan = operator.plan(call)
    choice = None if plan.empty else choose_engine(plan, device)
    one = OneSize(operator, plan, device, choice)
    if key is not None:
        other_sizes = choice and any_size(operator, arguments, one, choice)
        if not (other_sizes and _learn(operator, other_sizes, arguments)):
            remember(key, one)
    return one, one.only, tuple(call.values.values())


def _bound(
    operator: Operator, arguments: tuple[Any, ...], workspace_size: bool, executor: bool
) -> Call:
    """The arguments as a call; of those that cannot be bound, what is null is told first."""
    product = current_product()
    try:
        return bind_arguments(operator, arguments, product, workspace_size, executor)
    except AclnnError as error:
        call = leave_unbound(operator, arguments, product, workspace_size, executor)
        raise operator.null_violation(call) or error from None


_locating: dict[str, Locating] = {}


def locate(
    operator: Operator, arguments: tuple[Any, ...]
) -> tuple[Kind, Work, Found | None] | None:
    """The kind and work of a call whose kind machine code knows, and where its arrays, tensors or descriptors lie (None where
    descriptors may break a rule of memory); None where it does not know the call.
    """
    road = _locating.get(operator.name)
    located = NotImplemented if road is None else road.locate(arguments)
    if road is None or located is NotImplemented:
        return None
    [(kind, _)], shape, count, numbers, addresses, owners = located
    work = kind.work(shape, count, numbers)
    if work[0] is None:  # nothing is read or written
        addresses = ()
    if type(arguments[operator.output_place]) is Tensor:
        return kind, work, owners and (addresses, owners)
    # The executor has the arrays; of NumPy's a weak reference keeps each where it is.
    hold = ref if type(arguments[operator.output_place]) is np.ndarray else held
    return kind, work, (addresses, [hold(arguments[place]) for place in kind.operands])


def _learn(operator: Operator, kind: Kind, arguments: tuple[Any, ...]) -> bool:
    """Let machine code locate the next calls of this kind, if it can."""
    if unusable() is not None:
        return False
    road = _locating.get(operator.name)
    if road is None:
        from openaclnn.repeat.phases.located import Locating

        road = _locating[operator.name] = Locating(operator)
    return road.learn(kind, arguments)


def _with_views(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with arrays as tensors."""
    of_torch = torch_tensor()
    viewed: list[Any] = []
    for value in arguments:
        kind = type(value)
        try:
            if kind is np.ndarray:
                value = Tensor.from_numpy(value)
            elif kind is of_torch and not is_tracked_leaf(value):
                value = as_tensor(value)
        except TypeError:  # no tensor: left for binding to refuse, like what may not be written
            pass
        viewed.append(value)
    return tuple(viewed)
