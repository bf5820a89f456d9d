"""A tensor-parallel head: each process has some words of the vocabulary, and no process has logits of all rows, or a whole row. The loss is that of
`openaclnn.torch.parallel`, which the functions and modules of `openaclnn.torch` call for DTensors. Models of transformers need no `heads`.

    torchrun --nproc-per-node 2 examples/recipes/tensor_parallel_head.py
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import openaclnn.torch as fast

WORDS, WIDTH = 5003, 32


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ELU())
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, words: Tensor) -> Tensor:
        logits = self.head(self.body(self.embedding(words[:, :-1])).flatten(0, 1))
        return self.criterion(logits, words[:, 1:].flatten())


def train(mesh: DeviceMesh, steps: int = 3) -> list[float]:
    torch.manual_seed(0)
    model = Model()
    # Logits stay in shards of the vocabulary.
    plan = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(model, mesh, {"head": plan})
    applied = fast.apply_to(model, heads="head")  # the line to add: the loss without the shards
    if dist.get_rank() == 0:
        print(applied)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, foreach=False)
    words = torch.randint(1000, (4, 17))
    losses = []
    for _ in range(steps):
        loss = model(words)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    dist.init_process_group("gloo")
    losses = train(init_device_mesh("cpu", (dist.get_world_size(),)))
    if dist.get_rank() == 0:
        print("losses", *(f"{loss:.3f}" for loss in losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
