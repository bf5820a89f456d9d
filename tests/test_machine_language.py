"""The language in which machine code is written: Python's meaning of its operators, and a sentence where there is none."""

from __future__ import annotations

import ctypes
import itertools
import operator
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from openaclnn.engines.machine.cache import compiled
from openaclnn.engines.machine.code import Code
from openaclnn.engines.machine.kinds import signature
from openaclnn.engines.machine.values import Shape, Value, fma, intrinsic, maximum

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
C_KINDS = {"i64": ctypes.c_int64, "f64": ctypes.c_double}
Expression = Callable[..., Any]


def function(name: str, kinds: str, result: str, body: Expression) -> Callable[..., Any]:
    """`body(code, *arguments)` as a function that can be called; kinds with spaces between them."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        code.leave(body(code, *arguments))

    address = compiled(f"test.language.{name}", emit, signature(result, *kinds.split()))
    return ctypes.CFUNCTYPE(C_KINDS[result], *(C_KINDS[kind] for kind in kinds.split()))(address)


def refused(body: Expression) -> None:
    """Write a function of an int64 and a double; nothing of it is compiled, since it raises."""

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        body(code, *arguments)
        raise AssertionError("nothing was refused")

    compiled("test.language.refused", emit, signature(None, "i64", "f64"))


def wrapped(number: int) -> int:
    """As int64 has it."""
    return (number - LOWEST) % (1 << 64) + LOWEST


def integers() -> list[int]:
    rng = random.Random(29)
    near = [LOWEST, LOWEST + 1, HIGHEST, HIGHEST - 1, *range(-9, 10)]
    return near + [rng.randrange(LOWEST, HIGHEST) >> rng.randrange(64) for _ in range(30)]


# What is written, and where.


def written(kinds: str, body: Expression) -> dict[str, list[str]]:
    """The instructions of the function that `function` would compile, by their block's name without its number."""
    blocks: dict[str, list[str]] = {}

    def emit(code: Code, arguments: Sequence[Value]) -> None:
        code.leave(body(code, *arguments))
        for block in code.builder.function.blocks:
            names = [line.split(" = ")[-1] for line in block.lines]
            blocks.setdefault(block.label.rstrip("0123456789"), []).extend(names)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        compiled("test.language.written", emit, signature("i64", *kinds.split()))
    return blocks


def test_what_is_known_is_written_once() -> None:
    blocks = written("i64 i64", lambda code, a, b: (a * b) ^ ((a * b) + (a + 0) * 1))
    assert [line.split()[0] for line in blocks["body"]] == ["mul", "add", "xor"]


def in_branches(code: Code, a: Value, b: Value) -> Value:
    result = code.variable(0)
    with code.either(a < b) as (less, more):
        with less:
            result.set(a * b)
        with more:
            result.set(a * b + 1)
    with code.when(a == b):
        result.set(result.get() + a * b)
    return result.get()


def test_what_one_branch_knows_another_does_not() -> None:
    compute = function("branches", "i64 i64", "i64", in_branches)
    for a, b in itertools.product(range(-3, 4), repeat=2):
        assert compute(a, b) == a * b + (a >= b) + (a == b) * a * b


def nested(code: Code, a: Value, b: Value) -> Value:
    total = code.variable(0)
    with code.loop(0, a) as i, code.loop(0, b) as k, code.when(b != 0):
        total.set(total.get() + (a ^ 5) * b + i * a + k * i + a.unsigned_div(b))
    return total.get()


def test_what_a_loop_does_not_change_is_written_before_it() -> None:
    blocks = written("i64 i64", nested)
    assert {"xor", "icmp"} <= {line.split()[0] for line in blocks["body"]}
    assert [line.split()[0] for line in blocks["do"]].count("mul") == 1  # i * a, between the loops
    inside = [line.split()[0] for line in blocks["then"]]
    assert inside.count("mul") == 1  # k * i
    assert "udiv" in inside  # which traps where b is 0, and is not reached
    compute = function("nested", "i64 i64", "i64", nested)
    for a, b in itertools.product(range(5), repeat=2):
        expected = [(a ^ 5) * b + i * a + k * i + a // b for i in range(a) for k in range(b)]
        assert compute(a, b) == sum(expected)


def test_each_loop_sees_what_changes_in_it() -> None:
    def body(code: Code, a: Value, b: Value) -> Value:
        total = code.variable(0)
        index = code.variable(0)
        with code.repeat_while(lambda: index.get() < a):
            total.set(total.get() + index.get() * b)
            index.set(index.get() + 1)
        with code.forever() as stop:
            total.set(total.get() + index.get() * b)
            index.set(index.get() - 1)
            with code.when(index.get() <= 0):
                stop()
        code.strides(code.integer(0), a, 2, lambda place: total.set(total.get() + place * b))
        return total.get()

    compute = function("loops", "i64 i64", "i64", body)
    for a, b in itertools.product(range(1, 6), range(-2, 3)):
        expected = sum(range(a)) + sum(range(1, a + 1)) + sum(range(0, a - 1, 2))
        assert compute(a, b) == expected * b


# Division.


@pytest.mark.parametrize("sign", [operator.floordiv, operator.mod], ids=["//", "%"])
def test_division_rounds_down_like_python_does(sign: Expression) -> None:
    divide = function(f"{sign.__name__}", "i64 i64", "i64", lambda code, a, b: sign(a, b))
    for a, b in itertools.product(integers(), integers()):
        if b:
            assert divide(a, b) == wrapped(sign(a, b)), (a, b)


@pytest.mark.parametrize("number", [1, 2, 3, 8, 10, 4096, -1, -2, -7, -8, LOWEST, HIGHEST])
@pytest.mark.parametrize("sign", [operator.floordiv, operator.mod], ids=["//", "%"])
def test_division_by_and_of_python_numbers(sign: Expression, number: int) -> None:
    name = f"{sign.__name__}.{number}"
    by = function(f"{name}.by", "i64", "i64", lambda code, a: sign(a, number))
    of = function(f"{name}.of", "i64", "i64", lambda code, a: sign(number, a))
    for a in integers():
        assert by(a) == wrapped(sign(a, number)), a
        if a:
            assert of(a) == wrapped(sign(number, a)), a


@pytest.mark.parametrize("sign", [operator.floordiv, operator.mod], ids=["//", "%"])
def test_division_in_every_lane(sign: Expression) -> None:
    def body(code: Code, first: Value, second: Value) -> Value:
        lanes = code.lanes_of([first, second, first + 1, second - 1])
        divided = sign(lanes, -7)
        total = divided.lane(0)
        for lane in (1, 2, 3):
            total = total * 1000003 + divided.lane(lane)
        return total

    divide = function(f"{sign.__name__}.lanes", "i64 i64", "i64", body)
    for a, b in itertools.pairwise(integers()):
        total = 0
        for one in (a, b, wrapped(a + 1), wrapped(b - 1)):
            total = total * 1000003 + sign(one, -7)
        assert divide(a, b) == wrapped(total)


def test_rounding_up_reads_as_in_python() -> None:
    blocks = function("up", "i64 i64", "i64", lambda code, size, block: -(-size // block))
    assert [blocks(size, 8) for size in (0, 1, 8, 9)] == [0, 1, 1, 2]


def test_unsigned_division_takes_one_instruction() -> None:
    both = function(
        "unsigned", "i64 i64", "i64", lambda code, a, b: a.unsigned_div(b) * 100 + a.unsigned_rem(b)
    )
    assert both(23, 7) == 302
    assert both(-1, 1 << 62) == 300 + (1 << 62) - 1


# Other operators.

INTEGER_SIGNS = (
    operator.add, operator.sub, operator.mul, operator.and_, operator.or_, operator.xor,
)  # fmt: skip
FLOAT_SIGNS = (operator.add, operator.sub, operator.mul, operator.truediv)
COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


@pytest.mark.parametrize("sign", INTEGER_SIGNS, ids=lambda operation: operation.__name__)
def test_operators_of_integers_in_both_orders(sign: Expression) -> None:
    name = f"i64.{sign.__name__}"
    values = function(name, "i64 i64", "i64", lambda code, a, b: sign(a, b))
    right = function(f"{name}.right", "i64", "i64", lambda code, a: sign(a, -13))
    left = function(f"{name}.left", "i64", "i64", lambda code, a: sign(-13, a))
    for a, b in itertools.pairwise(integers()):
        assert values(a, b) == wrapped(sign(a, b))
        assert right(a) == wrapped(sign(a, -13))
        assert left(a) == wrapped(sign(-13, a))


@pytest.mark.parametrize("sign", FLOAT_SIGNS, ids=lambda operation: operation.__name__)
def test_operators_of_floats_in_both_orders(sign: Expression) -> None:
    name = f"f64.{sign.__name__}"
    values = function(name, "f64 f64", "f64", lambda code, a, b: sign(a, b))
    right = function(f"{name}.right", "f64", "f64", lambda code, a: sign(a, 3))
    left = function(f"{name}.left", "f64", "f64", lambda code, a: sign(3, a))
    for a, b in ((1.5, -2.25), (-7.0, 0.1), (1e300, 1e-300)):
        assert (values(a, b), right(a), left(a)) == (sign(a, b), sign(a, 3), sign(3, a))


def test_shifts_in_both_orders() -> None:
    shifts = {
        "left": (lambda code, a: a << 3, 5 << 3), "turned": (lambda code, a: 3 << a, 3 << 5),
        "right": (lambda code, a: a >> 1, 2), "bits": (lambda code, a: 1024 >> a, 32),
        "down": (lambda code, a: (-a).shifted_down(1), -3),
        "bit": (lambda code, a: a.bit(2).to("i64") * 10 + a.bit(1).to("i64"), 10),
        "signs": (lambda code, a: abs(-a) * 100 + abs(a) * 10 + -a, 545),
    }  # fmt: skip
    for name, (body, expected) in shifts.items():
        assert function(f"shift.{name}", "i64", "i64", body)(5) == expected, name


@pytest.mark.parametrize("sign", COMPARISONS, ids=lambda operation: operation.__name__)
@pytest.mark.parametrize("kind", ["i64", "f64"])
def test_comparisons_give_truth_values(kind: str, sign: Expression) -> None:
    name = f"{kind}.{sign.__name__}"
    values = function(name, f"{kind} {kind}", "i64", lambda code, a, b: sign(a, b).choose(1, 0))
    left = function(f"{name}.left", kind, "i64", lambda code, a: sign(2, a).to("i64"))
    numbers = [-1, 0, 2, 3] + ([float("nan"), float("inf")] if kind == "f64" else [LOWEST])
    for a, b in itertools.product(numbers, numbers):
        assert values(a, b) == sign(a, b)
        assert left(a) == sign(2, a)


def test_truth_values_combine() -> None:
    def body(code: Code, a: Value, b: Value) -> Value:
        one, other = a != 0, b != 0
        answers = (
            one & other,
            one | other,
            one ^ other,
            ~one,
            one == other,
            True & one,
            one | False,
        )
        return sum(answer.to("i64") << place for place, answer in enumerate(answers))

    combined = function("truth", "i64 i64", "i64", body)
    for a, b in itertools.product((False, True), repeat=2):
        answers = (a & b, a | b, a ^ b, not a, a == b, a, a)
        assert combined(a, b) == sum(answer << place for place, answer in enumerate(answers))


def test_numbers_are_chosen_on_either_side() -> None:
    chosen = {
        "numbers": (lambda code, a: (a > 0).choose(1, -1), 1, -1),
        "left": (lambda code, a: (a > 0).choose(7, a), 7, -5),
        "right": (lambda code, a: (a > 0).choose(a, 7), 5, 7),
        "truths": (lambda code, a: (a > 0).choose(False, True).choose(3, 4), 4, 3),
        "floats": (lambda code, a: (a > 0).choose(2, code.double(0.5)).bits_as("i64") >> 52, 1024, 1022),
    }  # fmt: skip
    for name, (body, positive, negative) in chosen.items():
        choose = function(f"choose.{name}", "i64", "i64", body)
        assert (choose(5), choose(-5)) == (positive, negative), name


def test_variables_are_numbers_or_truth_values() -> None:
    def body(code: Code, count: Value) -> Value:
        seen, total = code.variable(False), code.variable(0)
        with code.loop(0, count) as index:
            with code.when(seen.get()):
                total.set(total.get() + index)
            seen.set(index >= 2)
        words = code.frame("i64", 2)
        words.write(0, total.get())
        words.write(1, 0)
        return words.flag(0).choose(total.get(), -1) + words.flag(1).choose(1000, 0)

    summed = function("flags", "i64", "i64", body)
    assert (summed(3), summed(6)) == (-1, 3 + 4 + 5)


def test_integers_reduce() -> None:
    def body(code: Code, a: Value, b: Value) -> Value:
        lanes = code.lanes_of([a, b, a + b, a - b])
        return (
            lanes.reduce("add") * 1000
            + lanes.reduce("smax") * 10
            + (lanes < 0).reduce("or").to("i64")
        )

    assert function("reduce", "i64 i64", "i64", body)(3, 8) == (3 + 8 + 11 - 5) * 1000 + 111


# What has no meaning.


def lanes(code: Code, x: Value, many: int) -> Value:
    return x.splat(many)


MISUSES: dict[str, tuple[type[Exception], str, Expression]] = {
    "float beside integer": (TypeError, "differ in kind", lambda code, i, x: i + x),
    "integer beside float": (TypeError, "differ in kind", lambda code, i, x: x * i),
    "float beside int64": (TypeError, "1.5 is no constant of kind i64", lambda code, i, x: i + 1.5),
    "int64 after a float": (TypeError, "1.5 is no constant of kind i64", lambda code, i, x: 1.5 - i),
    "compared": (TypeError, "differ in kind", lambda code, i, x: i < x),
    "compared with text": (TypeError, "'a' is no constant", lambda code, i, x: i == "a"),
    "compared with None": (TypeError, "None is no constant", lambda code, i, x: i == None),  # noqa: E711
    "chosen": (TypeError, "differ in kind", lambda code, i, x: (i > 0).choose(i, x)),
    "chosen by a number": (TypeError, "choose asks a truth value", lambda code, i, x: i.choose(1, 0)),
    "chosen of floats": (TypeError, "of which kind", lambda code, i, x: (i > 0).choose(1.0, 0.5)),
    "too large": (ValueError, "does not fit into i64", lambda code, i, x: i + (1 << 64)),
    "lanes": (ValueError, "differ in lanes", lambda code, i, x: lanes(code, x, 4) + lanes(code, x, 8)),
    "streams": (
        ValueError, "differ in lanes or streams",
        lambda code, i, x: x.fill(Shape(2, 4)) + x.fill(Shape(3, 4)),
    ),
    "many streams": (ValueError, "2 streams where one", lambda code, i, x: x.fill(Shape(2, 4)).value),
    "/ of integers": (TypeError, "/ takes floats", lambda code, i, x: i / 2),
    "/ by integers": (TypeError, "/ takes floats", lambda code, i, x: 2 / i),
    "// of floats": (TypeError, "// takes integers", lambda code, i, x: x // 2),
    "% of floats": (TypeError, "% takes integers", lambda code, i, x: 2 % x),
    "by 0": (ZeroDivisionError, "// by 0", lambda code, i, x: i // 0),
    "unsigned by 0": (ZeroDivisionError, "by 0", lambda code, i, x: i.unsigned_rem(0)),
    "bits of floats": (TypeError, "& takes integers or truth", lambda code, i, x: x & x),
    "bits and truth": (TypeError, "differ in kind", lambda code, i, x: i & (i > 0)),
    "inverted float": (TypeError, "~ takes integers or truth", lambda code, i, x: ~x),
    "shifted too far": (ValueError, "has 64 bits", lambda code, i, x: i << 64),
    "shifted float": (TypeError, ">> takes integers", lambda code, i, x: x >> 1),
    "sum of truths": (TypeError, "takes numbers", lambda code, i, x: (i > 0) + (i > 1)),
    "order of truths": (TypeError, "takes numbers", lambda code, i, x: (i > 0) < (i > 1)),
    "truth beside 2": (ValueError, "does not fit into i1", lambda code, i, x: (i > 0) & 2),
    "if": (TypeError, "known only when the code runs", lambda code, i, x: 1 if i > 0 else 0),
    "and": (TypeError, "known only when the code runs", lambda code, i, x: i > 0 and i < 3),
    "a chain": (TypeError, "known only when the code runs", lambda code, i, x: 0 < i < 3),
    "in a list": (TypeError, "known only when the code runs", lambda code, i, x: i in [i + 1]),
    "hashed": (TypeError, "unhashable", lambda code, i, x: {i}),
    "branch on an integer": (TypeError, "branches on one truth", lambda code, i, x: code.when(i).__enter__()),
    "branch on lanes": (
        TypeError, "branches on one truth",
        lambda code, i, x: code.either(lanes(code, x, 4) > 0).__enter__(),
    ),
    "turns by an integer": (
        TypeError, "branches on one truth",
        lambda code, i, x: code.repeat_while(lambda: i).__enter__(),
    ),
    "loop to a float": (TypeError, "counts up in int64", lambda code, i, x: code.loop(0, x).__enter__()),
    "loop downwards": (TypeError, "counts up in int64", lambda code, i, x: code.loop(0, i, -1).__enter__()),
    "variable": (TypeError, "cannot become", lambda code, i, x: code.variable(i).set(x)),
    "variable to 0.5": (TypeError, "no constant", lambda code, i, x: code.variable(i).set(0.5)),
    "flag": (TypeError, "cannot become", lambda code, i, x: code.variable(False).set(i)),
    "result": (TypeError, "the function returns void", lambda code, i, x: code.leave(i)),
    "address": (TypeError, "an address is one int64", lambda code, i, x: code.array(x, "f64")),
    "written": (TypeError, "does not take double", lambda code, i, x: code.slots(i).write(0, x)),
    "stored": (
        TypeError, "does not take double",
        lambda code, i, x: code.array(i, "f32").store(lanes(code, x, 4), i),
    ),
    "element": (TypeError, "does not take", lambda code, i, x: code.store(x, i, "i64")),
    "lane": (ValueError, "has no lane 4", lambda code, i, x: lanes(code, x, 4).lane(4)),
    "lane of a scalar": (ValueError, "has no lane 0", lambda code, i, x: x.lane(0)),
    "order": (ValueError, "4 lanes to take from", lambda code, i, x: lanes(code, x, 4).pick([0, 4])),
    "order of a scalar": (TypeError, "those of a vector", lambda code, i, x: x.pick([0])),
    "fma of integers": (TypeError, "no intrinsic 'fma'", lambda code, i, x: fma(i, i, i)),
    "fma of both": (TypeError, "differ in kind", lambda code, i, x: fma(x, i, x)),
    "maximum of integers": (TypeError, "no intrinsic", lambda code, i, x: maximum(i, 0)),
    "smax of floats": (TypeError, "no intrinsic 'smax'", lambda code, i, x: intrinsic("smax", x, x)),
    "float to integer": (TypeError, "only floats are, to floats", lambda code, i, x: x.to("i64")),
    "float extended": (TypeError, "is not extended to i64", lambda code, i, x: x.signed("i64")),
    "extended to its size": (TypeError, "to a longer one", lambda code, i, x: i.unsigned("i64")),
    "bits of another size": (TypeError, "not as many bits as f32", lambda code, i, x: i.bits_as("f32")),
    "lanes in a lane": (TypeError, "a scalar stands", lambda code, i, x: lanes(code, x, 4).splat(4)),
    "lanes of both": (TypeError, "scalars of one kind", lambda code, i, x: code.lanes_of([i, x])),
    "NaN of integers": (TypeError, "is_nan takes floats", lambda code, i, x: i.is_nan()),
    **{
        f"reduce {name} of floats": (
            TypeError, "floats have no reduction",
            lambda code, i, x, name=name: lanes(code, x, 4).reduce(name),
        )
        for name in ("add", "fadd", "smax", "fmax", "or")
    },
    "reduce a scalar": (ValueError, "a vector of one stream", lambda code, i, x: i.reduce("add")),
    "reduce streams": (ValueError, "a vector of one stream", lambda code, i, x: i.fill(Shape(2, 4)).reduce("add")),
    "reduce by no name": (ValueError, "no reduction 'sum'", lambda code, i, x: i.splat(4).reduce("sum")),
    "add truths": (ValueError, "no reduction 'add'", lambda code, i, x: (i.splat(4) > 0).reduce("add")),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_refused_where_it_is_written(name: str) -> None:
    error, sentence, body = MISUSES[name]
    with pytest.raises(error, match=sentence):
        refused(body)


# Tables.


@pytest.mark.parametrize("lanes", [0, 4, 8, 16])
@pytest.mark.parametrize("streams", [1, 3, 4, 8])
def test_lookups(streams: int, lanes: int) -> None:
    """By the last four bits, of vectors wider and narrower than the CPU's, too."""
    rng = np.random.default_rng(lanes)
    tables = rng.standard_normal((2, 16)).astype(np.float32)
    places = rng.integers(-(1 << 31), 1 << 31, streams * max(lanes, 1), np.int32)
    found = np.zeros(places.size, np.float32)

    def body(code: Code, source: Value, target: Value) -> Value:
        array, start = code.array(source, "i32"), code.integer(0)
        index = array.load(start, Shape(streams, lanes)) if lanes else array.read(0)
        look_up = code.lookups(index)
        first = look_up(tables[0].tolist())
        both = first + look_up(tables[1].tolist(), first)
        code.array(target, "f32").store(both, start) if lanes else code.array(target, "f32").write(0, both)  # fmt: skip
        return start

    function(f"lookups.{streams}.{lanes}", "i64 i64", "i64", body)(places.ctypes.data, found.ctypes.data)  # fmt: skip
    count = places.size if lanes else 1
    expected = tables[0][places & 15] + tables[1][places & 15]
    assert found[:count].tobytes() == expected[:count].tobytes()
