"""The rules on products: calls that succeed here, but that a product refuses or computes otherwise.

What a product does is declared with each operator: its checks and its plan depend on the product, and its discrepancies say what the
product is known to do against its document.
"""

from __future__ import annotations

from openaclnn.core.call import Call as Bound
from openaclnn.core.call import bind_arguments
from openaclnn.core.declare import Operator
from openaclnn.core.products import Product, current_product, find_product
from openaclnn.core.status import AclnnError, status_name
from openaclnn.sanitizer.events import Call, Rules
from openaclnn.sanitizer.findings import Finding, report

__all__ = ["ProductRules", "asked_for"]


def asked_for(product: str) -> Product | None:
    """The product that a program is checked for; None: the one in force."""
    return find_product(product) if product else None


class ProductRules(Rules):
    """The calls of phase one, as another product sees them."""

    def __init__(self, product: str = "") -> None:
        self._product = asked_for(product)

    def after(self, call: Call) -> None:
        product = self._product or current_product()
        if call.phase != 1 or call.status != 0 or product.is_default:
            return
        operator = call.operator
        arguments = [call.arguments[parameter.name] for parameter in operator.parameters]
        try:
            theirs = bind_arguments(operator, arguments, product)
            ours = bind_arguments(operator, arguments, current_product())
        except AclnnError:  # descriptors that the program destroyed meanwhile
            return
        refusal = operator.first_violation(theirs)
        if refusal is not None:
            status = f"{refusal.status} {status_name(refusal.status)}"
            report(
                Finding(
                    "product-refuses",
                    call,
                    refusal.parameter,
                    f"{product.title} expects {refusal.expected}, got {refusal.got} [{status}]",
                )
            )
            return
        for argument, message in differences(operator, ours, theirs, product):
            report(Finding("product-differs", call, argument, message))


def differences(
    operator: Operator, ours: Bound, theirs: Bound, product: Product
) -> list[tuple[str, str]]:
    """What a product computes otherwise: the parameter, and how."""
    told = []
    here, there = operator.plan(ours), operator.plan(theirs)
    computed = {each.parameter for each in here.outputs} - {
        each.parameter for each in there.outputs
    }
    read = {each.parameter for each in here.inputs} - {each.parameter for each in there.inputs}
    seen = operator.seen_by_reference(theirs).keys() - operator.seen_by_reference(ours).keys()
    ignored = {each.name for each in operator.parameters if each.python_name in seen}
    for parameter in operator.parameters:
        if parameter.name in computed:
            told.append((parameter.name, f"{product.title} does not write it"))
        elif parameter.name in read | ignored:
            told.append((parameter.name, f"{product.title} accepts it without effect"))
    numbers = {n: (here.numbers[n], there.numbers.get(n)) for n in here.numbers}
    changed = [f"{n} {b} instead of {a}" for n, (a, b) in numbers.items() if a != b and a == a]
    if (changed or here.kernel != there.kernel) and not told:
        told.append(("", f"{product.title} computes with {', '.join(changed) or there.kernel}"))
    for each in operator.discrepancies:
        # Of those about ignored targets, who sees the targets tells.
        if product.tag in each.products and not each.ignored_targets and each.applies(theirs):
            told.append((each.parameter, f"{product.title} {each.text}"))
    return told
