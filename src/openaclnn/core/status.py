"""What a status is called, the one exception type, and the recent error message of each thread."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from contextlib import suppress
from datetime import datetime

from openaclnn.core.codes import AclError, Status
from openaclnn.core.log import show

__all__ = [
    "AclError",
    "AclnnError",
    "Status",
    "category",
    "record_message",
    "share_messages",
    "shown",
    "status_name",
    "take_message",
]


def status_name(code: int) -> str:
    """The C name of a status, of either family; the number itself where it has none."""
    for family in (Status, AclError):
        try:
            return family(code).name
        except ValueError:
            continue
    return str(code)


def shown(value: object) -> str:
    """What came, for a message: a handle by its C type (`c_name` of its class), all else as Python writes it."""
    name = getattr(type(value), "c_name", "")
    return f"an {name}" if name else repr(value)


class AclnnError(ValueError):
    """A refused call: `status`, `operator`, `parameter`, `expected` and `got` say exactly why."""

    __module__ = "openaclnn"  # where users find it
    rule = ""  # the row of the operator's checks that was broken, with its number

    def __init__(self, status: int, operator: str, parameter: str, expected: str, got: str) -> None:
        self.status = int(status)
        self.operator = operator
        self.parameter = parameter
        self.expected = expected
        self.got = got
        super().__init__(f"{operator}: {parameter}: expected {expected}, got {got}")

    def __str__(self) -> str:
        return f"{self.args[0]} [{self.status} {status_name(self.status)}]"

    def __reduce__(self) -> tuple[type[AclnnError], tuple[int, str, str, str, str]]:
        return AclnnError, (self.status, self.operator, self.parameter, self.expected, self.got)


# Only the newest messages are worth keeping when nobody fetches them: a program that never asks
# must not grow.
_KEPT_MESSAGES = 64


class _Messages(deque[str]):
    """The newest first."""

    def __init__(self) -> None:
        super().__init__(maxlen=_KEPT_MESSAGES)

    def move_to(self, other: _Messages) -> None:
        """Put all on top of another's."""
        with suppress(IndexError):  # none left
            while True:
                other.appendleft(self.pop())


class _Recent(threading.local):
    def __init__(self) -> None:
        self.messages = _Messages()
        _of_threads[id(self.messages)] = self.messages


_of_threads: weakref.WeakValueDictionary[int, _Messages] = weakref.WeakValueDictionary()
_recent = _Recent()
_shared = _Messages()
_process_wide = False


def share_messages(process_wide: bool) -> None:
    """Whether messages are kept for the whole process (`err_msg_mode` "1") or for each thread. With a change those of all threads
    become the process's, or the process's those of the thread that makes it."""
    global _process_wide
    changed, _process_wide = process_wide != _process_wide, process_wide
    if not changed:
        return
    if process_wide:
        for others in list(_of_threads.values()):
            if others is not _recent.messages:
                others.move_to(_shared)
        _recent.messages.move_to(_shared)
    else:
        _shared.move_to(_recent.messages)


def _messages() -> _Messages:
    return _shared if _process_wide else _recent.messages


def category(code: int) -> str:
    """How messages name the family of a status."""
    if code in (Status.ACLNN_ERR_PARAM_NULLPTR, Status.ACLNN_ERR_PARAM_INVALID):
        return "AclNN_Parameter_Error(EZ1001)"
    if 161000 <= code < 600000 and code % 100000 // 1000 == 61:
        return "AclNN_Inner_Error(EZ9999)"
    return "Runtime_Error(EE9999)"


def record_message(code: int, text: str, rule: str = "") -> None:
    """Keep `text` for this thread's next `aclGetRecentErrMsg`, and show it where the environment asks for that."""
    stamp = datetime.now().strftime("%Y-%m-%d-%H:%M:%S.%f")[:-3]
    told = f"{text} [{int(code)} {status_name(code)}]"
    _messages().appendleft(f"[PID: {os.getpid()}] {stamp} {category(int(code))}: {told}")
    show(told, rule)


def take_message() -> str | None:
    """The messages of this thread since the last call, newest first, and forget them; None if none."""
    taken = _Messages()
    _messages().move_to(taken)
    return "\n".join(taken) or None
