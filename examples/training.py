"""Two small models trained twice, with PyTorch's losses and with ours: the same data, the same first weights.

    python examples/training.py --steps 60 --png training.png

The head of a language model learns which word follows which, by cross entropy over a vocabulary; a net that segments
pictures learns shapes and their depths, by ELU, the negative log-likelihood of pixels and smooth L1. The picture shows
losses and times of steps; the last line, how far the curves come apart. Both sides take their steps in turn, so that what else
the machine does hits both. `--device cuda` trains on a GPU.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional
from torch import Tensor, nn

import openaclnn.torch.functional

SIDES = {"PyTorch": torch.nn.functional, "openaclnn": openaclnn.torch.functional}


class LanguageHead(nn.Module):
    """Embeddings of two words, mixed, and a matrix that makes logits of every next word."""

    words, width, batch = 4000, 64, 256

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(self.words, self.width)
        self.mix = nn.Linear(2 * self.width, self.width)
        self.head = nn.Linear(self.width, self.words)

    def loss(self, data: torch.Generator, side: Any, device: str) -> Tensor:
        """One word is a rule of the two before it, one in ten is missing."""
        pair = torch.randint(self.words // 40, (self.batch, 2), generator=data)
        following = (7 * pair[:, 0] + 3 * pair[:, 1]) % self.words
        following[torch.rand(self.batch, generator=data) < 0.1] = -100
        pair, following = pair.to(device), following.to(device)
        hidden = side.elu(self.mix(self.embedding(pair).flatten(1)))
        loss: Tensor = side.cross_entropy(self.head(hidden), following, label_smoothing=0.05)
        return loss


class Segmentation(nn.Module):
    """Three convolutions: at each pixel, which of the shapes it belongs to and how deep it lies."""

    shapes, size, batch = 6, 32, 8

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 5, padding=2)
        self.second = nn.Conv2d(16, 16, 5, padding=2)
        self.last = nn.Conv2d(16, self.shapes + 1, 1)

    def loss(self, data: torch.Generator, side: Any, device: str) -> Tensor:
        """Squares of six brightnesses, each at a depth of its own; their borders do not count."""
        blocks = torch.randint(self.shapes, (self.batch, 4, 4), generator=data)
        target = blocks.repeat_interleave(8, 1).repeat_interleave(8, 2)
        depth = target.float().square() / 10
        noise = 0.3 * torch.randn(target.shape, generator=data)
        picture = (target.float() + noise)[:, None]
        target[:, ::8] = target[:, :, ::8] = 255
        picture, target, depth = picture.to(device), target.to(device), depth.to(device)
        hidden = side.elu(self.second(side.elu(self.first(picture))))
        found = self.last(hidden)
        likelihood = torch.log_softmax(found[:, : self.shapes], 1)
        loss: Tensor = side.nll_loss(likelihood, target, ignore_index=255)
        loss = loss + 0.1 * side.smooth_l1_loss(found[:, self.shapes], depth, beta=0.5)
        return loss


@dataclass
class Curve:
    """A training: the loss before each step, and how many milliseconds it took."""

    losses: list[float] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)


class Training:
    """A model that one side trains, with data of its own that are the same for all."""

    def __init__(self, make: Callable[[], nn.Module], side: ModuleType, device: str) -> None:
        torch.manual_seed(0)
        self.model, self.side, self.device = make().to(device), side, device
        self.data = torch.Generator().manual_seed(1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.curve = Curve()

    def step(self) -> None:
        start = time.perf_counter()
        loss = self.model.loss(self.data, self.side, self.device)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.curve.losses.append(loss.item())
        self.curve.milliseconds.append(1000 * (time.perf_counter() - start))


def trained(steps: int, device: str) -> Iterator[tuple[str, dict[str, Curve]]]:
    """Each model's two curves; the sides step in turn."""
    for name, make in (("language-model head", LanguageHead), ("segmentation", Segmentation)):
        sides = {side: Training(make, own, device) for side, own in SIDES.items()}
        for _ in range(steps):
            for own in sides.values():
                own.step()
        yield name, {side: own.curve for side, own in sides.items()}


def apart(curves: dict[str, Curve]) -> float:
    """The largest difference of the losses, in parts of the loss."""
    one, other = (curve.losses for curve in curves.values())
    return max(abs(a - b) / abs(a) for a, b in zip(one, other, strict=True))


def draw(found: dict[str, dict[str, Curve]], path: str) -> None:
    """Losses above, times of steps below, a column for each model."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(found), figsize=(11, 7), squeeze=False)
    looks = {"PyTorch": {"linewidth": 4, "alpha": 0.4}, "openaclnn": {"linewidth": 1.2}}
    for column, (name, curves) in enumerate(found.items()):
        for side, curve in curves.items():
            axes[0][column].plot(curve.losses, label=side, **looks[side])
            usual = sorted(curve.milliseconds)[len(curve.milliseconds) // 2]
            axes[1][column].plot(
                curve.milliseconds, label=f"{side}, median {usual:.1f} ms", **looks[side]
            )
        axes[0][column].set(title=f"{name}: apart by {apart(curves):.1e} at most", ylabel="loss")
        axes[1][column].set(xlabel="step", ylabel="milliseconds a step", yscale="log")
        for row in axes:
            row[column].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--png", default="training.png", help="where the picture goes")
    given = parser.parse_args(arguments)
    if given.steps < 1:
        parser.error(f"--steps: expected 1 or more, got {given.steps}")
    if not Path(given.png).parent.is_dir():
        parser.error(f"--png: there is no folder {Path(given.png).parent}")
    if given.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error(f"--device {given.device}: PyTorch finds no GPU that it can use")
    found = dict(trained(given.steps, given.device))
    for name, curves in found.items():
        for side, curve in curves.items():
            usual = sorted(curve.milliseconds)[len(curve.milliseconds) // 2]
            first, last = curve.losses[0], curve.losses[-1]
            print(f"{name:20} {side:10} loss {first:.4f} -> {last:.4f}   {usual:.2f} ms a step")
    draw(found, given.png)
    largest = max(map(apart, found.values()))
    print(f"{given.png} has the curves; the largest difference is {largest:.1e} of the loss")
    return largest


if __name__ == "__main__":
    main()
