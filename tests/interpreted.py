"""Triton's interpreter, mended, and an engine of it: to be imported before any kernel, in a process that interprets."""

from __future__ import annotations

import functools
import os

os.environ["TRITON_INTERPRET"] = "1"

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import triton.language as tl
import triton.runtime.interpreter as interpreter
from triton.language.semantic import TritonSemantic

import openaclnn
from openaclnn.engines import dispatch, gpu

_convert = interpreter._convert_float
_numpy_dtype = functools.cache(interpreter._get_np_dtype)
_patch_language = interpreter._patch_lang
_patch_tensor = interpreter._patch_lang_tensor


def _rounded(values: Any, source: Any, target: Any, mode: Any) -> Any:
    """The interpreter truncates to bfloat16, every GPU rounds to nearest even; and it loses bfloat16's subnormals."""
    if source == tl.float32 and target == tl.bfloat16:
        return values.astype(ml_dtypes.bfloat16).view(np.uint16)
    if source == tl.bfloat16 and target == tl.float32:
        return values.view(ml_dtypes.bfloat16).astype(np.float32).view(np.uint32)
    return _convert(values, source, target, mode)


def _indexed(tensor: Any, *scope: Any) -> None:
    """Its numbers are arrays of one element, which Triton 3.6 hands to `range` as they are."""
    _patch_tensor(tensor, *scope)
    tensor.__index__ = lambda self: self.handle.data.item()


def _logarithm(builder: Any, argument: Any) -> Any:
    """NumPy's own of float32 is off by 4 units in the last place on some machines, the GPU's by 1."""
    return builder.unary_op(argument, lambda own: np.log(own.astype(np.float64)).astype(own.dtype))


def _stored(kind: Any) -> Any:
    """Asked for every value, and each time it makes the whole table."""
    return _numpy_dtype(tl.uint64 if kind.scalar.is_ptr() else kind.scalar)


@functools.cache
def _patched(function: Any) -> Any:
    """For good: patched anew at each call and undone after each launch, it takes longer than the kernels themselves."""
    _patch_language(function)
    return SimpleNamespace(restore=lambda: None)


def _typed(kind: Any, element: Any, shape: Any) -> None:
    """Every value makes a type, of few that there are: those that are alike share what they know."""
    sizes = tuple([getattr(size, "value", size) for size in shape])
    known = _types.get((element.name, sizes))
    if known is None:
        _make_type(kind, element, shape)
        kind.shape = _shapes.setdefault(sizes, kind.shape)
        known = _types[element.name, sizes] = vars(kind)
    kind.__dict__ = known


def _made(tensor: Any, handle: Any, kind: Any) -> None:
    """A value has its shape from its type."""
    known = vars(kind).get("of_a_value")
    if known is None:
        _make_tensor(tensor, handle, kind)
        kind.of_a_value = tensor.shape, tensor.numel, tensor.dtype
        return
    tensor.handle, tensor.type = handle, kind
    tensor.shape, tensor.numel, tensor.dtype = known


def _stretched(own: Any, left: Any, right: Any) -> Any:
    """Most values that meet have one shape, or none."""
    shape, other = (getattr(value.type, "shape", None) for value in (left, right))
    if shape is other:
        return left, right
    return _stretch(own, left, right)


_types: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}
_shapes: dict[tuple[int, ...], Any] = {}
_make_type, _make_tensor = tl.block_type.__init__, tl.tensor.__init__
_stretch = TritonSemantic.broadcast_impl_value

tl.block_type.__init__ = _typed
tl.tensor.__init__ = _made
TritonSemantic.broadcast_impl_value = _stretched
interpreter._convert_float = _rounded
interpreter.InterpreterBuilder.create_log = _logarithm
interpreter._patch_lang_tensor = _indexed
interpreter._patch_lang = _patched
interpreter._get_np_dtype = _stored
# It would compute every integer twice, and, as nothing is debugged, drop what it finds.
interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)

# The engine as it is, but for host memory.
engine = ModuleType("interpreted_triton")
engine.__dict__.update(
    DEVICES=("cpu",), unavailable=lambda: None, declines=gpu.declines, prepare=gpu.prepare
)
sys.modules[engine.__name__] = engine
dispatch.ENGINES["interpreted"] = engine.__name__


@pytest.fixture(autouse=True)
def on_the_interpreter() -> Iterator[None]:
    with openaclnn.use_engine("interpreted"), np.errstate(all="ignore"):
        yield
