"""The rules on objects: their lives, executors, the order of set-up and end."""

from __future__ import annotations

from openaclnn.capi.handles import Unknown
from openaclnn.sanitizer.events import Call, Rules
from openaclnn.sanitizer.findings import Finding, report

__all__ = ["ObjectRules"]


class ObjectRules(Rules):
    """Objects from their creation to their end."""

    def before(self, call: Call) -> None:
        if call.phase == 2:
            executor = call.arguments.get("executor")
            if isinstance(executor, Unknown) and "run" in executor.fate:
                report(Finding("executor-reused", call, "executor", "it has run already"))
