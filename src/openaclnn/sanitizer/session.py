"""A `Session` has rules at work: it puts itself between the program and the functions of `openaclnn.acl` and `openaclnn.aclnn`, and
between C and its wrappers.

Functions are exchanged while a session lasts and put back afterwards: a process that is not watched pays nothing.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from openaclnn import acl, aclnn
from openaclnn.capi import bridge, glue
from openaclnn.capi.handles import table
from openaclnn.capi.prototypes import Prototype
from openaclnn.core.forks import hold_over_forks
from openaclnn.runtime import AclFailure, current_stream
from openaclnn.runtime.enums import ENUMERATORS
from openaclnn.sanitizer.events import Call, Rules, c_site, operator_of, python_site
from openaclnn.sanitizer.findings import RULES, Finding, Settings, fault


def queue_look(stream: Any, look: Callable[[], None], report: Callable[[Finding], None]) -> bool:
    """Have a stream call a function behind all that is queued on it so far and before all that comes; False where there is none.

    `before` and `after` a phase two this is just before and just after its kernel. What the function raises is not the stream's.
    """

    def task() -> None:
        target.drain()
        try:
            look()
        except Exception as error:
            report(fault(error))

    try:
        target = current_stream(stream)
        if target.idle:  # waking the worker takes longer
            task()
        else:
            target.submit(task)
    except AclFailure:
        return False
    return True


class _Entry:
    """A call from C on its way to the Python function."""

    __slots__ = ("call", "name", "site")

    def __init__(self, name: str) -> None:
        self.name, self.site = name, c_site()
        self.call: Call | None = None


class _Thread(threading.local):
    entry: _Entry | None = None


class _Hooks:
    """The exchanged functions, for as long as `install` holds; `before` and `after` get each call."""

    def __init__(
        self, before: Callable[[Call], None], after: Callable[[Call], None], workspace: int
    ) -> None:
        self._before, self._after, self._workspace = before, after, workspace
        self._thread = _Thread()
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        for module in (acl, aclnn):
            for name in module.__all__:
                if name not in ENUMERATORS and name in vars(module):
                    self._exchange(vars(module), name, self._hook(name, vars(module)[name]))
        enter = vars(aclnn)["_enter"]

        def enter_hooked(operator: Any) -> None:
            enter(operator)
            for name in (f"{operator.name}GetWorkspaceSize", operator.name):
                self._exchange(vars(aclnn), name, self._hook(name, vars(aclnn)[name]))

        self._exchange(vars(aclnn), "_enter", enter_hooked)
        bridge.on_connect.append(self._install_c)
        self._undo.append(lambda: bridge.on_connect.remove(self._install_c))
        self._install_c()

    def uninstall(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _exchange(self, names: dict[str, Any], name: str, function: Any) -> None:
        original = names[name]
        names[name] = function
        self._undo.append(lambda: names.update({name: original}))

    def _install_c(self) -> None:
        for name, connection in bridge.connections.items():
            if "_function" in connection.names:
                module = acl if hasattr(acl, name) else aclnn
                self._exchange(connection.names, "_function", getattr(module, name))
            before = connection.wrapper
            connection.attach(self._entrance(connection.prototype, before))
            self._undo.append(functools.partial(connection.attach, before))

    def _hook(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, told of; the capital spellings go by the small ones."""
        name = "a" + name[1:]
        bind = _binder(name, function)
        thread = self._thread
        one = operator_of(name) is not None and name.endswith("GetWorkspaceSize")

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            entry = thread.entry
            thread.entry = None  # what the call itself leads to is no part of it
            if entry is not None and entry.name == name:
                call = entry.call = Call(name, bind(args, kwargs), entry.site)
            else:
                entry = None
                call = Call(name, bind(args, kwargs), python_site())
            self._before(call)
            answer = function(*args, **kwargs)
            if one and answer[0] == 0:
                answer = (0, max(answer[1], self._workspace), answer[2])
            call.finish(answer)
            if entry is None:
                self._after(call)
            return answer

        return watched

    def _entrance(self, prototype: Prototype, wrapper: Callable[..., Any]) -> Callable[..., Any]:
        """The wrapper that C calls, told of also where it refuses before it calls a Python function."""
        name = "a" + prototype.name[1:]
        thread = self._thread

        def entered(*values: Any) -> Any:
            entry = thread.entry = _Entry(name)
            answer = wrapper(*values)
            thread.entry = None
            call = entry.call
            if call is None:
                call = Call(name, _resolved(prototype, values), entry.site)
                self._before(call)
                call.status = answer if glue.failure_of(prototype) else int(not answer)
            call.handle = _handle(prototype, values, answer, call.status)
            self._after(call)
            return answer

        return entered


def _binder(
    name: str, function: Callable[..., Any]
) -> Callable[[Sequence[Any], dict[str, Any]], dict[str, Any]]:
    operator, defaults = operator_of(name), {}
    if operator is not None and name.endswith("GetWorkspaceSize"):
        names = [parameter.name for parameter in operator.parameters]
    else:
        parameters = inspect.signature(function).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
        if name.startswith("aclSet") and "executor" in names and "arguments" in names:
            names = _EXECUTOR_NAMES.get(name, ["executor"])
    return lambda args, kwargs: {**defaults, **dict(zip(names, args, strict=False)), **kwargs}


_EXECUTOR_NAMES = {
    f"aclSet{which}TensorAddr": ["executor", "index", "tensor", "addr"] for which in ("Input", "Output", "")
}  # fmt: skip


def _resolved(prototype: Prototype, values: Sequence[Any]) -> dict[str, Any]:
    """C arguments as the Python function would have got them, arrays and texts left out."""
    pairs = zip(prototype.parameters, values, strict=True)
    return {
        variable.name: table.find(value) if glue.is_object(variable) else value
        for variable, value in pairs
        if not glue.is_result(variable) and not glue.is_array(variable)
    }


def _handle(prototype: Prototype, values: Sequence[Any], answer: Any, status: int | None) -> int:
    if prototype.returns.endswith("*"):
        return int(answer or 0)
    if status:
        return 0
    for variable, value in zip(prototype.parameters, values, strict=True):
        created = glue.is_result(variable) and (
            variable.pointee in glue.HANDLES
            or (variable.pointee.startswith("acl") and variable.pointee.endswith("*"))
        )
        if created and value:
            return int(value[0])
    return 0


_lock = threading.RLock()  # a finaliser may come in between
hold_over_forks(_lock)

_JSON_START = b'{"findings": ['
_JSON_END = b"\n]}\n"


class Session:
    """The rules at work, from `start` to `stop`, and what they have found."""

    def __init__(self, settings: Settings, rules: Sequence[Rules]) -> None:
        self.settings = settings
        self.findings: list[Finding] = []
        self._rules: tuple[Rules, ...] = tuple(rules)
        for each in rules:
            each.listen(self._keep)
        self._seen: set[tuple[Any, ...]] = set()
        self._hooks = _Hooks(self._before, self._after, settings.workspace)
        self._ended = False
        self._process = os.getpid()
        self._json = settings.json.replace("%p", str(os.getpid()))

    def start(self) -> None:
        """Watch the program from now on."""
        self._hooks.install()
        self._write()

    def stop(self) -> None:
        """Watch it no more; what can be said only at the end is said now."""
        self._hooks.uninstall()
        self.end()
        self._rules = ()  # which keep objects of the program

    def end(self) -> int:
        """Say what can be said only at the end, once, and what the exit status should be, 0 for the program's own. The child of a fork
        has no objects of its own to tell of."""
        if os.getpid() != self._process:
            return 0
        with _lock:
            if not self._ended:
                self._ended = True
                for rules in self._rules:
                    self._tell(rules.at_exit)
                self._sum_up()
        return self.settings.exitcode if self.findings else 0

    def _before(self, call: Call) -> None:
        with _lock:
            for rules in self._rules:
                self._tell(rules.before, call)

    def _after(self, call: Call) -> None:
        with _lock:
            for rules in self._rules:
                self._tell(rules.after, call)

    def _tell(self, hook: Callable[..., None], *calls: Call) -> None:
        try:
            hook(*calls)
        except Exception as error:
            self._keep(fault(error, *calls))

    def _keep(self, finding: Finding) -> None:
        """Keep and print a finding, unless it is suppressed or the same rule was broken at the same place."""
        if finding.rule in self.settings.suppress:
            return
        name = finding.call.name if finding.call else ""
        sites = [finding.call.site] if finding.call else [site for _, site in finding.history]
        key = (finding.rule, name, finding.argument, *(site.key for site in sites))
        with _lock:
            if key in self._seen:
                return
            self._seen.add(key)
            if finding.call:
                finding = replace(finding, call=finding.call.without_arguments())
            self.findings.append(finding)
            self._print(finding.text())
            self._write(finding)

    def _print(self, text: str) -> None:
        if self.settings.text:
            print(text, file=sys.stderr, flush=True)

    def _write(self, finding: Finding | None = None) -> None:
        """Begin the file, or add to it. It is whole each time, since a wrong program may end at any time."""
        if not self._json or os.getpid() != self._process:
            return
        try:
            if finding is None:
                Path(self._json).write_bytes(_JSON_START + _JSON_END)
                return
            record = json.dumps(finding.record(), indent=2, ensure_ascii=False)
            comma = "," if len(self.findings) > 1 else ""
            with open(self._json, "r+b") as file:
                file.seek(-len(_JSON_END), os.SEEK_END)
                file.write(f"{comma}\n{record}".encode(errors="backslashreplace") + _JSON_END)
        except OSError as error:
            self._json = ""
            print(f"openaclnn sanitizer: cannot write findings: {error}", file=sys.stderr)

    def _sum_up(self) -> None:
        if self.findings:
            counts = Counter(finding.rule for finding in self.findings)
            each = ", ".join(f"{counts[rule]} {rule}" for rule in RULES if rule in counts)
            noun = "finding" if len(self.findings) == 1 else "findings"
            self._print(f"openaclnn sanitizer: {len(self.findings)} {noun}: {each}")
