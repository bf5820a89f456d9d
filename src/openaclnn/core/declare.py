"""How an operator is declared. Everything that users see of an operator derives from one `Operator`.

The registry is filled by `openaclnn.operators`; who needs it full imports it from there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from openaclnn.core.call import AUTO, Call, bind_plain, plain_arguments, product_of
from openaclnn.core.describe import describe
from openaclnn.core.dtypes import DType
from openaclnn.core.faults import faults
from openaclnn.core.interface import Interface
from openaclnn.core.oracle import reference_arguments, stray_target
from openaclnn.core.outcome import Check, Outcome
from openaclnn.core.plan import Plan
from openaclnn.core.status import AclnnError, Status
from openaclnn.core.tensor import Tensor

__all__ = [
    "Made", "Operator", "Sample", "find_operator", "operators_by_kernel", "register", "registry",
]  # fmt: skip

Made = tuple[tuple[int, ...], DType]
"""The shape and dtype of an output that is made for the caller."""


@dataclass(frozen=True)
class Sample:
    """A call with a known answer, computed in FLOAT. An operator's first is its document's own example: `openaclnn
    demo` shows it, and tests take it through both phases and through C.

    Tests hold the reference to `expected`, and results to a few units in the last place of FLOAT.
    """

    title: str  # for people
    arguments: Mapping[str, Any]  # of the plain call; tensors as (dtype, nested list)
    expected: Any  # for the arguments as they are written, to 12 decimals or all digits; of several, a tuple
    exact: bool = False  # FLOAT arguments give `expected` exactly: results must have its bits

    def arrays(self) -> dict[str, Any]:
        """The arguments with `(dtype, nested list)` pairs made into arrays."""
        return {
            name: np.asarray(value[1], dtype=value[0].numpy) if isinstance(value, tuple) else value
            for name, value in self.arguments.items()
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Operator(Interface):
    """One operator: an interface with ordered checks, plan and float64 reference."""

    checks: tuple[Check, ...]
    result: Callable[[Call], Any]  # a `Made` for an omitted output; of several, a tuple of those
    plan: Callable[[Call], Plan]
    reference: Callable[..., Any]  # the output in float64; of several, a tuple
    samples: tuple[Sample, ...] = ()
    generated: bool = False  # the vendor generates this interface: its phase two is stricter
    # What a product accepts without effect, as the reference is to see it.
    unheeded: Callable[[Call], dict[str, Any]] = lambda call: {}

    @cached_property
    def _rules(self) -> tuple[tuple[tuple[Any, Check], ...], ...]:
        """The checks that a call can break; where all outputs are left to us, not those about outputs, nor about phase one's results,
        which are left to us then, too.
        """
        left = {"executor", *self.output_names}
        every = tuple([(check.broken_by, check) for check in self.checks])
        return every, tuple([rule for rule in every if rule[1].about not in left])

    def run_checks(self, call: Call) -> list[Outcome]:
        """Make the checks in order, up to and including the first broken one."""
        outcomes = []
        for check in self.checks:
            violation = check.broken_by(call)
            outcomes.append(Outcome(check, violation))
            if violation is not None:
                break
        return outcomes

    def first_violation(self, call: Call) -> AclnnError | None:
        """The refusal that the first broken rule asks for, or None for a sound call."""
        for broken_by, check in self._rules[call.all_left]:
            violation = broken_by(call)
            if violation is not None:
                return check.refusal(self.name, violation)
        return None

    def null_violation(self, call: Call) -> AclnnError | None:
        """The refusal that the rules about null ask for, which stand before all others; the call may be unbound."""
        for check in self.checks:
            if check.status != Status.ACLNN_ERR_PARAM_NULLPTR:
                break
            violation = check.broken_by(call)
            if violation is not None:
                return check.refusal(self.name, violation)
        return None

    def oracle(self, /, *args: Any, **kwargs: Any) -> Any:
        """The float64 reference for the same arguments as the plain call (`out` is checked, but not written)."""
        found = self.reference(**self.reference_arguments(*args, copied=False, **kwargs))
        return found if self.result_type is None else self.result_type(*found)

    def reference_arguments(
        self, /, *args: Any, product: Any = None, copied: bool = True, **kwargs: Any
    ) -> dict[str, Any]:
        """A plain call's arguments as the reference takes them; AclnnError where the plain call would raise it.

        They outlive the call's own; with `copied=False`, NumPy's arrays are those that were given.
        """
        profile = product_of(self, product)
        given = plain_arguments(self, args, kwargs)
        call = bind_plain(self, given, profile)
        error = self.first_violation(call)
        if error is not None:
            raise error
        arguments = reference_arguments(call, {} if copied else given) | self.unheeded(call)
        self.outline(call)
        plan = self.plan(call)
        if plan.targets >= 0:
            error = stray_target(plan, call.tensor(plan.inputs[plan.targets].parameter))
            if error is not None:
                raise error
        return arguments

    def results(self, call: Call) -> tuple[Made, ...]:
        """Shape and dtype of each output where the caller gives none."""
        made = self.result(call)
        return (made,) if self.result_type is None else made

    def outline(self, call: Call, device: str = "cpu") -> None:
        """Describe the outputs that are left to us in a call: they have no memory yet."""
        values = call.values
        for name, (shape, dtype) in zip(self.output_names, self.results(call), strict=True):
            if values[name] is AUTO:
                values[name] = Tensor.view(shape, dtype, None, 0, None, device)

    def describe(self) -> str:
        """Prototype, parameters, checks and formula as text."""
        return describe(self, self.checks)

    @property
    def workloads(self) -> Any:
        """Test cases, benchmark problems and PyTorch peers: `workloads/<name>.py` beside the declaring `<name>.py`."""
        package, _, name = self.reference.__module__.rpartition(".")
        return importlib.import_module(f"{package}.workloads.{name}")

    def __repr__(self) -> str:
        return f"<Operator {self.name}>"


_operators: dict[str, Operator] = {}


def register(operator: Operator) -> Operator:
    """Add an operator to the registry, which every interface iterates; TypeError says all that is wrong with it."""
    found = faults(operator, operator.checks, operator.reference, operator.samples, operator.plan)
    known = _operators.get(operator.name)
    if known is not None and known.reference.__module__ != operator.reference.__module__:
        found.append(f"name: expected one of its own, got that of {known.reference.__module__}")
    if found:
        raise TypeError("\n  ".join([f"the declaration of {operator.name}:", *found]))
    _operators[operator.name] = operator
    return operator


def registry() -> tuple[Operator, ...]:
    """All operators, in the order of their declaration."""
    return tuple(_operators.values())


def find_operator(name: str) -> Operator:
    """An operator by its name in any spelling (aclnnEluBackward, EluBackward, elu_backward), or by that of a kernel in
    case lists (elu_grad_v2); KeyError names the nearest ones, or all.
    """
    for operator in registry():
        if name in (operator.name, operator.python_name):
            return operator
    spelling = _spelling(name)
    for operator in registry():
        if spelling == _spelling(operator.name):
            return operator
    kernels = operators_by_kernel()
    for kernel, (operator, *_) in kernels.items():
        if spelling == _spelling(kernel):
            return operator
    raise KeyError(f"unknown operator {name!r}; {_known(spelling, kernels)}")


def operators_by_kernel() -> dict[str, list[Operator]]:
    """The operators by the names that case lists have for their kernels; of several above one kernel, the shortest name
    stands first.
    """
    found: dict[str, list[Operator]] = {}
    for operator in sorted(registry(), key=lambda each: len(each.name)):
        for form in getattr(operator.workloads, "KERNELS", ()):
            found.setdefault(form.name, []).append(operator)
    return found


def _spelling(name: str) -> str:
    """A name without what spellings differ in: case, underscores, and the prefix of C."""
    return name.strip().replace("_", "").lower().removeprefix("aclnn")


def _known(spelling: str, kernels: Mapping[str, list[Operator]]) -> str:
    """What to say beside a name that is not known."""
    from difflib import get_close_matches

    names = {_spelling(kernel): operators[0] for kernel, operators in kernels.items()}
    names |= {_spelling(operator.name): operator for operator in registry()}
    near = dict.fromkeys(
        names[each].python_name for each in get_close_matches(spelling, names, 3, 0.75)
    )
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"known operators: {', '.join(operator.python_name for operator in registry())}"
