"""FSDP2 (`fully_shard`): the line comes before the shards. The loss is computed inside the head's call, where its weights are gathered.

torchrun --nproc-per-node 2 examples/recipes/fsdp2.py
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

import openaclnn.torch as fast

WORDS, WIDTH = 5003, 32


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ELU())
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        logits = self.head(self.body(self.embedding(words[:, :-1])))
        return nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())


def train(mesh: DeviceMesh, steps: int = 3) -> list[float]:
    torch.manual_seed(0)
    model = Model()
    applied = fast.apply_to(model, heads="head")  # the line to add
    if dist.get_rank() == 0:
        print(applied)
    for part in (model.body, model.head, model):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    words = torch.randint(1000, (4, 17), generator=torch.Generator().manual_seed(dist.get_rank()))
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
