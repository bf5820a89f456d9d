"""Arrays of all kinds and layouts for an attack: honest ones, strange ones, and producers that are broken."""

from __future__ import annotations

import ctypes
import unittest.mock
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from openaclnn.core.tensor import Tensor

Array = np.ndarray[Any, Any]
Maker = Callable[[np.random.Generator, Array], Any]


class Memory:
    """Buffers with guard bytes around what is given away, and what they held."""

    def __init__(self) -> None:
        self.buffers: list[tuple[Array, Array]] = []
        self.behind: dict[int, tuple[Any, Array]] = {}  # what was given away, and its memory

    def place(self, rng: np.random.Generator, array: Array) -> Array:
        """The same values inside a larger buffer, in a random layout."""
        shape, item = array.shape, array.itemsize
        ways = [
            int(rng.integers(4)) if n else 0 for n in shape
        ]  # dense, spread, backwards, stretched
        order = rng.permutation(len(shape))
        steps, step = [0] * len(shape), 1
        for axis in order:
            if ways[axis] == 3 and shape[axis] > 1 and (array == array.take([0], axis)).all():
                continue  # one value along the axis: a stride of zero
            gap = 1 + int(rng.integers(1, 3)) if ways[axis] == 1 else 1
            steps[axis] = -step * gap if ways[axis] == 2 else step * gap
            step *= gap * max(shape[axis], 1)
        if rng.random() < 0.4:  # as most arrays are
            dense = np.empty(shape, array.dtype)
            steps = [stride // max(item, 1) for stride in dense.strides]
        low = sum(
            (n - 1) * stride for n, stride in zip(shape, steps, strict=True) if stride < 0 and n
        )
        high = sum(
            (n - 1) * stride for n, stride in zip(shape, steps, strict=True) if stride > 0 and n
        )
        before, after = (int(v) for v in rng.integers(1, 9, 2))
        odd = int(rng.random() < 0.05)  # elements that do not lie on their own multiples
        buffer = np.full((high - low + 1 + before + after) * item + 2, 0xA5, np.uint8)
        view = np.ndarray(
            shape,
            array.dtype,
            buffer,
            (before - low) * item + odd,
            [stride * item for stride in steps],
        )
        if 0 not in steps or not array.size:
            view[...] = array
        else:
            for place in np.ndindex(shape):
                view[place] = array[place]
        self.buffers.append((buffer, buffer.copy()))
        return view

    def changed(self, allowed: list[Any]) -> bool:
        """Whether any byte changed outside the arrays that may be written."""
        for buffer, before in self.buffers:
            differs = buffer != before
            if differs.any():
                for argument in allowed:
                    _, array = self.behind.get(id(argument), (None, argument))
                    plain = type(argument) is torch.Tensor and not argument.is_neg()
                    # A tensor may have been resized since.
                    _mark_covered(differs, buffer, argument if plain else array)
                if differs.any():
                    return True
        return False


def _mark_covered(differs: Array, buffer: Array, array: Any) -> None:
    """Take the bytes of an array out of those that differ."""
    if type(array) in (torch.Tensor, torch.nn.Parameter):
        array = array.detach().view(torch.int16 if array.itemsize == 2 else array.dtype).numpy()
    if type(array) not in (np.ndarray, Sub) or not np.may_share_memory(buffer, array):
        return
    start = array.__array_interface__["data"][0] - buffer.ctypes.data
    for place in np.ndindex(array.shape):
        at = start + sum(i * stride for i, stride in zip(place, array.strides, strict=True))
        differs[at : at + array.itemsize] = False


class Sub(np.ndarray):
    """A subclass that adds nothing."""


class Vain(np.ndarray):
    """Says that it is larger than it is."""

    shape = property(lambda self: tuple([1000 * n for n in np.asarray(self).shape]))  # type: ignore[assignment]


class VainTensor(torch.Tensor):
    """The same of PyTorch's."""

    shape = property(lambda self: torch.Size([1000 * n for n in self.size()]))  # type: ignore[assignment]


class Producer:
    """DLPack alone, from an honest array."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack_device__(self) -> Any:
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


class Broken(Producer):
    """A producer one word of whose descriptor is wrong; or that does not come as far."""

    WAYS = ("data", "ndim", "ndim-", "shape", "shape-", "dtype", "lanes", "device", "version", "raise", "name",
            "none", "device call", "device type", "key error")  # fmt: skip

    def __init__(self, array: Array, way: str) -> None:
        super().__init__(np.ascontiguousarray(array))
        self.way = way

    def __dlpack_device__(self) -> Any:
        if self.way == "device call":
            raise RuntimeError("no device")
        return "cpu" if self.way == "device type" else (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        if self.way in ("raise", "key error"):
            raise (BufferError if self.way == "raise" else KeyError)("not today")
        if self.way == "none":
            return None
        if self.way == "name":
            import datetime

            return datetime.datetime_CAPI  # a capsule of something else
        capsule = self.array.__dlpack__(max_version=(1, 0))
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        try:
            start = get(capsule, b"dltensor_versioned")
        except ValueError:
            raise BufferError("no version") from None
        words = (ctypes.c_int64 * 10).from_address(start)
        halves = (ctypes.c_int32 * 20).from_address(start)
        # Version, manager, deleter, flags; then data, device, axes and dtype, shape, strides, offset.
        if self.way == "data":
            words[4] = 0
        elif self.way.startswith("ndim"):
            halves[12] = -3 if self.way == "ndim-" else 1 << 28
        elif self.way == "shape":
            words[7] = 0
            halves[12] = 1
        elif self.way == "shape-" and self.array.ndim:
            ctypes.c_int64.from_address(words[7]).value = -1
        elif self.way == "shape-":
            halves[12] = 99
        elif self.way == "dtype":
            halves[13] = 7 | 3 << 8 | 1 << 16
        elif self.way == "lanes":
            halves[13] = halves[13] & 0xFFFF | 4 << 16
        elif self.way == "device":
            halves[10] = 77
        elif self.way == "version":
            halves[0] = 9
        self.kept = capsule
        return capsule


class Interface:
    """`__array_interface__` alone, with some entries replaced."""

    def __init__(self, array: Array, **wrong: Any) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, **wrong}


class Angry:
    """Whatever it is asked for raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class Yes:
    """Has every attribute, and it can be called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self


def as_torch(array: Array) -> Any:
    """A PyTorch tensor of the same memory where PyTorch has such; else a copy."""
    if min(array.strides, default=0) < 0 or not array.flags.aligned or not array.flags.writeable:
        array = np.array(array)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _quiet(make: Callable[[Any], Any]) -> Maker:
    def maker(rng: np.random.Generator, array: Array) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make(as_torch(array))

    return maker


def _frozen(rng: np.random.Generator, array: Array) -> Any:
    view = array.view()
    view.flags.writeable = False
    return view


def _shortened(rng: np.random.Generator, array: Array) -> Any:
    tensor = torch.ones(array.shape)
    tensor.untyped_storage().resize_(int(rng.integers(0, max(array.size * 4, 1))))
    return tensor


def _fake(tensor: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(tensor)


HONEST: dict[str, Maker] = {
    "numpy": lambda rng, a: a,
    "owner": lambda rng, a: np.array(a),
    "frozen": _frozen,
    "subclass": lambda rng, a: a.view(Sub),
    "torch": lambda rng, a: as_torch(a),
    "parameter": lambda rng, a: torch.nn.Parameter(as_torch(a), requires_grad=False),
    "leaf": lambda rng, a: as_torch(a).requires_grad_() if a.dtype.kind in "fV" else as_torch(a),
    "producer": lambda rng, a: a if a.dtype.name == "bfloat16" else Producer(a),
    "interface": lambda rng, a: Interface(a),
    "tensor": lambda rng, a: Tensor.from_numpy(a),
    "proxy": lambda rng, a: weakref.proxy(a) if rng.random() < 0.2 else a,
}

STRANGE: dict[str, Maker] = {
    "swapped": lambda rng, a: (
        a.astype(a.dtype.newbyteorder()) if a.dtype.name != "bfloat16" else a.view("V2")
    ),
    "object": lambda rng, a: a.astype(object),
    "masked": lambda rng, a: np.ma.masked_array(np.array(a), np.zeros(a.shape, bool)),
    "record": lambda rng, a: np.zeros(a.shape, [("x", np.float32)]),
    "text": lambda rng, a: np.full(a.shape, "x"),
    "date": lambda rng, a: np.zeros(a.shape, "M8[s]"),
    "other dtype": lambda rng, a: a.astype(
        rng.choice([np.float64, np.int8, np.uint64, np.complex64, bool])
    ),
    "list": lambda rng, a: a.tolist(),
    "none": lambda rng, a: None,
    "number": lambda rng, a: rng.choice([0.5, 3, -1]).item(),
    "string": lambda rng, a: "array",
    "class": lambda rng, a: np.ndarray,
    "dead proxy": lambda rng, a: weakref.proxy(np.array(a)),
    "mock": lambda rng, a: unittest.mock.Mock(spec=np.ndarray),
    "mock tensor": lambda rng, a: unittest.mock.Mock(spec=torch.Tensor),
    "angry": lambda rng, a: Angry(),
    "yes": lambda rng, a: Yes(),
    "broken": lambda rng, a: (
        Broken(a, str(rng.choice(Broken.WAYS))) if a.dtype.name != "bfloat16" else None
    ),
    "typestr": lambda rng, a: Interface(a, typestr="<q9"),
    "interface shape": lambda rng, a: Interface(a, shape="x"),
    "interface strides": lambda rng, a: Interface(a, strides=(1, 2, 3, 4, 5, 6)),
    "interface data": lambda rng, a: Interface(a, data=()),
    "wrong shape": lambda rng, a: np.ones((*a.shape, 2), a.dtype),
    "nine axes": lambda rng, a: np.ones((1,) * 9, a.dtype),
    "empty": lambda rng, a: np.ones((0, *a.shape[1:]), a.dtype),
    "fake": _quiet(_fake),
    "meta": _quiet(lambda t: t.to("meta")),
    "sparse": _quiet(lambda t: t.clone().to_sparse()),
    "quantised": _quiet(lambda t: torch.quantize_per_tensor(t.float(), 0.1, 0, torch.qint8)),
    "nested": _quiet(lambda t: torch.nested.nested_tensor([t.reshape(-1), t.reshape(-1)])),
    "zero": _quiet(lambda t: torch._efficientzerotensor(t.shape)),
    "negated": _quiet(lambda t: torch._neg_view(t.float())),
    "mkldnn": _quiet(lambda t: t.float().contiguous().to_mkldnn() if t.dim() else t),
    "shortened": _shortened,
    "vain": lambda rng, a: a.view(Vain),
    "vain tensor": _quiet(lambda t: t.as_subclass(VainTensor)),
}


def dressed(rng: np.random.Generator, array: Array, memory: Memory, strange: float) -> Any:
    """An array of these values as somebody might hand it over."""
    placed = memory.place(rng, array)
    makers = STRANGE if rng.random() < strange else HONEST
    argument = makers[str(rng.choice([*makers]))](rng, placed)
    memory.behind[id(argument)] = argument, placed
    return argument
