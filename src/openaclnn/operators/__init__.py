"""The operators. Each is declared by a module: modules of a single operator are imported here, those of a family when one of its operators is asked for.

Import the complete `registry` from here.
"""

from __future__ import annotations

import functools
import importlib

from openaclnn.core import declare
from openaclnn.core.declare import Operator, SupportTable
from openaclnn.core.interface import python_name
from openaclnn.operators import (  # noqa: F401
    cross_entropy,
    elu,
    l1_loss,
    likelihood,
)

__all__ = [
    "FAMILIES", "family_of", "find_operator", "grouped", "load_family", "operators_by_kernel", "registry", "support_table",
]  # fmt: skip

FAMILIES: dict[str, tuple[str, ...]] = {
    "rectified": (
        "aclnnRelu", "aclnnInplaceRelu", "aclnnLeakyRelu", "aclnnInplaceLeakyRelu", "aclnnLeakyReluBackward", "aclnnSquaredRelu",
        "aclnnAddRelu", "aclnnInplaceAddRelu", "aclnnThreshold", "aclnnInplaceThreshold", "aclnnThresholdBackward",
        "aclnnHardtanhBackward", "aclnnHeaviside",
    ),
    "shrinking": (
        "aclnnHardshrink", "aclnnHardshrinkBackward", "aclnnSoftshrink", "aclnnSoftshrinkBackward", "aclnnShrink",
    ),
    "sigmoids": (
        "aclnnSigmoid", "aclnnInplaceSigmoid", "aclnnSigmoidBackward", "aclnnSilu", "aclnnSiluBackward", "aclnnSwish",
        "aclnnSwishBackward", "aclnnFastGelu", "aclnnFastGeluBackward", "aclnnLogSigmoid", "aclnnLogSigmoidForward",
        "aclnnLogSigmoidBackward", "aclnnSoftplus", "aclnnSoftplusBackward", "aclnnMish", "aclnnInplaceMish", "aclnnMishBackward",
        "aclnnLogit", "aclnnLogitGrad", "aclnnHardsigmoid", "aclnnInplaceHardsigmoid", "aclnnHardsigmoidBackward", "aclnnHardswish",
        "aclnnInplaceHardswish", "aclnnHardswishBackward", "aclnnHardswishBackwardV2",
    ),
    "gelu": ("aclnnGelu", "aclnnGeluV2", "aclnnGeluBackward", "aclnnGeluBackwardV2"),
    "gated": (
        "aclnnGlu", "aclnnGluBackward", "aclnnSwiGlu", "aclnnSwiGluGrad", "aclnnGeGlu", "aclnnGeGluBackward", "aclnnGeGluV3",
        "aclnnGeGluV3Backward",
    ),
    "exponential": (
        "aclnnSelu", "aclnnInplaceSelu", "aclnnSeluBackward", "aclnnCelu", "aclnnInplaceCelu", "aclnnErfinv", "aclnnInplaceErfinv",
    ),
    "softmax_cross_entropy_with_logits": ("aclnnSoftmaxCrossEntropyWithLogits",),
    "binary": (
        "aclnnBinaryCrossEntropy", "aclnnBinaryCrossEntropyBackward", "aclnnBinaryCrossEntropyWithLogits",
        "aclnnBinaryCrossEntropyWithLogitsBackward", "aclnnBinaryCrossEntropyWithLogitsTargetBackward",
    ),
    "divergence": ("aclnnKlDivBackward", "aclnnKlDivTargetBackward"),
    "regression": ("aclnnMseLoss", "aclnnMseLossOut", "aclnnMseLossBackward", "aclnnSoftMarginLoss", "aclnnSoftMarginLossBackward"),
    "softmaxes": ("aclnnSoftmax", "aclnnLogSoftmax", "aclnnSoftmaxBackward", "aclnnLogSoftmaxBackward"),
    "prelu": ("aclnnPrelu", "aclnnPreluBackward"),
    "multilabel_margin_loss": ("aclnnMultilabelMarginLoss",),
    "vocabulary_parallel": ("aclnnCrossEntropySumExpAndIndexLogit", "aclnnFusedCrossEntropyLossWithMaxSum"),
    "fused_linear": ("aclnnFusedLinearOnlineMaxSum", "aclnnFusedLinearCrossEntropyLossGrad"),
}  # fmt: skip
"""The modules that declare several operators each, with these operators; importing all modules takes a tenth of a second."""


def load_family(name: str) -> tuple[Operator, ...]:
    """The operators of a family's module, which is imported if it was not."""
    importlib.import_module(f"{__name__}.{name}")
    declared = {operator.name: operator for operator in declare.registry()}
    return tuple(declared[member] for member in FAMILIES[name])


@functools.cache
def _families() -> dict[str, str]:
    """The family's module of each operator that is declared in one, by the operator's C and Python names."""
    return {
        name: family
        for family, members in FAMILIES.items()
        for member in members
        for name in (member, python_name(member))
    }


def family_of(name: str) -> str | None:
    """The family's module that declares an operator, by the operator's C or Python name; None for operators with a module of their own."""
    return _families().get(name)


def registry() -> tuple[Operator, ...]:
    """All operators: those with a module of their own, then family by family, in the same order however they were loaded."""
    of_families = [operator for name in FAMILIES for operator in load_family(name)]
    alone = [operator for operator in declare.registry() if family_of(operator.name) is None]
    return (*alone, *of_families)


def grouped() -> dict[str, list[Operator]]:
    """All operators in groups by name, for lists that people read; groups are in the order of their first operators."""
    groups: dict[str, list[Operator]] = {}
    for operator in registry():
        family = family_of(operator.name) or next(f for part, f in _PARTS if part in operator.name)
        groups.setdefault(_WIDER.get(family, family), []).append(operator)
    return groups


_PARTS = (("Loss", "losses"), ("CrossEntropy", "losses"), ("Softmax", "softmax"), ("Elu", "exponential"), ("", "others"))  # fmt: skip
"""The groups of operators with a module of their own, by parts of their names."""

_LOSSES = ("softmax_cross_entropy_with_logits", "binary", "divergence", "multilabel_margin_loss", "regression", "vocabulary_parallel", "fused_linear")  # fmt: skip
_WIDER = dict.fromkeys(_LOSSES, "losses") | {"prelu": "rectified", "softmaxes": "softmax"}
"""The groups of families whose own name is too narrow for a list."""


def find_operator(name: str) -> Operator:
    """An operator by its name in any spelling (aclnnEluBackward, EluBackward, elu_backward), or by the name of its kernel in
    case lists (elu_grad_v2); KeyError names the nearest ones.
    """
    family = family_of(name)
    for operator in declare.registry() if family is None else load_family(family):
        if name in (operator.name, operator.python_name):
            return operator
    kernels, spelling = operators_by_kernel(), _spelling(name)
    known = {_spelling(kernel): operators[0] for kernel, operators in kernels.items()}
    known |= {_spelling(operator.name): operator for operator in registry()}
    if spelling in known:
        return known[spelling]
    from difflib import get_close_matches

    near = [known[each].python_name for each in get_close_matches(spelling, known, 3, 0.75)]
    hint = f"`openaclnn list` names the {len(registry())} operators that are known"
    if near:
        hint = f"did you mean {' or '.join(dict.fromkeys(near))}?"
    raise KeyError(f"unknown operator {name!r}; {hint}")


def operators_by_kernel() -> dict[str, list[Operator]]:
    """The operators by their kernels' names in case lists. Of several operators with the same kernel, the one with the shortest name
    stands first.
    """
    by_kernel: dict[str, list[Operator]] = {}
    for operator in sorted(registry(), key=lambda each: len(each.name)):
        for form in getattr(operator.workloads, "KERNELS", ()):
            by_kernel.setdefault(form.name, []).append(operator)
    return by_kernel


def _spelling(name: str) -> str:
    """A name in lower case, without underscores and the prefix "aclnn", in which spellings differ."""
    return name.strip().replace("_", "").lower().removeprefix("aclnn")


def support_table() -> SupportTable:
    """Operator x product x dtype, from the declarations, family by family."""
    return SupportTable.of([operator for members in grouped().values() for operator in members])
