"""PyTorch's own samples of its operators (sample, reference, error and non-contiguous inputs) under our kernels."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
import torch.nn.functional as theirs

from openaclnn.torch import functional, served, use

pytest.importorskip("expecttest")
NAMES = ("elu", "selu", "celu", "l1_loss", "smooth_l1_loss", "nll_loss", "cross_entropy")
DTYPES = (torch.float32, torch.bfloat16, torch.float64)
MOST = 30  # of a kind and operator, of which each dtype has a third

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@functools.cache
def opinfos() -> dict[str, Any]:
    """PyTorch's descriptions of its operators: to import them takes seconds, which no other file's process has to spend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

    wanted = {f"nn.functional.{name}" for name in NAMES}
    return {info.name.rpartition(".")[2]: info for info in op_db if info.name in wanted}


def samples(name: str, dtype: torch.dtype) -> Iterator[Any]:
    info = opinfos()[name]
    tracked = {"device": "cpu", "dtype": dtype, "requires_grad": True}
    third = DTYPES.index(dtype), MOST, 3
    for sample in islice(info.sample_inputs(**tracked), *third):
        yield sample
        yield sample.noncontiguous()
    yield from islice(info.reference_inputs(**tracked), *third)


def value_and_gradients(function: Any, sample: Any) -> list[Any]:
    value = function(sample.input, *sample.args, **sample.kwargs)
    tensors = [sample.input, *sample.args]
    tracked = [t for t in tensors if isinstance(t, torch.Tensor) and t.requires_grad]
    if not value.requires_grad:
        return [value]
    gradients = torch.autograd.grad(value, tracked, torch.ones_like(value), allow_unused=True)
    if len(tracked) == 1 and value.shape == tracked[0].shape and gradients[0] is not None:
        # Of NaN PyTorch's own ELU makes the slope 1 in few elements, and NaN in many.
        return [value, torch.where(tracked[0].isnan(), 0, gradients[0])]
    return [value, *gradients]


def assert_alike(got: list[Any], known: list[Any], dtype: torch.dtype) -> None:
    # PyTorch rounds log-probabilities to BFLOAT16 on the way, we do not.
    bounds = {"rtol": 5e-2, "atol": 5e-2} if dtype is torch.bfloat16 else {}
    for ours, other in zip(got, known, strict=True):
        if ours is None or other is None:
            assert ours is None or not ours.any()
            assert other is None or not other.any()
        else:
            torch.testing.assert_close(ours, other, equal_nan=True, **bounds)


def test_all_are_there() -> None:
    assert opinfos().keys() == set(NAMES)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [n for n in NAMES if hasattr(functional, n)])
@pytest.mark.in_turns
def test_the_functional_face(name: str, dtype: torch.dtype, capsys: Any) -> None:
    count = 0
    for sample in samples(name, dtype):
        known = value_and_gradients(getattr(theirs, name), sample)
        assert_alike(value_and_gradients(getattr(functional, name), sample), known, dtype)
        count += 1
    with capsys.disabled():
        print(f"\n{name}, {dtype}: {count} samples under openaclnn.torch.functional", end="")
    assert count > 5


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.in_turns
def test_the_override(name: str, dtype: torch.dtype, capsys: Any) -> None:
    count = 0
    inputs = list(samples(name, dtype))
    expected = [value_and_gradients(getattr(theirs, name), sample) for sample in inputs]
    with use():
        for sample, known in zip(inputs, expected, strict=True):
            assert_alike(value_and_gradients(getattr(theirs, name), sample), known, dtype)
            count += 1
        calls, ours = (sum(counts[n] for counts in served().values()) for n in (0, 1))
    with capsys.disabled():
        print(f"\n{name}, {dtype}: {count} samples under the override, {ours} of {calls} operators served", end="")  # fmt: skip
    assert ours > 0 or name == "l1_loss"  # that one is no operator of its own


def test_errors_are_pytorchs() -> None:
    told = {n: info for n, info in opinfos().items() if info.error_inputs_func is not None}
    assert told
    for name, info in told.items():
        function = getattr(functional, name, getattr(theirs, name))
        for case in info.error_inputs("cpu"):
            sample = case.sample_input
            for callee in (function, getattr(theirs, name)):
                with use(), pytest.raises(case.error_type, match=case.error_regex):
                    callee(sample.input, *sample.args, **sample.kwargs)
