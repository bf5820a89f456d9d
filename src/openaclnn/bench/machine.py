"""What a result depends on besides the code: the machine, the versions, the threads."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openaclnn
from openaclnn.bench.timing import Contender
from openaclnn.core.results import usable_cores, usable_memory
from openaclnn.engines import threads

_PACKAGES = ("numpy", "ml_dtypes", "llvmlite", "torch", "triton")
THREADED = "cpu"  # the engine that has threads


def set_threads(count: int | None, torch: Any) -> int:
    """Use this many threads on both sides; None leaves each its own. Returns how many ours may use."""
    if count is not None:
        os.environ["OPENACLNN_NUM_THREADS"] = str(count)  # for fresh processes
        openaclnn.set_num_threads(count)
        if torch is not None:
            torch.set_num_threads(count)
    return openaclnn.get_num_threads()


def threaded(engines: Sequence[str]) -> Sequence[str]:
    """Those to time by every number of threads; the others' times are the first one's."""
    return [THREADED] if THREADED in engines else engines


def describe_threads(torch: Any) -> str:
    """How many threads large problems may use, ours and PyTorch's."""
    theirs = "" if torch is None else f"; PyTorch {torch.get_num_threads()}"
    return f"ours {threads.described()}{theirs}"


def team_of(contender: Contender, device: str, torch: Any) -> str:
    """Whose threads run a contender, as a word for the table; ours is run once to see it."""
    if device != "cpu":
        return "GPU"
    if not contender.ours:
        return "Python" if torch is None else "PyTorch"
    if contender.engine != THREADED or not _shared(contender):
        return "caller"
    return "own" if threads.team_in_use() is None else "OpenMP"


def _shared(contender: Contender) -> bool:
    """Whether a call is cut into parts: the pool then writes down how many."""
    from openaclnn.engines.cpu.launching import control, pool

    pool._CONTROL[control.PARTS] = 0
    with contender.inside():
        contender.call()
    return bool(pool._CONTROL[control.PARTS])


def versions() -> dict[str, str]:
    """Versions of Python, openaclnn and the packages that compute."""
    listed = {"python": platform.python_version(), "openaclnn": openaclnn.__version__}
    for name in _PACKAGES:
        try:
            listed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            listed[name] = "not installed"
    return listed


def describe_machine(torch: Any = None, device: str = "cpu") -> dict[str, Any]:
    """CPU model, cores, memory and system; the GPU too where one is timed."""
    machine: dict[str, Any] = {
        "cpu": _cpu_model(),
        "architecture": platform.machine(),
        "cores": usable_cores(),
        "memory_gib": round(usable_memory() / 2**30, 1),
        "system": platform.system(),
    }
    if device == "cuda":
        gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
        machine["gpu"] = gpu.name
        machine["gpu_memory_gib"] = round(gpu.total_memory / 2**30, 1)
        machine["cuda"] = torch.version.cuda
    return machine


def _cpu_model() -> str:
    """The model's name; Arm cores have it in lscpu only."""
    try:
        text = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        information = Path("/proc/cpuinfo")
        text = information.read_text() if information.exists() else ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()
