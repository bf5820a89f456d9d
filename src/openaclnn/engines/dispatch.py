"""Which engine runs a plan, and why."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

from openaclnn.core.plan import Plan
from openaclnn.core.products import choosing
from openaclnn.core.status import AclnnError, Status

ENGINES: dict[str, str] = {
    "cpu": "openaclnn.engines.cpu",
    "triton": "openaclnn.engines.gpu",
    "numpy": "openaclnn.engines.numpy",
}
"""Engines by name, in order of preference, with the package of their kernels."""

Runner = Callable[[Sequence[Any], int], int]
"""Of the operands' addresses, the output's last, and a stream; not 0 where a target was out of range."""


class Choice(NamedTuple):
    """The engine that serves a plan, and what was said of those before it."""

    engine: str
    prepare: Callable[[], Runner]  # makes what runs the plan
    flat: Any = None  # the plan's `cpu.formulas.forms.Flat`, or None
    refused: tuple[str, ...] = ()
    # What runs a plan for other sizes too, and for other strides too with up to how many elements; each may give None.
    dynamic_shapes: Callable[[Plan], Any] | None = None
    dynamic_strides: Callable[[Plan], Any] | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """What speaks against each engine that was asked, and for the last."""
        asked = ", asked for by name" if current_engine() else ""
        return *self.refused, f"{self.engine}: serves it{asked}"


engine_variable: ContextVar[str | None] = ContextVar("openaclnn_engine", default=None)
"""What `use_engine` sets: machine code asks it at every call."""

chosen_engine = engine_variable.get
"""The engine of the innermost `use_engine` block, or None."""


def _known(name: str) -> str:
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}; known engines: {', '.join(ENGINES)}")
    return name


@functools.cache
def _named_by_environment() -> str | None:
    name = os.environ.get("OPENACLNN_ENGINE")
    return _known(name) if name else None


def current_engine() -> str | None:
    """The engine asked for by `use_engine` or `OPENACLNN_ENGINE`; None leaves the choice to us.

    The environment is read by the first call that asks for it; a name that is not known is refused by every call.
    """
    chosen = engine_variable.get()
    return _named_by_environment() if chosen is None else chosen


@contextmanager
def use_engine(name: str) -> Iterator[None]:
    """Run calls in this block on one engine: `with openaclnn.use_engine("numpy"): ...`"""
    with choosing(engine_variable, _known(name)):
        yield


@functools.cache
def _engine(name: str) -> tuple[Any, Any, Any, Any]:
    """An engine, and what only some have; None for what this one has not."""
    engine: Any = importlib.import_module(ENGINES[name])
    offer, dynamic_shapes, dynamic_strides = (
        getattr(engine, ability, None) for ability in ("offer", "dynamic_shapes", "dynamic_strides")
    )
    return engine, offer, dynamic_shapes, dynamic_strides


@functools.cache
def _elsewhere(name: str, device: str) -> str | None:
    """What an engine says of a device that it does not serve."""
    served = _engine(name)[0].DEVICES
    if device in served or device.partition(":")[0] in served:
        return None
    return f"serves {' and '.join(served)} memory, not {device}"


def objections(device: str) -> dict[str, str]:
    """Each engine with why it cannot serve this memory; "" where it can."""
    return {
        name: _elsewhere(name, device) or _engine(name)[0].unavailable() or "" for name in ENGINES
    }


def choose_engine(plan: Plan, device: str) -> Choice:
    """The first engine that serves the plan on this memory; an engine asked for by name must."""
    asked = current_engine()
    refused: tuple[str, ...] = ()
    for name in (asked,) if asked else ENGINES:
        engine, offer, dynamic_shapes, dynamic_strides = _engine(name)
        objection = _elsewhere(name, device) or engine.unavailable() or engine.declines(plan)
        if objection is None:
            prepare, flat = offer(plan) if offer else (partial(engine.prepare, plan), None)
            return _new_choice(
                Choice, (name, prepare, flat, refused, dynamic_shapes, dynamic_strides)
            )
        refused += (f"{name}: {objection}",)
    raise AclnnError(
        Status.ACLNN_ERR_INNER_FIND_KERNEL_ERROR, plan.operator, "engine",
        f"one that runs {plan.kernel} on {device} memory", "; ".join(refused),
    )  # fmt: skip


_new_choice = tuple.__new__  # a third of the time
