"""First calls and peak memory, each in a fresh process: this file is the child's program.

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
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIRST_CALL, MEMORY = "first-call", "memory"  # what is measured, by the names of the sections
_CACHES = ("OPENACLNN_CACHE_DIR", "TRITON_CACHE_DIR")
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def in_fresh_processes(spec: dict[str, Any], contender: str) -> list[dict[str, Any]]:
    """A contender's first call, with an empty cache and then with the one that left; or, where that is what the specification measures, how far
    one call raises the process's resident memory above what arguments and `out` take."""
    about = spec | {"contender": contender}
    with tempfile.TemporaryDirectory(prefix="openaclnn-benchmark-") as folder:
        if spec["section"] == MEMORY:
            return [about | _child(about, folder)]
        caches = ("cold", "warm")
        return [about | {"cache": cache} | _child(about, folder) for cache in caches]


def _child(spec: dict[str, Any], cache: str) -> dict[str, Any]:
    from openaclnn.bench.timing import OtherLoad
    from openaclnn.core.results import usable_cores

    program = inspect.getsource(sys.modules[__name__])  # from an archive, too
    environment = os.environ | dict.fromkeys(_CACHES, cache)
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    load = OtherLoad()
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, json.dumps(spec)],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    load.stop()
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"note": lines[-1][:160]}
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured | {"disturbed": load.disturbs(usable_cores())}


def _main(spec: dict[str, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    if spec["contender"].startswith("torch"):
        import torch  # noqa: F401
    else:
        import openaclnn  # noqa: F401
    imported = time.perf_counter() - start
    if spec["section"] == FIRST_CALL:
        call = _prepared(spec, spec["shape"])
        first, *later = [_seconds(call) for _ in range(21)]
        return {"import_s": imported, "first_ms": first * 1e3, "again_ms": min(later) * 1e3}
    _seconds(_prepared(spec, spec["warm_shape"]))  # compilation is no part of a call's memory
    call = _prepared(spec, spec["shape"])
    if spec["device"] == "cuda":
        _seconds(call)
    elif spec["contender"].endswith(" out="):
        call()  # touches every page of the output
    return {"extra_bytes": peak_above(call)}


def _prepared(spec: dict[str, Any], shape: list[int]) -> Callable[[], Any]:
    """The plain call, or PyTorch's, with nothing of it done before; into `out=`, that is the result of a call."""
    import numpy as np

    import openaclnn
    from openaclnn.core.dtypes import dtype_of_name

    operator, name = openaclnn.find_operator(spec["operator"]), spec["contender"]
    rng, dtype = np.random.default_rng(0), dtype_of_name(spec["dtype"])
    if spec["section"] == MEMORY:
        from openaclnn.bench.problems import TiledGenerator

        rng = TiledGenerator(np.random.PCG64(7))  # of large problems
    values = operator.workloads.make(rng, dtype, tuple(shape), spec["variant"])
    if name.startswith("torch") or spec["device"] == "cuda":
        from openaclnn.bench.problems import load_torch, to_torch

        torch = load_torch()
        for key, value in values.items():
            if isinstance(value, np.ndarray):
                values[key] = to_torch(torch, value).to(spec["device"])
    if name.startswith("torch"):
        peers = operator.workloads.torch_peers
        allocating: Callable[[], Any] = peers(torch, values, None)["torch"]
        if name == "torch":
            return allocating
        into: Callable[[], Any] | None = peers(torch, values, allocating()).get(name)
        return into or sys.exit(f"PyTorch has no {name} for it")
    # A `use_engine` block would keep later calls from the fast path.
    os.environ["OPENACLNN_ENGINE"] = name.removesuffix(" out=")
    function = getattr(openaclnn, operator.python_name)
    if name.endswith(" out="):
        values["out"] = function(**values)
    return lambda: function(**values)


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
        sys.modules["torch"].cuda.synchronize()
    return time.perf_counter() - start


def peak_above(call: Callable[[], Any]) -> int:
    """Peak memory during a call above that before it, in bytes: PyTorch's on a GPU, else what is resident; 0 within the noise of a page table."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated() - before)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(
            0
        )  # what was freed and kept would not be seen to be taken again
    before = _resident("VmRSS")
    try:
        # Linux's high-water mark starts afresh: building the arguments raised it above what a call needs.
        _CLEAR.write_text("5")
        peak = "VmHWM"
    except OSError:
        peak = "VmRSS"
    result = call()
    extra = _resident(peak) - before
    del result
    return max(extra, 0)


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
