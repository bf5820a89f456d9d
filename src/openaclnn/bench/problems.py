"""One benchmark problem: an operator's arguments in a layout, on a device, with their plan."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from openaclnn.core.call import product_of
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT, DType
from openaclnn.core.interop import allocate_like
from openaclnn.core.plan import Operand, Plan
from openaclnn.core.status import AclnnError
from openaclnn.operators import registry
from openaclnn.testing.goldens import planned

_BLOCK = 1 << 22
LINE_BYTES = {"cpu": 64, "cuda": 32}
"""The least that memory moves at once: a cache line, or a sector of one on a GPU."""

Arguments = dict[str, Any]
Change = Callable[[Arguments, list[str]], Arguments | None]
"""Other arguments made of these, with the names of those that the plan reads; None where that cannot be."""


class TiledGenerator(np.random.Generator):
    """Normal numbers that repeat after 4 M of them: drawing 2^28 would take longer than timing them."""

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        count = math.prod(np.atleast_1d(size).tolist()) if size is not None else 1
        if count <= _BLOCK:
            return super().standard_normal(size, dtype, out)
        return np.resize(super().standard_normal(_BLOCK, dtype), size)


@dataclass(frozen=True)
class Problem:
    """Arguments of the plain call (NumPy arrays on the CPU, torch tensors on a GPU), a place for the result, the plan.

    Of several outputs `out` is a tuple, as the plain call takes it; where an operator writes over its input, it is that.
    """

    operator: Operator
    variant: str
    dtype: DType
    shape: tuple[int, ...]
    layout: str
    device: str
    arguments: Arguments
    out: Any
    plan: Plan

    @property
    def moved(self) -> int:
        return bytes_moved(self.plan)

    @property
    def touched(self) -> int:
        """Like `moved`, with what lies between elements that do not lie side by side: memory moves whole lines."""
        return bytes_moved(self.plan, LINE_BYTES[self.device])

    def outputs_of(self, result: Any) -> tuple[Any, ...]:
        """Each output of a result, or of what `out=` takes."""
        return (result,) if self.operator.result_type is None else tuple(result)

    @property
    def fresh(self) -> list[Any]:
        """The outputs that are no inputs."""
        inputs = [id(value) for value in self.arguments.values()]
        return [output for output in self.outputs_of(self.out) if id(output) not in inputs]

    @property
    def apart(self) -> bool:
        """Whether a run leaves the inputs as they are."""
        return len(self.fresh) == len(self.operator.outputs)

    def oracle(self) -> tuple[np.ndarray[Any, Any] | None, ...]:
        """The float64 results; None for what the call does not write."""
        host = {
            name: value.cpu() if hasattr(value, "cpu") else value
            for name, value in self.arguments.items()
        }
        return self.outputs_of(self.operator.oracle(**host))

    @functools.cached_property
    def in_torch(self) -> Problem:
        """The same memory as torch tensors."""
        torch = load_torch()
        arguments = {name: to_torch(torch, value) for name, value in self.arguments.items()}
        outputs = [to_torch(torch, output) for output in self.outputs_of(self.out)]
        return replace(self, arguments=arguments, out=_as_out(self.operator, outputs))


def measured() -> list[Operator]:
    """The operators whose kernels are measured: those with one output and kernels of their own for any size. One that
    writes over its input has another problem at every run; its kernel is that of the operator beside it."""
    return [
        operator
        for operator in registry()
        if operator.result_type is None
        and not operator.output.in_place
        and getattr(operator.workloads, "ANY_SIZE", True)
    ]


def taken(operator: Operator, dtypes: Sequence[DType]) -> list[DType]:
    """Of these dtypes, those that the operator takes; its first where FLOAT is none of them."""
    takes = [dtype for dtype in dtypes if dtype in operator.data_dtypes]
    return takes if FLOAT in operator.data_dtypes or takes else [operator.data_dtypes[0]]


def first_variant(operator: Operator) -> str:
    """The most important one."""
    return str(next(iter(operator.workloads.VARIANTS)))


def build(
    operator: Operator,
    variant: str,
    dtype: DType,
    shape: tuple[int, ...],
    layout: str = "contiguous",
    device: str = "cpu",
    change: Change | None = None,
) -> Problem | None:
    """The problem, always with the same numbers; None where the operator refuses the layout or the change."""
    rng = TiledGenerator(np.random.PCG64(7))
    with np.errstate(over="ignore"):  # a total over many elements may be inf in FLOAT16
        drawn = operator.workloads.make(rng, dtype, shape, variant)
    if device != "cpu":
        torch = load_torch()
        drawn = {
            name: to_torch(torch, value).to(device) if is_array(value) else value
            for name, value in drawn.items()
        }
    arguments = drawn
    if steps := [step for step in (LAYOUTS[layout], change) if step is not None]:
        inputs = _planned(operator, drawn, "contiguous")[1].inputs
        names = {operator[operand.parameter].python_name for operand in inputs}
        for step in steps:
            arguments = step(arguments, [name for name in drawn if name in names])
            if arguments is None:
                return None
    try:
        out, plan = _planned(operator, arguments, layout)
    except AclnnError:
        if arguments is drawn:
            raise
        return None
    return Problem(operator, variant, dtype, shape, layout, device, arguments, out, plan)


def _planned(operator: Operator, arguments: Arguments, layout: str) -> tuple[Any, Plan]:
    """A place for the result, and the plan that writes there; raises what the operator refuses."""
    product = product_of(operator, None)
    sound = planned(operator, arguments, product)
    if operator.output.in_place:
        return arguments[operator.output.python_name], sound.plan
    model = next(value for value in arguments.values() if is_array(value))
    outputs = [allocate_like(model, *spec)[0] for spec in sound.outputs.values()]
    if layout in _OUTPUTS:
        outputs = [_OUTPUTS[layout](output) for output in outputs]
        into = arguments | {"out": _as_out(operator, outputs)}
        return into["out"], planned(operator, into, product).plan
    return _as_out(operator, outputs), sound.plan


def _as_out(operator: Operator, outputs: Sequence[Any]) -> Any:
    """Outputs as `out=` takes them."""
    return outputs[0] if operator.result_type is None else tuple(outputs)


def bytes_moved(plan: Plan, line: int = 1) -> int:
    """What any implementation must move: each input's distinct bytes once, and the output's."""
    return sum(_distinct(plan, operand, line) for operand in plan.operands)


def _distinct(plan: Plan, operand: Operand, line: int) -> int:
    axes = [*zip(plan.shape, operand.strides, strict=True), (plan.classes, operand.class_stride)]
    walked = [(size, abs(stride)) for size, stride in axes if stride and size > 1]
    nearest = min((stride for _, stride in walked), default=1) * operand.dtype.itemsize
    each = max(min(nearest, line), operand.dtype.itemsize)
    return math.prod(size for size, _ in walked) * each


def _of_last(change: Callable[[Any], Any]) -> Change:
    """The last operand of two axes or more lies otherwise."""

    def changed(arguments: Arguments, read: list[str]) -> Arguments | None:
        last = _wide(arguments, read)[-1:]
        return arguments | {name: change(arguments[name]) for name in last} if last else None

    return changed


def _of_all(change: Callable[[Any], Any]) -> Change:
    """So do all of several elements."""

    def changed(arguments: Arguments, read: list[str]) -> Arguments:
        long = [name for name in read if math.prod(arguments[name].shape) > 1]
        return arguments | {name: change(arguments[name]) for name in long}

    return changed


def _wide(arguments: Arguments, read: list[str]) -> list[str]:
    return [name for name in read if arguments[name].ndim >= 2]


def outer(arguments: Arguments, names: Sequence[str]) -> Arguments | None:
    """The last of these operands is a row and the others are columns."""
    if not names:
        return None
    *columns, row = names
    return (
        arguments | {name: arguments[name][:, :1] for name in columns} | {row: arguments[row][:1]}
    )


def with_gaps(array: Any, step: int, behind: int = 0) -> Any:
    """The array in larger memory: a step along the last axis, and more behind each row."""
    length = array.shape[-1] * step
    memory = empty_like(array, (*array.shape[:-1], length + behind))
    return _filled(memory[..., :length:step], array)


def _one_in(array: Any) -> Any:
    """One element into its memory."""
    memory = empty_like(array, (math.prod(array.shape) + 1,))
    return _filled(memory[1:].reshape(array.shape), array)


def _swapped(array: Any) -> Any:
    """With the last two axes, if there are two, swapped in memory."""
    if array.ndim < 2:
        return array
    memory = empty_like(array, (*array.shape[:-2], array.shape[-1], array.shape[-2]))
    return _filled(memory.swapaxes(-1, -2), array)


def _filled(view: Any, array: Any) -> Any:
    view[...] = array
    return view


LAYOUTS: dict[str, Change | None] = {
    "contiguous": None,
    "transposed": _of_last(_swapped),
    "output transposed": None,
    "sliced": _of_all(lambda array: with_gaps(array, 2)),
    "broadcast": _of_last(lambda array: array[:1]),
    "outer": lambda arguments, read: outer(arguments, _wide(arguments, read)[-2:]),
    "shifted": _of_all(_one_in),
}
_OUTPUTS: dict[str, Callable[[Any], Any]] = {"shifted": _one_in, "output transposed": _swapped}
"""How outputs lie in layouts that say so."""


def empty_like(array: Any, shape: tuple[int, ...]) -> Any:
    """Memory of the same kind and dtype, every page touched."""
    if isinstance(array, np.ndarray):
        return np.ones(shape, array.dtype)
    return array.new_ones(shape)


def is_array(value: Any) -> bool:
    """Whether an argument is a tensor, of NumPy or of torch."""
    return hasattr(value, "shape") and hasattr(value, "ndim")


def load_torch() -> Any:
    """torch, or None where it is not installed: the runner then times ours and a copy."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        return None


def torch_objection() -> str:
    """Why `openaclnn.torch` cannot be timed; "" where it can."""
    try:
        importlib.import_module("openaclnn.torch")
    except ImportError as error:
        return str(error)
    return ""


def to_torch(torch: Any, value: Any) -> Any:
    """An array's memory as a torch tensor, anything else as it is; NumPy's bfloat16 goes through int16, as torch does not know it."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.name == "bfloat16":
        return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(value)
