"""What phase one finds out about a call that no cache entry serves: it is bound, checked, planned and given an engine, and remembered."""

from __future__ import annotations

from typing import Any

from openaclnn.calls.guard import check_devices, check_output_layout
from openaclnn.core import rounding
from openaclnn.core.call import UNFIT, Call, bind_arguments, leave_unbound
from openaclnn.core.declare import Operator
from openaclnn.core.forks import undivided
from openaclnn.core.interop import as_tensor, is_tracked_leaf, torch_tensor, viewers_now
from openaclnn.core.products import current_product
from openaclnn.core.status import AclnnError
from openaclnn.engines.dispatch import choose_engine
from openaclnn.repeat.phases import Launch, Specialization, phase_cache


@undivided
def planned(
    operator: Operator, passed: tuple[Any, ...], arguments: tuple[Any, ...], workspace_size: bool, executor: bool
) -> tuple[Specialization, Launch, tuple[Any, ...]]:  # fmt: skip
    """Bind, check and plan: what is the same for all calls like this one and what runs it, and the arguments as tensors and plain numbers. The next call
    like it is known by what was `passed`, and as arguments with views."""
    if not rounding.is_standard():
        with rounding.standard():
            return planned(operator, passed, arguments, workspace_size, executor)
    call = _bound(operator, arguments, workspace_size, executor)
    error = operator.first_violation(call)
    if error is not None:
        raise error
    for output in operator.outputs:
        if call.has_tensor(output.name):
            check_output_layout(operator.name, output.name, call.tensor(output.name))
    device = check_devices(call)
    plan = operator.plan(call)
    choice = None if plan.empty else choose_engine(plan, device)
    kind = Specialization(operator, plan, device, choice)
    if workspace_size and executor:
        phase_cache(operator).enter(passed, arguments, call, kind, choice)
    return kind, kind.exact, tuple(call.values.values())


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


def with_views(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with arrays as tensors; what cannot be viewed is left for binding to refuse, like what may not be written."""
    viewers, tensor = viewers_now(), torch_tensor()
    viewed: list[Any] = []
    for value in arguments:
        view = viewers.get(type(value)) or (as_tensor if type(value) is tensor else None)
        try:
            if view is None or (type(value) is tensor and is_tracked_leaf(value)):
                viewed.append(value)
            else:
                viewed.append(view(value))
        except UNFIT:
            viewed.append(value)
    return tuple(viewed)
