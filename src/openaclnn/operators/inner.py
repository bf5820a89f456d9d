"""How inner operators are declared: operators of rows of logits that `openaclnn.torch` alone calls. They are not part of the aclnn interface and not
registered. `openaclnn.torch` checks arguments itself, with messages in PyTorch's terms.

Their checks follow from each tensor's role, and see to it that no kernel reads or writes beyond a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import INVALID, Check, Violation
from openaclnn.core.declare import Operator, Sample
from openaclnn.core.dtypes import FLOAT, FLOATS, INT32, INT64, DType
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Free
from openaclnn.operators.rows import LOSSES, Rows

TEXTS = {
    "input": "logits; a student's, where there is a teacher", "target": "class of each row", "share": "share of each class", "weight": "weights of classes",
    "teacher": "the teacher's logits",
    "logProb": "log-probability of each row's class", "entropy": "of each row", "loss": "the loss of each row, or of all",
    "whole": "the sum of what is wanted of its classes", "own": "what the student's probabilities weigh",
    "top": "the largest of each row", "rest": "log-sum-exp less the largest", "teacherTop": "the largest of each teacher's row",
    "teacherRest": "log-sum-exp of that less the largest",
    "gradLogProb": "gradient of the log-probabilities", "gradEntropy": "gradient of the entropies", "gradLoss": "gradient of the losses, or of the loss",
    "gradInput": "gradient of input", "out": "the loss, or the gradient of input, which it may be itself",
    "kept": "what the gradient needs, of which the second is 0 if none was written",
    "memory": "what backward passes leave for the next loss: the loss's gradient, and 1 if it was the same twice",
}  # fmt: skip

Shape = Callable[[Call], tuple[int, ...]]


def inner_operator(
    name: str, summary: str, formula: str, kernel: str | Callable[[Call], str], read: Mapping[str, str], written: Mapping[str, str],
    reference: Callable[..., Any], samples: Sequence[Sample] = (), options: Sequence[Parameter] = (), *,
    numbers: Callable[[Call], Mapping[str, Any]] = lambda call: {}, free: Sequence[Free] = (), order: Sequence[str] = (), class_axis: int = 1,
    compute: DType | str = "", dtypes: Mapping[str, tuple[DType, ...]] | None = None, shapes: Mapping[str, Shape] | None = None,
    rules: Sequence[Check] = (),
) -> Operator:  # fmt: skip
    """An operator of tensors by name and role. The first "full" one is the source; those whose name ends in Optional may be null. The kernel takes inputs in the
    order of `read`, or in `order`. Logits, losses and their gradients have one of FLOATS, numbers of each row or class FLOAT, unless `dtypes` says
    otherwise; `shapes` has the shapes that do not follow from a role."""
    source = next(each for each, role in read.items() if role == "full")
    rows = Rows(kernel, source, {each: read[each] for each in order or read}, written, numbers, tuple(free), compute=compute, class_axis=class_axis)  # fmt: skip
    known, others = {"target": (INT64, INT32), **(dtypes or {})}, shapes or {}
    full, each_row = ("(..., C)", "(...)") if class_axis < 0 else ("(N, C, ...)", "(N, ...)")
    texts = {"full": full, "positions": each_row, "classes": "(C,)", LOSSES: f"{each_row} for none, else one element"}  # fmt: skip

    def parameter(tensor: str, role: str, kind: Kind) -> Parameter:
        text = TEXTS[tensor.removesuffix("Optional").removesuffix("Out")]
        shape = texts.get(role, "")
        wide, optional = role in ("full", LOSSES), tensor.endswith("Optional")
        listed = known.get(tensor, FLOATS if wide else (FLOAT,))
        if optional:
            return Parameter(tensor, kind, text, shape, listed, default=None, optional=True, weak=wide)  # fmt: skip
        return Parameter(tensor, kind, text, shape, listed, weak=wide)

    inputs = [parameter(*each, Kind.TENSOR) for each in read.items()]
    outputs = [parameter(*each, Kind.OUTPUT) for each in written.items()]
    needed = [each.name for each in (*inputs, *outputs) if not each.optional]
    like_source = [each.name for each in outputs if len(each.dtypes) > 1]
    float_or_like_source = [each.name for each in inputs if read[each.name] != "full" and each.dtypes == FLOATS]  # fmt: skip
    option_names = [each.name for each in options]
    roles = {**read, **written}

    def results(call: Call) -> Any:
        specs = rows.results(call)
        if not others.keys() & written.keys():
            return specs
        return tuple([(others[each.name](call), spec[1]) if each.name in others else spec for each, spec in zip(outputs, specs, strict=True)])  # fmt: skip

    def without_classes(call: Call) -> str:
        shape = call.tensor(source).shape
        return "" if len(shape) > max(class_axis, 0) and shape[class_axis] else f"shape {shape}"

    table = [
        checks.not_null("1", *needed),
        *(checks.dtype_one_of("2", each.name, each.dtypes) for each in (*inputs, *outputs)),
        *(checks.same_dtype("2", each, source) for each in like_source),
        *(checks.value_check("2", f"{each} is FLOAT, or as {source}", _dtype_fault(each, source), INVALID) for each in float_or_like_source),
        *(checks.reduction_known("3", each) for each in option_names if each.startswith("reduction")),
        *(checks.expect("3", "labelSmoothing is in [0, 1]", each, "a value in [0, 1]", _stray_smoothing) for each in option_names if each == "labelSmoothing"),
        checks.expect("4", f"{source} has a class", source, f"{full} with a class at least", without_classes),
        *rows.shaped("4", [each for each in roles if each != source and each not in others], dict.fromkeys(roles.values(), f"that follows from {source}")),
        *(checks.shape_is("4", each, _only(shape), f"that follows from {source}") for each, shape in others.items()),
        *rules,
    ]  # fmt: skip
    return Operator(
        name=name, summary=summary, formula=formula, parameters=(*inputs, *options, *outputs), families=frozenset(), checks=tuple(table),
        result=results, plan=rows.plan, reference=reference, module=getattr(reference, "func", reference).__module__, samples=tuple(samples),
    )  # fmt: skip


def _only(shape: Shape) -> checks.Shapes:
    return lambda call: (shape(call),)


def _dtype_fault(name: str, source: str) -> Callable[[Call], Violation | None]:
    def broken_by(call: Call) -> Violation | None:
        tensor, dtype = call.values[name], call.tensor(source).dtype
        if tensor is None or tensor.dtype in (FLOAT, dtype):
            return None
        return Violation(name, f"FLOAT, or {dtype}", tensor.dtype.name)

    return broken_by


def _stray_smoothing(call: Call) -> str:
    return "" if 0 <= call["labelSmoothing"] <= 1 else str(call["labelSmoothing"])
