"""`openaclnn.torch` beside PyTorch: steps of training on large problems, steps of modules on few elements, and PyTorch's own operators as they
are and as `openaclnn.torch.enable` replaces them.

A step clears the gradient, computes the loss, and its gradient. Which functions: the workloads that say `TRAINED`, the function's name in
both, and functions of rows of logits that PyTorch has none for (beside PyTorch's operations); which modules: those that workloads name in
`MODULE`, with a weight for each class and without, where an operator has one; which operators: those of the table of replacements, whose arguments are those of our operator's workload, under PyTorch's signature. What steps
of modules and replaced operators take is the host's time. Before anything is timed, ours is compared with float64.
"""

from __future__ import annotations

import copy
import functools
import importlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from openaclnn.bench.contenders import first_line, further_off
from openaclnn.bench.problems import first_variant, to_torch
from openaclnn.bench.timing import (
    COPY,
    SAMPLE_SECONDS,
    Bench,
    Case,
    Contender,
    Row,
    paired_ratio,
    time_contenders,
)
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import FLOATS, DType
from openaclnn.operators import registry

OURS, THEIRS = "openaclnn.torch", "torch"
PEERS = (
    THEIRS, "torch.compile", "torch.compile dynamic", "torch's function", "liger", "cut-cross-entropy", "products"
)  # fmt: skip
DRAWN = 1 << 22  # elements
STEP_SECONDS = 10e-3
"""Steps follow each other for so long: a GPU that has to wait for the first of them does not wait in training."""
FEW = {"elementwise": (16,), "rows": (2, 8), "pixels": (1, 4, 2, 2)}
"""16 elements, where nothing but the call itself takes time."""
MODULE, WEIGHT = "module", "weight"

_SHAPES: dict[str, dict[str, tuple[tuple[str, tuple[int, ...]], ...]]] = {
    "cpu": {
        "elementwise": (("bandwidth", (1 << 24,)),),
        "rows": (("vocabulary 32k", (512, 32000)), ("segmentation", (8, 21, 512, 512))),
        "pixels": (("21 classes", (8, 21, 512, 512)),),
    },
    "cuda": {
        "elementwise": (("bandwidth", (1 << 26,)),),
        "rows": (
            ("vocabulary 32k", (8192, 32000)), ("vocabulary 128k", (4096, 128256)),
            ("odd 50257", (16384, 50257)), ("segmentation", (32, 21, 512, 512)),
        ),
        "pixels": (("21 classes", (32, 21, 512, 512)),),
    },
}  # fmt: skip


class Step:
    """One contender's step: its result and the gradient stay, to be compared."""

    def __init__(self, function: Callable[..., Any], variable: Any, others: Sequence[Any]) -> None:
        self.function, self.others = function, others
        self.variable = variable.detach().requires_grad_()
        self.seed: Any = None
        self.loss: Any = None

    def __call__(self) -> None:
        self.variable.grad = None
        self.loss = self.function(self.variable, *self.others)
        if self.seed is None and self.loss.dim():
            self.seed = self.loss.detach().clone()  # as good a gradient as any
        self.loss.backward(self.seed)


def _tried(steps: dict[str, Step], torch: Any) -> tuple[list[Contender], dict[str, str]]:
    """The steps as contenders, and what is wrong with ours; another's that does not run cannot be had."""
    contenders, failed = [], dict[str, str]()
    for name, step in steps.items():
        try:
            step()
        except Exception as error:
            failed[name] = first_line(error)
        stopped = "" if name == OURS else failed.get(name, "")
        contenders.append(Contender(name, step, name == OURS, unavailable=stopped))
    if OURS in failed or THEIRS in failed:
        return contenders, {name: fault for name, fault in failed.items() if name == OURS}
    ours, theirs = steps[OURS], steps[THEIRS]
    wide = [each.double() if each.is_floating_point() else each for each in ours.others]
    function = theirs.function
    if isinstance(function, torch.nn.Module):
        function = copy.deepcopy(function).double()  # its weights, too
    exact = Step(function, ours.variable.double(), wide)
    exact.seed = None if ours.seed is None else ours.seed.double()
    exact()
    eps = torch.finfo(ours.variable.dtype).eps
    gradient = further_off(ours.variable.grad, theirs.variable.grad, exact.variable.grad, eps)
    loss = further_off(ours.loss.detach(), theirs.loss.detach(), exact.loss.detach(), eps)
    fault = f"gradient is {gradient}" if gradient else loss and f"loss is {loss}"
    return contenders, {OURS: fault} if fault else {}


def step_cases(device: str, dtypes: Sequence[DType] = ()) -> list[Case]:
    """Steps on a device's large problems."""
    cases = []
    for operator in registry():
        function = getattr(operator.workloads, "TRAINED", None)
        shapes = _SHAPES[device][operator.workloads.PATTERN] if function else ()
        for (regime, shape), dtype in itertools.product(shapes, dtypes or FLOATS):
            runner, kind = functools.partial(_run_step, operator, dtype), f"training {regime}"
            about = str(function), "forward and backward", regime, shape, dtype.name
            cases.append(Case(*about, runner, kind))
    rows = [each for each in _SHAPES[device]["rows"] if len(each[1]) == 2]
    for name, (regime, shape), dtype in itertools.product(OF_LOGITS, rows, dtypes or FLOATS):
        about = name, "forward and backward", regime, shape, dtype.name
        cases.append(Case(*about, functools.partial(_run_of_logits, dtype), f"training {regime}"))
    return cases


def _run_step(operator: Operator, dtype: DType, case: Case, bench: Bench) -> list[Row]:
    """In turn with a copy of the input."""
    variable, *others = _large_tensors(operator, dtype, case.shape, bench)
    steps = _steps(case.name, variable, others, bench.torch)
    return beside_a_copy(case, dict(steps), variable, bench)


def _run_of_logits(dtype: DType, case: Case, bench: Bench) -> list[Row]:
    """A function of rows of scores, and its gradient, in turn with a copy of the scores."""
    torch = bench.torch
    numbers = torch.Generator(bench.device).manual_seed(5)
    kind = getattr(torch, str(dtype.torch_name))
    x, other = (
        (3 * torch.randn(case.shape, generator=numbers, device=bench.device)).to(kind)
        for _ in range(2)
    )
    rows, words = case.shape
    if case.name == LOG_PROBS:
        other = torch.randint(0, words, (rows,), generator=numbers, device=bench.device)
    ours, theirs = OF_LOGITS[case.name]
    steps = {OURS: Step(ours, x, [other]), THEIRS: Step(theirs, x, [other])}
    if x.is_cuda:
        torch.compiler.reset()
        steps[PEERS[1]] = Step(torch.compile(theirs, dynamic=False), x, [other])
    return beside_a_copy(case, steps, x, bench)


def _our_log_probs(x: Any, target: Any) -> Any:
    from openaclnn.torch import functional

    log_prob, entropy = functional.log_probs_and_entropy(x, target)
    return log_prob + entropy


def _our_divergence(x: Any, teacher: Any) -> Any:
    from openaclnn.torch import functional

    return functional.distillation_kl(x, teacher)


def _log_probabilities(x: Any) -> Any:
    """In FLOAT, as those who need these compute them."""
    import torch

    return torch.nn.LogSoftmax(-1)(x if x.dtype.itemsize > 2 else x.float())


def _their_log_probs(x: Any, target: Any) -> Any:
    log_p = _log_probabilities(x)
    return log_p.gather(-1, target[:, None])[:, 0] - (log_p.exp() * log_p).sum(-1)


def _their_divergence(x: Any, teacher: Any) -> Any:
    log_p, log_q = map(_log_probabilities, (x, teacher))
    return (log_q.exp() * (log_q - log_p)).sum(-1)


LOG_PROBS = "log_probs_and_entropy"
OF_LOGITS = {
    LOG_PROBS: (_our_log_probs, _their_log_probs),
    "distillation_kl": (_our_divergence, _their_divergence),
}
"""Functions of rows of scores, ours and as PyTorch's operations."""


def beside_a_copy(
    case: Case, steps: dict[str, Step], variable: Any, bench: Bench, *more: Contender
) -> list[Row]:
    """The steps, and what else is timed with them, in turn with a copy of a tensor."""
    torch = bench.torch
    contenders, faults = _tried(steps, torch)
    place = torch.empty_like(variable)
    copying = Contender(COPY, lambda: place.copy_(variable))
    rows, timings = time_contenders(
        case.about, [*contenders, *more, copying], faults, bench, sample_seconds=STEP_SECONDS
    )
    for row in rows:
        timing = timings.get(row["contender"])
        copied = timing and paired_ratio(timings[COPY], timing)
        row["copies"] = copied and 1 / copied
    return rows


def _large_tensors(
    operator: Operator, dtype: DType, shape: tuple[int, ...], bench: Bench
) -> list[Any]:
    """What the function is called with: the first rows are drawn, the others repeat them."""
    count, *rest = shape
    rows = min(count, max(1, DRAWN // math.prod(rest)))
    while rows in rest:  # a weight for each class would look like rows
        rows -= 1
    tensors = _tensors(operator, dtype, (rows, *rest), bench)
    places = bench.torch.arange(count, device=bench.device) % rows
    return [each[places] if rows < count and each.shape[:1] == (rows,) else each for each in tensors.values()]  # fmt: skip


def _drawn(operator: Operator, dtype: DType, shape: tuple[int, ...], variant: str) -> Any:
    return operator.workloads.make(np.random.default_rng(5), dtype, shape, variant)


def _tensors(operator: Operator, dtype: DType, shape: tuple[int, ...], bench: Bench) -> Any:
    """The workload's arrays on the device, by name."""
    drawn = _drawn(operator, dtype, shape, first_variant(operator))
    arrays = {name: value for name, value in drawn.items() if isinstance(value, np.ndarray)}
    return {name: to_torch(bench.torch, array).to(bench.device) for name, array in arrays.items()}


def _steps(name: str, variable: Any, others: list[Any], torch: Any) -> Iterator[tuple[str, Step]]:
    """Ours and the peers'."""
    from openaclnn.torch import functional

    theirs = getattr(torch.nn.functional, name)
    yield OURS, Step(getattr(functional, name), variable, others)
    yield PEERS[0], Step(theirs, variable, others)
    if not variable.is_cuda:
        return
    torch.compiler.reset()  # else the ninth shape falls back to eager without a word
    yield PEERS[1], Step(torch.compile(theirs, dynamic=False), variable, others)
    if variable.dim() == 2:
        # Code of its own: what is compiled belongs to that, not to the function.
        of_any_size = torch.compile(lambda *arguments: theirs(*arguments), dynamic=True)
        yield PEERS[2], Step(of_any_size, variable, others)
        try:
            liger = importlib.import_module("liger_kernel.transformers.functional")
        except ImportError:
            return
        if hasattr(liger, f"liger_{name}"):
            yield "liger", Step(getattr(liger, f"liger_{name}"), variable, others[:1])


def module_cases(dtypes: Sequence[DType] = ()) -> list[Case]:
    """Steps of our modules beside PyTorch's of the same name, eager both."""
    cases = []
    for operator in registry():
        module: Any = getattr(operator.workloads, "MODULE", None)
        known = WEIGHT in [parameter.python_name for parameter in operator.parameters]
        weights = {", weighted": True, ", no weight": False} if known else {"": False}
        for pattern, said, dtype in itertools.product(
            module.patterns if module else (), weights, dtypes or FLOATS
        ):
            runner = functools.partial(_run_module, operator, dtype, weights[said])
            about = module.name, pattern + said, MODULE, FEW[pattern], dtype.name
            cases.append(Case(*about, runner, f"training {MODULE} {pattern}{said}"))
    return cases


def _run_module(
    operator: Operator, dtype: DType, weighted: bool, case: Case, bench: Bench
) -> list[Row]:
    torch = bench.torch
    tensors = _tensors(operator, dtype, case.shape, bench)
    variable, *others = [tensor for name, tensor in tensors.items() if name != WEIGHT]
    options = {}
    if weighted:
        drawn = (0.5 + np.random.default_rng(5).random(case.shape[1])).astype(dtype.numpy)
        options[WEIGHT] = to_torch(torch, drawn).to(bench.device)
    libraries = {OURS: importlib.import_module("openaclnn.torch.nn"), THEIRS: torch.nn}
    steps = {
        side: Step(getattr(library, case.name)(**options), variable, others)
        for side, library in libraries.items()
    }
    contenders, faults = _tried(steps, torch)
    return _pair(case, contenders, faults.get(OURS, ""), bench, STEP_SECONDS)


def _pair(
    case: Case, sides: Sequence[Contender], fault: str, bench: Bench, seconds: float = SAMPLE_SECONDS
) -> list[Row]:  # fmt: skip
    """Ours and PyTorch's on few elements, in turn, with a yardstick in every round: ratios are of the time until the work is done, and of
    the caller's own."""
    about, faults = case.about | {"near": []}, {OURS: fault} if fault else {}
    rows, timings = time_contenders(
        about, sides, faults, bench, measuring=True, sample_seconds=seconds
    )
    for row in rows:
        row["host_ratios"] = {}
        if row["ratios"]:
            ratio = paired_ratio(timings[THEIRS], timings[OURS], "host")
            row["host_ratios"] = {THEIRS: ratio}
    return sorted(rows, key=lambda row: not row["ours"])


def override_cases(dtypes: Sequence[DType] = ()) -> list[Case]:
    """Every operator that is replaced for few elements, by each variant of its workload, and without weights where they may be missing."""
    from openaclnn.torch.override import FEWEST, OVERRIDES
    from openaclnn.torch.signatures import WEIGHT as OPTIONAL

    cases = []
    for name, override in OVERRIDES.items():
        if name in FEWEST or not override.devices:
            continue
        work = override.kernel.operator.workloads
        weights = ("", ", no weight") if OPTIONAL in override.signature.kinds else ("",)
        for variant, said, dtype in itertools.product(work.VARIANTS, weights, dtypes or FLOATS):
            runner = functools.partial(_run_override, override, variant, not said, dtype)
            about = name, variant + said, "override", FEW[work.PATTERN], dtype.name
            cases.append(Case(*about, runner, f"override {variant}{said}"))
    return cases


def _run_override(
    override: Any, variant: str, weighted: bool, dtype: DType, case: Case, bench: Bench
) -> list[Row]:
    """Replacing and giving back is no part of what is timed."""
    from openaclnn.torch import use

    arguments = _override_arguments(case, override, variant, weighted, dtype, bench)
    call = functools.partial(override.call_theirs, override.overload, arguments)
    replaced = functools.partial(use, only=[case.name])
    sides = [Contender(THEIRS, call), Contender(OURS, call, True, inside=replaced)]
    fault = _override_fault(case.name, override, arguments, bench.torch)
    return _pair(case, sides, fault, bench)


def _override_arguments(
    case: Case, override: Any, variant: str, weighted: bool, dtype: DType, bench: Bench
) -> list[Any]:
    """The workload's, in PyTorch's order; one element has no axis, as autograd hands it over."""
    torch, kernel = bench.torch, override.kernel
    drawn = _drawn(kernel.operator, dtype, case.shape, variant)
    values = {name: drawn.get(name, default) for name, default in zip(kernel.names, kernel.defaults, strict=True)}  # fmt: skip
    for name in (kernel.names[place] for place in kernel.tensors):
        tensor = to_torch(torch, values[name]).to(bench.device)
        values[name] = tensor.reshape(()) if tensor.numel() == 1 else tensor
    if not weighted:
        values[WEIGHT] = None
    arguments: list[Any] = override.arguments(values)
    return arguments


def _override_fault(name: str, override: Any, arguments: Sequence[Any], torch: Any) -> str:
    """Why our kernel is not timed: it does not serve, or is further from float64 than PyTorch's by more than a rounding."""
    from openaclnn.torch import served, use
    from openaclnn.torch.signatures import REDUCTION

    with use(only=[name]):
        for _ in range(2):
            ours = _results(override, arguments, torch)
    count = served()[name]
    if count.ours != count.calls:
        return f"PyTorch's served: {'; '.join(count.reasons)}"
    theirs = _results(override, arguments, torch)
    wide = [
        value.double() if isinstance(value, torch.Tensor) and value.is_floating_point()
        else torch.float64 if isinstance(value, torch.dtype) else value
        for value in arguments
    ]  # fmt: skip
    results = list(zip(ours, theirs, _results(override, wide, torch), strict=True))
    reduction = override.signature.kinds.find(REDUCTION)
    # What is beside losses that nobody adds up PyTorch may leave as it was allocated.
    if reduction >= 0 and not arguments[reduction]:
        results = results[:1]
    eps = torch.finfo(ours[0].dtype).eps
    return next((fault for each in results if (fault := further_off(*each, eps))), "")


def _results(override: Any, arguments: Sequence[Any], torch: Any) -> list[Any]:
    """One or several, of copies: an operator may write over what it is given."""
    copies = [each.clone() if isinstance(each, torch.Tensor) else each for each in arguments]
    results = override.call_theirs(override.overload, copies)
    return list(results) if isinstance(results, tuple) else [results]
