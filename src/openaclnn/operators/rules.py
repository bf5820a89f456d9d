"""Rules of elementwise operators and losses, in their documents' terms. A rule is a function of an operator and a row's number, and returns that row's
checks (`core/checks.py`); declarations list rules in the document's order.

Rules name the tensors of the form with an output of its own; for the form that works in place, names that it lacks stand for its one tensor.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import INVALID, Check, Violation
from openaclnn.core.dtypes import DType, promote
from openaclnn.core.interface import Kind
from openaclnn.core.plan import broadcast_shapes
from openaclnn.core.status import Status
from openaclnn.core.tensor import PRIVATE_FORMATS, Scalar, Tensor

Rule = Callable[[Any, str], list[Check]]
"""Returns the checks of one row."""


def not_null(*names: str) -> Rule:
    def of(operator: Any, row: str) -> list[Check]:
        required = (p.name for p in operator.parameters if p.is_tensor or p.kind is Kind.SCALAR)
        named = names or tuple(n for n in required if not operator[n].optional)
        return [checks.not_null(row, *_renamed(operator, named))]

    return of


def dtypes(*names: str, more: tuple[DType, ...] = ()) -> Rule:
    """Tensors have one of the product's floating dtypes, or one of `more`."""
    return lambda operator, row: [checks.dtype_in(row, *_renamed(operator, names), more=more)]


def dtypes_among(known: tuple[DType, ...], *names: str) -> Rule:
    """Tensors have one of these dtypes, on every product."""
    return lambda operator, row: [checks.dtype_one_of(row, name, known) for name in names]


def _like_the_first(check: Callable[[str, str, str], Check], names: tuple[str, ...]) -> Rule:
    def of(operator: Any, row: str) -> list[Check]:
        first, *others = _renamed(operator, names or tuple(p.name for p in operator.tensors))
        return [check(row, other, first) for other in others]

    return of


def same_dtype(*names: str) -> Rule:
    return _like_the_first(checks.same_dtype, names)


def same_shape(*names: str, status: int = INVALID) -> Rule:
    return _like_the_first(functools.partial(checks.same_shape, status=status), names)


def rank(*names: str) -> Rule:
    return lambda operator, row: [checks.rank_at_most(row, *_renamed(operator, names))]


def converts(source: str = "", unchecked_on: str = "") -> Rule:
    """The dtype of what is computed, which is the promoted one or that of `source`, converts to the output's. It is not checked on one product, nor, with
    `source`, in the form that works in place."""

    what = f"{source}'s dtype" if source else "the promoted dtype"

    def computed(call: Call) -> DType | None:
        return call.tensor(source).dtype if source else promoted(call)

    def of(operator: Any, row: str) -> list[Check]:
        written = operator.output
        if source and written.in_place:
            return []
        check = checks.castable(row, written.name, computed, what)
        return [*checks.only_if(lambda call: call.product.tag != unchecked_on, check)]

    return of


def common(*names: str) -> Rule:
    """These tensors' dtypes, or those of all that the formula reads, promote to a common one."""

    def of(operator: Any, row: str) -> list[Check]:
        which = names or operator.read
        *before, last = which

        def broken_by(call: Call) -> Violation | None:
            if promoted_dtype(call, *which) is not None:
                return None
            have = ", ".join(str(call.tensor(name).dtype) for name in before)
            expected = f"a dtype that promotes with {have} ({', '.join(before)})"
            return Violation(last, expected, call.tensor(last).dtype.name)

        return [Check(row, INVALID, f"{', '.join(which)} have a common dtype", which, broken_by)]

    return of


def supported(*more: DType) -> Rule:
    """The common dtype of what the formula reads is one of the product's floating dtypes, or one of `more`."""

    def of(operator: Any, row: str) -> list[Check]:
        def broken_by(call: Call) -> Violation | None:
            dtype, allowed = promoted(call), (*call.product.floats, *more)
            if dtype in allowed:
                return None
            expected = f"a promoted dtype in {checks.names(allowed)} (product {call.product.tag})"
            return Violation(", ".join(operator.read), expected, str(dtype))

        return [checks.value_check(row, "the product supports the promoted dtype", broken_by)]

    return of


def promotes(more: tuple[DType, ...] = ()) -> Rule:
    """The inputs' dtypes promote to a common one, which is supported."""
    return lambda operator, row: [*common()(operator, row), *supported(*more)(operator, row)]


def broadcast(operator: Any, row: str) -> list[Check]:
    """The inputs broadcast, and the output has that shape."""
    read = operator.read
    return [checks.broadcastable(row, *read), checks.output_shape(row, operator.output.name, read)]


def same_before_950(what: str, *rules: Rule) -> Rule:
    """The inputs have the same dtype or shape (`what`) on products before 950; further rules of this row say what else 950 allows."""

    def of(operator: Any, row: str) -> list[Check]:
        first, second = operator.read
        same = {"dtype": checks.same_dtype, "shape": checks.same_shape}[what](row, second, first)
        same = same._replace(rule=f"the inputs have one {what}, but on 950")
        older = checks.only_if(lambda call: call.product.tag not in NEWER, same)
        return [*older, *(check for rule in rules for check in rule(operator, row))]

    return of


NEWER = ("default", "950")


def same_as_promoted(operator: Any, row: str) -> list[Check]:
    """The output has the inputs' common dtype."""

    def fault(call: Call, output: Tensor) -> checks.Fault:
        common = promoted(call)
        return None if output.dtype is common else (f"dtype {common}, the common one", output.dtype.name)  # fmt: skip

    name = operator.output.name
    return [checks.of_tensors(row, f"{name} has the common dtype", (name,), fault)]


def in_bounds(name: str) -> Rule:
    """An option lies within its bounds."""

    def of(operator: Any, row: str) -> list[Check]:
        low, high = operator.bounds[name]
        text = f"at least {low:g}" if high == math.inf else f"{low:g} to {high:g}"
        return value(name, text, lambda call: not low <= call[name].float32() <= high)(
            operator, row
        )

    return of


def value(name: str, expected: str, broken: Callable[[Call], bool]) -> Rule:
    """An option's value is as expected; `broken` says of a call whether it is not."""

    def broken_by(call: Call) -> Violation | None:
        option = call[name]
        got = str(option.float32()) if isinstance(option, Scalar) else repr(option)
        return Violation(name, expected, got) if broken(call) else None

    return lambda operator, row: [checks.value_check(row, f"{name} is {expected}", broken_by)]


def at_row(row: str, rule: Rule) -> Rule:
    """The rule with another row's number, where the document has more rows before it than there are rules here."""
    return lambda operator, next_row: rule(operator, row)


def scalars(*names: str) -> Rule:
    """Options convert to FLOAT."""
    return lambda operator, row: [checks.scalar_castable(row, *names)]


def scalars_promoted(*names: str) -> Rule:
    """Options convert to the inputs' common dtype."""
    return lambda operator, row: [
        checks.scalar_castable(row, *names, to=promoted, what="the promoted dtype")
    ]


def scalar_dtypes(name: str, *more: DType) -> Rule:
    """An option has one of the product's floating dtypes, or one of `more`."""

    def of(operator: Any, row: str) -> list[Check]:
        def broken_by(call: Call) -> Violation | None:
            dtype, allowed = call[name].dtype, (*call.product.floats, *more)
            if dtype in allowed:
                return None
            expected = f"a scalar of dtype {checks.names(allowed)} (product {call.product.tag})"
            return Violation(name, expected, dtype.name)

        rule = f"the product supports the scalar's dtype: {name}"
        return [Check(row, INVALID, rule, (name,), broken_by)]

    return of


def public(*names: str) -> Rule:
    """Tensors have none of the formats that are private to products."""
    return lambda operator, row: [checks.format_not_in(row, PRIVATE_FORMATS, *names)]


def in_place(*rules: Rule, wanted: bool = True) -> tuple[Rule, ...]:
    """The rules, for the form that works in place alone."""

    def restricted(rule: Rule) -> Rule:
        def of(operator: Any, row: str) -> list[Check]:
            return rule(operator, row) if operator.output.in_place is wanted else []

        return _wrapping(rule, of)

    return tuple(map(restricted, rules))


not_in_place = functools.partial(in_place, wanted=False)


def _wrapping(rule: Rule, wrapped: Rule) -> Rule:
    wrapped.rule = rule  # type: ignore[attr-defined]
    return wrapped


def among(rule: Rule, rules: Sequence[Rule]) -> bool:
    """Whether a rule is among others, by itself or wrapped so that it holds for some calls or forms alone."""
    return rule in (getattr(each, "rule", each) for each in rules)


def _renamed(operator: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Tensors' names in this form of the operator: in the one that works in place, its tensor takes the place of names that it lacks."""
    if not operator.output.in_place:
        return tuple(names)
    written, places = operator.output.name, operator.places
    return tuple(dict.fromkeys(name if name in places else written for name in names))


def promoted(call: Call) -> DType | None:
    """The common dtype of what the formula reads."""
    operator: Any = call.operator
    return promoted_dtype(call, *operator.read)


def promoted_dtype(call: Call, *names: str) -> DType | None:
    """The tensors' common type, promoted pairwise from left to right; None where a pair has none."""
    values = call.values
    common: DType | None = values[names[0]].dtype
    for name in names[1:]:
        dtype = values[name].dtype
        if dtype is not common:
            common = None if common is None else promote(common, dtype)
    return common


def present(call: Call) -> list[str]:
    """The tensors that are read and not null."""
    return [name for name in call.operator.input_names if call.values[name] is not None]


def generated(name: str, *tiling: Rule) -> tuple[Rule, ...]:
    """The rules of interfaces that the vendor generates: null pointers, dtypes, formats, and whether the product has a kernel; then those that break
    when the kernel's work is divided (tiling), by default that all shapes are the same."""
    last = tiling or (same_shape(status=checks.TILING),)
    return (not_null(), dtypes(name), same_dtype(), _nd, _has_kernel, *last)


def _nd(operator: Any, row: str) -> list[Check]:
    return [checks.format_is_nd(row, *(p.name for p in operator.tensors))]


def has_axes(operator: Any, row: str) -> list[Check]:
    """The first tensor has at least one axis."""
    name = operator.tensors[0].name

    def fault(call: Call, tensor: Tensor) -> checks.Fault:
        return None if tensor.shape else ("1 to 8 dimensions", "0")

    return [checks.of_tensors(row, f"at least 1 dimension: {name}", (name,), fault, checks.TILING)]


def _has_kernel(operator: Any, row: str) -> list[Check]:
    return [checks.product_has_operator(row, Status.ACLNN_ERR_INNER_FIND_KERNEL_ERROR)]


# Rules of losses.


def reduction(operator: Any, row: str) -> list[Check]:
    """The reduction is a known one; if unknown numbers act as one, any number is allowed, and the names in Python."""
    if not operator.unknown_reduction:
        return [checks.reduction_known(row, "reduction")]
    return [checks.any_reduction(row, "reduction", operator["reduction"].choices)]


def broadcasts(operator: Any, row: str) -> list[Check]:
    """The inputs broadcast together."""
    return [checks.broadcastable(row, *operator.input_names)]


def broadcasts_to(onto: str, *names: str) -> Rule:
    """Tensors that are not null broadcast to the shape of `onto`."""
    return lambda operator, row: [
        checks.broadcasts_to(row, name, lambda call: call.tensor(onto).shape, f"the shape of {onto}")
        for name in names
    ]  # fmt: skip


def mean_or_sum(*shapes: tuple[int, ...]) -> Rule:
    """The output has the losses' shape for "none". Otherwise it has one of these shapes; without any, a shape of one element."""
    text = "one element of 1 dimension at most" if shapes else "any of one element"
    text = "0 dimensions" if shapes == ((),) else text

    def of(operator: Any, row: str) -> list[Check]:
        def wanted(call: Call) -> tuple[tuple[int, ...], ...]:
            if call.reduction == "none":
                return (value_shape(call),)
            output = call.tensor(operator.output.name)
            return shapes or ((output.shape if output.size == 1 else ()),)

        expected = f"that of the losses if reduction is none, otherwise {text}"
        return [checks.shape_is(row, operator.output.name, wanted, expected)]

    return of


def output_shape(shape: Callable[[Call], tuple[int, ...]], text: str) -> Rule:
    """The output has the shape that `shape` says; `text` is the text for it."""
    return lambda operator, row: [
        checks.shape_is(row, operator.output.name, lambda call: (shape(call),), text)
    ]


def same_format(*names: str) -> Rule:
    return _like_the_first(checks.same_format, names)


def unless_empty(names: str | tuple[str, ...], *rules: Rule) -> tuple[Rule, ...]:
    """The rules, which calls in which one of these tensors is empty do not have to keep."""
    names = (names,) if isinstance(names, str) else names

    def restricted(rule: Rule) -> Rule:
        def of(operator: Any, row: str) -> list[Check]:
            return list(checks.unless_empty(names, *rule(operator, row)))

        return _wrapping(rule, of)

    return tuple(map(restricted, rules))


def value_shape(call: Call) -> tuple[int, ...]:
    """The shape that the formula runs over: that of `onto`, or the inputs' broadcast shape."""
    operator: Any = call.operator
    if operator.onto:
        return call.tensor(operator.onto).shape
    shape = broadcast_shapes(*[call.values[name].shape for name in present(call)])
    assert shape is not None
    return shape
