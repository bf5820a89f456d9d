"""Cross entropy of a linear layer over a vocabulary whose columns are split over ranks: three numbers of each row of a rank's logits, and its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import Check
from openaclnn.core.declare import OutputSpec, Sample
from openaclnn.core.dtypes import BFLOAT16, BOOL, FLOAT, FLOAT16, INT32, INT64, UINT8
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Operand, Plan, empty_plan
from openaclnn.core.status import Status
from openaclnn.core.steps import PLACED_TARGETS, RESTORED_TARGETS, Steps, chunks
from openaclnn.engines.formulas import vocabulary_parallel as formulas
from openaclnn.operators.rows import Array, declare
from openaclnn.operators.vocabulary_parallel import reference as of_logits

FAMILIES = frozenset({"a3", "a2"})
HALVES = (FLOAT16, BFLOAT16)
INDICES = (INT32, INT64)
MOST_FEATURES, LEAST_CLASSES = 65534, 128  # limits of the products' kernels; ours have none


def _sizes(call: Call) -> tuple[int, int, int]:
    """The counts of rows, of this rank's columns, and of features."""
    rows, features = call.tensor("input").shape
    return rows, call.tensor("weight").shape[0], features


def _on_products(broken: Callable[[Call], Any]) -> Callable[[Call], Any]:
    return lambda call: None if call.product.is_default else broken(call)


def _shape(*axes: str) -> checks.Shapes:
    """A function that returns the shape with axes of these names."""

    def shapes(call: Call) -> tuple[tuple[int, ...], ...]:
        rows, columns, features = _sizes(call)
        known = {"rows": rows, "columns": columns, "features": features, "bytes": -(-rows // 8)}
        return (tuple([known[axis] for axis in axes]),)

    return shapes


def _has_features(row: str) -> Check:
    return checks.expect(
        row, "weight has as many features as input", "weight", "input's number of features along axis 1",
        lambda call: "" if call.tensor("weight").shape[1] == _sizes(call)[2] else f"shape {call.tensor('weight').shape}",
    )  # fmt: skip


INPUT = Parameter("input", Kind.TENSOR, "the features of each row", "(m, k)", HALVES)
WEIGHT = Parameter("weight", Kind.TENSOR, "this rank's columns of the linear layer", "(n, k)", HALVES)  # fmt: skip

# A rank's logits.

LOGITS = "vocabParallelLogitsOutOptional"
ROWS = ("logitsMaxLocalOut", "sumExpLogitsLocalOut", "predictedLogitsLocalOut")
PLACES = ("targetMaskOut", "maskedTargetOut")


def _logits_shapes(call: Call) -> tuple[tuple[int, ...], ...]:
    rows, columns, _ = _sizes(call)
    return (rows, columns), (0,)


def _results(call: Call) -> tuple[OutputSpec, ...]:
    rows, columns, _ = _sizes(call)
    number = ((rows,), FLOAT)
    places = ((-(-rows // 8),), UINT8), ((rows,), call.tensor("target").dtype)
    return number, number, number, *places, ((rows, columns), call.tensor("input").dtype)


def _plan(call: Call) -> Plan:
    values, name = call.values, call.operator.name
    rows, columns, _ = _sizes(call)
    if rows == 0:
        return empty_plan(name, (ROWS[0], values[ROWS[0]]))
    kept = values[LOGITS] is not None and values[LOGITS].rank == 2
    outputs = {each: values[each] for each in (*ROWS, *PLACES, *([LOGITS] if kept else ()))}
    steps = Steps(name, {each: values[each] for each in ("input", "weight", "target")}, outputs)
    local = steps.scratch((rows,), INT64)
    first = values["vocabStartIndex"]
    numbers = {"first": first, "columns": min(columns, values["vocabEndIndex"] - first)}
    steps.add_kernel(PLACED_TARGETS, [steps["target"]], [local, *(steps[each] for each in PLACES)], numbers)  # fmt: skip
    formula = formulas.online_max_sum_and_logits if kept else formulas.online_max_sum
    cuts = list(chunks(rows, columns))
    logits = steps.scratch((cuts[0][1], columns), FLOAT)
    for begin, end in cuts:
        chunk = logits.rows(0, end - begin)
        steps.add_product(steps["input"].rows(begin, end), steps["weight"].turned, chunk)
        written = [(steps[each].rows(begin, end), "positions") for each in ROWS]
        if kept:
            written.append((steps[LOGITS].rows(begin, end), "full"))
        read = [(chunk, "full"), (local.rows(begin, end), "positions")]
        steps.add_rows(formula.name, read, written, {"first_class": 0})
    output = values[LOGITS]
    spared = [] if kept or output is None else [Operand(LOGITS, output.dtype, (), role="single")]
    return steps.plan(formula.name, (rows, columns), spared)


def reference(
    input: Array, weight: Array, target: Array, vocab_start_index: int, vocab_end_index: int, work: Any = np.float64
) -> tuple[Array, ...]:  # fmt: skip
    """The document's formulas in float64 (or in `work`)."""
    with np.errstate(all="ignore"):
        logits = input.astype(work) @ weight.astype(work).T
    top, end = logits.max(1), min(vocab_end_index, vocab_start_index + logits.shape[1])
    predicted, sums, _, placed, away = of_logits(
        logits, target, top, vocab_start_index, end, work=work
    )
    padded = np.ones(-(-len(target) // 8) * 8, np.uint8)
    padded[: len(target)] = away
    return top, sums, predicted, np.packbits(padded, bitorder="little").astype(np.int64), placed, logits  # fmt: skip


SHARES = {"input": (FLOAT16, [[1, 2], [0, -1], [3, 1]]), "target": (INT32, [2, 0, 3])}
declare(
    "FusedLinearOnlineMaxSum", "A linear layer's logits on a rank with some columns of the vocabulary, as the largest, the sum of powers and the target's of each row.",
    "x = input * weight^T; m = the largest x of the row; logitsMaxLocal = m; sumExpLogitsLocal = sum over the row of exp(x - m)\n"
    "a = target < vocabStartIndex or target >= vocabEndIndex or target - vocabStartIndex >= n; targetMask has a bit for each row: a\n"
    "maskedTarget = a ? 0 : target - vocabStartIndex; predictedLogitsLocal = a ? 0 : x[maskedTarget] - m; vocabParallelLogits = x",
    (
        INPUT,
        WEIGHT,
        Parameter("target", Kind.TENSOR, "class of each row, of the whole vocabulary", "(m,)", INDICES, weak=False),
        Parameter("vocabStartIndex", Kind.INT64, "the first of this rank's columns"),
        Parameter("vocabEndIndex", Kind.INT64, "one more than the last"),
        Parameter(ROWS[0], Kind.OUTPUT, "the largest logit of each row on this rank", "(m,)", (FLOAT,)),
        Parameter(ROWS[1], Kind.OUTPUT, "this rank's sum of powers below it", "(m,)", (FLOAT,)),
        Parameter(ROWS[2], Kind.OUTPUT, "the target's logit less the largest; 0 where it is another rank's", "(m,)", (FLOAT,)),
        Parameter(PLACES[0], Kind.OUTPUT, "a bit for each row, least significant first: 1 where the target is another rank's", "((m + 7) / 8,)", (UINT8,)),
        Parameter(PLACES[1], Kind.OUTPUT, "the target's column here; 0 where it is another rank's", "(m,)", INDICES),
        Parameter(LOGITS, Kind.OUTPUT, "the logits, rounded; not computed where this is null, or of shape (0,)", "(m, n)", HALVES, optional=True),
    ),
    (
        checks.not_null("1", "input", "weight", "target", *ROWS, *PLACES),
        checks.dtype_in("2", "input", "weight"),
        *(checks.dtype_one_of("2", name, HALVES) for name in ("input", "weight")),
        checks.dtype_one_of("3", "target", INDICES),
        checks.same_dtype("4", "weight", "input"),
        *(checks.dtype_one_of("5", name, (FLOAT,)) for name in ROWS),
        checks.dtype_one_of("6", PLACES[0], (UINT8,)),
        checks.same_dtype("7", PLACES[1], "target"),
        checks.same_dtype("8", LOGITS, "input"),
        *(checks.rank_is("9", name, 2) for name in ("input", "weight")),
        *(checks.rank_is("9", name, 1) for name in ("target", *ROWS, *PLACES)),
        checks.expect("10", "weight has columns", "weight", "a column at least", lambda call: "" if call.tensor("weight").shape[0] else f"shape {call.tensor('weight').shape}"),
        checks.expect("11", "the product has so many features", "input", f"{MOST_FEATURES} features at the most", _on_products(lambda call: f"shape {call.tensor('input').shape}" if _sizes(call)[2] > MOST_FEATURES else "")),
        _has_features("12"),
        *(checks.shape_is("13", name, _shape("rows"), "of input's rows") for name in ("target", *ROWS)),
        checks.shape_is("13", PLACES[0], _shape("bytes"), "of input's rows, eight in a byte"),
        checks.shape_is("13", PLACES[1], _shape("rows"), "of input's rows"),
        checks.shape_is("13", LOGITS, _logits_shapes, "of input's rows and weight's, or none"),
        checks.expect("14", "vocabStartIndex >= 0", "vocabStartIndex", "0 or more", lambda call: call["vocabStartIndex"] if call["vocabStartIndex"] < 0 else ""),
        checks.expect("15", "vocabEndIndex >= vocabStartIndex", "vocabEndIndex", "vocabStartIndex or more", lambda call: f"{call['vocabStartIndex']} to {call['vocabEndIndex']}" if call["vocabEndIndex"] < call["vocabStartIndex"] else ""),
    ),
    _plan, reference,
    (
        Sample(
            "the first of two ranks",
            {**SHARES, "weight": (FLOAT16, [[1, 0], [0, 1]]), "vocab_start_index": 0, "vocab_end_index": 2},
            (
                [2, 0, 3], [1.3678794411714423, 1.3678794411714423, 1.1353352832366128], [0, 0, 0], [0b11111101], [0, 0, 0],
                [[1, 2], [0, -1], [3, 1]],
            ),
        ),
        Sample(
            "the second of two ranks",
            {**SHARES, "weight": (FLOAT16, [[1, 1], [-1, 0.5]]), "vocab_start_index": 2, "vocab_end_index": 4},
            (
                [3, -0.5, 4], [1.049787068367864, 1.6065306597126334, 1.0015034391929776], [0, 0, -6.5], [0b11111010], [0, 0, 1],
                [[3, 0], [-1, -0.5], [4, -2.5]],
            ),
        ),
    ),
    FAMILIES, result=_results, module=__name__, empty=("target",), lacking=Status.ACLNN_ERR_RUNTIME_ERROR,
)  # fmt: skip

# Its gradients.

TOP, SUM, SHARE = "logitsMaxOptional", "sumExpLogitsOptional", "softmaxOptional"
READ = ("grad", "input", "weight", "targetMask", "maskedTarget")
WRITTEN = ("inputGradOut", "weightGradOut")


def _softmax_fault(call: Call) -> str:
    """The fault of a call with neither probabilities nor both tensors that they are computed from."""
    return "null" if call[SHARE] is None and None in (call[TOP], call[SUM]) else ""


def _mask_fault(call: Call) -> str:
    rows, mask = _sizes(call)[0], call.tensor("targetMask")
    enough = mask.size == rows if mask.dtype is BOOL else 8 * mask.size >= rows
    return "" if enough else f"shape {mask.shape}"


def _gradient_results(call: Call) -> tuple[OutputSpec, ...]:
    inputs, weight = call.tensor("input"), call.tensor("weight")
    return (inputs.shape, inputs.dtype), (weight.shape, weight.dtype)


def _gradient_plan(call: Call) -> Plan:
    values, name = call.values, call.operator.name
    rows, columns, features = _sizes(call)
    if rows * columns * features == 0:
        return empty_plan(name, (WRITTEN[0], values[WRITTEN[0]]))
    shared = values[SHARE] is not None
    used = (*READ, *((SHARE,) if shared else (TOP, SUM)))
    steps = Steps(name, {each: values[each] for each in used}, {each: values[each] for each in WRITTEN})  # fmt: skip
    formula = formulas.gradient_of_shares if shared else formulas.gradient_of_logits
    weight, local = steps["weight"], steps.scratch((rows,), INT64)
    steps.add_kernel(RESTORED_TARGETS, [steps["targetMask"], steps["maskedTarget"]], [local], {})
    cuts = list(chunks(rows, columns))
    chunk_rows = cuts[0][1]
    gradient = steps.scratch((chunk_rows, columns), weight.tensor.dtype)
    logits = None if shared else steps.scratch((chunk_rows, columns), FLOAT)
    total = steps.scratch((columns, features), FLOAT) if len(cuts) > 1 else None
    for begin, end in cuts:
        x, chunk = steps["input"].rows(begin, end), gradient.rows(0, end - begin)
        per_row = [(each.rows(begin, end), "positions") for each in (local, *(steps[step] for step in used[5:] if not shared), steps["grad"])]  # fmt: skip
        if logits is None:
            values_read = steps[SHARE].rows(begin, end)
        else:
            values_read = logits.rows(0, end - begin)
            steps.add_product(x, weight.turned, values_read)
        steps.add_rows(formula.name, [(values_read, "full"), *per_row], [(chunk, "full")], {"ignore_index": -1})  # fmt: skip
        steps.add_product(chunk, weight, steps[WRITTEN[0]].rows(begin, end))
        into = steps[WRITTEN[1]] if total is None or end == rows else total
        steps.add_product(chunk.turned, x, into, total if begin else None)
    return steps.plan(formula.name, (rows, columns))


def reference_gradient(
    grad: Array, input: Array, weight: Array, target_mask: Array, masked_target: Array, label_smoothing: float = 0.0, logits_max: Array | None = None,
    sum_exp_logits: Array | None = None, softmax: Array | None = None, work: Any = np.float64,
) -> tuple[Array, Array]:  # fmt: skip
    """The document's formulas in float64 (or in `work`); the gradient of logits is rounded to the inputs' dtype."""
    rows, columns = input.shape[0], weight.shape[0]
    away = target_mask
    if away.dtype != np.bool_:
        away = np.unpackbits(away.astype(np.uint8), bitorder="little")[:rows].astype(bool)
    x, factors = input.astype(work), weight.astype(work)
    with np.errstate(all="ignore"):
        if softmax is not None:
            share = softmax.astype(work)
        else:
            assert logits_max is not None
            assert sum_exp_logits is not None
            powers = np.exp(x @ factors.T - logits_max.astype(work)[:, None])
            share = powers / sum_exp_logits.astype(work)[:, None]
        is_target = (np.arange(columns) == masked_target[:, None]) & ~away[:, None]
        exact = (share - is_target) * grad.astype(work)[:, None]
        rounded = exact.astype(input.dtype).astype(work)
        return rounded @ factors, rounded.T @ x


EXAMPLE = {"grad": (FLOAT, [1, 2, 0.5]), "input": (FLOAT16, [[1.0, 2], [0, -1], [3, 1]])}


def _shapes_of(name: str, *axes: str) -> Check:
    return checks.shape_is("12", name, _shape(*axes), "of input's rows")


declare(
    "FusedLinearCrossEntropyLossGrad", "Gradients of the cross entropy of a linear layer by its input and by a rank's columns of its weight.",
    "P = exp(input * weight^T - logitsMax) / sumExpLogits, or softmax if there is one; a[i] is the bit of row i of targetMask\n"
    "G[i, j] = (P[i, j] - (1 - a[i]) * (j == maskedTarget[i])) * grad[i], rounded to the dtype of input\n"
    "inputGrad = G * weight; weightGrad = G^T * input",
    (
        Parameter("grad", Kind.TENSOR, "gradient of each row's loss", "(m,)", (FLOAT,)),
        INPUT,
        WEIGHT,
        Parameter("targetMask", Kind.TENSOR, "1 where the row's target is another rank's: bits, least significant first, or truth values", "((m + 7) / 8,) or more, or (m,)", (UINT8, BOOL), weak=False),
        Parameter("maskedTarget", Kind.TENSOR, "the target's column here", "(m,)", INDICES, weak=False),
        Parameter("labelSmoothing", Kind.FLOAT, "0", default=0.0),
        Parameter(TOP, Kind.TENSOR, "the largest logit of each row on all ranks", "(m,)", (FLOAT,), default=None, optional=True),
        Parameter(SUM, Kind.TENSOR, "sum of powers of each row on all ranks", "(m,)", (FLOAT,), default=None, optional=True),
        Parameter(SHARE, Kind.TENSOR, "this rank's columns of softmax, in place of the two", "(m, n)", (FLOAT,), default=None, optional=True),
        Parameter(WRITTEN[0], Kind.OUTPUT, "this rank's part of the gradient of input", "(m, k)", HALVES),
        Parameter(WRITTEN[1], Kind.OUTPUT, "gradient of weight", "(n, k)", HALVES),
    ),
    (
        checks.expect(
            "1", f"{SHARE} is not null, or {TOP} and {SUM} are not", SHARE, f"a tensor, where {TOP} or {SUM} is none", _softmax_fault, checks.NULL
        ),
        checks.not_null("2", *READ, *WRITTEN),
        checks.dtype_one_of("3", "grad", (FLOAT,)),
        checks.dtype_in("4", "input", "weight"),
        *(checks.dtype_one_of("4", name, HALVES) for name in ("input", "weight")),
        checks.dtype_one_of("5", "targetMask", (UINT8, BOOL)),
        checks.dtype_one_of("6", "maskedTarget", INDICES),
        *(checks.dtype_one_of("7", name, (FLOAT,)) for name in (TOP, SUM, SHARE)),
        *(checks.same_dtype("8", name, "input") for name in ("weight", *WRITTEN)),
        checks.format_is_nd("9", *READ, TOP, SUM, SHARE, *WRITTEN),
        checks.expect("10", "labelSmoothing is 0", "labelSmoothing", "0", lambda call: call["labelSmoothing"] if call["labelSmoothing"] != 0 else ""),
        *(checks.rank_is("11", name, rank) for name, rank in (("grad", 1), ("input", 2), ("weight", 2), ("targetMask", 1), ("maskedTarget", 1), (TOP, 1), (SUM, 1), (SHARE, 2), (WRITTEN[0], 2), (WRITTEN[1], 2))),
        _shapes_of("grad", "rows"),
        checks.expect("13", "the product has so few columns", "weight", f"{LEAST_CLASSES} columns at least with {SHARE}", _on_products(lambda call: f"shape {call.tensor('weight').shape}" if call[SHARE] is not None and _sizes(call)[1] < LEAST_CLASSES else "")),
        _has_features("14"),
        checks.expect("15", "targetMask has a bit for each row, or a truth value", "targetMask", "a bit for each of input's rows, or a truth value", _mask_fault),
        checks.shape_is("16", "maskedTarget", _shape("rows"), "of input's rows"),
        *(checks.shape_is("17", name, _shape("rows"), "of input's rows") for name in (TOP, SUM)),
        checks.shape_is("17", SHARE, _shape("rows", "columns"), "of input's rows and weight's"),
        checks.same_shape("18", WRITTEN[0], "input"),
        checks.same_shape("18", WRITTEN[1], "weight"),
    ),
    _gradient_plan, reference_gradient,
    (
        Sample(
            "the first of two ranks",
            {
                **EXAMPLE, "weight": (FLOAT16, [[1.0, 0], [0, 1]]), "target_mask": (UINT8, [0b101]), "masked_target": (INT32, [0, 0, 0]),
                "logits_max": (FLOAT, [3, 0, 4]), "sum_exp_logits": (FLOAT, [1.55300179277591899, 2.34228954205551787, 1.41916994873228397]),
            },
            (
                [[0.08714431874203257, 0.23688281808991016], [-1.14613459860950218, 0.31411952669916565], [0.12961077758871009, 0.01754091129548569]],
                [[0.47597665150816276, 1.45003401368227758], [0.28950555197636724, 0.17718702077614040]],
            ),
        ),
        Sample(
            "the same from softmax",
            {
                **EXAMPLE, "weight": (FLOAT16, [[1.0, 0], [0, 1]]), "target_mask": (BOOL, [True, False, True]), "masked_target": (INT64, [0, 0, 0]),
                "softmax": (FLOAT, [[0.125, 0.25], [0.5, 0.25], [0.25, 0.0625]]),
            },
            ([[0.125, 0.25], [-1, 0.5], [0.125, 0.03125]], [[0.5, 1.375], [0.34375, 0.03125]]),
            exact=True,
        ),
    ),
    FAMILIES, result=_gradient_results, module=__name__, empty=("input", "weight"), lacking=Status.ACLNN_ERR_RUNTIME_ERROR,
)  # fmt: skip
