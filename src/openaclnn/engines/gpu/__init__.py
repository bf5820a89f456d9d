"""The Triton engine: kernels for plans whose memory lies on a CUDA device.

`registry.py` has what runs each kernel by the kernel's name, and imports it when it is first asked for, from these packages, each of which imports from those
below it:

    launchers/   launches: how many programs, which arguments, which constexprs; of one plan, of any size and stride, and as machine code
    kernels/     what runs on the device          launching/   how a kernel is compiled, queued and started
    formulas/    what elementwise kernels compute

So `kernels/pixels.py` is launched by `launchers/pixels.py`. Importing this package imports neither Triton nor torch.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from openaclnn.core.dtypes import (
    BFLOAT16,
    BOOL,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    DType,
)  # fmt: skip
from openaclnn.core.plan import BoundedCache, Plan, numbers_key, rounded_input
from openaclnn.core.trust import warn_of, why_untrusted
from openaclnn.engines import arrays, steps

if TYPE_CHECKING:
    from openaclnn.engines.gpu.launchers.launcher import Launcher

DEVICES = ("cuda",)

READABLE: tuple[DType, ...] = (
    FLOAT, FLOAT16, BFLOAT16, INT8, INT16, INT32, INT64, UINT8, BOOL,
)  # fmt: skip
WRITABLE: tuple[DType, ...] = (FLOAT, FLOAT16, BFLOAT16, DOUBLE)


@functools.cache
def unavailable() -> str | None:
    """Why this engine cannot be used on this machine; None if it can."""
    try:
        import triton
    except ImportError as error:
        if getattr(error, "name", None) == "triton":
            return "Triton is not installed; pip install triton"
        return f"Triton cannot be imported ({error})"
    if triton.knobs.runtime.interpret:
        return "TRITON_INTERPRET is set, so that kernels would run on host memory"
    _leave_untrusted_cache(triton)
    try:
        backend = triton.runtime.driver.active.get_current_target().backend
    except Exception as error:  # Triton raises RuntimeError, torch its own kinds
        return _lacking() or f"Triton finds no CUDA device ({error})"
    if backend != "cuda":
        return f"launching is written for CUDA, and Triton's active device is {backend}"
    return None


def _lacking() -> str | None:
    """What this machine or process lacks for a GPU, in plain words; None where nothing is known to lack."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver is installed: libcuda.so.1 is not there"
    count = ctypes.c_int()
    failed = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if failed or not count.value:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        hidden = "" if visible is None else f", with CUDA_VISIBLE_DEVICES={visible!r}"
        code = f" (error {failed})" if failed else ""
        return f"the NVIDIA driver finds no GPU{code}{hidden}"
    torch = sys.modules.get("torch")
    if torch is not None and torch.version.cuda is None:
        return "PyTorch is built without CUDA, and Triton asks it for the GPU"
    return None


def _leave_untrusted_cache(triton: Any) -> None:
    """Triton loads what it finds in its folder: where others may write there, one of this process's alone takes its place."""
    folder = triton.knobs.cache.dir
    why = why_untrusted(Path(folder))
    if why is not None:
        warn_of(why, f"Triton's cache {folder}")
        os.environ["TRITON_CACHE_DIR"] = private = tempfile.mkdtemp(prefix="openaclnn-triton-")
        atexit.register(_remove, private, os.getpid())


def _remove(folder: str, process: int) -> None:
    """Not in a child of the process that made it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def declines(plan: Plan) -> str | None:
    """Why this engine does not serve a plan; None if it does."""
    if plan.kernel in arrays.ARRAY_KERNELS:
        return arrays.declined_on_device(plan)
    from openaclnn.engines.formulas.rows import ROW_FORMULAS
    from openaclnn.engines.gpu.registry import launcher_of

    launcher = launcher_of(plan)
    if plan.steps and launcher is None:
        return steps.objection(plan, declines)
    if launcher is None:
        return f"no Triton kernel is called {plan.kernel}"
    if plan.reduction and not launcher.reduces:
        return "no Triton kernel adds up all elements"
    if plan.compute not in (FLOAT, FLOAT16, BFLOAT16):
        return f"no Triton kernel computes in {plan.compute}"
    if rounded := rounded_input(plan):
        return rounded
    if axes := launcher.declines(plan):
        return axes
    for operand in plan.inputs:
        if operand.dtype not in READABLE:
            return f"no Triton kernel reads {operand.dtype} ({operand.parameter})"
    for operand in plan.outputs:
        of_rows = operand.role == "positions" and plan.kernel in ROW_FORMULAS
        if operand.dtype not in WRITABLE and not (of_rows and operand.dtype is INT32):
            return f"no Triton kernel writes {operand.dtype} ({operand.parameter})"
    return None


def prepare(plan: Plan) -> Callable[[Sequence[int], int], int]:
    """What runs the plan: a function of the operands' addresses (the output's last) and a raw stream.

    It queues the work and returns 0; a target out of range is skipped, not reported, since looking
    would wait for the device. Under TRITON_INTERPRET the same kernels run on host addresses.
    """
    if plan.kernel in arrays.ARRAY_KERNELS:
        import triton

        return arrays.on_host(plan) if triton.knobs.runtime.interpret else arrays.on_device(plan)
    launcher = _launcher(plan)
    if launcher is None:
        from openaclnn.engines.gpu.launching import runners, scratch

        return runners.on_each_device(lambda: steps.stepped(plan, prepare, scratch.lent))
    if not (plan.more or plan.reduction or plan.steps):
        return _few(plan, launcher.small_shape(plan)) or launcher.runner(plan)
    # Not all calls with these have a cache entry that would keep the runner, which takes longer to make than small kernels.
    key = _signature(plan)
    runner = _runners.get(key)
    if runner is None:
        runner = _runners[key] = launcher.runner(plan)
    return runner


def _few(plan: Plan, shape: tuple[int, ...] | None) -> Callable[[Sequence[int], int], int] | None:
    """Few elements need no launches of their own, which take longer to make than to run: a builtin for any size does.

    `shape` is that of row-major operands; others have a builtin for any strides.
    """
    from openaclnn.engines.gpu.launching.runners import can_be_emitted

    if not can_be_emitted():
        return None
    run: Any = None if shape is None else dynamic_shapes(plan)
    more: tuple[Any, ...] = (shape, ())
    if run is None:
        offer = dynamic_strides(plan)
        run = offer and offer[0]
        of_classes = bool(plan.classes)
        strides = [
            (*operand.strides, *(operand.class_stride,) * of_classes) for operand in plan.operands
        ]
        sizes = (*plan.shape, *(plan.classes,) * of_classes)
        more = (sizes, tuple([step for steps in strides for step in steps]), *((),) * of_classes)
    if not isinstance(run, BuiltinFunctionType):
        return None
    any_size: Callable[..., int] = run

    def run_few(addresses: Sequence[int], stream: int = 0) -> int:
        return any_size(tuple(addresses), stream, *more)

    return run_few


_runners: BoundedCache[tuple[Any, ...], Callable[[Sequence[int], int], int]] = BoundedCache(256)


_walked = attrgetter("parameter", "dtype", "strides", "class_stride", "offset", "role")


def _signature(plan: Plan) -> tuple[Any, ...]:
    """All that a runner is made of."""
    return (
        plan.kernel, plan.compute, plan.shape, plan.classes, plan.reduction, numbers_key(plan.numbers), *map(_walked, plan.operands),
    )  # fmt: skip


def dynamic_shapes(
    plan: Plan,
) -> Callable[[Sequence[int], int, Sequence[int], Sequence[Any]], int] | None:
    """What runs the plan's kernel at any size, with any numbers.

    A function of addresses, a raw stream, the output's shape and the plan's free numbers (none: as in the plan).

    It serves operands that lie as the plan's do: row-major in the output's shape (per-position and
    per-class ones in their part of it) or of one element; kernels with classes take the same rank. The
    shape has an element at least. It gives the bits of `prepare`. None where the plan lies otherwise.
    A plan knows merged axes only, so that the caller must know that its arrays are row-major.
    """
    launcher = _launcher(plan)
    return None if launcher is None else launcher.dynamic_runner(plan, strided=False)


def dynamic_strides(plan: Plan) -> tuple[Callable[..., int], int] | None:
    """What runs the plan's kernel for operands of any sizes and strides, and up to how many elements.

    A function of addresses, a raw stream, the axes' sizes and the operands' strides along them, in elements, one
    operand after the other; axes are in the output's order. With a class axis, which is the last then, it takes the plan's
    free numbers (none: as in the plan). It gives 1 where there are too many axes. It gives the bits of `prepare`.
    """
    launcher = _launcher(plan)
    if launcher is None:
        return None
    run = launcher.dynamic_runner(plan, strided=True)
    return run and (run, launcher.limit)


def _launcher(plan: Plan) -> Launcher | None:
    """What launches a plan that is not declined; None where its steps are launched."""
    from openaclnn.engines.gpu.registry import launcher_of

    launcher = launcher_of(plan)
    assert launcher is not None or plan.steps, declines(plan)
    return launcher
