"""Recipes: what a plain call on NumPy arrays or PyTorch tensors needs once another of the same signature was checked and planned.

A plan holds no address, so a call whose arrays have known dtypes, shapes and strides, and whose options are
known too, goes straight to its kernel. This is what makes a call on 16 elements cost microseconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from operator import itemgetter
from typing import Any

import numpy as np

from openaclnn import products
from openaclnn.declare import Operator
from openaclnn.dispatch import Runner
from openaclnn.interop import as_tensor, stream_source, view_memory
from openaclnn.plan import Plan
from openaclnn.status import AclnnError, Status
from openaclnn.tensor import Tensor

__all__ = ["known_recipe", "recipe", "remember", "stray_target"]

Recipe = Callable[..., Any]

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
    operator: Operator, plan: Plan, runner: Runner, takes_arrays: bool, fresh: bool, result: Any
) -> Recipe | None:
    """A function of the plain call's arrays, in its order, the output last; None where there is none.

    It returns NotImplemented where these arrays want the full checks again.
    """
    positional, keywords = operator.plain_parameters
    names = [p.name for p in [*positional, *keywords] if p.is_tensor]
    pick = itemgetter(*(names.index(operand.parameter) for operand in plan.inputs))
    if isinstance(result, np.ndarray):
        return _numpy_recipe(plan, runner, pick, fresh, result) if takes_arrays else None
    return _torch_recipe(plan, runner, pick, fresh, result)


def _numpy_recipe(plan: Plan, runner: Runner, pick: Any, fresh: bool, result: Any) -> Recipe:
    shape, dtype = result.shape, result.dtype
    empty, may_share = np.empty, np.may_share_memory

    def into_fresh(*arrays: Any) -> Any:
        out = empty(shape, dtype)
        inputs = pick(arrays)
        if runner((*inputs, out), 0):
            raise stray_target(plan, [Tensor.from_numpy(array) for array in inputs])
        return out

    def into_given(*arrays: Any) -> Any:
        out = arrays[-1]
        inputs = pick(arrays)
        # What was proved of other memory is proved again where it could differ.
        if not out.flags.writeable or any(may_share(array, out) for array in inputs):
            return NotImplemented
        if runner((*inputs, out), 0):
            raise stray_target(plan, [Tensor.from_numpy(array) for array in inputs])
        return out

    return into_fresh if fresh else into_given


def _torch_recipe(plan: Plan, runner: Runner, pick: Any, fresh: bool, result: Any) -> Recipe:
    empty, options = sys.modules["torch"].empty, {"dtype": result.dtype, "device": result.device}
    shape = tuple(result.shape)
    stream_of = stream_source(result)
    low, high = plan.output.low, plan.output.high
    extents = [(operand.low, operand.high) for operand in plan.inputs]

    def into_fresh(*arrays: Any) -> Any:
        out = empty(shape, **options)
        inputs = pick(arrays)
        if runner([*[array.data_ptr() for array in inputs], out.data_ptr()], stream_of()):
            raise stray_target(plan, [as_tensor(array) for array in inputs])
        return out

    def into_given(*arrays: Any) -> Any:
        out = arrays[-1]
        addresses = [array.data_ptr() for array in pick(arrays)]
        start = out.data_ptr()
        for address, (first, last) in zip(addresses, extents, strict=True):
            if address + last > start + low and start + high > address + first:
                return NotImplemented  # perhaps in place, perhaps not: the full checks decide
        if runner([*addresses, start], stream_of()):
            raise stray_target(plan, [as_tensor(array) for array in pick(arrays)])
        return out

    return into_fresh if fresh else into_given


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
