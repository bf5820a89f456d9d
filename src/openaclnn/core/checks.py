"""The checks that operators share. An operator lists them in its document's order; the first one broken decides the status.

A `Check` looks at a bound call and returns a `Violation`, or None. An output that the caller left to us (AUTO) has not been made yet
and breaks no rule. The functions here make checks: their first argument is the row of the document's table.
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
    """What a broken rule says: which parameter is at fault, what was expected of it, and what the caller passed."""

    parameter: str
    expected: str
    got: str


class Check(NamedTuple):
    """One row of an operator's check table."""

    row: str
    status: int
    rule: str
    names: tuple[str, ...]  # parameters that it looks up; () for a rule of a single operator
    broken_by: Callable[[Call], Violation | None]
    about: str = ""  # the single argument that can break the rule; "": several can
    # The row's number, with a letter where the row has several rules.
    number: str = ""

    def refusal(self, operator: str, violation: Violation) -> AclnnError:
        """The exception for a call of the operator that breaks the rule."""
        error = AclnnError(self.status, operator, *violation)
        error.rule = f"{self.number}: {self.rule}"
        return error


def numbered(checks: Iterable[Check]) -> tuple[Check, ...]:
    """The checks of an operator with their numbers: 3, or 3a, 3b, ... where the document's table says several rules in its third row."""
    checks = tuple(checks)
    counts = Counter(check.row for check in checks)
    letters = {row: iter(ascii_lowercase) for row, count in counts.items() if count > 1}
    return tuple([
        check._replace(number=check.row + next(letters[check.row]) if check.row in letters else check.row)
        for check in checks
    ])  # fmt: skip


class Outcome(NamedTuple):
    """A check that was made of a call, and the violation that it found, if any."""

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
"""What a tensor was expected to be, and what it is; None where it is as expected."""


def of_tensors(
    row: str, rule: str, which: tuple[str, ...], fault_of: Callable[[Call, Tensor], Fault], status: int = INVALID
) -> Check:  # fmt: skip
    """A rule on each of some tensors; those that are null or not made yet break none."""

    def broken_by(call: Call) -> Violation | None:
        values = call.values
        for name in which:
            tensor = values[name]
            if isinstance(tensor, Tensor):
                fault = fault_of(call, tensor)
                if fault is not None:
                    return Violation(name, *fault)
        return None

    return Check(row, status, rule, which, broken_by, which[0] if len(which) == 1 else "")


def _same(row: str, name: str, other: str, what: str, texts_of: Callable[[Any], tuple[str, str]], status: int = INVALID) -> Check:  # fmt: skip
    """A tensor has the same attribute (`what`) as another. `texts_of` writes a value for a message: as the expected one, and as the one passed."""
    value_of = attrgetter(what)

    def broken_by(call: Call) -> Violation | None:
        tensor, model = call.values[name], call.values[other]
        if not (isinstance(tensor, Tensor) and isinstance(model, Tensor)):
            return None
        value, wanted = value_of(tensor), value_of(model)
        if value == wanted:
            return None
        return Violation(name, f"{texts_of(wanted)[0]}, the {what} of {other}", texts_of(value)[1])

    return Check(row, status, f"{name} has the {what} of {other}", (name, other), broken_by, name)


def same_dtype(row: str, name: str, other: str) -> Check:
    return _same(row, name, other, "dtype", lambda dtype: (f"dtype {dtype}", dtype.name))


def same_shape(row: str, name: str, other: str, status: int = INVALID) -> Check:
    return _same(row, name, other, "shape", lambda shape: (f"shape {shape}",) * 2, status)


def same_format(row: str, name: str, other: str) -> Check:
    return _same(row, name, other, "format", lambda code: (_format_name(code),) * 2)


def dtype_in(row: str, *which: str, more: tuple[DType, ...] = (), status: int = INVALID) -> Check:
    """Tensors have one of the product's floating types, or one of `more`."""

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
    """The type that `source` says, in which results are computed, converts to that of the output."""

    def fault(call: Call, tensor: Tensor) -> Fault:
        computed = source(call)
        if computed is None or can_cast(computed, tensor.dtype):
            return None
        return f"a dtype that {computed} ({what}) converts to", tensor.dtype.name

    return of_tensors(row, f"{what} converts to the dtype of {name}", (name,), fault)


def scalar_castable(
    row: str, *which: str, to: Callable[[Call], DType | None] = lambda call: FLOAT, what: str = "FLOAT"
) -> Check:  # fmt: skip
    """Scalars that are not null convert to FLOAT, or to the dtype that `to` says."""

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
    """The rules, which calls with an empty tensor among these do not have to keep: the interface returns success before it checks them, except on
    the products `heeded_on`.
    """
    return only_if(
        lambda call: call.product.tag in heeded_on or not any(call.tensor(n).empty for n in which), *rules
    )  # fmt: skip


def only_if(holds: Callable[[Call], bool], *rules: Check) -> tuple[Check, ...]:
    """The rules, which only calls have to keep for which `holds` is true."""

    def broken_if(rule: Check) -> Callable[[Call], Violation | None]:
        return lambda call: rule.broken_by(call) if holds(call) else None

    return tuple(rule._replace(broken_by=broken_if(rule)) for rule in rules)


def element_count_is(row: str, name: str, count: Callable[[Call], int], what: str) -> Check:
    """A tensor has as many elements as `count` says; `what` is the text for that number."""

    def fault(call: Call, tensor: Tensor) -> Fault:
        wanted = count(call)
        return None if tensor.size == wanted else (f"{wanted} elements ({what})", f"{tensor.size}")

    return of_tensors(row, f"{name} has {what} elements", (name,), fault)


def one_element(row: str, name: str) -> Check:
    def fault(call: Call, tensor: Tensor) -> Fault:
        return None if tensor.size == 1 else ("one element", f"{tensor.size}")

    return of_tensors(row, f"{name} has one element", (name,), fault)


Shapes = Callable[[Call], tuple[tuple[int, ...], ...]]
"""A function of the shapes that a tensor may have in a call."""


def shape_is(row: str, name: str, wanted: Shapes, what: str, status: int = INVALID) -> Check:
    """A tensor has one of the shapes that `wanted` says; `what` is the text for them."""

    def fault(call: Call, tensor: Tensor) -> Fault:
        shapes = wanted(call)
        if tensor.shape in shapes:
            return None
        return f"shape {' or '.join(map(str, shapes))}, {what}", f"shape {tensor.shape}"

    return of_tensors(row, f"{name} has shape {what}", (name,), fault, status)


def broadcastable(row: str, *which: str) -> Check:
    """Each tensor broadcasts with those named before it."""

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
    """A tensor, if it is not null, broadcasts to the shape that `shape` says; `what` is the text for it."""

    def fault(call: Call, tensor: Tensor) -> Fault:
        target = shape(call)
        if broadcast_shapes(tensor.shape, target) == target:
            return None
        return f"a shape that broadcasts to {target}, {what}", f"shape {tensor.shape}"

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
    """Any number is a reduction, as the document has it; of words only `choices` are, which Python calls them by."""
    known = f"{', '.join(choices[:-1])} or {choices[-1]}"

    def broken_by(call: Call) -> Violation | None:
        return Violation(name, known, call[name]) if isinstance(call[name], str) else None

    return Check(row, INVALID, f"{name} is any number, or {known} in Python", (name,), broken_by)


def format_is_nd(row: str, *which: str) -> Check:
    def fault(call: Call, tensor: Tensor) -> Fault:
        return None if tensor.format == ND else ("format ND", _format_name(tensor.format))

    return of_tensors(row, f"format ND: {', '.join(which)}", which, fault)


def format_not_in(row: str, formats: frozenset[Format], *which: str) -> Check:
    """Tensors have none of these formats, which are private to products."""

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
    """A rule of a single operator about one parameter. `got` returns the text or value to show where the rule is broken, and "" where it is kept."""

    def broken_by(call: Call) -> Violation | None:
        shown = got(call)
        return Violation(name, expected, str(shown)) if shown else None

    return value_check(row, rule, broken_by, status)


def value_check(
    row: str, rule: str, broken_by: Callable[[Call], Violation | None], status: int = INVALID
) -> Check:
    """A rule of a single operator, whose function `broken_by` makes the violation."""
    return Check(row, status, rule, (), broken_by)


def product_has_operator(row: str, status: int, unless_empty: tuple[str, ...] = ()) -> Check:
    """The product has the operator; where it does not, the vendor's library fails when it looks for the kernel.

    Interfaces written by hand return success for empty tensors before they look: `unless_empty` names those.
    """

    def broken_by(call: Call) -> Violation | None:
        if call.operator.supported_on(call.product):
            return None
        if any(call.tensor(name).empty for name in unless_empty):
            return None
        tags = ", ".join(sorted(call.operator.families))
        return Violation("product", f"one that has the operator ({tags})", call.product.tag)

    return Check(row, status, "the product has the operator", unless_empty, broken_by)
