"""Workloads of aclnnCrossEntropyLoss and aclnnCrossEntropyLossGrad."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from openaclnn.core.dtypes import DType
from openaclnn.core.interface import REDUCTIONS
from openaclnn.operators.workloads.words import Arguments, KernelForm, Peers, Variants, normal

LOSS_VARIANTS: Variants = {
    "mean": {"reduction": "mean"},
    "none": {"reduction": "none"},
    "label smoothing": {"reduction": "mean", "label_smoothing": 0.1},
}


def _make(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
) -> Arguments:
    """Normal logits and a random class for each row, or for each pixel of images, which are for training."""
    return {
        "input": normal(rng, dtype, shape),
        "target": rng.integers(0, shape[1], shape[:1] + shape[2:]),
        **LOSS_VARIANTS[variant],
    }


def _peers(torch: Any, values: Mapping[str, Any], out: Any) -> Peers:
    """PyTorch's function, the eager term for the z-loss, and the log-probabilities that ours writes beside."""
    functional, x, target = torch.nn.functional, values["input"], values["target"]
    options = {
        "reduction": values["reduction"],
        "label_smoothing": values.get("label_smoothing", 0.0),
        "ignore_index": values.get("ignore_index", -100),
    }
    scale = values.get("lse_square_scale_for_zloss", 0.0)

    def zloss() -> Any:
        counted = target != options["ignore_index"]
        losses = scale * torch.logsumexp(x, 1).square() * counted
        reduced = {"mean": lambda: losses.sum() / counted.sum(), "sum": losses.sum}
        return reduced.get(values["reduction"], lambda: losses)()

    def both() -> Any:
        loss = functional.cross_entropy(x, target, **options)
        log_prob = functional.log_softmax(x, 1)
        if not scale:
            return loss, log_prob
        square = zloss()
        return loss + square, log_prob, square, torch.logsumexp(x, 1)

    return {"torch": both}


def _formula(torch: Any, values: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    x = values["input"].float()
    log_prob = x - torch.logsumexp(x, 1, keepdim=True)
    smoothing = values.get("label_smoothing", 0.0)
    losses = -(1 - smoothing) * log_prob.gather(1, values["target"][:, None])[:, 0]
    losses = losses - smoothing * log_prob.mean(1)
    loss = {"none": losses, "mean": losses.mean(), "sum": losses.sum()}[values["reduction"]]
    return loss.to(values["input"].dtype), log_prob.to(values["input"].dtype)


# The gradient.

GRADIENT_VARIANTS: Variants = {
    "mean": {"reduction": "mean"},
    "none": {"reduction": "none"},
    "mean, weight": {"reduction": "mean", "weighted": True},
    "mean, smoothing": {"reduction": "mean", "label_smoothing": 0.1},
    "mean, z-loss": {"reduction": "mean", "lse_square_scale_for_zloss": 1e-4},
}


def _make_gradient(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], variant: str
) -> Arguments:
    """Log-probabilities of normal logits, one row in sixteen ignored."""
    values = dict(GRADIENT_VARIANTS[variant])
    rows, classes = shape
    logits = rng.standard_normal(shape, np.float32)
    shift = np.log(np.exp(logits).sum(axis=1, keepdims=True, dtype=np.float64)).astype(np.float32)
    logits -= shift
    target = rng.integers(0, classes, rows)
    target[15::16] = -100
    if values.pop("weighted", False):
        values["weight"] = (0.5 + rng.random(classes)).astype(np.float32)
    if "lse_square_scale_for_zloss" in values:
        values["lse_for_zloss"] = shift[:, 0].astype(dtype.numpy)
    per_loss = (rows,) if values["reduction"] == "none" else ()
    return {
        "grad_loss": np.asarray(0.5 + rng.random(per_loss)).astype(dtype.numpy),
        "log_prob": logits.astype(dtype.numpy),
        "target": target,
        **values,
    }


def _settle(values: Mapping[str, Any], chosen: frozenset[str]) -> Arguments:
    """Drawn log-probabilities are those of logits, unless they were asked for by name."""
    if "log_prob" in chosen:
        return {}
    logits = values["log_prob"].astype(np.float64)
    top = logits.max(axis=1, keepdims=True, initial=-np.inf)
    shift = top + np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    settled = {"log_prob": (logits - shift).astype(values["log_prob"].dtype)}
    if "lse_for_zloss" in values and "lse_for_zloss" not in chosen:
        settled["lse_for_zloss"] = shift[:, 0].astype(values["log_prob"].dtype)
    return settled


def _unread(numbers: Mapping[str, Any]) -> tuple[str, ...]:
    """Tensors that lists carry along and that nothing reads, by the call's other arguments."""
    scale = numbers.get("lseSquareScaleForZloss") or 0
    return () if scale else ("gradZlossOptional", "lseForZlossOptional")


def _statistics(torch: Any, values: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Weights in the log-probabilities' dtype (aten wants that), which rows count, and their total weight."""
    log_prob, target = values["log_prob"], values["target"]
    weight = values.get("weight")
    counted = target != values.get("ignore_index", -100)
    safe = torch.where(counted, target, 0)
    each = torch.ones_like(target, dtype=torch.float32) if weight is None else weight[safe]
    total = (each.double() * counted).sum()
    factors = None if weight is None else weight.to(log_prob.dtype)
    return factors, counted, total


def _gradient_peers(torch: Any, values: Mapping[str, Any], out: Any) -> Peers:
    """The two aten operators that autograd runs, and the eager terms for smoothing and z-loss."""
    aten = torch.ops.aten
    log_prob, target, gradient = values["log_prob"], values["target"], values["grad_loss"]
    weight, counted, total = _statistics(torch, values)
    total_weight = total.to(log_prob.dtype)
    ignored = values.get("ignore_index", -100)
    reduction = REDUCTIONS.index(values["reduction"])
    smoothing = values.get("label_smoothing", 0.0)
    zloss = values.get("lse_square_scale_for_zloss", 0.0)
    scaled = gradient * (1 - smoothing)
    if values["reduction"] != "none":
        scaled = scaled.reshape(())
    arguments = scaled, log_prob, target, weight, reduction, ignored, total_weight

    def gradient_of_log_prob() -> Any:
        picked = aten.nll_loss_backward(*arguments)
        if smoothing:
            divisor = total if values["reduction"] == "mean" else 1.0
            rows = (gradient * smoothing / log_prob.shape[1] / divisor * counted).to(log_prob.dtype)
            picked -= rows[:, None] * weight if weight is not None else rows[:, None]
        return picked

    def add_zloss(result: Any) -> Any:
        if not zloss:
            return result
        divisor = counted.sum() if values["reduction"] == "mean" else 1
        rows = 2 * zloss * values["lse_for_zloss"].float() * counted * gradient.float() / divisor
        return result.add_(torch.exp(log_prob) * rows.to(log_prob.dtype)[:, None])

    def allocating() -> Any:
        result = aten._log_softmax_backward_data(
            gradient_of_log_prob(), log_prob, 1, log_prob.dtype
        )
        return add_zloss(result)

    peers: Peers = {"torch": allocating}
    if not smoothing and not zloss:
        picked = torch.empty_like(log_prob, memory_format=torch.contiguous_format)

        def into() -> Any:
            aten.nll_loss_backward.grad_input(*arguments, grad_input=picked)
            return aten._log_softmax_backward_data.out(picked, log_prob, 1, log_prob.dtype, out=out)

        peers["torch out="] = into
    return peers


def _gradient_formula(torch: Any, values: Mapping[str, Any]) -> Any:
    """The formula as an expression."""
    log_prob, target = values["log_prob"].float(), values["target"]
    gradient = values["grad_loss"].float()
    weight, classes = values.get("weight"), log_prob.shape[1]
    counted = target != values.get("ignore_index", -100)
    safe = torch.where(counted, target, 0)
    factors = torch.ones_like(gradient.expand(safe.shape)) if weight is None else weight[safe]
    each = factors * counted
    total = each.sum() if values["reduction"] == "mean" else 1.0
    smoothing = values.get("label_smoothing", 0.0)
    nll = gradient * (1 - smoothing) / total * each
    factor = nll
    hit = torch.arange(classes, device=target.device)[None, :] == safe[:, None]
    result = -torch.where(hit, nll[:, None], 0.0)
    if smoothing:
        smooth = gradient * smoothing / classes / total * counted
        weights = torch.ones(classes, device=target.device) if weight is None else weight
        factor = factor + smooth * weights.sum()
        result = result - smooth[:, None] * weights
    if values.get("lse_square_scale_for_zloss", 0.0):
        divisor = counted.sum() if values["reduction"] == "mean" else 1
        scale = 2 * values["lse_square_scale_for_zloss"]
        factor = factor + scale * values["lse_for_zloss"].float() * counted * gradient / divisor
    return (torch.exp(log_prob) * factor[:, None] + result).to(values["log_prob"].dtype)


cross_entropy_loss = SimpleNamespace(
    PATTERN="rows", TRAINED="cross_entropy", VARIANTS=LOSS_VARIANTS, make=_make, torch_peers=_peers, torch_formula=_formula,
    KERNELS=(KernelForm("cross_entropy_loss", {"input": "input", "target": "target", "weight": "weightOptional"}),),
)  # fmt: skip
_INPUTS = {
    "grad_loss": "gradLoss", "log_prob": "logProb", "target": "target", "weight": "weightOptional", "grad_zloss": "gradZlossOptional",
    "lse_for_zloss": "lseForZlossOptional",
}  # fmt: skip
cross_entropy_loss_grad = SimpleNamespace(
    PATTERN="rows", VARIANTS=GRADIENT_VARIANTS, DOMAINS={"log_prob": (-np.inf, 0.0)}, make=_make_gradient, settle=_settle, unread=_unread,
    torch_peers=_gradient_peers, torch_formula=_gradient_formula, KERNELS=(KernelForm("cross_entropy_loss_grad", _INPUTS),),
    COMPOSITE=True,  # autograd runs two operators for it
)  # fmt: skip
