"""Tasks of one's own, on data that every machine has (`docs/tasks.md`).

cd examples/own
melisma simulate table.toml          # or text.toml, autoencoder.toml
python my_tasks.py base              # trains what lora.toml then adapts
melisma simulate lora.toml
"""

import ast
import math
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import melisma as mel

Batch = dict[str, Tensor]


# A table: ten numbers of each of 442 patients, and how ill they are a year later.


def diabetes() -> mel.Task:
    """Predict the progression of diabetes, in standard deviations."""

    def patients(rows: slice) -> dict[str, Any]:
        from sklearn.datasets import load_diabetes

        found = load_diabetes()
        x, y = found.data / found.data.std(), found.target
        y = (y - y.mean()) / y.std()
        return {"x": x[rows].astype("f4"), "y": y[rows].astype("f4")}

    return mel.Task(
        model=lambda: nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1)),
        train=lambda: patients(slice(0, 342)),
        test=lambda: patients(slice(342, None)),
        loss="mse",
        metrics=["r2", "mae"],
        optimiser="AdamW",
        arguments={"weight_decay": 0.1},
        rate=0.002,
    )


# No labels: an autoencoder is compared with its own inputs.


def autoencoder() -> mel.Task:
    """Squeeze digits of 784 pixels through 16 numbers."""

    def digits(part: str) -> Any:
        from melisma.learning import data

        found = data.load("mnist-5k")
        return {"x": getattr(found, part)[:]["x"]}

    return mel.Task(
        model=lambda: nn.Sequential(
            *(nn.Flatten(), nn.Linear(784, 64), nn.GELU(), nn.Linear(64, 16)),
            *(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 784), nn.Sigmoid()),
        ),
        train=lambda: digits("train"),
        test=lambda: digits("test"),
        loss="mse",
        metrics=["rmse"],
        optimiser="Adam",
        rate=0.002,
    )


# Text: the next character of the standard library's own docstrings.

WINDOW, LETTERS = 48, 96  # characters that are seen; printable ASCII, and all others


def library(*folders: str) -> list[Path]:
    """Return the files of some folders of the standard library."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return [file for folder in folders for file in sorted((root / folder).glob("*.py"))]


def characters(files: Iterable[Path], most: int) -> Tensor:
    """Return windows of docstrings, each a row of numbers from 0 to 95."""
    text = "\n".join(docstring for file in files for docstring in _docstrings(file))
    codes = np.frombuffer(text.encode("latin-1", "replace"), np.uint8)
    letters = np.where((codes >= 32) & (codes < 127), codes - 32, LETTERS - 1)
    rows = min(most, len(letters) // (WINDOW + 1))
    return torch.from_numpy(letters[: rows * (WINDOW + 1)].reshape(rows, -1).copy())


def _docstrings(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def samples(files: Iterable[Path], most: int) -> dict[str, Tensor]:
    """Return characters and those that follow them."""
    rows = characters(files, most)
    return {"x": rows[:, :-1], "y": rows[:, 1:]}


class Block(nn.Module):
    """Attention to what came before, and two layers."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.ask, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.grow, self.shrink = (
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )

    def forward(self, a: Tensor) -> Tensor:
        """Return windows of as many vectors."""
        n, length, width = a.shape
        parts = self.ask(self.first(a)).view(n, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        a = a + self.join(seen.transpose(1, 2).reshape(n, length, width))
        return a + self.shrink(F.gelu(self.grow(self.second(a))))


class Transformer(nn.Module):
    """A small language model."""

    def __init__(self, width: int = 48, blocks: int = 2) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        self.places = nn.Parameter(0.02 * torch.randn(WINDOW, width))
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.out = nn.Linear(width, LETTERS)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of each next character."""
        logits: Tensor = self.out(self.blocks(self.letters(x) + self.places))
        return logits


def surprise(model: nn.Module, batch: Batch) -> Tensor:
    """Return the mean over a window of −log p(next character)."""
    each = F.cross_entropy(
        model(batch["x"]).transpose(1, 2), batch["y"], reduction="none"
    )
    return each.mean(dim=1)


def bits(model: nn.Module, batches: Iterable[Batch]) -> float:
    """Return the bits that a character takes."""
    every = torch.cat([surprise(model, batch) for batch in batches])
    return float(every.mean()) / math.log(2)


def whole_numbers(batch: Batch) -> Batch:
    """Characters stay whole numbers: by default, bytes would be those of an image."""
    return {name: value.long() for name, value in batch.items()}


def language(model: Any, files: list[Path], rate: float) -> mel.Task:
    """Return the task to predict the next character of these files' docstrings."""
    return mel.Task(
        model=model,
        train=lambda: samples(files[1::2], 4000),
        test=lambda: samples(files[::2], 400),
        loss=surprise,
        transform=whole_numbers,
        metrics=[mel.Metric(name="bits", of=bits, more_is_better=False)],
        optimiser="AdamW",
        rate=rate,
        clip=1.0,
    )


def text() -> mel.Task:
    """Learn to write docstrings."""
    return language(Transformer, library("."), rate=0.002)


# Fine-tuning: the model is frozen, and small adapters learn another corpus.

BASE = Path("base.pt")


class Adapted(nn.Module):
    """A frozen linear layer, and beside it a product of two thin ones (LoRA)."""

    def __init__(self, frozen: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, frozen.in_features) / rank)
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both."""
        y: Tensor = self.frozen(x) + x @ self.down.T @ self.up.T
        return y


def adapted() -> nn.Module:
    """Return the trained model, frozen, with adapters in its attention.

    A learner that has no file of it makes other numbers, and fetches these once.
    """
    model = Transformer()
    if BASE.exists():
        model.load_state_dict(torch.load(BASE, weights_only=True))
    model.requires_grad_(False)
    for block in model.blocks:
        block.ask, block.join = Adapted(block.ask), Adapted(block.join)
    return model


def lora() -> mel.Task:
    """Adapt the model to the docstrings of other modules."""
    return language(adapted, library("email", "http", "logging"), rate=0.01)


if __name__ == "__main__" and sys.argv[1:] == ["base"]:
    run = mel.simulate(mel.Job(name="base", task=text, cycles=10, shard=20), runs=None)
    torch.save(run.model, BASE)
    print(f"{run.history.metric[-1]:.2f} bits a character: {BASE}")
