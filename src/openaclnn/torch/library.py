"""`torch.ops.openaclnn`: every operator as one of PyTorch's, made from the registry.

Schema, implementations for the CPU and CUDA, shapes without data, derivatives, casts under autocast and batches under
vmap. A plain call inside a function that PyTorch compiles becomes one of these too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from openaclnn.core.declare import Operator
from openaclnn.core.status import AclnnError
from openaclnn.operators import find_operator
from openaclnn.repeat.slots import MAX_AXES
from openaclnn.torch.gradients import DECLARED, FORMULAS
from openaclnn.torch.kernels import KERNELS, Kernel
from openaclnn.torch.private import (
    any_requires_grad,
    below_autograd,
    forward_mode,
    graph_break,
    keep_compiler_out,
    single_level,
    transformed,
)
from openaclnn.torch.refusals import in_torch_words
from openaclnn.torch.schema import follows, laid_like, made_by, out_schema, schema

LIBRARY: Any = torch.library.Library("openaclnn", "FRAGMENT")  # type: ignore[no-untyped-call]
DEVICES = ("CPU", "CUDA")


def define(kernel: Kernel) -> None:
    """Make one operator PyTorch's."""
    operator = kernel.operator
    name = operator.python_name
    LIBRARY.define(schema(operator), tags=(torch.Tag.pt2_compliant_tag,))
    kernel.op = getattr(torch.ops.openaclnn, name).default
    full = _filled(kernel)
    compute = full(lambda *arguments: kernel.compute(*arguments))  # which the first call writes
    for device in DEVICES:
        LIBRARY.impl(name, compute, device)
        if name in FORMULAS and _reduces(operator):  # losses are computed in FLOAT, as PyTorch's
            torch.library.register_autocast(f"openaclnn::{name}", device.lower(), torch.float32, lib=LIBRARY)  # fmt: skip
    LIBRARY.impl(name, full(_differentiable(kernel)), "Autograd")
    torch.library.register_fake(f"openaclnn::{name}", full(_fake(operator)), lib=LIBRARY)
    if not operator.output.in_place:
        torch.library.register_vmap(f"openaclnn::{name}", _batched(kernel), lib=LIBRARY)
        LIBRARY.define(out_schema(operator), tags=(torch.Tag.pt2_compliant_tag,))
        writes = _writing(kernel)
        for device in DEVICES:
            LIBRARY.impl(f"{name}.out", writes, device)
        LIBRARY.impl(f"{name}.out", _undifferentiated(kernel), "Autograd")
        # In a third of the time that fakes take.
        LIBRARY.impl(f"{name}.out", lambda *a, **k: None, "Meta")


def _filled(kernel: Kernel) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What gives a function of all arguments those that the dispatcher left out, which have their defaults. Words it makes anew: the fast path
    knows those that Python keeps."""
    defaults = kernel.defaults
    has_words = any(isinstance(default, str) for default in defaults)

    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        def kept(*arguments: Any) -> Any:
            every = (*arguments, *defaults[len(arguments) :])
            return function(
                *[sys.intern(argument) if type(argument) is str else argument for argument in every]
            )

        if has_words:
            return kept
        return lambda *arguments: function(*arguments, *defaults[len(arguments) :])

    return around


def _reduces(operator: Operator) -> bool:
    return any(parameter.choices for parameter in operator.parameters)


def _differentiable(kernel: Kernel) -> Callable[..., Any]:
    formula, name = FORMULAS.get(kernel.operator.python_name), kernel.operator.python_name
    constant = constants_of(kernel)

    def differentiable(*arguments: Any) -> Any:
        if forward_mode() and any(map(_has_tangent, arguments)):
            raise RuntimeError(
                f"openaclnn::{name} has no derivative in forward mode; the functions of openaclnn.torch.functional have"
            )
        if torch.is_grad_enabled() and any_requires_grad(*arguments):
            if formula is None:
                raise RuntimeError(
                    f"openaclnn::{name} has no derivative; call it under torch.no_grad(), or on detached tensors"
                )
            for place, parameter in constant:
                if arguments[place] is not None and arguments[place].requires_grad:
                    raise RuntimeError(f"openaclnn::{name} is not differentiable with respect to argument {parameter!r}")  # fmt: skip
            if transformed():
                with single_level():
                    return formula.apply(*arguments)
            return formula.apply(*arguments)
        return kernel.dispatched(*arguments)

    return differentiable


def constants_of(kernel: Kernel) -> list[tuple[int, str]]:
    """The tensors that there is no derivative by, with their places."""
    gradient = kernel.operator.gradient
    if gradient is None:
        if kernel.operator.python_name in DECLARED:
            return []
        return [(place, name) for place, name in enumerate(kernel.names) if name in _CONSTANT]
    derivatives = len(find_operator(gradient.operator).outputs)
    others = [place for place in kernel.tensors[derivatives:] if kernel.parameters[place].name not in gradient.others]  # fmt: skip
    return [(place, kernel.names[place]) for place in others]


_CONSTANT = frozenset(("weight", "total_weight"))  # of formulas that are not declared


def _has_tangent(argument: Any) -> bool:
    if not isinstance(argument, torch.Tensor):
        return False
    return forward_ad.unpack_dual(argument).tangent is not None  # type: ignore[no-untyped-call]


def _undifferentiated(kernel: Kernel) -> Callable[..., Any]:
    name = kernel.operator.python_name

    def undifferentiated(*arguments: Any, **places: Any) -> None:
        if torch.is_grad_enabled() and any_requires_grad(*arguments, **places):
            raise RuntimeError(
                f"openaclnn::{name}.out: functions with out=... have no derivative, but an argument requires grad"
            )
        if below_autograd is None:
            return _writing(kernel)(*arguments, **places)
        with below_autograd():
            getattr(torch.ops.openaclnn, name).out(*arguments, **places)

    return undifferentiated


def _fake(operator: Operator) -> Callable[..., Any]:
    def fake(*arguments: Any) -> Any:
        _one_device(operator, arguments)
        try:
            specs = made_by(operator, arguments)
        except AclnnError as error:
            raise in_torch_words(error) from None
        if operator.output.in_place:
            return None
        tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        if follows(operator, arguments):
            [(_, dtype)] = specs
            return torch.empty_like(laid_like(tensors), dtype=dtype)
        results = tuple(tensors[0].new_empty(shape, dtype=dtype) for shape, dtype in specs)
        return results[0] if operator.result_type is None else results

    return fake


def _one_device(operator: Operator, arguments: tuple[Any, ...]) -> None:
    devices = {argument.device for argument in arguments if isinstance(argument, torch.Tensor)}
    if len(devices) > 1:
        listed = " and ".join(sorted(map(str, devices)))
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but openaclnn::{operator.python_name} got {listed}"
        )


def _writing(kernel: Kernel) -> Callable[..., None]:
    def writing(*arguments: Any, **places: Any) -> None:
        several = tuple(places.values())
        complete = (*arguments, *kernel.defaults[len(arguments) :])
        kernel.into(several if len(several) > 1 else several[0], *complete)

    return writing


def _batched(kernel: Kernel) -> Callable[..., Any]:
    """One call for each of a batch; elements and rows that know nothing of each other need one call in all."""
    axis = kernel.operator.axis
    operator = kernel.operator
    single = not _reduces(operator) and operator.result_type is None and bool(operator.families)
    axis_place = -1 if axis is None else kernel.parameters.index(axis)

    def batched(info: Any, in_dims: Any, *arguments: Any) -> Any:
        dims = (*in_dims, *(None,) * (len(arguments) - len(in_dims)))
        size = info.batch_size
        if not size:
            return _none_of(kernel, arguments, dims)
        # Asked for here: workloads are not imported with the package.
        if single and (axis is not None or kernel.operator.workloads.PATTERN == "elementwise"):
            ranks = [argument.dim() - (dim is not None) for argument, dim in zip(arguments, dims, strict=True) if isinstance(argument, torch.Tensor)]  # fmt: skip
            moved = [
                argument
                if not isinstance(argument, torch.Tensor)
                else argument.expand(size, *argument.shape)
                if dim is None
                else argument.movedim(dim, 0)
                for argument, dim in zip(arguments, dims, strict=True)
            ]
            if axis is None and len(set(ranks)) == 1:
                return _flat(kernel, moved), 0
            if len(set(ranks)) == 1 and 0 < ranks[0] < MAX_AXES:
                moved += kernel.defaults[len(moved) :]
                # The batch's axis stands before those of each.
                moved[axis_place] += moved[axis_place] >= 0
                return kernel.op(*moved), 0
        results = []
        for number in range(size):
            one = [
                argument if dim is None else argument.select(dim, number)
                for argument, dim in zip(arguments, dims, strict=True)
            ]
            results.append(kernel.op(*one))
        if kernel.operator.result_type is None:
            return torch.stack(results), 0
        several = tuple(torch.stack(rows) for rows in zip(*results, strict=True))
        return several, (0,) * len(several)

    return batched


def _flat(kernel: Kernel, arguments: list[Any]) -> Any:
    """Elementwise on tensors of a batch, which may be more axes than the operator takes."""
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    shapes = {tensor.shape for tensor in tensors}
    if tensors[0].dim() <= MAX_AXES or len(shapes) > 1:
        return kernel.op(*arguments)
    (shape,) = shapes
    rows = [
        argument.reshape(shape[0], -1) if isinstance(argument, torch.Tensor) else argument
        for argument in arguments
    ]
    return kernel.op(*rows).reshape(shape)


def _none_of(kernel: Kernel, arguments: tuple[Any, ...], dims: tuple[Any, ...]) -> Any:
    """The results of no call at all, in the shapes that one would have."""
    one = [
        argument
        if dim is None
        else argument.new_empty([*argument.shape[:dim], *argument.shape[dim + 1 :]])
        for argument, dim in zip(arguments, dims, strict=True)
    ]
    first = next(argument for argument in one if isinstance(argument, torch.Tensor))
    results = tuple(
        first.new_empty((0, *shape), dtype=dtype)
        for shape, dtype in made_by(kernel.operator, (*one, *kernel.defaults[len(one) :]))
    )
    return (
        (results[0], 0) if kernel.operator.result_type is None else (results, (0,) * len(results))
    )


def _routed(kernel: Kernel) -> Callable[..., Any]:
    """The plain call as PyTorch's compiler sees it: the same signature, and the operator of `torch.ops` inside."""
    operator = kernel.operator
    overload = getattr(torch.ops.openaclnn, operator.python_name)
    name, passed = operator.python_name, ", ".join(kernel.names)
    scope: dict[str, Any] = {"_op": overload.default, "_type": operator.result_type}
    # What the operator of `torch.ops` does not take: the graph ends there, and the plain call is made.
    read = [p.python_name for p in kernel.parameters if p.is_tensor]
    chosen = [p.python_name for p in kernel.parameters if p.choices]
    unfit = [
        "product is not None",
        *[f"isinstance({parameter}, (int, float))" for parameter in read],
    ]
    unfit += [f"not isinstance({parameter}, str)" for parameter in chosen]
    scope |= {"_graph_break": graph_break}
    lines = [f"def {operator.signature()}:"]
    lines += [f"    if {' or '.join(unfit)}:", "        _graph_break()"]
    if operator.output.in_place:
        lines += [f"    _op({passed})", f"    return {kernel.names[0]}"]
    else:
        scope["_out"] = overload.out
        if operator.result_type is None:
            lines += ["    if out is not None:", f"        _out({passed}, out=out)", "        return out"]  # fmt: skip
            lines += [f"    return _op({passed})"]
        else:
            fields = [p.field for p in operator.outputs]
            places = ", ".join(f"{field}=out[{n}]" for n, field in enumerate(fields))
            lines += ["    if out is not None:", f"        _out({passed}, {places})", "        return _type(*out)"]  # fmt: skip
            lines += [f"    return _type(*_op({passed}))"]
    exec("\n".join(lines), scope)
    function: Callable[..., Any] = scope[name]
    return function


for _kernel in KERNELS.values():
    define(_kernel)
    keep_compiler_out(_kernel.plain)
    # PyTorch's compiler reads this attribute of functions; `substitute_in_graph` would import the compiler.
    _kernel.plain._torchdynamo_inline = _routed(_kernel)  # type: ignore[attr-defined]
