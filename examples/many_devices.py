"""Losses spread over processes, compared with one process. Run it with

    torchrun --nproc-per-node 2 examples/many_devices.py
    torchrun --nproc-per-node 4 examples/many_devices.py

On CPUs processes talk by gloo, on GPUs (one each) by NCCL.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.functional import linear
from torch.nn.parallel import DistributedDataParallel

from openaclnn.torch import parallel

ROWS, FEATURES, CLASSES = 50, 24, 203  # no number of processes divides them


@dataclass(frozen=True)
class Comparison:
    """How far a spread loss and its gradient are from those of one process."""

    what: str
    loss: float
    gradient: float

    @property
    def near(self) -> bool:
        return self.loss <= 1e-6 and self.gradient <= 1e-6

    def __str__(self) -> str:
        words = [f"{own:.1e}" if own else "same bits" for own in (self.loss, self.gradient)]
        return f"{self.what:48} loss {words[0]:>9}   gradient {words[1]:>9}"


def far(one: Tensor, other: Tensor) -> float:
    """The largest difference, in parts of the largest value."""
    if not other.numel():
        return 0.0
    return float((one.detach() - other).abs().max() / other.abs().max())


def part(length: int) -> slice:
    """This process's part of an axis: the next of nearly equal ones."""
    rank, size = dist.get_rank(), dist.get_world_size()
    return slice(length * rank // size, length * (rank + 1) // size)


def problem(device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, a matrix that makes logits of them, targets (some are ignored) and weights of the classes."""
    made = torch.Generator().manual_seed(0)
    features = torch.randn(ROWS, FEATURES, generator=made)
    matrix = torch.randn(CLASSES, FEATURES, generator=made)
    target = torch.randint(CLASSES, (ROWS,), generator=made)
    target[::7] = -100
    weight = torch.rand(CLASSES, generator=made) + 0.5
    return features.to(device), matrix.to(device), target.to(device), weight.to(device)


def comparisons(device: str = "cpu") -> Iterator[Comparison]:
    """Each way of spreading the same loss; every process runs all of them."""
    features, matrix, target, weight = problem(device)
    logits = linear(features, matrix)
    alone = dist.new_subgroups(1)[0]
    options = {"label_smoothing": 0.1, "zloss_scale": 1e-3}

    def one_process(**more: Tensor) -> tuple[Tensor, Tensor]:
        own = logits.clone().requires_grad_()
        loss = parallel.vocab_parallel_cross_entropy(own, target, group=alone, **options, **more)
        return loss.detach(), torch.autograd.grad(loss, own)[0]

    loss, gradient = one_process(weight=weight)

    own = part(CLASSES)
    shard = logits[:, own].clone().requires_grad_()
    spread = parallel.vocab_parallel_cross_entropy(
        shard, target, group=None, weight=weight[own], **options
    )
    (local,) = torch.autograd.grad(spread, shard)
    yield Comparison("classes apart", far(spread, loss), far(local, gradient[:, own]))

    head = matrix[own].clone().requires_grad_()
    spread = parallel.linear_cross_entropy(
        features, head, target, group=None, weight=weight[own], **options
    )
    (local,) = torch.autograd.grad(spread, head)
    name = "classes of a linear layer apart, without logits"
    yield Comparison(name, far(spread, loss), far(local, gradient[:, own].T @ features))

    own = part(ROWS)
    rows = logits[own].clone().requires_grad_()
    spread = parallel.batch_parallel_cross_entropy(
        rows, target[own], group=None, weight=weight, **options
    )
    (local,) = torch.autograd.grad(spread, rows)
    yield Comparison("rows apart, a mean over all", far(spread, loss), far(local, gradient[own]))

    size = dist.get_world_size()
    mesh = init_device_mesh(device, (max(1, size // 2), min(2, size)))
    for placements in ([Shard(0), Shard(1)], [Shard(1), Shard(0)], [Replicate(), Shard(1)]):
        placed = distribute_tensor(logits, mesh, placements).requires_grad_()
        spread = parallel.cross_entropy(placed, target, weight, **options)
        spread.backward()
        assert placed.grad is not None
        name = f"DTensor on {tuple(mesh.shape)}, {', '.join(map(str, placements))}"
        yield Comparison(
            name, far(spread.full_tensor(), loss), far(placed.grad.full_tensor(), gradient)
        )

    loss, gradient = one_process()
    layer = torch.nn.Linear(FEATURES, CLASSES, bias=False, device=device)
    layer.weight.data.copy_(matrix)
    model = DistributedDataParallel(layer)
    spread = parallel.batch_parallel_cross_entropy(
        model(features[own]), target[own], group=None, averaged=True, **options
    )
    spread.backward()
    yield Comparison(
        "DistributedDataParallel, gradient of its weights",
        far(spread, loss),
        far(layer.weight.grad, gradient.T @ features),
    )


def main() -> None:
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if gpu else "gloo")
    torch.manual_seed(0)
    if dist.get_rank() == 0:
        print(
            f"{dist.get_world_size()} processes against one; differences in parts of the largest value"
        )
    for comparison in comparisons("cuda" if gpu else "cpu"):
        if dist.get_rank() == 0:
            print(comparison)
        if not comparison.near:
            raise SystemExit(f"process {dist.get_rank()} is too far away: {comparison}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
