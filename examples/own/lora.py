"""Fine-tuning: the transformer of `text.py` is frozen, and adapters learn to code.

cd examples/own
melisma simulate text.toml      # makes runs/text/model.safetensors
melisma simulate lora.toml
"""

import re
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import load_file
from text import Transformer, corpus, language
from torch import Tensor, nn

import melisma as mel

BASE = Path("runs/text/model.safetensors")


def code(source: str) -> str:
    """Return what stands outside of triple quotes."""
    return re.sub(r'""".+?"""', " ", source, flags=re.DOTALL)


class Adapted(nn.Module):
    """A frozen linear layer, and beside it a product of two thin ones (LoRA)."""

    rank_axes: ClassVar = {"down": 0, "up": 1}  # for slow learners' `submodel`

    def __init__(self, frozen: nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.frozen = frozen
        self.down = nn.Parameter(torch.randn(rank, frozen.in_features) / rank)
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both."""
        y: Tensor = self.frozen(x) + x @ self.down.T @ self.up.T
        return y


def adapted() -> nn.Module:
    """Return the trained model, frozen, with adapters in its block.

    A learner that does not have its file makes other numbers, and fetches these once.
    """
    model = Transformer()
    if BASE.exists():
        model.load_state_dict(load_file(BASE))
    model.requires_grad_(False)
    for name in ("ask", "join", "grow", "shrink"):
        setattr(model.block, name, Adapted(getattr(model.block, name)))
    return model


def windows(part: int, most: int) -> dict[str, Tensor]:
    """Return windows of code; only the orchestrator asks, which has to have the base.

    FileNotFoundError if it has not: there would be nothing to adapt.
    """
    if not BASE.exists():
        raise FileNotFoundError(f"{BASE} is missing: melisma simulate text.toml")
    return corpus(part, most, code)


def coder() -> mel.Task:
    """Adapt the model to write code."""
    return language(adapted, windows, rate=0.005)
