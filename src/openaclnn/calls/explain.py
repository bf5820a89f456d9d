"""`explain`: which checks a call goes through, which one fails, and which engine would run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from openaclnn.calls.guard import check_devices
from openaclnn.core.call import bind_plain, plain_arguments, product_of
from openaclnn.core.checks import Outcome
from openaclnn.core.declare import Operator
from openaclnn.core.forks import undivided
from openaclnn.core.plan import Plan
from openaclnn.core.status import AclnnError, status_name
from openaclnn.engines.dispatch import choose_engine
from openaclnn.engines.threads import described
from openaclnn.operators import find_operator


@dataclass
class Explanation:
    """What `explain` found; print it, or read its fields."""

    operator: Operator
    product: str
    checks: list[Outcome] = field(default_factory=list)
    error: AclnnError | None = None
    plan: Plan | None = None
    engine: str | None = None
    reasons: tuple[str, ...] = ()
    threads: str = ""

    @property
    def ok(self) -> bool:
        return self.error is None

    def __str__(self) -> str:
        lines = [f"{self.operator.name} (product {self.product})"]
        for check, violation in self.checks:
            mark = "ok  " if violation is None else "FAIL"
            lines.append(f"  {mark} {check.number:>3}  {check.rule}")
        skipped = len(self.operator.checks) - len(self.checks)
        if skipped:
            lines.append(f"        {skipped} more checks not reached")
        if self.error is not None:
            lines.append(f"  status {self.error.status} {status_name(self.error.status)}")
            lines.append(f"  {self.error.args[0]}")
        elif self.plan is not None:
            lines.append(f"  status 0, workspace {self.plan.workspace} bytes")
            if self.plan.empty:
                lines.append("  nothing to compute: a tensor is empty")
            else:
                classes = f" x {self.plan.classes} classes" if self.plan.classes else ""
                if classes and self.operator.axis is not None:
                    classes += f" along axis {self.plan.class_axis}"
                reduced = f", their {self.plan.reduction}" if self.plan.reduction else ""
                lines.append(
                    f"  kernel {self.plan.kernel} over {self.plan.shape}{classes}{reduced}, "
                    f"computed as {self.plan.compute}, written as {self.plan.output.dtype}"
                )
                lines.append(f"  engine {self.engine}")
                lines += [f"    {reason}" for reason in self.reasons]
                if self.threads:
                    lines.append(f"  threads of a large call: {self.threads}")
        return "\n".join(lines)


@undivided
def explain(
    operator: str | Operator | Callable[..., Any], /, *args: Any, product: Any = None, **kwargs: Any
) -> Explanation:
    """Go through a plain call's checks and planning without running it.

    `operator` is a plain function, its name or its C name; the rest are that call's arguments.
    """
    if isinstance(operator, str):
        operator = find_operator(operator)
    elif not isinstance(operator, Operator):
        operator = operator.operator  # type: ignore[attr-defined]
    assert isinstance(operator, Operator)
    profile = product_of(operator, product)
    explanation = Explanation(operator, profile.tag)
    try:
        call = bind_plain(operator, plain_arguments(operator, args, kwargs), profile)
        explanation.checks = operator.run_checks(call)
        last = explanation.checks[-1]
        if last.violation is not None:
            raise last.check.refusal(operator.name, last.violation)
        device = check_devices(call)
        operator.outline(call, device)
        explanation.plan = operator.plan(call)
        if not explanation.plan.empty:
            choice = choose_engine(explanation.plan, device)
            explanation.engine, explanation.reasons = choice.engine, choice.reasons
            explanation.threads = described() if choice.engine == "cpu" else ""
    except AclnnError as error:
        explanation.error = error
    return explanation
