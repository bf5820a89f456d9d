"""How much memory the process may use, as the system says it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

__all__ = ["usable_memory"]

_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def usable_memory() -> int:
    """The least of the machine's memory, the control groups' and the address space's limits, in bytes."""
    return min((_physical(), _address_space(), *_group_limits()))


def _physical() -> int:
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return sys.maxsize


def _address_space() -> int:
    with suppress(ImportError, AttributeError, ValueError, OSError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        return sys.maxsize if soft == resource.RLIM_INFINITY else soft
    return sys.maxsize


def _group_limits() -> Iterator[int]:
    """What the process's control group and those around it allow; both versions of the interface."""
    lines: list[str] = []
    with suppress(OSError):
        lines = _GROUPS.read_text().splitlines()
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if not controllers:
            folder, name = _MOUNT, "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = _MOUNT / "memory", "memory.limit_in_bytes"
        else:
            continue
        # Inside a container the place may be the host's, and the container's own group lies at the mount.
        inner = PurePosixPath(place.lstrip("/"))
        for group in (inner, *inner.parents):
            with suppress(OSError, ValueError):  # no such file, or "max"
                yield int((folder / group / name).read_text())
