"""`openaclnn.torch` beside PyTorch: steps of training on large problems, steps of modules by size, and PyTorch's own operators as they are and as
`openaclnn.torch.enable` replaces them.

A step clears the gradients, computes the loss, and its gradients. Which functions: the workloads that say `TRAINED`, the function's name in
both; functions of rows of logits that PyTorch has none for, beside PyTorch's operations; and the cross entropy of a linear layer, beside its three matrix
products alone, which is as fast as it can be. Which modules: those that `openaclnn.torch.apply_to` can replace, where it decides which of them it replaces unasked.
Which operators: those of the table of replacements, whose arguments are those of our operator's workload, under PyTorch's signature. What steps on few elements and
replaced operators take is the host's time. Before anything is timed, ours is compared with float64.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from openaclnn.bench.contenders import checked, expected_of, fault_among
from openaclnn.bench.problems import Arguments, build, is_array
from openaclnn.bench.processes import memory_beyond
from openaclnn.bench.regimes import STEPS, Regime, Shape
from openaclnn.bench.timing import COPY, Bench, Case, Contender, Row, time_contenders
from openaclnn.core.dtypes import FLOAT, FLOATS, DType, dtype_of_name
from openaclnn.core.interop import torch_dtype
from openaclnn.operators import registry

OURS, THEIRS = "openaclnn.torch", "torch"
CROSS_ENTROPY, LINEAR = "cross_entropy", "linear_cross_entropy"
LOG_PROBS, DIVERGENCE = "log_probs_and_entropy", "distillation_kl"
_LIGER = "liger_kernel.transformers.functional"
_LIBRARIES = {
    CROSS_ENTROPY: (("liger", _LIGER, "liger_cross_entropy"),),
    LINEAR: (
        ("torch's function", "torch.nn.functional", LINEAR),
        ("liger", _LIGER, "liger_fused_linear_cross_entropy"),
        ("cut-cross-entropy", "cut_cross_entropy", LINEAR),
    ),
}
"""Other libraries' functions of the same arguments, timed where they can be imported."""
OVERRIDE = "override"
FEW = "few"  # elements: 16, where nothing but the call itself takes time
_FEW: dict[str, Shape] = {"elementwise": (16,), "rows": (2, 8), "pixels": (1, 4, 2, 2)}
_MORE: dict[str, tuple[Shape, ...]] = {
    "elementwise": ((1 << 12,), (1 << 16,), (1 << 20,)),
    "rows": ((256, 16), (4096, 16), (1024, 1024)),
    "pixels": ((1, 16, 16, 16), (1, 16, 64, 64), (1, 16, 256, 256)),
}
"""From which sizes on it is worth to replace PyTorch's operators: 4,096 to a million elements."""
SIZES: dict[str, Shape] = {
    FEW: _FEW["rows"], "small": (1, 1024), "cache": (64, 1024), "middle": (1024, 1024), "large": (16384, 1024),
}  # fmt: skip
"""Of modules."""
STEP, WEIGHT, NO_WEIGHT = "step", "weight", ", no weight"
_OF_CLASSES = ("CrossEntropyLoss", "NLLLoss")
"""The modules that take images, too, and a weight for each class: on few elements all of these are timed."""
LABELS = 8  # of a row, up to the first -1: each is compared with all classes
PATCH = 64  # pixels: the labels of an image lie together
_OPTIONS: dict[str, dict[str, Any]] = {
    "Softmax": {"dim": -1}, "LogSoftmax": {"dim": -1}, "Threshold": {"threshold": 0.5, "value": 20.0}, "KLDivLoss": {"reduction": "batchmean"},
}  # fmt: skip
_ELSEWHERE = ("LinearCrossEntropyLoss", "NLLLoss2d")  # of other arguments, or another's other name
_FORMS: dict[str, dict[str, float]] = {
    "": {},
    ", weight": {},
    ", smoothing": {"label_smoothing": 0.1},
}
"""How cross entropy is called in regimes of all variants."""


class Step:
    """One contender's step: its result and the gradients stay, to be compared."""

    def __init__(self, function: Callable[..., Any], variable: Any, others: Sequence[Any]) -> None:
        self.function, self.others = function, others
        self.variable = variable.detach().requires_grad_()
        self.leaves = [each for each in (self.variable, *others) if each.is_leaf and each.requires_grad]  # fmt: skip
        self.seed: Any = None
        self.loss: Any = None

    def clear(self) -> None:
        for each in self.leaves:
            each.grad = None

    def __call__(self) -> None:
        self.clear()
        self.loss = self.function(self.variable, *self.others)
        if self.seed is None and self.loss.dim():
            self.seed = self.loss.detach().clone()  # as good a gradient as any
        self.loss.backward(self.seed)

    def results(self) -> tuple[Any, ...]:
        return self.variable.grad, self.loss.detach()

    def memory(self) -> int:
        """What a step takes beside its arguments and their gradients."""
        self.clear()
        self.loss = None
        return max(memory_beyond(self) - sum(int(each.nbytes) for each in self.leaves), 0)


def _time_steps(
    case: Case, steps: dict[str, Step], copied: Any, bench: Bench, *more: Contender
) -> list[Row]:
    """The steps, and what else is timed with them, in turn with a copy of a tensor, or, of few elements, with a yardstick."""
    few, dtype = case.regime == FEW, dtype_of_name(case.dtype)
    exact = _in_float64(steps[THEIRS])  # before any other may write over what it is called with

    def fault_of(each: Contender) -> str:
        each.call()
        return fault_among(steps[each.name].results(), each, exact, dtype, bench.torch)

    contenders = checked(
        [Contender(name, step, name == OURS) for name, step in steps.items()], fault_of
    )
    contenders += more
    if not few:
        copy_into = bench.torch.empty_like(copied).copy_
        contenders.append(Contender(COPY, functools.partial(copy_into, copied)))
    return time_contenders(
        case.about, contenders, bench, measuring=few, sample_seconds=bench.clock.step_seconds
    )  # fmt: skip


def _in_float64(step: Step) -> tuple[Any, ...]:
    """The results of the same step on tensors of float64."""
    wide = [each.double() if each.is_floating_point() else each for each in step.others]
    function: Any = step.function
    if hasattr(function, "parameters"):  # a module, whose weights are made wide, too
        function = copy.deepcopy(function).double()
    exact = Step(function, step.variable.double(), wide)
    exact()
    return exact.results()


def _tensors(name: str, shape: Shape, dtype: str, bench: Bench, seed: int = 5) -> list[Any]:
    """What a function or a module of this name is called with, drawn on the device; weights of classes are last."""
    torch = bench.torch
    kind = torch_dtype(dtype_of_name(dtype))
    options = {"generator": torch.Generator(bench.device).manual_seed(seed), "device": bench.device}
    normal, uniform = functools.partial(torch.randn, **options), functools.partial(torch.rand, **options)  # fmt: skip
    integers = functools.partial(torch.randint, 0, **options)
    loss = name.lower().replace("_", "").removesuffix("loss")
    x = uniform(shape) if loss == "bce" else normal(shape)
    if loss in ("nll", "kldiv"):
        x = -x.abs()
    targets = []
    if loss in ("nll", "crossentropy") or name == LOG_PROBS:
        rows, classes, *pixels = shape
        target = integers(classes, (rows, *[-(-length // PATCH) for length in pixels]))
        for axis, length in enumerate(pixels, 1):
            target = target.repeat_interleave(PATCH, axis).narrow(axis, 0, length)
        targets.append(target.contiguous())
        if loss == "nll":
            targets.append((0.5 + uniform(classes)).to(kind))
    elif loss == "multilabelmargin":
        targets.append(integers(shape[-1], shape))
        targets[0][:, LABELS:] = -1
    elif loss in ("bce", "bcewithlogits", "kldiv"):
        targets.append(uniform(shape).to(kind))
    elif loss == "softmargin":
        targets.append(normal(shape).sign().to(kind))
    elif name == DIVERGENCE or name.lower().endswith("loss"):
        targets.append(normal(shape).to(kind))
    return [x.to(kind), *targets]


def _our_log_probs(x: Any, target: Any) -> Any:
    from openaclnn.torch import functional

    log_prob, entropy = functional.log_probs_and_entropy(x, target)
    return log_prob + entropy


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


def _their_linear(x: Any, weight: Any, target: Any) -> Any:
    import torch

    return torch.nn.functional.cross_entropy(torch.nn.functional.linear(x, weight), target)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    LOG_PROBS: _their_log_probs,
    DIVERGENCE: _their_divergence,
    LINEAR: _their_linear,
}
"""PyTorch's operations where it has no function, or has one that few use."""


def _functions(
    name: str, x: Any, torch: Any, dynamic: bool, **options: float
) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Ours and the peers', of the same arguments; `dynamic`: also what PyTorch compiles for any shape, and other libraries' functions."""
    from openaclnn.torch import functional

    def bound(function: Callable[..., Any]) -> Callable[..., Any]:
        return (lambda *arguments: function(*arguments, **options)) if options else function

    theirs = bound(_OPERATIONS.get(name) or getattr(torch.nn.functional, name))
    yield OURS, _our_log_probs if name == LOG_PROBS else bound(getattr(functional, name))
    yield THEIRS, theirs
    if x.is_cuda:
        torch.compiler.reset()  # else the ninth shape falls back to eager without a word
        yield "torch.compile", torch.compile(theirs, dynamic=False)
        if name == CROSS_ENTROPY and dynamic:
            # Code of its own: what is compiled belongs to that, not to the function.
            compiled = torch.compile(lambda *arguments: theirs(*arguments), dynamic=True)
            yield "torch.compile dynamic", compiled
    for peer, module, function in _LIBRARIES.get(name, ()) if dynamic else ():
        with contextlib.suppress(ImportError, AttributeError):
            yield peer, getattr(importlib.import_module(module), function)


def step_cases(device: str, dtypes: Sequence[DType] = FLOATS, quick: bool = False) -> list[Case]:
    """Steps on a device's large problems; of a quick run those of cross entropy that tell most."""
    regimes = STEPS[device]
    functions = [
        (operator.workloads.TRAINED, regimes[operator.workloads.PATTERN])
        for operator in registry()
        if hasattr(operator.workloads, "TRAINED")
    ]
    long = tuple([each for each in regimes["rows"] if not each.family and len(each.shape) == 2])
    functions += [(LOG_PROBS, long), (DIVERGENCE, long), (LINEAR, regimes["linear"])]
    cases = []
    for name, chosen in functions:
        for regime in chosen:
            if quick and not (regime.quick and name == CROSS_ENTROPY):
                continue
            forms = _FORMS if name == CROSS_ENTROPY and regime.all_variants else {"": {}}
            for form, dtype in product(forms, dtypes):
                run = functools.partial(_run_step, regime, form)
                about = name, STEP, regime.name + form, regime.shape, dtype.name
                cases.append(Case(*about, run, f"training {regime.name}{form}"))
    return cases


def _run_step(regime: Regime, form: str, case: Case, bench: Bench) -> list[Row]:
    """In turn with a copy of the input; of a linear layer with one of the scores, and with its products, and in memory, too."""
    bench = replace(bench, clock=bench.clock.ahead)
    linear, more = case.name == LINEAR, list[Contender]()
    if linear:
        tokens, features, words = case.shape
        copied, target = _tensors(CROSS_ENTROPY, (tokens, words), case.dtype, bench)
        [x] = _tensors(LINEAR, (tokens, features), case.dtype, bench)
        [weight] = _tensors(LINEAR, (words, features), case.dtype, bench, seed=6)
        x, others = x / features**0.5, [weight.requires_grad_(), target]
        products = functools.partial(_products, x, weight.detach(), copied)
        more.append(Contender("products", products))
    else:
        x, *others = _tensors(case.name, case.shape, case.dtype, bench)
        copied = x
    if form.endswith(WEIGHT):
        others += _tensors("nll", case.shape, case.dtype, bench)[-1:]
    dynamic = linear or (x.dim() == 2 and not regime.family and not bench.quick)
    functions = _functions(case.name, x, bench.torch, dynamic, **_FORMS[form])
    steps = {name: Step(function, x, others) for name, function in functions}
    rows = _time_steps(case, steps, copied, bench, *more)
    del copied
    more.clear()
    for row in rows if linear else ():
        if row["contender"] in steps and row["status"] != "unavailable":
            row["extra_bytes"] = steps[row["contender"]].memory()
    return rows


def _products(x: Any, weight: Any, scores: Any) -> None:
    """Of scores, and of gradients as if scores were theirs."""
    x @ weight.t()
    scores @ weight
    scores.t() @ x


def module_cases(dtypes: Sequence[DType] = FLOATS) -> Iterator[Case]:
    """Steps of every module that `apply_to` can replace, by size, eager both."""
    from openaclnn.torch.adopt import replacements

    names = sorted({module.__name__ for module in replacements()} - set(_ELSEWHERE))
    for name, (size, shape), dtype in product(names, SIZES.items(), dtypes):
        # PyTorch computes it in FLOAT alone, and by one thread: of 16,384 rows for seconds, in which nobody hears Ctrl-C.
        if name == "MultiLabelMarginLoss" and (dtype is not FLOAT or size == "large"):
            continue
        forms = {"": (shape, False)}
        if size == FEW and name in _OF_CLASSES:
            weights = {", weighted": True, NO_WEIGHT: False}.items()
            forms = {p + said: (_FEW[p], weighted) for p in ("rows", "pixels") for said, weighted in weights}  # fmt: skip
        for form, (drawn, weighted) in forms.items():
            run, kind = functools.partial(_run_module, weighted), f"module {size} {form}".strip()
            yield Case(name, form or STEP, size, drawn, dtype.name, run, kind)


def _run_module(weighted: bool, case: Case, bench: Bench) -> list[Row]:
    """Our module and PyTorch's of the same name."""
    from openaclnn.torch import nn

    x, *targets = _tensors(case.name, case.shape, case.dtype, bench)[:2]
    options = {WEIGHT: _tensors("nll", case.shape, case.dtype, bench)[-1]} if weighted else {}
    steps = {}
    for side, library in ((OURS, nn), (THEIRS, bench.torch.nn)):
        module = getattr(library, case.name)(**_OPTIONS.get(case.name, {}), **options)
        steps[side] = Step(module.to(bench.device, x.dtype), x, targets)
    return _time_steps(case, steps, x, bench)


def override_cases(dtypes: Sequence[DType] = FLOATS, quick: bool = False) -> Iterator[Case]:
    """Every operator that is replaced, by each variant of its workload, and without weights where they may be missing: on few elements and, unless in a quick run,
    on more."""
    from openaclnn.torch.override import OVERRIDES
    from openaclnn.torch.signatures import WEIGHT as OPTIONAL

    for name, override in OVERRIDES.items():
        if not override.devices:
            continue
        work = override.kernel.operator.workloads
        weights = ("", NO_WEIGHT) if OPTIONAL in override.signature.kinds else ("",)
        shapes = {OVERRIDE: _FEW[work.PATTERN]}
        if not quick:
            more = _MORE[work.PATTERN]
            shapes |= {f"{OVERRIDE} of {math.prod(shape)}": shape for shape in more}
        for (regime, shape), variant, said, dtype in product(
            shapes.items(), work.VARIANTS, weights, dtypes
        ):
            run = functools.partial(_run_override, override, variant, not said)
            about = name, variant + said, regime, shape, dtype.name
            yield Case(*about, run, f"{regime} {variant}{said}")


def _run_override(
    override: Any, variant: str, weighted: bool, case: Case, bench: Bench
) -> list[Row]:
    """Replacing and giving back is no part of what is timed. A kernel that declines the call is not timed: PyTorch's serves it."""
    from openaclnn.torch.override import served, use

    dtype, kernel = dtype_of_name(case.dtype), override.kernel
    problem = build(
        kernel.operator, variant, dtype, case.shape, device=bench.device,
        change=None if weighted else _weights_of_one,
    )  # fmt: skip
    assert problem is not None, "every operator takes such arguments"
    ours = dict(zip(kernel.names, kernel.defaults, strict=True)) | problem.in_torch.arguments
    if not weighted:
        ours[WEIGHT] = None
    for name, value in ours.items():  # one element has no axis, as autograd hands it over
        ours[name] = value.reshape(()) if is_array(value) and value.numel() == 1 else value
    arguments = override.arguments(ours)
    # What is beside losses that nobody adds up PyTorch may leave as it was allocated.
    alone = problem.arguments.get("reduction") == "none"
    expected = expected_of(problem)[: 1 if alone else None]

    def fault_of(each: Contender) -> str:
        """Of copies: an operator may write over what it is given. The second call may be by the fast path."""
        with each.inside():
            for _ in range(2):
                copies = [value.clone() if is_array(value) else value for value in arguments]
                results = override.call_torch(override.overload, copies)
        pairs = zip(problem.outputs_of(results), expected, strict=False)
        shaped = tuple([result.reshape(wanted.shape) for result, wanted in pairs])
        return fault_among(shaped, each, expected, dtype, bench.torch)

    call = functools.partial(override.call_torch, override.overload, arguments)
    replaced = functools.partial(use, only=[case.name])
    ours_replaced, theirs = checked(
        [Contender(OURS, call, True, inside=replaced), Contender(THEIRS, call)], fault_of
    )
    count = served()[case.name]
    if count.ours != count.calls:
        declined = f"PyTorch's served: {'; '.join(count.reasons)}"
        ours_replaced = replace(ours_replaced, unavailable=declined)
    return time_contenders(case.about, [ours_replaced, theirs], bench, measuring=True)


def _weights_of_one(arguments: Arguments, read: Sequence[str]) -> Arguments:
    """What the oracle takes where PyTorch is given no weights."""
    return arguments | {WEIGHT: arguments[WEIGHT] * 0 + 1}
