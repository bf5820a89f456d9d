"""What the packages below `torch/` ask of PyTorch, which has been imported, under private names: each is None, or a way that does without, where a
later PyTorch has it no longer. `torch/private.py` has those of that package.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import nullcontext
from operator import attrgetter
from typing import Any


def named(path: str, root: Any = None) -> Any:
    """What PyTorch has under this name; None if nothing."""
    try:
        return attrgetter(path)(sys.modules["torch"] if root is None else root)
    except AttributeError:
        return None


def raw_stream() -> Callable[[int], int]:
    """What names a device's current stream. The public call for this makes a Stream object each time: 2 us."""
    torch = sys.modules["torch"]
    quick: Callable[[int], int] | None = named("_C._cuda_getCurrentRawStream")
    return quick or (lambda index: int(torch.cuda.current_stream(index).cuda_stream))


def recorders() -> tuple[Callable[[], Any], Callable[[Any], Any], Any]:
    """How many modes see this thread's operations, and whether the dispatcher includes a key, with that of modes before dispatch. Without
    these names modes are always asked for."""
    modes, is_included, key = (
        named(f"_C.{name}")
        for name in ("_len_torch_dispatch_stack", "_dispatch_tls_is_dispatch_key_included", "DispatchKey.PreDispatch")
    )  # fmt: skip
    if modes is None or is_included is None or key is None:
        return lambda: True, bool, None
    return modes, is_included, key


def is_fake(tensor: Any) -> bool:
    """Whether this is one of the tensors without memory that tracers have; where those are not known by name, it has no address either."""
    fake = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", ())
    return isinstance(tensor, fake)


def dispatch_modes() -> tuple[Any, Any] | None:
    """Builtins that machine code calls: whether `torch.jit` traces, and how many modes there are. Without them tensors take the slow path."""
    tracing, modes = named("_C._is_tracing"), named("_C._len_torch_dispatch_stack")
    return None if tracing is None or modes is None else (tracing, modes)


def empty_strided(kind: str) -> Callable[..., Any] | None:
    """`make(shape, strides, dtype)` on the current device of a kind, as PyTorch's own compiler has it: 2.4 us where `empty_like` takes 3.8 and
    `empty_strided` more."""
    make: Callable[..., Any] | None = named(f"_C._dynamo.guards._empty_strided_{kind}")
    return make


def raw_allocator() -> tuple[Any, Any]:
    """What allocates on the current device for a stream, and releases: 1.6 us without PyTorch's checks, and 3.8 by its public functions."""
    cuda = sys.modules["torch"].cuda
    raw, raw_delete = (named(f"_C._cuda_cudaCachingAllocator_raw_{action}") for action in ("alloc", "delete"))  # fmt: skip
    if raw and raw_delete:
        return raw, raw_delete
    allocate = cuda.caching_allocator_alloc
    return lambda size, stream: allocate(size, stream=stream), cuda.caching_allocator_delete


_BETWEEN = (
    "Python", "PythonTLSSnapshot", "PythonDispatcher", "PreDispatch", "Functionalize", "Tracer",
    "FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode", "FuncTorchVmapMode",
)  # fmt: skip


def below_all() -> tuple[Any, Any]:
    """Two blocks: without subclasses and function modes, and with the dispatcher below whoever stands between callers and memory."""
    no_functions, below = _blocks()
    return no_functions(), below()


@functools.cache
def _blocks() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """What makes them."""
    guard, keys, key = (
        named("_C._ExcludeDispatchKeyGuard"), named("_C.DispatchKeySet"), named("_C._dispatch_key_parse"),
    )  # fmt: skip
    below: Callable[[], Any] = nullcontext
    if guard is not None and keys is not None and key is not None:
        every = functools.reduce(lambda one, other: one | other, [keys(key(name)) for name in _BETWEEN])  # fmt: skip
        below = functools.partial(guard, every)
    return named("_C.DisableTorchFunction") or nullcontext, below
