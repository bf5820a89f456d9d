"""Values whose products meet 0 times infinity when they are multiplied in another order than the formula's.

What is NaN, infinite or finite must be so by the oracle, or by the same formula step by step in FLOAT, where a step of the
formula itself overflows; of smooth L1 by the oracle alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

import openaclnn
from conftest import plain
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOAT, DType
from workloads import EVERYTHING

Array = np.ndarray[Any, Any]
Case = dict[str, Any]
inf, nan = np.inf, np.nan

VALUES = [
    0.0, -0.0, 1e-45, -1e-45, 1e-40, 1.2e-38, -1e-20, 0.75, -1.0, 3.0, -88.0, -110.0, 1e20, -1e38, inf, -inf, nan,
]  # fmt: skip
NUMBERS = [0.0, 1e-45, 1e-20, 0.5, 1.0, -1.0, 1e20, 1e38, inf]
BETAS = [
    0.0,
    1e-45,
    1e-40,
    1e-38,
    1e-30,
    0.3,
    0.5,
    1.0,
    1.5,
    2.0,
    1e3,
    2.0**50,
    1e18,
    1e30,
    3e38,
    inf,
]
GRADIENTS = [0.0, -0.0, 1e-45, 1e-38, 1.0, 1e20, inf, -inf, nan]
WEIGHTS = [0.0, 1e-45, 1e-38, 1.0, 2.0, 1e20, 3e38, inf, nan]
LOG_PROBABILITIES = [0.0, -0.5, -1.0, -88.0, -104.0, -110.0, -1e30, -inf, nan, inf, 1e3]
REDUCTIONS = ("none", "mean", "sum")


def every(count: int, dtype: DType) -> list[Array]:
    """All combinations of so many values."""
    with np.errstate(over="ignore"):
        values = np.array(VALUES, np.float32).astype(dtype.numpy)
    grid = np.meshgrid(*[np.arange(len(VALUES))] * count, indexing="ij")
    return [values[axis.ravel()] for axis in grid]


def elu(dtype: DType, few: bool) -> Iterator[Case]:
    gradient, x = every(2, dtype)
    numbers = NUMBERS[::3] if few else NUMBERS
    for alpha, scale, inner, is_result in product(numbers, numbers, numbers, (False, True)):
        if not (is_result and alpha < 0):
            with np.errstate(all="ignore"):  # an infinite exponential is one of the formula's steps
                usual = ~(x.astype(np.float32) * np.float32(inner) > 88)
            yield {
                "grad_output": gradient[usual], "self_or_result": x[usual], "alpha": alpha,
                "scale": scale, "input_scale": inner, "is_result": is_result,
            }  # fmt: skip


def l1(dtype: DType, few: bool) -> Iterator[Case]:
    gradient, x, y = every(3, dtype)
    for reduction in REDUCTIONS[: 2 if few else 3]:
        yield {"grad_output": gradient, "self": x, "target": y, "reduction": reduction}


def smooth_l1(dtype: DType, few: bool) -> Iterator[Case]:
    gradient, x, y = every(3, dtype)
    with np.errstate(all="ignore"):  # an infinite difference is one of the formula's steps
        difference = x.astype(np.float32) - y.astype(np.float32)
        usual = np.isfinite(difference) | ~np.isfinite(x.astype(np.float32) * 0 + y * 0)
    arrays = {"grad_out": gradient[usual], "self": x[usual], "target": y[usual]}
    for beta, reduction in product(BETAS, REDUCTIONS[: 1 if few else 2]):
        yield arrays | {"beta": beta, "reduction": reduction}


def nll(dtype: DType, few: bool) -> Iterator[Case]:
    rng = np.random.default_rng(3)
    for number, (gradient, reduction) in enumerate(product(GRADIENTS, REDUCTIONS)):
        for turn in range(1 if few else 20):
            one = reduction != "none"
            total = None if (turn + number) % 2 else rng.choice(np.float32(WEIGHTS), 1)
            yield {
                "grad_output": np.float32([gradient]) if one else rng.choice(np.float32(GRADIENTS), (1, 4, 5)),
                "self": np.zeros((1, 3, 4, 5), np.float32), "target": rng.integers(0, 3, (1, 4, 5)),
                "weight": rng.choice(np.float32(WEIGHTS), 3), "reduction": reduction, "total_weight": total,
            }  # fmt: skip


def cross_entropy(dtype: DType, few: bool) -> Iterator[Case]:
    rng = np.random.default_rng(4)
    weights: list[list[float] | None] = [
        None,
        [0.5, 1.0, 2.0, 1e-3],
        [3e38, 1.0, 3e38, 1e-38],
        WEIGHTS,
    ]
    options = product(
        GRADIENTS, REDUCTIONS, (0.0, 0.1, 1e-45, 1.0), (0.0, 0.5, 1e30, 1e-45), weights
    )
    for gradient, reduction, smoothing, scale, class_weights in [*options][:: 61 if few else 5]:
        target = rng.integers(0, 4, 6)
        target[rng.random(6) < 0.2] = -100
        weight = (
            None
            if class_weights is None
            else np.float32(
                class_weights if class_weights is not WEIGHTS else rng.choice(class_weights, 4)
            )
        )
        one = reduction != "none"
        yield {
            "grad_loss": np.float32(gradient) if one else rng.choice(np.float32(GRADIENTS), 6),
            "log_prob": rng.choice(np.float32(LOG_PROBABILITIES), (6, 4)), "target": target,
            "weight": weight, "reduction": reduction, "label_smoothing": smoothing,
            "lse_square_scale_for_zloss": scale,
            "lse_for_zloss": rng.choice(np.float32([0, 1, -3, 1e30, 1e-40, inf]), 6),
        }  # fmt: skip


def infinite_probabilities(dtype: DType) -> Iterator[Case]:
    """Rows whose exponential is infinite somewhere: each of the formula's terms is multiplied by that. Of 16 bits all terms at once."""
    rows = np.array([[inf, -1.0, 1e3, -2.0]] * 6)
    rows[3:] = rows[3:, ::-1]
    for smoothing, scale, class_weights in product(
        (0.0, 0.25, 1.0), (0.0, 0.5), (None, [1.0, 2, 0.5, 1], [0, 1.0, 0, 1], [-3.0, 1, 1, -1])
    ):
        if dtype is not FLOAT and not EVERYTHING and not (smoothing and scale):
            continue
        yield {
            "grad_loss": np.array([1.0, -2.0, 0.0, 1.0, -2.0, 3.0], dtype.numpy),
            "log_prob": rows.astype(dtype.numpy), "target": np.array([0, 1, 2, 3, -100, 0]),
            "weight": None if class_weights is None else np.float32(class_weights), "reduction": "none",
            "label_smoothing": smoothing, "lse_square_scale_for_zloss": scale,
            "lse_for_zloss": np.array([1.0, -3.0, 2.0, 0.0, 1.0, 2.0], dtype.numpy),
        }  # fmt: skip


def check_infinite_probabilities(dtype: DType) -> None:
    """NaN, infinities and finite values where the oracle has them."""
    operator: Operator = openaclnn.find_operator("cross_entropy_loss_grad")
    with np.errstate(all="ignore"):
        for case in infinite_probabilities(dtype):
            wanted = kinds(operator.oracle(**case), dtype)
            assert {0, 3} <= set(wanted.flat)
            np.testing.assert_array_equal(kinds(plain(operator)(**case), dtype), wanted, str(case))


def check_infinite_gradients() -> None:
    """The document adds up smoothLossGrad * weight over all classes: infinite where all weights have one sign, else NaN."""
    operator: Operator = openaclnn.find_operator("cross_entropy_loss_grad")
    for classes, size in product((5, 200), (inf, -inf)):
        mixed, zero = np.ones((2, classes), np.float32)
        mixed[1], zero[2] = -1, 0
        for weight in (mixed, zero, -np.abs(mixed), np.abs(mixed), None):
            arguments = {
                "grad_loss": np.float32(size), "log_prob": np.full((3, classes), -np.log(classes), np.float32),
                "target": np.array([0, 1, 2]), "weight": weight, "reduction": "sum", "label_smoothing": 0.1,
            }  # fmt: skip
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(
                    plain(operator)(**arguments), operator.oracle(**arguments)
                )


ELEMENTWISE = {
    "elu_backward": elu, "l1_loss_backward": l1, "smooth_l1_loss_backward": smooth_l1,
}  # fmt: skip
CLASSES = {"nll_loss2d_backward": nll, "cross_entropy_loss_grad": cross_entropy}
CASES = ELEMENTWISE | CLASSES


def kinds(values: Array, dtype: DType) -> Array:
    """NaN, either infinity, or finite, as a dtype holds the values."""
    rounded = values.astype(np.float32).astype(dtype.numpy).astype(np.float32)
    return np.select([np.isnan(rounded), np.isposinf(rounded), np.isneginf(rounded)], [3, 1, -1], 0)


def check(name: str, dtype: DType, few: bool = False) -> int:
    """Compare all cases of an operator, or some, on the engine in force; how many there were."""
    operator: Operator = openaclnn.find_operator(name)
    count = 0
    with np.errstate(all="ignore"):
        for case in CASES[name](dtype, few):
            got = plain(operator)(**case)
            exact = operator.oracle(**case)
            actual, fine = kinds(got, dtype), kinds(exact, dtype)
            wrong = actual != fine
            if name != "smooth_l1_loss_backward":
                stepwise = operator.reference(
                    **operator.reference_arguments(**case), work=np.float32
                )
                wrong &= actual != kinds(stepwise, dtype)
                wrong &= ~((abs(actual) == 1) & ~np.isfinite(stepwise))
            if wrong.any():
                place = tuple(np.argwhere(wrong)[0])
                raise AssertionError(f"{name}: {case} at {place}: {got[place]}, not {exact[place]}")
            count += 1
    return count
