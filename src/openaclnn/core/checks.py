"""The rules that operators share. An operator lists them in its document's order; the first one broken decides the status.

A `Check` looks at a bound call and returns a `Violation`, or None. A tensor left to us (AUTO) has not been made yet
and breaks no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from openaclnn.core.call import Call
from openaclnn.core.dtypes import DTYPES, FLOAT, DType, can_cast
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

    def refusal(self, operator: str, violation: Violation) -> AclnnError:
        """What a call of the operator is told that breaks the rule so."""
        error = AclnnError(self.status, operator, *violation)
        error.rule = f"{self.row}: {self.rule}"
        return error


class Outcome(NamedTuple):
    """A check that was made, and what it found."""

    check: Check
    violation: Violation | None


CONVERTIBLE = frozenset(dtype for dtype in DTYPES if can_cast(dtype, FLOAT))
"""What a scalar may be where FLOAT is computed with."""


def names(dtypes: Iterable[DType]) -> str:
    return ", ".join(dtype.name for dtype in dtypes)


def value_check(
    row: str, rule: str, broken_by: Callable[[Call], Violation | None], status: int = INVALID
) -> Check:
    """A rule of one operator alone."""
    return Check(row, status, rule, (), broken_by)


def _tensor_check(
    row: str,
    name: str,
    rule: str,
    fault: Callable[[Call, Tensor], tuple[str, str] | None],
    status: int = INVALID,
    others: tuple[str, ...] = (),
) -> Check:
    """A rule about one tensor, where there is one: `fault` says what was expected and what came, or None."""

    def broken_by(call: Call) -> Violation | None:
        tensor = call.values[name]
        broken = fault(call, tensor) if isinstance(tensor, Tensor) else None
        return None if broken is None else Violation(name, *broken)

    return Check(row, status, rule, (name, *others), broken_by, name)


def _every_tensor_check(
    row: str,
    which: tuple[str, ...],
    rule: str,
    fault: Callable[[Call, Tensor], tuple[str, str] | None],
    status: int = INVALID,
) -> Check:
    """The same about each of several tensors, in this order."""

    def broken_by(call: Call) -> Violation | None:
        for name in which:
            tensor = call.values[name]
            broken = fault(call, tensor) if isinstance(tensor, Tensor) else None
            if broken is not None:
                return Violation(name, *broken)
        return None

    return Check(row, status, f"{rule}{', '.join(which)}", which, broken_by)


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
                kind = "a tensor" if call.operator[name].is_tensor else "a scalar"
                return Violation(name, kind, "null")
        return None

    return Check(row, NULL, f"not null, in this order: {', '.join(which)}", which, broken_by)


def dtype_in(row: str, *which: str, more: tuple[DType, ...] = (), status: int = INVALID) -> Check:
    """The product's floating types, and some more."""

    def fault(call: Call, tensor: Tensor) -> tuple[str, str] | None:
        product = call.product
        if tensor.dtype in product.floats or tensor.dtype in more:
            return None
        listed = names((*product.floats, *more))
        return f"dtype {listed} (product {product.tag})", tensor.dtype.name

    return _every_tensor_check(row, which, "the product supports the dtype of ", fault, status)


def dtype_one_of(row: str, name: str, dtypes: tuple[DType, ...]) -> Check:
    expected = f"dtype {names(dtypes)}"

    def fault(call: Call, tensor: Tensor) -> tuple[str, str] | None:
        return None if tensor.dtype in dtypes else (expected, tensor.dtype.name)

    return _tensor_check(row, name, f"{name} has {expected}", fault)


def same_dtype(row: str, name: str, other: str) -> Check:
    def fault(call: Call, tensor: Tensor) -> tuple[str, str] | None:
        model = call.values[other]
        if not isinstance(model, Tensor) or tensor.dtype is model.dtype:
            return None
        return f"dtype {model.dtype}, the dtype of {other}", tensor.dtype.name

    return _tensor_check(row, name, f"{name} has the dtype of {other}", fault, others=(other,))


def scalar_castable(row: str, *which: str) -> Check:
    def broken_by(call: Call) -> Violation | None:
        for name in which:
            dtype = call.values[name].dtype
            if dtype not in CONVERTIBLE:
                return Violation(name, "a scalar convertible to FLOAT", dtype.name)
        return None

    return Check(row, INVALID, f"convertible to FLOAT: {', '.join(which)}", which, broken_by)


def castable(row: str, name: str, source: Callable[[Call], DType | None], what: str) -> Check:
    """The computed type may be written to the output."""

    def fault(call: Call, tensor: Tensor) -> tuple[str, str] | None:
        computed = source(call)
        if computed is None or can_cast(computed, tensor.dtype):
            return None
        return f"a dtype that {computed} ({what}) converts to", tensor.dtype.name

    return _tensor_check(row, name, f"{what} converts to the dtype of {name}", fault)


def same_shape(row: str, name: str, other: str, status: int = INVALID) -> Check:
    def fault(call: Call, tensor: Tensor) -> tuple[str, str] | None:
        model = call.values[other]
        if not isinstance(model, Tensor) or tensor.shape == model.shape:
            return None
        return f"shape {model.shape}, the shape of {other}", f"shape {tensor.shape}"

    return _tensor_check(row, name, f"{name} has the shape of {other}", fault, status, (other,))


def rank_at_most(row: str, *which: str) -> Check:
    expected = f"at most {RANK_LIMIT} dimensions"

    def fault(call: Call, tensor: Tensor) -> tuple[str, str] | None:
        return None if len(tensor.shape) <= RANK_LIMIT else (expected, f"{tensor.rank}")

    return _every_tensor_check(row, which, f"{expected}: ", fault)


def rank_is(row: str, name: str, rank: int, status: int = INVALID) -> Check:
    def fault(call: Call, tensor: Tensor) -> tuple[str, str] | None:
        if len(tensor.shape) == rank:
            return None
        return f"{rank} dimensions", f"{tensor.rank}, shape {tensor.shape}"

    return _tensor_check(row, name, f"{name} has {rank} dimensions", fault, status)


def element_count_is(row: str, name: str, count: Callable[[Call], int], what: str) -> Check:
    """As many elements as `what`, which stands for a number."""

    def fault(call: Call, tensor: Tensor) -> tuple[str, str] | None:
        wanted = count(call)
        return None if tensor.size == wanted else (f"{wanted} elements ({what})", f"{tensor.size}")

    return _tensor_check(row, name, f"{name} has {what} elements", fault)


def one_element(row: str, name: str) -> Check:
    def fault(call: Call, tensor: Tensor) -> tuple[str, str] | None:
        return None if tensor.size == 1 else ("one element", f"{tensor.size}")

    return _tensor_check(row, name, f"{name} has one element", fault)


def shape_is(
    row: str,
    name: str,
    wanted: Callable[[Call], tuple[tuple[int, ...], ...]],
    what: str,
    status: int = INVALID,
) -> Check:
    """The shape is one of those that the call asks for."""

    def fault(call: Call, tensor: Tensor) -> tuple[str, str] | None:
        shapes = wanted(call)
        if tensor.shape in shapes:
            return None
        return f"shape {' or '.join(map(str, shapes))}, {what}", f"shape {tensor.shape}"

    return _tensor_check(row, name, f"{name} has shape {what}", fault, status)


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


def output_shape(row: str, name: str, inputs: tuple[str, ...]) -> Check:
    """The output has the broadcast shape of the inputs."""
    listed = ", ".join(inputs)

    def fault(call: Call, tensor: Tensor) -> tuple[str, str] | None:
        wanted = broadcast_shapes(*[call.values[each].shape for each in inputs])
        if tensor.shape == wanted:
            return None
        return f"shape {wanted}, the broadcast of {listed}", f"shape {tensor.shape}"

    rule = f"{name} has the broadcast shape of {listed}"
    return _tensor_check(row, name, rule, fault, others=inputs)


def reduction_known(row: str, name: str, status: int = INVALID) -> Check:
    def broken_by(call: Call) -> Violation | None:
        if call.reduction is not None:
            return None
        choices = call.operator[name].choices
        listed = ", ".join(f"{number} ({choice})" for number, choice in enumerate(choices))
        if call.operator[name].kind is Kind.CSTRING:
            listed = ", ".join(f'"{choice}"' for choice in choices)
        return Violation(name, f"one of {listed}", repr(call[name]))

    return Check(row, status, f"{name} is none, mean or sum", (name,), broken_by)


def format_is_nd(row: str, *which: str) -> Check:
    def fault(call: Call, tensor: Tensor) -> tuple[str, str] | None:
        return None if tensor.format == ND else ("format ND", _format_name(tensor.format))

    return _every_tensor_check(row, which, "format ND: ", fault)


def _format_name(code: int) -> str:
    try:
        return Format(code).name.removeprefix("ACL_FORMAT_").removeprefix("ACL_")
    except ValueError:
        return f"format {code}"


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
