"""How operators with a class axis are declared and planned: `Rows` has each tensor's role, `declare` registers the operator. A row is
the values along the class axis at one position."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import INVALID, Check
from openaclnn.core.declare import Operator, Sample, register
from openaclnn.core.dtypes import DType
from openaclnn.core.interface import REDUCTIONS, Kind, Parameter
from openaclnn.core.plan import Free, Plan, check_free, class_plan, empty_plan, filling_plan
from openaclnn.core.status import Status
from openaclnn.core.tensor import Tensor
from openaclnn.engines.formulas.rows import ROW_FORMULAS
from openaclnn.operators.activations import ALL

Array = np.ndarray[Any, Any]
Indices = np.ndarray[Any, Any]
"""Annotates the arrays that `widened` passes to a reference as they are, not in float64."""

REDUCTION = Parameter(
    "reduction", Kind.INT64, "0 none, 1 mean, 2 sum", default="mean", choices=REDUCTIONS
)


LOSSES = "losses"
"""A role beside those of `class_plan`: "positions" where nothing is reduced, else "single"."""

ROLES = "full", "positions", "classes", "single", LOSSES


@dataclass(frozen=True)
class Rows:
    """How an operator with a class axis is planned: its kernel, the tensor whose shape the kernel runs over (`source`), and each tensor's role, in the kernel's
    order. The shapes of results follow from that, and the results for empty tensors."""

    kernel: str | Callable[[Call], str]
    source: str
    read: Mapping[str, str]
    written: Mapping[str, str]
    numbers: Callable[[Call], Mapping[str, Any]] = lambda call: {}
    free: tuple[Free, ...] = ()
    free_on_products: bool = True  # False: products have other rules for these numbers
    # Tensors that a call neither reads nor writes, beside those that are null.
    unused: Callable[[Call], Sequence[str]] = lambda call: ()
    compute: DType | str = ""  # a dtype, or the name of the tensor that has it; "": the source's
    # The class axis, or the last if there are fewer; ignored where an option numbers the axis.
    class_axis: int = 1
    fixed_classes: bool = False  # whether options depend on their number

    def _axis(self, call: Call, rank: int) -> int:
        option = call.operator.axis
        axis = min(self.class_axis, rank - 1) % rank if option is None else call.axis(option.name)
        assert axis is not None
        return axis

    @functools.cached_property
    def _reduces(self) -> bool:
        return LOSSES in self.written.values()

    @functools.cached_property
    def _roles(self) -> dict[bool, tuple[tuple[tuple[str, str], ...], ...]]:
        """The names and roles of what is read and of what is written, by whether there is a loss for each position."""
        sides = self.read.items(), self.written.items()
        losses = {True: "positions", False: "single"}
        return {
            unreduced: tuple([tuple([(name, loss if role == LOSSES else role) for name, role in side]) for side in sides])
            for unreduced, loss in losses.items()
        }  # fmt: skip

    def faults(self, operator: Operator) -> Iterator[str]:
        """What fits neither the operator's tensors nor, where that is its kernel, the row formula: asked for at registration."""
        tensors = [each.name for each in operator.parameters if each.is_tensor]
        compute = [self.compute] if isinstance(self.compute, str) and self.compute else []
        for name in dict.fromkeys([self.source, *self.read, *self.written, *compute]):
            if name not in tensors:
                yield f"plan: expected one of {', '.join(tensors)}, got {name}"
        for name, role in (*self.read.items(), *self.written.items()):
            if role not in ROLES:
                yield f"plan: {name}: expected one of {', '.join(ROLES)}, got {role}"
        formula = ROW_FORMULAS.get(self.kernel) if isinstance(self.kernel, str) else None
        if formula is None:
            return
        results = formula.graph(dict.fromkeys(formula.switches, False)).results
        axes = ["full" if "c" in result.axes else "positions" for result in results]
        sides = ("reads", self.read, formula.roles), ("writes", self.written, axes)
        for verb, ours, theirs in sides:
            own = ["positions" if role == LOSSES else role for role in ours.values()]
            if own != [*theirs]:
                yield f"plan: the row formula {formula.name} {verb} {', '.join(theirs) or 'nothing'}, got {', '.join(own) or 'nothing'}"

    def plan(self, call: Call) -> Plan:
        """The plan of a call."""
        operator, values, unused = call.operator, call.values, self.unused(call)
        source: Tensor = values[self.source]
        reduction = None if operator.reduction is None else call.reduction
        unreduced = reduction == "none" and len(source.shape) > 1
        read, written = self._roles[unreduced]
        inputs = [(name, values[name], role) for name, role in read if type(values[name]) is Tensor and name not in unused]  # fmt: skip
        outputs = [(name, values[name], role) for name, role in written if name not in unused]
        spared = [(name, values[name], role) for name, role in written if name in unused] if unused else ()  # fmt: skip
        if 0 in source.shape or True in [role == "full" and 0 in tensor.shape for _, tensor, role in inputs]:  # fmt: skip
            return self._empty_plan(call, reduction, spared)
        reduced = ""
        if self._reduces and not unreduced:
            reduced = "sum" if reduction == "none" else str(reduction)  # "none": of a single row
        kernel = self.kernel if isinstance(self.kernel, str) else self.kernel(call)
        compute = self.compute or source.dtype
        if isinstance(compute, str):
            compute = values[compute].dtype
        shape, numbers = source.shape or (1,), self.numbers(call)
        free = self.free if self.free_on_products or call.product.is_default else ()
        formula = ROW_FORMULAS.get(kernel)
        if formula is not None:
            formula.check_numbers(formula.numbers, numbers)
            check_free(free, kernel, numbers)
        # Where a class may be ignored, the tensor `target` has class indices.
        targets = [name for name, _, _ in inputs].index("target") if "ignore_index" in numbers else -1  # fmt: skip
        return class_plan(
            operator.name, kernel, compute, inputs, outputs, shape, self._axis(call, len(shape)), targets, numbers, free, reduced, spared,
            fixed_classes=self.fixed_classes,
        )  # fmt: skip

    def _empty_plan(self, call: Call, reduction: str | None, spared: Sequence[Any]) -> Plan:
        """The plan of a call with an empty tensor: a mean of no losses is NaN, a sum 0."""
        skip, name = {each for each, _, _ in spared}, call.operator.name
        fills = []
        for each, role in self.written.items():
            if each not in skip and (role == "single" or (role == LOSSES and reduction != "none")):
                number = math.nan if role == LOSSES and reduction == "mean" else 0.0
                fills.append((each, call.tensor(each), number))
        if fills:
            return filling_plan(name, *fills, spared=spared)
        first = next(iter(self.written))
        return empty_plan(name, (first, call.tensor(first)), spared)

    def shaped(self, row: str, names: Sequence[str], texts: Mapping[str, str], status: int = INVALID) -> tuple[Check, ...]:  # fmt: skip
        """Checks that tensors have the shapes that follow from their roles; `texts` has messages' texts for shapes, by role."""
        roles = {**self.read, **self.written}

        def rule(name: str) -> Check:
            role, reduced = roles[name], ((1,), ()) if name in self.written else ((), (1,))
            if role == "full":
                return checks.same_shape(row, name, self.source, status)

            def allowed(call: Call) -> tuple[tuple[int, ...], ...]:
                if role == LOSSES and call.reduction != "none":
                    return reduced
                shape = call.tensor(self.source).shape
                axis = self._axis(call, len(shape))
                return (shape[axis : axis + 1] if role == "classes" else shape[:axis] + shape[axis + 1 :],)  # fmt: skip

            return checks.shape_is(row, name, allowed, texts[role], status)

        return tuple(map(rule, names))

    def results(self, call: Call) -> Any:
        """Shapes and dtypes of omitted outputs. An output's dtype is the only one that it may have, or the source's."""
        source, specs = call.tensor(self.source), []
        full, positions = source.shape, None
        for output in call.operator.outputs:
            role = self.written[output.name]
            if role == LOSSES:
                role = "positions" if call.reduction == "none" else "single"
            if role == "positions" and positions is None:
                axis = self._axis(call, len(full) or 1)
                positions = full[:axis] + full[axis + 1 :]
            shape = full if role == "full" else () if role == "single" else positions
            specs.append((shape, output.dtypes[0] if len(output.dtypes) == 1 else source.dtype))
        return tuple(specs) if len(specs) > 1 else specs[0]


def declare(
    name: str, summary: str, formula: str, parameters: tuple[Parameter, ...], rules: Sequence[Check], plan: Rows | Callable[[Call], Plan],
    reference: Callable[..., Any], samples: Sequence[Sample], families: frozenset[str] = ALL, *, result: Callable[[Call], Any] | None = None,
    empty: tuple[str, ...] | None = None, lacking: int = Status.ACLNN_ERR_INNER_NULLPTR, **more: Any,
) -> Operator:  # fmt: skip
    """Register an operator. Its results follow from `Rows`, unless `result` says them. With `empty`, two checks are added that most documents have: first that phase one's
    pointers for results are not null, and last that the product has the operator, or else the status is `lacking`, unless one of the tensors `empty` is empty."""
    if empty is not None:
        last = checks.product_has_operator(str(int(rules[-1].row) + 1), lacking, empty)
        rules = (checks.result_pointers("0"), *rules, last)
    if isinstance(plan, Rows):
        result, plan = result or plan.results, plan.plan
    assert result is not None
    return register(
        Operator(
            name=f"aclnn{name}", summary=summary, formula=formula, parameters=parameters, families=families, checks=tuple(rules),
            result=result, plan=plan, reference=reference, samples=tuple(samples), **more,
        )
    )  # fmt: skip


def widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reference of a function of arrays and numbers: they are converted to float64, or to the dtype `work`, all but arrays annotated `Indices`. NumPy does not warn
    of infinities and NaN."""
    code, kinds = function.__code__, function.__annotations__
    names = code.co_varnames[: code.co_argcount]

    def reference(*positional: Any, work: Any = np.float64, **named: Any) -> Any:
        arguments = {**dict(zip(names, positional, strict=False)), **named}
        with np.errstate(all="ignore"):  # NumPy would warn of a signalling NaN in a conversion, too
            for name, value in arguments.items():
                if isinstance(value, np.ndarray) and not str(kinds.get(name)).startswith("Indices"):
                    arguments[name] = value.astype(work)
                elif isinstance(value, float):
                    arguments[name] = work(value)
            return function(**arguments)

    reference.__module__, reference.__doc__ = function.__module__, function.__doc__
    reference.takes = (*names, "work")  # type: ignore[attr-defined]
    return reference


def counted_targets(target: Array, classes: int, ignored: int) -> tuple[Array, Array]:
    """For references: which targets count, being classes and not ignored; and the targets' classes, 0 for those that do not count."""
    indices = target.astype(np.int64)
    counted = (indices != ignored) & (indices >= 0) & (indices < classes)
    return counted, np.where(counted, indices, 0)
