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
_multiply_and_add = interpreter.InterpreterBuilder.create_fma
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
    return builder.unary_op(
        argument, lambda array: np.log(array.astype(np.float64)).astype(array.dtype)
    )


def _fused(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """Triton 3.6 rounds the product, too."""
    if z.data.dtype != np.float32:
        return _multiply_and_add(builder, x, y, z)
    return builder.ternary_op(x, y, z, lambda a, b, c: (a.astype(float) * b + c).astype(np.float32))


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


def _stretched(semantic: Any, left: Any, right: Any) -> Any:
    """Most values that meet have one shape, or none, or one of them is a number."""
    shape, other = getattr(left.type, "shape", None), getattr(right.type, "shape", None)
    if shape is other:
        return left, right
    if other is None:
        return left, _splat(semantic, right, left.type)
    if shape is None:
        return _splat(semantic, left, right.type), right
    return _stretch(semantic, left, right)


def _splat(semantic: Any, number: Any, like: Any) -> Any:
    kind = tl.block_type(number.type.scalar, like.shape)
    return tl.tensor(semantic.builder.create_splat(kind, number.handle), kind)


def _alike(semantic: Any, left: Any, right: Any, *options: Any, **named: Any) -> Any:
    """Two values of one type, or a pointer and how far to move it, are not converted, but to be divided (the fourth option). A number
    beside a value, of any type and shape, is made a value once."""
    if named or type(left) is not tl.tensor:
        return _check_types(semantic, left, right, *options, **named)
    kind = left.type
    moved = kind.scalar.is_ptr()
    if type(right) is tl.tensor:
        other = right.type.scalar
        if len(options) < 4 and (other.is_int() if moved else kind.scalar is other):
            return _stretched(semantic, left, right)
        return _check_types(semantic, left, right, *options)
    if moved or type(right) not in (int, float):
        return _check_types(semantic, left, right, *options)
    key = id(vars(kind)), type(right), repr(right), options
    known = _numbers.get(key)
    if known is None:
        converted, known = _check_types(semantic, left, right, *options)
        if converted is not left:
            return converted, known
        _numbers[key] = known
    return left, known


def _unwrapped(value: Any) -> Any:
    """Asked of every argument of every operation: most are values already."""
    return value if type(value) in _PLAIN else _unwrap(value)


def _equal(kind: Any, other: Any) -> bool:
    return kind is other or _compare(kind, other)


def _attached(place: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
    """An operation, without the check whether it was called from a kernel."""
    function = getattr(member, "__wrapped__", member)

    def call(*arguments: Any, **named: Any) -> Any:
        named["_semantic"] = interpreter.interpreter_semantic
        return function(*arguments, **named)

    scope.set_attr(place, name, call)


_numbers: dict[tuple[Any, ...], Any] = {}
_types: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}
_shapes: dict[tuple[int, ...], Any] = {}
_make_type, _make_tensor = tl.block_type.__init__, tl.tensor.__init__
_stretch = TritonSemantic.broadcast_impl_value
_check_types = TritonSemantic.binary_op_type_checking_impl
_unwrap, _compare = tl.core._unwrap_if_constexpr, tl.dtype.__eq__
_PLAIN = {tl.tensor, tl.dtype, int, float, bool, type(None)}

tl.block_type.__init__ = _typed
tl.tensor.__init__ = _made
TritonSemantic.broadcast_impl_value = _stretched
TritonSemantic.binary_op_type_checking_impl = _alike
tl.core._unwrap_if_constexpr = _unwrapped
tl.dtype.__eq__ = _equal
interpreter._patch_attr = _attached
interpreter.TensorHandle.__post_init__ = lambda self: None  # which would check each value's size
interpreter._convert_float = _rounded
interpreter.InterpreterBuilder.create_log = _logarithm
if not hasattr(interpreter._interpreter, "fma_fp32"):
    interpreter.InterpreterBuilder.create_fma = _fused
# Of Triton 3.7 it has NaN for the least of NaN and a number, of which GPUs take the number.
for _name, _of_two in (("create_minnumf", np.fmin), ("create_maxnumf", np.fmax)):
    setattr(interpreter.InterpreterBuilder, _name, functools.partialmethod(interpreter.InterpreterBuilder.binary_op, op=_of_two))  # fmt: skip
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
