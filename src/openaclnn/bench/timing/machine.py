"""What a result depends on besides the code: the machine, the versions, the threads."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import openaclnn

__all__ = ["OtherLoad", "describe_machine", "set_threads", "usable_cores", "versions"]

_PACKAGES = ("numpy", "ml_dtypes", "numba", "llvmlite", "torch", "triton")


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class OtherLoad:
    """How many cores other processes used while the block ran; `cores` stays None where Linux's /proc is missing.

    PyTorch's threads spin at barriers: with one of two cores taken by another process, a call of 17 us was
    measured at 505 us and one of 152 us at 750 us. Ratios taken then are not ours to report.
    """

    def __init__(self) -> None:
        self.cores: float | None = None

    def __enter__(self) -> OtherLoad:
        self._start = time.perf_counter(), _all_busy(), _own_busy()
        return self

    def __exit__(self, *_: object) -> None:
        start, busy, own = self._start
        now = _all_busy()
        if busy is not None and now is not None:
            others = (now - busy) - (_own_busy() - own)
            self.cores = max(others / (time.perf_counter() - start), 0.0)

    def disturbs(self, threads: int) -> bool:
        """Whether they took more than the cores that the benchmark leaves free; 0.2 is noise of the ticks."""
        spare = max((os.cpu_count() or 1) - threads, 0)
        return self.cores is not None and self.cores > spare + 0.2


def _own_busy() -> float:
    """Seconds that this process and the children it has waited for have worked."""
    return sum(os.times()[:4])


def _all_busy() -> float | None:
    """Seconds that all cores together have worked since the machine started."""
    statistics = Path("/proc/stat")
    if not statistics.exists():
        return None
    ticks = [int(field) for field in statistics.read_text().split("\n", 1)[0].split()[1:8]]
    user, nice, system, _, _, interrupts, soft = ticks  # idle and waiting are left out
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def set_threads(count: int | None, torch: Any) -> int:
    """Use this many threads on both sides; None leaves each its own. Returns how many ours may use."""
    if count is not None:
        os.environ["OPENACLNN_NUM_THREADS"] = str(count)  # for fresh processes
        openaclnn.set_num_threads(count)
        if torch is not None:
            torch.set_num_threads(count)
    return openaclnn.get_num_threads()


def versions() -> dict[str, str]:
    """Versions of Python, openaclnn and the packages that compute."""
    found = {"python": platform.python_version(), "openaclnn": openaclnn.__version__}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def describe_machine(torch: Any = None, device: str = "cpu") -> dict[str, Any]:
    """CPU model, cores, memory and system; the GPU too where one is timed."""
    machine: dict[str, Any] = {
        "cpu": _cpu_model(),
        "architecture": platform.machine(),
        "cores": usable_cores(),
        "memory_gib": _memory_gib(),
        "system": platform.system(),
    }
    if device == "cuda":
        own = torch.cuda.get_device_properties(torch.cuda.current_device())
        machine["gpu"] = own.name
        machine["gpu_memory_gib"] = round(own.total_memory / 2**30, 1)
        machine["cuda"] = torch.version.cuda
    return machine


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None


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
