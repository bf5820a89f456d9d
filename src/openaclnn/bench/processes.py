"""A first call and what a large one takes of memory, in a fresh process: this file is the child's program.

Nothing of openaclnn is imported at the top, and the child is given the text alone: it times that import.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CACHES = ("OPENACLNN_CACHE_DIR", "TRITON_CACHE_DIR")
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def in_a_fresh_process(spec: dict[str, Any], cache: str) -> dict[str, Any]:
    """What importing a side takes, its first call and later ones; and how far one call of the `large` shape raises the process's resident memory
    above what its arguments and its result take. Compiled kernels are kept in the folder."""
    program = inspect.getsource(sys.modules[__name__])  # from an archive, too
    environment = os.environ | dict.fromkeys(_CACHES, cache)
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, json.dumps(spec)],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"status": "unavailable", "note": lines[-1][:160]}
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _main(spec: dict[str, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    if spec["side"] == "torch":
        import torch  # noqa: F401
    else:
        import openaclnn  # noqa: F401
    imported = time.perf_counter() - start
    call = _prepared(spec, spec["shape"])
    first, *later = [_seconds(call) for _ in range(21)]
    measured = {"import_us": imported * 1e6, "median_us": first * 1e6, "again_us": min(later) * 1e6}
    call = _prepared(spec, spec["large"])
    if spec["device"] == "cuda":
        _seconds(call)
    return measured | {"extra_bytes": memory_beyond(call)}


def _prepared(spec: dict[str, Any], shape: list[int]) -> Callable[[], Any]:
    """The plain call, or PyTorch's, with nothing of it done before."""
    import numpy as np

    import openaclnn
    from openaclnn.core.dtypes import dtype_of_name

    operator, rng = openaclnn.find_operator(spec["operator"]), np.random.default_rng(0)
    if shape == spec["large"]:
        from openaclnn.bench.problems import TiledGenerator

        rng = TiledGenerator(np.random.PCG64(7))
    values = operator.workloads.make(rng, dtype_of_name(spec["dtype"]), tuple(shape), spec["variant"])  # fmt: skip
    if spec["side"] == "torch" or spec["device"] == "cuda":
        from openaclnn.bench.problems import load_torch, to_torch

        torch = load_torch()
        for key, value in values.items():
            if isinstance(value, np.ndarray):
                values[key] = to_torch(torch, value).to(spec["device"])
    if spec["side"] == "torch":
        theirs: Callable[[], Any] = operator.workloads.torch_peers(torch, values, None)["torch"]
        return theirs
    # A `use_engine` block would keep later calls from the fast path.
    os.environ["OPENACLNN_ENGINE"] = spec["side"]
    function = getattr(openaclnn, operator.python_name)
    return lambda: function(**values)


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
        sys.modules["torch"].cuda.synchronize()
    return time.perf_counter() - start


def memory_beyond(call: Callable[[], Any]) -> int:
    """Peak memory during a call above that before it and that of its result, in bytes: PyTorch's on a GPU, else what is resident; 0 within the noise of a page table."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = call()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated()
    else:
        with contextlib.suppress(OSError, AttributeError):
            # What was freed and kept would not be seen to be taken again.
            ctypes.CDLL(None).malloc_trim(0)
        before, field = _resident("VmRSS"), "VmHWM"
        try:
            # Linux's high-water mark starts afresh: building the arguments raised it above what a call needs.
            _CLEAR.write_text("5")
        except OSError:
            field = "VmRSS"
        result = call()
        peak = _resident(field)
    return max(int(peak - before - getattr(result, "nbytes", 0)), 0)


def _resident(field: str) -> int:
    """A field of the process's status in bytes; elsewhere than on Linux the peak of `getrusage`."""
    if _STATUS.exists():
        match = re.search(rf"{field}:\s+(\d+) kB", _STATUS.read_text())
        return int(match[1]) * 1024 if match else 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    print(json.dumps(_main(json.loads(sys.argv[1]))))
