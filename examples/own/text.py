"""Text: a small transformer learns the next character of Python's own docstrings.

cd examples/own
melisma simulate text.toml
"""

import math
import re
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import melisma as mel

Batch = dict[str, Tensor]

WINDOW = 32  #: characters that are seen
LETTERS = 64  #: capitals, digits and signs: ASCII from 32 to 95
LATEST = 4  #: characters that make a vector, before any attention


def docstrings(source: str) -> str:
    """Return what stands between triple quotes."""
    return " ".join(re.findall(r'"""(.+?)"""', source, re.DOTALL))


def corpus(
    part: int, most: int, text: Callable[[str], str] = docstrings
) -> dict[str, Tensor]:
    """Return windows of every second file of the standard library: ``part`` 0 or 1."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[part::2]
    found = " ".join(text(file.read_text("utf-8")) for file in files)
    words = " ".join(found.upper().split()).encode("ascii", "ignore")
    codes = np.frombuffer(words, np.uint8)
    codes = np.where((codes >= 32) & (codes < 96), codes - 32, 0).astype("u1")
    rows = codes[: len(codes) // (WINDOW + 1) * (WINDOW + 1)].reshape(-1, WINDOW + 1)
    rows = torch.from_numpy(rows[:: max(1, len(rows) // most)][:most].copy())
    return {"x": rows[:, :-1], "y": rows[:, 1:]}


class Block(nn.Module):
    """Attention to what came before, and two layers."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.ask = nn.Linear(width, 3 * width, bias=False)
        self.join = nn.Linear(width, width)
        self.grow, self.shrink = nn.Linear(width, 96), nn.Linear(96, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

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

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.letters = nn.Embedding(LATEST * LETTERS, width)
        nn.init.normal_(self.letters.weight, std=0.3)
        self.places = nn.Parameter(0.02 * torch.randn(WINDOW, width))
        self.block = Block(width)
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, LETTERS)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of each next character."""
        latest = F.pad(x, (LATEST - 1, 0)).unfold(1, LATEST, 1)
        ages = LETTERS * torch.arange(LATEST, device=x.device)
        a = self.letters(latest + ages).sum(dim=2) + self.places
        logits: Tensor = self.out(self.norm(self.block(a)))
        return logits


def surprise(model: nn.Module, batch: Batch) -> Tensor:
    """Return the mean over each window of −log p(next character)."""
    logits = model(batch["x"]).transpose(1, 2)
    return F.cross_entropy(logits, batch["y"], reduction="none").mean(dim=1)


def bits(model: nn.Module, batches: Iterable[Batch]) -> float:
    """Return the bits that a character takes."""
    every = torch.cat([surprise(model, batch) for batch in batches])
    return float(every.mean()) / math.log(2)


def whole_numbers(batch: Batch) -> Batch:
    """Characters stay whole numbers: by default, bytes would be those of an image."""
    return {name: value.long() for name, value in batch.items()}


def language(
    model: Callable[[], nn.Module],
    windows: Callable[[int, int], dict[str, Tensor]],
    rate: float,
) -> mel.Task:
    """Return the task to predict the next character of some windows."""
    return mel.Task(
        model=model,
        train=lambda: windows(1, 6000),
        test=lambda: windows(0, 400),
        loss=surprise,
        transform=whole_numbers,
        metrics=[mel.Metric(name="bits", of=bits, more_is_better=False)],
        optimiser="AdamW",
        rate=rate,
        clip=1.0,
    )


def prose() -> mel.Task:
    """Learn to write docstrings."""
    return language(Transformer, corpus, rate=0.01)
