"""Steps that array libraries compute, for all engines: matrix products, and where targets lie. NumPy does on CPU memory, PyTorch on a GPU's.

Products of 16-bit numbers are added up in FLOAT and rounded once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from openaclnn.core import rounding
from openaclnn.core.dtypes import BFLOAT16, UINT8
from openaclnn.core.interop import strided_view
from openaclnn.core.plan import Operand, Plan
from openaclnn.core.steps import MATRIX_PRODUCT, PLACED_TARGETS, RESTORED_TARGETS

Runner = Callable[[Sequence[int], int], int]
BLOCK = 1 << 24  # elements of a factor that are converted at once


def _layouts(plan: Plan) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The shape of each operand, and its strides."""
    if plan.kernel == MATRIX_PRODUCT:
        rows, columns, terms = plan.shape
        (a, _, b), (_, d, c) = (operand.strides for operand in plan.inputs[:2])
        others = [((rows, columns), operand.strides[:2]) for operand in plan.operands[2:]]
        return [((rows, terms), (a, b)), ((terms, columns), (c, d)), *others]
    (rows,) = plan.shape
    return [((-(-rows // 8) if operand.dtype is UINT8 else rows,), operand.strides) for operand in plan.operands]  # fmt: skip


def _placed(library: Any, numbers: Any, target: Any, local: Any, bits: Any, placed: Any) -> None:
    first = numbers["first"]
    index = library.asarray(target, dtype=library.int64) - first
    inside = (target >= first) & (index < numbers["columns"])
    local[...] = library.where(inside, index, -1)
    placed[...] = library.where(inside, index, 0)
    bits[...] = 255  # those of rows that are none stay so
    for place in range(8):
        part = inside[place::8]
        bits[: part.shape[0]] = bits[: part.shape[0]] - part * (1 << place)


def _restored(library: Any, numbers: Any, bits: Any, placed: Any, local: Any) -> None:
    local[...] = placed
    if bits.dtype != library.uint8:
        local[...] = library.where(bits, -1, local)
        return
    for place in range(8):
        part = local[place::8]
        away = (bits[: part.shape[0]] >> place) & 1
        part[...] = library.where(away == 1, -1, part)


def _product_on_host(numbers: Any, left: Any, right: Any, *rest: Any) -> None:
    """Factors lie in one way, whichever they came in: BLAS adds up in orders that depend on it."""
    *more, out = rest
    orders = ["F" if turned else "C" for turned in numbers["turned"]]
    wide = left.astype(np.float32, orders[0], copy=False)
    step = max(1, BLOCK // max(1, right.shape[0]))
    for begin in range(0, right.shape[1], step):
        part = slice(begin, begin + step)
        factor = right[:, part].astype(np.float32, orders[1], copy=False)
        if out.dtype == np.float32 and not more:
            np.matmul(wide, factor, out=out[:, part])
            continue
        product = np.matmul(wide, factor)
        out[:, part] = product + more[0][:, part] if more else product


def _product_on_device(torch: Any, left: Any, right: Any, *rest: Any) -> None:
    *more, out = rest
    wide = {"out_dtype": torch.float32}
    if out.dtype is not torch.float32:
        out.copy_(torch.addmm(*more, left, right, **wide) if more else torch.mm(left, right, **wide))  # fmt: skip
    elif more:
        torch.addmm(*more, left, right, **wide, out=out)
    else:
        torch.mm(left, right, **wide, out=out)


ARRAY_KERNELS: dict[str, Any] = {
    MATRIX_PRODUCT: None,
    PLACED_TARGETS: _placed,
    RESTORED_TARGETS: _restored,
}


def on_host(plan: Plan) -> Runner:
    """What runs such a step by NumPy."""
    places = list(zip(plan.operands, _layouts(plan), strict=True))
    if plan.kernel == MATRIX_PRODUCT:
        compute: Any = functools.partial(_product_on_host, plan.numbers)
    else:
        compute = functools.partial(ARRAY_KERNELS[plan.kernel], np, plan.numbers)

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        views = [
            strided_view(address + operand.offset * operand.dtype.itemsize, operand.dtype, *layout)
            for address, (operand, layout) in zip(addresses, places, strict=True)
        ]
        with np.errstate(all="ignore"), rounding.standard():
            compute(*views)
        return 0

    return run


def declined_on_device(plan: Plan) -> str | None:
    """Why PyTorch does not compute such a step; None if it does."""
    for operand in plan.operands:
        if min(operand.strides) < 0:
            return f"PyTorch has no negative strides ({operand.parameter})"
    return None


def on_device(plan: Plan) -> Runner:
    """What queues such a step by PyTorch."""
    import torch

    places = list(zip(plan.operands, _layouts(plan), strict=True))
    if plan.kernel == MATRIX_PRODUCT:
        compute: Any = functools.partial(_product_on_device, torch)
    else:
        compute = functools.partial(ARRAY_KERNELS[plan.kernel], torch, plan.numbers)

    def run(addresses: Sequence[int], stream: int = 0) -> int:
        with torch.no_grad(), torch.cuda.stream(_stream(torch, stream)):
            compute(*[_device_view(torch, *place, address) for address, place in zip(addresses, places, strict=True)])  # fmt: skip
        return 0

    return run


def _stream(torch: Any, stream: int) -> Any:
    """PyTorch's object of a stream. Of the default stream, 0, `ExternalStream` would make a new one that waits for nobody."""
    return torch.cuda.ExternalStream(stream) if stream else torch.cuda.default_stream()


def _device_view(torch: Any, operand: Operand, layout: tuple[Any, Any], address: int) -> Any:
    """A tensor over CUDA memory. The protocol has no name for BFLOAT16."""
    shape, strides = layout
    size = operand.dtype.itemsize
    if 0 in shape:
        kind = torch.from_numpy(np.empty(0, np.int16 if operand.dtype is BFLOAT16 else operand.dtype.numpy)).dtype  # fmt: skip
        view = torch.empty(shape, dtype=kind, device="cuda")
    else:
        described = {
            "shape": shape, "strides": tuple([stride * size for stride in strides]), "version": 3,
            "typestr": "<i2" if operand.dtype is BFLOAT16 else operand.dtype.numpy.str, "data": (address + operand.offset * size, False),
        }  # fmt: skip
        holder = SimpleNamespace(__cuda_array_interface__=described)
        view = torch.as_tensor(holder, device="cuda")
    return view.view(torch.bfloat16) if operand.dtype is BFLOAT16 else view
