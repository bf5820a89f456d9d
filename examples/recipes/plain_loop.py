"""A model and a loop of one's own: the loss is a cross entropy by hand over 50,257 words, whose logits are never computed.

python examples/recipes/plain_loop.py
"""

import torch
from torch import Tensor, nn

import openaclnn.torch as fast

WORDS, WIDTH = 50257, 16


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ELU())
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.body(self.embedding(words)))


def train(steps: int = 3) -> list[float]:
    torch.manual_seed(0)
    model = Model()
    print(fast.apply_to(model, heads="head"))  # the line to add
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    words = torch.randint(1000, (4, 17))
    losses = []
    for _ in range(steps):
        logits = model(words[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    print("losses", *(f"{loss:.3f}" for loss in train()))
