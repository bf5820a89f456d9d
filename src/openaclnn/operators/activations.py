"""How elementwise activations and their gradients are declared: tensors, some numbers, a formula, and rules that families share.

The C parameters are the tensors that are read, then options, then the one tensor that is written. `declare` registers an operator, and its form
that works in place if there is one, with rules of `rules.py` in the document's order. A reference is a function of arrays and numbers in
float64, in the order of the parameters.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.declare import Operator, OutputSpec, Sample, register
from openaclnn.core.dtypes import FLOAT, FLOATS, DType, float_of
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Free, Plan, broadcast_shapes, elementwise_plan, empty_plan
from openaclnn.core.status import Status
from openaclnn.core.tensor import Scalar
from openaclnn.engines.formulas import Formula
from openaclnn.operators.rules import Rule, among, broadcast, promoted
from openaclnn.operators.workloads.words import KernelForm

ALL = frozenset({"950", "a3", "a2", "310p", "910"})
NOT_310P, NOT_910, NOT_950 = ALL - {"310p"}, ALL - {"910"}, ALL - {"950"}
NEWEST = frozenset({"950", "a3", "a2"})
"""Which product families have an operator."""

X, G = [-4.0, -1.0, 0.5, 3.0], [1.0, 2.0, 3.0, 4.0]
"""The values of samples: inputs, and gradients of outputs."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Activation(Operator):
    """An elementwise operator that `declare` made."""

    kernel: Formula
    kernels: tuple[KernelForm, ...] = ()
    # PyTorch's function of the same arguments, if it is not `aten`: its name under `torch.ops.aten`, or a function of `torch` and the arguments.
    peer: str | Callable[..., Any] = ""
    # The same function with the tensor for the result as its last argument.
    peer_into: Callable[..., Any] | None = None
    # The function's name in `torch.nn.functional` and `openaclnn.torch`, if benchmarks train models with it.
    trained: str = ""
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"plain": {}})
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    # The bounds of a call, if they depend on it.
    bounds_of: Callable[[Call], Mapping[str, tuple[float, float]]] | None = None
    domain: tuple[float, float] | None = None  # the interval that problems draw inputs from
    nonzero: tuple[str, ...] = ()  # options that may not be 0
    # Whether options that are numbers are rounded to the first tensor's dtype before anything else.
    rounds_options: bool = False

    @classmethod
    def of(cls, call: Call) -> Self:
        """The operator of a call, as an instance of this class."""
        assert isinstance(call.operator, cls)
        return call.operator

    @functools.cached_property
    def read(self) -> tuple[str, ...]:
        """The tensors that the formula takes, which stand before others."""
        return tuple(p.name for p in self.parameters if p.is_read)[: len(self.kernel.values)]

    @functools.cached_property
    def numbers(self) -> tuple[Parameter, ...]:
        """The options that are numbers of the formula."""
        names = self.kernel.numbers
        return tuple(p for p in self.parameters if not p.is_tensor and p.python_name in names)

    @functools.cached_property
    def switches(self) -> tuple[Parameter, ...]:
        """The options that are switches of the formula."""
        names = self.kernel.switches
        return tuple(p for p in self.parameters if p.kind is Kind.BOOL and p.python_name in names)

    def shape_of(
        self, name: str, shape: tuple[int, ...], options: Mapping[str, Any]
    ) -> tuple[int, ...]:
        """The shape that a tensor has where the formula runs over `shape`. For making problems and cases."""
        return shape

    @property
    def workloads(self) -> Any:
        from openaclnn.operators.workloads.activations import workload_of

        return workload_of(self)


def number(name: str, text: str, default: Any, optional: bool = False) -> Parameter:
    """A scalar parameter."""
    return Parameter(name, Kind.SCALAR, text, default=default, optional=optional)


def declare(
    name: str, summary: str, formula: str, kernel: Formula, reference: Callable[..., Any], expected: Sequence[float] | tuple[Sample, ...],
    rules: Sequence[Rule], *, inputs: Mapping[str, str] | None = None, options: Sequence[Parameter] = (), output: str = "out",
    accepts: tuple[DType, ...] = FLOATS, families: frozenset[str] = ALL, writes: tuple[DType, ...] = (), in_place: str = "",
    in_place_aten: str = "", compute: Callable[[Call], DType | None] | None = None,
    numbers: Callable[[Call], dict[str, Any]] | None = None, arguments: Mapping[str, Any] | None = None, const_output: bool = False,
    const_ref: bool = False, integers: Callable[..., Any] | None = None, scalar_type: str = "", after: tuple[Parameter, ...] = (),
    shapes: Mapping[str, str] | None = None, reads: Mapping[str, tuple[DType, ...]] | None = None, **more: Any,
) -> Activation:  # fmt: skip
    """Register an operator, and its form that works in place if `in_place` names the tensor of that form.

    `inputs` says what each tensor is; by default there is one, `self`. `shapes` are texts for tensors whose shape is not the first's, and `reads` has further
    dtypes that tensors may have beside `accepts`, if they are only read. `expected` is a tuple of samples, or the result of a single sample with
    inputs X, or G and X, and with `arguments` in place of these or beside them. The output has the dtypes `writes`, or else `accepts`. `integers` is the
    reference for integer tensors, where results are not those of `reference` truncated.
    """
    inputs = {"self": "what the function is applied to"} if inputs is None else inputs
    broadcasts = among(broadcast, rules)
    shape = "broadcasts with the others" if broadcasts else f"same as {next(iter(inputs))}"
    shapes = {next(iter(inputs)): "0 to 8 dimensions"} | dict(shapes or {})
    tensors = [
        Parameter(
            each,
            Kind.TENSOR,
            text,
            shapes.get(each, shape),
            (*accepts, *(reads or {}).get(each, ())),
        )
        for each, text in inputs.items()
    ]
    text = "gradient of the input" if re.search("Backward|Grad", name) else "the result"
    c_type, ref_type = ("const aclTensor *" if const else "" for const in (const_output, const_ref))
    written = Parameter(
        output, Kind.OUTPUT, text, shapes.get(output, "the broadcast shape" if broadcasts else shape), writes or accepts,
        c_type=c_type,
    )  # fmt: skip
    options = [replace(p, c_type=scalar_type) if scalar_type else p for p in options]
    samples: Sequence[Any] = expected
    if not isinstance(expected[0], Sample):
        values: list[Any] = [G, X] if len(inputs) > 1 else [X]
        drawn = {p.python_name: (FLOAT, v) for p, v in zip(tensors, values, strict=False)}
        answer = expected if isinstance(expected, tuple) else list(expected)
        samples = [Sample("worked values", drawn | dict(arguments or {}), answer)]
    operator = elementwise_operator(
        f"aclnn{name}", summary, formula, kernel, reference, (*tensors, *options, written, *after), rules, families, compute, numbers, integers,
        samples=tuple(samples), **more,
    )  # fmt: skip
    if in_place:
        (first, *others) = tensors
        ref = replace(
            first, name=in_place, kind=Kind.OUTPUT, text=f"{first.text}, and the result", dtypes=accepts, in_place=True, c_type=ref_type,
        )  # fmt: skip
        names = {first.python_name: ref.python_name}
        elementwise_operator(
            f"aclnnInplace{name}", f"{summary.removesuffix('.')}, written over its input.", _in_place_formula(formula, first.name, output, in_place),
            kernel, reference, (ref, *others, *options), rules, families, compute, numbers, integers,
            samples=tuple(
                replace(each, arguments={names.get(key, key): value for key, value in each.arguments.items()}) for each in samples
            ),
            **{**more, **_not_in_place(in_place_aten, **more)},
        )  # fmt: skip
    return operator


def _not_in_place(
    in_place_aten: str, peer: Any = "", aten: str = "", **more: Any
) -> dict[str, Any]:
    """The fields in which the form that works in place differs."""
    other = {"kernels": (), "gradient": None, "trained": "", "aten": in_place_aten}
    return {**other, "peer": peer or aten}


def _in_place_formula(formula: str, read: str, written: str, name: str) -> str:
    words = {read: name, written: name}
    return re.sub(rf"\b({re.escape(read)}|{re.escape(written)})\b", lambda m: words[m[0]], formula)


def elementwise_operator(
    name: str, summary: str, formula: str, kernel: Formula, reference: Callable[..., Any], parameters: tuple[Parameter, ...],
    rules: Sequence[Rule], families: frozenset[str], compute: Callable[[Call], DType | None] | None,
    numbers: Callable[[Call], dict[str, Any]] | None, integers: Callable[..., Any] | None = None, **more: Any,
) -> Activation:  # fmt: skip
    """Register an operator of these parameters. With `no_interface` it is none of the aclnn interface, and is not registered."""
    if more.get("rounds_options"):
        numbers = more["seen_by_reference"] = _rounded
    cls, result, plan, inner = (more.pop(name, None) for name in ("kind", "result", "plan", "no_interface"))  # fmt: skip
    operator: Activation = (cls or Activation)(
        name=name, summary=summary, formula=formula, parameters=parameters, families=families, checks=(), result=result or _result,
        plan=plan or (lambda call: plan_of(call, compute, numbers)), reference=reference, kernel=kernel,
        module=reference.__module__, **more,
    )  # fmt: skip
    computed = reference_of(reference, parameters, integers)
    if inner:
        rows = [check for number, rule in enumerate(rules, 1) for check in rule(operator, str(number))]  # fmt: skip
        return replace(operator, checks=tuple(rows), reference=computed)
    return enter(operator, rules, computed, operator.read)


def enter(
    operator: Activation,
    rules: Sequence[Rule],
    reference: Callable[..., Any],
    empty: tuple[str, ...],
) -> Activation:
    """Register an operator with the checks that its rules make. The last check is that the product has the operator, unless one of the tensors
    `empty` is empty; in a generated interface, the rules say where that check stands."""
    rows = [checks.result_pointers("0")]
    for rule in rules:
        row = str(int(rows[-1].row) + 1)
        rows += rule(operator, row)
    if not operator.generated:
        last = str(int(rows[-1].row) + 1)
        rows.append(checks.product_has_operator(last, Status.ACLNN_ERR_INNER_NULLPTR, empty))
    operator = replace(operator, checks=tuple(rows), reference=reference)
    register(operator)
    return operator


def _result(call: Call) -> OutputSpec:
    """The shape and dtype of an omitted output; FLOAT in place of an integer dtype that the output may not have."""
    operator = Activation.of(call)
    shapes, dtype = [call.values[name].shape for name in operator.read], promoted(call)
    shape = broadcast_shapes(*shapes)
    if shape is None:  # some operators do not check that empty tensors broadcast
        shape = next(shape for shape in shapes if 0 in shape)
    assert dtype is not None
    is_number = dtype.kind in ("floating", "complex") or dtype in operator.output.dtypes
    return shape, dtype if is_number else FLOAT


def plan_of(
    call: Call,
    compute: Callable[[Call], DType | None] | None = None,
    numbers: Callable[[Call], dict[str, Any]] | None = None,
) -> Plan:
    """The plan of an operator's formula. `compute` says the dtype to compute in, `numbers` those that are not options."""
    operator, values = Activation.of(call), call.values
    written = operator.output.name, values[operator.output.name]
    if any(values[name].empty for name in operator.read):
        return empty_plan(operator.name, written)
    taken, free = numbers_of(call, numbers(call) if numbers else {})
    dtype = compute(call) if compute else values[operator.read[0]].dtype
    assert dtype is not None
    return elementwise_plan(
        operator.name, operator.kernel.name, dtype, [(name, values[name]) for name in operator.read], written, taken, free=free
    )  # fmt: skip


def numbers_of(call: Call, known: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Free, ...]]:
    """The numbers and switches that the formula takes: those that are `known`, and options of the same names; and which of them the next call
    may change: options, and of known numbers those that are options rounded to a floating dtype."""
    operator = Activation.of(call)
    bounds = operator.bounds_of(call) if operator.bounds_of else operator.bounds
    values, taken, free = call.values, dict(known), []
    held = _held(call) if operator.rounds_options else FLOAT
    for parameter in operator.numbers:
        name, option = parameter.name, parameter.python_name
        if option not in taken:
            taken[option] = number_of(values[name], parameter)
        elif held is FLOAT or held.kind != "floating":
            continue
        free.append(_free(option, name in operator.nonzero, *bounds.get(name, ()), held=held))
    for parameter in operator.switches:
        taken[parameter.python_name] = bool(values[parameter.name])
    # In the formula's order, since engines key kernels by the values of numbers, without names.
    order = operator.kernel.numbers + operator.kernel.switches
    if order != tuple(taken):
        taken = {name: taken[name] for name in order if name in taken} | taken
    return taken, tuple(free)


@functools.cache
def _free(option: str, nonzero: bool, low: float = -math.inf, high: float = math.inf, held: DType = FLOAT) -> Free:  # fmt: skip
    """The same object for all calls, so that engines find the kernels that they made."""
    return Free(option, low=low, high=high, keeps_zero=nonzero, held=held)


def _held(call: Call) -> DType:
    """The first tensor's dtype."""
    return call.tensor(Activation.of(call).read[0]).dtype


def _rounded(call: Call) -> dict[str, Any]:
    """The formula's numbers as that dtype holds them; none for FLOAT, in which numbers are read anyway."""
    dtype = _held(call)
    if dtype is FLOAT:
        return {}
    return {p.python_name: call[p.name].held_by(dtype) for p in Activation.of(call).numbers}


def number_of(value: Any, parameter: Parameter) -> float:
    """An option's value as FLOAT holds it; the default for null."""
    if value is None:
        return float(parameter.default)
    return value.float32() if isinstance(value, Scalar) else float_of(value)


def reference_of(
    function: Callable[..., Any], parameters: tuple[Parameter, ...], integers: Callable[..., Any] | None = None
) -> Callable[..., Any]:  # fmt: skip
    """An operator's reference, which takes arguments by name and `work`, the dtype to compute in, of a function that takes them in order. If all arrays are
    of integers, the function `integers` gets them as they are."""
    names = [p.python_name for p in parameters if p.kind is not Kind.OUTPUT or p.in_place]
    options = {p.python_name: p for p in parameters if not p.is_tensor}

    def reference(work: Any = np.float64, **named: Any) -> Any:
        arguments = []
        is_integer = integers and all(x.dtype.kind in "iu" for x in named.values() if isinstance(x, np.ndarray))  # fmt: skip
        for name in names:
            value = named.get(name)
            if value is None and name in options:
                value = options[name].default
            if isinstance(value, np.ndarray) and not is_integer:
                value = value.astype(
                    np.result_type(work, value) if value.dtype.kind == "c" else work
                )
            elif isinstance(value, float):
                value = work(value)
            arguments.append(value)
        with np.errstate(all="ignore"):
            answer = (integers if integers and is_integer else function)(*arguments)
        return answer if isinstance(answer, tuple) else np.asarray(answer)

    reference.takes = (*names, "work")  # type: ignore[attr-defined]
    reference.__module__ = function.__module__
    return reference
