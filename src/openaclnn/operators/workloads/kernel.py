"""How the kernel below an interface is called, where case lists speak of that: its name and the order of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["KernelForm"]


@dataclass(frozen=True)
class KernelForm:
    """A kernel by its name in case lists; its inputs, and the attributes that have another name, by C name."""

    name: str
    inputs: tuple[str, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)
