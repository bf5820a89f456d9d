"""Lightning: a line in the module's constructor, after its layers.

python examples/recipes/lightning_module.py
"""

from typing import Any

import lightning
import torch
from torch import Tensor, nn

import openaclnn.torch as fast

WORDS, WIDTH = 30001, 32


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ELU())
        self.head = nn.Linear(WIDTH, WORDS)
        self.criterion = nn.CrossEntropyLoss()
        self.losses: list[float] = []
        print(fast.apply_to(self, heads="head"))  # the line to add

    def training_step(self, batch: Tensor, _: int) -> Tensor:
        logits = self.head(self.body(self.embedding(batch[:, :-1])))
        loss: Tensor = self.criterion(logits.flatten(0, 1), batch[:, 1:].flatten())
        self.losses.append(float(loss.detach()))
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def train(steps: int = 3) -> list[float]:
    torch.manual_seed(0)
    model = Model()
    data = torch.utils.data.DataLoader(list(torch.randint(1000, (8, 17))), batch_size=4)
    trainer = lightning.Trainer(
        max_steps=steps, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, data)
    return model.losses


if __name__ == "__main__":
    print("losses", *(f"{loss:.3f}" for loss in train()))
