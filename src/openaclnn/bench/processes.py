"""First calls and peak memory, each in a fresh process: this file is the child's program.

Nothing of openaclnn is imported at the top, and the child is given the text alone: it times that import.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["first_calls", "peak_memory"]

_CACHES = ("OPENACLNN_CACHE_DIR", "NUMBA_CACHE_DIR", "TRITON_CACHE_DIR")
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def first_calls(spec: dict[str, Any], contender: str) -> Iterator[dict[str, Any]]:
    """A contender's first call in a fresh process, with an empty cache and then with the one that left."""
    about = spec | {"contender": contender}
    with tempfile.TemporaryDirectory(prefix="openaclnn-benchmark-") as folder:
        for cache in ("cold", "warm"):
            yield about | {"cache": cache} | _child(about | {"measure": "first call"}, folder)


def peak_memory(spec: dict[str, Any], contender: str) -> dict[str, Any]:
    """How far one call raises the process's resident memory above what arguments and `out` take."""
    about = spec | {"contender": contender}
    with tempfile.TemporaryDirectory(prefix="openaclnn-benchmark-") as folder:
        return about | _child(about | {"measure": "memory"}, folder)


def _child(spec: dict[str, Any], cache: str) -> dict[str, Any]:
    from openaclnn.bench.machine import usable_cores
    from openaclnn.bench.timing import OtherLoad

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
    uses_torch = spec["contender"].startswith("torch")
    if uses_torch:
        import torch  # noqa: F401
    else:
        import openaclnn  # noqa: F401
    imported = time.perf_counter() - start
    if spec["measure"] == "first call":
        call = _torch_call(spec) if uses_torch or spec["device"] == "cuda" else _bare_call(spec)
        first = call()
        again = min(call() for _ in range(20))
        return {"import_s": imported, "first_ms": first * 1e3, "again_ms": again * 1e3}
    _timed(_contender(spec, tuple(spec["warm_shape"])))  # compilation is no part of a call's memory
    contender = _contender(spec, tuple(spec["shape"]))
    extra = _cuda_extra if spec["device"] == "cuda" else _extra
    return {"extra_bytes": extra(contender)}


def _torch_call(spec: dict[str, Any]) -> Callable[[], float]:
    contender = _contender(spec, tuple(spec["shape"]))
    return lambda: _timed(contender)


def _bare_call(spec: dict[str, Any]) -> Callable[[], float]:
    """A plain call of ours with nothing before it: building a contender plans, and so compiles, already."""
    import numpy as np

    import openaclnn
    from openaclnn.core.dtypes import dtype_of_name

    operator = openaclnn.find_operator(spec["operator"])
    function = getattr(openaclnn, operator.python_name)
    dtype, shape = dtype_of_name(spec["dtype"]), tuple(spec["shape"])
    drawn = operator.workloads.make(np.random.default_rng(0), dtype, shape, spec["variant"])
    # A `use_engine` block would keep later calls from the fast path.
    os.environ["OPENACLNN_ENGINE"] = spec["contender"].removesuffix(" out=")

    def call() -> float:
        start = time.perf_counter()
        function(**drawn)
        return time.perf_counter() - start

    return call


def _contender(spec: dict[str, Any], shape: tuple[int, ...]) -> Any:
    from openaclnn.bench.contenders import build_contenders
    from openaclnn.bench.problems import build, load_torch
    from openaclnn.core.dtypes import dtype_of_name
    from openaclnn.operators import find_operator

    operator, dtype = find_operator(spec["operator"]), dtype_of_name(spec["dtype"])
    problem = build(operator, spec["variant"], dtype, shape, "contiguous", spec["device"])
    assert problem is not None, "every operator takes contiguous arguments"
    name = spec["contender"]
    uses_torch = name.startswith("torch")
    engines = [] if uses_torch else [name.removesuffix(" out=")]
    torch = load_torch() if uses_torch else None
    for contender in build_contenders(problem, engines, torch, bare=True):
        if contender.name == name:
            if contender.unavailable:
                raise SystemExit(contender.unavailable)
            return contender
    raise SystemExit(f"no contender is called {name}")


def _timed(contender: Any) -> float:
    with contender.chosen():
        start = time.perf_counter()
        contender.call()
        if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
            sys.modules["torch"].cuda.synchronize()
        return time.perf_counter() - start


def _extra(contender: Any) -> int:
    """Peak resident memory during a call above that before it, in bytes; 0 within the noise of a page table."""
    if contender.writes_out:
        _timed(contender)  # touches every page of the output
    before = _resident("VmRSS")
    try:
        # Linux's high-water mark starts afresh: building the arguments raised it above what a call needs.
        _CLEAR.write_text("5")
        peak = "VmHWM"
    except OSError:
        peak = "VmRSS"
    with contender.chosen():
        result = contender.call()
    extra = _resident(peak) - before
    del result
    return max(extra, 0)


def _cuda_extra(contender: Any) -> int:
    cuda = sys.modules["torch"].cuda
    _timed(contender)
    cuda.reset_peak_memory_stats()
    before = cuda.memory_allocated()
    with contender.chosen():
        result = contender.call()
    cuda.synchronize()
    extra = int(cuda.max_memory_allocated() - before)
    del result
    return extra


def _resident(field: str) -> int:
    """A field of the process's status in bytes; elsewhere than on Linux the peak of `getrusage`."""
    if _STATUS.exists():
        found = re.search(rf"{field}:\s+(\d+) kB", _STATUS.read_text())
        return int(found[1]) * 1024 if found else 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    print(json.dumps(_main(json.loads(sys.argv[1]))))
