"""Refused calls, printed where the environment asks for it; programs that only print a status say more then.

`ASCEND_SLOG_PRINT_TO_STDOUT=1` prints each on stdout, as a line of the toolkit's log, unless `ASCEND_GLOBAL_LOG_LEVEL`
is 4 (none). `OPENACLNN_EXPLAIN=1` prints each on stderr, with the rule that the call broke. Read once, at the first one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from datetime import datetime
from functools import cache

__all__ = ["show"]

_ERROR = 3
_MODULES = (("aclnn", "OP"), ("aclrt", "RUNTIME"), ("", "ASCENDCL"))  # by how functions are called


@cache
def _wanted() -> tuple[bool, bool]:
    level = os.environ.get("ASCEND_GLOBAL_LOG_LEVEL", "").strip()
    logs = os.environ.get("ASCEND_SLOG_PRINT_TO_STDOUT", "").strip() == "1"
    explains = os.environ.get("OPENACLNN_EXPLAIN", "").strip() not in ("", "0")
    return logs and (level not in ("0", "1", "2", "3", "4") or int(level) <= _ERROR), explains


def show(text: str, rule: str) -> None:
    """Print a refusal as the environment wants it; `rule` is empty where the text is all there is."""
    logs, explains = _wanted()
    if logs:
        _print_with_c(_line(text))
    if explains and sys.stderr is not None:
        reason = f"\n  rule {rule}" if rule else ""
        with contextlib.suppress(OSError, ValueError):  # closed: nobody wants to know
            print(f"openaclnn: {text}{reason}", file=sys.stderr, flush=True)


def _line(text: str) -> str:
    module = next(name for prefix, name in _MODULES if text.startswith(prefix))
    time = datetime.now().strftime("%Y-%m-%d-%H:%M:%S.%f")
    where = f"{module}({os.getpid()},{_program()}):{time[:-3]}.{time[-3:]}"
    return f"[ERROR] {where} [openaclnn]{threading.get_native_id()} {text}"


@cache
def _program() -> str:
    try:
        return os.path.basename(os.readlink("/proc/self/exe"))
    except OSError:
        return os.path.basename(sys.executable or "program")


def _print_with_c(line: str) -> None:
    """Through the C library's stdout, so that the line comes between a C program's own, in its place."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stdout is not None:
            sys.stdout.flush()
        library = ctypes.CDLL(None)
        library.puts(line.encode())
        library.fflush(None)
