"""The CPU engine: vector code written for the machine at hand and compiled by LLVM, on threads of its own.

This file is its interface. `registry.py` has the kernels by name: formulas are served by themselves, those with a class axis by what `classes/`
enters. Each of these packages imports from those below it:

    classes/      kernels with a class axis          tuned/        forms of formulas that are faster than the plain one
    formulas/     kernels that compute a formula
    layouts/      from any strides to dense rows
    arithmetic/   vectors of numbers                 launching/    how a kernel is started on threads

Importing this package does not import llvmlite.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from openaclnn.core.forks import undivided
from openaclnn.core.plan import (
    BoundedCache,
    Free,
    Plan,
    covered_elements,
    numbers_key,
    operand_signature,
    rounded_input,
)
from openaclnn.engines import arrays, steps
from openaclnn.engines.cpu.registry import KERNELS, Kernel
from openaclnn.engines.formulas import FORMULAS
from openaclnn.engines.formulas.rows import ROW_FORMULAS
from openaclnn.engines.machine import unusable

DEVICES = ("cpu",)
# Elements that one thread does faster than two: beyond, the best way through a layout is worth looking for.
FEW = 1 << 15


@functools.cache
def unavailable() -> str | None:
    """Why this engine cannot be used on this machine; None if it can."""
    reason = unusable()
    if reason is not None:
        return reason
    from openaclnn.engines.machine.host import machine

    return None if machine().fma else "this CPU has no fused multiply-add"


def kernel_named(name: str) -> Kernel | None:
    """What serves plans of a kernel name."""
    kernel = KERNELS.get(name)
    return _entered(name) if kernel is None else kernel


def _entered(name: str) -> Kernel | None:
    """The same for a name that was not asked for before."""
    if name in FORMULAS:
        from openaclnn.engines.cpu import tuned  # noqa: F401  (enters its forms)
        from openaclnn.engines.cpu.formulas.elementwise import Elementwise

        KERNELS[name] = Elementwise(FORMULAS[name])
    if name == "fill":
        from openaclnn.engines.cpu.formulas.sums import Filling

        KERNELS[name] = Filling()
    if name in ROW_FORMULAS:
        from openaclnn.engines.cpu.classes.row_formulas import RowKernel

        KERNELS[name] = RowKernel(ROW_FORMULAS[name])
    if name not in KERNELS:
        from openaclnn.engines.cpu import classes

        classes.enter()
    return KERNELS.get(name)


def declines(plan: Plan) -> str | None:
    """Why this engine does not serve a plan; None if it does."""
    if plan.steps:
        return steps.objection(plan, declines)
    if plan.kernel in arrays.ARRAY_KERNELS:
        return None
    kernel = kernel_named(plan.kernel)
    if kernel is None:
        return f"no CPU kernel is called {plan.kernel}"
    return kernel.declines(plan) or rounded_input(plan)


@undivided
def prepare(plan: Plan) -> Callable[[Sequence[int], int], int]:
    """What runs the plan: a function of the operands' addresses (the output's last) and a stream."""
    if plan.steps:
        flat = _sums_of_few(plan)
        few = flat and _axis_sums().runner(plan, flat)
        return few or steps.stepped(plan, _of_one_size, steps.HostMemory)
    if plan.kernel in arrays.ARRAY_KERNELS:
        return arrays.on_host(plan)
    kernel = kernel_named(plan.kernel)
    assert kernel is not None, plan.kernel
    return kernel.runner(plan)


def _sums_of_few(plan: Plan) -> Any:
    """The kernel for few elements of a plan that adds up along axes; None for plans of other steps."""
    if plan.classes or plan.kernel not in FORMULAS:
        return None
    kernel_named(plan.kernel)  # enters its forms
    from openaclnn.engines.cpu.formulas.elementwise import form_of

    return _axis_sums().flat(plan, form_of(plan))


def _axis_sums() -> Any:
    from openaclnn.engines.cpu.formulas import axis_sums

    return axis_sums


def _of_one_size(plan: Plan) -> Callable[[Sequence[int], int], int]:
    """What runs a plan that another size has another of."""
    return _few(plan) or prepare(plan)


def _few(plan: Plan) -> Callable[[Sequence[int], int], int] | None:
    """What runs few elements with classes: making a runner for their size and numbers takes 100 us, the builtin for all of them 2 us more in each call."""
    if not plan.classes:
        return None
    shared = plan
    numbers = {name: n for name, n in plan.numbers.items() if type(n) is float and n != 1.0}
    if numbers:
        known = {**plan.numbers, **dict.fromkeys(numbers, 1.0)}
        shared = replace(plan, numbers=known, free=tuple(map(Free, numbers)))
    offer = dynamic_strides(shared)
    if offer is None:
        return None
    from openaclnn.engines.cpu.classes.launches import bound

    run, _ = offer
    return bound(run, plan, tuple(numbers.values()))


def offer(plan: Plan) -> tuple[Callable[[], Callable[[Sequence[int], int], int]], Any]:
    """What makes `prepare`'s function, and the kernel for row-major operands of any size; None where there is none."""
    if plan.steps:
        return functools.partial(prepare, plan), _sums_of_few(plan)
    kernel: Any = kernel_named(plan.kernel)
    if plan.classes and plan.fixed:
        return functools.partial(_of_one_size, plan), None
    if plan.classes or not hasattr(kernel, "offer"):
        return functools.partial(kernel.runner, plan), None
    offered: tuple[Any, Any] = kernel.offer(plan)
    return offered


def dynamic_shapes(plan: Plan) -> Any:
    """What runs row-major operands of any size: a function of addresses, stream and shape; None where there is none."""
    find = None if plan.steps else getattr(kernel_named(plan.kernel), "dynamic_shapes", None)
    return None if find is None else _shared("dynamic_shapes", find, plan)


def dynamic_strides(plan: Plan) -> tuple[Any, int] | None:
    """What runs operands of any sizes and strides besides, with a class axis, and up to how many elements.

    A function of addresses, stream, the sizes of the axes, classes last, every operand's strides along them, in elements,
    and the plan's free numbers; axes are in the output's order.
    """
    find = None if plan.steps else getattr(kernel_named(plan.kernel), "dynamic_strides", None)
    run = (
        None
        if find is None or covered_elements(plan) > FEW
        else _shared("dynamic_strides", find, plan)
    )
    return run and (run, FEW)


_runners: BoundedCache[tuple[Any, ...], Any] = BoundedCache(256)


def _shared(ability: str, find: Callable[[Plan], Any], plan: Plan) -> Any:
    """What a kernel finds for plans of any sizes, once for those that differ in nothing else; with a class axis it takes
    long to make.
    """
    if not plan.classes:
        return find(plan)
    from openaclnn.engines.machine.host import machine

    key = (
        machine(), ability, plan.kernel, plan.compute, plan.class_axis, plan.reduction, numbers_key(plan.numbers),
        *[free.option for free in plan.free], *map(operand_signature, plan.operands),
    )  # fmt: skip
    runner = _runners.get(key)
    if runner is None:
        runner = _runners[key] = find(plan)
    return runner


def variants() -> Iterator[Plan]:
    """Plans that between them need every kernel."""
    kernel_named("")  # enters those that are not formulas
    for kernel in dict.fromkeys(
        kernel_named(name) for name in {**FORMULAS, **ROW_FORMULAS, **KERNELS}
    ):
        assert kernel is not None
        yield from kernel.variants()


def warmup(progress: Callable[[int, int, str], None] | None = None) -> int:
    """Compile every kernel, so that no later call waits; returns how many plans that took.

    `progress(done, total, kernel)` is called after each.
    """
    plans = list(variants())
    for done, plan in enumerate(plans, 1):
        prepare(plan)
        if progress is not None:
            progress(done, len(plans), plan.kernel)
    return len(plans)
