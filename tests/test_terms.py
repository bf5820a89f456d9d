"""Calls on known terms: what depends on dtypes, options and which arrays there are is not asked again, all else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import openaclnn
from conftest import OPERATORS, table_of
from openaclnn.core.call import MOST_TERMS, _binding, bind_arguments
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT
from openaclnn.core.products import PRODUCTS
from openaclnn.core.status import AclnnError
from openaclnn.core.tensor import Tensor
from openaclnn.repeat.kinds.road import MOST_FAMILIES

names = pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.python_name)
SHAPES = {"any": (3, 4), "rows": (3, 4), "pixels": (2, 4, 3, 2)}


def arguments_of(operator: Operator) -> dict[str, Any]:
    work = operator.workloads
    shape = SHAPES.get(work.PATTERN, (3, 4))
    made: dict[str, Any] = work.make(
        np.random.default_rng(5), FLOAT, shape, next(iter(work.VARIANTS))
    )
    return made


def terms_of(operator: Operator) -> dict[Any, Any]:
    return _binding(operator).terms


@names
def test_rules_on_terms_read_no_sizes(operator: Operator) -> None:
    sound, mistakes = table_of(operator)
    for change in [{}, *[mistake.change for mistake in mistakes]]:
        arguments = sound() | change
        given = [arguments[p.name] for p in operator.parameters]
        for product in PRODUCTS:
            call = bind_arguments(operator, given, product)
            for check in operator.checks:
                if not check.on_terms:
                    continue
                call.values = dict(bind_arguments(operator, given, product).values)
                try:
                    wanted = check.broken_by(call)
                except AttributeError:  # a rule before it is broken: something is null
                    continue
                for name, value in call.values.items():
                    if isinstance(value, Tensor):
                        call.values[name] = Tensor((5, 0, 7), value.dtype, format=value.format)
                assert check.broken_by(call) == wanted, (check.rule, change)


@names
def test_a_sound_call_leaves_its_terms_and_a_refused_one_does_not(operator: Operator) -> None:
    arguments, known = arguments_of(operator), terms_of(operator)
    function = getattr(openaclnn, operator.python_name)
    known.clear()
    for name, refused in refusals(operator, arguments):
        with pytest.raises(AclnnError):
            function(**(arguments | {name: refused}))
        assert not known
    for is_known in (False, True, True):
        function.road.forget()
        function(**arguments)
        assert [own is not None for own in known.values()] == [is_known]


@names
def test_calls_on_known_terms_are_refused_in_the_same_words(operator: Operator) -> None:
    arguments, known = arguments_of(operator), terms_of(operator)
    function = getattr(openaclnn, operator.python_name)
    for name, refused in refusals(operator, arguments):
        said = []
        for is_known in (False, True):
            known.clear()
            for _ in range(3 * is_known):
                function.road.forget()
                function(**arguments)
            with pytest.raises(AclnnError) as error:
                function(**(arguments | {name: refused}))
            said.append((str(error.value), error.value.rule))
        assert said[0] == said[1]


def refusals(operator: Operator, arguments: dict[str, Any]) -> list[tuple[str, Any]]:
    """Arrays of a shape that the operator does not take in a place; none where one array alone says what there is."""
    found = []
    for name, value in arguments.items():
        if isinstance(value, np.ndarray) and len(arguments) > 1:
            for shape in ((*value.shape, 5), (1,) * 9, (*value.shape[:-1], 11)):
                wrong = np.zeros(shape, value.dtype)
                explained = openaclnn.explain(
                    getattr(openaclnn, operator.python_name), **(arguments | {name: wrong})
                )
                if explained.plan is None:
                    found.append((name, wrong))
    return found


@names
def test_a_layout_that_was_not_seen_has_the_same_bits(operator: Operator) -> None:
    """Of arrays on known terms, into a record of its own."""
    arguments = arguments_of(operator)
    function = getattr(openaclnn, operator.python_name)
    wanted = function(**{k: np.copy(v) if k == "self_ref" else v for k, v in arguments.items()})
    for turn in range(4):  # the full way, on terms that are known at last, then the road
        if turn < 3:
            function.road.forget()
        given = {
            name: _spread(value) if isinstance(value, np.ndarray) else value
            for name, value in arguments.items()
        }
        results = function(**given)
        for own, other in zip(_several(results), _several(wanted), strict=True):
            np.testing.assert_array_equal(own, other)


def _several(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def _spread(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if not array.ndim:
        return array
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)[..., ::2]
    wide[...] = array
    return wide


def test_dtypes_are_told_by_their_objects() -> None:
    """Two that are equal are two kinds, and both have a road."""
    x = np.linspace(-2, 2, 12, dtype=np.float32)
    other = x.view(np.dtype("float32", metadata={"of": "another"}))
    assert other.dtype is not x.dtype
    function = openaclnn.elu
    terms_of(function.operator).clear()
    function.road.forget()
    for array in (x, other, x, other, x, x, other, other):
        np.testing.assert_array_equal(function(array), function(x))
    assert function.road._next == 2


def test_options_that_may_change_have_no_terms() -> None:
    x = np.linspace(-2, 2, 12, dtype=np.float32)
    alpha = np.array(2.0)
    known = terms_of(openaclnn.elu.operator)
    known.clear()
    smoothing = np.zeros((), np.float64)
    target = np.zeros(3, np.int64)
    terms_of(openaclnn.cross_entropy_loss.operator).clear()
    with pytest.raises(AclnnError):
        openaclnn.elu(x, alpha=alpha)
    openaclnn.cross_entropy_loss(x.reshape(3, 4), target, label_smoothing=smoothing)
    smoothing[...] = 7
    with pytest.raises(AclnnError, match="labelSmoothing"):
        openaclnn.cross_entropy_loss(x.reshape(3, 4), target, label_smoothing=smoothing)
    assert not terms_of(openaclnn.cross_entropy_loss.operator)
    assert not known


def test_options_are_told_by_their_objects() -> None:
    """What is equal may be another number, or none."""
    x = np.array([-1.0, 2.0, -3.0], np.float32)
    for first, second in ((0.0, -0.0), (-0.0, 0.0), (1, 1.0), (True, 1)):
        for scale in (first, first, first, second, second, second, first, second):
            openaclnn.elu.road.forget()
            with np.errstate(all="ignore"):
                wanted = openaclnn.elu.operator.oracle(x, scale=scale).astype(np.float32)
            found = openaclnn.elu(x, scale=scale)
            np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
    for is_result in (False, False, False, 0, 0, 0.0, 0.0, True, True, 1, 1, 1.0, 1.0):
        openaclnn.elu_backward.road.forget()
        found = openaclnn.elu_backward(x, x, is_result=is_result)
        np.testing.assert_array_equal(
            found, openaclnn.elu_backward(x, x, is_result=bool(is_result))
        )


def test_terms_and_families_are_bounded() -> None:
    x = np.ones((4, 9), np.float32)
    for number in range(2 * MOST_TERMS):
        alpha = 1.0 + number
        for _ in range(3):
            openaclnn.elu_backward(x[::2], x[::-2], alpha=alpha, is_result=True)
            openaclnn.elu_backward.road.forget()
    assert 0 < len(terms_of(openaclnn.elu_backward.operator)) <= MOST_TERMS
    assert 0 < len(openaclnn.elu_backward.road._families) <= MOST_FAMILIES
