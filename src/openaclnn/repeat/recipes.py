"""Recipes: what a plain call on NumPy arrays or PyTorch tensors needs once another of the same signature was checked and planned.

A plan holds no address, so a call whose arrays have known dtypes, shapes and strides, and whose options are
known too, goes straight to its kernel. This is what makes a call on 16 elements cost microseconds.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Hashable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from openaclnn.core import products, results
from openaclnn.core.declare import Operator
from openaclnn.core.interop import as_tensor, stream_source, view_memory
from openaclnn.core.plan import Plan
from openaclnn.core.results import LARGE
from openaclnn.core.status import AclnnError, Status
from openaclnn.core.tensor import Tensor
from openaclnn.engines.dispatch import Choice, Runner
from openaclnn.repeat.express import Express, NumpyReader, Reader, TorchReader

__all__ = ["known_recipe", "recipe", "remember", "stray_target"]

Call = Callable[..., Any]


class Recipe(NamedTuple):
    """Two ways to run a call again: `express` checks its arguments itself, `call` has them checked before."""

    call: Call
    express: Call | None = None


# Signatures kept: a training loop has a handful, a test suite thousands.
_KEPT = 1024
_recipes: dict[Hashable, Recipe] = {}

known_recipe = _recipes.get
products.listeners.append(_recipes.clear)


def remember(key: Hashable, made: Recipe | None) -> None:
    """Keep a recipe for the next call of this signature."""
    if made is None:
        return
    if len(_recipes) >= _KEPT:
        _recipes.clear()
    _recipes[key] = made


def recipe(
    operator: Operator,
    plan: Plan,
    choice: Choice,
    arguments: Mapping[str, Any],
    result: Any,
) -> Recipe | None:
    """A function of the plain call's arrays, in its order, the output last; None where there is none.

    It returns NotImplemented where these arrays want the full checks again.
    """
    positional, keywords = operator.plain_parameters
    tensors = [p for p in [*positional, *keywords] if p.is_tensor]
    names = [p.name for p in tensors]
    given = tuple(arguments[p.python_name] for p in tensors)
    places = [names.index(operand.parameter) for operand in (*plan.inputs, plan.output)]
    if not isinstance(result, np.ndarray):
        return _torch_recipe(plan, choice.runner, given, places, result)
    return (
        _numpy_recipe(plan, choice.runner, given, places, result) if choice.takes_arrays else None
    )


def _numpy_recipe(
    plan: Plan, runner: Runner, given: tuple[Any, ...], places: list[int], result: Any
) -> Recipe:
    make: Call = np.empty if result.nbytes < LARGE else results.empty
    made = (result.shape, result.dtype)
    call = _numpy_call(plan, runner, itemgetter(*places[:-1]), given[-1] is None, make, made)
    return Recipe(call, _express(_numpy_reader(), plan, runner, given, places, result, make, made))


def _torch_recipe(
    plan: Plan, runner: Runner, given: tuple[Any, ...], places: list[int], result: Any
) -> Recipe:
    inputs = [given[place] for place in places[:-1]]
    like = next((n for n, t in zip(places, inputs, strict=False) if _resembles(t, result)), None)
    expression, make = _fresh(sys.modules["torch"], result, like)
    call = _torch_call(plan, runner, given, places, result, expression, make)
    # A tensor that waits for its negation is never contiguous, and DLPack would not tell.
    dense = all(tensor is None or tensor.is_contiguous() for tensor in (*given, result))
    if not dense or (given[-1] is None and expression != _BY_STRIDES):
        return Recipe(call)
    made = (tuple(result.shape), tuple(result.stride()), result.dtype)
    return Recipe(call, _express(_torch_reader(), plan, runner, given, places, result, make, made))


def _express(
    reader: Reader | None, plan: Plan, runner: Runner, given: tuple[Any, ...], places: list[int],
    result: Any, make: Call, made: tuple[Any, ...],
) -> Call | None:  # fmt: skip
    if reader is None or not Express.takes(given):
        return None
    operands = list(zip(places, (*plan.inputs, plan.output), strict=True))
    return Express(reader, given, result, operands, make, made, runner).function()


@functools.cache
def _numpy_reader() -> Reader | None:
    try:
        return NumpyReader()
    except AttributeError:
        return None


@functools.cache
def _torch_reader() -> Reader | None:
    if importlib.util.find_spec("llvmlite") is None:
        return None
    try:
        return TorchReader(sys.modules["torch"])
    except AttributeError:
        return None


def _numpy_call(
    plan: Plan, runner: Runner, pick: Any, fresh: bool, make: Call, made: tuple[Any, ...]
) -> Call:
    may_share = np.may_share_memory

    def into_fresh(*arrays: Any) -> Any:
        out = make(*made)
        inputs = pick(arrays)
        if runner((*inputs, out), 0):
            raise stray_target(plan, [Tensor.from_numpy(array) for array in inputs])
        return out

    def into_given(*arrays: Any) -> Any:
        out = arrays[-1]
        inputs = pick(arrays)
        # What was proved of other memory is proved again where it could differ.
        if not out.flags.writeable:
            return NotImplemented
        for array in inputs:
            if may_share(array, out):
                return NotImplemented
        if runner((*inputs, out), 0):
            raise stray_target(plan, [Tensor.from_numpy(array) for array in inputs])
        return out

    return into_fresh if fresh else into_given


def _resembles(tensor: Any, result: Any) -> bool:
    """Whether `empty_like` of it gives the result's tensor, at half the cost of `empty`."""
    same = tensor.shape == result.shape and tensor.dtype == result.dtype
    return bool(same and tensor.is_contiguous() and tensor.device == result.device)


_BY_STRIDES = "make(shape, strides, dtype)"


def _fresh(torch: Any, result: Any, like: int | None) -> tuple[str, Any]:
    """How to make another such result: an expression, and the `make` in it.

    What torch's own compiler allocates with takes 2.4 us where `empty_like` takes 3.8 and `empty` more. It
    works on the current device, so that only a lone GPU has it.
    """
    kind = result.device.type
    try:
        make = getattr(torch._C._dynamo.guards, f"_empty_strided_{kind}")
        probe = make((0,), (1,), result.dtype)
    except (AttributeError, TypeError):
        probe = None
    if probe is not None and (probe.dtype, probe.device) == (result.dtype, result.device):
        if kind == "cpu" or torch.cuda.device_count() == 1:
            return _BY_STRIDES, make
    if like is not None:
        return f"make(t{like})", torch.empty_like
    return "make(shape, dtype=dtype, device=device)", torch.empty


def _torch_call(
    plan: Plan, runner: Runner, given: tuple[Any, ...], places: list[int], result: Any,
    expression: str, make: Call,
) -> Call:  # fmt: skip
    """Written out for the plan's tensors: unpacking and loops would cost as much as the launch itself."""
    names = [f"t{place}" for place in places[:-1]]
    fresh = given[-1] is None
    arguments = ", ".join(f"t{place}" for place in range(len(given) - 1))
    lines = [f"def call({arguments}, out):"]
    lines += [f"    out = {expression}"] if fresh else []
    lines.append("    start = out.data_ptr()")
    lines += [f"    a{n} = {n}.data_ptr()" for n in names]
    if not fresh:
        # Perhaps in place, perhaps not: the full checks decide.
        low, high = plan.output.low, plan.output.high
        lines += [
            f"    if a{n} + {own.high} > start + {low} and start + {high} > a{n} + {own.low}: return NotImplemented"
            for n, own in zip(names, plan.inputs, strict=True)
        ]
    addresses = ", ".join(f"a{n}" for n in names)
    tensors = ", ".join(names)
    lines += [
        f"    if runner(({addresses}, start), stream()):",
        f"        raise stray(plan, [as_tensor(t) for t in ({tensors},)])",
        "    return out",
    ]
    scope: dict[str, Any] = {
        "make": make, "shape": tuple(result.shape), "strides": tuple(result.stride()),
        "dtype": result.dtype, "device": result.device, "runner": runner, "plan": plan,
        "stream": stream_source(result), "stray": stray_target, "as_tensor": as_tensor,
    }  # fmt: skip
    exec("\n".join(lines), scope)
    call: Call = scope["call"]
    return call


def stray_target(plan: Plan, tensors: list[Tensor]) -> AclnnError:
    """The refusal for a class index that is neither in range nor ignored: where it is, and what."""
    target = view_memory(tensors[plan.targets]).astype(np.int64)
    ignored = plan.numbers["ignore_index"]
    bad = ((target < 0) | (target >= plan.classes)) & (target != ignored)
    place = tuple(int(index) for index in np.argwhere(bad)[0])
    return AclnnError(
        Status.ACLNN_ERR_PARAM_INVALID, plan.operator, plan.inputs[plan.targets].parameter,
        f"class indices in [0, {plan.classes}) or ignoreIndex {ignored}",
        f"{target[place]} at {place}",
    )  # fmt: skip
