"""Cross entropy over a vocabulary whose columns are split over ranks: what a rank adds to each row's sum, and the loss of rows from the complete sums."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from openaclnn.core import checks
from openaclnn.core.call import Call
from openaclnn.core.checks import TILING, Check, Violation
from openaclnn.core.declare import OutputSpec, Sample
from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOATS, INT32
from openaclnn.core.interface import Kind, Parameter
from openaclnn.core.plan import Plan, elementwise_plan, empty_plan
from openaclnn.core.status import Status
from openaclnn.engines.formulas import vocabulary_parallel as formulas
from openaclnn.operators.activations import NEWEST
from openaclnn.operators.rows import Array, Indices, Rows, declare, widened

# The sums of a rank.

LOGITS = "vocabParallelLogits"
READ = (LOGITS, "target", "globalLogitsMax")
NUMBERS = ("predictedLogitsOut", "sumExpLogitsOut", "expLogitsOut")
INDICES = ("targetOffsetOut", "targetMaskOut")
WRITTEN = (*NUMBERS, *INDICES)
LARGEST_ROWS, CLASSES = 32768, (16, 204800)
OF_ROWS = {"positions": f"of {LOGITS}' rows"}


def _of_product(broken: Callable[[tuple[int, ...], Call], bool]) -> Callable[[Call], str]:
    """The fault of a size that the products' kernels do not support; ours support any, on the default product."""

    def got(call: Call) -> str:
        shape = call.tensor(LOGITS).shape
        return f"shape {shape}" if not call.product.is_default and broken(shape, call) else ""

    return got


def _rank_fault(call: Call) -> str:
    logits = call.tensor(LOGITS)
    return "" if logits.rank in (2, 3) and not logits.empty else f"shape {logits.shape}"


def _step(call: Call) -> int:
    return 16 if call.tensor(LOGITS).dtype is BFLOAT16 else 8


def _columns_fault(call: Call) -> str:
    start, end = call["vocabStartIndex"], call["vocabEndIndex"]
    return "" if end - start == call.tensor(LOGITS).shape[-1] else f"{start} to {end}"


# Targets of other ranks are allowed. The options say how many columns there are, so a plan serves one number of them.
SUMS_PLAN = Rows(
    formulas.sum_exp_and_index_logit.name, LOGITS, dict(zip(READ, ("full", "positions", "positions"), strict=True)),
    {name: "full" if name == "expLogitsOut" else "positions" for name in WRITTEN}, lambda call: {"first_class": call["vocabStartIndex"]},
    compute=FLOAT, class_axis=-1, fixed_classes=True,
)  # fmt: skip


@widened
def reference(
    vocab_parallel_logits: Array, target: Indices, global_logits_max: Array, vocab_start_index: int, vocab_end_index: int
) -> tuple[Array, ...]:  # fmt: skip
    mask = (target < vocab_start_index) | (target >= vocab_end_index)
    offset = np.where(mask, 0, target.astype(np.int64) - vocab_start_index)
    below = vocab_parallel_logits - global_logits_max[..., None]
    chosen = np.take_along_axis(below, offset[..., None], -1)[..., 0]
    powers = np.exp(below)
    return np.where(mask, 0, chosen), powers.sum(-1), powers, offset, mask.astype(np.int64)


declare(
    "CrossEntropySumExpAndIndexLogit", "What a rank with some columns of the vocabulary adds to the cross entropy of each row.",
    "x = vocabParallelLogits, m = globalLogitsMax; targetMask = target < vocabStartIndex or target >= vocabEndIndex\n"
    "targetOffset = targetMask ? 0 : target - vocabStartIndex; predictedLogits = targetMask ? 0 : x[targetOffset] - m\n"
    "expLogits = exp(x - m); sumExpLogits = sum over the row of expLogits",
    (
        Parameter(LOGITS, Kind.TENSOR, "this rank's columns of the logits", "(N, V) or (S, B, V)", (FLOAT, BFLOAT16)),
        Parameter("target", Kind.TENSOR, "class of each row, of the whole vocabulary", "(N,) or (S, B)", (INT32,), weak=False),
        Parameter("globalLogitsMax", Kind.TENSOR, "the largest logit of each row on all ranks", "(N,) or (S, B)", (FLOAT, BFLOAT16)),
        Parameter("vocabStartIndex", Kind.INT64, "the first of this rank's columns"),
        Parameter("vocabEndIndex", Kind.INT64, "one more than the last"),
        *(
            Parameter(name, Kind.OUTPUT, text, shape, (dtype,), c_type="const aclTensor *")
            for name, text, shape, dtype in (
                ("predictedLogitsOut", "the target's logit less the largest; 0 where it is another rank's", "(N,) or (S, B)", FLOAT),
                ("sumExpLogitsOut", "this rank's part of the sum of powers", "(N,) or (S, B)", FLOAT),
                ("expLogitsOut", "the powers", "same as vocabParallelLogits", FLOAT),
                ("targetOffsetOut", "the target's column here; 0 where it is another rank's", "(N,) or (S, B)", INT32),
                ("targetMaskOut", "1 where the target is another rank's, else 0", "(N,) or (S, B)", INT32),
            )
        ),
    ),
    (
        checks.not_null("1", *READ, *WRITTEN),
        checks.dtype_in("2", LOGITS),
        checks.dtype_one_of("2", LOGITS, (FLOAT, BFLOAT16)),
        checks.expect(
            "3", "vocabEndIndex > vocabStartIndex >= 0", "vocabEndIndex", "columns from vocabStartIndex, 0 or more, on",
            lambda call: "" if call["vocabEndIndex"] > call["vocabStartIndex"] >= 0 else f"{call['vocabStartIndex']} to {call['vocabEndIndex']}",
        ),
        checks.expect("4", "vocabParallelLogits has 2 or 3 dimensions, and elements", LOGITS, "2 or 3 dimensions, none of them 0", _rank_fault),
        checks.expect("5", "the product has so many rows", LOGITS, f"{LARGEST_ROWS} rows at the most", _of_product(lambda shape, call: math.prod(shape[:-1]) > LARGEST_ROWS)),
        checks.expect("6", "the product has so many columns", LOGITS, f"{CLASSES[0]} to {CLASSES[1]} columns", _of_product(lambda shape, call: not CLASSES[0] <= shape[-1] <= CLASSES[1])),
        checks.expect("7", "the product has such a number of columns", LOGITS, "a multiple of 8 columns, of 16 in BFLOAT16", _of_product(lambda shape, call: bool(shape[-1] % _step(call)))),
        checks.expect("8", "vocabEndIndex - vocabStartIndex is the number of columns", "vocabEndIndex", "as many columns as vocabParallelLogits has", _columns_fault),
        checks.dtype_one_of("9", "target", (INT32,)),
        *SUMS_PLAN.shaped("10", ("target",), OF_ROWS),
        checks.same_dtype("11", "globalLogitsMax", LOGITS),
        *SUMS_PLAN.shaped("12", ("globalLogitsMax",), OF_ROWS),
        *(checks.dtype_one_of("13", name, (FLOAT,)) for name in NUMBERS),
        *(checks.dtype_one_of("13", name, (INT32,)) for name in INDICES),
        *SUMS_PLAN.shaped("14", WRITTEN, OF_ROWS),
    ),
    SUMS_PLAN, reference,
    (
        Sample(
            "the second rank of several",
            {
                "vocab_parallel_logits": (FLOAT, [[1, 2] * 8, [0] * 15 + [-1]]), "target": (INT32, [17, 15]), "global_logits_max": (FLOAT, [2, 1]),
                "vocab_start_index": 16, "vocab_end_index": 32,
            },
            (
                [0, 0], [8 + 8 * math.exp(-1), 15 * math.exp(-1) + math.exp(-2)], [[math.exp(-1), 1] * 8, [math.exp(-1)] * 15 + [math.exp(-2)]],
                [1, 0], [0, 1],
            ),
        ),
        Sample(
            "the first of two ranks",
            {
                "vocab_parallel_logits": (FLOAT, [[1, 2], [0, -1], [3, 1]]), "target": (INT32, [2, 0, 3]),
                "global_logits_max": (FLOAT, [3, 0, 4]), "vocab_start_index": 0, "vocab_end_index": 2,
            },
            (
                [0, 0, 0], [0.5032147244080551, 1.3678794411714423, 0.4176665095393063],
                [[0.1353352832366127, 0.36787944117144233], [1, 0.36787944117144233], [0.36787944117144233, 0.049787068367863944]],
                [0, 0, 0], [1, 0, 1],
            ),
        ),
        Sample(
            "the second of two ranks",
            {
                "vocab_parallel_logits": (FLOAT, [[3, 0], [-1, -0.5], [4, -2.5]]), "target": (INT32, [2, 0, 3]),
                "global_logits_max": (FLOAT, [3, 0, 4]), "vocab_start_index": 2, "vocab_end_index": 4,
            },
            (
                [0, 0, -6.5], [1.049787068367864, 0.9744101008840757, 1.0015034391929776],
                [[1, 0.049787068367863944], [0.36787944117144233, 0.6065306597126334], [1, 0.0015034391929775724]],
                [0, 0, 1], [0, 1, 0],
            ),
        ),
    ),
    frozenset({"950"}), generated=True, module=__name__, empty=(), lacking=Status.ACLNN_ERR_INNER_FIND_KERNEL_ERROR,
)  # fmt: skip

# The loss from the sums of all ranks.

SUMS = ("logitsMax", "sumExpLogits", "predictedLogits")
COLUMNS, LOSS, SHARES = "vocabParallelLogitsOptional", "lossOut", "softMaxOutOptional"


def _softmax_fault(call: Call) -> str:
    return "null" if call[COLUMNS] is not None and call[SHARES] is None else ""


def _with_logits(rule: Check) -> Check:
    """The rule, for calls with logits alone: without them, the output for probabilities is not touched."""
    return checks.only_if(lambda call: call[COLUMNS] is not None, rule)[0]


def _rows_fault(call: Call) -> Violation | None:
    rows, columns = call.tensor("logitsMax").shape, call[COLUMNS]
    if columns is None or columns.shape[:1] == rows:
        return None
    return Violation(COLUMNS, f"{rows[0]} rows, the number of logitsMax", f"shape {columns.shape}")


def _empty_fault(call: Call) -> Violation | None:
    empty = [name for name in (*SUMS, COLUMNS) if call[name] is not None and call[name].empty]
    if call.product.tag != "950" or call.product.is_default or not empty:
        return None
    return Violation(empty[0], "elements (product 950)", f"shape {call[empty[0]].shape}")


def _loss_results(call: Call) -> tuple[OutputSpec, ...]:
    rows, columns = call.tensor("logitsMax").shape, call[COLUMNS]
    return (rows, FLOAT), ((0,) if columns is None else columns.shape, FLOAT)


LOSS_PLAN = Rows(
    formulas.loss_with_max_sum.name, COLUMNS, {COLUMNS: "full", **dict.fromkeys(SUMS, "positions")}, {LOSS: "positions", SHARES: "full"}, compute=FLOAT
)  # fmt: skip


def _loss_plan(call: Call) -> Plan:
    values, name = call.values, call.operator.name
    _, whole, predicted = ((each, values[each]) for each in SUMS)
    loss, columns, shares = (LOSS, values[LOSS]), values[COLUMNS], values[SHARES]
    spared = [] if shares is None else [(SHARES, shares, "full")]
    if loss[1].empty:
        return empty_plan(name, loss, spared if columns is None else ())
    if columns is None or columns.empty:
        without = formulas.loss_of_max_sum.name
        return elementwise_plan(name, without, FLOAT, [whole, predicted], loss, {}, spared=spared)
    return LOSS_PLAN.plan(call)


@widened
def reference_loss(
    logits_max: Array, sum_exp_logits: Array, predicted_logits: Array, label_smoothing: float = 0.0, input: Array | None = None,
    weight: Array | None = None, vocab_parallel_logits: Array | None = None,
) -> tuple[Array, Array | None]:  # fmt: skip
    loss = np.log(sum_exp_logits) - predicted_logits
    if vocab_parallel_logits is None:
        return loss, None
    return loss, np.exp(vocab_parallel_logits - logits_max[:, None]) / sum_exp_logits[:, None]


declare(
    "FusedCrossEntropyLossWithMaxSum", "Cross entropy of each row from the largest logits and sums of all ranks, and this rank's columns of softmax.",
    "lossOut = log(sumExpLogits) - predictedLogits\n"
    "softMaxOut = exp(vocabParallelLogits - logitsMax) / sumExpLogits, if there are logits",
    (
        Parameter("logitsMax", Kind.TENSOR, "the largest logit of each row", "(N,)", (FLOAT,)),
        Parameter("sumExpLogits", Kind.TENSOR, "sum of powers of each row", "(N,)", (FLOAT,)),
        Parameter("predictedLogits", Kind.TENSOR, "the target's logit of each row less the largest", "(N,)", (FLOAT,)),
        Parameter("labelSmoothing", Kind.FLOAT, "0", default=0.0),
        Parameter("inputOptional", Kind.TENSOR, "not read", "any", FLOATS, default=None, optional=True),
        Parameter("weightOptional", Kind.TENSOR, "not read", "any", FLOATS, default=None, optional=True),
        Parameter(COLUMNS, Kind.TENSOR, "this rank's columns of the logits", "(N, V)", FLOATS, default=None, optional=True),
        Parameter(LOSS, Kind.OUTPUT, "the loss of each row", "(N,)", (FLOAT,)),
        Parameter(SHARES, Kind.OUTPUT, "this rank's columns of softmax; not touched without logits", "(N, V)", (FLOAT,), optional=True),
    ),
    (
        checks.not_null("1", *SUMS, LOSS),
        checks.expect(
            "1", "softMaxOutOptional is not null where vocabParallelLogitsOptional is not", SHARES,
            "a tensor, where vocabParallelLogitsOptional is one", _softmax_fault, checks.NULL,
        )._replace(names=(SHARES,)),
        *(checks.dtype_one_of("2", name, (FLOAT,)) for name in (*SUMS, LOSS)),
        checks.dtype_in("3", COLUMNS),
        _with_logits(checks.dtype_one_of("4", SHARES, (FLOAT,))),
        checks.rank_is("5", "logitsMax", 1),
        *(checks.same_shape("6", name, "logitsMax") for name in (*SUMS[1:], LOSS)),
        checks.rank_is("7", COLUMNS, 2),
        _with_logits(checks.same_shape("8", SHARES, COLUMNS)),
        checks.expect("9", "labelSmoothing is 0", "labelSmoothing", "0", lambda call: str(call["labelSmoothing"]) if call["labelSmoothing"] != 0 else ""),
        checks.value_check("10", "vocabParallelLogitsOptional has as many rows as logitsMax", _rows_fault, TILING),
        checks.value_check("11", "the product takes empty tensors", _empty_fault, TILING),
    ),
    _loss_plan, reference_loss,
    (
        Sample(
            "the first of two ranks",
            {
                "logits_max": (FLOAT, [3, 0, 4]), "sum_exp_logits": (FLOAT, [1.5, 2.25, 1.25]), "predicted_logits": (FLOAT, [0, 0, -6.5]),
                "vocab_parallel_logits": (FLOAT, [[1, 2], [0, -1], [3, 1]]),
            },
            (
                [0.4054651081081644, 0.8109302162163288, 6.72314355131421],
                [[0.09022352215774180, 0.24525296078096155], [0.4444444444444444, 0.16350197385397438], [0.29430355293715387, 0.039829654694291156]],
            ),
        ),
    ),
    NEWEST, result=_loss_results, module=__name__, empty=("logitsMax",),
)  # fmt: skip
