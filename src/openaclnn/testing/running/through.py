"""The ways a case can be run: both phases, the plain call, compiled C."""

from __future__ import annotations

import openaclnn
from openaclnn import acl, aclnn
from openaclnn.core.status import AclnnError
from openaclnn.testing.running.build import Built

__all__ = ["WAYS", "run_through"]

WAYS = ("two-phase", "plain", "c")
"""The ways by name; the first is the default."""


def run_through(way: str, built: Built) -> tuple[int, str]:
    """Run a case, which writes its outputs; the status, and what was told where that is not 0."""
    if way == "c":
        from openaclnn.testing.running.through_c import run_c

        return run_c(built)
    return _plain(built) if way == "plain" else _two_phase(built)


def _two_phase(built: Built) -> tuple[int, str]:
    name = built.operator.name
    status, size, executor = getattr(aclnn, f"{name}GetWorkspaceSize")(*built.values)
    if status == 0:
        status = getattr(aclnn, name)(None, size, executor, None)
    if status == 0:
        status = acl.aclrtSynchronizeStream(None)
    return int(status), "" if status == 0 else str(acl.aclGetRecentErrMsg())


def _plain(built: Built) -> tuple[int, str]:
    function = getattr(openaclnn, built.operator.python_name)
    try:
        function(**built.whole)
    except AclnnError as error:
        return error.status, str(error)
    return 0, ""
