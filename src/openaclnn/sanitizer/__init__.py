"""The sanitizer: it listens to the calls of a program written against the interface, and tells which of them are wrong.

    with openaclnn.sanitizer.sanitize() as findings:
        ...
    print([finding.rule for finding in findings])

Or OPENACLNN_SANITIZE=1, or `{"openaclnn": {"sanitize": "1"}}` in aclInit's file, or `openaclnn sanitize PROGRAM`. `session.py` puts itself
between the program and the functions and tells the rules of `events.py`, which knows where the program called; `findings.py` has the
names of the rules. The rules are in `objects.py`, `memory.py` (with `shadow.py`, what is known of each byte and what a kernel reads and writes, and `order.py`, what
happens before what), and in `values.py`, with those on products.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from openaclnn.capi import bridge
from openaclnn.runtime.context import requires_context
from openaclnn.sanitizer.events import Rules
from openaclnn.sanitizer.findings import Finding, Settings, known_rules
from openaclnn.sanitizer.memory import MemoryRules
from openaclnn.sanitizer.objects import ObjectRules
from openaclnn.sanitizer.order import Timeline
from openaclnn.sanitizer.session import Session
from openaclnn.sanitizer.values import ProductRules, ValueRules

__all__ = ["Finding", "Settings", "sanitize", "watch_as_asked", "watch_process"]


def rule_sets(settings: Settings) -> list[Rules]:
    """Every set of rules, fresh."""
    product, time = settings.product, Timeline()
    return [ObjectRules(), time, MemoryRules(time), ValueRules(product), ProductRules(product)]


@contextmanager
def sanitize(suppressions: Iterable[str] = (), product: str = "") -> Iterator[list[Finding]]:
    """Watch the program inside, and yield the list that the findings go to; the last ones come at the end.

    Functions are watched that are called as `acl.NAME` and `aclnn.NAME`; a name that was imported before stays as it was.
    """
    settings = Settings(suppress=known_rules(suppressions), product=product)
    session = Session(settings, rule_sets(settings))
    session.start()
    try:
        yield session.findings
    finally:
        session.stop()


_watching: list[Session] = []


def watch_process(settings: Settings | None) -> None:
    """Watch the program to its end."""
    if settings is None or _watching:
        return
    session = Session(settings, rule_sets(settings))
    _watching.append(session)
    session.start()
    atexit.register(_end)
    bridge.on_connect.append(_hear_of_exit)
    _hear_of_exit()


def watch_as_asked(text: str) -> None:
    """The same, as OPENACLNN_SANITIZE asks for. A text that means nothing is refused: who asks for a check must not pass without one."""
    try:
        watch_process(Settings.parse(text))
    except ValueError as error:
        raise ValueError(f"OPENACLNN_SANITIZE: {error}") from None


def _hear_of_exit() -> None:
    """A C program ends without Python's end."""
    if requires_context():
        bridge.call_last(_end)


def _end() -> None:
    (session,) = _watching
    status = session.end()
    if status:
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)
        os._exit(status)
