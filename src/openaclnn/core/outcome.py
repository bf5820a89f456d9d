"""What a check is: a rule over a bound call, with the status of those that break it.

A `Check` looks at a call and returns a `Violation`, or None. A tensor left to us (AUTO) has not been made yet
and breaks no rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from openaclnn.core.call import Call
from openaclnn.core.status import AclnnError

__all__ = ["Check", "Outcome", "Violation"]


class Violation(NamedTuple):
    """What a broken rule says: which parameter, what was expected, what came."""

    parameter: str
    expected: str
    got: str


class Check(NamedTuple):
    """One row of an operator's check table."""

    row: str
    status: int
    rule: str
    names: tuple[str, ...]  # of parameters that it looks up; a rule of one operator's own says none
    broken_by: Callable[[Call], Violation | None]
    about: str = ""  # the one argument without which there is nothing to say; "": several

    def refusal(self, operator: str, violation: Violation) -> AclnnError:
        """What a call of the operator is told that breaks the rule so."""
        error = AclnnError(self.status, operator, *violation)
        error.rule = f"{self.row}: {self.rule}"
        return error


class Outcome(NamedTuple):
    """A check that was made, and what it found."""

    check: Check
    violation: Violation | None
