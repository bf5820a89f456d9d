"""The calls of a program, as rule sets hear of them: `Call` is one of them, `Rules` what listens."""

from __future__ import annotations

import functools
import threading
from typing import Any

from openaclnn.operators import find_operator
from openaclnn.runtime.errors import last_error
from openaclnn.sanitizer.sites import Site

__all__ = ["Call", "Rules", "operator_of"]

_VALUES = frozenset({
    "aclDataTypeSize", "aclFloat16ToFloat", "aclFloatToFloat16", "aclGetRecentErrMsg", "aclrtGetLastError", "aclrtGetSocName",
    "aclrtPeekAtLastError",
})  # fmt: skip
"""They return a value and no status."""


class Call:
    """A call of the program: what it passed, and in `after` what it got.

    `arguments` are by the names of C parameters, as the Python function gets them: handles are objects (one that is unknown or
    destroyed is a `capi.handles.Unknown` where C passed it), addresses are ints, null is None or 0; the pointers by which C gets results
    are not among them. `raw` has all parameters as C passed them, and is empty for calls from Python. `status` is 0 where the call
    succeeded; `result` is what C gets through its pointers or as a returned object: an address, an object, a tuple of both (phase one:
    workspace size and executor). `handle` is what C sees of the created object.
    """

    __slots__ = ("arguments", "handle", "name", "raw", "result", "site", "status", "thread")

    def __init__(
        self, name: str, arguments: dict[str, Any], raw: dict[str, Any], site: Site
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.raw = raw
        self.site = site
        self.thread = threading.get_ident()
        self.status: int | None = None
        self.result: Any = None
        self.handle = 0

    @property
    def from_c(self) -> bool:
        return bool(self.raw) or self.site.is_c

    @property
    def operator(self) -> Any:
        """The operator whose phase this is, or None."""
        return operator_of(self.name)

    @property
    def phase(self) -> int:
        """1 and 2 for those of an operator, else 0."""
        if operator_of(self.name) is None:
            return 0
        return 1 if self.name.endswith("GetWorkspaceSize") else 2

    def finish(self, answer: Any) -> None:
        """Take over what the Python function returned."""
        if self.name in _VALUES:
            self.status, self.result = 0, answer
        elif isinstance(answer, tuple):
            self.status, *results = answer
            self.result = results[0] if len(results) == 1 else tuple(results)
        elif self.name.startswith("aclCreate"):
            self.status, self.result = (last_error() if answer is None else 0), answer
        else:
            self.status = answer

    def without_arguments(self) -> Call:
        """What says which call it was, and keeps nothing of the program's alive."""
        return Call(self.name, {}, {}, self.site)

    def __repr__(self) -> str:
        return f"<{self.name}, status {self.status}>"


@functools.cache
def operator_of(name: str) -> Any:
    """The operator whose phase a function is, or None."""
    if not name.startswith("aclnn") or name in ("aclnnInit", "aclnnFinalize"):
        return None
    return find_operator(name.removesuffix("GetWorkspaceSize"))


class Rules:
    """A set of rules: it hears of each call, before and after, one at a time, and of the end."""

    def before(self, call: Call) -> None:
        """The program called; nothing has happened yet."""

    def after(self, call: Call) -> None:
        """The call returns."""

    def at_exit(self) -> None:
        """The program, or the part of it that is watched, is over."""
