"""PyTorch's private names that packages other than `torch/` use. PyTorch has been imported when these functions are called. Where a later PyTorch lacks
a name, a function returns None, or a slower public way. `torch/private.py` has the names that `torch/` uses.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import nullcontext
from operator import attrgetter
from typing import Any


def named(path: str, root: Any = None) -> Any:
    """PyTorch's object of this name; None if there is none."""
    try:
        return attrgetter(path)(sys.modules["torch"] if root is None else root)
    except AttributeError:
        return None


def raw_stream() -> Callable[[int], int]:
    """A function from a device's index to its current stream. The public call makes a Stream object each time, which takes 2 us."""
    torch = sys.modules["torch"]
    quick: Callable[[int], int] | None = named("_C._cuda_getCurrentRawStream")
    return quick or (lambda index: int(torch.cuda.current_stream(index).cuda_stream))


def recorders() -> tuple[Callable[[], Any], Callable[[Any], Any], Any]:
    """Two functions, of which the first counts the modes that see this thread's operations, and the second says whether the dispatcher includes a key;
    and the key of modes before dispatch. Without these names, the first always says that there are some."""
    modes, is_included, key = (
        named(f"_C.{name}")
        for name in ("_len_torch_dispatch_stack", "_dispatch_tls_is_dispatch_key_included", "DispatchKey.PreDispatch")
    )  # fmt: skip
    if modes is None or is_included is None or key is None:
        return lambda: True, bool, None
    return modes, is_included, key


def is_fake(tensor: Any) -> bool:
    """Whether this is a FakeTensor, which tracers have and which has no memory. Where PyTorch lacks the name, such tensors are refused for their null address."""
    fake = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", ())
    return isinstance(tensor, fake)


def dispatch_modes() -> tuple[Any, Any] | None:
    """Builtins that machine code calls: whether `torch.jit` traces, and how many modes there are. None without them: tensors take the slow path."""
    tracing, modes = named("_C._is_tracing"), named("_C._len_torch_dispatch_stack")
    return None if tracing is None or modes is None else (tracing, modes)


def empty_strided(kind: str) -> Callable[..., Any] | None:
    """`make(shape, strides, dtype)` on the current device of a kind, which code of torch.compile calls. It takes 2.4 us, `empty_like` 3.8, `empty_strided`
    more."""
    make: Callable[..., Any] | None = named(f"_C._dynamo.guards._empty_strided_{kind}")
    return make


def raw_allocator() -> tuple[Any, Any]:
    """Functions that allocate memory on the current device for a stream, and release it: 1.6 us without PyTorch's checks, 3.8 by its public functions."""
    cuda = sys.modules["torch"].cuda
    raw, raw_delete = (named(f"_C._cuda_cudaCachingAllocator_raw_{action}") for action in ("alloc", "delete"))  # fmt: skip
    if raw and raw_delete:
        return raw, raw_delete
    allocate = cuda.caching_allocator_alloc
    return lambda size, stream: allocate(size, stream=stream), cuda.caching_allocator_delete


_INTERPOSED = (
    "Python", "PythonTLSSnapshot", "PythonDispatcher", "PreDispatch", "Functionalize", "Tracer",
    "FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode", "FuncTorchVmapMode",
)  # fmt: skip


def below_all() -> tuple[Any, Any]:
    """Two context managers: one disables `__torch_function__`, the other lets the dispatcher pass by the keys of modes, transforms and tracers."""
    no_functions, below = _blocks()
    return no_functions(), below()


@functools.cache
def _blocks() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The functions that make these context managers."""
    guard, keys, key = (
        named("_C._ExcludeDispatchKeyGuard"), named("_C.DispatchKeySet"), named("_C._dispatch_key_parse"),
    )  # fmt: skip
    below: Callable[[], Any] = nullcontext
    if guard is not None and keys is not None and key is not None:
        every = functools.reduce(lambda one, other: one | other, [keys(key(name)) for name in _INTERPOSED])  # fmt: skip
        below = functools.partial(guard, every)
    return named("_C.DisableTorchFunction") or nullcontext, below
