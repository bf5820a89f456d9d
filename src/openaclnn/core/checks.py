"""The rules that operators share. An operator lists them in its document's order; the first one broken decides the status.

A `Check` looks at a bound call and returns a `Violation`, or None. A tensor left to us (AUTO) has not been made yet
and breaks no rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from operator import attrgetter
from string import ascii_lowercase
from typing import Any, NamedTuple

from openaclnn.core.call import Call
from openaclnn.core.dtypes import FLOAT, DType, can_cast
from openaclnn.core.interface import Kind
from openaclnn.core.plan import broadcast_shapes
from openaclnn.core.status import AclnnError, Status
from openaclnn.core.tensor import Format, Tensor

RANK_LIMIT = 8
ND = Format.ACL_FORMAT_ND

NULL = Status.ACLNN_ERR_PARAM_NULLPTR
INVALID = Status.ACLNN_ERR_PARAM_INVALID
TILING = Status.ACLNN_ERR_INNER_TILING_ERROR


class Violation(NamedTuple):
    """What a broken rule says: which parameter, what was expected, what came."""

    parameter: str
    expected: str
    got: str


class Check(NamedTuple):
    """One row of an operator's check table."""

    row: str
    status: int
    rule: str
    names: tuple[str, ...]  # of parameters that it looks up; a rule of one operator alone says none
    broken_by: Callable[[Call], Violation | None]
    about: str = ""  # the one argument without which there is nothing to say; "": several
    # How it is called: the row's number, with a letter where the row has several rules.
    number: str = ""

    def refusal(self, operator: str, violation: Violation) -> AclnnError:
        """What a call of the operator is told that breaks the rule so."""
        error = AclnnError(self.status, operator, *violation)
        error.rule = f"{self.number}: {self.rule}"
        return error


def numbered(checks: Iterable[Check]) -> tuple[Check, ...]:
    """The checks of an operator with their numbers: 3, or 3a, 3b, ... where the document's table says several rules in its third row."""
    checks = tuple(checks)
    several = Counter(check.row for check in checks)
    letters = {row: iter(ascii_lowercase) for row, count in several.items() if count > 1}
    return tuple([
        check._replace(number=check.row + next(letters[check.row]) if check.row in letters else check.row)
        for check in checks
    ])  # fmt: skip


class Outcome(NamedTuple):
    """A check that was made, and what it found."""

    check: Check
    violation: Violation | None


def names(dtypes: Iterable[DType]) -> str:
    return ", ".join(dtype.name for dtype in dtypes)


def result_pointers(row: str, *which: str) -> Check:
    """Phase one needs somewhere to put the workspace size and the executor."""
    which = which or ("workspaceSize", "executor")

    def broken_by(call: Call) -> Violation | None:
        if call.workspace_size and call.executor:
            return None
        present = {"workspaceSize": call.workspace_size, "executor": call.executor}
        missing = next(name for name in which if not present[name])
        return Violation(missing, "a pointer", "null")

    return Check(row, NULL, f"{' and '.join(which)} are not null", which, broken_by, "executor")


def not_null(row: str, *which: str) -> Check:
    def broken_by(call: Call) -> Violation | None:
        values = call.values
        for name in which:
            if values[name] is None:
                parameter = call.operator[name]
                other = "a string" if parameter.kind is Kind.CSTRING else "a scalar"
                return Violation(name, "a tensor" if parameter.is_tensor else other, "null")
        return None

    rule = f"not null, in this order: {', '.join(which)}"
    return Check(row, NULL, rule, which, broken_by)


Fault = tuple[str, str] | None
"""What a tensor was expected to be, and what it is; None where it is that."""


def of_tensors(
    row: str, rule: str, which: tuple[str, ...], fault: Callable[[Call, Tensor], Fault], status: int = INVALID
) -> Check:  # fmt: skip
    """A rule on each of some tensors, as far as they are there."""

    def broken_by(call: Call) -> Violation | None:
        values = call.values
        for name in which:
            tensor = values[name]
            if isinstance(tensor, Tensor):
                found = fault(call, tensor)
                if found is not None:
                    return Violation(name, *found)
        return None

    return Check(row, status, rule, which, broken_by, which[0] if len(which) == 1 else "")


def _alike(row: str, name: str, other: str, what: str, told: Callable[[Any], tuple[str, str]], status: int = INVALID) -> Check:  # fmt: skip
    """A tensor has what another has; `told` has such a thing as what is expected, and as what came."""
    value_of = attrgetter(what)

    def broken_by(call: Call) -> Violation | None:
        tensor, model = call.values[name], call.values[other]
        if not (isinstance(tensor, Tensor) and isinstance(model, Tensor)):
            return None
        value, wanted = value_of(tensor), value_of(model)
        if value == wanted:
            return None
        return Violation(name, f"{told(wanted)[0]}, the {what} of {other}", told(value)[1])

    return Check(row, status, f"{name} has the {what} of {other}", (name, other), broken_by, name)


def same_dtype(row: str, name: str, other: str) -> Check:
    return _alike(row, name, other, "dtype", lambda dtype: (f"dtype {dtype}", dtype.name))


def same_shape(row: str, name: str, other: str, status: int = INVALID) -> Check:
    return _alike(row, name, other, "shape", lambda shape: (f"shape {shape}",) * 2, status)


def same_format(row: str, name: str, other: str) -> Check:
    return _alike(row, name, other, "format", lambda code: (_format_name(code),) * 2)


def dtype_in(row: str, *which: str, more: tuple[DType, ...] = (), status: int = INVALID) -> Check:
    """The product's floating types, and some more."""

    def fault(call: Call, tensor: Tensor) -> Fault:
        product = call.product
        if tensor.dtype in product.floats or tensor.dtype in more:
            return None
        return f"dtype {names((*product.floats, *more))} (product {product.tag})", tensor.dtype.name

    rule = f"the product supports the dtype of {', '.join(which)}"
    return of_tensors(row, rule, which, fault, status)


def dtype_one_of(row: str, name: str, dtypes: tuple[DType, ...]) -> Check:
    expected = f"dtype {names(dtypes)}"

    def fault(call: Call, tensor: Tensor) -> Fault:
        return None if tensor.dtype in dtypes else (expected, tensor.dtype.name)

    return of_tensors(row, f"{name} has {expected}", (name,), fault)


def castable(row: str, name: str, source: Callable[[Call], DType | None], what: str) -> Check:
    """The computed type may be written to the output."""

    def fault(call: Call, tensor: Tensor) -> Fault:
        computed = source(call)
        if computed is None or can_cast(computed, tensor.dtype):
            return None
        return f"a dtype that {computed} ({what}) converts to", tensor.dtype.name

    return of_tensors(row, f"{what} converts to the dtype of {name}", (name,), fault)


def scalar_castable(
    row: str, *which: str, to: Callable[[Call], DType | None] = lambda call: FLOAT, what: str = "FLOAT"
) -> Check:  # fmt: skip
    """Scalars that FLOAT, or another dtype, can hold, those of them that are not null."""

    def broken_by(call: Call) -> Violation | None:
        dtype = to(call) or FLOAT
        for name in which:
            scalar = call.values[name]
            if scalar is not None and not can_cast(scalar.dtype, dtype):
                return Violation(name, f"a scalar convertible to {dtype}", scalar.dtype.name)
        return None

    rule = f"convertible to {what}: {', '.join(which)}"
    return Check(row, INVALID, rule, which, broken_by)


def rank_at_most(row: str, *which: str) -> Check:
    expected = f"at most {RANK_LIMIT} dimensions"

    def fault(call: Call, tensor: Tensor) -> Fault:
        return (expected, f"{tensor.rank}") if len(tensor.shape) > RANK_LIMIT else None

    return of_tensors(row, f"{expected}: {', '.join(which)}", which, fault)


def rank_is(row: str, name: str, rank: int, status: int = INVALID) -> Check:
    expected = f"{rank} dimension{'s' if rank != 1 else ''}"

    def fault(call: Call, tensor: Tensor) -> Fault:
        shape = tensor.shape
        return None if len(shape) == rank else (expected, f"{tensor.rank}, shape {shape}")

    return of_tensors(row, f"{name} has {expected}", (name,), fault, status)


def axis_in_range(row: str, name: str, tensor: str) -> Check:
    """The tensor has the axis that a parameter numbers."""

    def broken_by(call: Call) -> Violation | None:
        if call.axis(name) is None:
            rank = len(call.tensor(tensor).shape)
            expected = f"an axis of {tensor}, {-(rank or 1)} to {(rank or 1) - 1}"
            return Violation(name, expected, str(call[name]))
        return None

    return Check(row, INVALID, f"{name} is an axis of {tensor}", (name, tensor), broken_by)


def unless_empty(
    which: tuple[str, ...], *rules: Check, heeded_on: tuple[str, ...] = ()
) -> tuple[Check, ...]:
    """Rules that a call with an empty tensor among these is not held to: its interface returns success before; but on some products
    it does not.
    """
    return only_if(
        lambda call: call.product.tag in heeded_on or not any(call.tensor(n).empty for n in which), *rules
    )  # fmt: skip


def only_if(holds: Callable[[Call], bool], *rules: Check) -> tuple[Check, ...]:
    """Rules that some calls alone are held to."""

    def broken_if(rule: Check) -> Callable[[Call], Violation | None]:
        return lambda call: rule.broken_by(call) if holds(call) else None

    return tuple(rule._replace(broken_by=broken_if(rule)) for rule in rules)


def element_count_is(row: str, name: str, count: Callable[[Call], int], what: str) -> Check:
    """As many elements as `what`, which stands for a number."""

    def fault(call: Call, tensor: Tensor) -> Fault:
        wanted = count(call)
        return None if tensor.size == wanted else (f"{wanted} elements ({what})", f"{tensor.size}")

    return of_tensors(row, f"{name} has {what} elements", (name,), fault)


def one_element(row: str, name: str) -> Check:
    def fault(call: Call, tensor: Tensor) -> Fault:
        return None if tensor.size == 1 else ("one element", f"{tensor.size}")

    return of_tensors(row, f"{name} has one element", (name,), fault)


Shapes = Callable[[Call], tuple[tuple[int, ...], ...]]
"""The shapes that a call allows a tensor."""


def shape_is(row: str, name: str, wanted: Shapes, what: str, status: int = INVALID) -> Check:
    """The shape is one of those that the call asks for."""

    def fault(call: Call, tensor: Tensor) -> Fault:
        shapes = wanted(call)
        if tensor.shape in shapes:
            return None
        return f"shape {' or '.join(map(str, shapes))}, {what}", f"shape {tensor.shape}"

    return of_tensors(row, f"{name} has shape {what}", (name,), fault, status)


def broadcastable(row: str, *which: str) -> Check:
    """Each one named must broadcast with those before it."""

    def broken_by(call: Call) -> Violation | None:
        shapes = [call.values[name].shape for name in which]
        if broadcast_shapes(*shapes) is not None:
            return None
        before = next(n for n in range(1, len(which)) if broadcast_shapes(*shapes[: n + 1]) is None)
        others = f"{broadcast_shapes(*shapes[:before])}, the shape of {', '.join(which[:before])}"
        expected = f"a shape that broadcasts with {others}"
        return Violation(which[before], expected, f"shape {shapes[before]}")

    return Check(row, INVALID, f"{', '.join(which)} broadcast", which, broken_by)


def broadcasts_to(
    row: str, name: str, shape: Callable[[Call], tuple[int, ...]], what: str
) -> Check:
    """A tensor, if there is one, stretches to a shape."""

    def fault(call: Call, tensor: Tensor) -> Fault:
        whole = shape(call)
        if broadcast_shapes(tensor.shape, whole) == whole:
            return None
        return f"a shape that broadcasts to {whole}, {what}", f"shape {tensor.shape}"

    return of_tensors(row, f"{name} broadcasts to {what}", (name,), fault)


def output_shape(row: str, name: str, inputs: tuple[str, ...]) -> Check:
    """The output has the broadcast shape of the inputs."""
    listed = ", ".join(inputs)

    def fault(call: Call, tensor: Tensor) -> Fault:
        wanted = broadcast_shapes(*[call.values[each].shape for each in inputs])
        if tensor.shape == wanted:
            return None
        return f"shape {wanted}, the broadcast of {listed}", f"shape {tensor.shape}"

    check = of_tensors(row, f"{name} has the broadcast shape of {listed}", (name,), fault)
    return check._replace(names=(name, *inputs))


def reduction_known(row: str, name: str, status: int = INVALID) -> Check:
    def broken_by(call: Call) -> Violation | None:
        if call.reduction is None:
            choices = call.operator[name].choices
            listed = ", ".join(f"{number} ({choice})" for number, choice in enumerate(choices))
            if call.operator[name].kind is Kind.CSTRING:
                listed = ", ".join(f'"{choice}"' for choice in choices)
            return Violation(name, f"one of {listed}", repr(call[name]))
        return None

    return Check(row, status, f"{name} is none, mean or sum", (name,), broken_by)


def any_reduction(row: str, name: str, choices: tuple[str, ...]) -> Check:
    """Any number is a reduction; of words those are that Python calls them by."""
    known = f"{', '.join(choices[:-1])} or {choices[-1]}"

    def broken_by(call: Call) -> Violation | None:
        return Violation(name, known, call[name]) if isinstance(call[name], str) else None

    return Check(row, INVALID, f"{name} is any number, or {known} in Python", (name,), broken_by)


def format_is_nd(row: str, *which: str) -> Check:
    def fault(call: Call, tensor: Tensor) -> Fault:
        return None if tensor.format == ND else ("format ND", _format_name(tensor.format))

    return of_tensors(row, f"format ND: {', '.join(which)}", which, fault)


def format_not_in(row: str, formats: frozenset[Format], *which: str) -> Check:
    """None of the product's private formats."""

    def fault(call: Call, tensor: Tensor) -> Fault:
        private = tensor.format in formats
        return ("a public format", _format_name(tensor.format)) if private else None

    return of_tensors(row, f"no private format: {', '.join(which)}", which, fault)


def _format_name(code: int) -> str:
    try:
        return Format(code).name.removeprefix("ACL_FORMAT_").removeprefix("ACL_")
    except ValueError:
        return f"format {code}"


def expect(
    row: str, rule: str, name: str, expected: str, got: Callable[[Call], object], status: int = INVALID
) -> Check:  # fmt: skip
    """A rule of one operator alone that a parameter is as expected: `got` says what came where it is not, and "" where it is."""

    def broken_by(call: Call) -> Violation | None:
        came = got(call)
        return Violation(name, expected, str(came)) if came else None

    return value_check(row, rule, broken_by, status)


def value_check(
    row: str, rule: str, broken_by: Callable[[Call], Violation | None], status: int = INVALID
) -> Check:
    """A rule of one operator alone, that says itself what is expected."""
    return Check(row, status, rule, (), broken_by)


def product_has_operator(row: str, status: int, unless_empty: tuple[str, ...] = ()) -> Check:
    """Families that lack the operator fail where the vendor's library looks for the kernel.

    The hand-written interfaces return success for empty tensors before they get there.
    """

    def broken_by(call: Call) -> Violation | None:
        if call.operator.supported_on(call.product):
            return None
        if any(call.tensor(name).empty for name in unless_empty):
            return None
        tags = ", ".join(sorted(call.operator.families))
        return Violation("product", f"one that has the operator ({tags})", call.product.tag)

    return Check(row, status, "the product has the operator", unless_empty, broken_by)
