"""How an operator is declared. Everything that users see of an operator derives from one `Operator`.

Modules of `openaclnn.operators` declare and `register` operators. Import the complete `registry` from that package, which loads all families first.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType
from typing import Any

import numpy as np

from openaclnn.core.call import AUTO, Call, bind_plain, plain_arguments, product_of
from openaclnn.core.checks import Check, Outcome, numbered
from openaclnn.core.dtypes import DType, float_of
from openaclnn.core.interface import REQUIRED, Interface, Kind, Parameter
from openaclnn.core.interop import view_memory
from openaclnn.core.plan import Plan
from openaclnn.core.products import FAMILIES, PRODUCTS
from openaclnn.core.status import AclnnError, Status
from openaclnn.core.tensor import Scalar, Tensor

OutputSpec = tuple[tuple[int, ...], DType]
"""The shape and dtype of an output that the caller left to us."""


def like(name: str) -> Callable[[Call], OutputSpec]:
    """`Operator.result` for an operator whose output has the shape and dtype of the tensor of this name."""
    return lambda call: (call.tensor(name).shape, call.tensor(name).dtype)


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


@dataclass(frozen=True)
class Gradient:
    """Which operator computes the derivative of an operator (the forward) by its first tensor, for PyTorch's autograd.

    Each of its parameters takes the forward's argument of the same name, or the input or output that `sources` names. A parameter
    that the forward lacks takes its default.
    """

    operator: str  # the C name of the operator that computes the derivative
    sources: Mapping[str, str] = field(default_factory=dict)  # the forward's C names, by its own
    others: Mapping[str, Gradient] = field(default_factory=dict)  # derivatives by other tensors
    expanded: bool = False  # its tensors are broadcast to one shape before the call
    incoming: str = ""  # its parameter for the gradient of the forward's result; "": the first
    # By parameter: a function that computes the option from the forward's.
    converted: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Discrepancy:
    """A case in which products are known to compute something else than the document says, which we follow. The sanitizer tells users."""

    products: frozenset[str]  # their tags
    parameter: str  # the C name of the parameter that it depends on
    text: str  # a predicate, which follows the product's name
    applies: Callable[[Call], bool]
    ignored_targets: bool = False  # applies only to calls in which a target is ignoreIndex


ROW_MAJOR = "row-major"
"""`Operator.aten_traits`: PyTorch's results are row-major, whatever its inputs are."""
RESULT_CHECKED = "result checked"
"""The result is looked at, on CPUs alone: where it is not finite PyTorch computes it again, and refuses what is no probability, or has other infinities of
targets that are none."""
SHARES_CHECKED = "shares checked"
"""Targets are looked at, too, which PyTorch refuses below 0 and above 1."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Operator(Interface):
    """One operator: an interface with ordered checks, plan and float64 reference."""

    checks: tuple[Check, ...]
    # The `OutputSpec` of an omitted output; with several outputs, a tuple of one for each.
    result: Callable[[Call], Any]
    plan: Callable[[Call], Plan]
    reference: Callable[..., Any]  # computes the output in float64; several outputs in a tuple
    samples: tuple[Sample, ...] = ()
    generated: bool = False  # the vendor generates this interface: its phase two is stricter
    # Arguments that the reference takes in another form than the call: those that a product ignores, or converts first.
    seen_by_reference: Callable[[Call], dict[str, Any]] = lambda call: {}
    # Numbers of the document that are no options: plans have them as FLOAT, the reference in float64 with all digits.
    constants: tuple[float, ...] = ()
    gradient: Gradient | None = None  # if an operator of the interface computes its derivative
    discrepancies: tuple[Discrepancy, ...] = ()
    # The operator of `torch.ops.aten` that computes the same, special values included.
    aten: str = ""
    # What else is known of that one: ROW_MAJOR, RESULT_CHECKED, SHARES_CHECKED.
    aten_traits: tuple[str, ...] = ()
    module: str = ""  # the module that declares it; "": that of its reference

    def __post_init__(self) -> None:
        if all(isinstance(check, Check) for check in self.checks):  # else `register` refuses it
            object.__setattr__(self, "checks", numbered(self.checks))

    @cached_property
    def _rules(self) -> tuple[tuple[tuple[Any, Check], ...], ...]:
        """The checks that a call can break, without and with `Call.outputs_omitted`: a plain call without outputs can break neither checks about
        outputs nor those about phase one's results.
        """
        omitted = {"executor", *self.output_names}
        every = tuple([(check.broken_by, check) for check in self.checks])
        return every, tuple([rule for rule in every if rule[1].about not in omitted])

    def run_checks(self, call: Call) -> list[Outcome]:
        """The outcomes of the checks in order, up to and including the first broken one."""
        outcomes = []
        for check in self.checks:
            violation = check.broken_by(call)
            outcomes.append(Outcome(check, violation))
            if violation is not None:
                break
        return outcomes

    def first_violation(self, call: Call) -> AclnnError | None:
        """The exception for the first broken rule, or None where the call breaks none."""
        for broken_by, check in self._rules[call.outputs_omitted]:
            violation = broken_by(call)
            if violation is not None:
                return check.refusal(self.name, violation)
        return None

    def verify(self, call: Call) -> None:
        """Raise the exception for the first broken rule, if there is one."""
        error = self.first_violation(call)
        if error is not None:
            raise error

    def null_violation(self, call: Call) -> AclnnError | None:
        """The exception for a broken rule about null, which stand before all others; tensors of the call need not be bound."""
        for check in self.checks:
            if check.status != Status.ACLNN_ERR_PARAM_NULLPTR:
                break
            violation = check.broken_by(call)
            if violation is not None:
                return check.refusal(self.name, violation)
        return None

    def oracle(self, /, *args: Any, **kwargs: Any) -> Any:
        """The float64 reference for the same arguments as the plain call (`out` is checked, but not written)."""
        answer = self.reference(**self.reference_arguments(*args, copied=False, **kwargs))
        return answer if self.result_type is None else self.result_type(*answer)

    def reference_arguments(
        self, /, *args: Any, product: Any = None, copied: bool = True, **kwargs: Any
    ) -> dict[str, Any]:
        """A plain call's arguments as the reference takes them; AclnnError where the plain call would raise it.

        Tensors' values are copied; with `copied=False`, the caller's NumPy arrays are taken as they are.
        """
        profile = product_of(self, product)
        named = plain_arguments(self, args, kwargs)
        call = bind_plain(self, named, profile)
        self.verify(call)
        arguments = _reference_arguments(call, {} if copied else named)
        arguments |= self.seen_by_reference(call)
        self.outline(call)
        plan = self.plan(call)
        if plan.targets >= 0:
            error = stray_target(plan, call.tensor(plan.inputs[plan.targets].parameter))
            if error is not None:
                raise error
        return arguments

    def results(self, call: Call) -> tuple[OutputSpec, ...]:
        """Shape and dtype of each output where the caller gives none."""
        outputs = self.result(call)
        return (outputs,) if self.result_type is None else outputs

    def outline(self, call: Call, device: str = "cpu") -> None:
        """Put a tensor with shape and dtype, but without memory, in the place of each output that the caller left to us."""
        values = call.values
        for name, (shape, dtype) in zip(self.output_names, self.results(call), strict=True):
            if values[name] is AUTO:
                values[name] = Tensor.view(shape, dtype, None, 0, None, device)

    def describe(self) -> str:
        """Prototypes, formula, parameters and ordered checks as text."""
        lines = [self.name, self.summary, "", *(f"{text};" for text in self.prototypes()), ""]
        lines += [f"Python: {self.signature()}", "", self.formula, "", "Parameters:"]
        for parameter in self.parameters:
            dtypes = ", ".join(dtype.name for dtype in parameter.dtypes)
            notes = "; ".join(part for part in (parameter.text, parameter.shape, dtypes) if part)
            optional = " (may be null)" if parameter.optional else ""
            lines.append(f"  {parameter.declaration}{optional}: {notes}")
        lines += ["", "Checks, in order:"]
        lines += [
            f"  {check.number:>3}  {int(check.status)}  {check.rule}" for check in self.checks
        ]
        return "\n".join(lines)

    @property
    def home(self) -> str:
        """The name of the module that declares the operator."""
        return self.module or self.reference.__module__

    @property
    def workloads(self) -> Any:
        """Benchmark problems and PyTorch peers: the module `workloads/<name>.py` beside the declaring `<name>.py`, or its attribute of the
        operator's Python name."""
        package, _, name = self.home.rpartition(".")
        module = importlib.import_module(f"{package}.workloads.{name}")
        return getattr(module, self.python_name, module)

    def __repr__(self) -> str:
        return f"<Operator {self.name}>"


_operators: dict[str, Operator] = {}


def register(operator: Operator) -> Operator:
    """Add an operator to the registry, which every interface iterates; TypeError lists all faults of the declaration."""
    faults = _faults(operator)
    known = _operators.get(operator.name)
    if known is not None and known.home != operator.home:
        faults.append(f"name: expected one of its own, got that of {known.home}")
    if faults:
        raise TypeError("\n  ".join([f"the declaration of {operator.name}:", *faults]))
    _operators[operator.name] = operator
    return operator


def registry() -> tuple[Operator, ...]:
    """All operators, in the order of their declaration."""
    return tuple(_operators.values())


def _reference_arguments(call: Call, named: Mapping[str, Any]) -> dict[str, Any]:
    """A bound call's arguments as the reference takes them: arrays in their own dtype, numbers as FLOAT holds them.

    `named` has arguments of the plain call by Python name: NumPy arrays among them are taken as they are, other tensors' values are copied.
    """
    arguments: dict[str, Any] = {}
    for parameter in call.operator.parameters:
        value = call[parameter.name]
        if parameter.kind is Kind.OUTPUT and not parameter.in_place:
            continue
        if parameter.is_tensor:
            array = named.get(parameter.python_name)
            if isinstance(array, np.ndarray):
                value = array
            else:
                value = _array(call, parameter.name, value) if isinstance(value, Tensor) else None
        elif parameter.choices:
            value = call.reduction
        elif isinstance(value, Scalar):
            value = value.float32()
        elif parameter.kind is Kind.DOUBLE:
            value = float_of(value)
        arguments[parameter.python_name] = value
    return arguments


def _array(call: Call, name: str, tensor: Tensor) -> np.ndarray[Any, Any]:
    """A copy of a tensor's values."""
    if tensor.device != "cpu" or tensor.raw:
        got = "memory known by its address alone" if tensor.raw else tensor.device
        raise AclnnError(
            Status.ACLNN_ERR_PARAM_INVALID, call.operator.name, name, "an array in CPU memory", got
        )
    return view_memory(tensor).copy()


def stray_target(plan: Plan, tensor: Tensor) -> AclnnError | None:
    """The exception for the first class index that is neither in range nor ignored, or None; it says where the index stands."""
    target = view_memory(tensor).astype(np.int64)
    ignored = plan.numbers["ignore_index"]
    bad = ((target < 0) | (target >= plan.classes)) & (target != ignored)
    if not bad.any():
        return None
    place = tuple(int(index) for index in np.argwhere(bad)[0])
    return AclnnError(
        Status.ACLNN_ERR_PARAM_INVALID, plan.operator, plan.inputs[plan.targets].parameter,
        f"class indices in [0, {plan.classes}) or ignoreIndex {ignored}",
        f"{target[place]} at {place}",
    )  # fmt: skip


_FORMULAS = ".engines.formulas."
_TAGS = frozenset(family.tag for family in FAMILIES)


def _faults(operator: Operator) -> list[str]:
    """All faults of a declaration in its order: where each stands, what is expected and what is there. Uses of names are looked at only if the names
    are right.
    """
    for stage in (
        (_faults_of_parts,),
        (_faults_of_names, _faults_of_parameters),
        (_faults_of_uses,),
    ):
        if faults := [fault for part in stage for fault in part(operator)]:
            return faults
    return []


def _faults_of_parts(operator: Operator) -> Iterator[str]:
    parts_by_kind: dict[type[Any], tuple[str, Any]] = {
        Parameter: ("parameters", operator.parameters), Check: ("checks", operator.checks),
    }  # fmt: skip
    for kind, (what, parts) in parts_by_kind.items():
        if not isinstance(parts, tuple):
            yield f"{what}: expected a tuple, got {type(parts).__name__}"
            continue
        for number, part in enumerate(parts):
            if not isinstance(part, kind):
                yield f"{what}[{number}]: expected a {kind.__name__}, got {part!r}"


def _faults_of_names(operator: Operator) -> Iterator[str]:
    if not operator.name.startswith("aclnn"):
        yield f"name: expected aclnn in front, got {operator.name}"
    file = operator.home.rpartition(".")[2]
    derives_workloads = type(operator).workloads is not Operator.workloads
    # Its workloads are found by the file's name.
    if not (derives_workloads or operator.module) and file != operator.python_name:
        yield f"file: expected {operator.python_name}.py, which has its reference, got {file}.py"
    if operator.families - _TAGS:
        strange = ", ".join(sorted(operator.families - _TAGS))
        yield f"families: expected some of {', '.join(sorted(_TAGS))}, got {strange}"


def _faults_of_parameters(operator: Operator) -> Iterator[str]:
    seen: set[str] = set()
    for parameter in operator.parameters:
        where, default, choices = (
            f"parameter {parameter.name}",
            parameter.default,
            parameter.choices,
        )
        if parameter.name in seen:
            yield f"{where}: expected once, got twice"
        seen.add(parameter.name)
        if not isinstance(parameter.kind, Kind):
            yield f"{where}: kind: expected a Kind, got {parameter.kind!r}"
        elif parameter.is_tensor and not parameter.dtypes:
            yield f"{where}: dtypes: expected those that its document lists, got none"
        axis = operator.places.keys() & {parameter.axis}
        if parameter.axis and not (axis and operator[parameter.axis].is_tensor):
            yield f"{where}: axis: expected the name of a tensor, got {parameter.axis}"
        elif parameter.axis and (parameter.kind is not Kind.INT64 or choices):
            yield f"{where}: axis: expected an INT64 without choices, got {parameter.kind}"
        if choices and default is not REQUIRED and default not in choices:
            yield f"{where}: default: expected one of {', '.join(choices)}, got {default!r}"
    if not any(parameter.kind is Kind.OUTPUT for parameter in operator.parameters):
        yield "parameters: expected a Kind.OUTPUT among them, got none"


def _faults_of_uses(operator: Operator) -> Iterator[str]:
    """Faults of checks, reference and samples, which name parameters, and of the plan."""
    known = {"workspaceSize", "executor", *operator.places}
    for check in operator.checks:
        for name in check.names:
            if name not in known:
                places = ", ".join(operator.places)
                yield f"check {check.number} ({check.rule}): expected one of {places}, got {name}"
    names = {name: value for name, value in operator.plain_defaults.items() if name != "out"}
    code = operator.reference.__code__
    taken, wanted = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], (*names, "work")
    taken = getattr(operator.reference, "takes", taken)
    if {*taken} != {*wanted}:
        yield f"reference: expected the arguments {', '.join(wanted)}, got {', '.join(taken)}"
    if not isinstance(operator.samples, tuple) or not operator.samples:
        expected = "expected a tuple of at least one, the document's own first"
        yield f"samples: {expected}, got {operator.samples!r}"
    else:
        required = {name for name, default in names.items() if default is REQUIRED}
        for sample in operator.samples:
            present = sample.arguments.keys()
            for name in present - names.keys():
                yield f"sample {sample.title!r}: expected some of {', '.join(names)}, got {name}"
            for name in sorted(required - present):
                yield f"sample {sample.title!r}: expected {name}, got {', '.join(present)}"
    # A plan takes its kernel's name from a formula; a function of that package that lacks `@formula` has no such name.
    plan = operator.plan
    for name in plan.__code__.co_names if isinstance(plan, FunctionType) else ():
        function = plan.__globals__.get(name)
        if isinstance(function, FunctionType) and _FORMULAS in function.__module__:
            yield f"plan: {name} is no formula: @formula is missing"
    faults = getattr(getattr(plan, "__self__", None), "faults", None)  # a plan that can tell
    yield from () if faults is None else faults(operator)


_SHORT = {"FLOAT": "F32", "FLOAT16": "F16", "BFLOAT16": "BF16", "DOUBLE": "F64"}


@dataclass(frozen=True)
class SupportTable:
    """Which dtypes each operator computes with on each product. Print it, or read `header` and `rows`."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, operators: Iterable[Interface]) -> SupportTable:
        """The table of these operators, from their declarations."""
        rows = []
        for operator in operators:
            cells = [
                " ".join(_SHORT[dtype.name] for dtype in operator.dtypes_on(product)) or "-"
                for product in PRODUCTS
            ]
            rows.append((operator.name, *cells))
        return cls(("operator", *(product.tag for product in PRODUCTS)), tuple(rows))

    def markdown(self) -> str:
        """The table as Markdown."""
        header, *rows = self._padded()
        rule = ["-" * len(cell) for cell in header]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))

    def __str__(self) -> str:
        return "\n".join("  ".join(cells).rstrip() for cells in self._padded())

    def _padded(self) -> list[list[str]]:
        """All cells as wide as their columns."""
        lines = (self.header, *self.rows)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return [list(map(str.ljust, line, widths)) for line in lines]
