"""Cross entropy from logits and its gradient, on every engine for CPU memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import openaclnn
from conftest import (
    LAYOUTS,
    assert_matches_oracle,
    assert_matches_sample,
    assert_near_oracle,
    assert_same_bits,
    confident,
    expected_of,
    laid_out,
    outliers,
    reduced,
)
from openaclnn.calls.plain import make_plain_function
from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOAT16, FLOATS, DType
from openaclnn.core.interface import REDUCTIONS
from openaclnn.operators.logits import CROSS_ENTROPY, CROSS_ENTROPY_GRAD
from workloads import EVERYTHING
from workloads.logits import cases, grad_of

Array = np.ndarray[Any, Any]
loss_of = make_plain_function(CROSS_ENTROPY)
gradient_of = make_plain_function(CROSS_ENTROPY_GRAD)
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)
SHAPES = ((1, 1), (9, 7), (5, 33), (67, 21), (9, 143), (3, 1000), (2, 9001))
IMAGES = ((1, 1, 1), (3, 5, 7), (2, 21, 9, 15), (1, 33, 2, 3, 40), (2, 200, 67))
nan, inf = np.nan, np.inf


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """NumPy's own arithmetic on infinities is not what is tested here."""
    threads = openaclnn.get_num_threads()
    with np.errstate(all="ignore"):
        yield
    openaclnn.set_num_threads(threads)


def drawn(
    dtype: DType, shape: tuple[int, ...], seed: int = 3
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Arguments of the loss and of its gradient. A kernel takes a second to compile: indices of 32 bits are read, and every option is
    combined with every other, beside FLOAT. Of 16 bits each reduction has one combination, others in FLOAT16 and BFLOAT16."""
    rng = np.random.default_rng(seed)
    for case in cases(rng, dtype, shape):
        if dtype is not FLOAT and not EVERYTHING:
            turn = (REDUCTIONS.index(case["reduction"]) + 2 * FLOATS.index(dtype)) % 4
            case |= {"label_smoothing": (0.0, 0.25)[turn // 2], "zloss_scale": (0.0, 0.125)[turn % 2]}  # fmt: skip
            weight = (0.5 + rng.random(shape[1])).astype(np.float32) if turn else None
            case |= {"target": case["target"].astype(np.int64), "weight": weight}
        yield case, grad_of(rng, case)


def numbers(array: Any) -> Array:
    return np.asarray(array, np.float64)


class Form(NamedTuple):
    """How rows are computed: as they are, or as the pixels of an image."""

    loss_of: Callable[..., Any]
    gradient_of: Callable[..., Any]


def _folded(case: dict[str, Any]) -> dict[str, Any]:
    """Arguments of rows as those of one image."""
    rows = {"target", "top", "rest"} | ({"grad_loss"} if case.get("reduction") == "none" else set())
    folded = {name: value[None] if name in rows else value for name, value in case.items()}
    return folded | {"input": np.ascontiguousarray(case["input"].T)[None]}


def _loss_of_pixels(**case: Any) -> Any:
    loss, top, rest = loss_of(**_folded(case))
    return type(loss_of(**case))(loss[0] if loss.shape else loss, top[0], rest[0])


def _gradient_of_pixels(grad_loss: Any, **case: Any) -> Any:
    return gradient_of(**_folded({"grad_loss": grad_loss, **case}))[0].T


forms = pytest.mark.parametrize(
    "form",
    [Form(loss_of, gradient_of), Form(_loss_of_pixels, _gradient_of_pixels)],
    ids=["rows", "pixels"],
)


@dtypes
@pytest.mark.parametrize("shape", SHAPES + IMAGES, ids=str)
@pytest.mark.in_turns
def test_cases_match_the_oracle(
    engine_of_any_width: str, dtype: DType, shape: tuple[int, ...], of_another_width: bool
) -> None:
    """Every other case, and of what takes long to compile every fourth, sixth or twelfth; other shapes have the others."""
    compiled = 4 if dtype is FLOAT else 6
    step = 12 if of_another_width else compiled if engine_of_any_width == "cpu" else 2
    place, step = (SHAPES + IMAGES).index(shape), 1 if EVERYTHING else step
    for case, gradient in [*drawn(dtype, shape)][place % step :: step]:
        assert_matches_oracle(CROSS_ENTROPY, case, loss_of(**case))
        assert_matches_oracle(CROSS_ENTROPY_GRAD, gradient, gradient_of(**gradient))


@pytest.mark.parametrize("operator", [CROSS_ENTROPY, CROSS_ENTROPY_GRAD], ids=str)
def test_samples(engine: str, operator: Any) -> None:
    for sample in operator.samples:
        exact = operator.oracle(**sample.arrays())
        np.testing.assert_allclose(exact[0], expected_of(sample, np.float64)[0], rtol=1e-7)
        assert_matches_sample(operator, sample, make_plain_function(operator)(**sample.arrays()))


def test_agrees_with_pytorch(engine: str) -> None:
    for case, _ in drawn(FLOAT, (17, 29)):
        if case["zloss_scale"]:
            continue
        x = torch.from_numpy(case["input"]).double().requires_grad_()
        weight = case["weight"]
        theirs = torch.nn.functional.cross_entropy(
            x, torch.from_numpy(case["target"]).long(), reduction=case["reduction"],
            weight=None if weight is None else torch.from_numpy(weight).double(),
            ignore_index=case["ignore_index"], label_smoothing=case["label_smoothing"],
        )  # fmt: skip
        loss, top, rest = loss_of(**case)
        np.testing.assert_allclose(loss, theirs.detach(), rtol=1e-5)
        theirs.sum().backward()
        gradient = gradient_of(np.ones_like(loss), top=top, rest=rest, **case)
        np.testing.assert_allclose(gradient, x.grad, rtol=1e-5, atol=1e-7)


@dtypes
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.in_turns
def test_any_layout_has_the_same_bits(engine: str, dtype: DType, layout: str) -> None:
    long, short, middle = (list(drawn(dtype, shape)) for shape in ((70, 150), (70, 11), (70, 23)))
    for case, gradient in long[::2] + short[::3] + middle[::5]:
        tensors = {"input", "target", "weight", "grad_loss", "top", "rest"}

        def turned(arguments: dict[str, Any], tensors: set[str] = tensors) -> dict[str, Any]:
            return {
                name: laid_out(value, layout)[0] if name in tensors and value is not None else value
                for name, value in arguments.items()
            }

        assert_same_bits(loss_of(**turned(case)), loss_of(**case))
        expected = gradient_of(**gradient)
        assert_same_bits(gradient_of(**turned(gradient)), expected)
        place, memory = laid_out(np.zeros_like(expected), layout)
        before = memory.copy()
        gradient_of(**turned(gradient), out=place)
        np.testing.assert_array_equal(numbers(place), numbers(expected))
        place[...] = 0
        assert memory.tobytes() == before.tobytes()


@dtypes
def test_images_of_any_layout_have_the_same_bits(engine: str, dtype: DType) -> None:
    def turned(array: Any, order: tuple[int, ...], step: int) -> Any:
        """The same numbers in memory of another order of axes, with gaps between them or backwards."""
        if not isinstance(array, np.ndarray) or array.ndim < 3:
            return array
        axes = [axis for axis in order if axis < array.ndim]
        large = np.zeros([array.shape[axis] * abs(step) for axis in axes], array.dtype)
        place = large[tuple(slice(None, None, step) for _ in axes)].transpose(np.argsort(axes))
        place[...] = array
        return place

    for case, gradient in list(drawn(dtype, (2, 37, 5, 27)))[::3]:
        expected, slope = loss_of(**case), gradient_of(**gradient)
        for order, step in (
            ((0, 2, 3, 1), 1),
            ((3, 2, 1, 0), 1),
            ((0, 1, 2, 3), 2),
            ((1, 0, 2, 3), -1),
        ):
            moved = {name: turned(value, order, step) for name, value in case.items()}
            assert_same_bits(loss_of(**moved), expected)
            other = {name: turned(value, order, step) for name, value in gradient.items()}
            assert_same_bits(gradient_of(**other), slope)
            place = turned(np.full_like(slope, 7), order, step)
            gradient_of(**other, out=place)
            np.testing.assert_array_equal(numbers(place), numbers(slope))


@dtypes
def test_the_gradient_may_be_written_over_the_logits(engine: str, dtype: DType) -> None:
    for shape in ((9, 7), (70, 23), (5, 70), (4, 2100)):
        for layout in ("contiguous", "transposed"):
            for _, gradient in list(drawn(dtype, shape))[::2]:
                expected = gradient_of(**gradient)
                logits, _ = laid_out(gradient["input"], layout)
                assert gradient_of(**gradient | {"input": logits}, out=logits) is logits
                np.testing.assert_array_equal(numbers(logits), numbers(expected))
    for _, gradient in list(drawn(dtype, (2, 170, 69)))[::2]:
        expected, logits = gradient_of(**gradient), gradient["input"].copy()
        gradient_of(**gradient | {"input": logits}, out=logits)
        np.testing.assert_array_equal(numbers(logits), numbers(expected))


@dtypes
def test_outputs_may_be_given(engine: str, dtype: DType) -> None:
    for case, _ in drawn(dtype, (5, 33)):
        expected = loss_of(**case)
        out = tuple(np.full_like(result, 7) for result in expected)
        results = loss_of(**case, out=out)
        assert all(result is place for result, place in zip(results, out, strict=True))
        assert_same_bits(results, expected)


@dtypes
def test_every_number_of_threads_gives_the_same_bits(dtype: DType) -> None:
    for shape in ((67, 3001), (3, 70_001), (20_000, 5), (2, 21, 90, 101)):
        for case, gradient in list(drawn(dtype, shape))[::5]:
            expected: Any = None
            for threads in (1, 2, 3, 4):
                openaclnn.set_num_threads(threads)
                results = (*loss_of(**case), gradient_of(**gradient))
                expected = results if expected is None else expected
                assert_same_bits(results, expected)


ROWS = (
    (2, 8),
    (1, 8),
    (7, 1),
    (1, 1),
    (70, 47),
    (65, 48),
    (3, 127),
    (5, 128),
    (2, 70_001),
    (5000, 9),
)
PIXELS = (
    (2, 5, 3, 4),
    (3, 1, 5, 7),
    (4, 6, 1),
    (1, 4, 90),
    (2, 21, 40, 40),
    (2, 1, 1, 1),
    (3, 200, 2, 3),
)


@dtypes
@pytest.mark.parametrize("shapes", [ROWS, PIXELS], ids=["rows", "pixels"])
def test_other_sizes_are_of_the_same_kind_and_have_the_same_bits(
    dtype: DType, shapes: tuple[tuple[int, ...], ...]
) -> None:
    """The fast path has one kernel for all sizes; a chosen engine is given the plan of each."""
    for number in range(0, 12, 4):  # a reduction each
        for function in (loss_of, gradient_of):
            function.cache.forget()
        for shape in shapes:
            case, gradient = next(islice(drawn(dtype, shape), number, None))
            with openaclnn.use_engine("cpu"):
                expected = (*loss_of(**case), gradient_of(**gradient))
            assert_same_bits((*loss_of(**case), gradient_of(**gradient)), expected)
        kinds = len({len(shape) for shape in shapes})  # the number of axes is part of a kind
        assert len(loss_of.cache.entries) == len(gradient_of.cache.entries) == kinds


@forms
@pytest.mark.in_turns
def test_confident_rows_keep_their_digits(engine_of_any_width: str, form: Form) -> None:
    """Of the probability, all that tells it from 1; wherever in a row its class is, and however many are beside."""
    for classes in (2, 33, 40, 127, 128, 1000, 5000, 32000):
        gaps = (
            (0.5, 3.0, 12.0, 20.0, 40.0, 80.0, 7.5, 8.0, 9.5, 11.0) if classes <= 5000 else (12.0,)
        )
        for gap in gaps:
            place, case = confident(classes, gap)
            loss, top, rest = form.loss_of(**case)
            exact = CROSS_ENTROPY.oracle(**case)
            np.testing.assert_allclose(loss, exact.loss, rtol=3e-7)
            np.testing.assert_allclose(rest, exact.rest, rtol=3e-7)
            ones = np.ones(4, np.float32)
            gradient = form.gradient_of(ones, top=top, rest=rest, **case)
            lost = np.expm1(-numbers(exact.rest))
            np.testing.assert_allclose(gradient[np.arange(4), place], lost, rtol=1e-6)


@forms
def test_large_and_small_logits(engine: str, form: Form) -> None:
    """Rows far from 0, ties, and one much above all others."""
    rows = np.float32(
        [
            [1e30, 1e30, -1e30, 0], [-1e30, -1e30, -1e30, -1e30], [3e38, -3e38, 0, 0],
            [-3.4028235e38] * 4, [5, 5, 5, 5], [0, -0.0, 0, -0.0], [1e-40, 0, -1e-40, 0], [200, 100, 0, -100],
        ]
    )  # fmt: skip
    for wide in (1, 700):
        x = np.repeat(rows, wide, axis=1)
        case = {"input": x, "target": np.arange(8) % x.shape[1], "reduction": "none"}
        results = form.loss_of(**case)
        assert_matches_oracle(CROSS_ENTROPY, case, results)
        gradient = case | {
            "grad_loss": np.ones(8, np.float32),
            "top": results[1],
            "rest": results[2],
        }
        assert_matches_oracle(CROSS_ENTROPY_GRAD, gradient, form.gradient_of(**gradient))


FEW_AND_MANY = (2, 3, 7, 16, 33, 1000, 32000)


@dtypes
@forms
@pytest.mark.parametrize("classes", FEW_AND_MANY)
@pytest.mark.in_turns
def test_classes_far_from_the_others_are_smoothed(
    engine_of_any_width: str, dtype: DType, form: Form, classes: int
) -> None:
    """Masked classes: what they have left is right, and what the others add beside them, wherever they stand."""
    for number, case in enumerate(outliers(dtype, classes)):
        assert_near_oracle(CROSS_ENTROPY, case, form.loss_of(**case).loss)
        for row, reduction in reduced(number, dtype):
            one = {name: case[name][row : row + 1] for name in ("input", "target")}
            arguments = case | one | {"reduction": reduction}
            assert_near_oracle(CROSS_ENTROPY, arguments, form.loss_of(**arguments).loss)


@dtypes
@forms
@pytest.mark.in_turns
def test_special_logits(engine: str, dtype: DType, form: Form) -> None:
    """NaN and infinities wherever they stand; an ignored row counts for nothing and has no gradient. Of 16 bits one option each."""
    rows = np.float32(
        [
            [nan, 0, 1], [0, 1, nan], [inf, 0, 1], [0, inf, inf], [-inf, 0, 1], [0, 1, -inf], [-inf, -inf, 0],
            [-inf, -inf, -inf], [inf, -inf, 0], [nan, inf, -inf],
        ]
    ).astype(dtype.numpy)  # fmt: skip
    each = ({}, {"label_smoothing": 0.1}, {"zloss_scale": 0.5})
    turn = FLOATS.index(dtype)
    for wide in (1, 1500):
        x = np.repeat(rows, wide, axis=1)
        for place in (0, 1, 2):
            for options in each[turn : turn + 1] if turn and not EVERYTHING else each:
                case = {
                    "input": x, "target": np.full(len(x), place * wide), "reduction": "none", **options,
                }  # fmt: skip
                loss, top, rest = form.loss_of(**case)
                exact = CROSS_ENTROPY.oracle(**case)
                for result, known in ((loss, exact.loss), (top, exact.top), (rest, exact.rest)):
                    np.testing.assert_allclose(
                        numbers(result), known, rtol=2e-2 if result is loss else 1e-5
                    )
                one = np.ones(len(x), dtype.numpy)
                gradient = case | {"grad_loss": one, "top": top, "rest": rest}
                np.testing.assert_allclose(
                    numbers(form.gradient_of(**gradient)), CROSS_ENTROPY_GRAD.oracle(**gradient), rtol=2e-2, atol=1e-6
                )  # fmt: skip
        ignored = {"input": x, "target": np.full(len(x), -100)}
        loss, top, rest = form.loss_of(**ignored)
        assert np.isnan(numbers(loss))
        assert numbers(form.loss_of(**ignored, reduction="sum").loss) == 0
        assert not numbers(
            form.gradient_of(np.ones((), dtype.numpy), top=top, rest=rest, **ignored)
        ).any()


@forms
def test_an_infinite_gradient_meets_each_weight(engine: str, form: Form) -> None:
    """What smoothing adds up are the products with the gradient: infinite where all weights have one sign, else NaN."""
    x = np.float32([[0, 1, 2, 3] * 30, [9, -9, 4, 1] * 30])
    signs = np.float32([1] * 119 + [-1]), -np.ones(120, np.float32), np.float32([1, 0] * 60)
    for weight, size in product((np.ones(120, np.float32), *signs), (inf, -inf)):
        case = {
            "input": x,
            "target": np.array([3, 1]),
            "weight": weight,
            "label_smoothing": 0.25,
            "reduction": "sum",
        }
        _, top, rest = form.loss_of(**case)
        gradient = case | {"grad_loss": np.float32(size), "top": top, "rest": rest}
        exact = CROSS_ENTROPY_GRAD.oracle(**gradient)
        np.testing.assert_array_equal(numbers(form.gradient_of(**gradient)), numbers(exact))


@forms
def test_gradients_and_weights_of_any_size(engine: str, form: Form) -> None:
    x = np.float32([[0, 1, 2, 3] * 10, [9, -9, 4, 1] * 10])
    target = np.array([3, 1])
    for size in (0.0, -1.0, 1e-35, 1e-30, 1e30, inf, nan):
        for weight in (1.0, 1e-20, 1e6, 0.0):
            for smoothing in (0.0, 0.25):
                case = {
                    "input": x, "target": target, "weight": np.full(40, weight, np.float32),
                    "label_smoothing": smoothing, "reduction": "sum",
                }  # fmt: skip
                _, top, rest = form.loss_of(**case)
                gradient = case | {"grad_loss": np.float32(size), "top": top, "rest": rest}
                exact = CROSS_ENTROPY_GRAD.oracle(**gradient)
                with np.errstate(all="ignore"):
                    exact = numbers(exact.astype(np.float32))
                actual = numbers(form.gradient_of(**gradient))
                limits = np.isinf(exact) | np.isnan(exact)
                np.testing.assert_array_equal(actual[limits], exact[limits])
                np.testing.assert_allclose(actual[~limits], exact[~limits], rtol=2e-6, atol=1e-43)


@forms
def test_what_rounds_to_0_smooths_nothing(engine: str, form: Form) -> None:
    """Every engine has the numbers of a plan as FLOAT: an infinite weight of another class would make 0 NaN."""
    case = {"input": np.zeros((2, 3), np.float32), "target": np.array([0, 1]), "weight": np.float32([1, 2, inf])}  # fmt: skip
    grad = {"grad_loss": np.float32(1)}
    for tiny in ({"label_smoothing": 1e-46}, {"zloss_scale": 1e-46}):
        kept = form.loss_of(**case, **tiny)
        for result, known in zip(kept, form.loss_of(**case), strict=True):
            assert_same_bits(result, known)
        grad |= {"top": kept[1], "rest": kept[2]}
        gradient = form.gradient_of(**case, **grad, **tiny)
        assert_same_bits(gradient, form.gradient_of(**case, **grad))
        assert np.isfinite(gradient).all()


@dtypes
def test_empty_tensors(engine: str, dtype: DType) -> None:
    x, target = np.zeros((0, 5), dtype.numpy), np.zeros(0, np.int64)
    for reduction, expected in (("mean", nan), ("sum", 0.0)):
        loss, top, rest = loss_of(x, target, reduction=reduction)
        np.testing.assert_array_equal(numbers(loss), expected)
        assert (loss.shape, top.shape, rest.shape) == ((), (0,), (0,))
        one = np.ones((), dtype.numpy)
        assert gradient_of(one, x, top, rest, target, reduction=reduction).shape == (0, 5)
    assert loss_of(x, target, reduction="none").loss.shape == (0,)
    images, pixels = np.zeros((2, 5, 0, 3), dtype.numpy), np.zeros((2, 0, 3), np.int64)
    assert np.isnan(numbers(loss_of(images, pixels).loss))
    assert loss_of(images, pixels, reduction="none").loss.shape == (2, 0, 3)


def test_stray_targets_are_refused(engine: str) -> None:
    x, side = np.zeros((3, 4), np.float32), np.zeros(3, np.float32)
    for wrong in (4, -1, 2**40, -(2**63)):
        target = np.array([0, wrong, 1])
        with pytest.raises(openaclnn.AclnnError, match=rf"{wrong} at \(1,\)"):
            loss_of(x, target)
        with pytest.raises(openaclnn.AclnnError, match=rf"{wrong} at \(1,\)"):
            gradient_of(np.float32(1), x, side, side, target)
        assert np.isfinite(loss_of(x, target, ignore_index=wrong).loss)
        with pytest.raises(openaclnn.AclnnError, match=rf"{wrong} at \(0, 1\)"):
            loss_of(x.T[None], target[None])


def test_wrong_arguments_are_refused() -> None:
    x, target, side = np.zeros((3, 4), np.float32), np.zeros(3, np.int64), np.zeros(3, np.float32)
    for parameter, wrong in (
        ("input", x.astype(np.float64)), ("input", x[0]), ("input", x[:, :0]), ("input", x[:, :, None]), ("target", target[:2]),
        ("target", side), ("weight", side), ("weight", np.zeros(4)), ("reduction", "average"),
        ("label_smoothing", 1.5), ("label_smoothing", nan),
    ):  # fmt: skip
        with pytest.raises(openaclnn.AclnnError, match=parameter.split("_")[0]):
            loss_of(**{"input": x, "target": target} | {parameter: wrong})
    sound = {"grad_loss": np.float32(1), "input": x, "top": side, "rest": side, "target": target}
    for parameter, wrong in (
        ("grad_loss", side), ("grad_loss", np.ones((), np.float16)), ("top", side[:2]), ("rest", side.astype(np.float16)),
        ("out", x.astype(np.float16)), ("out", x[:2]),
    ):  # fmt: skip
        with pytest.raises(openaclnn.AclnnError) as caught:
            gradient_of(**sound | {parameter: wrong})
        assert caught.value.parameter in (parameter, "gradLoss")


@dtypes
def test_torch_tensors(dtype: DType) -> None:
    """The same bits as NumPy's, call after call: the second takes the fast path."""
    kinds = {FLOAT: torch.float32, FLOAT16: torch.float16, BFLOAT16: torch.bfloat16}
    cases = [*drawn(dtype, (6, 40))]
    for case, gradient in cases[:: 1 if EVERYTHING else 5]:
        expected, expected_gradient = loss_of(**case), gradient_of(**gradient)

        def moved(arguments: dict[str, Any]) -> dict[str, Any]:
            return {
                name: torch.from_numpy(value.astype(np.float32)).to(kinds[dtype])
                if name in ("input", "grad_loss")
                else torch.from_numpy(value)
                if isinstance(value, np.ndarray)
                else value
                for name, value in arguments.items()
            }

        for _ in range(3):
            for result, known in zip(loss_of(**moved(case)), expected, strict=True):
                np.testing.assert_array_equal(result.double().numpy(), numbers(known))
            slope = gradient_of(**moved(gradient))
            np.testing.assert_array_equal(slope.double().numpy(), numbers(expected_gradient))
